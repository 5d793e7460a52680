"""What ops that move elements give, by hand: the element that each place of the result shows, bit for bit."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.oracles.by_hand import each, larger, means, numbers, plus, smaller
from tests.oracles.check import Want, default_accum
from tests.ptir.oracle import COMPLEX, FLOATS, INTEGERS, NAME, wrap

Place = tuple[int, ...]


def filled(shape: Any, dtype: Any, at: Callable[[Place], Any]) -> np.ndarray:
    """The array whose element at each place is `at(place)`."""
    out = np.empty(tuple(shape), dtype)
    for place in np.ndindex(out.shape):
        out[place] = at(place)
    return out


def replaced(place: Place, axis: int, k: int) -> Place:
    """`place` with its index along `axis` changed."""
    axis %= len(place)
    return (*place[:axis], k, *place[axis + 1 :])


def scalar(value: Any, dtype: np.dtype) -> Any:
    """The element of `dtype` that an attribute's number means."""
    name = NAME[dtype]
    return np.asarray(value).astype(dtype) if name in FLOATS or name in COMPLEX or name == "i1" else wrap([value], name)[0]


@means("stop_gradient")
def stop_gradient(x: np.ndarray) -> np.ndarray:
    """Itself."""
    return x


@means("select")
def select(pred: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One or the other."""
    return filled(x.shape, x.dtype, lambda at: x[at] if pred[at] else y[at])


@means("constant")
def constant(*, value: np.ndarray) -> np.ndarray:
    """Itself."""
    return value


@means("iota")
def iota(*, shape: Any, dtype: Any, axis: int) -> Any:
    """The index along the axis."""
    return Want(filled(shape, object, lambda at: at[axis]), str(dtype))


@means("reshape")
def reshape(x: np.ndarray, *, new_shape: Any) -> np.ndarray:
    """The same elements in the same order."""
    known = math.prod(n for n in new_shape if n != -1)
    shape = tuple(x.size // known if n == -1 else n for n in new_shape)
    elements = iter([x[at] for at in np.ndindex(x.shape)])
    return filled(shape, x.dtype, lambda at: next(elements))


@means("transpose")
def transpose(x: np.ndarray, *, perm: Any) -> np.ndarray:
    """Axis i of the result is axis perm[i]."""
    axes = [p % x.ndim for p in perm]
    return filled([x.shape[a] for a in axes], x.dtype, lambda at: x[tuple(at[axes.index(a)] for a in range(x.ndim))])


@means("broadcast_to")
def broadcast_to(x: np.ndarray, *, result_shape: Any) -> np.ndarray:
    """Right-aligned."""
    lead = len(result_shape) - x.ndim
    return filled(result_shape, x.dtype, lambda at: x[tuple(0 if n == 1 else k for k, n in zip(at[lead:], x.shape, strict=True))])


def window(x: np.ndarray, start: Any, sizes: Any) -> np.ndarray:
    """The elements from `start` on."""
    return filled(sizes, x.dtype, lambda at: x[tuple(k + s for k, s in zip(at, start, strict=True))])


@means("slice")
def slice_(x: np.ndarray, *, starts: Any, sizes: Any) -> np.ndarray:
    """A window."""
    return window(x, starts, sizes)


def clamped(x: np.ndarray, start: np.ndarray, sizes: Any) -> list[int]:
    """Starts moved into [0, extent - size]."""
    return [min(max(s, 0), n - size) for s, n, size in zip(start.tolist(), x.shape, sizes, strict=True)]


@means("dynamic_slice")
def dynamic_slice(x: np.ndarray, start: np.ndarray, *, sizes: Any) -> np.ndarray:
    """A window, its start clamped."""
    return window(x, clamped(x, start, sizes), sizes)


@means("dynamic_update_slice")
def dynamic_update_slice(x: np.ndarray, update: np.ndarray, start: np.ndarray, *, sizes: Any) -> np.ndarray:
    """A window overwritten."""
    out, first = x.copy(), clamped(x, start, sizes)
    for at in np.ndindex(update.shape):
        out[tuple(k + s for k, s in zip(at, first, strict=True))] = update[at]
    return out


@means("concat")
def concat(xs: list[np.ndarray], *, axis: int) -> np.ndarray:
    """One after the other."""
    axis %= xs[0].ndim
    source = [(x, k) for x in xs for k in range(x.shape[axis])]
    shape = replaced(xs[0].shape, axis, len(source))

    def at(place: Place) -> Any:
        x, k = source[place[axis]]
        return x[replaced(place, axis, k)]

    return filled(shape, xs[0].dtype, at)


@means("pad")
def pad(x: np.ndarray, *, low: Any, high: Any, interior: Any = None, pad_value: Any = None) -> np.ndarray:
    """A field of the value with the elements set into it."""
    interior = interior or (0,) * x.ndim
    fill = scalar(pad_value.value if pad_value else 0, x.dtype)
    shape = [a + n + b + max(n - 1, 0) * i for a, n, b, i in zip(low, x.shape, high, interior, strict=True)]
    out = filled(shape, x.dtype, lambda at: fill)
    for at in np.ndindex(x.shape):
        out[tuple(a + k * (i + 1) for a, k, i in zip(low, at, interior, strict=True))] = x[at]
    return out


@means("tile")
def tile(x: np.ndarray, *, repeats: Any) -> np.ndarray:
    """Again and again."""
    shape = [n * r for n, r in zip(x.shape, repeats, strict=True)]
    return filled(shape, x.dtype, lambda at: x[tuple(k % n for k, n in zip(at, x.shape, strict=True))])


@means("take")
def take(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Rows."""
    split = indices.ndim
    return filled(indices.shape + x.shape[1:], x.dtype, lambda at: x[(int(indices[at[:split]]), *at[split:])])


@means("gather")
def gather(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    """One index replaced."""
    return filled(indices.shape, x.dtype, lambda at: x[replaced(at, axis, int(indices[at]))])


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": plus, "mul": operator.mul, "max": larger, "min": smaller,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


def inside(at: Place, shape: Any) -> bool:
    """Whether a place is one of a tensor of that shape."""
    return all(0 <= k < n for k, n in zip(at, shape, strict=True))


def written(x: np.ndarray, updates: np.ndarray, places: Iterator[Place], kind: str) -> Any:
    """Updates combined into `x`, in row-major order."""
    if kind == "replace":
        out = np.array(x)
        for to, at in zip(places, np.ndindex(updates.shape), strict=True):
            if inside(to, x.shape):
                out[to] = updates[at]
        return out
    step = STEPS[kind]
    total, news, dtype = numbers(x), numbers(updates), NAME[x.dtype]
    scale, count = each(abs, total), np.ones(x.shape)
    for to, at in zip(places, np.ndindex(updates.shape), strict=True):
        if not inside(to, x.shape):
            continue
        total[to] = step(total[to], news[at])
        scale[to], count[to] = scale[to] + abs(news[at]), count[to] + 1
    if dtype in INTEGERS:
        return Want(total, dtype)
    if dtype == "i1":
        return total.astype(np.bool_)
    if kind == "mul":
        scale = each(abs, total)
    value = total.astype(np.complex128 if dtype in COMPLEX else np.float64)
    return Want(
        value, dtype, count.max(initial=0) if kind in ("add", "mul") else 0, scale.astype(np.float64), default_accum(dtype)
    )


@means("scatter_reduce")
def scatter_reduce(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int, reduce: str) -> Any:
    """One index replaced."""
    places = (replaced(at, axis, int(indices[at])) for at in np.ndindex(updates.shape))
    return written(x, updates, places, reduce)


@means("scatter_add scatter")
def scatter_add(
    x: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    *,
    update_window_dims: Any,
    inserted_window_dims: Any,
    scatter_dims_to_operand_dims: Any,
    index_vector_dim: int | None = None,
    reduce: str = "add",
    drop: bool = False,
) -> Any:
    """XLA's text: the update scatter index picks an index vector, which is spread over the operand's axes, and the window
    index is added to it where no axis was inserted."""
    vector = indices.ndim if index_vector_dim is None else index_vector_dim % (indices.ndim + (index_vector_dim == indices.ndim))
    kept = [a for a in range(x.ndim) if a not in inserted_window_dims]

    def place(at: Place) -> Place:
        scatter = [k for a, k in enumerate(at) if a not in update_window_dims]
        offset = [k for a, k in enumerate(at) if a in update_window_dims]
        full = [0] * x.ndim
        for component, axis in enumerate(scatter_dims_to_operand_dims):
            where = scatter if vector == indices.ndim else [*scatter[:vector], component, *scatter[vector:]]
            full[axis] += int(indices[tuple(where)])
        for axis, k in zip(kept, offset, strict=True):
            full[axis] += k
        return tuple(full)

    return written(x, updates, map(place, np.ndindex(updates.shape)), reduce)


@means("extract_patches")
def extract_patches(
    x: np.ndarray, *, window: Any, strides: Any = None, dilation: Any = None, padding: Any = None, pad_value: Any = None
) -> np.ndarray:
    """Window row-major, channel innermost."""
    ones = (1,) * len(window)
    strides, dilation, padding = strides or ones, dilation or ones, padding or ((0, 0),) * len(window)
    fill, taps, channels = scalar(pad_value.value if pad_value else 0, x.dtype), list(np.ndindex(*window)), x.shape[-1]
    places = [
        (n + sum(p) - (w - 1) * d - 1) // s + 1
        for n, w, s, d, p in zip(x.shape[1:-1], window, strides, dilation, padding, strict=True)
    ]

    def at(place: Place) -> Any:
        tap, channel = divmod(place[-1], channels)
        where = [i * s - p[0] + k * d for i, s, p, k, d in zip(place[1:-1], strides, padding, taps[tap], dilation, strict=True)]
        inside = all(0 <= k < n for k, n in zip(where, x.shape[1:-1], strict=True))
        return x[(place[0], *where, channel)] if inside else fill

    return filled((x.shape[0], *places, len(taps) * channels), x.dtype, at)
