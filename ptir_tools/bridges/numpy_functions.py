"""Functions of NumPy on traced arrays: each as a formula of the ops, or of other functions of NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

from ptir_tools.bridges.numpy_array import (
    FUNCTIONS,
    REDUCED,
    UNKNOWN,
    VIEWS,
    Axes,
    Dtype,
    Traced,
    astype,
    block_of,
    broadcast_to,
    matmul,
    of_dtype,
    of_value,
    records,
    refused,
    reshape,
    traced,
    transpose,
)
from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Literal, TypeAlias

Nested: TypeAlias = "Traced | list[Nested]"  # arrays in lists of lists
Mode: TypeAlias = "Literal['constant', 'edge', 'reflect', 'symmetric', 'wrap']"  # of a padding

VIEWS |= {"reshape", "transpose", "broadcast_to"}
FUNCTIONS |= {
    "reshape": lambda a, /, shape: reshape(a, shape),
    "transpose": lambda a, axes=None: transpose(a, axes),
    "broadcast_to": lambda array, shape: broadcast_to(array, shape),
    "matmul": matmul,
    "ndim": lambda a: a.ndim,
    "shape": lambda a: a.shape,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
    "iscomplexobj": lambda x: x.dtype.kind == "c",
    "isrealobj": lambda x: x.dtype.kind != "c",
    "result_type": lambda *xs: np.result_type(*(x.dtype if isinstance(x, Traced) else x for x in xs)),
}


def _made(value: float) -> Callable[..., Traced]:
    def call(a: Traced, dtype: Dtype = None, shape: int | Sequence[int] | None = None) -> Traced:
        kind = a.dtype if dtype is None else np.dtype(dtype)
        return Traced(a.tensor.block.constant(np.full(a.shape if shape is None else shape, value, kind)))

    return call


FUNCTIONS |= {"zeros_like": _made(0), "ones_like": _made(1), "empty_like": _made(0)}


@records("full_like")
def full_like(a: Traced, fill_value: object, dtype: Dtype = None) -> Traced:
    """np.full_like."""
    kind = a.dtype if dtype is None else np.dtype(dtype)
    return Traced(broadcast_to(of_dtype(fill_value, kind, a.tensor.block), a.shape).tensor)


@records("copy")
def copy(a: Traced) -> Traced:
    """np.copy."""
    return Traced(a.tensor)


@records("astype")
def _astype(x: Traced, dtype: Dtype, /) -> Traced:
    return astype(x, np.dtype(dtype))


# ---- Sums and other reductions


def axes_of(x: Traced, axis: Axes) -> list[int]:
    """The axes, counted from the first; None are all."""
    given = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return [_axis(x.ndim, a) for a in given]


def _axis(rank: int, axis: int) -> int:
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(axis, rank)
    return axis % rank


def reduced(name: str, x: Traced, axis: Axes, keepdims: bool = False) -> Traced:
    """`x` reduced along axes by an op."""
    return Traced(x.tensor.op(name, x.tensor, axes=axes_of(x, axis), keepdims=keepdims))


def _summed(op: str, of_numpy: Callable[[Array], Array], neutral: float) -> Callable[..., Traced]:
    def call(
        a: Traced, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False, initial: object = None, where: object = True
    ) -> Traced:
        kind = of_numpy(np.zeros(1, a.dtype)).dtype if dtype is None else np.dtype(dtype)
        result = reduced(op, astype(_kept(a, where, neutral), kind), axis, keepdims)
        if initial is None:
            return result
        start = of_dtype(initial, kind, a.tensor.block)
        return result + start if op == "reduce_sum" else result * start

    return call


def _kept(a: Traced, where: object, neutral: float) -> Traced:
    """`a`, or a neutral element where it does not count."""
    return a if where is True else traced.where(where, a, np.asarray(neutral).astype(a.dtype))


FUNCTIONS |= {"sum": _summed("reduce_sum", np.sum, 0), "prod": _summed("reduce_prod", np.prod, 1)}


def _extreme(op: str, of_two: str) -> Callable[..., Traced]:
    def call(a: Traced, axis: Axes = None, keepdims: bool = False, initial: object = None) -> Traced:
        result = reduced(op, a, axis, keepdims)
        return result if initial is None else getattr(np, of_two)(result, initial)

    return call


FUNCTIONS |= dict.fromkeys(("max", "amax"), _extreme("reduce_max", "maximum"))
FUNCTIONS |= dict.fromkeys(("min", "amin"), _extreme("reduce_min", "minimum"))


def _truths(name: str) -> Callable[..., Traced]:
    return lambda a, axis=None, keepdims=False: reduced(name, astype(a, np.dtype(np.bool_)), axis, keepdims)


FUNCTIONS |= {"any": _truths("reduce_or"), "all": _truths("reduce_and")}


@records("count_nonzero")
def count_nonzero(a: Traced, axis: Axes = None, *, keepdims: bool = False) -> Traced:
    """np.count_nonzero."""
    return traced.sum(traced.not_equal(a, 0), axis=axis, keepdims=keepdims)


@records("mean")
def mean(a: Traced, axis: Axes = None, dtype: Dtype = None, keepdims: bool = False) -> Traced:
    """np.mean."""
    kind = np.mean(np.zeros(1, a.dtype)).dtype if dtype is None else np.dtype(dtype)
    half = kind == np.float16  # is summed in float32, and rounded once
    wide = astype(a, np.dtype(np.float32) if half else kind)
    count = np.asarray(math.prod(a.shape[i] for i in axes_of(a, axis)), wide.dtype)
    return astype(reduced("reduce_sum", wide, axis, keepdims) / count, kind)


@records("var")
def var(a: Traced, axis: Axes = None, dtype: Dtype = None, ddof: float = 0, keepdims: bool = False) -> Traced:
    """np.var."""
    kind = np.mean(np.zeros(1, a.dtype)).dtype if dtype is None else np.dtype(dtype)
    half = kind == np.float16
    wide = astype(a, np.dtype(np.float32) if half else kind)
    far = wide - mean(wide, axis, keepdims=True)
    square = traced.real(far * traced.conjugate(far)) if wide.dtype.kind == "c" else far * far
    count = math.prod(a.shape[i] for i in axes_of(a, axis)) - ddof
    result = reduced("reduce_sum", square, axis, keepdims) / np.asarray(count, square.dtype)
    return astype(result, kind) if half else result


@records("std")
def std(a: Traced, axis: Axes = None, dtype: Dtype = None, ddof: float = 0, keepdims: bool = False) -> Traced:
    """np.std."""
    return traced.sqrt(var(a, axis, dtype, ddof, keepdims))


@records("ptp")
def ptp(a: Traced, axis: Axes = None, *, keepdims: bool = False) -> Traced:
    """np.ptp."""
    return traced.max(a, axis, keepdims=keepdims) - traced.min(a, axis, keepdims=keepdims)


@records("average")
def average(a: Traced, axis: Axes = None, weights: object = None, *, keepdims: bool = False) -> Traced:
    """np.average."""
    if weights is None:
        return traced.mean(a, axis, keepdims=keepdims)
    shape, block = traced.shape(a), block_of(a, weights)
    if traced.shape(weights) != shape:
        axes = axes_of(of_value(a, block), axis)
        if axis is None or traced.shape(weights) != tuple(shape[i] for i in axes):
            raise ValueError("weights have the shape of the array, or of the axes that are averaged")
        weights = traced.reshape(
            traced.transpose(weights, np.argsort(axes)), [n if i in axes else 1 for i, n in enumerate(shape)]
        )
    wide = broadcast_to(of_value(weights, block), shape)
    return traced.sum(a * wide, axis, keepdims=keepdims) / traced.sum(wide, axis, keepdims=keepdims)


def _without_nan(name: str, neutral: float) -> Callable[..., Traced]:
    def call(a: Traced, axis: Axes = None, keepdims: bool = False) -> Traced:
        lost = traced.isnan(a)
        result = getattr(np, name)(traced.where(lost, np.asarray(neutral, a.dtype), a), axis, keepdims=keepdims)
        empty = FUNCTIONS["all"](lost, axis, keepdims=keepdims)
        return traced.where(empty, np.asarray(np.nan, a.dtype), result) if math.isinf(neutral) else result

    return call


FUNCTIONS |= {"nansum": _without_nan("sum", 0), "nanprod": _without_nan("prod", 1)}
FUNCTIONS |= {"nanmax": _without_nan("max", -math.inf), "nanmin": _without_nan("min", math.inf)}


@records("nanmean")
def nanmean(a: Traced, axis: Axes = None, keepdims: bool = False) -> Traced:
    """np.nanmean."""
    count = traced.sum(~traced.isnan(a), axis, keepdims=keepdims)
    return traced.nansum(a, axis, keepdims=keepdims) / count.astype(a.dtype)


def _place(name: str) -> Callable[..., Traced]:
    def call(a: Traced, axis: int | None = None, *, keepdims: bool = False) -> Traced:
        flat = a if axis is not None else reshape(a, -1)
        at = astype(Traced(flat.tensor.op(name, flat.tensor, axis=_axis(flat.ndim, axis or 0))), np.dtype(np.int64))
        shape = [1] * a.ndim if axis is None else [1 if i == axis % a.ndim else n for i, n in enumerate(a.shape)]
        return reshape(at, shape) if keepdims else at

    return call


FUNCTIONS |= {"argmax": _place("argmax"), "argmin": _place("argmin")}


def _running(op: str, of_numpy: Callable[[Array], Array]) -> Callable[..., Traced]:
    def call(a: Traced, axis: int | None = None, dtype: Dtype = None) -> Traced:
        flat = a if axis is not None else reshape(a, -1)
        wide = astype(flat, of_numpy(np.zeros(1, a.dtype)).dtype if dtype is None else np.dtype(dtype))
        return Traced(wide.tensor.op(op, wide.tensor, axis=_axis(flat.ndim, axis or 0)))

    return call


FUNCTIONS |= dict.fromkeys(("cumsum", "cumulative_sum"), _running("cumsum", np.cumsum))
FUNCTIONS |= dict.fromkeys(("cumprod", "cumulative_prod"), _running("cumprod", np.cumprod))

_OF_UFUNCS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
REDUCED |= {
    (ufunc, "reduce"): lambda a, axis=0, keepdims=False, f=name: FUNCTIONS[f](a, axis, keepdims=keepdims)
    for ufunc, name in _OF_UFUNCS.items()
}
for _ufunc, _op in (("add", "cumsum"), ("multiply", "cumprod")):
    REDUCED[_ufunc, "accumulate"] = lambda a, axis=0, f=_op: FUNCTIONS[f](a, axis)
for _ufunc, _op in (("maximum", "cummax"), ("minimum", "cummin")):
    REDUCED[_ufunc, "accumulate"] = lambda a, axis=0, f=_op: Traced(a.tensor.op(f, a.tensor, axis=_axis(a.ndim, axis)))
for _ufunc in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
    REDUCED[_ufunc, "outer"] = lambda x, y, f=_ufunc: getattr(np, f)(
        traced.reshape(x, (*traced.shape(x), *[1] * traced.ndim(y))), traced.reshape(y, traced.shape(y))
    )


# ---- Elements in another shape or order


@records("swapaxes", view=True)
def swapaxes(a: Traced, axis1: int, axis2: int) -> Traced:
    """np.swapaxes."""
    axes = list(range(a.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return transpose(a, axes)


@records("moveaxis", view=True)
def moveaxis(a: Traced, source: Axes, destination: Axes) -> Traced:
    """np.moveaxis."""
    moved, places = axes_of(a, source), axes_of(a, destination)
    order = [i for i in range(a.ndim) if i not in moved]
    for place, i in sorted(zip(places, moved, strict=True)):
        order.insert(place, i)
    return transpose(a, order)


@records("rollaxis", view=True)
def rollaxis(a: Traced, axis: int, start: int = 0) -> Traced:
    """np.rollaxis."""
    at, to = _axis(a.ndim, axis), start + a.ndim if start < 0 else start
    return moveaxis(a, at, to - 1 if at < to else to)


@records("matrix_transpose", "linalg.matrix_transpose", view=True)
def matrix_transpose(x: Traced, /) -> Traced:
    """np.matrix_transpose."""
    return swapaxes(x, -1, -2)


@records("ravel", view=True)
def ravel(a: Traced) -> Traced:
    """np.ravel."""
    return reshape(a, -1)


@records("expand_dims", view=True)
def expand_dims(a: Traced, axis: int | Sequence[int]) -> Traced:
    """np.expand_dims."""
    given = [axis] if isinstance(axis, int) else list(axis)
    rank = a.ndim + len(given)
    new, extents = {_axis(rank, i) for i in given}, iter(a.shape)
    return reshape(a, [1 if i in new else next(extents) for i in range(rank)])


@records("squeeze", view=True)
def squeeze(a: Traced, axis: Axes = None) -> Traced:
    """np.squeeze."""
    dropped = [i for i, n in enumerate(a.shape) if n == 1] if axis is None else axes_of(a, axis)
    if any(a.shape[i] != 1 for i in dropped):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape(a, [n for i, n in enumerate(a.shape) if i not in dropped])


def _at_least(rank: int) -> Callable[..., object]:
    def one(x: Traced) -> Traced:
        missing = rank - traced.ndim(x)
        if missing <= 0:
            return x
        before = missing if rank < 3 else {0: 1, 1: 1, 2: 0}[traced.ndim(x)]
        return traced.reshape(x, (*[1] * before, *traced.shape(x), *[1] * (missing - before)))

    return lambda *arys: one(arys[0]) if len(arys) == 1 else tuple(map(one, arys))


for _rank in (1, 2, 3):
    FUNCTIONS[f"atleast_{_rank}d"] = _at_least(_rank)
    VIEWS.add(f"atleast_{_rank}d")


@records("concatenate")
def concatenate(arrays: Sequence[object], /, axis: int | None = 0, *, dtype: Dtype = None) -> Traced:
    """np.concatenate, of arrays of one dtype after promotion."""
    block = block_of(*arrays)
    traced = [of_value(x, block) for x in arrays]
    if axis is None:
        traced, axis = [reshape(x, -1) for x in traced], 0
    kind = np.result_type(*(x.dtype for x in traced)) if dtype is None else np.dtype(dtype)
    return Traced(block.op("concat", [astype(x, kind).tensor for x in traced], axis=_axis(traced[0].ndim, axis)))


@records("stack")
def stack(arrays: Sequence[object], axis: int = 0) -> Traced:
    """np.stack."""
    block = block_of(*arrays)
    return concatenate([expand_dims(of_value(x, block), axis) for x in arrays], axis)


@records("vstack")
def vstack(tup: Sequence[object]) -> Traced:
    """np.vstack."""
    return concatenate([traced.atleast_2d(x) for x in tup])


@records("hstack")
def hstack(tup: Sequence[object]) -> Traced:
    """np.hstack."""
    parts = [traced.atleast_1d(x) for x in tup]
    return concatenate(parts, 0 if traced.ndim(parts[0]) == 1 else 1)


@records("dstack")
def dstack(tup: Sequence[object]) -> Traced:
    """np.dstack."""
    return concatenate([traced.atleast_3d(x) for x in tup], 2)


@records("column_stack")
def column_stack(tup: Sequence[object]) -> Traced:
    """np.column_stack."""
    return concatenate([traced.reshape(x, (-1, 1)) if traced.ndim(x) < 2 else x for x in tup], 1)


@records("append")
def append(arr: object, values: object, axis: int | None = None) -> Traced:
    """np.append."""
    return concatenate([arr, values], axis)


@records("block")
def block(arrays: Nested) -> Traced:
    """np.block."""

    def depth(x: Nested) -> int:
        return 1 + depth(x[0]) if isinstance(x, list) else 0

    def joined(x: Nested, axis: int) -> Traced:
        if isinstance(x, list):
            return concatenate([joined(y, axis + 1) for y in x], axis)
        return traced.reshape(x, (*[1] * (rank - traced.ndim(x)), *traced.shape(x)))

    def leaves(x: Nested) -> list[Traced]:
        return [z for y in x for z in leaves(y)] if isinstance(x, list) else [x]

    rank = max(depth(arrays), *(traced.ndim(x) for x in leaves(arrays)))
    return joined(arrays, rank - depth(arrays))


@records("array_split", view=True)
def array_split(ary: Traced, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Traced]:
    """np.array_split."""
    at, n = _axis(ary.ndim, axis), ary.shape[axis]
    if isinstance(indices_or_sections, int):
        each, more = divmod(n, indices_or_sections)
        cuts = [0]
        for i in range(indices_or_sections):
            cuts.append(cuts[-1] + each + (i < more))
    else:
        cuts = [0, *map(int, indices_or_sections), n]
    return [ary[(*[slice(None)] * at, slice(i, j))] for i, j in pairwise(cuts)]


@records("split", view=True)
def split(ary: Traced, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Traced]:
    """np.split."""
    if isinstance(indices_or_sections, int) and ary.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


FUNCTIONS |= {
    "vsplit": lambda ary, indices_or_sections: split(ary, indices_or_sections, 0),
    "hsplit": lambda ary, indices_or_sections: split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1),
    "dsplit": lambda ary, indices_or_sections: split(ary, indices_or_sections, 2),
}


@records("unstack", view=True)
def unstack(x: Traced, /, *, axis: int = 0) -> tuple[Traced, ...]:
    """np.unstack."""
    moved = moveaxis(x, axis, 0)
    return tuple(moved[i] for i in range(len(moved)))


@records("tile")
def tile(A: Traced, reps: int | Sequence[int]) -> Traced:
    """np.tile."""
    counts = [reps] if isinstance(reps, int) else list(reps)
    rank = max(A.ndim, len(counts))
    wide = reshape(A, [1] * (rank - A.ndim) + list(A.shape))
    return Traced(wide.tensor.tile([1] * (rank - len(counts)) + counts))


@records("repeat")
def repeat(a: Traced, repeats: Traced | Array | int, axis: int | None = None) -> Traced:
    """np.repeat, by numbers that are known."""
    if isinstance(repeats, Traced):
        raise refused("np.repeat by a traced array", "how many elements it gives depends on values")
    flat, at = (a, _axis(a.ndim, axis)) if axis is not None else (reshape(a, -1), 0)
    return take(flat, np.repeat(np.arange(flat.shape[at]), repeats), at)


@records("roll")
def roll(a: Traced, shift: int | Sequence[int] | Traced, axis: Axes = None) -> Traced:
    """np.roll."""
    if isinstance(shift, Traced):
        raise refused("np.roll by a traced number", None, "np.take at (np.arange(n) - shift) % n")
    if axis is None:
        return reshape(roll(reshape(a, -1), shift, 0), a.shape)
    shifts, along = np.broadcast_arrays(shift, axis)
    for n, i in zip(shifts.reshape(-1).tolist(), along.reshape(-1).tolist(), strict=True):
        at, extent = _axis(a.ndim, i), a.shape[i]
        if extent and n % extent:
            before = (slice(None),) * at
            a = concatenate([a[(*before, slice(-n % extent, None))], a[(*before, slice(None, -n % extent))]], at)
    return a


@records("flip", view=True)
def flip(m: Traced, axis: Axes = None) -> Traced:
    """np.flip."""
    turned = axes_of(m, axis)
    return m[tuple(slice(None, None, -1 if i in turned else 1) for i in range(m.ndim))]


FUNCTIONS |= {"flipud": lambda m: flip(m, 0), "fliplr": lambda m: flip(m, 1)}


@records("rot90", view=True)
def rot90(m: Traced, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Traced:
    """np.rot90."""
    first, second = axes
    if k % 4 == 2:
        return flip(flip(m, first), second)
    if k % 4 == 1:
        return swapaxes(flip(m, second), first, second)
    return flip(swapaxes(m, first, second), second) if k % 4 else m


@records("pad")
def pad(array: Traced, pad_width: int | Sequence[object], mode: Mode = "constant", constant_values: Traced | float = 0) -> Traced:
    """np.pad by one constant, by the edges, by reflection or by repetition."""
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    if mode != "constant":
        if mode not in ("edge", "reflect", "symmetric", "wrap"):
            raise refused(f"np.pad in the mode {mode!r}")
        for i, (low, high) in enumerate(widths):
            array = take(array, np.pad(np.arange(array.shape[i]), (low, high), mode), i)
        return array
    if isinstance(constant_values, Traced) or traced.ndim(constant_values):
        raise refused("np.pad with more than one constant", None, "np.concatenate joins others")
    low, high = ([w[k] for w in widths] for k in (0, 1))
    number = np.asarray(constant_values).astype(array.dtype).item()
    return Traced(array.tensor.op("pad", array.tensor, low=low, high=high, pad_value=number))


@records("broadcast_arrays", view=True)
def broadcast_arrays(*args: Traced) -> tuple[Traced, ...]:
    """np.broadcast_arrays."""
    block, shape = block_of(*args), np.broadcast_shapes(*map(traced.shape, args))
    return tuple(broadcast_to(of_value(x, block), shape) for x in args)


@records("meshgrid")
def meshgrid(*xi: Traced, indexing: str = "xy") -> tuple[Traced, ...]:
    """np.meshgrid."""
    swap = indexing == "xy" and len(xi) > 1
    order = [1, 0, *range(2, len(xi))] if swap else list(range(len(xi)))
    shape = [int(traced.size(xi[i])) for i in order]
    block = block_of(*xi)
    wide = [[-1 if order[k] == i else 1 for k in range(len(xi))] for i in range(len(xi))]
    return tuple(broadcast_to(reshape(of_value(x, block), w), shape) for x, w in zip(xi, wide, strict=True))


# ---- Parts and choices


@records("take")
def take(a: Traced, indices: object, axis: int | None = None) -> Traced:
    """np.take; an index may be negative, and one that is out of range is an error of the run."""
    flat, at = (reshape(a, -1), 0) if axis is None else (a, _axis(a.ndim, axis))
    array = indices if isinstance(indices, Traced) else np.asarray(indices)
    return flat[(*[slice(None)] * at, array)]


@records("take_along_axis")
def take_along_axis(arr: Traced, indices: Traced, axis: int | None = -1) -> Traced:
    """np.take_along_axis."""
    block = block_of(arr, indices)
    x, at = of_value(arr, block), of_value(indices, block)
    x, axis = (reshape(x, -1), 0) if axis is None else (x, _axis(x.ndim, axis))
    places = [np.arange(n).reshape([-1 if k == i else 1 for k in range(x.ndim)]) for i, n in enumerate(at.shape)]
    shape = np.broadcast_shapes(*(s.shape for k, s in enumerate(places) if k != axis), at.shape)
    return x[tuple(broadcast_to(at, shape) if k == axis else s for k, s in enumerate(places))]


@records("diagonal", view=True)
def diagonal(a: Traced, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Traced:
    """np.diagonal."""
    moved = moveaxis(a, (axis1, axis2), (-2, -1))
    m, n = moved.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)
    count = max(min(m - row, n - column), 0)
    flat = reshape(moved, [*moved.shape[:-2], m * n])
    return flat[(..., (row + np.arange(count)) * n + column + np.arange(count))]


@records("trace")
def trace(a: Traced, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Dtype = None) -> Traced:
    """np.trace."""
    return traced.sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@records("diag")
def diag(v: Traced, k: int = 0) -> Traced:
    """np.diag."""
    if v.ndim == 2:
        return diagonal(v, k)
    n = v.shape[0] + abs(k)
    places = np.eye(n, k=k, dtype=bool)
    row = np.clip(np.arange(n)[:, None] - max(-k, 0), 0, max(v.shape[0] - 1, 0)) + np.zeros((n, n), np.int64)
    return traced.where(places, take(v, row), np.zeros((), v.dtype))


def _triangle(kept: Callable[..., Array]) -> Callable[..., Traced]:
    return lambda m, k=0: traced.where(kept(np.ones(m.shape[-2:], np.bool_), k), m, np.zeros((), m.dtype))


FUNCTIONS |= {"tril": _triangle(lambda x, k: np.tril(x, k)), "triu": _triangle(lambda x, k: np.triu(x, k))}


@records("where")
def where(condition: object, x: object = None, y: object = None, /) -> Traced:
    """np.where of three arrays."""
    if x is None or y is None:
        raise refused("np.where of one array", *_MANY)
    block = block_of(condition, x, y)
    dtype = np.result_type(*(v.dtype if isinstance(v, Traced) else v for v in (x, y)))  # type: ignore[arg-type]
    sides = [of_dtype(v, dtype, block) for v in (x, y)]
    flag = of_dtype(condition, np.dtype(np.bool_), block)
    shape = np.broadcast_shapes(flag.shape, *(v.shape for v in sides))
    p, a, b = (broadcast_to(v, shape).tensor for v in (flag, *sides))
    return Traced(p.select(a, b))


@records("select")
def select(condlist: Sequence[Traced], choicelist: Sequence[Traced], default: Traced | float = 0) -> Traced | float:
    """np.select."""
    chosen = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        chosen = traced.where(condition, choice, chosen)
    return chosen


@records("choose")
def choose(a: Traced, choices: Sequence[Traced]) -> Traced:
    """np.choose; a number that is out of range takes the last choice."""
    return reduce(lambda rest, i: traced.where(traced.equal(a, i), choices[i], rest), range(len(choices) - 1), choices[-1])


@records("clip")
def clip(a: Traced, a_min: object = None, a_max: object = None, *, min: object = None, max: object = None) -> Traced:
    """np.clip."""
    low, high = a_min if min is None else min, a_max if max is None else max
    a = a if low is None else traced.maximum(a, low)
    return a if high is None else traced.minimum(a, high)


@records("sort")
def sort(a: Traced, axis: int | None = -1, *, stable: bool | None = None, kind: str | None = None) -> Traced:
    """np.sort."""
    flat, at = (reshape(a, -1), 0) if axis is None else (a, _axis(a.ndim, axis))
    return Traced(flat.tensor.block.op("sort", [flat.tensor], axis=at))


@records("argsort")
def argsort(a: Traced, axis: int | None = -1, *, stable: bool | None = None, kind: str | None = None) -> Traced:
    """np.argsort; equal elements keep their order."""
    flat, at = (reshape(a, -1), 0) if axis is None else (a, _axis(a.ndim, axis))
    numbers = flat.tensor.block.iota(flat.shape, "si64", at)
    return Traced(flat.tensor.block.op("sort", [flat.tensor, numbers], axis=at)[1])


FUNCTIONS |= {
    "partition": lambda a, kth, axis=-1: sort(a, axis),
    "argpartition": lambda a, kth, axis=-1: argsort(a, axis),
}


@records("quantile")
def quantile(a: Traced, q: float | Array, axis: Axes = None, *, keepdims: bool = False) -> Traced:
    """np.quantile, linear between elements."""
    axes = axes_of(a, axis)
    rest = [i for i in range(a.ndim) if i not in axes]
    wide = astype(a, np.result_type(a.dtype if a.dtype.kind == "f" else np.float64, 1.0 if isinstance(q, float) else np.float64))
    flat = reshape(transpose(wide, [*axes, *rest]), [-1, *(a.shape[i] for i in rest)])
    n = flat.shape[0]
    place = np.asarray(q, np.float64) * (n - 1)
    low = np.floor(place).astype(np.int64)
    part = (place - low).reshape([*place.shape, *[1] * len(rest)]).astype(wide.dtype)
    ordered = sort(flat, 0)
    first, second = take(ordered, low, 0), take(ordered, np.minimum(low + 1, n - 1), 0)
    found = traced.where(part == 0, first, first + (second - first) * part)
    found = traced.where(traced.any(traced.isnan(flat), 0), np.asarray(np.nan, wide.dtype), found)
    shape = [*place.shape, *(1 if i in axes else m for i, m in enumerate(a.shape))]
    return reshape(found, shape) if keepdims else found


FUNCTIONS |= {
    "percentile": lambda a, q, axis=None, *, keepdims=False: quantile(a, np.true_divide(q, 100), axis, keepdims=keepdims),
    "median": lambda a, axis=None, keepdims=False: quantile(a, 0.5, axis, keepdims=keepdims),
}


@records("searchsorted")
def searchsorted(a: Traced, v: Traced, side: str = "left") -> Traced:
    """np.searchsorted."""
    values = of_value(v, block_of(a, v))
    below = traced.less if side == "left" else traced.less_equal
    return traced.sum(below(traced.reshape(a, [-1, *[1] * values.ndim]), values[None]), axis=0)


@records("digitize")
def digitize(x: Traced, bins: Traced, right: bool = False) -> Traced:
    """np.digitize, of bins that increase."""
    return searchsorted(bins, x, "left" if right else "right")


@records("interp")
def interp(x: Traced, xp: Traced, fp: Traced, left: object = None, right: object = None) -> Traced:
    """np.interp."""
    block = block_of(x, xp, fp)
    at, xs, ys = (of_dtype(v, np.dtype(np.float64), block) for v in (x, xp, fp))
    n = xs.shape[0]
    i = np.clip(searchsorted(xs, at, "right") - 1, 0, max(n - 2, 0))
    j = np.minimum(i + 1, n - 1)
    x0, x1, y0, y1 = xs[i], xs[j], ys[i], ys[j]
    found = y0 + (at - x0) * traced.where(x1 == x0, 0.0, (y1 - y0) / traced.where(x1 == x0, 1.0, x1 - x0))
    found = traced.where(at < xs[0], ys[0] if left is None else left, found)
    found = traced.where(at >= xs[n - 1], ys[n - 1], found)
    return found if right is None else traced.where(at > xs[n - 1], right, found)


@records("isin")
def isin(element: Traced, test_elements: Traced, *, invert: bool = False) -> Traced:
    """np.isin."""
    found = traced.any(traced.equal(traced.expand_dims(element, -1), traced.reshape(test_elements, -1)), axis=-1)
    return ~found if invert else found


@records("bincount")
def bincount(x: Traced, weights: object = None, minlength: int = 0) -> Traced:
    """np.bincount: the length of the result is `minlength`, and a larger number is an error."""
    if not minlength:
        raise refused("np.bincount without `minlength`", *_MANY)
    ones = np.ones(x.shape, np.int64) if weights is None else weights
    kind, count = np.dtype(np.int64 if weights is None else np.float64), np.dtype(np.int64)
    given = ((np.zeros(minlength), kind), (x, count), (ones, kind))
    parts = [of_dtype(v, t, x.tensor.block).tensor for v, t in given]
    return Traced(parts[0].op("scatter_reduce", *parts, axis=0, reduce="add"))


# ---- Elements, by formulas


@records("real", view=True)
def real(val: Traced) -> Traced:
    """np.real."""
    return (
        val.view(val.tensor.real(), lambda v: Traced(v.tensor.op("complex", v.tensor, val.tensor.imag())))
        if val.dtype.kind == "c"
        else val
    )


@records("imag", view=True)
def imag(val: Traced) -> Traced:
    """np.imag."""
    if val.dtype.kind == "c":
        return val.view(val.tensor.imag(), lambda v: Traced(v.tensor.op("complex", val.tensor.real(), v.tensor)))
    return Traced(val.tensor.block.full(0, val.tensor))


@records("angle")
def angle(z: Traced, deg: bool = False) -> Traced:
    """np.angle."""
    found = traced.arctan2(imag(z), real(z))
    return traced.degrees(found) if deg else found


@records("round", "around")
def rounded(a: Traced, decimals: int = 0) -> Traced:
    """np.round."""
    if a.dtype.kind in "iub" and decimals >= 0:
        return Traced(a.tensor) if a.dtype.kind != "b" else a.astype(np.float16)
    if a.dtype.kind != "f":
        raise refused(f"np.round of {a.dtype} to {decimals} decimals")
    if decimals == 0:
        return traced.rint(a)
    scale = np.asarray(10.0 ** abs(decimals), a.dtype)
    return traced.rint(a * scale) / scale if decimals > 0 else traced.rint(a / scale) * scale


@records("fix")
def fix(x: Traced) -> Traced:
    """np.fix."""
    return traced.trunc(x)


@records("nan_to_num")
def nan_to_num(
    x: Traced, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Traced:
    """np.nan_to_num, of real numbers."""
    if x.dtype.kind != "f":
        return x
    ends = np.finfo(x.dtype)
    high, low = (np.asarray(v if g is None else g, x.dtype) for v, g in ((ends.max, posinf), (ends.min, neginf)))
    found = traced.where(traced.isnan(x), np.asarray(nan, x.dtype), x)
    return traced.where(found == np.inf, high, traced.where(found == -np.inf, low, found))


@records("isclose")
def isclose(a: Traced, b: Traced, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Traced:
    """np.isclose."""
    near = traced.isfinite(b) & (traced.abs(a - b) <= atol + rtol * traced.abs(b)) | traced.equal(a, b)
    return near | (traced.isnan(a) & traced.isnan(b)) if equal_nan else near


@records("allclose")
def allclose(a: Traced, b: Traced, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Traced:
    """np.allclose, as an array of one truth value."""
    return traced.all(isclose(a, b, rtol, atol, equal_nan))


@records("array_equal")
def array_equal(a1: Traced, a2: Traced) -> Traced | bool:
    """np.array_equal, as an array of one truth value if the shapes are equal."""
    return traced.all(traced.equal(a1, a2)) if traced.shape(a1) == traced.shape(a2) else False


FUNCTIONS |= {"isposinf": lambda x: x == np.inf, "isneginf": lambda x: x == -np.inf}


@records("sinc")
def sinc(x: Traced) -> Traced:
    """np.sinc."""
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    angle = traced.where(wide == 0, np.asarray(1e-20 if wide.dtype != np.float16 else 1e-7, wide.dtype), wide) * np.asarray(
        np.pi, wide.dtype
    )
    return traced.sin(angle) / angle


@records("diff")
def diff(a: Traced, n: int = 1, axis: int = -1) -> Traced:
    """np.diff."""
    before = (slice(None),) * _axis(a.ndim, axis)
    minus = traced.not_equal if a.dtype == np.bool_ else traced.subtract
    return reduce(lambda x, _: minus(x[(*before, slice(1, None))], x[(*before, slice(None, -1))]), range(n), a)


@records("ediff1d")
def ediff1d(ary: Traced) -> Traced:
    """np.ediff1d."""
    return diff(ravel(ary))


@records("gradient")
def gradient(f: Traced, *varargs: Traced | float, axis: Axes = None) -> Traced | tuple[Traced, ...]:
    """np.gradient, of samples at equal distances."""
    axes = axes_of(f, axis)
    steps = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    if any(traced.ndim(h) for h in steps):
        raise refused("np.gradient of samples at other than equal distances")

    def along(i: int, h: Traced | float) -> Traced:
        def part(*cut: int | None) -> Traced:
            return f[(*[slice(None)] * i, slice(*cut))]

        ends = (part(1, 2) - part(0, 1)) / h, (part(-1, None) - part(-2, -1)) / h
        return concatenate([ends[0], (part(2, None) - part(0, -2)) / (2.0 * h), ends[1]], i)

    found = [along(i, h) for i, h in zip(axes, steps, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


@records("trapezoid")
def trapezoid(y: Traced, x: object = None, dx: float = 1.0, axis: int = -1) -> Traced:
    """np.trapezoid."""
    before = (slice(None),) * (axis % traced.ndim(y))
    step = dx if x is None else traced.diff(x, axis=axis if traced.ndim(x) > 1 else -1)
    if x is not None and traced.ndim(x) == 1:
        step = traced.reshape(step, [-1 if i == axis % traced.ndim(y) else 1 for i in range(traced.ndim(y))])
    return traced.sum(step * (y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) / 2.0, axis=axis)


@records("polyval")
def polyval(p: Traced, x: Traced) -> Traced:
    """np.polyval."""
    coefficients = p if isinstance(p, Traced) else np.asarray(p)
    return reduce(lambda y, c: y * x + c, [coefficients[i] for i in range(len(coefficients))], traced.zeros_like(x))


@records("vander")
def vander(x: Traced, N: int | None = None, increasing: bool = False) -> Traced:
    """np.vander."""
    n, wide = x.shape[0] if N is None else N, x.astype(np.promote_types(x.dtype, int))
    powers = [wide**k if k else traced.ones_like(wide) for k in range(n)]
    return stack(powers if increasing else powers[::-1], 1)


@records("convolve")
def convolve(a: Traced, v: Traced, mode: str = "full") -> Traced:
    """np.convolve: one product with the windows of the longer operand."""
    if traced.size(v) > traced.size(a):
        a, v = v, a
    n, m = int(traced.size(a)), int(traced.size(v))
    block = block_of(a, v)
    x, y = of_value(a, block), of_value(v, block)
    places = np.arange(n + m - 1)[:, None] - np.arange(m)
    windows = traced.where((places >= 0) & (places < n), x[np.clip(places, 0, n - 1)], np.zeros((), x.dtype))
    full = matmul(windows, y)
    start, size = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    return full[start : start + size]


@records("correlate")
def correlate(a: Traced, v: Traced, mode: str = "valid") -> Traced:
    """np.correlate, of a second operand that is not longer."""
    if traced.size(v) > traced.size(a):
        raise refused("np.correlate with a longer second operand")
    return convolve(a, traced.conjugate(traced.flip(v)), mode)


@records("cov")
def cov(m: Traced, y: object = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Traced:
    """np.cov."""
    x = traced.atleast_2d(m) if rowvar or traced.ndim(m) == 1 else traced.transpose(m)
    if y is not None:
        x = concatenate([x, traced.atleast_2d(y) if rowvar or traced.ndim(y) == 1 else traced.transpose(y)])
    x = x.astype(np.result_type(x.dtype, np.float64))
    x = x - traced.mean(x, axis=1, keepdims=True)
    count = x.shape[1] - (ddof if ddof is not None else 0 if bias else 1)
    return squeeze(matmul(x, traced.conjugate(x.T)) / float(count))


@records("corrcoef")
def corrcoef(x: Traced, y: object = None, rowvar: bool = True) -> Traced:
    """np.corrcoef."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    size = traced.sqrt(real(diagonal(c)))
    return traced.clip(c / size[:, None] / size[None, :], -1, 1)


