"""A product and the only user of its result, a depthwise convolution, by bands of lines, so that the values between them stay
in cache.

MobileNet has such pairs: one widens an image, the other filters each channel. A line of two bands is computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.engines.native import convolution, fusion, products, threads
from ptir_tools.engines.native.convolution import Convolution, Ending
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import lowered
from ptir_tools.engines.native.tiles import matrix, register_kinds
from ptir_tools.engines.numpy.steps import Step, Workshop, overlaps

LARGE = 1 << 20  # bytes of a product that does not stay in cache until the convolution reads it
BAND = 1 << 19  # bytes of a band of it


class Pair(NamedTuple):
    """The ops of a product, and those of the convolution, each with an ending."""

    first: tuple[Op, ...]
    second: tuple[Op, ...]
    conv: Convolution

    @property
    def patches(self) -> Op:
        """The op that extracts the patches of the convolution."""
        return self.conv.ops[0]


def joined(block: Region, steps: list[tuple[Op, ...]]) -> list[tuple[Op, ...]]:
    """`steps` with each pair as one step."""
    uses = Counter(v for op in block.body for v in op.values())
    uses.update(x for x in block.results if isinstance(x, Value))
    makers = {s[-1].results[0]: s for s in steps if len(s[-1].results) == 1}
    before: dict[tuple[Op, ...], tuple[Op, ...]] = {}
    for s in steps:
        image = s[0].operands[0] if s[0].operands else None
        made = makers.get(image) if isinstance(image, Value) and uses[image] == 1 else None
        if made is not None and pair((*made, *s)) is not None:
            before[s] = made
    gone = set(before.values())
    return [(*before.get(s, ()), *s) for s in steps if s not in gone]


def pair(ops: Sequence[Op]) -> Pair | None:
    """The pair of `ops`."""
    at = [i for i, op in enumerate(ops) if fusion.role(op) == "product"]
    if len(at) != 2 or not products.is_one(ops[at[0]]) or at[0]:
        return None
    uses = Counter(v for op in ops for v in op.values())
    found = convolution.recognized(ops[at[1]], uses, {v: op for op in ops for v in op.values()})
    if found is None or not found.is_depthwise or not found.is_natural or len(found.ops[0].attr("window")) != 2:
        return None
    start = ops.index(found.ops[0])
    first, inner = tuple(ops[:start]), ops[start + len(found.ops) :]
    image = found.ops[0].operands[0]
    shape = fusion.shape_of(image.type) if isinstance(image, Value) else ()
    ends = all(map(products.may_end, (*first[1:], *inner)))
    # The columns of the product are the channels of the image.
    same = len(shape) == 4 and image is first[-1].result and products.extents(first[0])[1] == shape[-1]
    return Pair(first, tuple(ops[start:]), found) if ends and same and 4 * prod(shape) >= LARGE else None


def assemble(found: Pair, data: Callable[[Operand], Data], outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps of a pair: bands of lines for all threads, or one after the other if the group is not an ending."""
    steps: list[Step] = []
    made = found.first[-1].result
    *_, wide, channels = fusion.shape_of(made.type)
    (value, out), *others = outs.items()
    rows = found.conv.places
    views = found.conv.ops
    inner = found.second[len(views) :]
    left, into = products.contraction(found.first[0], data, shop, steps)
    endings = [
        _ending(found.first[1:], found.first[:1], made, products.extents(found.first[0])[0], channels, data, shop, steps),
        _ending(inner, views, value, rows, channels, data, shop, steps),
    ]
    target = out.reshape(rows, channels)
    read = [left, *(x for e in endings if e is not None for _, x in e)]
    if others or None in endings or out.dtype != np.float32 or any(overlaps(x, out) for x in read):
        whole = shop.scratch(fusion.shape_of(made.type), F32)
        steps = products.assemble(found.first, data, {made: whole}, shop)
        return [*steps, *products.assemble(found.second, lambda x: whole if x is made else data(x), outs, shop)]
    weights = convolution.weights(found.conv, partial(data, found.conv.dot.operands[1 - found.conv.side]), shop, steps)
    bands = _bands(found, BAND // (4 * wide * channels))
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
            chain += into(seen, band, room, _rows(endings[0], seen))
            image = band.reshape(1, -1, wide, channels)
            rest = (0, kernels().WEIGHTED, _rows(endings[1], b.rows))
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
    images, high, *_ = fusion.shape_of(found.first[-1].result.type)
    places = fusion.shape_of(found.patches.result.type)[1:-1]
    window, strides, dilation = (found.patches.attr(name) for name in ("window", "strides", "dilation"))
    (low, _), (left, _) = found.patches.attr("padding")
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


def _ending(
    inner: Sequence[Op],
    own: Sequence[Op],
    result: Value,
    rows: int,
    columns: int,
    data: Callable[[Operand], Data],
    shop: Workshop,
    steps: list[Step],
) -> Ending | None:
    """The ops `inner` on the result of `own` as an ending; None if they are not one."""
    if not inner:
        return ()
    made = {op.result for op in own}
    views = [op for op in inner if fusion.role(op) == "reshape"]
    group = fusion.domain([op for op in inner if op not in views])
    made |= {op.result for op in views}
    arrays = [None if v in made else matrix(data(v), rows, columns, shop, steps) for v in group.inputs]
    code, _ = lowered(group, [result], register_kinds(group, arrays, [result]))
    return products.ending(code, arrays, columns)


def _rows(ending: Ending | None, rows: slice) -> Ending:
    return tuple((op, x[rows]) for op, x in ending or ())
