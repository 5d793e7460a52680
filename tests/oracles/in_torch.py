"""What ops give, said in torch: floats in float64, integers in int64 (which wrap once more in their own dtype)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracles.cases import Case
from tests.peers import F, torch
from tests.ptir.oracle import COMPLEX, FLOATS, INTEGERS, NAME

Tensor = Any  # of torch
MEANING: dict[str, Callable[..., Any]] = {}


def means(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare what the ops `names` are."""

    def declare(meaning: Callable[..., Any]) -> Callable[..., Any]:
        MEANING.update(dict.fromkeys(names.split(), meaning))
        return meaning

    return declare


def takes(case: Case) -> bool:
    """Whether torch can say it: it has no reduction of nothing by max or min, no second accumulator, no complex padding; the
    largest of no integers would be that of int64."""
    x = case.operands[0][0] if isinstance(case.operands[0], list) else case.operands[0]
    name = NAME[x.dtype]
    if case.op == "segment_reduce" and case.attrs["kind"] == "max":
        return name in FLOATS
    if case.op == "extract_patches" and name in COMPLEX:
        return "pad_value" not in case.attrs
    if case.attrs.get("accum_dtype") or case.attrs.get("out_dtype"):
        return False
    return not (case.op in ("reduce_max", "reduce_min") and 0 in x.shape)


def tensor(x: np.ndarray) -> Tensor:
    """The elements, widened."""
    name = NAME[x.dtype]
    wide = np.complex128 if name in COMPLEX else np.float64 if name in FLOATS else np.int64 if name in INTEGERS else np.bool_
    return torch.from_numpy(np.array(x.astype(wide)))


def said(case: Case) -> Any:
    """What torch gives: an array, or a tuple of arrays."""
    operands = [[tensor(a) for a in x] if isinstance(x, list) else tensor(x) for x in case.operands]
    found = MEANING[case.op](*operands, **case.attrs)
    return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)


# ---- elementwise

UNARY = ("neg", "abs", "exp", "log", "tanh", "erf", "rsqrt", "reciprocal")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "clamp")
SPELLED = {name: name for name in UNARY + BINARY}
SPELLED |= {f"compare_{kind}": kind for kind in ("lt", "le", "eq", "ge", "gt", "ne")}
SPELLED |= {"select": "where", "stop_gradient": "detach"}
MEANING |= {op: lambda *xs, name=name: getattr(torch, name)(*xs) for op, name in SPELLED.items()}


@means("div")
def div(x: Tensor, y: Tensor) -> Tensor:
    """Integers toward zero."""
    return torch.div(x, y, rounding_mode=None if x.is_floating_point() or x.is_complex() else "trunc")


# ---- reductions and contractions


@means("reduce_sum")
def reduce_sum(x: Tensor, *, axes: Any, keepdims: bool = False) -> Tensor:
    """Over nothing but the axes."""
    return x.sum(axes, keepdim=keepdims) if axes else x


@means("reduce_max")
def reduce_max(x: Tensor, *, axes: Any, keepdims: bool = False) -> Tensor:
    """Over nothing but the axes."""
    return x.amax(axes, keepdim=keepdims) if axes else x


@means("reduce_min")
def reduce_min(x: Tensor, *, axes: Any, keepdims: bool = False) -> Tensor:
    """Over nothing but the axes."""
    return x.amin(axes, keepdim=keepdims) if axes else x


@means("argmax")
def argmax(x: Tensor, *, axis: int, keepdims: bool = False, output_dtype: Any = None) -> Tensor:
    """The first."""
    return torch.argmax(x, axis, keepdim=keepdims)


@means("top_k")
def top_k(x: Tensor, *, k: int, axis: int, largest: bool = True, indices_dtype: Any = None) -> tuple[Tensor, Tensor]:
    """A stable sort."""
    values, places = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)


@means("dot_general")
def dot_general(x: Tensor, y: Tensor, *, batch_lhs: Any, batch_rhs: Any, contract_lhs: Any, contract_rhs: Any) -> Tensor:
    """An einsum of numbered axes."""
    left, right = list(range(x.ndim)), list(range(x.ndim, x.ndim + y.ndim))
    for i, j in zip((*batch_lhs, *contract_lhs), (*batch_rhs, *contract_rhs), strict=True):
        right[j] = left[i]
    summed = {left[i] for i in contract_lhs}
    batch = [left[i] for i in batch_lhs]
    free = [a for a in left + [b for b in right if b not in left] if a not in summed and a not in batch]
    return torch.einsum(x, left, y, right, batch + free)