@records("apply_along_axis")
def apply_along_axis(func1d: Callable[..., Traced], axis: int, arr: Traced, *args: Traced, **kwargs: Traced) -> Traced:
    """np.apply_along_axis: the function is traced once for each slice."""
    moved = moveaxis(arr, axis, -1)
    rows = reshape(moved, (-1, moved.shape[-1]))
    made = stack([of_value(func1d(rows[i], *args, **kwargs), arr.tensor.block) for i in range(rows.shape[0])])
    result = reshape(made, (*moved.shape[:-1], *made.shape[1:]))
    count = result.ndim - arr.ndim + 1
    at = _axis(arr.ndim, axis)
    return moveaxis(result, list(range(result.ndim - count, result.ndim)), list(range(at, at + count)))


_MANY = ("how many elements it gives depends on values", "np.where(test, x, y) keeps the shape")
UNKNOWN |= dict.fromkeys(
    (
        "nonzero",
        "flatnonzero",
        "argwhere",
        "unique",
        "unique_values",
        "extract",
        "compress",
        "trim_zeros",
        "union1d",
        "setdiff1d",
    ),
    _MANY,
)
UNKNOWN |= dict.fromkeys(
    ("fill", "put", "putmask", "place", "copyto"), ("it changes an array in place", "x[index] = value is recorded")
)
UNKNOWN |= {
    "item": ("its elements are unknown while it is traced", "index the array"),
    "tolist": ("its elements are unknown while it is traced", "index the array"),
    "tofile": ("its elements are unknown while it is traced", "return the array"),
    "save": ("its elements are unknown while it is traced", "return the array"),
    "linalg.lstsq": ("the shape of its residuals depends on values", "np.linalg.pinv(a) @ b"),
    "linalg.eig": ("whether the eigenvalues are complex depends on values", "np.linalg.eigh of symmetric matrices"),
    "flat": ("an array has no iterator here", "np.ravel"),
    "insert": ("it is not needed where shapes are known", "np.concatenate joins parts"),
    "delete": ("it is not needed where shapes are known", "np.take of the indices that stay"),
    "histogram": ("it chooses its bins by values", "np.bincount(np.digitize(x, edges), minlength=n) counts in known bins"),
    "vectorize": ("it calls the function for each element", "call the function on arrays"),
    "sort": ("it sorts an array in place", "np.sort"),
    "frompyfunc": ("it calls the function for each element", "call the function on arrays"),
}

for _name in (
    "all", "any", "argmax", "argmin", "argsort", "choose", "clip", "copy", "cumprod", "cumsum", "diagonal", "dot", "max", "mean",
    "min", "prod", "ravel", "repeat", "round", "squeeze", "std", "sum", "swapaxes", "take", "trace", "var", "searchsorted",
):  # fmt: skip
    setattr(Traced, _name, lambda self, *args, f=_name, **named: getattr(np, f)(self, *args, **named))
for _name, _method in (("flatten", lambda x: copy(ravel(x))), ("conj", traced.conjugate), ("conjugate", traced.conjugate)):
    setattr(Traced, _name, lambda self, f=_method: f(self))
for _name, _property in (("mT", matrix_transpose), ("real", real), ("imag", imag)):
    setattr(Traced, _name, property(_property))
