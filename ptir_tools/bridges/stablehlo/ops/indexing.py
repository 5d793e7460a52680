"""Gather, scatter and sort. Dimension numbers are normalized to rows of a matrix, each with a linear index."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extent_ops import measured
from ptir_tools.bridges.extents import Size
from ptir_tools.bridges.stablehlo.ops.elementwise import converted, ordered
from ptir_tools.bridges.stablehlo.ops.movement import as_index, cut, elements, filled, iota, strided
from ptir_tools.bridges.stablehlo.ops.reductions import kinds, monoid, promoted
from ptir_tools.bridges.stablehlo.scopes import Scope, read_names
from ptir_tools.bridges.stablehlo.symbolic import decided
from ptir_tools.bridges.stablehlo.syntax import Block
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, checked_axes, handles, index_dtype, refused, sizes_of
from ptir_tools.core.dtypes import I1, SI32, SI64, UI8
from ptir_tools.core.types import Dim, Shape, tensor
from ptir_tools.core.violations import require

MOST_COMPARED = 2048  # elements that are sorted by comparing all pairs, at most


class Numbers:
    """Index vectors by axis: `starts[d]` has the start along axis `d` of the operand for each index; `batch` is the shape of
    the indices."""

    def __init__(self, site: Site, indices: Tensor, sizes: Sequence[int], vector: int, to: Sequence[int]) -> None:
        self.site, self.sizes = site, sizes
        dtype = index_dtype(math.prod(sizes))
        indices = as_index(indices)
        indices = indices if indices.dtype.bits >= dtype.bits else indices.cast(dtype)
        require(0 <= vector <= indices.rank, "InvalidAttributeValue", "`index_vector_dim` is not an axis of the indices")
        if vector == indices.rank:
            indices = indices.reshape([*indices.shape, 1])
        elif vector != indices.rank - 1:
            indices = indices.transpose([*(a for a in range(indices.rank) if a != vector), vector])
        *batch, count = sizes_of(indices)
        require(count == len(to), "InvalidAttributeValue", f"an index has {count} components for {len(to)} axes")
        checked_axes(to, len(sizes), "the axes of an index")
        self.batch, self.dtype = batch, indices.dtype
        self.starts: dict[int, Tensor] = {}
        for k, d in enumerate(to):
            part = indices.slice([0] * len(batch) + [k], [*batch, 1])
            self.starts[d] = part.reshape(batch)

    def clamp(self, most: dict[int, int]) -> None:
        """Clamp the starts along axis d to 0 … `most[d]`."""
        for d, start in self.starts.items():
            number = known(start)
            if number is not None and number.size and number.min() >= 0 and number.max() <= most[d]:
                continue
            t = start.tensor_type
            self.starts[d] = start.clamp(self.site.full(0, t), self.site.full(most[d], t))

    def batching(self, axes: Sequence[int], of_indices: Sequence[int], vector: int) -> None:
        """Set the starts along batching axes to the position along an axis of the indices."""
        require(len(axes) == len(of_indices), "InvalidAttributeValue", "batching axes come in pairs")
        for d, a in zip(axes, of_indices, strict=True):
            at = a - (a > vector)
            fine = 0 <= at < len(self.batch) and 0 <= d < len(self.sizes) and d not in self.starts
            require(fine, "InvalidAttributeValue", "a batching axis is not an axis of the indices or the operand")
            self.starts[d] = self.site.iota(self.batch, self.dtype, at)


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]


@handles("stablehlo.gather")
def gather(site: Site, x: Tensor, indices: Tensor) -> Tensor:
    """Slices of the operand at indices, which are clamped to its bounds."""
    return gathered(site, x, indices, site.ints("slice_sizes"))


@handles("stablehlo.dynamic_gather")
def dynamic_gather(site: Site, x: Tensor, indices: Tensor, sizes: Tensor) -> Tensor:
    """A gather whose slice sizes are an operand."""
    return gathered(site, x, indices, list(map(site.symbolic.dim, elements(site, sizes, "`slice_sizes`"))))


def gathered(site: Site, x: Tensor, indices: Tensor, sliced: Sequence[Dim]) -> Tensor:
    """A gather of full rows, or of elements if slices are parts of rows."""
    f = site.fields("dimension_numbers")
    if not all(isinstance(d, int) for d in (*x.shape, *indices.shape, *sliced)):
        require(len(sliced) == x.rank, "InvalidAttributeValue", f"slices of {list(sliced)} of {x.type}")
        to, batched = f.axes("start_index_map"), f.axes("operand_batching_dims")
        others = all(n is s or n == s for d, (n, s) in enumerate(zip(x.shape, sliced, strict=False)) if d not in to)
        single = len(to) == 1 and to[0] < x.rank and sliced[to[0]] == 1
        whole = single and others and not batched
        return (_take_along if whole else _gather_slice if indices.rank == 1 and not batched else _gather_elements)(
            site, x, indices, sliced
        )
    slices = [n for n in sliced if isinstance(n, int)]
    offset, vector = f.axes("offset_dims"), f.number("index_vector_dim")
    dropped = [*f.axes("collapsed_slice_dims"), *f.axes("operand_batching_dims")]
    sizes = sizes_of(x)
    fine = len(slices) == x.rank and all(0 <= s <= n for s, n in zip(slices, sizes, strict=True))
    require(fine, "InvalidAttributeValue", f"slices of {list(slices)} of {x.type}")
    numbers = Numbers(site, indices, sizes, vector, f.axes("start_index_map"))
    numbers.clamp({d: n - s for d, (n, s) in enumerate(zip(sizes, slices, strict=True))})
    numbers.batching(f.axes("operand_batching_dims"), f.axes("start_indices_batching_dims"), vector)
    checked_axes(dropped, x.rank, "the axes that are left out")
    windows = [d for d in range(x.rank) if d not in dropped]
    rank = len(numbers.batch) + len(windows)
    checked_axes(offset, rank, "offset_dims")
    require(len(offset) == len(windows), "InvalidAttributeValue", "`offset_dims` needs an entry for each axis of a slice")
    places = [a for a in range(rank) if a not in offset]
    order = [0] * rank
    for i, a in enumerate([*places, *offset]):
        order[a] = i
    shape = [*numbers.batch, *(slices[d] for d in windows)]
    if not math.prod(shape):
        return site.full(0, x.tensor_type.with_shape(shape[i] for i in order))
    chosen = [d for d in range(x.rank) if d in numbers.starts or slices[d] != sizes[d] or d in dropped]
    if all(slices[d] == 1 for d in chosen):
        result = _rows(x, chosen).take(_linear(site, numbers, chosen, numbers.batch, {}))
    else:
        along = {d: len(numbers.batch) + windows.index(d) for d in windows}
        every = list(range(x.rank))
        result = x.reshape([math.prod(sizes)]).take(_linear(site, numbers, every, shape, along))
    return result.reshape(shape).transpose(order)


def _take_along(site: Site, x: Tensor, indices: Tensor, slices: Sequence[Dim]) -> Tensor:
    """Elements along one axis, at indices of any shape; other axes are complete and may have symbolic extents."""
    f = site.fields("dimension_numbers")
    (axis,), dropped, vector = f.axes("start_index_map"), f.axes("collapsed_slice_dims"), f.number("index_vector_dim")
    checked_axes(dropped, x.rank, "the axes that are left out")
    require(0 <= vector <= indices.rank, "InvalidAttributeValue", "`index_vector_dim` is not an axis of the indices")
    require(
        vector == indices.rank or indices.shape[vector] == 1, "InvalidAttributeValue", "an index has one component for one axis"
    )
    require(all(slices[d] == 1 for d in dropped), "InvalidAttributeValue", "an axis that is left out is longer than 1")
    starts = as_index(indices)
    batch = tuple(n for a, n in enumerate(starts.shape) if a != vector)
    n = x.shape[axis]
    last = (
        site.constant(n - 1, starts.dtype)
        if isinstance(n, int)
        else measured(site.block, site.symbolic.extent(n), starts.dtype) - 1
    )
    t = tensor(starts.dtype, batch)
    at = starts.reshape(batch).clamp(site.full(0, t), last.broadcast_to(batch) if batch else last)
    rest = [d for d in range(x.rank) if d != axis]
    result = x.transpose([axis, *rest]).take(at)
    windows = [d for d in range(x.rank) if d not in dropped]
    result = result.reshape([*batch, *(slices[d] for d in windows)]) if axis not in dropped or len(dropped) > 1 else result
    offset = f.axes("offset_dims")
    rank = len(batch) + len(windows)
    checked_axes(offset, rank, "offset_dims")
    require(len(offset) == len(windows), "InvalidAttributeValue", "`offset_dims` needs an entry for each axis of a slice")
    order = [*(a for a in range(rank) if a not in offset), *offset]
    return result.transpose([order.index(a) for a in range(rank)])


def _gather_slice(site: Site, x: Tensor, indices: Tensor, slices: Sequence[Dim]) -> Tensor:
    """One slice, if the operand or the slice has symbolic extents."""
    f = site.fields("dimension_numbers")
    to, dropped = f.axes("start_index_map"), f.axes("collapsed_slice_dims")
    require(indices.shape[0] == len(to), "InvalidAttributeValue", "an index has a component for each axis that it leads to")
    checked_axes(to, x.rank, "the axes of an index")
    checked_axes(dropped, x.rank, "the axes that are left out")
    starts, known_ = as_index(indices), site.symbolic.of(indices)
    for d, (n, s) in enumerate(zip(x.shape, slices, strict=True)):
        if n == s:
            continue
        size, most = site.symbolic.extent(s), site.symbolic.extent(n) - site.symbolic.extent(s)
        start = 0 if d not in to else None if known_ is None else known_[to.index(d)]
        if start is not None and _inside(site, start, most):
            x = cut(site, x, d, start, size)
            continue
        at = starts.slice([to.index(d)], [1]).cast(SI64)
        at = at.clamp(site.full(0, at.tensor_type), measured(site.block, most).reshape([1]))
        places = iota(site, (s,), SI64, 0)
        x = x.taken(places + at.broadcast_to(places.shape), d)
    return x.reshape([n for d, n in enumerate(x.shape) if d not in dropped]) if dropped else x


def _inside(site: Site, start: Size, most: Size) -> bool:
    """Whether a start is known to be in 0 … `most`."""
    return decided(site.symbolic, "GE", start, 0) is True and decided(site.symbolic, "LE", start, most) is True


def _gather_elements(site: Site, x: Tensor, indices: Tensor, slices: Sequence[Dim]) -> Tensor:
    """Each element of the result, by its linear index in an operand of symbolic extents."""
    f, symbolic = site.fields("dimension_numbers"), site.symbolic
    to, batched, vector = f.axes("start_index_map"), f.axes("operand_batching_dims"), f.number("index_vector_dim")
    dropped, offset = [*f.axes("collapsed_slice_dims"), *batched], f.axes("offset_dims")
    starts = as_index(indices).cast(SI64)
    require(0 <= vector <= starts.rank, "InvalidAttributeValue", "`index_vector_dim` is not an axis of the indices")
    batch = [n for a, n in enumerate(starts.shape) if a != vector]
    windows = [d for d in range(x.rank) if d not in dropped]
    shape = (*batch, *(slices[d] for d in windows))
    checked_axes(offset, len(shape), "offset_dims")
    require(len(offset) == len(windows), "InvalidAttributeValue", "`offset_dims` needs an entry for each axis of a slice")
    order = starts if vector == starts.rank else starts.transpose([*(a for a in range(starts.rank) if a != vector), vector])
    rows = order.reshape([-1, len(to)]) if order.rank > 1 or vector < starts.rank else order
    own = dict(zip(batched, f.axes("start_indices_batching_dims"), strict=True))
    total: Tensor | None = None
    for d, (n, s) in enumerate(zip(x.shape, slices, strict=True)):
        parts = []
        if d in own:
            at = own[d] - (own[d] > vector)
            parts.append(iota(site, tuple(batch), SI64, at))
        elif d in to:
            part = rows if vector == starts.rank else rows.taken(site.constant([to.index(d)], SI64), 1)
            part = part.reshape(batch)
            most = measured(site.block, symbolic.extent(n) - symbolic.extent(s))
            parts.append(part.clamp(site.full(0, part.tensor_type), site.broadcast(most, part.shape, [])))
        parts = [site.broadcast(part, shape, range(len(batch))) for part in parts]
        if d in windows and s != 1:
            parts.append(iota(site, shape, SI64, len(batch) + windows.index(d)))
        stride: Size = math.prod((symbolic.extent(e) for e in x.shape[d + 1 :]), start=1)
        for part in parts:
            scaled = part * site.broadcast(measured(site.block, stride), shape, []) if stride != 1 else part
            total = scaled if total is None else total + scaled
    if total is None:
        total = site.broadcast(site.constant(0, SI64), shape, [])
    whole: Size = math.prod(map(symbolic.extent, x.shape), start=1)
    result = x.reshape([symbolic.dim(whole)]).take(total)
    places = [*(a for a in range(len(shape)) if a not in offset), *offset]
    return result.transpose([places.index(a) for a in range(len(shape))])


def _rows(x: Tensor, chosen: Sequence[int]) -> Tensor:
    """`x` as a matrix whose rows are numbered by the chosen axes."""
    rest = [d for d in range(x.rank) if d not in chosen]
    sizes = sizes_of(x)
    moved = x if [*chosen, *rest] == list(range(x.rank)) else x.transpose([*chosen, *rest])
    return moved.reshape([math.prod(sizes[d] for d in chosen), *(sizes[d] for d in rest)])


def _linear(site: Site, numbers: Numbers, chosen: Sequence[int], shape: Sequence[int], along: dict[int, int]) -> Tensor:
    """The linear indices of rows: the starts, in `shape`, plus the positions along the axes `along`."""
    strides = dict(zip(chosen, _strides([numbers.sizes[d] for d in chosen]), strict=True))
    total: Tensor | None = None
    for d in chosen:
        parts = []
        if d in numbers.starts:
            parts.append(site.broadcast(numbers.starts[d], tuple(shape), range(len(numbers.batch))))
        if d in along and shape[along[d]] > 1:
            parts.append(site.iota(shape, numbers.dtype, along[d]))
        for part in parts:
            scaled = part if strides[d] == 1 else part.mul(site.full(strides[d], part.tensor_type))
            total = scaled if total is None else total.add(scaled)
    return total if total is not None else site.constant(0, numbers.dtype).broadcast_to(result_shape=shape)


@handles("stablehlo.scatter")
def scatter(site: Site, *operands: Tensor) -> list[Tensor]:
    """Windows of updates combined into operands at indices; windows out of bounds are dropped."""
    require(
        len(operands) % 2 == 1 and len(operands) >= 3, "OperandCountMismatch", "inputs, indices and as many updates are expected"
    )
    n = len(operands) // 2
    xs, indices, updates = list(operands[:n]), operands[n], list(operands[n + 1 :])
    require(len(site.regions) == 1, "OperandCountMismatch", "a region is expected")
    region = site.regions[0]
    xs, updates = promoted(site, region, xs), promoted(site, region, updates)
    f = site.fields("scatter_dimension_numbers")
    window, inserted, batching = (f.axes(k) for k in ("update_window_dims", "inserted_window_dims", "input_batching_dims"))
    vector, to = f.number("index_vector_dim"), f.axes("scatter_dims_to_operand_dims")
    combiners = kinds(region, n)
    if batching and not all(x.tensor_type.is_static for x in (*xs, indices)):
        indices, vector = _with_places(site, indices, vector, f.axes("scatter_indices_batching_dims"))
        inserted, to, batching = sorted([*inserted, *batching]), [*to, *batching], []
    if combiners is not None and not batching and not any(x.dtype.is_complex for x in xs):
        numbers_ = {"update_window_dims": window, "inserted_window_dims": inserted, "scatter_dims_to_operand_dims": to}
        attrs = {**numbers_, "index_vector_dim": vector, "drop": True}
        at = as_index(indices)
        return [
            x if k == "keep" else site.op("scatter", x, at, u, **attrs, reduce=monoid(k, x.dtype))
            for k, x, u in zip(combiners, xs, updates, strict=True)
        ]
    sizes = sizes_of(xs[0])
    numbers = Numbers(site, indices, sizes, vector, to)
    mapped = list(numbers.starts)
    numbers.batching(batching, f.axes("scatter_indices_batching_dims"), vector)
    windows = [d for d in range(len(sizes)) if d not in (*inserted, *batching)]
    rank = len(numbers.batch) + len(windows)
    checked_axes(window, rank, "update_window_dims")
    fine = len(window) == len(windows) and all(u.rank == rank for u in updates)
    require(fine, "InvalidAttributeValue", "`update_window_dims` needs an entry for each axis of a window")
    order = [*(a for a in range(rank) if a not in window), *window]
    updates = [u.transpose(order) for u in updates]
    shape = sizes_of(updates[0])
    require(shape[: len(numbers.batch)] == numbers.batch, "OperandShapeMismatch", "the updates do not fit the indices")
    part = dict(zip(windows, shape[len(numbers.batch) :], strict=True))
    require(all(part[d] <= sizes[d] for d in windows), "OperandShapeMismatch", "a window is larger than the operand")
    if not math.prod(shape):
        return xs
    chosen = [d for d in range(len(sizes)) if d in numbers.starts or part.get(d) != sizes[d]]
    along: dict[int, int] = {}
    outer = numbers.batch
    if any(part.get(d, 1) != 1 for d in chosen):
        chosen, outer = list(range(len(sizes))), shape
        along = {d: len(numbers.batch) + i for i, d in enumerate(windows)}
    rest = [d for d in range(len(sizes)) if d not in chosen]
    places = _in_bounds(site, numbers, mapped, chosen, outer, along)
    flat = [u.reshape([math.prod(outer), *(sizes[d] for d in rest)]) for u in updates]
    made = scattered(site, region, [_rows(x, chosen) for x in xs], places.reshape([math.prod(outer)]), flat)
    back = [[*chosen, *rest].index(d) for d in range(len(sizes))]
    return [y.reshape([sizes[d] for d in (*chosen, *rest)]).transpose(back) for y in made]


def _with_places(site: Site, indices: Tensor, vector: int, axes: Sequence[int]) -> tuple[Tensor, int]:
    """Indices with one more component for each of `axes`, the position along it, and the axis of components."""
    at = as_index(indices)
    if vector == at.rank:
        at = at.reshape([*at.shape, 1])
    one = tuple(1 if a == vector else n for a, n in enumerate(at.shape))
    return site.concat([at, *(iota(site, one, at.dtype, a) for a in axes)], axis=vector), vector


def _in_bounds(
    site: Site, numbers: Numbers, mapped: Sequence[int], chosen: Sequence[int], shape: Sequence[int], along: dict[int, int]
) -> Tensor:
    """The linear indices of rows; -1 if out of bounds."""
    inside: Tensor | None = None
    for d in mapped:
        number = known(numbers.starts[d])
        extent = shape[along[d]] if d in along else 1
        if number is not None and number.size and number.min() >= 0 and number.max() + extent <= numbers.sizes[d]:
            continue
        at = site.broadcast(numbers.starts[d], tuple(shape), range(len(numbers.batch)))
        if extent > 1:
            step = site.iota(shape, numbers.dtype, along[d])
            highest = site.full(numbers.dtype.max - extent, at.tensor_type)
            at = at.minimum(highest).add(step)  # stays out of bounds and does not wrap
        t = at.tensor_type
        fine = at.compare_ge(site.full(0, t)).bitwise_and(at.compare_lt(site.full(numbers.sizes[d], t)))
        inside = fine if inside is None else inside.bitwise_and(fine)
    places = _linear(site, numbers, chosen, shape, along)
    return places if inside is None else inside.select(places, -1)


def scattered(site: Site, region: Block, xs: list[Tensor], places: Tensor, updates: list[Tensor]) -> list[Tensor]:
    """Rows of updates combined by a region into rows of operands. A row index of -1 writes nothing."""
    combiners = kinds(region, len(xs))
    if combiners is None or any(x.dtype.is_complex and k in ("max", "min") for k, x in zip(combiners, xs, strict=True)):
        return _scatter_in_loop(site, region, xs, places, updates)
    window = {"update_window_dims": list(range(1, xs[0].rank)), "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
    names = [monoid(k, x.dtype) for k, x in zip(combiners, xs, strict=True)]
    return [
        x if k == "keep" else site.op("scatter", x, places, u, **window, reduce=k, drop=True)
        for k, x, u in zip(names, xs, updates, strict=True)
    ]


def _scatter_in_loop(site: Site, region: Block, xs: list[Tensor], places: Tensor, updates: list[Tensor]) -> list[Tensor]:
    """A scatter as a loop over the updates, with the region as its body."""
    scope, n = site.scope, len(xs)
    if scope.lift is not None:
        raise refused("a scatter inside a computation on scalars")
    capture = scope.capture([region])
    carried = [*xs, *capture.arguments]
    slices = [t.with_shape(t.shape[1:]) for t in (v.tensor_type for v in (places, *updates))]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        capture.bind(inner, params[n : len(carried)])
        at, new = params[len(carried)], params[len(carried) + 1 :]
        outputs = []
        starts = []
        for x in params[:n]:
            zeros = [inner.block.constant(0, at.dtype).reshape([1]) for _ in x.shape[1:]]
            starts.append(inner.block.concat([at.reshape([1]), *zeros], axis=0))  # -1 is read as row 0, which keeps its value
        olds = [x.dynamic_slice(s, [1, *sizes_of(x)[1:]]).reshape(x.shape[1:]) for x, s in zip(params, starts, strict=False)]
        results = site.each(inner.inline(region, [*olds, *new], lift=olds[0].shape, count=n))
        there = at.compare_ge(inner.block.constant(0, at.dtype))
        for x, s, old, new_ in zip(params, starts, olds, results, strict=False):
            flag = there.broadcast_to(old.shape) if old.rank else there
            y = inner.block.select(flag, new_, old)
            outputs.append(x.dynamic_update_slice(y.reshape([1, *y.shape]), s, [1, *sizes_of(x)[1:]]))
        return [*outputs, *params[n : len(carried)]]

    inner_region = scope.region([*(x.type for x in carried), *slices], body)
    result = scope.block.op("scan", [*carried, places, *updates], len(carried), 0, regions=[inner_region])
    return [result] if len(carried) == 1 else [*result][:n]


@handles("stablehlo.select_and_scatter")
def select_and_scatter(site: Site, x: Tensor, source: Tensor, init: Tensor) -> Tensor:
    """Each element of the source is combined into the element that its window selects."""
    require(len(site.regions) == 2, "OperandCountMismatch", "two regions are expected")
    window = site.counts("window_dimensions", x.rank, 1, 1)
    strides, padding = site.counts("window_strides", x.rank, 1, 1), site.pairs("padding", x.rank)
    sizes = sizes_of(x)
    low, high = [p[0] for p in padding], [p[1] for p in padding]
    require(min((*low, *high, 0)) >= 0, "InvalidAttributeValue", "padding is not negative")
    count = math.prod(sizes)
    dtype = index_dtype(count)
    place = site.iota([count], dtype, 0).reshape(sizes)
    zero, none = site.full(0 if x.dtype is not I1 else False, x.tensor_type.with_shape(())), site.constant(-1, dtype)
    full = filled(site, x, zero, low, high, [0] * x.rank), filled(site, place, none, low, high, [0] * x.rank)
    best: tuple[Tensor, Tensor] | None = None
    for k in range(math.prod(window)):
        offsets = [k // math.prod(window[a + 1 :]) % window[a] for a in range(x.rank)]
        bounds = [(o, o + (n - 1) * s + 1 if n else o, s) for o, n, s in zip(offsets, sizes_of(source), strides, strict=True)]
        value, at = (strided(v, bounds) for v in full)
        if best is None:
            best = value, at
            continue
        outside = site.full(-1, at.tensor_type)
        (kept,) = site.each(site.scope.inline(site.regions[0], [best[0], value], lift=value.shape, count=1))
        kept = kept.bitwise_or(at.compare_eq(outside))
        kept = kept.bitwise_and(best[1].compare_ne(outside))
        best = kept.select(best[0], value), kept.select(best[1], at)
    assert best is not None
    region = site.regions[1]
    (start,), (flat,) = promoted(site, region, [init]), promoted(site, region, [source.reshape([math.prod(source.shape)])])  # type: ignore[arg-type]
    into = start.broadcast_to(result_shape=(count,))
    places = best[1].reshape([math.prod(best[1].shape)])  # type: ignore[arg-type]
    result = scattered(site, region, [into], places, [flat])
    return result[0].reshape(sizes)


# Order


@handles("chlo.top_k")
def top_k(site: Site, x: Tensor) -> list[Tensor]:
    """The largest elements along the last axis, and their indices."""
    if x.dtype is I1:
        raise refused("the largest of truth values")
    indices = site.tensor_type(site.types[1]).dtype
    result = x.top_k(
        site.integer("k"), axis=-1, largest=site.flag("largest", True), indices_dtype=SI32 if indices.bits < 64 else indices
    )
    return [result[0], converted(site, result[1], indices)]


def approx_top_k(site: Site, *xs: Tensor) -> list[Tensor]:
    """The best elements along an axis by a comparator, and their indices: exactly, so every recall is reached."""
    named, config = site.value("called_computations"), site.value("mhlo.backend_config", {})
    function = site.scope.reader.functions.get(str(named[0] if isinstance(named, list) and named else named).lstrip("@"))
    if len(xs) != 4 or function is None or function.body is None or not isinstance(config, dict):
        raise refused("ApproxTopK without a comparator or a `mhlo.backend_config`")
    values, places = xs[:2]
    axis = checked_axes([config.get("reduction_dim", -1)], values.rank, "reduction_dim")[0]
    keys = Keys(site, [values, places], Block(function.params, function.body.body)).compared_keys()
    if keys is None or len(keys) != 1 or keys[0][0] is not values:
        raise refused("ApproxTopK by a comparator that is more than `<` or `>`")
    result = site.op("sort", [values, places], axis=axis, keys=1, descending=keys[0][1])
    sizes = list(sizes_of(values))
    sizes[axis] = site.tensor_type(site.types[0]).static_shape[axis]
    return [x.slice([0] * values.rank, sizes) for x in result]


CUSTOM["ApproxTopK"] = approx_top_k


@handles("stablehlo.sort")
def sort(site: Site, *xs: Tensor) -> list[Tensor]:
    """A sort along an axis: by the keys that the comparator compares, else by comparing all pairs."""
    require(len(xs) >= 1 and len(site.regions) == 1, "OperandCountMismatch", "operands and a comparator are expected")
    axis = site.integer("dimension", -1)
    axis = checked_axes([axis + xs[0].rank if axis < 0 else axis], xs[0].rank, "dimension")[0]
    if xs[0].shape[axis] in (0, 1):
        return list(xs)
    keys = Keys(site, xs, site.regions[0]).compared_keys()
    if keys is None:
        return _sort_by_rank(site, xs, axis)
    descends = keys[0][1]
    if all(d is descends for _, d in keys):
        own = [x for x, _ in keys]
        together = [*own, *(x for x in xs if all(x is not key for key in own))]
        result = site.op("sort", together, axis=axis, keys=len(own), descending=descends)
        parts = [result] if len(together) == 1 else [*result]
        return [parts[next(i for i, y in enumerate(together) if y is x)] for x in xs]
    places = site.iota(sizes_of(xs[0]), SI32, axis)
    for key, descending in reversed(keys):  # a stable sort by each key, the first one last
        places = site.op("sort", [key.gather(places, axis), places], axis=axis, keys=1, descending=descending)[1]
    return [x.gather(places, axis) for x in xs]


class Keys:
    """The sort keys of a comparator: each is the same function of the left and of the right element."""

    def __init__(self, site: Site, xs: Sequence[Tensor], region: Block) -> None:
        self.site, self.xs, self.region = site, xs, region
        self.made = {name: s for s in self.region.body for name, _ in s.results}
        self.sides = {str(p.name)[1:]: (i // 2, i % 2) for i, p in enumerate(self.region.params)}

    def compared_keys(self) -> list[tuple[Tensor, bool]] | None:
        """Pairs of a key and whether it descends, or None if the comparator has another form."""
        if len(self.region.params) != 2 * len(self.xs) or not self.region.body:
            return None
        results = read_names(self.region.body[-1].pieces)
        return self.keys(str(results[0])[1:]) if len(results) == 1 else None

    def keys(self, name: str) -> list[tuple[Tensor, bool]] | None:
        """The keys of the truth value `name`: `a < b`, or `a < b or (a == b and …)`."""
        s = self.made.get(name)
        if s is None:
            return None
        compared = self.compared(name)
        if compared is not None and compared[0] in ("LT", "GT"):
            key = self.key(compared[1], compared[2])
            return None if key is None else [(key, compared[0] == "GT")]
        parts = self.parts(name, "or")
        for first, second in (parts, parts[::-1]) if parts else ():
            before = self.compared(first)
            tied = self.parts(second, "and")
            for equal, rest in (tied, tied[::-1]) if tied and before and before[0] in ("LT", "GT") else ():
                same = self.compared(equal)
                if same is not None and before is not None and same[0] == "EQ" and self.form(same[1]) == self.form(before[1]):
                    more, key = self.keys(rest), self.key(before[1], before[2])
                    return None if more is None or key is None else [(key, before[0] == "GT"), *more]
        return None

    def parts(self, name: str, op: str) -> list[str] | None:
        """The two operands of `and` or `or`."""
        s = self.made.get(name)
        return [str(t)[1:] for t in read_names(s.pieces)] if s is not None and s.name == f"stablehlo.{op}" else None

    def compared(self, name: str) -> tuple[str, str, str, str] | None:
        """Direction, operands and kind of a comparison."""
        s = self.made.get(name)
        if s is None or s.name != "stablehlo.compare":
            return None
        at = Site(self.site.scope, s, {})
        words = [*at.words, "", ""]
        direction = at.words[0] if at.words else at.word("comparison_direction")
        kind = words[1] if at.words else at.word("compare_type", "")
        if len(at.names) != 2:
            return None
        return direction, str(at.names[0])[1:], str(at.names[1])[1:], kind

    def form(self, name: str, side: int | None = None) -> tuple[object, ...]:
        """The expression of a value in the parameters of one side. It is the same for both sides if their computation is. None
        for a value that reads both sides."""
        if name in self.sides:
            return "parameter", self.sides[name][0]
        s = self.made.get(name)
        if s is None:
            return "outer", name
        if next(s.regions(), None) is not None:
            return "region", id(s)
        text = [str(p) for p in s.pieces if getattr(p, "type", "") != "SSA"]
        return s.name, tuple(text), tuple(self.form(str(t)[1:]) for t in read_names(s.pieces)), str(s.returned or s.given)

    def reads(self, name: str) -> set[int]:
        """The sides (left, right) of the parameters that a value depends on."""
        if name in self.sides:
            return {self.sides[name][1]}
        s = self.made.get(name)
        return set() if s is None else {side for t in read_names(s.pieces) for side in self.reads(str(t)[1:])}

    def key(self, left: str, right: str) -> Tensor | None:
        """The compared key, if both sides are the same function of their elements."""
        if self.reads(left) != {0} or self.reads(right) != {1} or self.form(left) != self.form(right):
            return None
        shape = self.xs[0].shape
        inner = self.site.scope.lifted_scope(shape)
        inner.parameters(self.region.params, [x for x in self.xs for _ in (0, 1)])
        for s in self.region.body[:-1]:
            inner.reader.statement(s, inner)
        (result,) = self.site.each([inner.lookup(f"%{left}")])
        kind = next((c[3] for name in self.made if (c := self.compared(name)) and c[1] == left), "")
        if kind == "TOTALORDER":
            result = ordered(self.site, result)
        if result.dtype is I1:
            result = result.cast(UI8)
        return None if result.dtype.is_complex else result


def _sort_by_rank(site: Site, xs: Sequence[Tensor], axis: int) -> list[Tensor]:
    """Sort by rank: all pairs are compared, and an element's new index is the number of elements before it."""
    n = sizes_of(xs[0])[axis]
    if n > MOST_COMPARED:
        raise refused(f"a comparator without keys is read for up to {MOST_COMPARED} elements, here are {n}")
    order = [*(a for a in range(xs[0].rank) if a != axis), axis]
    moved = [x.transpose(order) for x in xs]
    outer = moved[0].shape[:-1]
    pairs: Shape = (*outer, n, n)
    axes = list(range(len(outer)))
    arguments = []
    for x in moved:
        arguments += [site.broadcast(x, pairs, [*axes, len(outer)]), site.broadcast(x, pairs, [*axes, len(outer) + 1])]
    (less,) = site.each(site.scope.inline(site.regions[0], arguments, lift=pairs, count=1))
    greater = less.transpose([*axes, len(outer) + 1, len(outer)])
    sides = [site.iota([n, n], SI32, a) for a in (0, 1)]
    earlier = site.broadcast(sides[0].compare_lt(sides[1]), pairs, [len(outer), len(outer) + 1])
    tied = less.bitwise_or(greater).bitwise_not().bitwise_and(earlier)
    rank = less.bitwise_or(tied).cast(SI32).reduce_sum([len(outer)])
    back = [order.index(a) for a in range(len(order))]
    results = []
    for x in moved:
        plain = x.cast(UI8) if x.dtype is I1 else x
        y = plain.scatter_reduce(rank, plain, -1, reduce="replace").transpose(back)
        results.append(y.cast(I1) if x.dtype is I1 else y)
    return results