@means("layer_norm")
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float, feature_axis: int) -> Tensor:
    """Over the last axis."""
    moved = x.movedim(feature_axis, -1)
    if moved.shape[-1] == 0:
        return x
    return F.layer_norm(moved, moved.shape[-1:], gamma, beta, epsilon).movedim(-1, feature_axis)


# ---- movement and indexing


@means("reshape")
def reshape(x: Tensor, *, new_shape: Any) -> Tensor:
    """Row-major."""
    return x.reshape(new_shape)


@means("transpose")
def transpose(x: Tensor, *, perm: Any) -> Tensor:
    """Dimensions by number."""
    return x.permute(perm)


@means("broadcast_to")
def broadcast_to(x: Tensor, *, result_shape: Any) -> Tensor:
    """Right-aligned."""
    return x.expand(result_shape)


@means("slice")
def slice_(x: Tensor, *, starts: Any, sizes: Any) -> Tensor:
    """Axis by axis."""
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        x = x.narrow(axis, start, size)
    return x


@means("concat")
def concat(xs: list[Tensor], *, axis: int) -> Tensor:
    """One after the other."""
    return torch.cat(xs, axis)


@means("tile")
def tile(x: Tensor, *, repeats: Any) -> Tensor:
    """Again and again."""
    return x.repeat(repeats)


@means("take")
def take(x: Tensor, indices: Tensor) -> Tensor:
    """An embedding."""
    return x[indices]


@means("gather")
def gather(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Of the same name."""
    return torch.gather(x, axis, indices)


@means("scatter_reduce")
def scatter_reduce(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int, reduce: str) -> Tensor:
    """Of the same name. Where one place is written twice, torch replaces in any order: one write after the other, then."""
    if reduce != "replace":
        return x.scatter_reduce(axis, indices, updates, {"add": "sum", "max": "amax", "min": "amin"}[reduce])
    for k in range(indices.shape[axis]):
        x = x.scatter(axis, indices.narrow(axis, k, 1), updates.narrow(axis, k, 1))
    return x


@means("segment_reduce")
def segment_reduce(data: Tensor, ids: Tensor, *, kind: str, num_segments: int, indices_are_sorted: bool = False) -> Tensor:
    """Rows added to zeros, or compared with the lowest."""
    shape = (num_segments, *data.shape[1:])
    if kind == "sum":
        return torch.zeros(shape, dtype=data.dtype).index_add(0, ids, data)
    rows = ids.reshape(-1, *[1] * (data.ndim - 1)).expand_as(data)
    return torch.full(shape, -torch.inf, dtype=data.dtype).scatter_reduce(0, rows, data, "amax")


@means("extract_patches")
def extract_patches(
    x: Tensor, *, window: Any, strides: Any = None, dilation: Any = None, padding: Any = None, pad_value: Any = None
) -> Tensor:
    """Windows of a padded image: unfold goes along each axis, dilation is a stride within the window."""
    ones = (1,) * len(window)
    pads = [n for p in reversed(padding or ((0, 0),) * len(window)) for n in p]
    x = F.pad(x, (0, 0, *pads), value=pad_value.value if pad_value else 0)
    for axis, (w, s, d) in enumerate(zip(window, strides or ones, dilation or ones, strict=True), 1):
        x = x.unfold(axis, (w - 1) * d + 1, s)[..., ::d]
    spatial = len(window)
    order = [0, *range(1, spatial + 1), *range(spatial + 2, 2 * spatial + 2), spatial + 1]
    x = x.permute(order)
    return x.reshape(*x.shape[: spatial + 1], -1) if x.numel() else x.new_zeros((*x.shape[: spatial + 1], _last(x, spatial)))


def _last(x: Tensor, spatial: int) -> int:
    """The extent of the joined axes of an empty tensor."""
    return int(np.prod(x.shape[spatial + 1 :]))
