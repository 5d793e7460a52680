"""A product and the only user of its result, a depthwise convolution, by bands of lines, so that the values between them stay
in cache.

MobileNet has such pairs: one widens an image, the other filters each channel. Input lines that two bands share are computed
twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.engines.native import convolution, fusion, products, threads
from ptir_tools.engines.native.convolution import Convolution, Epilogue
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import lowered
from ptir_tools.engines.native.products import Product
from ptir_tools.engines.native.tiles import matrix, register_kinds
from ptir_tools.engines.numpy.steps import Look, Step, Workshop, fused, overlaps
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.liveness import Unit


class Pair(NamedTuple):
    """A product and a depthwise convolution of its result, each with an epilogue."""

    first: Product
    second: Product
    conv: Convolution

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps of both."""
        return assemble(self, look, outs, shop)


def joined(units: list[Unit], uses: fusion.Uses) -> list[Unit]:
    """`units` with each pair as one."""
    makers = {u[-1].results[0]: u for u in units if len(u[-1].results) == 1}
    pairs: dict[int, Unit] = {}  # by the unit of the convolution
    gone: set[int] = set()
    for unit in units:
        image = _image(unit, uses)
        made = makers.get(image) if image is not None else None
        if made is not None and (found := _pair(made, unit, uses)) is not None:
            pairs[id(unit)] = fused(found, (*made, *unit))
            gone.add(id(made))
    return [pairs.get(id(u), u) for u in units if id(u) not in gone]


def _image(unit: Unit, uses: fusion.Uses) -> Value | None:
    """The image of a depthwise convolution, if nothing else reads it or its patches."""
    found = fusion.found_in(unit)
    conv = found.conv if isinstance(found, Product) else None
    if conv is None or not conv.is_depthwise or not conv.is_natural or len(conv.patches.attr("window")) != 2:
        return None
    image = conv.patches.operands[0]
    is_own = all(uses.are_by(unit, op.result) for op in conv.before)
    return image if isinstance(image, Value) and uses.only(image) is not None and is_own else None


def _product(unit: Unit) -> Product | None:
    """The product of f32 matrices that is a unit."""
    found = Product(unit[0], None, (), None) if unit.is_single else fusion.found_in(unit)
    if not isinstance(found, Product) or found.conv is not None or fusion.role(found.dot) != "product":
        return None
    return found if products.is_one(found.dot) else None


def _pair(made: Unit, unit: Unit, uses: fusion.Uses) -> Pair | None:
    """The pair of two units, if only the second one uses what the first one computes."""
    first, second = _product(made), fusion.found_in(unit)
    assert isinstance(second, Product) and second.conv is not None
    if first is None or not all(uses.are_by(made, op.result) for op in made[:-1]):
        return None
    shape = fusion.shape_of(made[-1].result.type)
    # The columns of the product are the channels of the image.
    same = len(shape) == 4 and products.extents(first.dot)[1] == shape[-1]
    ends = first.may_end and second.may_end
    return Pair(first, second, second.conv) if ends and same and 4 * prod(shape) >= at.pair else None


def assemble(found: Pair, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps of a pair: bands of lines for all threads, or one after the other if the group is not an epilogue."""
    steps: list[Step] = []
    first, second, conv = found
    made = first.ops[-1].result
    *_, wide, channels = fusion.shape_of(made.type)
    (value, out), *others = outs.items()
    left, into = products.contraction(first.dot, look, shop, steps)
    epilogues = [
        _epilogue(first, made, products.extents(first.dot)[0], channels, look, shop, steps),
        _epilogue(second, value, conv.places, channels, look, shop, steps),
    ]
    target = out.reshape(conv.places, channels)
    read = [left, *(x for e in epilogues if e is not None for _, x in e)]
    if others or None in epilogues or out.dtype != np.float32 or any(overlaps(x, out) for x in read):
        whole = shop.scratch(fusion.shape_of(made.type), F32)
        return [*first.steps(look, {made: whole}, shop), *second.steps(lambda x: whole if x is made else look(x), outs, shop)]
    weights = convolution.weights(conv, look, shop, steps)
    bands = _bands(found, at.band // (4 * wide * channels))
    workers = min(shop.threads, len(bands))
    longest = max(b.lines.stop - b.lines.start for b in bands)
    parts: list[Step] = []
    for w in range(workers):
        room = shop.scratch((kernels().PACKED_SCRATCH,), F32)
        block = shop.scratch((longest * wide, channels), F32)
        chain: list[Step] = []
        for b in bands[w::workers]:
            seen = slice(b.lines.start * wide, b.lines.stop * wide)
            band = block[: seen.stop - seen.start]
            chain += into(seen, band, room, _rows(epilogues[0], seen))
            image = band.reshape(1, -1, wide, channels)
            rest = (0, kernels().WEIGHTED, _rows(epilogues[1], b.rows))
            chain.append((kernels().windows, (target[b.rows], image, weights, b.geometry, *rest)))
        parts.append((threads.in_turn, (chain,)))
    return [*steps, *threads.together(parts, workers)]


class _Band(NamedTuple):
    """Rows of the result, the input lines of all images, and the geometry of the windows there."""

    rows: slice
    lines: slice
    geometry: tuple[int, ...]


def _bands(found: Pair, most: int) -> list[_Band]:
    """Bands of at most `most` input lines, if that is enough for one line of the result; the same for any number of threads."""
    patches = found.conv.patches
    images, high, *_ = fusion.shape_of(found.first.ops[-1].result.type)
    places = fusion.shape_of(patches.result.type)[1:-1]
    window, strides, dilation = (patches.attr(name) for name in ("window", "strides", "dilation"))
    (low, _), (left, _) = patches.attr("padding")
    reach = (window[0] - 1) * dilation[0] + 1
    count = max(1, (most - reach) // strides[0] + 1)
    bands: list[_Band] = []
    for i in range(images):
        for s in threads.cuts(places[0], -(-places[0] // count)):
            top, end = s.start * strides[0] - low, (s.stop - 1) * strides[0] - low + reach
            first, last = max(0, min(top, high - 1)), max(1, min(end, high))
            above = first - top if top < high else end - top  # windows below the image, like those above it, have only padding
            geometry = (s.stop - s.start, places[1], *window, *strides, *dilation, above, left, found.conv.groups)
            rows = slice((i * places[0] + s.start) * places[1], (i * places[0] + s.stop) * places[1])
            bands.append(_Band(rows, slice(i * high + first, i * high + last), geometry))
    return bands


def _epilogue(
    found: Product, result: Value, rows: int, columns: int, look: Look, shop: Workshop, steps: list[Step]
) -> Epilogue | None:
    """The group of a product as an epilogue that computes `result`; None if it is not one."""
    group = found.group
    if group is None:
        return ()
    arrays = [None if v is found.made else matrix(look(v), rows, columns, shop, steps) for v in group.inputs]
    code, _ = lowered(group, [result], register_kinds(group, arrays, [result]))
    return products.epilogue(code, arrays, columns)


def _rows(epilogue: Epilogue | None, rows: slice) -> Epilogue:
    return tuple((op, x[rows]) for op, x in epilogue or ())
