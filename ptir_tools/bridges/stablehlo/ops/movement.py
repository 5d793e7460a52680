"""Ops that move elements: shapes, broadcasts, slices, padding, concatenation; also those with a shape as operand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extent_ops import along, every, measured, reversed_along
from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.stablehlo.table import Part, Site, Tensor, handles, refused, sizes_of
from ptir_tools.core.dtypes import I1, SI32, SI64, Kind
from ptir_tools.core.types import UNKNOWN, Dim, Shape, TensorType
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.ptir.ops import scalars


@handles("stablehlo.reshape")
def reshape(site: Site, x: Tensor) -> Tensor:
    """The same elements under another shape."""
    return reshaped(x, site.known(site.type.shape))


def reshaped(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    """`x` reshaped to `shape`, or `x` itself."""
    return x if x.shape == tuple(shape) else x.reshape(shape)


@handles("stablehlo.transpose", dims="permutation")
def transpose(site: Site, x: Tensor) -> Tensor:
    """Axes in another order."""
    order = site.axes("permutation", x.rank)
    fine = len(order) == x.rank
    require(fine, "InvalidAttributeValue", f"`permutation` has {len(order)} entries for {x.rank} axes")
    return x.transpose(order)


@handles("stablehlo.broadcast_in_dim", dims="broadcast_dimensions")
def broadcast_in_dim(site: Site, x: Tensor) -> Tensor:
    """Axes placed in a larger shape, and repeated."""
    return placed(site, x, site.known(site.type.shape))


def placed(site: Site, x: Tensor, shape: Shape) -> Tensor:
    """`x` in `shape`, by the attribute `broadcast_dimensions`."""
    dims = site.axes("broadcast_dimensions", len(shape), [])
    require(len(dims) == x.rank, "InvalidAttributeValue", f"`broadcast_dimensions` has {len(dims)} entries for {x.rank} axes")
    for i, axis in enumerate(dims):
        fine = x.shape[i] == 1 or x.shape[i] == shape[axis]
        require(
            fine,
            "InvalidAttributeValue",
            f"`broadcast_dimensions`: axis {i} of {x.type} does not fit axis {axis} of {list(shape)}",
        )
    return site.broadcast(x, shape, dims)


@handles("stablehlo.broadcast", sizes="broadcast_sizes")
def broadcast(site: Site, x: Tensor) -> Tensor:
    """New axes in front."""
    return x.broadcast_to((*site.ints("broadcast_sizes"), *x.shape))


@handles("stablehlo.concatenate", dim="dimension", values=True)
def concatenate(site: Site, *operands: object) -> Tensor:
    """A concatenation. If the operands are two parts of an axis, exchanged, it is a rotation of that axis."""
    axis = site.axis("dimension", site.type.rank)
    if (turned := _rotation(site, operands, axis)) is not None:
        return turned
    xs = list(site.each(operands))
    for n, x in enumerate(xs):
        pairs = enumerate(zip(xs[0].shape, x.shape, strict=False))
        off = [a for a, (d, e) in pairs if a != axis and d != e and isinstance(d, int) and isinstance(e, int)]
        fine = not off and x.rank == xs[0].rank
        message = f"{xs[0].type} and {x.type} differ in another axis than {axis}, which is concatenated"
        require(fine, "OperandShapeMismatch", message, at=operand(n))
    return site.op("concat", xs, axis=axis, types=[lengthened(site, xs[0], axis, [x.shape[axis] for x in xs])])


def lengthened(site: Site, x: Tensor, axis: int, parts: Sequence[Dim]) -> TensorType:
    """The type of `x`, with the sum of the parts' extents along an axis."""
    total = sum(map(site.symbolic.extent, parts))
    return x.tensor_type.with_shape(site.symbolic.dim(total) if a == axis else d for a, d in enumerate(x.shape))


def _rotation(site: Site, operands: Sequence[object], axis: int) -> Tensor | None:
    """A rotation; the operands are the second and the first part of a tensor."""
    if len(operands) != 2 or not any(isinstance(p, Part) for p in operands):
        return None
    last, first = operands
    if isinstance(last, Part) and isinstance(first, Part):
        x, n = last.whole, site.symbolic.extent(last.whole.shape[axis])
        fits = first.whole.operand is x.operand and last.axis == first.axis == axis and first.start == 0
        if not fits or last.stop != n or last.start != first.stop:
            return None
        size, by = (measured(site.block, e).reshape([1]).broadcast_to([x.shape[axis]]) for e in (n, last.start))
        return x.taken((site.iota([x.shape[axis]], SI64, 0) + by).mod(size), axis)
    return None


