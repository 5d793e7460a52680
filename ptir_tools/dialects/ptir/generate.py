"""Random PTIR programs from the declarations of the ops: any op and dtype, symbols, tuples, regions, hints, several functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core import generate as core
from ptir_tools.core.builder import Builder
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F32, I1, PTIR_DTYPES, UI64, DType
from ptir_tools.core.ir import (
    ELEMENTWISE,
    Attr,
    Attribute,
    Element,
    Function,
    Literal,
    Op,
    OpDef,
    Operand,
    Region,
    Value,
    operand_type,
)
from ptir_tools.core.lazy import ml_dtypes, np
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Sym, TensorType, TupleType, Type, leaves, sym, tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.check import KINDS, POLICIES
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS
from ptir_tools.rewrite.expression import Number

SYMBOLS = ("N", "M", "batch")  # of inputs; at least 1
INPUTS = 8  # of a function
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)


def generate(
    choices: Choices,
    *,
    dtypes: Sequence[DType] = PTIR_DTYPES,
    size: int = 12,
    only: Sequence[str] = (),
    symbols: bool = True,
    faults: bool = False,
) -> Program:
    """A valid program of about `size` ops in its entry function, of the ops in `only` (default: all) and those that they need.

    With `symbols`, extents may be symbolic. With `faults`, a run may end in an error.
    """
    ops = [d for d in DIALECT.ops.values() if not only or d.short in only]
    program = Program(DIALECT, [], entry="main")
    g = Growing(choices, program, Function("main"), dtypes, ops)
    g.symbols, g.faults = symbols, faults
    g.function(size)
    if g.chance(1, 4):
        other = g.with_block(Function("other"))
        other.function(g.number(0, max(1, size // 3)))
    if g.chance(1, 6):
        orphan = g.inside([g.plain()])
        orphan.grow(2)
        orphan.close([orphan.one(orphan.values)])
    return program


class Growing(core.Growing):
    """A function or region of a PTIR program while it is generated."""

    def __init__(self, choices: Choices, program: Program, block: Region, dtypes: Sequence[DType], ops: Sequence[OpDef]) -> None:
        super().__init__(choices, program, Builder(program.dialect, block), dtypes, ops)
        self.block = block
        self.symbols = False
        self.finished: list[Region] = []  # the regions that can be run again
        self._known: set[Sym] = set()  # the symbols of the first `_seen` parameters and ops
        self._seen = 0, 0

    @property
    def params(self) -> list[Value]:
        """The parameters of the block."""
        return self.block.params

    # ---- blocks

    def function(self, size: int) -> None:
        """Fill the function: inputs, ops, results, hints."""
        assert isinstance(self.block, Function)
        self.program.functions.append(self.block)
        for _ in range(self.number(1, 3)):
            self.values.append(self.input(self.plain()))
        self.grow(self.number((size + 1) // 2, size))
        self.b.results(*(self.any_value() for _ in range(self.number(1, 4))))
        for _ in range(self.number(0, 2)):
            if (hint := self.hint(len(self.block.annotations))) is not None:
                self.block.annotations.append(hint)

    def any_value(self) -> Operand:
        """A value, most often a recent one."""
        return self.one(self.values[-8:]) if self.chance(3, 4) else self.one(self.values)

    def with_block(self, block: Region) -> Growing:
        """Another block of the program."""
        g = Growing(self.choices, self.program, block, self.dtypes, self.ops)
        g.symbols, g.faults, g.finished = self.symbols, self.faults, self.finished
        return g

    def inside(self, types: Sequence[Type]) -> Growing:
        """A region with parameters of these types."""
        g = self.with_block(Region())
        g.depth = self.depth + 1
        for t in types:
            g.values.append(v := g.b.param(t, self.one(("x", ""))))
            if isinstance(t, TupleType):
                g.values.extend(Element(v, i) for i in range(len(t.elements)))
        return g

    def close(self, results: Sequence[Operand]) -> Region:
        """The region, done, in the program."""
        self.block.name = f"r{len(self.program.regions)}"
        self.b.results(*results)
        self.program.regions.append(self.block)
        self.finished.append(self.block)
        return self.block

    def leaving(self, types: Sequence[Type]) -> list[Operand]:
        """The values that a region may return if another region with parameters of these types must return the same types. They
        are tensors, and tuples among its parameters."""
        return [x for x in self.values if isinstance(t := operand_type(x), TensorType) or t in types]

    # ---- types

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.number(-rank, rank - 1)

    def plain(self) -> TensorType:
        """The type of an input."""
        return tensor(self.one(self.dtypes), self.shape())

    def shape(self, rank: int | None = None) -> tuple[Dim, ...]:  # type: ignore[override]
        """Extents, symbols among them in a function."""
        found = super().shape(rank)
        if not self.symbols or self.depth or not self.chance(1, 3):
            return found
        return tuple(sym(self.one(SYMBOLS)) if self.choices.flag() and self.defined() else d for d in found)

    def defined(self) -> bool:
        """Whether a new input is possible, which defines a symbol."""
        return len(self.params) < INPUTS

    def known(self) -> set[Sym]:
        """The symbols that the block has so far."""
        params, ops = self._seen
        for v in (*self.params[params:], *(v for op in self.block.body[ops:] for v in op.results)):
            self._known.update(mentioned(v.type))
        self._seen = len(self.params), len(self.block.body)
        return self._known

    def settle(self, inferred: tuple[Type, ...]) -> tuple[Type, ...] | None:
        """Open extents of a type rule as new symbols, in functions; a region cannot define symbols."""
        if self.depth:
            return None if any(_open(t) for t in inferred) else inferred
        return tuple(map(self.named, inferred))

    def named(self, t: Type) -> Type:
        """`t` with a new symbol for each extent that is not known."""
        if not isinstance(t, TensorType) or not _open(t):
            return t
        known = {s.name for s in self.known()}
        fresh = (sym(name) for n in range(len(known) + t.rank) if (name := f"D{n}") not in known)
        return t.with_shape(next(fresh) if d is UNKNOWN else d for d in t.shape)

    def has(self, t: Type) -> bool:
        """Whether a value of type `t` exists or can be made here."""
        made = isinstance(t, TensorType) and self.known().issuperset(mentioned(t))
        return made or any(operand_type(x) is t for x in self.values)

    # ---- fresh values

    def input(self, t: TensorType) -> Value:
        """A new parameter of the function."""
        return self.b.param(t, self.one(("p", "x", "input")))

    def fresh(self, t: TensorType) -> Operand:
        """An input, a constant, an inline literal, a broadcast number, or a converted value."""
        unknown = set(mentioned(t)) - self.known()
        if unknown or (not self.depth and len(self.params) < INPUTS and self.choices.flag()):
            made: Operand = self.input(t)
        elif self.chance(1, 3) and (x := self.any(lambda u: u.shape == t.shape and _casts(u.dtype, t.dtype))) is not None:
            made = self.b.op("cast", x, dtype=t.dtype)
        elif not t.is_static or (t.rank and self.chance(1, 5)):
            made = self.b.op("broadcast_to", self.constant(tensor(t.dtype)), result_shape=t.shape)
        else:
            made = self.constant(t)
        self.values.append(made)
        return made

    def constant(self, t: TensorType) -> Operand:
        """A constant or an inline literal of the static type `t`."""
        value = self.literal(t, [self.element(t.dtype) for _ in range(min(t.count, 7))])
        return value if self.chance(1, 3) else self.b.op("constant", value=value)

    def literal(self, t: TensorType, elements: Sequence[object]) -> Literal:
        """The literal of these elements, repeated as often as `t` needs."""
        if t.dtype.is_complex:
            wide = np.resize(np.array(elements, np.complex128), t.static_shape)
        elif t.dtype.is_float:
            wide = np.resize(np.array(elements, np.float64), t.static_shape)
        else:
            wide = np.resize(np.array(elements, np.uint64 if t.dtype is UI64 else np.int64), t.static_shape)
        return arrays.to_literal(arrays.narrow(wide, t.dtype), t)

    def element(self, dtype: DType) -> Number:
        """A number: usually small, sometimes the least or largest of its dtype, an infinity, or a NaN."""
        if dtype is I1:
            return self.choices.flag()
        if dtype.is_complex:
            return complex(self.element(F32), self.element(F32))
        special = self.chance(1, 12)
        if dtype.is_float:
            if special:
                ends = [limit(dtype, name) for name in ("max", "min", "tiny", "smallest_subnormal")]
                return self.one((*SPECIAL, *ends))
            return self.number(-12, 12) / 4
        return self.one((dtype.min, dtype.max)) if special else self.number(max(dtype.min, -8), min(dtype.max, 8))

    def number_of(self, t: TensorType, n: int) -> Operand:
        """The scalar `n`."""
        value = self.literal(t, [n])
        return value if self.choices.flag() else self.b.op("constant", value=value)

    def spread(self, t: TensorType, shape: Shape, n: int) -> Operand:
        """The number `n` in every element of a tensor."""
        return self.b.op("broadcast_to", self.number_of(t, n), result_shape=shape) if shape else self.number_of(t, n)

    def nonzero(self, t: TensorType) -> Operand:
        """Integers that are not 0."""
        if not t.is_static:
            return self.spread(tensor(t.dtype), t.shape, self.number(1, 7))
        return self.b.op("constant", value=self.literal(t, [self.number(1, 7) for _ in range(min(t.count, 7))]))

    # ---- attributes

    def attribute(self, defn: OpDef, a: Attr, types: Sequence[TensorType], named: dict[str, Attribute]) -> Attribute:
        return core.by_kind(REQUIRED, a)(self, types, named)

    def candidates(
        self, a: Attr, default: object, types: Sequence[TensorType], named: dict[str, Attribute]
    ) -> Sequence[Attribute]:
        found = CANDIDATES[a.name] if a.name in CANDIDATES else CANDIDATES.get(a.kind)
        if a.kind in ENUMERATIONS:
            return ENUMERATIONS[a.kind]
        return [] if found is None else found(self, default, types)

    # ---- hints

    def hint(self, number: int) -> Hint | None:
        """A hint over some consecutive elementwise ops."""
        made = [i for i, op in enumerate(self.block.body) if ELEMENTWISE in op.defn.traits]
        if not made:
            return None
        first = self.one(made)
        ops: list[Op] = []
        for op in self.block.body[first : first + self.number(1, 4)]:
            if ELEMENTWISE not in op.defn.traits:
                break
            ops.append(op)
        results = dict.fromkeys(v for op in ops for v in op.results)
        inputs = dict.fromkeys(v for op in ops for v in op.values() if v not in results)
        outside = {v for op in self.block.body if op not in ops for v in op.values()}
        outside.update(x if isinstance(x, Value) else x.value for x in self.block.results if not isinstance(x, Literal))
        body = [Op(op.defn, op.operands, op.attrs, op.results, op.regions) for op in ops]
        exports = tuple(v for v in results if v in outside) or (ops[-1].result,)
        attrs = ((self.one(("fusion_score", "weight")), ("I64", self.number(0, 9))),) if self.choices.flag() else ()
        kind, policy = self.one(KINDS), self.one(POLICIES)
        return Hint(id=number, kind=kind, policy=policy, inputs=tuple(inputs), exports=exports, attrs=attrs, body=body)


def limit(dtype: DType, name: str) -> float:
    """The end `name` of a float dtype, as `finfo` has it."""
    info: Callable[[np.dtype], object] = ml_dtypes.finfo
    return float(getattr(info(arrays.numpy_dtype(dtype)), name))


def _open(t: Type) -> bool:
    """Whether an extent is not known."""
    return any(isinstance(leaf, TensorType) and UNKNOWN in leaf.shape for leaf in leaves(t))


def _casts(source: DType, target: DType) -> bool:
    """Whether there is a cast."""
    return target.is_complex or target is I1 or not source.is_complex


# ---- attributes that must be given, by name, else by kind: of the block, the operands' types and the attributes before

Types = Sequence[TensorType]
Named = dict[str, Attribute]


def _rank(types: Types, named: Named) -> int:
    return types[0].rank if types else len(named.get("shape", ()))


def _perm(g: Growing, types: Types, named: Named) -> tuple[int, ...]:
    rank = types[0].rank
    return tuple(a - rank if g.chance(1, 8) else a for a in g.choices.shuffled(range(rank)))


def _made_shape(g: Growing, types: Types, named: Named) -> Shape:
    """The shape of a new tensor, with existing symbols."""
    known = sorted(g.known(), key=str)
    return tuple(g.one(known) if known and g.chance(1, 8) else g.extent() for _ in range(g.number(0, 3)))


def _wider(g: Growing, types: Types, named: Named) -> Shape:
    lead = tuple(g.one((1, 2, 3)) for _ in range(g.number(0, 2)))
    return (*lead, *(g.extent() if d == 1 and g.choices.flag() else d for d in types[0].shape))


def _reshaped(g: Growing, types: Types, named: Named) -> Shape:
    """The extents permuted (the count stays), some merged or split, with an axis of 1, or one to infer."""
    dims: list[Dim] = list(g.choices.shuffled(types[0].shape))
    whole = [(i, d) for i, d in enumerate(dims) if isinstance(d, int)]
    if len(whole) > 1 and g.choices.flag():
        (i, a), (j, b) = whole[:2]
        dims[i] = a * b
        del dims[j]
    elif whole and whole[0][1] in (4, 6) and g.choices.flag():
        i, a = whole[0]
        dims[i : i + 1] = [2, a // 2]
    if g.chance(1, 3):
        dims.insert(g.number(0, len(dims)), 1)
    if dims and 0 not in dims and g.chance(1, 3 if types[0].is_static else 2):
        i = g.number(0, len(dims) - 1)
        dims[i] = -1
        if not types[0].is_static and len(dims) > 1 and g.chance(2, 3):
            rest = [k for k in range(len(dims)) if k != i]
            del dims[g.one(rest)]  # what it had goes to the entry to infer
    return tuple(dims)


def _counts(g: Growing, types: Types, named: Named) -> tuple[int, ...]:
    return tuple(g.one((0, 0, 1, 2)) for _ in range(types[0].rank))


def _literal(g: Growing, types: Types, named: Named) -> Literal:
    t = tensor(g.one(g.dtypes), tuple(g.extent() for _ in range(g.number(0, 3))))
    return g.literal(t, [g.element(t.dtype) for _ in range(min(t.count, 7))])


def _up_to_extent(g: Growing, types: Types, named: Named) -> int:
    last = types[0].shape[-1] if types[0].rank else 0
    return g.number(0, last if isinstance(last, int) else 1)


REQUIRED: dict[str, Callable[[Growing, Types, Named], Attribute]] = {
    "axes": lambda g, types, named: g.axes(types[0].rank),
    "axis": lambda g, types, named: g.axis(_rank(types, named)) if _rank(types, named) else 0,
    "k": _up_to_extent,
    "new_shape": _reshaped,
    "perm": _perm,
    "repeats": lambda g, types, named: tuple(g.one((1, 1, 2, 3, 0)) for _ in range(types[0].rank)),
    "result_shape": _wider,
    "DType": lambda g, types, named: g.one(g.dtypes),
    "Literal": _literal,
    "NewShape": _reshaped,
    "Shape": _made_shape,
    "bool": lambda g, types, named: g.choices.flag(),
    "float": lambda g, types, named: g.one((0.0, 1e-5, 0.5, 2.0)),
    "int": lambda g, types, named: g.number(0, 3),
    "tuple[int, ...]": _counts,
}

# ---- what attributes may be that have a default, by name, else by kind: of the block, the default and the operands' types


def _each_axis(g: Growing, default: object, types: Types) -> Sequence[int]:
    rank = types[0].rank if types else 0
    return range(-rank, rank)


def _dtypes(g: Growing, default: object, types: Types) -> Sequence[DType]:
    return list(g.choices.shuffled(list(dict.fromkeys(g.dtypes))))


def _lists(numbers: Sequence[object]) -> Callable[[Growing, Sequence[object], Types], Sequence[tuple[object, ...]]]:
    """Lists as long as the default, or of any length up to a rank where it is empty."""

    def drawn(g: Growing, default: Sequence[object], types: Types) -> Sequence[tuple[object, ...]]:
        lengths = [len(default)] if default else [1, *(d for t in types[:1] for d in t.shape if isinstance(d, int) and d > 1)]
        return [tuple(g.one(numbers) for _ in range(n)) for n in lengths for _ in range(3)]

    return drawn


def _scalars(g: Growing, default: object, types: Types) -> Sequence[object]:
    kind = scalars.natural_kind(types[0].dtype)
    wide = {I1: BF16}.get(types[0].dtype, types[0].dtype)
    value = g.choices.flag() if types[0].dtype is I1 else g.element(wide)
    other = scalars.Scalar(scalars.SIGNED, g.number(0, 1))
    return [scalars.Scalar(kind, value), other]


CANDIDATES: dict[str, Callable[[Growing, Attribute, Types], Sequence[Attribute]]] = {
    "axis": _each_axis,
    "feature_axis": _each_axis,
    "DType": _dtypes,
    "DType | None": _dtypes,
    "Scalar": _scalars,
    "bool": lambda g, default, types: (True, False),
    "float": lambda g, default, types: (0.0, 1e-5, 0.5),
    "int": lambda g, default, types: range(-4, 5),
    "int | None": lambda g, default, types: (0, 1, 2, 7),
    "tuple[float, ...]": _lists((0.5, 0.25, 2.0, 1e-2)),
    "tuple[int, ...]": _lists((0, 1, 2)),
    "tuple[tuple[int, int], ...]": _lists(((0, 0), (0, 1), (1, 0), (2, 1))),
}
