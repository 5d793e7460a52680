"""Gather, scatter and sort. Dimension numbers are normalized to rows of a matrix, each with a linear index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extent_ops import measured
from ptir_tools.bridges.extents import Size
from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.numbers import converted
from ptir_tools.bridges.stablehlo.ops.elementwise import ordered
from ptir_tools.bridges.stablehlo.ops.movement import as_index, cut, elements, filled, strided
from ptir_tools.bridges.stablehlo.ops.reductions import kinds, monoid, promoted
from ptir_tools.bridges.stablehlo.scopes import Scope, read_names
from ptir_tools.bridges.stablehlo.symbolic import decided
from ptir_tools.bridges.stablehlo.syntax import Block
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, checked_axes, handles, index_dtype, refused, sizes_of
from ptir_tools.bridges.stablehlo.terms import Terms
from ptir_tools.core.dtypes import I1, SI32, SI64, UI8
from ptir_tools.core.types import Dim, Shape
from ptir_tools.core.violations import Violation, require

# The comparisons that order, whether they descend, and whether by all bits.
_ORDERS: dict[object, tuple[bool, bool]] = {
    ("compare", direction, total): (direction == "GT", total) for direction in ("LT", "GT") for total in (False, True)
}
MOST_COMPARED = 2048  # elements that are sorted by comparing all pairs, at most


class Numbers:
    """Index vectors by axis: `starts[d]` has the start along axis `d` of the operand for each index; `batch` is the shape of
    the indices."""

    def __init__(self, site: Site, indices: Tensor, sizes: Sequence[int], vector: int, to: Sequence[int]) -> None:
        self.site, self.sizes = site, sizes
        dtype = index_dtype(math.prod(sizes))
        indices = components_last(as_index(indices), vector)
        indices = indices if indices.dtype.bits >= dtype.bits else indices.cast(dtype)
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
            self.starts[d] = start.clamp(0, most[d])

    def batching(self, axes: Sequence[int], of_indices: Sequence[int], vector: int) -> None:
        """Set the starts along batching axes to the position along an axis of the indices."""
        require(len(axes) == len(of_indices), "InvalidAttributeValue", "batching axes come in pairs")
        for d, a in zip(axes, of_indices, strict=True):
            at = a - (a > vector)
            fine = 0 <= at < len(self.batch) and 0 <= d < len(self.sizes) and d not in self.starts
            require(fine, "InvalidAttributeValue", "a batching axis is not an axis of the indices or the operand")
            self.starts[d] = self.site.iota(self.batch, self.dtype, at)


def components_last(indices: Tensor, vector: int) -> Tensor:
    """Indices whose last axis is that of their components."""
    require(0 <= vector <= indices.rank, "InvalidAttributeValue", "`index_vector_dim` is not an axis of the indices")
    if vector == indices.rank:
        return indices.reshape([*indices.shape, 1])
    others = [a for a in range(indices.rank) if a != vector]
    return indices if vector == len(others) else indices.transpose([*others, vector])


def offset_windows(x: Tensor, windows: int, offset: Sequence[int]) -> Tensor:
    """`x`, whose last axes are those of windows, with these axes at the places `offset`."""
    checked_axes(offset, x.rank, "offset_dims")
    require(len(offset) == windows, "InvalidAttributeValue", "`offset_dims` needs an entry for each axis of a slice")
    order = [*(a for a in range(x.rank) if a not in offset), *offset]
    return x.transpose([order.index(a) for a in range(x.rank)])


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
    require(fine, "InvalidAttributeValue", f"`slice_sizes`: {list(slices)} is no part of {x.type}")
    numbers = Numbers(site, indices, sizes, vector, f.axes("start_index_map"))
    numbers.clamp({d: n - s for d, (n, s) in enumerate(zip(sizes, slices, strict=True))})
    numbers.batching(f.axes("operand_batching_dims"), f.axes("start_indices_batching_dims"), vector)
    checked_axes(dropped, x.rank, "the axes that are left out")
    windows = [d for d in range(x.rank) if d not in dropped]
    shape = [*numbers.batch, *(slices[d] for d in windows)]
    if not math.prod(shape):
        return offset_windows(site.full(0, x.tensor_type.with_shape(shape)), len(windows), offset)
    chosen = [d for d in range(x.rank) if d in numbers.starts or slices[d] != sizes[d] or d in dropped]
    if all(slices[d] == 1 for d in chosen):
        result = _rows(x, chosen).take(_linear(site, numbers, chosen, numbers.batch, {}))
    else:
        along = {d: len(numbers.batch) + windows.index(d) for d in windows}
        every = list(range(x.rank))
        result = x.reshape([math.prod(sizes)]).take(_linear(site, numbers, every, shape, along))
    return offset_windows(result.reshape(shape), len(windows), offset)


def _take_along(site: Site, x: Tensor, indices: Tensor, slices: Sequence[Dim]) -> Tensor:
    """Elements along one axis, at indices of any shape; other axes are complete and may have symbolic extents."""
    f = site.fields("dimension_numbers")
    (axis,), dropped, vector = f.axes("start_index_map"), f.axes("collapsed_slice_dims"), f.number("index_vector_dim")
    checked_axes(dropped, x.rank, "the axes that are left out")
    starts = components_last(as_index(indices), vector)
    *batch, count = starts.shape
    require(count == 1, "InvalidAttributeValue", "an index has one component for one axis")
    require(all(slices[d] == 1 for d in dropped), "InvalidAttributeValue", "an axis that is left out is longer than 1")
    last = measured(site.block, site.symbolic.extent(x.shape[axis]) - 1, starts.dtype)
    at = starts.reshape(batch).clamp(0, site.broadcast(last, tuple(batch), []))
    rest = [d for d in range(x.rank) if d != axis]
    result = x.transpose([axis, *rest]).take(at)
    windows = [d for d in range(x.rank) if d not in dropped]
    result = result.reshape([*batch, *(slices[d] for d in windows)]) if axis not in dropped or len(dropped) > 1 else result
    return offset_windows(result, len(windows), f.axes("offset_dims"))


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
        at = at.clamp(0, measured(site.block, most).reshape([1]))
        places = site.iota((s,), SI64, 0)
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
    starts = components_last(as_index(indices).cast(SI64), vector)
    *batch, _ = starts.shape
    windows = [d for d in range(x.rank) if d not in dropped]
    shape = (*batch, *(slices[d] for d in windows))
    rows = starts.reshape([-1, len(to)])
    own = dict(zip(batched, f.axes("start_indices_batching_dims"), strict=True))
    total: Tensor | None = None
    for d, (n, s) in enumerate(zip(x.shape, slices, strict=True)):
        parts = []
        if d in own:
            at = own[d] - (own[d] > vector)
            parts.append(site.iota(tuple(batch), SI64, at))
        elif d in to:
            part = rows.taken(site.constant([to.index(d)], SI64), 1).reshape(batch)
            most = measured(site.block, symbolic.extent(n) - symbolic.extent(s))
            parts.append(part.clamp(0, site.broadcast(most, part.shape, [])))
        parts = [site.broadcast(part, shape, range(len(batch))) for part in parts]
        if d in windows and s != 1:
            parts.append(site.iota(shape, SI64, len(batch) + windows.index(d)))
        stride: Size = math.prod((symbolic.extent(e) for e in x.shape[d + 1 :]), start=1)
        for part in parts:
            scaled = part * site.broadcast(measured(site.block, stride), shape, []) if stride != 1 else part
            total = scaled if total is None else total + scaled
    if total is None:
        total = site.broadcast(site.constant(0, SI64), shape, [])
    whole: Size = math.prod(map(symbolic.extent, x.shape), start=1)
    return offset_windows(x.reshape([symbolic.dim(whole)]).take(total), len(windows), offset)


def _rows(x: Tensor, chosen: Sequence[int]) -> Tensor:
    """`x` as a matrix whose rows are numbered by the chosen axes."""
    rest = [d for d in range(x.rank) if d not in chosen]
    sizes = sizes_of(x)
    moved = x if [*chosen, *rest] == list(range(x.rank)) else x.transpose([*chosen, *rest])
    return moved.reshape([math.prod(sizes[d] for d in chosen), *(sizes[d] for d in rest)])


def _linear(site: Site, numbers: Numbers, chosen: Sequence[int], shape: Sequence[int], along: dict[int, int]) -> Tensor:
    """The linear indices of rows: the starts, in `shape`, plus the positions along the axes `along`."""
    strides = {d: math.prod(numbers.sizes[e] for e in chosen[k + 1 :]) for k, d in enumerate(chosen)}
    total: Tensor | None = None
    for d in chosen:
        parts = []
        if d in numbers.starts:
            parts.append(site.broadcast(numbers.starts[d], tuple(shape), range(len(numbers.batch))))
        if d in along and shape[along[d]] > 1:
            parts.append(site.iota(shape, numbers.dtype, along[d]))
        for part in parts:
            scaled = part if strides[d] == 1 else part * strides[d]
            total = scaled if total is None else total + scaled
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
    combiners = kinds(site, region, n)
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
    updates = [u.transpose([*(a for a in range(rank) if a not in window), *window]) for u in updates]
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
    return site.concat([at, *(site.iota(one, at.dtype, a) for a in axes)], axis=vector), vector


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
            at = at.minimum(numbers.dtype.max - extent) + step  # stays out of bounds and does not wrap
        fine = (at >= 0).bitwise_and(at < numbers.sizes[d])
        inside = fine if inside is None else inside.bitwise_and(fine)
    places = _linear(site, numbers, chosen, shape, along)
    return places if inside is None else inside.select(places, -1)


def scattered(site: Site, region: Block, xs: list[Tensor], places: Tensor, updates: list[Tensor]) -> list[Tensor]:
    """Rows of updates combined by a region into rows of operands. A row index of -1 writes nothing."""
    combiners = kinds(site, region, len(xs))
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
    return results_of(result)[:n]


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
        (kept,) = site.each(site.scope.inline(site.regions[0], [best[0], value], lift=value.shape, count=1))
        kept = kept.bitwise_or(at.compare_eq(-1)).bitwise_and(best[1].compare_ne(-1))
        best = kept.select(best[0], value), kept.select(best[1], at)
    assert best is not None
    region = site.regions[1]
    (start,), (flat,) = (promoted(site, region, [x]) for x in (init, source.reshape([math.prod(sizes_of(source))])))
    into = start.broadcast_to(result_shape=(count,))
    places = best[1].reshape([math.prod(sizes_of(best[1]))])
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
    return [result[0], converted(result[1], indices)]


def approx_top_k(site: Site, *xs: Tensor) -> list[Tensor]:
    """The best elements along an axis by a comparator, and their indices: exactly, so every recall is reached."""
    named, config = site.value("called_computations"), site.value("mhlo.backend_config", {})
    function = site.scope.reader.functions.get(str(named[0] if isinstance(named, list) and named else named).lstrip("@"))
    if len(xs) != 4 or function is None or function.body is None or not isinstance(config, dict):
        raise refused("ApproxTopK without a comparator or a `mhlo.backend_config`")
    values, places = xs[:2]
    axis = checked_axes([config.get("reduction_dim", -1)], values.rank, "reduction_dim")[0]
    keys = sort_keys(site, [values, places], Block(function.params, function.body.body))
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
    keys = sort_keys(site, xs, site.regions[0])
    if keys is None:
        return _sort_by_rank(site, xs, axis)
    descends = keys[0][1]
    if all(d is descends for _, d in keys):
        own = [x for x, _ in keys]
        together = [*own, *(x for x in xs if all(x is not key for key in own))]
        result = site.op("sort", together, axis=axis, keys=len(own), descending=descends)
        return [results_of(result)[next(i for i, y in enumerate(together) if y is x)] for x in xs]
    places = site.iota(sizes_of(xs[0]), SI32, axis)
    for key, descending in reversed(keys):  # a stable sort by each key, the first one last
        places = site.op("sort", [key.gather(places, axis), places], axis=axis, keys=1, descending=descending)[1]
    return [x.gather(places, axis) for x in xs]


def sort_keys(site: Site, xs: Sequence[Tensor], region: Block) -> list[tuple[Tensor, bool]] | None:
    """The keys of a comparator, and whether each descends: the same function of the left and of the right element. The comparator
    is `a < b`, or `a < b or (a == b and …)`; None for any other."""
    results = read_names(region.body[-1].pieces) if region.body else []
    if len(region.params) != 2 * len(xs) or len(results) != 1:
        return None
    terms, one_side = Terms(site, region), Terms(site, region, lambda k: k // 2)

    def key(a: int, b: int, total: bool) -> Tensor | None:
        left, right = (next((name for name, x in terms.named.items() if x == side), "") for side in (a, b))
        sides = [{k % 2 for k in terms.reads[side]} for side in (a, b)]
        if sides != [{0}, {1}] or one_side.of(left) != one_side.of(right):
            return None
        inner = site.scope.lifted_scope(xs[0].shape)
        inner.parameters(region.params, [x for x in xs for _ in (0, 1)])
        for s in region.body[:-1]:
            inner.reader.statement(s, inner)
        (result,) = site.each([inner.lookup(left)])
        result = ordered(result) if total else result
        result = result.cast(UI8) if result.dtype is I1 else result
        return None if result.dtype.is_complex else result

    def keys(number: int) -> list[tuple[Tensor, bool]] | None:
        op, operands = terms.ops[number]
        if op in _ORDERS:
            (a, b), (descends, total) = operands, _ORDERS[op]
            result = key(a, b, total)
            return None if result is None else [(result, descends)]
        for first, second in permutations(operands) if op == "stablehlo.or" and len(operands) == 2 else ():
            (before, pair), (tied, parts) = terms.ops[first], terms.ops[second]
            equal = [terms.both(("compare", "EQ", total), *pair) for total in (False, True) if len(pair) == 2]
            rest = [x for x in parts if x not in equal]
            if before in _ORDERS and tied == "stablehlo.and" and len(parts) == 2 and len(rest) == 1:
                own, more = keys(first), keys(rest[0])
                return None if own is None or more is None else own + more
        return None

    return keys(terms.of(results[0]))


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
    if less.dtype is not I1:
        message = f"the comparator returns {less.dtype}, expected i1"
        raise Violation("RegionSignatureMismatch", message, loc=site.regions[0].body[-1].at.loc)
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
