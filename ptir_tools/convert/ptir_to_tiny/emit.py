"""Builds a Tiny graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import copysign

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Emit, InError
from ptir_tools.convert.options import CONSTANTS, LOSSY
from ptir_tools.convert.patterns import scalar_literal
from ptir_tools.convert.ptir_to_tiny.formulas import NAMES
from ptir_tools.convert.ranges import WIDE, Ranges
from ptir_tools.core.arrays import from_literal, same_bits, to_literal
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import I1, SI4, SI8, SI16, SI32, UI4, UI8, UI16, DType
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.expressions import parse
from ptir_tools.core.ir import Argument, Attribute, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.core.types import TensorType, Type, leaves, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.composites.express import PAIRS, PERIODIC
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.dialects.tiny.ops.rules import SPELLED
from ptir_tools.dialects.tiny.piecewise import Pieces
from ptir_tools.dialects.tiny.text.args import AXIS
from ptir_tools.rewrite.constants import element_of
from ptir_tools.rewrite.expression import Number, Term
from ptir_tools.rewrite.vocabulary import tensor_type

CONST_POOL = "const_pool"

_RANDOM = "a graph is pure: draw the numbers outside and pass them in"

# Integers of fewer bits are represented as i32, in their own range.
CARRIED = frozenset({SI4, UI4, SI8, UI8, SI16, UI16})

# The ops that keep them in their range, or accumulate in i32.
KEPT_IN_RANGE = frozenset((
    "constant", "select", "maximum", "minimum", "clamp", "cast", "dot_general", "reduce_max", "reduce_min", "reduce_sum",
    "quantize", "dequantize", "requantize", "take", "gather", "concat", "pad", "dynamic_slice", "dynamic_update_slice",
    "scatter_reduce", "argmax", "top_k", "stop_gradient", "cond", "scan", "reshape", "transpose", "broadcast_to", "slice",
    "tile", "reduce_window", "iota", "compare_gt", "compare_ge", "compare_lt", "compare_le", "compare_eq", "compare_ne",
    "rem", "mod",
))  # fmt: skip

# Those whose results are wrapped to it.
WRAPPED = ("neg", "abs", "add", "sub", "mul", "div")

# Those whose wrapped result does not depend on whether the operands were wrapped.
MODULAR = ("neg", "add", "sub", "mul")

# Help texts for ops that cannot be translated.
HELP = {
    **dict.fromkeys(("rng_uniform", "rng_normal"), _RANDOM),
    **dict.fromkeys([*PERIODIC, *PAIRS], "--lossy makes a formula of it"),
    "while": "only a trip count that is known unrolls: write it as a scan",
    "custom_call": "`ptir opt -p inline-hints` or a decomposition of the kernel would leave plain ops",
}

# A converted PTIR value: a node, a constant, or a tuple of these.
Data: TypeAlias = "Operand | tuple[Data, ...]"


class TinyEmit(Emit[Data]):
    """Builds a Tiny graph. A PTIR value becomes a node, a constant, or a tuple of these. A splat is an immediate, any other
    constant an INPUT in storage "const_pool". Ops on constants are folded."""

    dialect, title, help, origin, names = "tiny", "Tiny", HELP, "ptir", NAMES

    def run(self) -> Program:
        """The graph; what Tiny cannot express is reported."""
        before = self.diagnostics.errors
        self.labels: list[str] = self.program.main.attrs.setdefault("input_names", [])
        self.labels.extend(self.source.attrs.get("input_names") or [p.name for p in self.source.params])
        self.pool: dict[object, Value] = {}
        self.constants: dict[object, tuple[str, Loc]] = {}  # the names and locations of constants that are not splats
        self.carried: set[DType] = set()  # which integers were noted
        self.ranges = Ranges(self.source)
        self.unwrapped: set[Data] = set()  # integers that only MODULAR ops read
        self.inline = False  # in a region, whose values lose their names
        self.parameters()
        self.body(self.source)
        results: list[Operand] = []
        for x in self.source.results:
            try:
                results += self.results(x)
            except InError:
                pass
            except Violation as violation:
                self.refuse_results(violation)
        self.builder.results(*results)
        if self.diagnostics.errors == before:
            self._require_few_pieces()
        return self.program

    def parameter(self, p: Value, label: str) -> Data:
        """An INPUT. Raises Violation where Tiny has no such type."""
        return self.builder.param(self.require_tensor(p.type, p), self.name_of(p))

    def results(self, x: Operand) -> Sequence[Operand]:
        """The nodes of a result: one, or one per element of a tuple. Raises Violation or InError."""
        name = self.name_of(x) if isinstance(x, Value) else self.fresh.between("result")
        result = zip(named_leaves(self.read(x), name), leaves(operand_type(x)), strict=True)
        return [self.result(leaf, label, t) for (leaf, label), t in result]

    def result(self, data: Operand, name: str, t: Type) -> Operand:
        """A node, or a constant of type `t` as a node called `name`. Raises Violation."""
        if not isinstance(data, Literal):
            return data
        self.require_tensor(data.type, data)
        data = as_immediate(represented(data))
        assert isinstance(t, TensorType)
        if data.type.shape == t.shape:
            return self.pooled(data, name)
        return self.builder.op("EXPAND", self.pooled(data), result_shape=t.shape, broadcast_dimensions=(), name=name)

    def block(self, block: Region, arguments: Sequence[Data | None]) -> list[Data]:
        """The translation of the results of a region whose parameters are `arguments` (None: refused). Raises InError."""
        outside = self.values, self.inline
        self.values, self.inline = dict(zip(block.params, arguments, strict=True)), True
        try:
            self.body(block)
            return [self.read(x) for x in block.results]
        finally:
            self.values, self.inline = outside

    def translated(self, op: Op) -> Data:
        """The translation of the result of `op`, computed if its operands are constants."""
        if not op.operands and not op.regions:  # a constant of any dtype: an op on it may give a dtype that Tiny has
            return self.rule(op)(self, op)  # type: ignore[no-any-return]
        if self.matches.get(op) is None:
            with suppress(InError):
                if (result := self.folded(op, self.operands(op))) is not None:
                    return result
        return super().translated(op)

    def folded(self, op: Op, operands: Sequence[Data | None]) -> Literal | None:
        """The folded result of an op on constants; None where it is not folded."""
        if not operands or op.regions or not op.defn.is_pure or op.defn.is_random or len(op.results) != 1:
            return None
        t = op.results[0].type
        known = [x for x in operands if isinstance(x, Literal) and x.data is not None]
        if len(known) < len(operands) or not isinstance(t, TensorType):
            return None
        if op.defn.short in MOVES and all(x.splat for x in known):
            return Literal(t, known[0].data, splat=True)
        if not all(x.is_static and x.nbytes <= current().literal_bytes for x in (t, *(x.type for x in known))):
            return None
        array = computed(op, [from_literal(x) for x in known], Context())
        if array is None:
            return None
        result = to_literal(array, t)
        size, data = t.dtype.size, result.data or b""
        if t.dtype.bits >= 8 and data and data == data[:size] * t.count:
            return Literal(t, data[:size], splat=True)
        return self.named_constant(result, op)

    def named_constant(self, literal: Literal, op: Op) -> Literal:
        """A constant that `op` makes: if it becomes an INPUT, under its name."""
        if element_of(literal) is None and literal.data is not None:
            self.constants.setdefault(literal.key, ("" if self.inline else self.name_of(op.results[0]), op.loc))
        return literal

    def operands(self, op: Op) -> Sequence[Data | None]:
        """The translated operands. For regions, one in error is None, since errors inside are reported, too."""
        if not op.regions:
            return super().operands(op)
        return [self.values.get(x) if isinstance(x, Value) else self.read(x) for x in op.operands]

    def element(self, x: Data, index: int) -> Data:
        """The converted element of a tuple."""
        assert isinstance(x, tuple)
        return x[index]

    def require_fit(self, t: Type) -> None:
        """Raise Violation for a tensor that Tiny does not have; tuples are taken by their elements."""
        if isinstance(t, TensorType):
            self.require_tensor(t, self.op.results[0] if self.op is not None else None)
            if t.dtype in CARRIED and self.op is not None and self.op.defn.short not in KEPT_IN_RANGE.union(WRAPPED):
                raise Violation(NOT_TRANSLATABLE, f"{t.dtype} is carried as i32, in which `{self.op.defn.short}` does not wrap")

    def require_tensor(self, t: Type, x: Operand | None = None) -> TensorType:
        """The Tiny type that represents `t`, the type of `x`. Raises Violation where there is none."""
        if not isinstance(t, TensorType):
            raise Violation(NOT_TRANSLATABLE, f"Tiny has no {t}")
        if t.dtype in CARRIED:
            if t.dtype not in self.carried:
                self.carried.add(t.dtype)
                self.note(f"{t.dtype} is carried as i32, in {t.dtype.min}…{t.dtype.max}")
            t = t.with_dtype(SI32)
        if t.dtype in WIDE and x is not None:
            lossy = self.options[LOSSY]
            help = "--lossy carries it as i32, in which it may wrap"
            why = f"Tiny has no {t.dtype}, and these numbers may be beyond i32"
            require(lossy or self.ranges.fits(x), NOT_TRANSLATABLE, why, help=help)
            if t.dtype not in self.carried:
                self.carried.add(t.dtype)
                self.note(
                    f"{t.dtype} is carried as i32, " + ("in which it may wrap" if lossy else "within which it is, or an index")
                )
            t = t.with_dtype(SI32)
        require(t.dtype in SPELLED, NOT_TRANSLATABLE, f"Tiny has no {t.dtype}, only {', '.join(d.name for d in SPELLED)}")
        for d in t.shape:
            require(isinstance(d, int) or _spelled(d.name), NOT_TRANSLATABLE, f"Tiny cannot spell the symbol {d}")
        return t

    @property
    def type(self) -> TensorType:
        """The Tiny type that represents the current op's result."""
        return carried_type(super().type)

    # Operands

    def pooled(self, literal: Literal, name: str = "") -> Value:
        """An INPUT for a constant, called `name`; its value goes to the option CONSTANTS. Raises Violation."""
        constants = self.options[CONSTANTS]
        wish, loc = self.constants.get(literal.key, ("", None))
        help = "`--constants FILE.npz` makes it an INPUT and writes its value there"
        if constants is None:
            raise Violation(NOT_TRANSLATABLE, "Tiny has no constants but immediates", loc=loc or 0, help=help)
        require(literal.data is not None, NOT_TRANSLATABLE, "the payload of the constant is not in the file")
        if (cached := self.pool.get(literal.key)) is not None:
            return cached
        self.require_tensor(literal.type)
        result = self.builder.param(literal.type, name or wish or self.fresh.between("const"))
        label = result.name
        while label in self.labels:
            label = self.fresh.between(result.name)
        self.labels.append(label)
        self.program.main.attrs.setdefault("storage", {})[result.name] = CONST_POOL
        constants[label] = literal
        self.pool[literal.key] = result
        return result

    def kept_once(self, literal: Literal) -> Value:
        """A constant as a node. One that is constant along axes is pooled without them, and expanded."""
        once, axes = without_repeats(literal)
        result = self.pooled(once)
        if once is literal:
            return result
        return self("EXPAND", result, result_shape=literal.type.shape, broadcast_dimensions=axes)

    def operand(self, x: Data) -> Operand:
        """`x`, which is not a tuple, as an operand of elementwise ops: a node or an immediate."""
        if isinstance(x, tuple):
            raise Violation(NOT_TRANSLATABLE, "Tiny has no tuples")
        if not isinstance(x, Literal):
            return x
        self.require_tensor(x.type, x)
        small = as_immediate(represented(x))
        return small if not small.type.shape and element_of(x) is not None else self.kept_once(small)

    def node(self, x: Data) -> Value:
        """`x` as a node of its shape: a constant as an INPUT. Raises Violation where it may not."""
        if isinstance(x, tuple):
            raise Violation(NOT_TRANSLATABLE, "Tiny has no tuples")
        if isinstance(x, Value):
            return x
        assert isinstance(x, Literal)
        self.require_tensor(x.type, x)
        scalar = self.kept_once(as_immediate(represented(x)))
        shape = x.type.shape
        return (
            scalar if tensor_type(scalar).shape == shape else self("EXPAND", scalar, result_shape=shape, broadcast_dimensions=())
        )

    # Nodes

    def term(self, x: Operand) -> Term:
        """A node or an immediate as a value of formulas."""
        return Term(self, x)

    def built(self, name: str, operands: Sequence[Operand], attrs: Mapping[str, Attribute]) -> Value:
        """A node that is not the last, under a new name."""
        return self(name, *operands, **attrs)

    def number(self, x: Number, dtype: DType) -> Literal:
        """An immediate."""
        assert not isinstance(x, complex)
        return immediate(x, dtype)

    @property
    def returned(self) -> bool:
        """Whether the entry returns the current op's result, which then must be a node of this name."""
        return not self.inline and self.op is not None and self.op.results[0] in self.source.results

    def last(self, short: str, *operands: Argument, **attrs: Attribute) -> Value:
        """The node of the result, reshaped where PTIR has other symbols for its extents."""
        if not self.inline and self.type.is_static:
            return super().last(short, *operands, **attrs)
        return self.named(self.declared(self(short, *operands, **attrs)))

    def named(self, result: Value | Term) -> Value:
        """`result` under the name of the result."""
        if isinstance(result, Term):
            assert isinstance(result.operand, Value)
            result = result.operand
        if not self.inline:
            result.name = self.name
        return result

    def declared(self, x: Value) -> Value:
        """`x` with the extents that the op's type declares."""
        return x if tensor_type(x).shape == self.shape else self("RESHAPE", x, result_shape=self.shape)

    def cast(self, x: Value, dtype: DType) -> Value:
        """`x` cast to `dtype`."""
        return x if tensor_type(x).dtype is dtype else self("CAST", x, to=dtype)

    def saturated(self, x: Value, dtype: DType) -> Value:
        """`x` saturated to `dtype`, which is represented as i32."""
        return self("MIN", self("MAX", self.cast(x, SI32), immediate(dtype.min, SI32)), immediate(dtype.max, SI32))

    def settled(self, x: Value | Term) -> Value:
        """`x` cast and reshaped to the result's type, under its name."""
        if isinstance(x, Term):
            assert isinstance(x.operand, Value)
            x = x.operand
        return self.named(self.declared(self.cast(x, self.type.dtype)))

    def _require_few_pieces(self) -> None:
        """Check Tiny's limit on the pieces of windows and pads in the translation."""
        pieces = Pieces(current().pieces)
        for op in self.program.main.body:
            try:
                pieces.follow(op)
            except Violation as violation:
                self.diagnostics.error(NOT_TRANSLATABLE, violation.message, op.loc, help=violation.help)


