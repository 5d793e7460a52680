"""Builder of the prepared function: values, memory, scalars outside of kernels, subviews."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence, Set

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.inlining import require_few
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.options import CONSTANTS, LOSSY
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, REDUCTIONS, TAKE, unfit
from ptir_tools.convert.ptir_to_pto.operands import (
    identity_of,
    integer,
    integer_of,
    parts_of,
    tensor_of,
)
from ptir_tools.convert.ptir_to_pto.outline import Outline, prune, values_of
from ptir_tools.convert.ptir_to_pto.parts import ARITHMETIC, COMPARISONS, Parts
from ptir_tools.convert.ranges import MOVES, Ranges
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import I1, SI32, SI64
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value, create, operand_type, result_names
from ptir_tools.core.source import Loc
from ptir_tools.core.types import TensorType, TupleType, Type, leaves
from ptir_tools.core.violations import Violation, require
from ptir_tools.rewrite.constants import element_of, known

Rule = Callable[..., Operand | list[Operand]]
_KNOWN = 1 << 19  # the most bytes of a constant that is folded here
_NAMED = 8  # the most constants that a message names
_OF_PLACES = frozenset(
    (*ARITHMETIC, "select", "clamp", "reshape", "broadcast_to", "transpose", "slice", "stop_gradient")
)  # places of places
_TABLES = (TAKE, "gather")
_READ_PLACES = frozenset((*COMPARISONS, "compare_eq", *_TABLES))


class Lost(Exception):
    """An operand was refused before."""


class Preparation(Parts):
    """The function that is built, op by op, and facts about it. `rules` are for ops that move data and for control flow.
    `refused` has the ops that could not be expanded."""

    def __init__(
        self,
        program: Program,
        options: Options,
        diagnostics: Diagnostics,
        rules: Mapping[str, Rule],
        ranges: Ranges,
        refused: Mapping[Op, Violation],
        others: Set[str],
    ) -> None:
        super().__init__(program)
        self.main = program.main
        self.options = options
        self.diagnostics = diagnostics
        self.ranges = ranges
        self.refused = refused
        self.bounded: dict[Value, int] = {}  # the largest value of a counter
        self.counters: dict[Value, Operand] = {}  # final values of loop counters
        self.rules = rules
        self.others = others  # names that constants must not have
        self.arrays: dict[Value, Array | None] = {}  # constant values
        self.indices: set[Value] = set()  # si64 values that are only indices: si32 here
        self.constants: dict[tuple[object, ...], Value] = {}  # parameters for constants, by content

    def run(self) -> Outline:
        """The function, built op by op."""
        outline = self.outline
        names = self.main.attrs.get("input_names") or [p.name for p in self.main.params]
        for p, name in zip(self.main.params, names, strict=True):
            self.values[p] = output = self.b.param(p.type, name)
            if reason := unfit(p.type):
                self.diagnostics.error(NOT_TRANSLATABLE, f"parameter %{p.name}: {reason}", self.main.loc)
                outline.lost.add(output)
            elif not tensor_of(p).shape:
                outline.scalars.add(output)
        self.block(self.main)
        self.b.loc = self.main.loc
        names = []
        for x, name in zip(self.main.results, result_names(self.main), strict=True):
            result = self.leaves(self.operand(x))
            names += _leaf_names(operand_type(x), name)
            self.top.results += map(self.result, result)
        self.top.attrs["output_names"] = names
        self.drop_unread(prune(outline))
        if self.options[CONSTANTS] is None:
            self.warn_of([v for v in self.constants.values() if v in self.top.params])
        return outline

    def drop_unread(self, live: set[Value]) -> None:
        """Drop the constant parameters that have no uses."""
        for v in self.constants.values():
            if v not in live:
                self.top.params.remove(v)
                (self.options[CONSTANTS] or {}).pop(v.name, None)

    def warn_of(self, left: Sequence[Value]) -> None:
        """Report the constant parameters whose values are not written to a file."""
        if left:
            named = ", ".join(f"%{v.name}" for v in left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if left[_NAMED:] else "")
            what = "constants are parameters, whose values are" if left[1:] else "constant is a parameter, whose value is"
            help = "`--constants FILE.npz` writes them there, for whoever runs the kernel"
            self.diagnostics.warning("ConstantsLeft", f"{len(left)} {what} not written: {named}", self.main.loc, help=help)

    def block(self, block: Region) -> None:
        """Build the ops of a block."""
        self.indices |= _places(block)
        for op in block.body:
            self.b.loc = op.loc
            self.op(op)

    def control(self, short: str, *groups: Operand | Sequence[Operand], regions: Sequence[Region]) -> None:
        """Append a loop or branch of PTO. It has no results, since its blocks write to memory."""
        self.b.block.body.append(create(OPS[f"pto.scf.{short}"], groups, regions=regions, types=(), loc=self.b.loc))

    def op(self, op: Op) -> None:
        """Build one op of the source."""
        try:
            if op.regions:
                require_few(op, unrolled=False)
            rule = self.rules.get(op.defn.short)
            operands = [self.operand(x) for x in op.operands]
            if (output := self.folded(op) or self.of_nothing(op, operands)) is not None:
                self.values[op.result] = output
                return
            short = op.defn.short
            if (short in _OF_PLACES and op.result in self.indices) or (
                short in _READ_PLACES and self.indices.intersection(op.values())
            ):
                if short not in _TABLES and short in _READ_PLACES:
                    self.require_comparable(op)
                table = operands[: short in _TABLES]  # a table has data, not indices
                operands = [*table, *(self.narrow(x) for x in operands[len(table) :])]
            if self.outline.lost.intersection(values_of(operands)):
                raise Lost
            if op in self.refused:
                raise self.refused[op]
            if rule is not None and (op.regions or _fits(op, operands)):
                result = rule(self, op, *operands)
                if isinstance(result, list):
                    self.several(op, result)
                else:
                    self.values[op.result] = result
            elif op.defn.is_constant and element_of(op.attr("value")) is None:
                self.values[op.result] = self.constant(op.attr("value"), op.result.name, op.loc)
            else:
                if not isinstance(op.result.type, TensorType) or op.regions:
                    reasons = [*map(unfit, map(operand_type, operands)), f"no tile op does what {op.defn.short} does"]
                    raise Violation(NOT_TRANSLATABLE, next(filter(None, reasons)))
                self.values[op.result] = self.copy(op, operands)
        except Violation as violation:
            self.diagnostics.error(NOT_TRANSLATABLE, violation.message, violation.loc or op.loc, help=violation.help)
            self.lose(op)
        except Lost:
            self.lose(op)

    def folded(self, op: Op) -> Operand | None:
        """Fold an op on constant 64-bit integers, in which targets do not compute."""
        wide = any(isinstance(t := operand_type(x), TensorType) and t.dtype is SI64 for x in op.operands)
        t = op.result.type
        if not wide or not isinstance(t, TensorType) or t.dtype is SI64 or (array := self.known(op.result)) is None:
            return None
        literal = arrays.to_literal(array, t)
        return literal if element_of(literal) is not None else self.constant(literal, op.result.name, op.loc)

    def of_nothing(self, op: Op, operands: Sequence[Operand]) -> Operand | None:
        """The constant result of an op whose result or operands have no elements; None for all others."""
        t, short = op.result.type, op.defn.short
        if not op.regions and all(isinstance(leaf, TensorType) and 0 in leaf.shape for leaf in leaves(t)):
            return self.held(t, op.result.name)  # no elements are read or written
        some = [x for x in operands if not _is_empty(x)]
        if len(some) == len(operands) or not isinstance(t, TensorType):
            return None
        if short in REDUCTIONS:
            return self.fill(t, identity_of(short.removeprefix("reduce_"), t.dtype))
        if short in ("dot_general", "reduce_or", "reduce_xor", "reduce_and"):
            every = bytes([1]) if t.dtype is I1 else b"\xff" * t.dtype.size
            return self.fill(t, every if short == "reduce_and" else bytes(t.dtype.size))
        if short in ("pad", "extract_patches"):
            return self.fill(t, self.element(op.attr("pad_value"), t.dtype))
        if short == "reduce_window":
            return self.fill(t, identity_of(op.attr("reduce"), t.dtype))
        if short == "dynamic_update_slice" and _is_empty(operands[1]):
            return operands[0]
        if short == "concat":
            return some[0] if len(some) == 1 else self.rules[short](self, op, *some)  # type: ignore[return-value]
        return None

    def known(self, x: Operand) -> Array | None:
        """The array of an operand that is a foldable constant; None for others, and for large ones."""
        return known(x, self.arrays, _KNOWN)

    def require_comparable(self, op: Op) -> None:
        """Tiles compare 64-bit integers as saturated 32-bit integers. Raises Violation where that may change the result."""
        a, b = op.operands
        same = (
            (self.in_32_bits(a) and self.in_32_bits(b))
            or (self.in_32_bits(a, 1) and self.as_given(b))
            or (self.in_32_bits(b, 1) and self.as_given(a))
        )
        message, help = (
            f"no tile op does {op.defn.short} of si64",
            "--lossy compares in 32 bits: larger numbers count as the largest",
        )
        require(same or bool(self.options[LOSSY]), NOT_TRANSLATABLE, message, help=help)

    def in_32_bits(self, x: Operand, inside: int = 0) -> bool:
        """Whether integers, and those that they are computed from, fit in 32 bits, `inside` from the ends."""
        if isinstance(x, Value) and (x in self.counters or self.values.get(x, x) in self.outline.scalars):
            return True  # an index
        if isinstance(x, Value) and x.op is not None and x.op.defn.short in (COUNT, *MOVES):
            return all(self.in_32_bits(y, inside) for y in x.op.operands)
        known = self.ranges.of(x)
        small = known is not None and SI32.min + inside <= known[0] and known[1] <= SI32.max - inside
        made = self.computes_place(x)
        return small and (made is None or all(map(self.in_32_bits, made.operands)))

    def as_given(self, x: Operand) -> bool:
        """Whether integers are inputs, perhaps moved or cast, and not computed in 32 bits."""
        made = self.computes_place(x)
        return made is None or (made.defn.short in MOVES and all(map(self.as_given, made.operands)))

    def computes_place(self, x: Operand) -> Op | None:
        """The op that computes the indices `x`; None for other values, and for what is no arithmetic of places."""
        made = x.op if isinstance(x, Value) and x in self.indices else None
        return made if made is not None and made.defn.short in _OF_PLACES else None

    def narrow(self, x: Operand) -> Operand:
        """An index in si32; saturated ones are out of bounds anyway."""
        t = operand_type(x)
        if isinstance(x, Element) or not isinstance(t, TensorType) or t.dtype is not SI64:
            return x
        if isinstance(x, Literal):
            n = integer_of(x)
            assert n is not None
            return integer(max(SI32.min, min(n, SI32.max)), SI32, t.static_shape)
        if x in self.outline.scalars or x in self.outline.lost:
            return x
        if x.op is not None and x.op.defn.short == COUNT:
            return self.b.op("iota", shape=t.shape, dtype=SI32, axis=x.op.attr("axis"))
        return self.b.op("cast", x, dtype=SI32)

    def several(self, op: Op, results: Sequence[Operand]) -> None:
        """Set the results of an op, the elements of a tuple where there are several."""
        whole = len(results) == 1 and isinstance(operand_type(results[0]), TupleType) is isinstance(op.result.type, TupleType)
        if whole:
            self.values[op.result] = results[0]
        for i, x in enumerate(results):
            self.elements[op.result, i] = x

    def lose(self, op: Op) -> None:
        """Mark the result of an op as refused."""
        self.values[op.result] = result = Value(op.result.type, op.result.name)
        self.outline.lost.add(result)

    def operand(self, x: Operand) -> Operand:
        """The prepared operand."""
        if isinstance(x, Literal):
            if _is_empty(x):
                return self.memory(x.type, "nothing")
            return self.constant(x, "const", self.b.loc) if element_of(x) is None else x
        if isinstance(x, Value):
            return self.values.get(x, x)
        whole = self.values.get(x.value, x.value)
        entry = self.elements.get((whole, x.index)) if isinstance(whole, Value) else None
        return entry if entry is not None else Element(whole, x.index)  # type: ignore[arg-type]

    def results(self, block: Region) -> list[Operand]:
        """The prepared results of a block; the elements of a single tuple."""
        operands = [self.operand(x) for x in block.results]
        if len(operands) == 1 and isinstance(x := operands[0], Value) and isinstance(x.type, TupleType):
            return [self.elements.get((x, i), Element(x, i)) for i in range(len(x.type.elements))]
        return operands

    def copy(self, op: Op, operands: list[Operand]) -> Value:
        """Copy the op."""
        if op.result in self.indices and op.defn.short in _OF_PLACES:
            return self.b.op(op.defn.short, *operands, **op.defn.named(op.attrs), name=op.result.name)
        new = Op(op.defn, tuple(operands), op.attrs, (), op.regions, op.loc)
        new.results = tuple(Value(v.type, self.b.name(v.name), new) for v in op.results)
        self.b.block.body.append(new)
        return new.results[0]

    def result(self, x: Operand) -> Operand:
        """A result in its own memory, which is returned once."""
        v = self.operand(x)
        if isinstance(v, Element) or v in self.outline.lost or not isinstance(t := operand_type(v), TensorType):
            return v  # refused at its op
        if _is_empty(v):
            return self.memory(t, v.name if isinstance(v, Value) else "nothing")
        if isinstance(v, Literal):
            v = self.b.op("broadcast_to", v, result_shape=v.type.shape)
        own = v in self.top.params or (v.op is not None and (v.op.defn.is_constant or v.op.defn.short == COUNT))
        if own or v in self.outline.scalars or v in self.top.results:
            return self.b.op("stop_gradient", v, name=v.name)
        return v

    def constant(self, x: Literal, name: str, loc: Loc) -> Value:
        """A parameter for a constant, whose value goes to the caller's file."""
        if (result := self.constants.get(x.key)) is not None:
            return result
        kept = self.options[CONSTANTS]
        others = {*(kept or ()), *self.others} - {v.name for v in self.constants.values()}
        while name in others:
            name = f"{spelled(self.main.name)}_{name}"
        with self.b.inside(self.top):
            result = self.constants[x.key] = self.b.param(x.type, name)
        if x.data is None:
            self.diagnostics.error(NOT_TRANSLATABLE, "the payload of the constant is not in the file", loc)
        elif kept is not None:
            kept[result.name] = x
        return result


