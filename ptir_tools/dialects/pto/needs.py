"""The values that PTO ops need of their indices, valid extents and loop bounds (`core.ir.Asks`), for random inputs.

Also which ops may fail when these values are not as needed (`fails`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isqrt

from ptir_tools.core.ir import Asked, Asks, Need, Op, Operand, ShapeOf, operand_type
from ptir_tools.core.types import Shape
from ptir_tools.dialects.pto import affine, rules
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, ScalarType, TileType

Pairs = Iterator[tuple[Operand, Need]]
TRIPS = 8  # of a loop whose bound nothing else limits


def valid_fails(op: Op) -> bool:
    """Whether a valid extent may be outside the tile, because it is not constant."""
    return any(affine.constant(x) is None for x in rules.group(op, "valid"))


def window_fails(op: Op) -> bool:
    """Whether a window may be out of bounds or empty, because its start, size or bounds are not constant."""
    indices = (x for x in op.operands if operand_type(x) is INDEX_TYPE)
    memory = [t for x in op.operands if isinstance(t := operand_type(x), MemRefType)]
    return any(affine.constant(x) is None for x in indices) or any(not isinstance(d, int) for t in memory for d in t.shape)


def quotient_fails(op: Op) -> bool:
    """Whether an integer divisor may be 0, or a valid extent outside the tile."""
    t = op.results[0].type
    return valid_fails(op) or (isinstance(t, (TileType, ScalarType)) and not t.dtype.is_float)


def index_fails(op: Op) -> bool:
    """Whether an operand holds indices, which may be out of bounds."""
    return True


def divisor_fails(op: Op) -> bool:
    """Whether a scalar divisor may be 0."""
    return not affine.constant(op.operands[1])


def step_fails(op: Op) -> bool:
    """Whether the step of a loop may be 0 or negative."""
    return (affine.constant(op.operands[2]) or 0) <= 0


def at_most(n: int, least: int = 0) -> Need:
    """Numbers from `least` (0 or 1) to `n`; only `least` when `n` is smaller."""
    return Need((max(n, least) + 1,), least > 0)


def of_valid(op: Op, shape_of: ShapeOf) -> Pairs:
    """Bounds of valid extents: those of the tile."""
    tiles = [t for x in (*op.operands, *op.results) if isinstance(t := operand_type(x), TileType)]
    for x, extent in zip(rules.group(op, "valid"), _tile_shape(op) if tiles else (), strict=False):
        if isinstance(extent, int):
            yield x, at_most(extent, 1)


def of_window(op: Op, shape_of: ShapeOf) -> Pairs:
    """Bounds of windows: the memref that a load or store accesses, or the tile that is sliced."""
    yield from of_valid(op, shape_of)
    sources = [x for x in op.operands if isinstance(operand_type(x), MemRefType)] or op.operands[:1]
    yield from _window(rules.group(op, "indices"), rules.group(op, "valid"), shape_of(sources[0]), _tile_shape(op))


def of_insert(op: Op, shape_of: ShapeOf) -> Pairs:
    """Bounds of the offsets at which the first operand fits into the result."""
    yield from of_valid(op, shape_of)
    yield from _window(rules.group(op, "indices"), (), _tile_shape(op), shape_of(op.operands[0]))


def _tile_shape(op: Op) -> Shape:
    """The shape of the tile that an op makes, or of its first tile operand."""
    made = [v.type for v in op.results[:1] if isinstance(v.type, TileType)]
    taken = [t for x in op.operands if isinstance(t := operand_type(x), TileType)]
    return (*made, *taken)[0].shape


def _window(starts: Sequence[Operand], valid: Sequence[Operand], extents: Sequence[object], shape: Shape) -> Pairs:
    """Bounds of starts and valid extents, per dimension. Leading dimensions that `shape` lacks have extent 1."""
    more = len(starts) - len(shape)
    for d, (start, extent, whole) in enumerate(zip(starts, extents, (*(1,) * more, *shape), strict=False)):
        if not isinstance(extent, int) or not isinstance(whole, int):
            yield start, at_most(0)
            continue
        own = valid[d - more] if valid and d >= more else None
        size = affine.constant(own) if own is not None else whole
        yield start, at_most(extent - (whole if size is None else size))
        if own is not None:
            yield own, at_most(min(whole, extent - (affine.constant(start) or 0)), 1)


def of_view(op: Op, shape_of: ShapeOf) -> Pairs:
    """Bounds of offsets, sizes and steps, per dimension."""
    extents = shape_of(op.operands[0])
    for x, count, step, extent in zip(*(rules.group(op, g) for g in ("offsets", "sizes", "steps")), extents, strict=True):
        if isinstance(extent, int):
            span = ((affine.constant(count) or 1) - 1) * (affine.constant(step) or 1) + 1
            yield from (
                (x, at_most(extent - span)),
                (count, at_most(extent - (affine.constant(x) or 0), 1)),
                (step, at_most(1, 1)),
            )


def of_loop(op: Op, counter: Need) -> Asked:
    """Loop bounds for which the counter is in the range that the loop's body needs. They give a small trip count, or that of
    the indexed extent."""
    lower, upper, step = op.operands[:3]
    below = min(counter.bounds, default=TRIPS)
    return [(lower, at_most(below - 1)), (upper, at_most(below)), (step, at_most(TRIPS, 1))]


def arithmetic(largest: Callable[[int, int | None], int]) -> Asks:
    """Bounds of the operands of index arithmetic. `largest` gives the bound of an operand from that of the result and the
    other operand, if that is constant."""

    def passed(op: Op, need: Need) -> Pairs:
        for i, x in enumerate(op.operands if need.bounds else ()):
            most = largest(min(need.bounds) - 1, affine.constant(op.operands[~i]))
            yield x, Need((max(most, 0) + 1,), need.nonzero)

    return Asks(passed=passed)


def _difference(most: int, other: int | None) -> int:
    return most // 2 if other is None else most - other


def _quotient(most: int, other: int | None) -> int:
    return isqrt(most) if other is None else most // max(other, 1)


SUM, PRODUCT = arithmetic(_difference), arithmetic(_quotient)
NO_MORE = arithmetic(lambda most, other: most)  # the result is one of the operands
VALID, WINDOW, INSERT, VIEW, LOOP = Asks(of_valid), Asks(of_window), Asks(of_insert), Asks(of_view), Asks(around=of_loop)
