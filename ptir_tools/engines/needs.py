"""What is asked of a value so that a program can run, and how the index arithmetic of PTO asks it of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import MemRefType, Shape, TileType

if TYPE_CHECKING:
    from ptir_tools.dialects.pto import affine, rules
else:
    affine = lazy("ptir_tools.dialects.pto.affine")
    rules = lazy("ptir_tools.dialects.pto.rules")


@dataclass(slots=True, frozen=True)
class Need:
    """What is asked of a value: below `bounds` (one for all elements, or one each of a vector), and not 0."""

    bounds: tuple[int, ...] = ()
    nonzero: bool = False

    def __or__(self, other: Need) -> Need:
        both = self.bounds or other.bounds
        if self.bounds and other.bounds:
            same = len(self.bounds) == len(other.bounds)
            both = tuple(map(min, self.bounds, other.bounds)) if same else (min(*self.bounds, *other.bounds),)
        return Need(both, self.nonzero or other.nonzero)

    def loosely(self) -> Need:
        """What holds for every element, whichever way they are moved."""
        return Need((min(self.bounds),) if self.bounds else (), self.nonzero)


NOTHING = Need()
Shapes = Mapping[Value, Sequence[int]]  # of memrefs whose type leaves extents open
Asked = Iterator[tuple[Operand, Need]]
TRIPS = 8  # of a loop whose bound nothing else limits


def at_most(n: int, least: int = 0) -> Need:
    """Between `least`, which is 0 or 1, and `n`; a window that does not fit takes the least there is."""
    return Need((max(n, least) + 1,), least > 0)


def of_tiles(op: Op, shapes: Shapes) -> Asked:
    """What a PTO op asks of its indices and valid extents: windows that lie in what they look at (seed 3.2; facts 3.1.5)."""
    if op.name == "pto.memref.subview":
        yield from _view(op, _looked_at(op, shapes))
        return
    tiles = [t for x in (*op.operands, *op.results) if isinstance(t := operand_type(x), TileType)]
    valid = rules.group(op, "valid")
    if not tiles or not (valid or op.name in _WINDOWS):
        return
    shape = (op.results[0].type if op.results and isinstance(op.results[0].type, TileType) else tiles[0]).shape
    for x, extent in zip(valid, shape, strict=False):
        if isinstance(extent, int):
            yield x, at_most(extent, 1)
    if op.name in _WINDOWS:
        yield from _window(rules.group(op, "indices"), valid, _looked_at(op, shapes), shape)


_WINDOWS = ("pto.tile.load", "pto.tile.store", "pto.tile.store.fp", "pto.tile.extract")


def _looked_at(op: Op, shapes: Shapes) -> Sequence[object]:
    """The extents of the memref that a load or store works on, or of the tile that is cut."""
    sources = [x for x in op.operands if isinstance(operand_type(x), MemRefType)] or op.operands[:1]
    t = operand_type(sources[0])
    assert isinstance(t, (MemRefType, TileType))
    return shapes.get(sources[0], t.shape) if isinstance(sources[0], Value) else t.shape


def _window(starts: Sequence[Operand], valid: Sequence[Operand], extents: Sequence[object], shape: Shape) -> Asked:
    """A start and as many elements as are valid, in each extent."""
    for d, (start, extent, whole) in enumerate(zip(starts, extents, shape, strict=False)):
        if not isinstance(extent, int) or not isinstance(whole, int):
            yield start, at_most(0)
            continue
        size = affine.constant(valid[d]) if valid else whole
        yield start, at_most(extent - (whole if size is None else size))
        if valid:
            yield valid[d], at_most(min(whole, extent - (affine.constant(start) or 0)), 1)


def _view(op: Op, extents: Sequence[object]) -> Asked:
    """A start, a count and a step in each extent."""
    for x, count, step, extent in zip(*(rules.group(op, g) for g in ("offsets", "sizes", "steps")), extents, strict=True):
        if isinstance(extent, int):
            span = ((affine.constant(count) or 1) - 1) * (affine.constant(step) or 1) + 1
            yield from (
                (x, at_most(extent - span)),
                (count, at_most(extent - (affine.constant(x) or 0), 1)),
                (step, at_most(1, 1)),
            )


def of_loop(op: Op, counter: Need) -> Asked:
    """Bounds for which the counter of a loop keeps what its body asks of it: few trips, or as many as what it indexes."""
    lower, upper, step = op.operands[:3]
    below = min(counter.bounds, default=TRIPS)
    return iter([(lower, at_most(below - 1)), (upper, at_most(below)), (step, at_most(TRIPS, 1))])


def of_arithmetic(op: Op, need: Need) -> Asked:
    """What the operands of index arithmetic must be for a result below a bound."""
    rule = _ARITHMETIC.get(op.name)
    if rule is None or not need.bounds:
        return iter(())
    most = min(need.bounds) - 1
    return iter(
        [(x, Need((max(rule(most, affine.constant(op.operands[~i])), 0) + 1,), need.nonzero)) for i, x in enumerate(op.operands)]
    )


# The largest value of an operand, from the largest of the result and the other operand, if that is a constant.
_ARITHMETIC: dict[str, Callable[[int, int | None], int]] = {
    "pto.addi": lambda most, other: most // 2 if other is None else most - other,
    "pto.muli": lambda most, other: isqrt(most) if other is None else most // max(other, 1),
    **dict.fromkeys(("pto.maxsi", "pto.minsi", "pto.index_cast"), lambda most, other: most),
}
