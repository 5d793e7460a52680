"""Resampling. If coordinates are known while reading, an axis is resampled by a gather or a product with a constant matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product
from math import prod

from ptir_tools.bridges.extent_ops import picked_at
from ptir_tools.bridges.extents import Extent, Size, dim, larger, of
from ptir_tools.bridges.onnx.ops.elementwise import bounded, logical
from ptir_tools.bridges.onnx.ops.shape import axis_product, cut
from ptir_tools.bridges.onnx.ops.window import Window, biased, channels_first, channels_last, weighed
from ptir_tools.bridges.onnx.table import Node, axis, back, fixed, handles, refused, stretched, wide
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor


@handles("Resize", "Upsample")
def resize(node: Node) -> Tensor:
    """Resize, one axis after the other."""
    x = node[0]
    at = {"Resize": (1, 2, 3) if node.opset >= 11 else (None, 1, None), "Upsample": (None, 1, None)}[node.name]
    axes = [axis(a, x.rank) for a in node.attr("axes") or range(x.rank)]
    given = node.given("scales") or (node.floats(at[1]) if at[1] is not None and node.has(at[1]) else [])
    if node.name == "Upsample" and node.opset < 7:
        given = [*[1.0] * (x.rank - 2), node.attr("height_scale"), node.attr("width_scale")]
    if given:
        scales = dict(zip(axes, map(_fraction, given), strict=True))
        sizes: dict[int, Size] = {a: of(x.shape[a]) * s.numerator // s.denominator for a, s in scales.items()}
        node.idle("keep_aspect_ratio_policy")
    else:
        if at[2] is None or not node.has(at[2]):
            raise Violation("InvalidModel", f"{node.name} has neither scales nor sizes")
        sizes = dict(zip(axes, node.dims(at[2]), strict=True))
        scales = {a: _ratio(n, of(x.shape[a])) for a, n in sizes.items()}
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            if any(isinstance(n, Extent) or not isinstance(x.shape[a], int) for a, n in sizes.items()):
                raise refused(f"{node.name} by aspect ratio along a symbolic extent", "give the symbols with --bind")
            one = (min if policy == "not_larger" else max)(scales.values())
            scales = dict.fromkeys(axes, one)
            sizes = {a: math.floor(one * fixed(x.shape[a]) + Fraction(1, 2)) for a in axes}
    crop = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    roi = node.floats(at[0]) if crop and at[0] is not None else None
    mode = node.attr("mode", "nearest")
    if mode == "bilinear":
        mode = "linear"  # as operator set 1 says
    if mode not in ("nearest", "linear", "cubic"):
        raise Violation("InvalidModel", f"{node.name} has no mode `{mode}`")
    unread = {"nearest": ("cubic_coeff_a", "antialias", "exclude_outside"), "linear": ("nearest_mode", "cubic_coeff_a")}
    node.idle(*unread.get(mode, ("nearest_mode",)), *(() if crop else ("extrapolation_value", 1 if node.opset >= 11 else "")))
    y, outside = (x if mode == "nearest" else wide(x)), None
    if y.dtype.is_integer and mode != "nearest":
        y = y.cast(F32)
    for k, a in enumerate(axes):
        bounds = None if roi is None else (roi[k], roi[k + len(axes)])
        size, n = sizes[a], x.shape[a]
        if dim(size) == n and (scales[a] == 1 or isinstance(size, Extent)) and bounds in (None, (0.0, 1.0)):
            continue
        if isinstance(size, Extent) or not isinstance(n, int):
            given_scale = scales[a] if given else None
            y = _nearest_symbolic(node, y, a, size, given_scale) if mode == "nearest" else _linear(node, y, a, size, given_scale)
            continue
        count = size
        places = _places(node, n, count, scales[a], bounds)
        if mode == "nearest":
            y = picked_at(y, a, _nearest(places, n, node))
        else:
            y = axis_product(y, a, _weights(node, np.array(places, np.float64), n, float(scales[a])))
        if crop:
            beyond = np.array([not 0 <= p <= n - 1 for p in places], np.bool_)
            shape = [count if i == a else 1 for i in range(x.rank)]
            outside = beyond.reshape(shape) if outside is None else outside | beyond.reshape(shape)
    if outside is not None and outside.any():
        y = node.constant(outside).select(float(node.attr("extrapolation_value")), y)
    if x.dtype.is_integer and y.dtype.is_float:
        y = bounded(y, float(x.dtype.min), float(x.dtype.max))
    return back(y, x)


def _ratio(count: Size, n: Size) -> Fraction:
    """The scale that sizes give; 1 where it is not known while reading."""
    return Fraction(1) if isinstance(count, Extent) or isinstance(n, Extent) else Fraction(count, max(n, 1))


def _line(node: Node, n: Size, count: Size, scale: Fraction | None) -> tuple[Size, Size, Size]:
    """Numbers a, b and c with which the source coordinate of result `k` along a symbolic axis is `(a * k + b) / c`."""
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    if node.name == "Upsample" or node.opset < 11:
        mode = "asymmetric"
    by, whole = (n, count) if scale is None else (scale.denominator, scale.numerator)
    if mode == "asymmetric":
        return by, 0, whole
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return 2 * by, by - whole, 2 * whole
    if mode == "align_corners":
        return n - 1, 0, larger(count - 1, 1)
    raise refused(f"{node.name} by {mode} along the symbolic extent {dim(n)}", "give the symbols with --bind")


def _over(node: Node, y: Tensor, a: int, count: Size, scale: Fraction | None) -> tuple[Tensor, Tensor]:
    """The numerators of the source coordinates of all results along a symbolic axis, and their denominator."""
    slope, first, c = _line(node, of(y.shape[a]), count, scale)
    numbers = node.iota([dim(count)], SI64, 0)
    slope_, first_, c_ = (node.scope.measured(v).reshape([1]) for v in (slope, first, c))
    return numbers * slope_ + first_, stretched(c_, numbers.shape)


def _floor(x: Tensor, by: Tensor) -> Tensor:
    """Integers divided by positive ones, rounded down."""
    return (x - x.mod(by)) / by


def _kept_inside(node: Node, at: Tensor, n: Dim) -> Tensor:
    """Indices moved into an axis of `n` elements."""
    return at.clamp(0, node.scope.measured(of(n) - 1).reshape([1]))


def _nearest_symbolic(node: Node, y: Tensor, a: int, count: Size, scale: Fraction | None) -> Tensor:
    """The nearest elements along a symbolic axis."""
    n = y.shape[a]
    if scale is not None and scale.denominator == 1 and _repeats(node, scale):
        wide_ = [*y.shape[: a + 1], scale.numerator, *y.shape[a + 1 :]]
        repeated = y.reshape([*y.shape[: a + 1], 1, *y.shape[a + 1 :]]).broadcast_to(wide_)
        return repeated.reshape([*y.shape[:a], dim(count), *y.shape[a + 1 :]])
    above, c = _over(node, y, a, count, scale)
    mode = node.attr("nearest_mode", "round_prefer_floor") if node.name == "Resize" and node.opset >= 11 else "floor"
    if mode == "round_prefer_floor":
        above, c, up = above * 2 - c, c * 2, True
    elif mode == "round_prefer_ceil":
        above, c, up = above * 2 + c, c * 2, False
    else:
        up = mode == "ceil"
    at = -_floor(-above, c) if up else _floor(above, c)
    return y.taken(_kept_inside(node, at, n), a)


def _repeats(node: Node, scale: Fraction) -> bool:
    """Whether the nearest elements by a whole scale are all elements, each repeated."""
    times = scale.numerator
    if node.attr("coordinate_transformation_mode", "half_pixel") not in ("asymmetric", "half_pixel", "pytorch_half_pixel"):
        return False
    found = _nearest(_places(node, 4, 4 * times, scale, None), 4, node)
    return bool((found == np.repeat(np.arange(4), times)).all())


def _linear(node: Node, y: Tensor, a: int, count: Size, scale: Fraction | None) -> Tensor:
    """Linear interpolation along a symbolic axis: of the two neighbors of each coordinate."""
    if node.attr("mode") == "cubic" or node.attr("antialias", 0) or node.attr("exclude_outside", 0):
        raise refused(f"{node.name} along the symbolic extent {y.shape[a]}, unless nearest or linear", "give it with --bind")
    above, c = _over(node, y, a, count, scale)
    before = _floor(above, c)
    part = (above - before * c).cast(y.dtype) / c.cast(y.dtype)
    first, second = (y.taken(_kept_inside(node, at, y.shape[a]), a) for at in (before, before + 1))
    return first + (second - first) * part.reshape([dim(count) if i == a else 1 for i in range(y.rank)])


def _fraction(scale: float) -> Fraction:
    """A scale, which is an f32, as the simplest fraction that rounds to it: 0.6 is 3 / 5."""
    exact = Fraction(scale)
    return next((f for k in (16, 256, 4096) if np.float32(f := exact.limit_denominator(k)) == np.float32(scale)), exact)


def _places(node: Node, n: int, count: int, scale: Fraction, roi: tuple[float, float] | None) -> list[Fraction]:
    """The source coordinate of each of `count` results along an axis of `n` elements. Fractions are exact: of two neighbors that
    are equally near, `nearest_mode` chooses."""
    if scale <= 0:
        raise Violation("InvalidModel", f"{node.name} by a scale of {scale}")
    mode, half, zero = node.attr("coordinate_transformation_mode", "half_pixel"), Fraction(1, 2), Fraction(0)
    if node.name == "Upsample" or node.opset < 11:
        mode = "asymmetric"
    # ONNX's reference uses the fractional extent. Torch uses the integer extent, which gives its scale.
    extent = Fraction(count) if node.scope.importer.model.producer_name == "pytorch" else scale * n
    step = zero
    if mode in ("align_corners", "tf_crop_and_resize") and extent != 1:
        step = Fraction(n - 1) / (extent - 1)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and extent != 1):
        step, first = 1 / scale, half / scale - half
    elif mode == "asymmetric":
        step, first = 1 / scale, zero
    elif mode == "align_corners":
        first = zero
    elif mode == "pytorch_half_pixel":
        first = -half
    elif mode == "half_pixel_symmetric":
        step, first = 1 / scale, n * half * (1 - count / extent) + half / scale - half
    elif mode == "tf_crop_and_resize" and roi is not None:
        start, end = map(Fraction, roi)
        middle = (end - start) * (n - 1) * half if extent == 1 else 0
        step, first = step * (end - start), start * (n - 1) + middle
    else:
        raise Violation("InvalidModel", f"Resize has no coordinate mode `{mode}`")
    return [first + k * step for k in range(count)]


def _nearest(places: list[Fraction], n: int, node: Node) -> Array:
    mode = node.attr("nearest_mode", "round_prefer_floor") if node.name == "Resize" and node.opset >= 11 else "floor"
    half = Fraction(1, 2)
    rounding: dict[str, Callable[[Fraction], int]] = {
        "round_prefer_floor": lambda p: math.ceil(p - half),
        "round_prefer_ceil": lambda p: math.floor(p + half),
        "floor": math.floor,
        "ceil": math.ceil,
    }
    if mode not in rounding:
        raise Violation("InvalidModel", f"Resize has no nearest mode `{mode}`")
    return np.clip(np.array([rounding[mode](p) for p in places], np.int64), 0, n - 1)


def _weights(node: Node, places: Array, n: int, scale: float) -> Array:
    """The matrix of an interpolation: a row per result, a column per element."""
    shrunk = min(scale, 1.0) if node.attr("antialias", 0) else 1.0
    cubic = node.attr("mode") == "cubic"
    reach = 2 if cubic else 1
    first = math.floor(-reach / shrunk) + 1
    taps = np.arange(first, 2 * (1 - first) + first)  # relative to the element before the coordinate
    before = np.ceil(places) - 1
    distance = (taps - (places - before)[:, None]) * shrunk
    each = _cubic(distance, float(node.attr("cubic_coeff_a", -0.75))) if cubic else np.clip(1 - np.abs(distance), 0, 1)
    at = before[:, None].astype(np.int64) + taps
    if shrunk < 1:
        each = each / each.sum(1, keepdims=True)
    if node.attr("exclude_outside", 0):
        each = np.where((at < 0) | (at >= n), 0, each)
        total = each.sum(1, keepdims=True)
        each = each / np.where(total == 0, 1, total)
    matrix = np.zeros((len(places), n))
    np.add.at(matrix, (np.arange(len(places))[:, None], np.clip(at, 0, n - 1)), each)
    return matrix


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


Side = float | Tensor  # an extent or a border, which a symbol leaves to the run
Tap = tuple[Tensor, Tensor | None, Tensor | None]  # of a neighbor: index, weight, whether it is inside


@handles("GridSample")
def grid_sample(node: Node) -> Tensor:
    """GridSample: elements at the coordinates of a grid, interpolated."""
    x, grid = wide(node[0]), wide(node[1])
    n, c, *spatial = x.shape
    mode = node.choice("mode", ("nearest", "linear", "bilinear", "cubic", "bicubic"))
    padding, corners = node.choice("padding_mode", ("zeros", "border", "reflection")), bool(node.attr("align_corners"))
    m, lead = len(spatial), grid.shape[:-1]
    places = []
    for i, extent in enumerate(spatial):  # the last axis comes first in the grid
        d = float(extent) if isinstance(extent, int) else node.scope.measured(extent).cast(grid.dtype)
        g = cut(grid, grid.rank - 1, m - 1 - i, 1).reshape(lead)
        at = (g + 1.0) * ((d - 1.0) / 2.0) if corners else ((g + 1.0) * d - 1.0) * 0.5
        if mode == "nearest":
            at = at.round_even()
        borders = (0.0, d - 1.0) if corners else (-0.5, d - 0.5)
        if padding == "border" and "cubic" not in mode:  # here each neighbor is clamped separately
            at = bounded(at, 0.0, d - 1.0)
        elif padding == "reflection":
            at = _reflected(at, *borders)
        places.append((at, d, borders))
    offsets = {"nearest": [0], "linear": [0, 1], "bilinear": [0, 1], "cubic": [-1, 0, 1, 2], "bicubic": [-1, 0, 1, 2]}[mode]
    each = prod(map(of, spatial))
    rows = channels_last(x).reshape([dim(of(n) * each), c])
    base = (node.iota([n], SI64, 0) * _count(node, each)).reshape([n, *[1] * m])
    taps = [[_tap(at, d, borders, k, mode, padding) for k in offsets] for at, d, borders in places]
    total = _interpolate(rows, base, [_count(node, of(d)) for d in spatial], taps)
    return back(total.transpose([0, total.rank - 1, *range(1, total.rank - 1)]), node[0])


def _count(node: Node, n: Size) -> int | Tensor:
    """An extent as a number; a symbolic one is measured at run time."""
    return n if isinstance(n, int) else node.scope.measured(n)


def _interpolate(rows: Tensor, base: Tensor, spatial: Sequence[int | Tensor], taps: list[list[Tap]]) -> Tensor:
    """[places…, channels]: sums of `rows` [elements, channels], from `base` on, over all neighbors of each place. `taps` has
    the results of `_tap` for each spatial axis and neighbor."""
    total: Tensor | None = None
    for corner in product(*(range(len(each)) for each in taps)):
        flat, weight, inside = None, None, None
        for i, k in enumerate(corner):
            index, w, ok = taps[i][k]
            flat = index if flat is None else flat * spatial[i] + index
            weight = w if weight is None or w is None else weight * w
            inside = ok if inside is None else logical("and", inside, ok) if ok is not None else inside
        assert flat is not None
        value = rows.take(flat + base)
        if inside is not None:
            value = inside.reshape([*inside.shape, 1]).select(value, 0.0)
        if weight is not None:
            value = value * weight.reshape([*weight.shape, 1])
        total = value if total is None else total + value
    assert total is not None
    return total


@handles("DeformConv")
def deform_conv(node: Node) -> Tensor:
    """DeformConv: a convolution whose taps are moved by offsets, interpolated, and multiplied by a mask."""
    x, w, offset = wide(node[0]), wide(node[1]), wide(node[2])
    n, c, *spatial = map(fixed, x.shape)
    m, groups, kernel = len(spatial), node.attr("offset_group"), [fixed(d) for d in w.shape[2:]]
    window = Window(node, x.shape[2:], kernel)
    places, count = [fixed(d) for d in offset.shape[2:]], prod(kernel)
    if groups < 1 or c % groups or fixed(offset.shape[1]) != groups * count * m:
        raise Violation(
            "InvalidModel", f"offsets {offset.tensor_type} do not fit {c} channels in {groups} groups of {count} taps"
        )
    lead = [n, groups, count, *places]
    moves = offset.reshape([n, groups, count, m, *places])
    taps = []
    for i, d in enumerate(spatial):
        tap = np.indices(kernel)[i].reshape(count, *[1] * m) * window.dilations[i]
        place = np.arange(places[i]).reshape([-1 if a == i else 1 for a in range(m)]) * window.strides[i] - window.pads[i][0]
        at = node.constant((tap + place).astype(np.float32), x.dtype) + cut(moves, 3, i, 1).reshape(lead)
        taps.append([_tap(at, d, (0.0, 0.0), k, "linear", "zeros") for k in (0, 1)])
    rows = channels_last(x.reshape([n * groups, c // groups, *spatial])).reshape([n * groups * prod(spatial), c // groups])
    starts = np.arange(n * groups).reshape(n, groups, *[1] * (m + 1)) * prod(spatial)
    total = _interpolate(rows, node.constant(starts), spatial, taps)
    if node.has(4):
        total = total * wide(node[4]).reshape([*lead, 1])
    patches = total.transpose([0, *range(3, m + 3), 2, 1, m + 3]).reshape([n, *places, count * c])
    return back(channels_first(biased(node, weighed(patches, w, node.attr("group"), c), 3)), node[0])


def _reflected(x: Tensor, low: float, high: Side) -> Tensor:
    span = high - low
    if isinstance(span, Tensor):
        away = (x - low).abs().rem(span.maximum(0.5) * 2.0)
        return away.minimum(span * 2.0 - away).maximum(0.0) + low
    if span == 0:
        return x * 0.0
    away = (x - low).abs().rem(span * 2.0)
    return away.minimum(span * 2.0 - away) + low


def _tap(at: Tensor, d: Side, borders: tuple[float, Side], k: int, mode: str, padding: str) -> Tap:
    """A neighbor along an axis: its index, its weight (None: 1), and whether it is inside (None: always)."""
    if mode == "nearest":
        place, weight = at, None
    else:
        before = at.floor()
        place = before + float(k) if k else before
        rest = at - before
        weight = _cubic_tensor((rest - float(k)).abs()) if "cubic" in mode else (rest if k else 1.0 - rest)
    inside = None
    if padding == "zeros":
        inside = logical("and", place >= 0.0, place <= d - 1.0)
    elif padding == "reflection":
        place = _reflected(place, *borders)
    return bounded(place, 0.0, d - 1.0).cast(SI64), weight, inside


def _cubic_tensor(d: Tensor) -> Tensor:
    a = -0.75
    inner = ((a + 2) * d - (a + 3)) * d * d + 1.0
    outer = ((d - 5.0) * d + 8.0) * d * a - 4 * a
    return (d <= 1.0).select(inner, outer)


@handles("RoiAlign")
def roi_align(node: Node) -> Tensor:
    """RoiAlign: boxes of an image, resampled to one size."""
    x, rois, batch = wide(node[0]), wide(node[1]), node[2].cast(SI64)
    height, width, samples = node.attr("output_height"), node.attr("output_width"), node.attr("sampling_ratio")
    if samples == 0:
        raise refused("RoiAlign with as many samples as a box needs, which depends on data")
    n, c, *spatial = (fixed(x.shape[a]) for a in range(4))
    count = fixed(rois.shape[0])
    half = node.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel" and node.opset >= 16
    scale, offset = node.attr("spatial_scale"), 0.5 if half else 0.0

    def side(i: int, bins: int, d: int) -> tuple[Tensor, Tensor]:
        """The coordinates of the samples along one side, [rois, pieces * samples], and whether they are inside the image."""
        low, high = (cut(rois, 1, k, 1) * scale - offset for k in (i, i + 2))
        length = high - low if half else (high - low).maximum(1.0)
        each = (np.arange(bins)[:, None] + (np.arange(samples) + 0.5) / samples).reshape(1, -1)
        steps = node.constant(each / bins, rois.dtype)
        at = low + length * steps
        return bounded(at, 0.0, d - 1.0), logical("and", at >= -1.0, at <= float(d))

    (ys, oky), (xs, okx) = side(1, height, spatial[0]), side(0, width, spatial[1])
    rows = channels_last(x).reshape([n * spatial[0] * spatial[1], c])
    shape = (count, height * samples, width * samples)
    base = (batch * (spatial[0] * spatial[1])).reshape([count, 1, 1])
    values: list[Tensor] = []
    for dy, dx in product((0, 1), repeat=2):
        parts = []
        for at, d, k, grow in ((ys, spatial[0], dy, [count, shape[1], 1]), (xs, spatial[1], dx, [count, 1, shape[2]])):
            before = at.floor()
            rest = at - before
            index = bounded(before + float(k), 0.0, d - 1.0).cast(SI64)
            parts.append((index.reshape(grow), (rest if k else 1.0 - rest).reshape(grow)))
        flat = parts[0][0] * spatial[1] + parts[1][0] + base
        values.append(rows.take(flat) * (parts[0][1] * parts[1][1]).reshape([*shape, 1]))
    largest = node.attr("mode") == "max"
    mixed = reduce(lambda a, b: a.maximum(b) if largest else a + b, values)
    ok = logical("and", oky.reshape([count, shape[1], 1]), okx.reshape([count, 1, shape[2]]))
    mixed = ok.reshape([*shape, 1]).select(mixed, 0.0)
    cells = mixed.reshape([count, height, samples, width, samples, c])
    out = cells.reduce_max([2, 4]) if largest else cells.reduce_sum([2, 4]) / float(samples * samples)
    return back(out.transpose([0, 3, 1, 2]), node[0])
