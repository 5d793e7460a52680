"""Gather and scatter operators."""

from __future__ import annotations

from ptir_tools.bridges.extent_ops import picked_at
from ptir_tools.bridges.onnx.ops.bounded import compressed
from ptir_tools.bridges.onnx.ops.shape import cut, expanded
from ptir_tools.bridges.onnx.table import Node, axis, back, fixed, handles, refused, refuses
from ptir_tools.core.dtypes import I1, SI32, SI64, UI8
from ptir_tools.core.extents import product
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Literal
from ptir_tools.core.types import Dim
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor

_DATA = "the extent of the result depends on data"
refuses(_DATA, "Unique")
_STRINGS = "PTIR has no strings"
refuses(_STRINGS, "StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer", "ImageDecoder")
refuses(_STRINGS, "LabelEncoder", "CategoryMapper", domain="ai.onnx.ml")
refuses(
    "it draws random numbers, which no other engine repeats",
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"),
)


def normalized(node: Node, i: int, extent: Dim) -> Tensor:
    """Operand `i` as indices from 0 on: those below zero count from the end of an axis of `extent`."""
    known = node.array(i)
    if known is not None and known.dtype != object and (isinstance(extent, int) or (known >= 0).all()):
        places = known.astype(np.int64)
        return node.constant(np.where(places < 0, places + (extent if isinstance(extent, int) else 0), places))
    at = node[i]
    at = at if at.dtype in (SI32, SI64) else at.cast(SI64)
    return wrapped_indices(at, extent, node)


def wrapped_indices(at: Tensor, extent: Dim, node: Node) -> Tensor:
    """Indices from 0 on: those below zero count from the end of an axis of `extent`."""
    total = at + extent if isinstance(extent, int) else at + back(node.scope.measured(extent), at)
    return (at < 0).select(total, at)


@handles("Gather")
def gather(node: Node) -> Tensor:
    """Gather: slices of `x` along an axis."""
    x = node[0]
    a = axis(node.attr("axis"), x.rank)
    at = normalized(node, 1, x.shape[a])
    if a == 0:
        return x.take(at)
    order = [a, *(i for i in range(x.rank) if i != a)]
    rows = x.transpose(order).take(at)  # the axes of the indices, then those of x without `a`
    n = at.rank
    return rows.transpose([*range(n, n + a), *range(n), *range(n + a, rows.rank)])


def inside(node: Node, at: Tensor, extent: Dim) -> Tensor:
    """Indices, each of which the run finds in an axis of `extent`, or fails. For indices that become part of a flat one."""
    return node.iota([extent], SI64, 0).take(at)


def flat_places(node: Node, at: Tensor, shape: tuple[Dim, ...], a: int) -> Tensor:
    """The row-major index in `shape` of each position of `at`, with the coordinate along `a` replaced by the value there."""
    if at.rank != len(shape) or any(
        isinstance(n, int) and isinstance(d, int) and n > d
        for i, (n, d) in enumerate(zip(at.shape, shape, strict=True))
        if i != a
    ):
        raise Violation("InvalidModel", f"indices {at.type} do not fit the shape {list(shape)} along axis {a}")
    at = inside(node, at, shape[a]) if a else at  # along the first axis the flat index is outside when this one is
    strides = [product(shape[i + 1 :]) for i in range(len(shape))]
    total = scaled(node, at if at.dtype is SI64 else at.cast(SI64), strides[a])
    for i in range(len(shape)):
        if i != a and shape[i] != 1:
            total = total + scaled(node, node.iota(at.shape, SI64, i), strides[i])
    return total


def scaled(node: Node, x: Tensor, n: Dim) -> Tensor:
    """si64 elements times an extent."""
    return x * n if isinstance(n, int) else x * node.scope.measured(n)


@handles("GatherElements")
def gather_elements(node: Node) -> Tensor:
    """GatherElements: one element per index."""
    x = node[0]
    a = axis(node.attr("axis"), node.ranked(0, max(x.rank, 1)).rank)
    node.ranked(1, x.rank)
    at = normalized(node, 1, x.shape[a])
    if all(d == e for i, (d, e) in enumerate(zip(x.shape, at.shape, strict=True)) if i != a):
        return x.gather(at, axis=a)
    return x.reshape([-1]).take(flat_places(node, at, x.shape, a))


_SCATTERS: dict[str, Literal["replace", "add", "max", "min"]] = {"none": "replace", "add": "add", "max": "max", "min": "min"}


def scattered(node: Node, x: Tensor, at: Tensor, updates: Tensor) -> Tensor:
    """`x` with updates at flat indices."""
    how = node.choice("reduction", (*_SCATTERS, "mul"), "none")
    narrow = x.dtype is I1 and how != "none"
    flat = (x.cast(UI8) if narrow else x).reshape([-1])
    targets = at.reshape([-1])
    values = (updates.cast(UI8) if narrow else updates).reshape(targets.shape)  # as many indices as updates
    if how == "mul":
        out = flat.scatter(targets, values, inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], reduce="mul")
    else:
        out = flat.scatter_reduce(targets, values, axis=0, reduce=_SCATTERS[how])
    out = out.reshape(x.shape)
    return out.cast(I1) if narrow else out


