"""Convolutions and pools. A convolution is a `dot_general` of patches and weights, with the groups as batch axis."""

from __future__ import annotations

import math
from math import prod

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.extents import Size, dim, divided_up, larger, of, smaller
from ptir_tools.bridges.onnx.ops.elementwise import centered
from ptir_tools.bridges.onnx.ops.shape import cut, pad
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.bridges.onnx.table import Node, back, fixed, handles, plus, refused, stretched, wide
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Literal
from ptir_tools.core.types import Dim
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites.rounding import sqrt

Pairs = list[tuple[int, int]]


def lowest(dtype: DType) -> float:
    """The least number of a dtype."""
    return -math.inf if dtype.is_float else dtype.min


def numbers(node: Node, name: str, default: list[int]) -> list[int]:
    """An attribute that is a list, which may be left out. Raises Violation when it is not as long as the default."""
    found = node.given(name) or default
    if len(found) != len(default):
        raise Violation("InvalidModel", f"`{name}` of {node.name} has {len(found)} numbers, {len(default)} are wanted")
    return [*found]


class Window:
    """The geometry of a window over spatial axes: size, strides, dilations and padding."""

    def __init__(self, node: Node, spatial: tuple[Dim, ...], kernel: list[int]) -> None:
        n = len(spatial)
        self.kernel = numbers(node, "kernel_shape", kernel)
        if self.kernel != kernel:
            raise Violation("InvalidModel", f"kernel_shape is {self.kernel}, and the weights have {kernel}")
        self.strides, self.dilations = (numbers(node, name, [1] * n) for name in ("strides", "dilations"))
        self.spans = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True)]
        given = numbers(node, "pads", [0] * (2 * n))
        self.pads: Pairs = [(given[i], given[i + n]) for i in range(n)]
        self.moving: dict[int, tuple[int, int, Size]] = {}  # by axis: the most padding, and the place in it where windows begin
        mode = node.attr("auto_pad", "NOTSET")
        if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            raise Violation("InvalidModel", f"`auto_pad` is {mode}", help="it is one of NOTSET, VALID, SAME_UPPER, SAME_LOWER")
        if mode == "VALID":
            self.pads = [(0, 0)] * n
        elif mode != "NOTSET":
            self.pads = [self._same(spatial[i], i, mode == "SAME_UPPER") for i in range(n)]

    def _same(self, extent: Dim, i: int, upper: bool) -> tuple[int, int]:
        """The padding with which there is a window per stride; it depends on the extent modulo the stride alone."""
        stride, span = self.strides[i], self.spans[i]
        if isinstance(extent, int):
            total = max((-(-extent // stride) - 1) * stride + span - extent, 0)
            low = (total + (not upper)) // 2
            return low, total - low
        lows = {(max(span - rest, 0) + (not upper)) // 2 for rest in range(1, stride + 1)}
        if len(lows) > 1:
            total_ = larger((divided_up(of(extent), stride) - 1) * stride + span - of(extent), 0)
            self.moving[i] = max(lows), span - 1 - min(lows), max(lows) - (total_ + (not upper)) // 2
            return 0, 0
        return min(lows), max(span - 1 - min(lows), 0)

    def placed(self, x: Tensor, value: float) -> Tensor:
        """`x` [N, C, spatial…] padded with `value` along symbolic extents whose padding depends on them."""
        for i, (low, high, start) in self.moving.items():
            count = of(x.shape[2 + i]) + self.spans[i] - 1
            x = cut(pad(x, 2 + i, low, high, value), 2 + i, start, count)
        return x


def channels_last(x: Tensor) -> Tensor:
    """[N, C, spatial…] as [N, spatial…, C]."""
    return x.transpose([0, *range(2, x.rank), 1])


def channels_first(x: Tensor) -> Tensor:
    """[N, spatial…, C] as [N, C, spatial…]."""
    return x.transpose([0, x.rank - 1, *range(1, x.rank - 1)])


def _crop(x: Tensor, pads: Pairs) -> tuple[Tensor, Pairs]:
    """`x` cropped where padding is negative, and the remaining padding."""
    for i, (low, high) in enumerate(pads):
        if low < 0 or high < 0:
            x = cut(x, 2 + i, max(-low, 0), of(x.shape[2 + i]) - max(-low, 0) - max(-high, 0))
    return x, [(max(low, 0), max(high, 0)) for low, high in pads]


def convolved(x: Tensor, w: Tensor, groups: int, window: Window, accum: DType | None = None) -> Tensor:
    """[N, places…, outputs] from x [N, C, spatial…] and weights [outputs, C / groups, taps…]."""
    x, pads = _crop(window.placed(x, 0), window.pads)
    if not isinstance(x.shape[1], int):  # the run checks that the symbol is the number
        x = x.reshape([x.shape[0], fixed(w.shape[1]) * groups, *x.shape[2:]])
    patches = channels_last(x).extract_patches(window.kernel, strides=window.strides, dilation=window.dilations, padding=pads)
    return weighed(patches, w, groups, fixed(x.shape[1]), accum)


def weighed(patches: Tensor, w: Tensor, groups: int, channels: int, accum: DType | None = None) -> Tensor:
    """[N, places…, outputs] from patches [N, places…, taps * channels] and weights [outputs, channels / groups, taps…]. Raises
    Violation("InvalidModel") if groups do not divide the channels."""
    outputs, part, *taps = map(fixed, w.shape)
    if groups < 1 or channels != part * groups or outputs % groups:
        raise Violation("InvalidModel", f"{channels} channels in {groups} groups do not fit weights {w.tensor_type}")
    count = prod(taps)
    places, each = patches.shape[:-1], outputs // groups
    more: dict[str, Attribute] = {"accum_dtype": accum, "out_dtype": accum}
    if groups == 1:
        order = [*range(2, w.rank), 1, 0]
        matrix = w.transpose(order).reshape([count * part, outputs])
        return patches.dot_general(matrix, contract_lhs=[patches.rank - 1], contract_rhs=[0], **more)
    at = len(places)
    back_ = [*range(1, at + 1), 0]
    if part == 1 and each == 1:
        split = patches.reshape([*places, count, groups])
        product = split.dot_general(
            w.reshape([groups, count]), batch_lhs=[at + 1], batch_rhs=[0], contract_lhs=[at], contract_rhs=[1], **more
        )
        return product.transpose(back_)
    split = patches.reshape([*places, count, groups, part])
    weights = w.reshape([groups, each, part, count])
    product = split.dot_general(
        weights, batch_lhs=[at + 1], batch_rhs=[0], contract_lhs=[at, at + 2], contract_rhs=[3, 2], **more
    )
    return product.transpose([*back_, at + 1]).reshape([*places, outputs])


def biased(node: Node, y: Tensor, i: int) -> Tensor:
    """`y` [N, places…, channels] plus a bias per channel, if operand `i` is given."""
    return plus(y, node.get(i))


@handles("Conv")
def conv(node: Node) -> Tensor:
    """Conv with any number of spatial axes, in groups."""
    x, w = node[0], node[1]
    window = Window(node, x.shape[2:], [fixed(d) for d in w.shape[2:]])
    return channels_first(biased(node, convolved(x, w, node.attr("group"), window), 2))


@handles("ConvInteger")
def conv_integer(node: Node) -> Tensor:
    """ConvInteger: a convolution of 8-bit integers in 32 bits, with zero points subtracted."""
    x, w = centered(node[0], node.get(2)), centered(node[1], node.get(3), [-1, *[1] * (node[1].rank - 1)])
    window = Window(node, x.shape[2:], [fixed(d) for d in w.shape[2:]])
    return channels_first(convolved(x, w, node.attr("group"), window))


@handles("ConvTranspose")
def conv_transpose(node: Node) -> Tensor:
    """ConvTranspose: the gradient of a convolution. Elements are spread `stride` apart and convolved with the flipped weights."""
    x, w = node[0], node[1]
    groups, n = node.attr("group"), x.rank - 2
    window = Window(node, x.shape[2:], [fixed(d) for d in w.shape[2:]])
    strides, extra = window.strides, numbers(node, "output_padding", [0] * n)
    shape, mode = node.given("output_shape"), node.attr("auto_pad", "NOTSET")
    if mode != "VALID" and (shape or mode != "NOTSET"):
        spatial = [fixed(d) for d in x.shape[2:]]
        shape = shape[-n:] if shape else [s * e for s, e in zip(strides, spatial, strict=True)]
        for i in range(n):
            whole = strides[i] * (spatial[i] - 1) + extra[i] + window.spans[i]
            total = max(whole - shape[i], 0)
            less, more = total // 2, total - total // 2
            extra[i] += max(shape[i] - (whole - total), 0)
            window.pads[i] = (less, more) if mode == "SAME_UPPER" else (more, less)
    spread = x
    if any(s > 1 for s in strides):
        zero = [0] * x.rank
        spread = x.pad(zero, zero, interior=[0, 0, *(s - 1 for s in strides)], pad_value=0)
    spans = zip(window.spans, window.pads, extra, strict=True)
    window.strides, window.pads = [1] * n, [(s - 1 - low, s - 1 - high + e) for s, (low, high), e in spans]
    channels, each, *taps = map(fixed, w.shape)
    for a in range(2, w.rank):
        w = reversed_along(w, a)
    part = channels // groups
    turned = w.reshape([groups, part, each, *taps]).transpose([0, 2, 1, *range(3, w.rank + 1)])
    return channels_first(biased(node, convolved(spread, turned.reshape([groups * each, part, *taps]), groups, window), 2))


class Pool:
    """The windows of a pool, including those of `ceil_mode`; `high` includes the padding that completes them."""

    def __init__(self, node: Node, x: Tensor) -> None:
        self.window = w = Window(node, x.shape[2:], node.attr("kernel_shape"))
        self.high = [high for _, high in w.pads]
        self.counts: list[int] = []
        self.cuts: dict[int, Size] = {}  # the numbers of windows along symbolic axes of ceil_mode
        for i, extent in enumerate(x.shape[2:]):
            low, high = w.pads[i]
            if not isinstance(extent, int):
                if node.attr("ceil_mode"):
                    whole = of(extent) + low + high - w.spans[i]
                    self.cuts[i] = smaller(divided_up(whole, w.strides[i]) + 1, divided_up(of(extent) + low, w.strides[i]))
                    self.high[i] = high + w.strides[i] - 1
                continue
            whole = extent + low + high - w.spans[i]
            count = (-(-whole // w.strides[i]) if node.attr("ceil_mode") else whole // w.strides[i]) + 1
            if node.attr("ceil_mode") and (count - 1) * w.strides[i] >= extent + low:
                count -= 1
            self.counts.append(count)
            self.high[i] = max((count - 1) * w.strides[i] + w.spans[i] - extent - low, 0)

    def reduce(self, x: Tensor, kind: Literal["sum", "max"]) -> Tensor:
        """`reduce_window` over the spatial axes of `x`."""
        w = self.window
        x = w.placed(x, 0 if kind == "sum" else lowest(x.dtype))
        pads = [(0, 0), (0, 0), *((low, high) for (low, _), high in zip(w.pads, self.high, strict=True))]
        ones = [1] * x.rank
        out = x.reduce_window([1, 1, *w.kernel], [1, 1, *w.strides], pads, ones, [1, 1, *w.dilations], reduce=kind)
        for i, count in enumerate(self.counts if len(self.counts) == x.rank - 2 else ()):
            out = cut(out, 2 + i, 0, count)
        for i, size in self.cuts.items():
            out = cut(out, 2 + i, 0, size)
        return out

    def taps(self, spatial: tuple[int, ...], include: bool) -> Array:
        """The number of elements in each window; with `include`, requested padding counts too."""
        total = np.ones((), np.float64)
        w = self.window
        for i, n in enumerate(spatial):
            low, high = w.pads[i]
            at = np.arange(self.counts[i])[:, None] * w.strides[i] - low + np.arange(w.kernel[i]) * w.dilations[i]
            inside = (at < n + high) if include else (at >= 0) & (at < n)
            total = total[..., None] * inside.sum(1)
        return total


@handles("AveragePool")
def average_pool(node: Node) -> Tensor:
    """AveragePool: the mean of each window."""
    x = node[0]
    pool = Pool(node, x)
    total = pool.reduce(wide(x), "sum")
    include = bool(node.attr("count_include_pad"))
    if len(pool.counts) < x.rank - 2:
        if pool.cuts or ((pool.window.moving or any(map(any, pool.window.pads))) and not include):
            ones = node.block.full(1, wide(x))
            return back(total / pool.reduce(ones, "sum"), x)
        return back(total / float(prod(pool.window.kernel)), x)
    counts = pool.taps(tuple(map(fixed, x.shape[2:])), include)
    if (counts == counts.flat[0]).all():
        return back(total / float(counts.flat[0]), x)
    return back(total / node.constant(counts, total.dtype), x)


@handles("LpPool")
def lp_pool(node: Node) -> Tensor:
    """LpPool: the p-norm of each window."""
    x, p = node[0], node.attr("p")
    if p <= 0:
        raise Violation("InvalidModel", f"LpPool with p = {p}")
    wide_ = wide(x).abs()
    powers = wide_ if p == 1 else wide_ * wide_ if p == 2 else _power(wide_, float(p))
    total = Pool(node, x).reduce(powers, "sum")
    return back(total if p == 1 else sqrt(total) if p == 2 else _power(total, 1.0 / p), x)


def _power(x: Tensor, p: float) -> Tensor:
    return x * x * x if p == 3.0 else x.pow(p)


@handles("MaxPool")
def max_pool(node: Node) -> Tensor | list[Tensor]:
    """MaxPool: the maximum of each window, and its index."""
    x = node[0]
    pool = Pool(node, x)
    if not node.wants(1):
        node.idle("storage_order")
        return pool.reduce(x, "max")
    n, c, *spatial = map(fixed, x.shape)
    w = pool.window
    lists = {"window": w.kernel, "strides": w.strides, "dilation": w.dilations}
    padding = [(low, high) for (low, _), high in zip(w.pads, pool.high, strict=True)]
    patches = x.reshape([n * c, *spatial, 1]).extract_patches(**lists, padding=padding, pad_value=lowest(x.dtype))
    for i, count in enumerate(pool.counts):
        patches = cut(patches, 1 + i, 0, count)
    best = patches.argmax(axis=patches.rank - 1, keepdims=True, output_dtype=SI64)
    values = patches.gather(best, axis=patches.rank - 1)
    table: Array = np.zeros((), np.int64)
    order = range(len(spatial)) if not node.attr("storage_order") else reversed(range(len(spatial)))
    scale, steps = 1, [0] * len(spatial)
    for i in reversed(list(order)):
        steps[i], scale = scale, scale * spatial[i]
    for i, k in enumerate(w.kernel):  # [places…, taps…] of flat indices
        at = np.arange(pool.counts[i])[:, None] * w.strides[i] - w.pads[i][0] + np.arange(k) * w.dilations[i]
        m = len(spatial)
        table = table + (np.clip(at, 0, spatial[i] - 1) * steps[i]).reshape(
            [pool.counts[i] if a == i else k if a == m + i else 1 for a in range(2 * m)]
        )
    table = np.broadcast_to(table, (*pool.counts, *w.kernel)).reshape(1, *pool.counts, prod(w.kernel))
    flat = stretched(node.constant(table), patches.shape).gather(best, axis=patches.rank - 1)
    base = node.constant((np.arange(n * c) * prod(spatial)).reshape(-1, *[1] * len(spatial), 1))
    shape = [n, c, *pool.counts]
    return [values.reshape(shape), (flat + base).reshape(shape)]


@handles("MaxUnpool")
def max_unpool(node: Node) -> Tensor:
    """MaxUnpool: elements at the indices of a pool; zeros elsewhere."""
    x, at = node[0], node[1]
    n, c, *spatial = map(fixed, x.shape)
    kernel, m = node.attr("kernel_shape"), len(spatial)
    strides, pads = numbers(node, "strides", [1] * m), numbers(node, "pads", [0] * (2 * m))
    inferred = [(spatial[i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + m] for i in range(m)]
    shape = node.ints(2) if node.has(2) else [n, c, *inferred]
    if node.has(2) and shape != [n, c, *inferred]:
        rest = prod(inferred)  # the indices refer to the inferred shape
        base = at / rest
        inside = at - base * rest
        coordinates = []
        for i in reversed(range(m)):
            coordinates.append(inside - (inside / inferred[i]) * inferred[i])
            inside = inside / inferred[i]
        at = base
        for i, coordinate in enumerate(reversed(coordinates)):
            at = at * shape[2 + i] + coordinate
    empty = node.block.constant(np.zeros((), np.float32)).cast(x.dtype).broadcast_to([prod(shape)])
    return empty.scatter_reduce(at.reshape([-1]), x.reshape([-1]), axis=0, reduce="replace").reshape(shape)


@handles("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: Node) -> Tensor:
    """A pool with one window over all elements."""
    x = node[0]
    axes = list(range(2, x.rank))
    if node.name == "GlobalMaxPool":
        return x.reduce_max(axes, keepdims=True)
    if node.name == "GlobalAveragePool":
        return back(wide(x).mean(axes, keepdims=True), x)
    p = node.attr("p")
    powers = wide(x).abs() if p == 1 else wide(x) * wide(x) if p == 2 else None
    if powers is None:
        raise refused(f"GlobalLpPool with p = {p}")
    total = powers.reduce_sum(axes, keepdims=True)
    return back(total if p == 1 else sqrt(total), x)


@handles("Col2Im")
def col2im(node: Node) -> Tensor:
    """Col2Im: blocks added at their original positions."""
    x, image, block = node[0], node.ints(1), node.ints(2)
    m = len(image)
    dilations, strides = (numbers(node, name, [1] * m) for name in ("dilations", "strides"))
    pads = numbers(node, "pads", [0] * (2 * m))
    n, rows, columns = x.shape[0], fixed(x.shape[1]), fixed(x.shape[2])
    channels = rows // prod(block)
    each = dim(of(n) * channels)
    padded = [image[i] + pads[i] + pads[i + m] for i in range(m)]
    places = [(padded[i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(m)]
    flat: Array = np.zeros((), np.int64)
    for i in range(m):
        at = np.arange(block[i])[:, None] * dilations[i] + np.arange(places[i]) * strides[i]
        shape = [block[i] if a == i else places[i] if a == m + i else 1 for a in range(2 * m)]
        flat = flat * padded[i] + at.reshape(shape)
    flat = np.broadcast_to(flat, (*block, *places)).reshape(-1)
    updates = x.reshape([n, channels, prod(block) * columns]).reshape([each, prod(block) * columns]).transpose([1, 0])
    empty = node.full(0, updates.tensor_type.with_shape([prod(padded), each]))
    indices = stretched(node.constant(flat.reshape(-1, 1)), updates.shape)
    summed = empty.scatter_reduce(indices, updates, axis=0, reduce="add").transpose([1, 0]).reshape([n, channels, *padded])
    for i in range(m):
        summed = cut(summed, 2 + i, pads[i], image[i])
    return summed