def _places(block: Region) -> set[Value]:
    """The si64 values that are only used in indices, comparisons, and other such values."""
    users: dict[Value, list[Op]] = {}
    for op in block.body:
        for x in op.values():
            users.setdefault(x, []).append(op)
    values: set[Value] = set()
    for v in (*(op.result for op in reversed(block.body)), *block.params):
        wide = isinstance(v.type, TensorType) and v.type.dtype is SI64 and v not in block.results
        if wide and all(_places_only(v, user, values) for user in users.get(v, ())):
            values.add(v)
    return values


def _places_only(v: Value, user: Op, result: Container[Value]) -> bool:
    if user.defn.short in _TABLES:
        return user.operands[0] is not v
    return user.defn.short in _READ_PLACES or (user.defn.short in _OF_PLACES and user.result in result)


def _leaf_names(t: Type, name: str) -> list[str]:
    """The names of the tensors of a tuple that is a result."""
    if not isinstance(t, TupleType):
        return [name]
    return [leaf for i, element in enumerate(t.elements) for leaf in _leaf_names(element, f"{name}.{i}")]


def _fits(op: Op, operands: Sequence[Operand]) -> bool:
    """Whether tiles can hold all operands and results of an op."""
    types = [*map(operand_type, operands), *(t for v in op.results for t in parts_of(v.type))]
    return not any(map(unfit, types)) and not any(map(_is_empty, operands))


def _is_empty(x: Operand) -> bool:
    """Whether a tensor has no elements."""
    t = operand_type(x)
    return isinstance(t, TensorType) and 0 in t.shape