@handles("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Tensor:
    """ScatterElements: one update per index."""
    x, updates = node[0], node[2]
    a = axis(node.attr("axis"), node.ranked(0, max(x.rank, 1)).rank)
    node.ranked(1, x.rank)
    at, how = normalized(node, 1, x.shape[a]), node.choice("reduction", (*_SCATTERS, "mul"), "none")
    whole = all(d == e for i, (d, e) in enumerate(zip(x.shape, at.shape, strict=True)) if i != a)
    if whole and x.dtype is not I1 and how != "mul":
        return x.scatter_reduce(at, updates, axis=a, reduce=_SCATTERS[how])
    return scattered(node, x, flat_places(node, at, x.shape, a), updates)


def _nd_places(node: Node, at: Tensor, shape: tuple[Dim, ...], first: int) -> tuple[Tensor, list[Dim]]:
    """The flat index, in units of slices, of each index vector in axes `first`… of `shape`, and the shape of a slice."""
    depth = fixed(at.shape[-1]) if at.rank else 0
    total: Tensor | None = None
    if not 1 <= depth <= len(shape) - first:
        raise refused(f"{node.name} by vectors of {depth} indices")
    for k in range(depth):
        part = cut(at, at.rank - 1, k, 1).reshape(at.shape[:-1])
        part = wrapped_indices(part if part.dtype is SI64 else part.cast(SI64), shape[first + k], node)
        if k or first:  # the flat index is outside when the first one is
            part = inside(node, part, shape[first + k])
        total = part if total is None else scaled(node, total, shape[first + k]) + part
    assert total is not None
    return total, list(shape[first + depth :])


@handles("GatherND")
def gather_nd(node: Node) -> Tensor:
    """GatherND: slices at index vectors."""
    x, at, b = node[0], node[1], node.attr("batch_dims", 0)
    places, rest = _nd_places(node, at, x.shape, b)
    depth = fixed(at.shape[-1]) if at.rank else 0
    if not b:
        return (x if depth == 1 else x.reshape([product(x.shape[:depth]), *rest])).take(places)
    batch, rows = x.shape[:b], product(x.shape[b : b + depth])
    lead = scaled(node, node.iota([product(batch)], SI64, 0), rows)
    places = places + lead.reshape([*batch, *[1] * (places.rank - b)])
    flat = x.reshape([product((*batch, rows)), product(tuple(rest))])
    return flat.take(places).reshape([*places.shape, *rest])


@handles("ScatterND")
def scatter_nd(node: Node) -> Tensor:
    """ScatterND: slices written at index vectors."""
    x, at, updates = node[0], node[1], node[2]
    places, rest = _nd_places(node, at, x.shape, 0)
    length = product(tuple(rest))
    column = places.reshape([-1, 1])
    each = scaled(node, column, length) + node.iota([column.shape[0], length], SI64, 1)
    return scattered(node, x, each, updates)


@handles("Compress")
def compress(node: Node) -> Tensor:
    """Compress: the elements along an axis whose flags are set."""
    whole = node.attr("axis") is None
    x = node[0].reshape([product(node[0].shape)]) if whole else node[0]
    a = 0 if whole else axis(node.attr("axis"), x.rank)
    return compressed(node, x, a) if node.array(1) is None else picked_at(x, a, np.flatnonzero(node.known(1)))


@handles("TensorScatter")
def tensor_scatter(node: Node) -> Tensor:
    """TensorScatter: a cache with updates, in each sequence from its own index on."""
    x, updates, a = node[0], node[1], axis(node.attr("axis", -2), node[0].rank)
    at = node.iota(updates.shape, SI64, a)
    if node.has(2):
        at = at + node[2].cast(SI64).reshape([-1, *[1] * (x.rank - 1)])
    if node.attr("mode", "linear") == "circular":
        at = at.mod(fixed(x.shape[a]))
    return x.scatter_reduce(at, updates, axis=a, reduce="replace")


@handles("OneHot")
def one_hot(node: Node) -> Tensor:
    """OneHot: `on` at each index along a new axis, `off` elsewhere and for indices out of range."""
    depth = node.integer(1)
    x, values = node[0], node[2]
    a = axis(node.attr("axis"), x.rank + 1)
    at = x if x.dtype is SI64 else x.cast(SI64)
    at = expanded((at < 0).select(at + depth, at), [a])
    shape = tuple(depth if i == a else d for i, d in enumerate(at.shape))
    off, on = (values.slice([k], [1]) for k in (0, 1))
    return at.compare_eq(node.iota(shape, SI64, a)).select(on, off)


@handles("ReverseSequence")
def reverse_sequence(node: Node) -> Tensor:
    """ReverseSequence: the first elements of each sequence in reverse order, by its length."""
    x, lengths = node[0], node[1]
    b, t = node.attr("batch_axis"), node.attr("time_axis")
    at = node.iota(x.shape, SI64, t)
    length = lengths.cast(SI64).reshape([-1 if i == b else 1 for i in range(x.rank)])
    turned = (at < length).select(length - at - 1, at)
    return x.gather(turned, axis=t)
