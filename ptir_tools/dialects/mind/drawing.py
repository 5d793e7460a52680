"""Generators of operations whose operands and attributes must fit each other (`generate` in their declarations)."""

from __future__ import annotations

from ptir_tools.core.dtypes import SI32, SI64
from ptir_tools.core.generate import Draft, plain
from ptir_tools.core.ir import OpDef, Operand
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import tensor

if TYPE_CHECKING:
    from ptir_tools.dialects.mind.generate import Growing


def any_tensor(g: Growing, low: int = 0, high: int = 4) -> Operand:
    """A tensor of `low` to `high` axes, none of them empty."""
    found = g.any(lambda t: low <= t.rank <= high and 0 not in t.shape)
    return found if found is not None else g.fresh(tensor(g.one(g.dtypes), g.shape(low)))


def _extents(g: Growing, x: Operand) -> tuple[int, ...]:
    return g.type(x).static_shape


def draw_index(g: Growing, defn: OpDef) -> Draft | None:
    """An index in bounds."""
    x = any_tensor(g)
    return Draft([x], {"indices": tuple(g.number(0, n - 1) for n in _extents(g, x))})


def draw_slice(g: Growing, defn: OpDef) -> Draft | None:
    """Any bounds: they are clamped."""
    x = g.any()
    if x is None:
        return None
    rows = [(g.number(-1, n), g.number(min(n, 1), n + 2), g.number(1, 3)) for n in _extents(g, x)]
    return Draft([x], {name: tuple(row[i] for row in rows) for i, name in enumerate(("starts", "ends", "steps"))})


def draw_gather(g: Growing, defn: OpDef) -> Draft | None:
    """Indices in bounds: constant, or an input."""
    x = any_tensor(g, 1)
    rows = _extents(g, x)[0]
    t = tensor(g.one((SI32, SI64)), g.shape(g.number(0, 2)))
    if g.faults or g.chance(1, 4):
        return Draft([x, g.input(t)])
    return Draft([x, g.constant(t, [g.number(0, rows - 1) for _ in range(t.count)])])


def draw_matmul(g: Growing, defn: OpDef) -> Draft | None:
    """Matrices whose inner extents agree, with batches that broadcast."""
    x = any_tensor(g, 2)
    *batch, _, k = _extents(g, x)
    kept = batch[g.number(0, len(batch)) :]
    shape = (*(1 if g.chance(1, 4) else n for n in kept), k, g.extent())
    return Draft([x, g.of_type(g.type(x).with_shape(shape))])


def draw_dot(g: Growing, defn: OpDef) -> Draft | None:
    """Vectors or matrices whose inner extents agree."""
    x = any_tensor(g, 1, 2)
    shape = (_extents(g, x)[-1], *(g.extent() for _ in range(g.number(0, 1))))
    return Draft([x, g.of_type(g.type(x).with_shape(shape))])


def draw_conv2d(g: Growing, defn: OpDef) -> Draft | None:
    """An image, a filter that fits, and padding of each kind."""
    x = any_tensor(g, 4)
    channels = _extents(g, x)[3]
    window = (g.number(1, 3), g.number(1, 3))
    kernel = g.of_type(g.type(x).with_shape((*window, channels, g.extent())))
    pads = tuple((g.number(0, 2), g.number(0, 2)) for _ in window)
    padding: object = g.one(("Same", "Valid", pads))
    return Draft([x, kernel], {"strides": (g.number(1, 3), g.number(1, 3)), "padding": padding})


def draw_mean(g: Growing, defn: OpDef) -> Draft | None:
    """A Mean; integers have none over nothing."""
    draft = plain(g, defn)
    if draft is None or g.faults:
        return draft
    x = draft.groups[0]
    assert isinstance(x, Operand)
    t = g.type(x)
    return None if t.dtype.is_integer and 0 in t.shape else draft
