"""Data movement for tiles: slices, updates, concat, padding, windows, take by regular indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import BIND, AffineExpr, Extent, Subview, equal, flat, fresh
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, TAKE
from ptir_tools.convert.ptir_to_pto.operands import (
    accumulator,
    dtype_of,
    identity_of,
    integer,
    integer_of,
    scaled,
    tensor_of,
    unraveled,
)
from ptir_tools.convert.ptir_to_pto.preparation import Preparation
from ptir_tools.core.dtypes import SI32, DType
from ptir_tools.core.expressions import product, to_dim
from ptir_tools.core.ir import Literal, Op, Operand, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Shape, Sym, TensorType, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.rewrite.constants import element_of

_TAPS = 128  # the most taps of a window that are unrolled
_LONGEST = 1 << 16  # the longest window along an axis: it becomes 2 sqrt(n) ops


def starts(work: Preparation, x: Operand, shape: Sequence[Extent], sizes: Sequence[Extent]) -> list[AffineExpr] | None:
    """The starts of a window of `sizes`, clamped to `shape`; None where they are data."""
    clamped = []
    for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n == size:
            clamped.append(AffineExpr())
            continue
        if (at := work.number(x, d)) is None:
            return None
        t = operand_type(at)
        assert isinstance(t, TensorType)
        last = last_start(work, n, size, t.dtype)
        end = integer_of(last)
        inside = isinstance(at, Value) and at in work.bounded and end is not None and work.bounded[at] <= end
        if not inside:
            at = work.arithmetic("minimum", work.arithmetic("maximum", at, integer(0, t.dtype)), last)
        clamped.append(work.place(at))
    return clamped


def last_start(work: Preparation, n: Extent, size: Extent, dtype: DType) -> Operand:
    """The last valid start of a window of `size` in `n`."""
    return work.arithmetic("sub", work.extent(n, dtype), work.extent(size, dtype))


def slice(work: Preparation, op: Op, x: Operand) -> Operand:
    """A slice with static starts."""
    return work.part(x, [AffineExpr((), s) for s in op.attr("starts")], op.attr("sizes"), op.result.name)


def dynamic_slice(work: Preparation, op: Op, x: Operand, start: Operand) -> Operand:
    """A slice whose starts are scalars, else data."""
    sizes, shape = op.attr("sizes"), tensor_of(x).shape
    first = starts(work, op.operands[1], shape, sizes)
    if first is not None:
        return work.part(x, first, sizes, op.result.name)
    for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n != size:
            one = work.part(start, [AffineExpr((), d)], (1,), "start")
            x = taken_along(work, x, d, places(work, one, n, size))
    return x


def places(work: Preparation, start: Operand, n: Extent, size: Extent) -> Value:
    """The indices of a window whose start is data, clamped to bounds."""
    t = tensor(dtype_of(start), (1,))
    inside = work.b.op("clamp", start, integer(0, t.dtype, (1,)), spread(work, last_start(work, n, size, t.dtype), (1,)))
    count = work.b.op("iota", shape=(size,), dtype=t.dtype, axis=0)
    return work.b.op("add", work.b.op("broadcast_to", inside, result_shape=(size,)), count)


def spread(work: Preparation, x: Operand, shape: Shape) -> Operand:
    """A scalar broadcast to a shape."""
    if isinstance(x, Literal):
        return work.fill(tensor(x.type.dtype, shape), element_of(x) or b"")
    return work.b.op("broadcast_to", x, result_shape=shape)


def taken_along(work: Preparation, x: Operand, axis: int, indices: Operand) -> Operand:
    """`x` at `indices`, a vector, along one axis."""
    rank = tensor_of(x).rank
    perm = [axis, *(d for d in range(rank) if d != axis)]
    result = work.b.op(TAKE, _table(work, work.transposed(x, perm)), indices)
    back = [perm.index(d) for d in range(rank)]
    return work.transposed(result, back)


def update(work: Preparation, op: Op, x: Operand, part: Operand, start: Operand) -> Operand:
    """A copy with one part replaced."""
    sizes, shape = op.attr("sizes"), tensor_of(x).shape
    first = starts(work, op.operands[2], shape, sizes)
    if first is None:
        return masked(work, op, x, part, start)
    memory = work.memory(op.result.type, op.result.name)
    if tuple(sizes) != shape:
        work.write(memory, x)
    work.write(memory, part, first)
    return memory


def masked(work: Preparation, op: Op, x: Operand, part: Operand, start: Operand) -> Operand:
    """A copy with one part replaced, whose start is data."""
    shape, sizes, inside = tensor_of(x).shape, op.attr("sizes"), None
    for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n == size:
            continue
        one, t = work.part(start, [AffineExpr((), d)], (1,), "start"), dtype_of(start)
        one = work.b.op("clamp", one, integer(0, t, (1,)), spread(work, last_start(work, n, size, t), (1,)))
        count = work.b.op("iota", shape=(n,), dtype=t, axis=0)
        at = work.b.op("sub", count, work.b.op("broadcast_to", one, result_shape=(n,)))
        above = work.b.op("compare_ge", at, integer(0, t, (n,)))
        end = work.extent(size, t)
        under = work.b.op("compare_lt", at, spread(work, end, (n,)))
        here = work.b.op("select", under, above, work.b.op("compare_ne", at, at))
        last = spread(work, work.arithmetic("sub", end, integer(1, t)), (n,))
        at = work.b.op("clamp", at, integer(0, t, (n,)), last)
        part = taken_along(work, part, d, at)
        row = work.b.op("reshape", here, new_shape=tuple(n if i == d else 1 for i in range(len(shape))))
        mask = work.b.op("broadcast_to", row, result_shape=shape)
        inside = mask if inside is None else work.b.op("select", mask, inside, mask)
    return part if inside is None else work.b.op("select", inside, part, x, name=op.result.name)


def concat(work: Preparation, op: Op, *xs: Operand) -> Operand:
    """A concat: the parts are copied into one memory."""
    axis, memory = op.attr("axis") % tensor_of(xs[0]).rank, work.memory(op.result.type, op.result.name)
    at: Operand = integer(0, SI32)
    for i, x in enumerate(xs):
        t = tensor_of(x)
        if 0 not in t.shape:
            work.write(memory, x, [work.place(at) if d == axis else AffineExpr() for d in range(t.rank)])
        if i < len(xs) - 1:
            at = work.arithmetic("add", at, work.extent(t.shape[axis], SI32))
    return memory


def pad(work: Preparation, op: Op, x: Operand) -> Operand:
    """A pad: filled memory, with the operand copied into a part of it."""
    low, high, interior = op.attr("low"), op.attr("high"), op.attr("interior")
    fill = work.element(op.attr("pad_value"), dtype_of(x))
    return work.padded(x, low, high, interior, fill, op.result.name, tensor_of(op.result).shape)


def patches(work: Preparation, op: Op, x: Operand) -> Operand:
    """Windows of memory, padded where they leave it."""
    window, steps, dilation, padding = (op.attr(n) for n in ("window", "strides", "dilation", "padding"))
    low, high = ([0, *(p[i] for p in padding), 0] for i in (0, 1))
    fill = work.element(op.attr("pad_value"), dtype_of(x))
    edges = open_edges(x, low, high)
    x = work.padded(x, *inner(edges, low, high), [0] * len(low), fill, "padded")
    if isinstance(x, Literal):
        return work.fill(tensor_of(op.result), element_of(x) or b"")
    shape, rank = tensor_of(op.result).shape, len(low)
    if edges:
        return open_patches(work, op, x, edges, low, fill)
    places = zip(shape[1:-1], steps, window, dilation, strict=True)
    cuts = (((shape[0], 1),), *(((n, s), (w, d)) for n, s, w, d in places), ((tensor_of(x).shape[-1], 1),))
    middle = range(1, rank - 1)
    groups = (((0, 0),), *(((d, 0),) for d in middle), (*((d, 1) for d in middle), (rank - 1, 0)))
    attrs = {"window": window, "strides": steps, "dilation": dilation}
    subview = Subview((AffineExpr(),) * rank, cuts, groups)
    return work.seen("extract_patches", subview, x, shape=shape, **attrs, name=op.result.name)


def open_edges(x: Operand, low: Sequence[int], high: Sequence[int]) -> list[int]:
    """The padded dimensions with symbolic extents: no memory has the padded extent."""
    return [d for d, (n, *more) in enumerate(zip(tensor_of(x).shape, low, high, strict=True)) if any(more) and isinstance(n, Sym)]


def inner(edges: Sequence[int], low: Sequence[int], high: Sequence[int]) -> tuple[list[int], list[int]]:
    """The padding without the dimensions `edges`."""
    before, after = ([0 if d in edges else n for d, n in enumerate(side)] for side in (low, high))
    return before, after


def reach(work: Preparation, n: Extent, many: Extent, first: int, step: int) -> tuple[int, int, Extent]:
    """Of `many` elements at stride `step` from `first`, those in bounds of an extent `n`: how many come before, their start, and
    their count."""
    before = max(-(first // step), 0)
    at = first + before * step
    count = work.arithmetic("add", work.extent(n, SI32), integer(step - 1 - at, SI32))
    if step > 1:
        count = work.arithmetic("div", work.arithmetic("maximum", count, integer(0, SI32)), integer(step, SI32))
    count = work.arithmetic("minimum", count, work.arithmetic("sub", work.extent(many, SI32), integer(before, SI32)))
    return before, at, work.length(count)


def open_patches(work: Preparation, op: Op, x: Operand, edges: Sequence[int], low: Sequence[int], fill: bytes) -> Value:
    """Patches in filled memory: for each tap along `edges` the part that is in bounds of `x`."""
    window, steps, dilation = ((1, *op.attr(n), 1) for n in ("window", "strides", "dilation"))
    extents, shape, rank = tensor_of(x).shape, tensor_of(op.result).shape, len(low)
    middle = range(1, rank - 1)
    memory = work.memory(tensor_of(x).with_shape((*shape[:-1], *window[1:-1], extents[-1])), op.result.name)
    work.write(memory, work.fill(tensor_of(memory), fill))
    for k in range(prod(window[d] for d in edges)):
        offsets = dict(zip(edges, unraveled(k, [window[d] for d in edges]), strict=True))
        first, into = [AffineExpr()], [AffineExpr()]
        cuts: list[tuple[tuple[Extent, int], ...]] = [((shape[0], 1),)]
        for d in middle:
            if d in offsets:
                before, at, count = reach(work, extents[d], shape[d], offsets[d] * dilation[d] - low[d], steps[d])
                first.append(AffineExpr((), at))
                cuts.append(((count, steps[d]), (1, 1)))
                into.append(AffineExpr((), before))
            else:
                first.append(AffineExpr())
                cuts.append(((shape[d], steps[d]), (window[d], dilation[d])))
                into.append(AffineExpr())
        cuts.append(((extents[-1], 1),))
        groups = (((0, 0),), *(((d, 0),) for d in middle), *(((d, 1),) for d in middle), ((rank - 1, 0),))
        subview = Subview((*first, AffineExpr()), tuple(cuts), groups)
        part = tuple(cuts[d][i][0] for (d, i), *_ in groups)
        zeros = (0,) * len(part)
        seen = work.seen("slice", subview, x, shape=part, starts=zeros, sizes=part)
        work.write(memory, seen, [*into, *(AffineExpr((), offsets.get(d, 0)) for d in middle), AffineExpr()])
    return work.b.op("reshape", memory, new_shape=shape, name=op.result.name)


def windows(work: Preparation, op: Op, x: Operand) -> Operand:
    """A window reduction, tap by tap for all windows at once; large windows one dimension after the other."""
    window, steps, base, dilation = (op.attr(n) for n in ("window_dims", "strides", "base_dilation", "window_dilation"))
    short, to = op.attr("reduce"), dtype_of(op.result)
    accum = (op.attr("accum_dtype") or accumulator(dtype_of(x))) if short == "sum" else dtype_of(x)
    low, high = ([p[i] for p in op.attr("padding")] for i in (0, 1))
    none = identity_of(short, dtype_of(x))
    places, edges = tensor_of(op.result).shape, open_edges(x, low, high)
    x = apart(work, x, base, none)
    base = [n if isinstance(d, int) else 1 for n, d in zip(base, tensor_of(x).shape, strict=True)]
    if prod(window) > _TAPS:
        edges = []
    x = work.padded(x, *inner(edges, low, high), [n - 1 for n in base], none, "padded")
    reduce = _Windows(work, {"sum": "add", "max": "maximum", "min": "minimum"}[short], accum, op.result.name, edges, none)
    if prod(window) <= _TAPS:
        taps = [[i * d for i, d in zip(unraveled(k, window), dilation, strict=True)] for k in range(prod(window))]
        taps = [[i - low[d] if d in edges else i for d, i in enumerate(tap)] for tap in taps]
        return work.cast(reduce.taps(x, taps, places, steps), to, op.result.name)
    for d, n in enumerate(window):
        shape = (*places[: d + 1], *tensor_of(x).shape[d + 1 :])
        x = reduce.line(x, d, n, dilation[d], shape, steps[d])
    return work.cast(x, to, op.result.name)


def apart(work: Preparation, x: Operand, base: Sequence[int], fill: bytes) -> Operand:
    """`x` dilated with `fill` between its elements, along symbolic extents also after the last."""
    shape = tensor_of(x).shape
    more = [0 if isinstance(d, int) else n - 1 for n, d in zip(base, shape, strict=True)]
    return work.padded(x, [0] * len(shape), more, more, fill, "apart")


@dataclass(slots=True)
class _Windows:
    """Reduces windows by the op `short`, in elements of `accum`."""

    work: Preparation
    short: str
    accum: DType
    name: str
    edges: Sequence[int]  # dimensions along which parts go out of bounds
    none: bytes  # the padding value

    def line(self, x: Operand, axis: int, count: int, apart: int, shape: Sequence[Extent], step: int) -> Value:
        """Windows of `count` elements along one axis, with dilation `apart` and stride `step`. Long ones are composed of shorter
        ones."""
        steps = [step if d == axis else 1 for d in range(len(shape))]
        require(count <= _LONGEST, NOT_TRANSLATABLE, f"a window of {count} elements along an axis is too long")
        size = isqrt(count) if count > _TAPS else count
        rest = count // size * size if count > _TAPS else 0
        taps = [[k * apart if d == axis else 0 for d in range(len(shape))] for k in range(rest, count)]
        if count <= _TAPS:
            return self.taps(x, taps, shape, steps)
        many, n = count // size, shape[axis]
        more = (many - 1) * size * apart + 1 - step  # there may be no windows
        require(isinstance(n, int) or more >= 0, NOT_TRANSLATABLE, f"windows of {count} along {n}, {step} apart", help=BIND)
        inside = (*shape[:axis], scaled(n, step, more), *shape[axis + 1 :])
        inner = self.line(x, axis, size, apart, inside, 1)
        total = self.line(inner, axis, many, size * apart, shape, step)
        return self.taps(x, taps, shape, steps, total)

    def taps(
        self, x: Operand, taps: Sequence[Sequence[int]], shape: Sequence[Extent], steps: Sequence[int], total: Value | None = None
    ) -> Value:
        """`total`, with the parts of `x` that begin at `taps`."""
        for first in taps:
            tap = self.work.cast(self.tap(x, first, shape, steps), self.accum)
            total = tap if total is None else self.work.b.op(self.short, total, tap, name=self.name)
        assert total is not None
        return total

    def tap(self, x: Operand, first: Sequence[int], shape: Sequence[Extent], steps: Sequence[int]) -> Operand:
        """Every `steps`-th element of `x` from `first` on."""
        if not self.edges:
            return self.work.part(x, [AffineExpr((), s) for s in first], shape, "", steps)
        work, at, counts, into = self.work, list(first), list(shape), [AffineExpr()] * len(shape)
        for d in self.edges:
            before, at[d], counts[d] = reach(work, tensor_of(x).shape[d], shape[d], first[d], steps[d])
            into[d] = AffineExpr((), before)
        memory = work.memory(tensor_of(x).with_shape(tuple(shape)), self.name)
        work.write(memory, work.fill(tensor_of(memory), self.none))
        work.write(memory, work.part(x, [AffineExpr((), s) for s in at], counts, "", steps), into)
        return memory


def reshape(work: Preparation, op: Op, x: Operand) -> Operand:
    """A reshape; through a vector in memory where the extents have no common factors."""
    shape = tensor_of(op.result).shape
    try:
        equal(flat(fresh(shape)), flat(fresh(tensor_of(x).shape)))
    except Violation:
        x = work.copied(work.b.op("reshape", x, new_shape=(to_dim(product(tensor_of(x).shape)),)), "")
    return work.b.op("reshape", x, new_shape=shape, name=op.result.name)


def tiled(work: Preparation, op: Op, x: Operand) -> Operand:
    """A tile: new axes are broadcast, then merged."""
    shape, repeats = tensor_of(x).shape, op.attr("repeats")
    apart = work.b.op("reshape", x, new_shape=tuple(n for d in shape for n in (1, d)))
    pairs = tuple(n for r, d in zip(repeats, shape, strict=True) for n in (r, d))
    spread = work.b.op("broadcast_to", apart, result_shape=pairs)
    return work.b.op("reshape", spread, new_shape=tensor_of(op.result).shape, name=op.result.name)


def take(work: Preparation, op: Op, x: Operand, indices: Operand) -> Operand:
    """A take by regular indices, else by data."""
    if isinstance(x, Literal):
        return work.fill(tensor_of(op.result), element_of(x) or b"")
    shape, t = tensor_of(x).shape, tensor_of(indices)
    if (subview := regular(work, op.operands[1], t)) is not None:
        first, steps = subview
        n = t.rank
        cuts = (tuple(zip(t.shape, steps, strict=True)) or ((1, 1),), *(((k, 1),) for k in shape[1:]))
        groups = (*(((0, i),) for i in range(n)), *(((d, 0),) for d in range(1, len(shape))))
        index_map = (first, *(AffineExpr(),) * (len(shape) - 1))
        return work.seen(
            TAKE, Subview(index_map, cuts, groups), x, indices, shape=tensor_of(op.result).shape, name=op.result.name
        )
    return work.b.op(TAKE, _table(work, x), work.cast(indices, SI32), name=op.result.name)


def _table(work: Preparation, x: Operand) -> Operand:
    """A table in memory; numbers that are not are copied, so that indices are still checked."""
    base = work.outline.base(x, ())[0]
    made = base.op if isinstance(base, Value) else None
    if not isinstance(base, Literal) and (made is None or made.defn.short != COUNT):
        return x
    return work.copied(x, "table")


def regular(work: Preparation, x: Operand, t: TensorType) -> tuple[AffineExpr, tuple[int, ...]] | None:
    """The start and strides of regular indices along each axis; None where they are irregular or data."""
    if not t.is_static:
        return None
    shape, total = t.static_shape, t.count
    if not total or total > 1 << 16:
        return None
    first = work.number(x, 0)
    if first is None and work.known(x) is None:
        return None
    if total == 1 and first is not None:
        return work.place(first), (1,) * len(shape)
    if (array := work.known(x)) is not None:
        values = [int(n) for n in array.reshape(-1)]
    else:
        places = [integer_of(e) if (e := work.number(x, i)) is not None else None for i in range(total)]
        values = [p for p in places if p is not None]
        if len(values) < total:
            return None
    steps = tuple(values[prod(shape[d + 1 :])] - values[0] if n > 1 else 1 for d, n in enumerate(shape))
    for i, value in enumerate(values):
        if value != values[0] + sum(k * s for k, s in zip(unraveled(i, shape), steps, strict=True)):
            return None
    return (AffineExpr((), values[0]), steps) if all(s > 0 for s in steps) else None
