"""Generators of UOps whose attributes must fit their source (`generate` in their declarations)."""

from __future__ import annotations

from ptir_tools.core.generate import Draft, least
from ptir_tools.core.ir import Attribute, OpDef, Operand, Value
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim

if TYPE_CHECKING:
    from ptir_tools.dialects.tiny.generate import Growing

PIECES = 3  # consecutive ops that cut a value into pieces
RANK = 4


def any_value(g: Growing, low: int = 0, high: int = RANK) -> Operand | None:
    """A value of `low` to `high` axes."""
    return g.any(lambda t: low <= t.rank <= high)


def draw_expand(g: Growing, defn: OpDef) -> Draft | None:
    """New axes anywhere, and larger extents where the extent is 1."""
    x = any_value(g, 0, RANK - 1)
    if x is None:
        return None
    t = g.type(x)
    new = g.number(0, RANK - t.rank)
    axes = tuple(sorted(tuple(g.choices.shuffled(range(t.rank + new)))[: t.rank]))
    full: list[Dim] = [g.number(1, 3) for _ in range(t.rank + new)]
    for a, d in zip(axes, t.shape, strict=True):
        full[a] = g.number(2, 3) if d == 1 and g.choices.flag() else d
    attrs: dict[str, Attribute] = {"result_shape": tuple(full)}
    if axes != tuple(range(new, new + t.rank)) or g.choices.flag():
        attrs["broadcast_dimensions"] = axes
    return Draft([x], attrs)


def draw_pad(g: Growing, defn: OpDef) -> Draft | None:
    """Some elements before and after."""
    x = any_value(g)
    if x is None or fill_depth(x) >= PIECES:
        return None
    pairs = tuple((g.number(0, 1), g.number(0, 2)) if i < 2 else (0, 0) for i in range(g.type(x).rank))
    return Draft([x], {"pad": pairs})


def draw_shrink(g: Growing, defn: OpDef) -> Draft | None:
    """A slice, sometimes with steps."""
    x = any_value(g)
    if x is None:
        return None
    shape = g.type(x).shape
    lo = tuple(g.number(0, max(least(d) - 1, 0)) for d in shape)
    hi = tuple(d if g.chance(2, 3) else g.number(a, least(d)) for a, d in zip(lo, shape, strict=True))
    attrs: dict[str, Attribute] = {"lo": lo, "hi": hi}
    return Draft([x], attrs if g.choices.flag() else attrs | {"step": tuple(g.number(1, 3) for _ in lo)})


def draw_view(g: Growing, defn: OpDef) -> Draft | None:
    """A transpose, a reversal, a diagonal, a reshape by `//` and `%`, a guarded shift, a triangle; of any value, a repetition
    along a new axis."""
    x = g.any(lambda t: t.rank == 2 and t.is_static and 0 not in t.shape) if g.chance(3, 4) else any_value(g, 0, RANK - 1)
    if x is None or fill_depth(x) >= PIECES:
        return None
    t = g.type(x)
    if t.rank != 2 or not t.is_static or 0 in t.shape:
        return Draft([x], {"result_shape": (g.number(1, 3), *t.shape), "map": g.map([f"@{i + 1}" for i in range(t.rank)])})
    a, b = t.static_shape
    forms: list[tuple[tuple[int, ...], list[str], list[str]]] = [
        ((b, a, 2), ["@1", "@0"], []),
        ((b,), ["0", f"{b - 1}-@0"], []),
        ((min(a, b),), ["@0", "@0"], []),
        ((a * b,), [f"@0//{b}", f"@0%{b}"], []),
        ((a + 2, b), ["@0-1", "@1"], ["@0-1", f"{a}-@0"]),
        ((a, b), ["@0", "@1"], ["@1-@0"]),
    ]
    shape, entries, guards = g.one(forms)
    attrs = {"result_shape": shape, "map": g.map(entries)}
    return Draft([x], attrs | {"guard": g.map(guards), "fill": g.number_of(t.dtype)} if guards else attrs)


def draw_pool(g: Growing, defn: OpDef) -> Draft | None:
    """A window over the last axes."""
    x = g.any(lambda t: 1 <= t.rank <= 3 and isinstance(t.shape[-1], int) and t.shape[-1] > 0)
    if x is None:
        return None
    shape = g.type(x).shape
    n = g.number(1, len(shape)) if all(least(d) for d in shape) else 1
    rows = []
    for d in shape[len(shape) - n :]:
        kernel = g.number(1, min(2, least(d)))
        rows.append((kernel, g.number(1, 2), g.number(1, 2) if least(d) > 2 else 1))
    attrs: dict[str, Attribute] = {"kernel": tuple(r[0] for r in rows)}
    for i, name in ((1, "stride"), (2, "dilation")):
        if g.choices.flag():
            attrs[name] = tuple(r[i] for r in rows)
    return Draft([x], attrs)


def fill_depth(x: Operand) -> int:
    """How many consecutive ops before `x` have a fill. Each splits the domain of its source into pieces."""
    count, v = 0, x
    while isinstance(v, Value) and v.op is not None and v.op.operands:
        count += any(a.name in ("value", "fill") for a in v.op.defn.attrs)
        v = v.op.operands[0]
    return count
