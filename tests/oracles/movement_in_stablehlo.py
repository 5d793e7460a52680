"""Ops that move elements, said in StableHLO. See `in_stablehlo`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.in_stablehlo import Body, Value, initial, means, region
from tests.oracles.movement_by_hand import scalar
from tests.ptir.oracle import NUMPY


def reshaped(b: Body, x: Value, shape: Any) -> Value:
    """Another shape."""
    return b.op(f"reshape {x.name} : ({x.type}) ->", x.dtype, shape)


@means("reshape")
def reshape(b: Body, x: Value, *, new_shape: Any) -> Value:
    """-1 is inferred."""
    return reshaped(b, x, np.empty(x.shape).reshape(new_shape).shape)


@means("transpose")
def transpose(b: Body, x: Value, *, perm: Any) -> Value:
    """By permutation."""
    axes = [a % len(x.shape) for a in perm]
    return b.op(f"transpose {x.name}, dims = {axes} : ({x.type}) ->", x.dtype, [x.shape[a] for a in axes])


@means("broadcast_to")
def broadcast_to(b: Body, x: Value, *, result_shape: Any) -> Value:
    """Right-aligned."""
    dims = list(range(len(result_shape) - len(x.shape), len(result_shape)))
    return b.op(f"broadcast_in_dim {x.name}, dims = {dims} : ({x.type}) ->", x.dtype, result_shape)


@means("slice")
def slice_(b: Body, x: Value, *, starts: Any, sizes: Any) -> Value:
    """Limits instead of sizes."""
    ranges = ", ".join(f"{start}:{start + size}" for start, size in zip(starts, sizes, strict=True))
    return b.op(f"slice {x.name} [{ranges}] : ({x.type}) ->", x.dtype, sizes)


@means("concat")
def concat(b: Body, xs: list[Value], *, axis: int) -> Value:
    """Along a dimension."""
    axis %= len(xs[0].shape)
    shape = [sum(x.shape[i] for x in xs) if i == axis else n for i, n in enumerate(xs[0].shape)]
    names, types = (", ".join(part) for part in zip(*((x.name, x.type) for x in xs), strict=True))
    return b.op(f"concatenate {names}, dim = {axis} : ({types}) ->", xs[0].dtype, shape)


@means("pad")
def pad(b: Body, x: Value, *, low: Any, high: Any, interior: Any = None, pad_value: Any = None) -> Value:
    """With a scalar operand."""
    interior = interior or (0,) * len(x.shape)
    value = b.constant(np.asarray(scalar(pad_value.value if pad_value else 0, NUMPY[x.dtype])))
    shape = [a + n + c + max(n - 1, 0) * i for a, n, c, i in zip(low, x.shape, high, interior, strict=True)]
    lists = ", ".join(f"{k} = {list(v)}" for k, v in (("low", low), ("high", high), ("interior", interior)))
    return b.op(f"pad {x.name}, {value.name}, {lists} : ({x.type}, {value.type}) ->", x.dtype, shape)


@means("iota")
def iota(b: Body, *, shape: Any, dtype: Any, axis: int) -> Value:
    """Along a dimension; narrow integers wrap."""
    counted = b.op(f"iota dim = {axis % len(shape)} : {Value('', 'si64', shape).type}", "si64", shape)
    return b.convert(counted, str(dtype))


def starts(b: Body, start: Value) -> list[Value]:
    """The elements of a vector as scalars."""
    found = []
    for k in range(start.shape[0]):
        one = b.op(f"slice {start.name} [{k}:{k + 1}] : ({start.type}) ->", start.dtype, (1,))
        found.append(reshaped(b, one, ()))
    return found


@means("dynamic_slice")
def dynamic_slice(b: Body, x: Value, start: Value, *, sizes: Any) -> Value:
    """Starts are scalars, and clamped."""
    at = starts(b, start)
    names, types = ", ".join([x.name, *(s.name for s in at)]), ", ".join([x.type, *(s.type for s in at)])
    return b.op(f"dynamic_slice {names}, sizes = {list(sizes)} : ({types}) ->", x.dtype, sizes)


@means("dynamic_update_slice")
def dynamic_update_slice(b: Body, x: Value, update: Value, start: Value, *, sizes: Any) -> Value:
    """Starts are scalars, and clamped."""
    at = [x, update, *starts(b, start)]
    names, types = (", ".join(part) for part in zip(*((s.name, s.type) for s in at), strict=True))
    return b.op(f"dynamic_update_slice {names} : ({types}) ->", x.dtype, x.shape)


@means("take")
def take(b: Body, x: Value, indices: Value) -> Value:
    """A gather of rows."""
    rank, rest = len(indices.shape), list(x.shape[1:])
    offsets = list(range(rank, rank + len(rest)))
    numbers = f"offset_dims = {offsets}, collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {rank}"
    sizes = ", ".join(map(str, [1, *rest]))
    attrs = f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: {sizes}>"
    return b.generic("gather", [x, indices], attrs, x.dtype, [*indices.shape, *rest])


def coordinates(b: Body, indices: Value, axis: int) -> Value:
    """For every place of the indices, the whole index of the element that is meant: [places…, rank]."""
    parts = []
    for a in range(len(indices.shape)):
        part = indices
        if a != axis % len(indices.shape):
            part = b.op(f"iota dim = {a} : {indices.type}", indices.dtype, indices.shape)
        parts.append(reshaped(b, part, (*indices.shape, 1)))
    return concat(b, parts, axis=-1)


@means("gather")
def gather(b: Body, x: Value, indices: Value, *, axis: int) -> Value:
    """A gather of elements by their whole index."""
    rank = len(x.shape)
    every = list(range(rank))
    numbers = f"offset_dims = [], collapsed_slice_dims = {every}, start_index_map = {every}, index_vector_dim = {rank}"
    attrs = f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: {', '.join('1' * rank)}>"
    return b.generic("gather", [x, coordinates(b, indices, axis)], attrs, x.dtype, indices.shape)


@means("scatter_reduce")
def scatter_reduce(b: Body, x: Value, indices: Value, updates: Value, *, axis: int, reduce: str) -> Value:
    """A scatter of elements by their whole index, in f64 where sums would be rounded."""
    every = list(range(len(x.shape)))
    numbers = {"inserted_window_dims": every, "scatter_dims_to_operand_dims": every, "index_vector_dim": len(every)}
    return _scatter(b, x, coordinates(b, indices, axis), updates, numbers, reduce)


def _scatter(b: Body, x: Value, indices: Value, updates: Value, numbers: dict[str, Any], kind: str) -> Value:
    if kind == "add":
        x, updates = (b.convert(v, {"f": "f64", "b": "f64", "c": "cf64"}.get(v.dtype[0], v.dtype)) for v in (x, updates))
    combine = region({"add": "sum"}.get(kind, kind), x.dtype) if kind != "replace" else _newer(x.dtype)
    text = ", ".join(f"{k} = {v}" for k, v in numbers.items() if v != [])
    attrs = f"scatter_dimension_numbers = #stablehlo.scatter<{text}>"
    return b.generic(f"scatter {combine}", [x, indices, updates], attrs, x.dtype, x.shape)


def _newer(dtype: str) -> str:
    """The region that keeps the update."""
    scalar_type = Value("", dtype, ()).type
    return f'({{\n^bb0(%a: {scalar_type}, %b: {scalar_type}):\n"stablehlo.return"(%b) : ({scalar_type}) -> ()\n}})'


@means("scatter_add")
def scatter_add(
    b: Body,
    x: Value,
    indices: Value,
    updates: Value,
    *,
    update_window_dims: Any,
    inserted_window_dims: Any,
    scatter_dims_to_operand_dims: Any,
    index_vector_dim: int | None,
) -> Value:
    """The same numbers."""
    vector = len(indices.shape) if index_vector_dim is None else index_vector_dim % max(len(indices.shape), 1)
    numbers = {
        "update_window_dims": list(update_window_dims),
        "inserted_window_dims": list(inserted_window_dims),
        "scatter_dims_to_operand_dims": list(scatter_dims_to_operand_dims),
        "index_vector_dim": vector,
    }
    return _scatter(b, x, indices, updates, numbers, "add")


@means("segment_reduce")
def segment_reduce(b: Body, data: Value, ids: Value, *, kind: str, num_segments: int, **_: Any) -> Value:
    """A scatter of rows into identities."""
    dtype = {"f": "f64", "b": "f64", "c": "cf64"}.get(data.dtype[0], data.dtype)
    first = initial(b, kind, data.dtype, dtype)
    start = b.op(f"broadcast_in_dim {first.name}, dims = [] : ({first.type}) ->", dtype, (num_segments, *data.shape[1:]))
    numbers = {
        "update_window_dims": list(range(1, len(data.shape))),
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
    }
    return _scatter(b, start, ids, b.convert(data, dtype), numbers, {"sum": "add"}.get(kind, kind))