def named_leaves(data: Data, name: str) -> Iterator[tuple[Operand, str]]:
    """The leaves of a value called `name`, with their names: `t.0`, `t.1`, … for a tuple."""
    if isinstance(data, tuple):
        for i, part in enumerate(data):
            yield from named_leaves(part, f"{name}.{i}")
    else:
        yield data, name


# Ops that only move elements: the result of a splat is a splat.
MOVES = frozenset({"reshape", "transpose", "broadcast_to", "slice", "tile"})


def carried_type(t: TensorType) -> TensorType:
    """`t`, or the type that represents it."""
    return t.with_dtype(SI32) if t.dtype in CARRIED | WIDE else t


def without_repeats(literal: Literal) -> tuple[Literal, tuple[int, ...]]:
    """`literal` without the axes along which it is constant, and the other axes. The literal itself where there are none."""
    t = literal.type
    if literal.data is None or literal.splat or not t.is_static or not t.count:
        return literal, ()
    array = from_literal(literal)
    kept: list[int] = []
    size = t.count
    for axis, n in enumerate(t.static_shape):
        first = array[(slice(None),) * len(kept) + (0,)]
        repeats = n > 1 and same_bits(array, np.broadcast_to(np.expand_dims(first, len(kept)), array.shape))
        if repeats or n == 1:
            array = first
            size = size // n
        else:
            kept.append(axis)
    if size == t.count:
        return literal, ()
    return to_literal(np.ascontiguousarray(array), t.with_shape([t.shape[a] for a in kept])), tuple(kept)


def represented(literal: Literal) -> Literal:
    """A constant in the dtype that represents it."""
    if literal.type.dtype not in CARRIED | WIDE or literal.data is None:
        return literal
    small = scalar_literal(literal) if literal.splat else literal
    wide = to_literal(from_literal(small).astype(np.int32), tensor(SI32, small.type.shape))
    return Literal(literal.type.with_dtype(SI32), wide.data, splat=wide.splat or literal.splat)


def as_immediate(literal: Literal) -> Literal:
    """A splat as a rank-0 literal; any other constant unchanged."""
    one = element_of(literal)
    return literal if one is None else Literal(tensor(literal.type.dtype), one)


def _spelled(name: str) -> bool:
    """Whether Tiny reads an extent of this name: a symbol, or an expression in normal form."""
    try:
        return AXIS.fullmatch(name) is not None or str(parse(name)) == name
    except Violation:
        return False


def number_of(scalar: Scalar, dtype: DType) -> int | float | bool:
    """The value of a PAD or a fill: positive zero is the default, an integer 0."""
    value: Any = scalar.value
    if dtype is I1:
        return bool(value)
    return 0 if value == 0 and copysign(1, value) > 0 else value
