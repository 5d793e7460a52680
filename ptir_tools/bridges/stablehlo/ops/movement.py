"""Ops that move elements: shapes, broadcasts, slices, padding, concatenation; and those whose shape comes as an operand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from ptir_tools.bridges.extents import Extent, dim
from ptir_tools.bridges.stablehlo.table import Site, Tensor, handles, known, refused, sizes_of
from ptir_tools.core import arrays
from ptir_tools.core.dtypes import I1, SI32, SI64, DType, Kind
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.core.types import UNKNOWN, Sym, TensorType, tensor
from ptir_tools.core.violations import require
from ptir_tools.core.walks import post_order
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.rewrite.constants import literal_of


@handles("stablehlo.reshape")
def reshape(site: Site, x: Tensor) -> Tensor:
    """The same elements under another shape."""
    return reshaped(x, site.known(site.type.shape))


def reshaped(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """`x` under `shape`, itself when it has that."""
    return x if x.shape == tuple(shape) else x.reshape(shape)


@handles("stablehlo.transpose", dims="permutation")
def transpose(site: Site, x: Tensor) -> Tensor:
    """Axes in another order."""
    return x.transpose(site.axes("permutation", x.rank))


@handles("stablehlo.broadcast_in_dim", dims="broadcast_dimensions")
def broadcast_in_dim(site: Site, x: Tensor) -> Tensor:
    """Axes placed in a larger shape, and repeated."""
    return placed(site, x, site.known(site.type.shape))


def placed(site: Site, x: Tensor, shape: Any) -> Tensor:
    """`x` in `shape`, by the attribute `broadcast_dimensions`."""
    dims = site.axes("broadcast_dimensions", len(shape), [])
    require(len(dims) == x.rank, "InvalidAttributeValue", f"`broadcast_dimensions` has {len(dims)} entries for {x.rank} axes")
    for i, axis in enumerate(dims):
        fine = x.shape[i] == 1 or x.shape[i] == shape[axis]
        require(fine, "InvalidAttributeValue", f"axis {i} of {x.type} does not fit axis {axis} of {list(shape)}")
    return site.broadcast(x, shape, dims)


@handles("stablehlo.broadcast", sizes="broadcast_sizes")
def broadcast(site: Site, x: Tensor) -> Tensor:
    """New axes in front."""
    return x.broadcast_to((*site.ints("broadcast_sizes"), *x.shape))


@handles("stablehlo.concatenate", dim="dimension")
def concatenate(site: Site, *xs: Tensor) -> Tensor:
    """One after the other along an axis."""
    return site.op("concat", list(xs), axis=site.axis("dimension", site.type.rank))


@handles("stablehlo.slice")
def slice_(site: Site, x: Tensor) -> Tensor:
    """A window with strides."""
    if site.has("subscript"):
        ranges = [v if isinstance(v, tuple) else () for v in site.value("subscript")]
        require(len(ranges) == x.rank and all(ranges), "InvalidAttributeValue", "a slice is `[start:limit:stride, …]`")
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
    """`x[low:high:step, …]`, from the window and steps that are rows of their own, of which the first column stays."""
    for (low, high, step), n in zip(bounds, x.shape, strict=True):
        fine = 0 <= low <= high and step >= 1 and (not isinstance(n, int) or high <= n)
        require(fine, "InvalidAttributeValue", f"{low}:{high}:{step} is not a slice of an axis of {n}")
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
    return reversed_along(site, x, site.axes("dimensions", x.rank))


def reversed_along(site: Site, x: Tensor, axes: Sequence[int]) -> Tensor:
    """`x` turned over along `axes`: rows taken from the last to the first."""
    for axis in axes:
        n = x.shape[axis]
        if not isinstance(n, int):
            raise refused("an axis that is reversed has an open extent")
        if n <= 1:
            continue
        order = [axis, *(a for a in range(x.rank) if a != axis)]
        rows = x.transpose(order) if axis else x
        turned = rows.take(site.array(list(range(n - 1, -1, -1)), SI32))
        x = turned.transpose([order.index(a) for a in range(x.rank)]) if axis else turned
    return x


@handles("stablehlo.pad", low="edge_padding_low", high="edge_padding_high", interior="interior_padding")
def pad(site: Site, x: Tensor, value: Tensor) -> Tensor:
    """Elements before, after and between; negative counts cut."""
    lists = [site.ints(f"edge_padding_{side}") for side in ("low", "high")]
    return padded(site, x, value, lists[0], lists[1], site.counts("interior_padding", x.rank, 0, 0))


def padded(site: Site, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Tensor:
    """`x` padded with a scalar; negative counts cut after the interior is filled."""
    require(len(low) == len(high) == x.rank, "InvalidAttributeValue", "padding has an entry for each axis")
    above, below = ([max(n, 0) for n in side] for side in (low, high))
    found = filled(site, x, value, above, below, interior)
    if min((*low, *high, 0)) >= 0:
        return found
    starts = [max(-n, 0) for n in low]
    sizes = [d - s - max(-n, 0) for d, s, n in zip(sizes_of(found), starts, high, strict=True)]
    require(min(sizes, default=0) >= 0, "InvalidAttributeValue", "negative padding cuts more than there is")
    return found.slice(starts, sizes)


def filled(site: Site, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Tensor:
    """`x` padded by counts; a value that is not known yet is selected where nothing was."""
    if not any((*low, *high, *interior)):
        return x
    if (number := known(value)) is not None:
        scalar = scalars.Scalar(scalars.natural_kind(x.dtype), _plain(number, x))
        if not (x.dtype.is_float and number != number):
            return site.op("pad", x, low, high, interior=interior, pad_value=scalar)
    there = site.full(True, x.tensor_type.with_dtype(I1)).pad(low, high, interior=interior)
    return site.op("select", there, x.pad(low, high, interior=interior), value.broadcast_to(there.shape))


def _plain(number: Any, x: Tensor) -> bool | complex | float | int:
    if x.dtype.kind is Kind.BOOL:
        return bool(number)
    return complex(number) if x.dtype.is_complex else float(number) if x.dtype.is_float else int(number)


@handles("stablehlo.dynamic_slice", sizes="slice_sizes")
def dynamic_slice(site: Site, x: Tensor, *starts: Tensor) -> Tensor:
    """A window at places that come as scalars, moved into `x`."""
    return x.dynamic_slice(places(site, starts, x.rank), site.counts("slice_sizes", x.rank, 0)) if x.rank else x


@handles("stablehlo.dynamic_update_slice")
def dynamic_update_slice(site: Site, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    """`x` with a window replaced."""
    return x.dynamic_update_slice(update, places(site, starts, x.rank), sizes_of(update)) if x.rank else update


def places(site: Site, starts: Sequence[Tensor], rank: int) -> Tensor:
    """Scalars as the vector that PTIR wants."""
    require(len(starts) == rank, "OperandCountMismatch", f"{rank} starts are wanted, got {len(starts)}")
    wide = [as_index(x) for x in starts]
    dtype = SI64 if any(x.dtype is SI64 for x in wide) else SI32
    rows = [(x if x.dtype is dtype else x.cast(dtype)).reshape([1]) for x in wide]
    return rows[0] if rank == 1 else site.op("concat", rows, axis=0)


def as_index(x: Tensor) -> Tensor:
    """Integers as si32 or si64; what is too large for those stays beyond every extent."""
    if x.dtype in (SI32, SI64):
        return x
    return x.cast(SI32 if x.dtype.bits < 32 else SI64)


# Shapes that come as operands: the result's declared shape, or the elements of a constant


def given_shape(site: Site, shape: Tensor) -> tuple[object, ...]:
    """The shape of the result: declared, or what the operand is made of: numbers, symbols and arithmetic on them."""
    declared = site.type.shape
    if UNKNOWN not in declared:
        return declared
    found = computed(shape.operand)
    if found is None or len(found) != len(declared):
        raise refused("the shape is computed of more than extents and constants")
    return tuple(dim(x) if d is UNKNOWN else d for d, x in zip(declared, found, strict=True))


_ARITHMETIC = {"ptir.add": operator.add, "ptir.sub": operator.sub, "ptir.mul": operator.mul}


def computed(x: Operand) -> list[object] | None:
    """The elements of integers that are computed of extents and constants, in order: integers and extents; else None."""
    found: dict[Operand, list[object] | None] = {}

    def known(o: Operand) -> list[object] | None:
        if (literal := literal_of(o)) is not None:
            return None if literal.data is None else [int(n) for n in arrays.from_literal(literal).reshape(-1)]
        return found[o] if isinstance(o, Value) else None

    def before(v: Value) -> list[Value]:
        op = v.op
        if op is None or literal_of(v) is not None or not isinstance(op.results[0].type, TensorType) or _measure(op) is not None:
            return []
        return [o for o in op.operands if isinstance(o, Value)]

    for v in post_order([x] if isinstance(x, Value) else [], before):
        found[v] = None if v.op is None or literal_of(v) is not None else _computed(v.op, known)
    return known(x)


def _computed(op: Op, known: Callable[[Operand], list[object] | None]) -> list[object] | None:
    if not isinstance(t := op.results[0].type, TensorType):
        return None
    if (extent := _measure(op)) is not None:
        return [extent]
    parts = [known(o) for o in op.operands]
    given = [part for part in parts if part is not None]
    if len(given) != len(parts) or not t.is_static or not t.dtype.is_integer:
        return None
    if op.name in ("ptir.reshape", "ptir.cast"):
        return given[0]
    if op.name == "ptir.concat" and t.rank == 1:
        return [n for part in given for n in part]
    if op.name == "ptir.broadcast_to" and len(given[0]) == 1:
        return given[0] * t.count
    if (function := _ARITHMETIC.get(op.name)) is not None:
        return [function(a, b) for a, b in zip(*given, strict=True)]
    return None


def _measure(op: Op) -> Extent | None:
    """The symbol that `measured` counts, where `op` is what it makes."""
    made = op.operands[0].op if op.name == "ptir.reduce_sum" and isinstance(op.operands[0], Value) else None
    if made is None or made.name != "ptir.broadcast_to" or not isinstance(one := made.operands[0], Literal):
        return None
    (shape,) = (made.attr("result_shape"),)
    is_one = one.data is not None and one.type.rank == 0 and int(arrays.from_literal(one)) == 1
    return Extent("sym", shape[0]) if is_one and len(shape) == 1 and isinstance(shape[0], Sym) else None


def measured(site: Site, n: Sym, dtype: DType) -> Tensor:
    """A symbol as a scalar: as many ones as it says, added up."""
    one = Tensor(site.scope.block, arrays.to_literal(np.ones((), arrays.numpy_dtype(dtype)), tensor(dtype)))
    return site.op("broadcast_to", one, result_shape=[n]).reduce_sum([0])


@handles("stablehlo.dynamic_reshape", "chlo.dynamic_reshape")
def dynamic_reshape(site: Site, x: Tensor, shape: Tensor) -> Tensor:
    """A reshape to a shape that comes as an operand."""
    return reshaped(x, given_shape(site, shape))


@handles("stablehlo.dynamic_broadcast_in_dim", dims="broadcast_dimensions")
def dynamic_broadcast_in_dim(site: Site, x: Tensor, shape: Tensor) -> Tensor:
    """A broadcast to a shape that comes as an operand."""
    return placed(site, x, given_shape(site, shape))


@handles("stablehlo.dynamic_iota", dim="iota_dimension")
def dynamic_iota(site: Site, shape: Tensor) -> Tensor:
    """An iota of a shape that comes as an operand."""
    found = given_shape(site, shape)
    return site.op("iota", shape=found, dtype=site.dtype, axis=site.axis("iota_dimension", len(found)))


@handles("stablehlo.dynamic_pad")
def dynamic_pad(site: Site, x: Tensor, value: Tensor, low: Tensor, high: Tensor, interior: Tensor) -> Tensor:
    """A pad whose counts come as operands. Where they are data, each element of the result looks for the one that it is."""
    if any(known(c) is None for c in (low, high, interior)):
        return _sought(site, x, value, low, interior)
    lists = [[int(n) for n in site.constant(c, "padding").reshape(-1)] for c in (low, high, interior)]
    return padded(site, x, value, *lists)


@handles("stablehlo.real_dynamic_slice")
def real_dynamic_slice(site: Site, x: Tensor, starts: Tensor, limits: Tensor, strides: Tensor) -> Tensor:
    """A slice whose bounds come as operands. Where they are data, the declared shape says how many elements there are."""
    if any(known(c) is None for c in (starts, limits, strides)):
        for axis, n in enumerate(_declared(site)):
            steps = site.op("iota", [n], starts.dtype, 0) * _entry(strides, axis, n)
            x = x.taken(_entry(starts, axis, n) + steps, axis)
        return x
    lists = [[int(n) for n in site.constant(c, "a bound").reshape(-1)] for c in (starts, limits, strides)]
    return strided(x, list(zip(*lists, strict=True)))


def _declared(site: Site) -> list[int]:
    """The extents of the result, which must be declared. Raises Violation."""
    sizes = [d for d in site.type.shape if isinstance(d, int)]
    if len(sizes) < site.type.rank:
        raise refused("the extents of its result depend on data")
    return sizes


def _entry(vector: Tensor, at: int, count: int) -> Tensor:
    """An entry of a vector, `count` times."""
    return vector.slice([at], [1]).broadcast_to([count])


def _sought(site: Site, x: Tensor, value: Tensor, low: Tensor, interior: Tensor) -> Tensor:
    """A pad by counts that are data: along each axis the element whose place it is, `value` where there is none."""
    sizes, found, there = _declared(site), x, None
    if 0 in sizes_of(x):
        return value.broadcast_to(sizes)
    for axis, (n, d) in enumerate(zip(sizes, sizes_of(x), strict=True)):
        place = site.op("iota", [n], low.dtype, 0) - _entry(low, axis, n)
        step = _entry(interior, axis, n) + 1
        at = site.op("div", place, step)
        inside = [("compare_ge", place, 0), ("compare_eq", site.op("rem", place, step), 0), ("compare_lt", at, d)]
        for op, left, right in inside:
            flag = site.op(op, left, right).reshape([n if a == axis else 1 for a in range(x.rank)]).broadcast_to(sizes)
            there = flag if there is None else flag.select(there, False)
        found = found.taken(site.op("minimum", site.op("maximum", at, 0), d - 1), axis)
    return found if there is None else there.select(found, value.broadcast_to(sizes))


@handles("stablehlo.get_dimension_size", dim="dimension")
def get_dimension_size(site: Site, x: Tensor) -> Tensor:
    """An extent as a scalar."""
    n = x.shape[site.axis("dimension", x.rank)]
    return site.array(n, site.dtype) if isinstance(n, int) else measured(site, n, site.dtype)


@handles("stablehlo.set_dimension_size", dim="dimension")
def set_dimension_size(site: Site, x: Tensor, size: Tensor) -> Tensor:
    """`x` itself, where the size is the one it has; as much of it as a constant says."""
    axis = site.axis("dimension", x.rank)
    found, n = computed(size.operand), x.shape[axis]
    if found is not None and isinstance(found[0], int) and x.tensor_type.is_static and found[0] <= sizes_of(x)[axis]:
        return x.slice([0] * x.rank, [found[0] if a == axis else d for a, d in enumerate(sizes_of(x))])
    if found is None or [dim(d) for d in found] != [n]:
        raise refused("the extents of its result depend on data")
    return x


@handles("stablehlo.tuple", values=True)
def tuple_(site: Site, *operands: object) -> object:
    """Several values as one."""
    return [tuple(operands)]


@handles("stablehlo.get_tuple_element", values=True)
def get_tuple_element(site: Site, x: Any) -> object:
    """One value of a tuple."""
    index = site.integer("subscript" if site.has("subscript") else "index")
    fine = isinstance(x, tuple) and 0 <= index < len(x)
    require(fine, "TupleIndexOutOfRange", f"there is no element {index}")
    return [x[index]]


@handles("stablehlo.after_all", "stablehlo.create_token", values=True)
def after_all(site: Site, *tokens: object) -> object:
    """A token, which is nothing at run time."""
    return [TOKEN_VALUE]


class _TokenValue:
    """The value of a token."""


TOKEN_VALUE = _TokenValue()
