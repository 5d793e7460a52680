"""Range analysis: which integers of wider dtypes fit in i32, by their definitions or their uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ptir_tools.convert.patterns import scalar_literal, splat_of
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.dtypes import I1, SI32, SI64, UI32, UI64
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.vocabulary import tensor_type

WIDE = frozenset({SI64, UI32, UI64})
Range = tuple[int, int]  # the least and the greatest
MOVES = frozenset(["reshape", "transpose", "broadcast_to", "slice", "tile", "stop_gradient", "concat"])


class Ranges:
    """The ranges of the integers of a function."""

    def __init__(self, function: Function) -> None:
        self.blocks: list[Region] = [function]  # each once
        self.uses: dict[Value, list[tuple[Op | None, int]]] = {}  # None: a result
        self.ranges: dict[Value, Range] | None = None
        self.indices: set[Value] = set()  # known to be in range
        listed: set[Region] = set()
        for block in self.blocks:
            for i, x in enumerate(block.results):
                self._use(x, None, i)
            for op in block.body:
                self.blocks += [r for r in dict.fromkeys(op.regions) if r not in listed]
                listed.update(op.regions)
                for i, x in enumerate(op.operands):
                    self._use(x, op, i)

    def _use(self, x: Operand, op: Op | None, i: int) -> None:
        if not isinstance(x, Literal):
            self.uses.setdefault(x.value if isinstance(x, Element) else x, []).append((op, i))

    def fits(self, x: Operand) -> bool:
        """Whether the integers `x` fit in i32, or are only indices: larger ones are out of bounds anyway."""
        known = self.of(x)
        return (known is not None and SI32.min <= known[0] and known[1] <= SI32.max) or self._indexes(x)

    def _indexes(self, x: Operand) -> bool:
        """Whether all uses of `x`, through moves and integer casts, are indices of ops that fail for one out of bounds."""
        seen: set[Value] = set()
        todo: list[Operand] = [x]
        while todo:
            v = todo.pop()
            if not isinstance(v, Value):
                return False
            if v in seen or v in self.indices:
                continue
            seen.add(v)
            for op, i in self.uses.get(v, ()):
                if op is None:
                    return False
                if not _index(op, i):
                    if not _passes_on(op, i):
                        return False
                    todo.append(op.results[0])
        self.indices |= seen
        return True

    def of(self, x: Operand) -> Range | None:
        """The range of the integers `x`; None where it is not known."""
        t = operand_type(x)
        if not isinstance(t, TensorType) or not (t.dtype.is_integer or t.dtype is I1):
            return None
        if isinstance(x, Literal):
            return _of_literal(x)
        if isinstance(x, Element):
            result = x.value.op
            return _places(result) if result is not None and result.defn.short == "top_k" and x.index == 1 else _whole(t)
        return self.find().get(x, _whole(t))

    def find(self) -> dict[Value, Range]:
        """The ranges of all values that the function has when it is first called."""
        if self.ranges is None:
            self.ranges = {}
            for op in (op for block in self.blocks for op in block.body if not op.regions and len(op.results) == 1):
                if (known := self._of_op(op)) is not None:
                    self.ranges[op.results[0]] = known
        return self.ranges

    def carry(self, v: Value, to: Operand) -> None:
        """`to` replaces `v`, so it has the same range."""
        if isinstance(to, Value) and (known := self.find().get(v)) is not None:
            self.find().setdefault(to, known)

    def _of_op(self, op: Op) -> Range | None:
        """The range of integers by the op that makes them; None for any number of the dtype."""
        t = op.results[0].type
        if not isinstance(t, TensorType) or not (t.dtype.is_integer or t.dtype is I1) or (known := self._made(op)) is None:
            return None
        return known if _held(op, t, known) else None

    def sum_fits(self, op: Op) -> bool:
        """Whether a sum is within i32 before it is cast."""
        known = self._made(op) if op.defn.short in ("reduce_sum", "dot_general") else None
        return known is not None and SI32.min <= known[0] and known[1] <= SI32.max

    def _made(self, op: Op) -> Range | None:
        """The range by the defining op; None where it is not known, or where they may wrap."""
        short = op.defn.short
        if short == "constant":
            return _of_literal(op.attr("value"))
        if short in ("iota", "argmax", "argmin"):
            return _places(op)
        return _by_rule(op, self.of)


def nearby(x: Operand, steps: int = 12) -> Range | None:
    """The range of the integers `x`, by the op that makes them and by `steps` ops before it; None where it is not known."""
    t = operand_type(x)
    if not isinstance(t, TensorType) or not t.dtype.is_integer:
        return None
    if isinstance(x, Literal):
        return _of_literal(x)
    op = x.op if isinstance(x, Value) else None
    if op is None or len(op.results) > 1 or not steps:
        return _whole(t)
    known = _of_literal(op.attr("value")) if op.defn.is_constant else _by_rule(op, lambda y: nearby(y, steps - 1))
    return known if known is not None and _held(op, t, known) else _whole(t)


def _held(op: Op, t: TensorType, known: Range) -> bool:
    """Whether the result and the accumulator of an op hold all integers of a range."""
    accum = op.attr("accum_dtype") if "accum_dtype" in op.defn.attr_index else None
    ranges = [_whole(t), *([(accum.min, accum.max)] if accum is not None else [])]
    return all(low <= known[0] and known[1] <= high for low, high in ranges)


def _by_rule(op: Op, of: Callable[[Operand], Range | None]) -> Range | None:
    """The range by those of the operands; None where it is not known, or where integers may wrap."""
    short = op.defn.short
    if (rule := _RULES.get(short)) is None:
        return None
    first = 1 if short == "select" else 0
    operands = [of(x) for x in op.operands[first : first + 1 if short in _FIRST else None]]
    known = [r for r in operands if r is not None]
    return rule(op, known) if len(known) == len(operands) else None


def _index(op: Op, i: int) -> bool:
    """Whether operand `i` is an index that makes the op fail where it is out of bounds, and nothing else to it."""
    if (own := op.defn.asks.own) is None or op.defn.fails is None:
        return False
    x = op.operands[i]
    places = [y for y, need in own(op, lambda y: tensor_type(y).shape) if need.bounds]
    return any(y is x for y in places) and sum(y is x for y in op.operands) == 1


def _passes_on(op: Op, i: int) -> bool:
    """Whether the result has the elements of operand `i`, as integers."""
    moved = op.defn.short in MOVES or (op.defn.short == "select" and i > 0)
    return moved or (op.defn.short == "cast" and tensor_type(op.results[0]).dtype.is_integer)


def _whole(t: TensorType) -> Range:
    """All integers of a dtype."""
    return (0, 1) if t.dtype is I1 else (t.dtype.min, t.dtype.max)


def _of_literal(x: Literal) -> Range | None:
    if x.data is None:
        return None
    array = from_literal(scalar_literal(x) if x.splat else x)
    return (int(array.min()), int(array.max())) if array.size else (0, 0)


def _places(op: Op) -> Range | None:
    """The range of positions along the axis that the op numbers."""
    t = tensor_type(op.results[0]) if op.defn.short == "iota" else tensor_type(op.operands[0])
    n = t.shape[op.attr("axis")]
    return (0, max(n - 1, 0)) if isinstance(n, int) else None


def _union(op: Op, ranges: Sequence[Range]) -> Range:
    return min(r[0] for r in ranges), max(r[1] for r in ranges)


def _padded(op: Op, ranges: Sequence[Range]) -> Range:
    fill = int(op.attr("pad_value").value)
    return _union(op, [*ranges, (fill, fill)])


def _ends(combine: Callable[[int, int], int]) -> Callable[[Op, Sequence[Range]], Range]:
    """The range from the results at the ends of both operands."""

    def rule(op: Op, ranges: Sequence[Range]) -> Range:
        a, b = ranges
        corners = [combine(x, y) for x in a for y in b]
        return min(corners), max(corners)

    return rule


def _cast(op: Op, ranges: Sequence[Range]) -> Range:
    dtype = tensor_type(op.results[0]).dtype
    low, high = (min(max(n, dtype.min), dtype.max) for n in ranges[0])
    return low, high


def _size(op: Op, ranges: Sequence[Range]) -> Range:
    low, high = ranges[0]
    return 0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))


def _extreme(op: Op, ranges: Sequence[Range]) -> Range | None:
    t = tensor_type(op.operands[0])
    return ranges[0] if t.is_static and 0 not in t.shape else None


def _summed(op: Op, ranges: Sequence[Range]) -> Range | None:
    """The range that includes all partial sums, as far as the extents are known."""
    t = tensor_type(op.operands[0])
    axes = op.attr("contract_lhs" if op.defn.short == "dot_general" else "axes")
    extents = [t.shape[a] for a in axes]
    if not all(isinstance(n, int) for n in extents):
        return None
    n = prod(d for d in extents if isinstance(d, int))
    terms = _ends(lambda x, y: x * y)(op, ranges) if len(ranges) > 1 else ranges[0]
    return min(n * terms[0], 0), max(n * terms[1], 0)


def _divided(op: Op, ranges: Sequence[Range]) -> Range | None:
    n = splat_of(op.operands[1])
    if not n:
        return None
    low, high = (abs(v) // abs(n) * (1 if (v < 0) == (n < 0) else -1) for v in ranges[0])
    return min(low, high), max(low, high)


def _remains(op: Op, ranges: Sequence[Range]) -> Range | None:
    n = splat_of(op.operands[1])
    if not n:
        return None
    below, above = (n < 0, n > 0) if op.defn.short == "mod" else (ranges[0][0] < 0, ranges[0][1] > 0)
    return (1 - abs(n)) * below, (abs(n) - 1) * above


_FIRST = frozenset(["take", "gather", "dynamic_slice"])  # their elements are those of the first operand
_RULES: dict[str, Callable[[Op, Sequence[Range]], Range | None]] = {
    **dict.fromkeys((*MOVES, *_FIRST, "select"), _union),
    **dict.fromkeys(("pad", "extract_patches"), _padded), "cast": _cast, "abs": _size,
    "add": _ends(lambda x, y: x + y), "sub": _ends(lambda x, y: x - y), "mul": _ends(lambda x, y: x * y),
    "maximum": _ends(max), "minimum": _ends(min), "neg": lambda op, r: (-r[0][1], -r[0][0]),
    "clamp": lambda op, r: (min(max(r[0][0], r[1][0]), r[2][0]), min(max(r[0][1], r[1][1]), r[2][1])),
    "reduce_max": _extreme, "reduce_min": _extreme, "reduce_sum": _summed,
    "dot_general": _summed, "div": _divided, "rem": _remains, "mod": _remains,
}  # fmt: skip