@handles("stablehlo.slice")
def slice_(site: Site, x: Tensor) -> Tensor:
    """A window with strides."""
    if site.has("subscript"):
        ranges = [v if isinstance(v, tuple) else () for v in site.value("subscript")]
        written = f"[{', '.join(':'.join(map(str, r)) for r in ranges)}]"
        require(all(ranges), "InvalidAttributeValue", "a slice is `[start:limit:stride, …]`", at=written)
        message = f"the slice has {len(ranges)} ranges for {x.rank} axes"
        require(len(ranges) == x.rank, "InvalidAttributeValue", message, at=written)
        bounds = [(r[0], r[1], r[2] if len(r) > 2 else 1) for r in ranges]
    else:
        lists = (
            site.counts("start_indices", x.rank, 0),
            site.counts("limit_indices", x.rank, 0),
            site.counts("strides", x.rank, 1, 1),
        )
        bounds = list(zip(*lists, strict=True))
    return strided(x, bounds)


def strided(x: Tensor, bounds: Sequence[tuple[int, int, int]]) -> Tensor:
    """`x[low:high:step, …]`: the window is reshaped to rows of one step, and the first column is kept."""
    for (low, high, step), n in zip(bounds, x.shape, strict=True):
        fine = 0 <= low <= high and step >= 1 and (not isinstance(n, int) or high <= n)
        written = f"{low}:{high}" if step == 1 else f"{low}:{high}:{step}"
        require(fine, "InvalidAttributeValue", f"{written} is not a slice of an axis of {n}", at=written)
    counts = [-(-(high - low) // step) for low, high, step in bounds]
    steps = [step if n > 1 else 1 for n, (_, _, step) in zip(counts, bounds, strict=True)]
    sizes = [(n - 1) * s + 1 if n else 0 for n, s in zip(counts, steps, strict=True)]
    starts = [low for low, _, _ in bounds]
    if tuple(sizes) != x.shape:
        x = x.slice(starts, sizes)
    if all(s == 1 for s in steps):
        return x
    filled = [s - 1 if n else 0 for n, s in zip(counts, steps, strict=True)]
    padded = x.pad([0] * len(steps), filled)
    pairs = [(n, s) if s > 1 else (n,) for n, s in zip(counts, steps, strict=True)]
    rows = padded.reshape([d for pair in pairs for d in pair])
    firsts = rows.slice([0] * rows.rank, [d for pair in pairs for d in (pair[:1] if len(pair) == 1 else (pair[0], 1))])
    return firsts.reshape(counts)


@handles("stablehlo.reverse", dims="dimensions")
def reverse(site: Site, x: Tensor) -> Tensor:
    """The elements in reverse order along axes."""
    return reduce(reversed_along, site.axes("dimensions", x.rank), x)


@handles("stablehlo.pad", low="edge_padding_low", high="edge_padding_high", interior="interior_padding")
def pad(site: Site, x: Tensor, value: Tensor) -> Tensor:
    """Padding before, after and between elements; negative counts crop."""
    lists = [site.ints(f"edge_padding_{side}") for side in ("low", "high")]
    return padded(site, x, value, lists[0], lists[1], site.counts("interior_padding", x.rank, 0, 0))


def padded(site: Site, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Tensor:
    """`x` padded with a scalar. Negative counts crop after the interior is filled."""
    short = next((name for name, given in (("low", low), ("high", high)) if len(given) != x.rank), "")
    require(not value.shape, "OperandShapeMismatch", f"the padding value is {value.type}, expected a scalar", at=operand(1))
    require(not short, "InvalidAttributeValue", f"`edge_padding_{short}` does not have an entry for each of {x.rank} axes")
    above, below = ([max(n, 0) for n in side] for side in (low, high))
    result = filled(site, x, value, above, below, interior)
    if min((*low, *high, 0)) >= 0:
        return result
    starts = [max(-n, 0) for n in low]
    if result.tensor_type.is_static:
        sizes = [d - s - max(-n, 0) for d, s, n in zip(sizes_of(result), starts, high, strict=True)]
        require(min(sizes, default=0) >= 0, "InvalidAttributeValue", "negative padding cuts more than there is")
        return result.slice(starts, sizes)
    for axis, (s, n) in enumerate(zip(starts, high, strict=True)):
        result = cut(site, result, axis, s, site.symbolic.extent(result.shape[axis]) - s - max(-n, 0))
    return result


def filled(site: Site, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Tensor:
    """`x` padded by counts. If the padding value is not constant, it is selected afterwards."""
    if not any((*low, *high, *interior)):
        return x
    if (number := known(value)) is not None:
        scalar = scalars.Scalar(scalars.natural_kind(x.dtype), _plain(number.item(), x))
        if not (x.dtype.is_float and number != number):
            return site.op(
                "pad", x, low, high, interior=interior, pad_value=scalar, types=[widened(site, x, low, high, interior)]
            )
    there = site.full(True, x.tensor_type.with_dtype(I1))
    y, there = (
        site.op("pad", v, low, high, interior=interior, types=[widened(site, v, low, high, interior)]) for v in (x, there)
    )
    return there.select(y, site.broadcast(value, there.shape, []))


def widened(site: Site, x: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> TensorType:
    """The type of padded `x`. Interior padding assumes that a symbolic extent is at least 1."""
    extents = map(site.symbolic.extent, x.shape)
    counts = (
        n if not (a or b or i) else max(n - 1, 0) * i + n + a + b if isinstance(n, int) else (n - 1) * i + n + a + b
        for n, a, b, i in zip(extents, low, high, interior, strict=True)
    )
    return x.tensor_type.with_shape(map(site.symbolic.dim, counts))


def _plain(number: complex, x: Tensor) -> bool | complex | float | int:
    if x.dtype.kind is Kind.BOOL:
        return bool(number)
    if isinstance(number, complex) or x.dtype.is_complex:
        return complex(number)
    return float(number) if x.dtype.is_float else int(number)


@handles("stablehlo.dynamic_slice", sizes="slice_sizes")
def dynamic_slice(site: Site, x: Tensor, *starts: Tensor) -> Tensor:
    """A window whose starts are scalars, clamped to the bounds of `x`."""
    return x.dynamic_slice(places(site, starts, x.rank), site.counts("slice_sizes", x.rank, 0)) if x.rank else x


@handles("stablehlo.dynamic_update_slice")
def dynamic_update_slice(site: Site, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    """`x` with a window replaced."""
    if not x.rank:
        return update
    at = places(site, starts, x.rank)
    if update.tensor_type.is_static:
        return x.dynamic_update_slice(update, at, sizes_of(update))
    return _update_by_scatter(site, x, update, at)


def _update_by_scatter(site: Site, x: Tensor, update: Tensor, at: Tensor) -> Tensor:
    """An update of a window with symbolic extents, as a scatter from its clamped start."""
    most = [site.symbolic.extent(n) - site.symbolic.extent(m) for n, m in zip(x.shape, update.shape, strict=True)]
    axes = [a for a, n in enumerate(most) if isinstance(n, Extent) or n]
    if not axes:
        return update
    starts = site.concat([at.slice([a], [1]) for a in axes], axis=0)
    last = site.concat([measured(site.block, most[a], at.dtype).reshape([1]) for a in axes], axis=0)
    starts = starts.clamp(site.full(0, starts.tensor_type), last)
    numbers = {"update_window_dims": list(range(x.rank)), "inserted_window_dims": [], "scatter_dims_to_operand_dims": axes}
    return site.op("scatter", x, starts, update, **numbers, index_vector_dim=0, reduce="replace", drop=True)


def places(site: Site, starts: Sequence[Tensor], rank: int) -> Tensor:
    """Scalar starts as a vector, PTIR's operand."""
    require(len(starts) == rank, "OperandCountMismatch", f"{rank} starts are expected, got {len(starts)}")
    wide = [as_index(x) for x in starts]
    dtype = SI64 if any(x.dtype is SI64 for x in wide) else SI32
    rows = [(x if x.dtype is dtype else x.cast(dtype)).reshape([1]) for x in wide]
    return rows[0] if rank == 1 else site.concat(rows, axis=0)


def as_index(x: Tensor) -> Tensor:
    """Integers as si32 or si64; larger ones stay out of bounds."""
    if x.dtype in (SI32, SI64):
        return x
    return x.cast(SI32 if x.dtype.bits < 32 else SI64)


# Shapes as operands: the declared shape of the result, or the elements of a constant


def given_shape(site: Site, shape: Tensor) -> Shape:
    """The shape of the result: declared, or the symbolic elements of the operand."""
    declared = site.type.shape
    if UNKNOWN not in declared:
        return declared
    result = elements(site, shape, "the shape")
    require(len(result) == len(declared), "InvalidAttributeValue", f"{len(result)} extents for {len(declared)} axes")
    return tuple(site.symbolic.dim(x) if d is UNKNOWN else d for d, x in zip(declared, result, strict=True))


def elements(site: Site, x: Tensor, what: str) -> list[Size]:
    """The elements of an integer tensor computed from extents and constants. Raises Violation for any other."""
    result = site.symbolic.of(x)
    if result is None or not every(list(result.reshape(-1))):
        raise refused(f"{what} is not computed from extents and constants alone")
    return list(result.reshape(-1))


@handles("stablehlo.dynamic_reshape", "chlo.dynamic_reshape")
def dynamic_reshape(site: Site, x: Tensor, shape: Tensor) -> Tensor:
    """A reshape to a shape that is an operand."""
    return reshaped(x, given_shape(site, shape))


@handles("stablehlo.dynamic_broadcast_in_dim", dims="broadcast_dimensions")
def dynamic_broadcast_in_dim(site: Site, x: Tensor, shape: Tensor) -> Tensor:
    """A broadcast to a shape that is an operand."""
    return placed(site, x, given_shape(site, shape))


@handles("stablehlo.dynamic_iota", dim="iota_dimension")
def dynamic_iota(site: Site, shape: Tensor) -> Tensor:
    """An iota whose shape is an operand."""
    result = given_shape(site, shape)
    return site.iota(result, site.dtype, site.axis("iota_dimension", len(result)))


@handles("stablehlo.dynamic_pad")
def dynamic_pad(site: Site, x: Tensor, value: Tensor, low: Tensor, high: Tensor, interior: Tensor) -> Tensor:
    """A pad whose counts are operands. If they are data, each element of the result computes the index of its source."""
    given = [site.symbolic.of(c) for c in (low, high, interior)]
    counts = [[int(n) for n in v.flat] for v in given if v is not None and all(isinstance(n, int) for n in v.flat)]
    if len(counts) < len(given):
        return _pad_by_index(site, x, value, low, interior)
    return padded(site, x, value, *counts)


@handles("stablehlo.real_dynamic_slice")
def real_dynamic_slice(site: Site, x: Tensor, starts: Tensor, limits: Tensor, strides: Tensor) -> Tensor | Part:
    """A slice whose bounds are operands. If they are data, the result has the declared extents."""
    if any(known(c) is None for c in (starts, limits, strides)) or not x.tensor_type.is_static:
        return _slice_by_bounds(site, x, starts, limits, strides)
    lists = [[int(n) for n in site.read(c, "a bound").reshape(-1)] for c in (starts, limits, strides)]
    return strided(x, list(zip(*lists, strict=True)))


def _slice_by_bounds(site: Site, x: Tensor, starts: Tensor, limits: Tensor, strides: Tensor) -> Tensor | Part:
    """Along each axis, a slice by symbolic bounds; if they are data, the number of elements is the declared one."""
    declared, given = site.type.shape, [site.symbolic.of(v) for v in (starts, limits, strides)]
    require(len(declared) == x.rank, "InvalidAttributeValue", f"a slice of {x.type} has its rank")
    for axis, n in enumerate(declared):
        bounds: list[Size | None] = [None if v is None else v.reshape(-1)[axis] for v in given]
        if every(bounds):
            low, high, step = bounds
            if isinstance(step, Extent):
                raise refused("the extents of its result depend on data")
            require(step >= 1, "InvalidAttributeValue", f"the stride {step} is not positive")
            try:
                x = cut(site, x, axis, low, -((low - high) // step), int(step))
            except Violation as violation:
                if step != 1 or any(d != e for d, e in zip(declared, x.shape, strict=True) if isinstance(d, int)):
                    raise
                return Part(x, axis, low, high, violation)
        elif isinstance(n, int):
            steps = site.iota([n], starts.dtype, 0) * _entry(strides, axis, n)
            x = x.taken(_entry(starts, axis, n) + steps, axis)
        else:
            raise refused("the extents of its result depend on data")
    return x


def cut(site: Site, x: Tensor, axis: int, start: Size, count: Size, step: int = 1) -> Tensor:
    """`count` elements from `start` with stride `step` along an axis; the numbers may be extents. All are in bounds."""
    whole, n = x.shape[axis], site.symbolic.dim(count)
    if not isinstance(start, Extent) and start == 0 and n == whole and step == 1:
        return x
    if isinstance(whole, int) and isinstance(n, int) and not isinstance(start, Extent) and x.tensor_type.is_static:
        high = int(start) + (n - 1) * step + 1 if n else int(start)
        return strided(x, [(int(start), high, step) if a == axis else (0, d, 1) for a, d in enumerate(sizes_of(x))])
    return along(x, axis, start, site.symbolic.extent(n), step)


def _declared_extents(site: Site) -> list[int]:
    """The extents of the result. Raises Violation if they are not declared."""
    sizes = [d for d in site.type.shape if isinstance(d, int)]
    if len(sizes) < site.type.rank:
        raise refused("the extents of its result depend on data")
    return sizes


def _entry(vector: Tensor, at: int, count: int) -> Tensor:
    """An entry of a vector, repeated `count` times."""
    return vector.slice([at], [1]).broadcast_to([count])


def _pad_by_index(site: Site, x: Tensor, value: Tensor, low: Tensor, interior: Tensor) -> Tensor:
    """A pad by counts that are data. Along each axis the result reads the operand if the index is in bounds, else `value`."""
    sizes, result, there = _declared_extents(site), x, None
    if 0 in sizes_of(x):
        return value.broadcast_to(sizes)
    for axis, (n, d) in enumerate(zip(sizes, sizes_of(x), strict=True)):
        place = site.iota([n], low.dtype, 0) - _entry(low, axis, n)
        step = _entry(interior, axis, n) + 1
        at = place / step
        inside = [("compare_ge", place, 0), ("compare_eq", place.rem(step), 0), ("compare_lt", at, d)]
        for op, left, right in inside:
            flag = site.op(op, left, right).reshape([n if a == axis else 1 for a in range(x.rank)]).broadcast_to(sizes)
            there = flag if there is None else flag.select(there, False)
        result = result.taken(at.maximum(0).minimum(d - 1), axis)
    return result if there is None else there.select(result, value.broadcast_to(sizes))


@handles("stablehlo.get_dimension_size", dim="dimension")
def get_dimension_size(site: Site, x: Tensor) -> Tensor:
    """An extent as a scalar."""
    n = x.shape[site.axis("dimension", x.rank)]
    return site.constant(n, site.dtype) if isinstance(n, int) else measured(site.block, site.symbolic.extent(n), site.dtype)


@handles("stablehlo.set_dimension_size", dim="dimension")
def set_dimension_size(site: Site, x: Tensor, size: Tensor) -> Tensor:
    """`x` itself if the size is unchanged, or a prefix of it for a constant size."""
    axis = site.axis("dimension", x.rank)
    result, n = site.symbolic.of(size), x.shape[axis]
    new_size = None if result is None else result.reshape(-1)[0]
    if isinstance(new_size, int) and x.tensor_type.is_static and new_size <= sizes_of(x)[axis]:
        return x.slice([0] * x.rank, [new_size if a == axis else d for a, d in enumerate(sizes_of(x))])
    if new_size is None or site.symbolic.dim(new_size) != n:
        raise refused("the extents of its result depend on data")
    return x


@handles("stablehlo.tuple", values=True)
def tuple_(site: Site, *operands: object) -> object:
    """Several values as one."""
    return [tuple(operands)]


@handles("stablehlo.get_tuple_element", values=True)
def get_tuple_element(site: Site, x: object) -> object:
    """One value of a tuple."""
    index = site.integer("subscript" if site.has("subscript") else "index")
    if not isinstance(x, tuple) or not 0 <= index < len(x):
        raise Violation("TupleIndexOutOfRange", f"there is no element {index}")
    return [x[index]]


@handles("stablehlo.after_all", "stablehlo.create_token", values=True)
def after_all(site: Site, *tokens: object) -> object:
    """A token; it has no value at run time."""
    return [TOKEN_VALUE]


class _TokenValue:
    """The value of a token."""


TOKEN_VALUE = _TokenValue()
