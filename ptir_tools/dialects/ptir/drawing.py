"""Generators of ops whose operands and attributes must fit each other (`generate` in their declarations).

A symbolic extent is assumed to be at least 1. Unless the program may have faults, ops that could fail at run time are avoided:
indices are in bounds, divisors are not 0, loops end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core.dtypes import I1, SI32, SI64, DType
from ptir_tools.core.generate import Draft, elementwise, least, required
from ptir_tools.core.ir import Attribute, OpDef, Operand, operand_type
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Shape, TensorType, TupleType, Type, tensor

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.generate import Growing

# ---- extents


def at_least_rank(low: int) -> Callable[[TensorType], bool]:
    """A predicate: whether a tensor has at least `low` axes."""
    return lambda t: t.rank >= low


def any_tensor(g: Growing, low: int = 1) -> Operand:
    """A tensor of at least `low` axes."""
    found = g.any(at_least_rank(low))
    return found if found is not None else g.fresh(tensor(g.one(g.dtypes), g.shape(low)))


# ---- indices


def indices(g: Growing, shape: Shape, bounds: Sequence[int], dtype: DType | None = None) -> Operand:
    """Indices in [0, bound): constants, clamped values, or inputs. With several bounds, each position along the last axis has
    its own."""
    dtype = dtype or g.one((SI32, SI64))
    t = tensor(dtype, shape)
    if g.faults and g.choices.flag():
        return g.of_type(t)
    if t.is_static:
        rows = [bounds[i % len(bounds)] for i in range(t.count)]
        known = g.literal(t, [g.number(0, max(b - 1, 0)) for b in rows])
    if not t.is_static or (len(set(bounds)) == 1 and g.chance(1, 3)):
        zero, last = (g.spread(tensor(dtype), shape, n) for n in (0, max(min(bounds) - 1, 0)))
        return g.b.op("clamp", g.of_type(t), zero, last)
    return g.b.op("constant", value=known) if g.chance(3, 4) else known


def draw_take(g: Growing, defn: OpDef) -> Draft | None:
    """Rows of a tensor."""
    x = any_tensor(g)
    extent = least(g.type(x).shape[0])
    shape = g.shape(g.number(0, 2))
    if not extent and 0 not in shape:
        shape = (*shape, 0)
    return Draft([x, indices(g, shape, [extent])])


def _draw_axis(g: Growing) -> tuple[Operand, int, Shape, int] | None:
    """A tensor, an axis of it, the shape of indices along that, and their bound."""
    x = any_tensor(g)
    shape = list(g.type(x).shape)
    at = g.axis(len(shape))
    bound = least(shape[at])
    shape[at] = g.number(0, 3)
    return (x, at, tuple(shape), bound) if bound or 0 in shape else None


def draw_gather(g: Growing, defn: OpDef) -> Draft | None:
    """Elements along an axis."""
    if (found := _draw_axis(g)) is None:
        return None
    x, at, shape, bound = found
    return Draft([x, indices(g, shape, [bound])], {"axis": at})


def draw_scatter_reduce(g: Growing, defn: OpDef) -> Draft | None:
    """Updates along an axis."""
    if (found := _draw_axis(g)) is None:
        return None
    x, at, shape, bound = found
    updates = g.of_type(g.type(x).with_shape(shape))
    attrs = {"axis": at, "reduce": "replace"} if g.type(x).dtype is I1 else {"axis": at}
    return Draft([x, indices(g, shape, [bound]), updates], attrs)


def draw_scatter(g: Growing, defn: OpDef) -> Draft | None:
    """Windows at indices along some axes; along the others all or one element."""
    x = any_tensor(g)
    shape = g.type(x).shape
    starts = g.some(range(len(shape)))
    inserted = tuple(a for a in range(len(shape)) if g.choices.flag() and shape[a] != 0)
    kept = [a for a in range(len(shape)) if a not in inserted]
    window = [g.number(min(1, least(shape[a])), least(shape[a])) for a in kept]
    sizes = dict.fromkeys(inserted, 1) | dict(zip(kept, window, strict=True))
    bounds = [least(shape[a]) - sizes[a] + 1 for a in starts]
    batch = list(g.shape(g.number(0, 2)))
    if len(starts) == 1 and g.choices.flag():
        at, vector = None, batch
    else:
        at = g.number(0, len(batch))
        vector = [*batch[:at], len(starts), *batch[at:]]
    order = list(g.choices.shuffled(["batch"] * len(batch) + ["window"] * len(window)))
    sources = {"batch": iter(batch), "window": iter(window)}
    updates = [next(sources[kind]) for kind in order]
    if at is None or at == len(batch):
        places = indices(g, tuple(vector), bounds or [1])
    else:
        places = indices(g, tuple(vector), [min(bounds, default=1)])
    attrs = {
        "update_window_dims": tuple(i for i, kind in enumerate(order) if kind == "window"),
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": starts,
        "index_vector_dim": at,
    }
    return Draft([x, places, g.of_type(g.type(x).with_shape(updates))], attrs)


def draw_segment_reduce(g: Growing, defn: OpDef) -> Draft | None:
    """A segment per row."""
    x = any_tensor(g)
    rows = g.type(x).shape[0]
    segments = g.number(0 if rows == 0 else 1, 4)
    return Draft([x, indices(g, (rows,), [segments])], {"num_segments": segments})


def draw_sort(g: Growing, defn: OpDef) -> Draft | None:
    """One to three operands of one shape, the key first."""
    x = any_tensor(g)
    t = g.type(x)
    others = [g.of_type(t.with_dtype(g.one(g.dtypes))) for _ in range(g.number(0, 2))]
    return Draft([[x, *others]], {"axis": g.axis(t.rank)})


def window_sizes(g: Growing, t: TensorType) -> tuple[int, ...]:
    """Extents of a window that fits."""
    return tuple(g.number(min(1, least(d)), least(d)) for d in t.shape)


def draw_dynamic_slice(g: Growing, defn: OpDef) -> Draft | None:
    """A window at any start: starts are clamped by the op."""
    x = any_tensor(g, 0)
    t = g.type(x)
    sizes = window_sizes(g, t)
    vector = tensor(g.one((SI32, SI64)), (t.rank,))
    start = g.of_type(vector) if t.rank and g.choices.flag() else indices(g, (t.rank,), [5], vector.dtype)
    update = [g.of_type(t.with_shape(sizes))] if len(defn.groups) == 3 else []
    return Draft([x, *update, start], {"sizes": sizes})


# ---- shapes


def draw_slice(g: Growing, defn: OpDef) -> Draft | None:
    """A window in bounds."""
    x = any_tensor(g, 0)
    sizes = window_sizes(g, g.type(x))
    starts = tuple(g.number(0, least(d) - n) for d, n in zip(g.type(x).shape, sizes, strict=True))
    return Draft([x], {"starts": starts, "sizes": sizes})


def draw_concat(g: Growing, defn: OpDef) -> Draft | None:
    """Tensors that differ along the axis."""
    first = any_tensor(g)
    t = g.type(first)
    at = g.axis(t.rank)
    fits = [
        x for x in g.tensors(lambda u: u.dtype is t.dtype and u.rank == t.rank)
        if all(a == b for i, (a, b) in enumerate(zip(g.type(x).shape, t.shape, strict=True)) if i != at % t.rank)
    ]  # fmt: skip
    others = [g.one(fits) if g.choices.flag() else _with_extent(g, t, at) for _ in range(g.number(0, 3))]
    return Draft([[first, *others]], {"axis": at})


def _with_extent(g: Growing, t: TensorType, at: int) -> Operand:
    shape = list(t.shape)
    shape[at] = g.extent()
    return g.of_type(t.with_shape(shape))


def draw_dot_general(g: Growing, defn: OpDef) -> Draft | None:
    """Two tensors that share batch and contracted axes, each in any order. The second is an existing value or a new one."""
    x = any_tensor(g, 0)
    t = g.type(x)
    axes = list(g.choices.shuffled(range(t.rank)))
    b, c = g.number(0, min(2, t.rank)), g.number(0, 2)
    batch, contract = axes[:b], axes[b : b + c]
    labels: list[tuple[str, int]] = [("b", a) for a in batch] + [("c", a) for a in contract]
    labels += [("f", i) for i in range(g.number(0, 2))]
    order = list(g.choices.shuffled(labels))
    other = t.with_shape(t.shape[a] if kind != "f" else g.extent() for kind, a in order)
    y = x if g.type(x) is other else g.of_type(other)
    attrs = {
        "batch_lhs": tuple(batch),
        "batch_rhs": tuple(order.index(("b", a)) for a in batch),
        "contract_lhs": tuple(a - t.rank if g.chance(1, 6) else a for a in contract),
        "contract_rhs": tuple(order.index(("c", a)) for a in contract),
    }
    return Draft([x, y], attrs)


def _windows(g: Growing, extents: Shape) -> dict[str, Attribute]:
    """Per axis: window, strides, padding and dilations, of which at least one placement fits."""
    rows: list[tuple[int, int, tuple[int, int], int, int]] = []
    for d in extents:
        if g.chance(1, 3):
            rows.append((1, 1, (0, 0), 1, 1))
            continue
        low, high, base, gap = g.number(0, 2), g.number(0, 2), g.one((1, 1, 2)), g.one((1, 1, 2, 3))
        room = (least(d) - 1) * base + 1 + low + high if least(d) else low + high
        taps = g.number(1, max(1, min(3, (room - 1) // gap + 1)))
        rows.append((taps, g.number(1, 3), (low, high), base, gap))
    names = ("window", "strides", "padding", "base_dilation", "window_dilation")
    return {name: tuple(row[i] for row in rows) for i, name in enumerate(names)}


def draw_reduce_window(g: Growing, defn: OpDef) -> Draft | None:
    """A window over every axis."""
    x = any_tensor(g)
    found = _windows(g, g.type(x).shape)
    return Draft([x], {"window_dims": found.pop("window"), **found})


def draw_extract_patches(g: Growing, defn: OpDef) -> Draft | None:
    """A window over the axes between the first and the last."""
    x = any_tensor(g, 3)
    t = g.type(x)
    found = _windows(g, tuple(least(d) for d in t.shape[1:-1]))
    attrs = {"window": found["window"]}
    if all(n <= least(d) for n, d in zip(found["window"], t.shape[1:-1], strict=True)) and g.choices.flag():
        return Draft([x], attrs)
    room = [least(d) + sum(p) if least(d) else 0 for d, p in zip(t.shape[1:-1], found["padding"], strict=True)]
    gaps = zip(found["window"], found["window_dilation"], room, strict=True)
    attrs |= {"strides": found["strides"], "padding": found["padding"]}
    return Draft([x], attrs | {"dilation": tuple(gap if (n - 1) * gap < r else 1 for n, gap, r in gaps)})


# ---- numbers


def draw_division(g: Growing, defn: OpDef) -> Draft | None:
    """Two operands of one type. An integer divisor is at least 1, or a constant without 0."""
    groups = elementwise(g, defn)
    if groups is None or g.faults:
        return None if groups is None else Draft(groups)
    t = g.type(groups[1])
    if t.dtype.is_integer:
        groups[1] = g.b.op("maximum", groups[1], g.spread(tensor(t.dtype), t.shape, 1)) if g.choices.flag() else g.nonzero(t)
    return Draft(groups)


def draw_layer_norm(g: Growing, defn: OpDef) -> Draft | None:
    """Scale and shift are vectors along the feature axis."""
    x = any_tensor(g)
    t = g.type(x)
    at = g.axis(t.rank)
    vector = t.with_shape((t.shape[at],))
    attrs: dict[str, Attribute] = {} if at in (-1, t.rank - 1) else {"feature_axis": at}
    return Draft([x, g.of_type(vector), g.of_type(vector)], {**attrs, **required(g, defn, [x])})


def draw_custom_call(g: Growing, defn: OpDef) -> Draft | None:
    """A known target that takes any shape."""
    x = any_tensor(g)
    t = g.type(x)
    at = g.axis(t.rank)
    along, eps = ("axis", ("I64", at)), ("eps", ("F64", g.one((1e-5, 0.5))))
    vector = t.with_shape((t.shape[at],))
    target, xs, attrs = g.one(
        (
            ("ptir.softmax.v1", [x], (along,)),
            ("ptir.log_softmax.v1", [x], (along,)),
            ("ptir.gelu.v1", [x], (("approximate", ("String", g.one(("none", "tanh", "sigmoid")))),)),
            ("ptir.silu.v1", [x], ()),
            ("ptir.rms_norm.v1", [x, g.of_type(vector)], (along, eps)),
            ("ptir.attention.v1", [x, g.of_type(t), g.of_type(t)], (("scale", ("F64", 0.5)),)),
        )
    )
    return Draft([xs], {"target": target, **({"attrs": attrs} if attrs else {})})


# ---- regions

MAX_DEPTH = 3  # regions around an op
REUSABLE_REGIONS = 32  # regions, the last ones, that a branch may run again


def _carried(g: Growing, low: int) -> list[Operand]:
    """The operands of a region: some values, sometimes a tuple among them."""
    tuples = [x for x in g.values if isinstance(operand_type(x), TupleType)]
    return [g.one(tuples) if tuples and g.chance(1, 3) else g.one(g.values) for _ in range(g.number(low, 3)) if g.values]


def _types(xs: Sequence[Operand]) -> list[Type]:
    return [operand_type(x) for x in xs]


def draw_cond(g: Growing, defn: OpDef) -> Draft | None:
    """Two regions, one region twice, or an existing one."""
    if g.depth >= MAX_DEPTH:
        return None
    flag = g.of_type(tensor(I1))
    known = [r for r in g.finished[-REUSABLE_REGIONS:] if all(g.has(p.type) for p in r.params)]
    if known and g.chance(1, 4):
        first = g.one(known)
        wanted = [p.type for p in first.params]
        alike = [r for r in known if [p.type for p in r.params] == wanted and r.result_types == first.result_types]
        return Draft([flag, [g.of_type(t) for t in wanted]], regions=(first, g.one(alike)))
    given = _carried(g, 0)
    types = _types(given)
    inner = g.inside(types)
    inner.grow(g.number(0, 3))
    there = inner.leaving(types) or [inner.fresh(inner.plain())]
    first = inner.close([g.one(there) for _ in range(g.number(1, 3))])
    if g.chance(1, 6):
        return Draft([flag, given], regions=(first, first))
    other = g.inside(types)
    other.grow(g.number(0, 3))
    return Draft([flag, given], regions=(first, other.close([other.of_type(t) for t in first.result_types])))


def draw_while(g: Growing, defn: OpDef) -> Draft | None:
    """A counter and other carries; up to three trips."""
    if g.depth >= MAX_DEPTH:
        return None
    carry = _carried(g, 0)
    counter = tensor(g.one((SI32, SI64)))
    types = [counter, *_types(carry)]
    test = g.inside(types)
    test.grow(g.number(0, 2))
    i, *rest = test.params
    kept = [test.of_type(t) if g.chance(1, 4) else x for t, x in zip(types[1:], rest, strict=True)]
    below = test.b.op("compare_lt", i, test.number_of(counter, g.number(0, 3)))
    first = test.close([below, i, *kept])
    body = g.inside(types)
    body.grow(g.number(0, 3))
    i, *rest = body.params
    again = [body.of_type(t) if g.chance(2, 3) else x for t, x in zip(types[1:], rest, strict=True)]
    second = body.close([body.b.op("add", i, body.number_of(counter, 1)), *again])
    return Draft([[g.number_of(counter, 0), *carry]], regions=(first, second))


def draw_scan(g: Growing, defn: OpDef) -> Draft | None:
    """A scan over tensors of one leading extent, with any number of carries and stacked outputs."""
    if g.depth >= MAX_DEPTH:
        return None
    first = any_tensor(g)
    steps = g.type(first).shape[0]
    others = g.tensors(lambda t: t.rank > 0 and t.shape[0] == steps)
    inputs = [first, *(g.one(others) for _ in range(g.number(0, 2)) if others)]
    carry = _carried(g, 0)
    types = [*_types(carry), *(g.type(x).with_shape(g.type(x).shape[1:]) for x in inputs)]
    body = g.inside(types)
    body.grow(g.number(0, 4))
    again = [body.of_type(t) if g.chance(2, 3) else x for t, x in zip(types[: len(carry)], body.params, strict=False)]
    made = body.tensors()
    stacked = [body.one(made) for _ in range(g.number(0 if carry else 1, 2))]
    region = body.close([*again, *stacked])
    attrs = {"carry_count": len(carry), "scan_output_count": len(stacked)}
    return Draft([[*carry, *inputs]], attrs, (region,))
