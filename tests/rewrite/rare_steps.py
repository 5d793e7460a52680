"""Steps of random programs: what typed patterns look for, and free steps hardly ever make."""

from __future__ import annotations

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder
from ptir_tools.core.dtypes import F32, I1, SI32, UI8
from ptir_tools.core.ir import Element, Literal, Region, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.ops.scalars import Scalar, natural_kind, natural_zero
from tests.rewrite.programs import COMPARISONS, Growing, binary, broadcast, cast, compare, cut, reduce, reshape, transpose, unary


def integers(g: Growing, values: object) -> Value:
    a = np.asarray(values, np.int32)
    return g.b.op("constant", value=arrays.to_literal(a, tensor(SI32, a.shape)))


def largest(g: Growing, x: Value) -> Value:
    return g.b.op("argmax", x, axis=g.rng.randrange(-x.type.rank, x.type.rank), keepdims=g.rng.random() < 0.5)


def scaled(g: Growing, x: Value) -> Value:
    return g.b.op("mul", x, g.full(x.type, 2))


def padded(g: Growing, x: Value) -> Value:
    d = x.type.dtype
    fill = g.rng.choice((natural_zero(d), Scalar(natural_kind(d), d.min if d.is_integer else -np.inf)))
    one = tuple(g.rng.choice((0, 1)) for _ in x.type.shape)
    return g.b.op("pad", x, low=one, high=one, interior=one, pad_value=fill)


def reduced(g: Growing, x: Value) -> Value:
    """A sum, or an extreme, of what was reduced, transposed, reshaped or repeated."""
    way = g.rng.choice((transpose, reshape, broadcast, scaled, padded, None))
    kind = g.rng.choice(("reduce_sum", "reduce_sum", "reduce_max"))
    y = way(g, x) if way else g.b.op(kind, x, axes=(g.rng.randrange(x.type.rank),))
    copies = y.type.rank - x.type.rank
    axes = tuple(range(copies)) if copies > 0 else tuple(a for a in range(y.type.rank) if g.rng.random() < 0.6)
    return g.b.op(kind, y, axes=axes, keepdims=g.rng.random() < 0.5)


def joined(g: Growing, x: Value) -> Value:
    """Equal elements before or after."""
    parts = [x, g.full(x.type, g.rng.choice((0, 1)))]
    return g.b.op("concat", parts[:: g.rng.choice((1, -1))], axis=g.rng.randrange(x.type.rank))


def rearranged(g: Growing, x: Value) -> Value:
    """A scalar, or a row of numbers that count, repeated and rearranged."""
    if g.rng.random() < 0.5:
        y = g.b.op("iota", shape=x.type.shape, dtype=g.rng.choice((SI32, F32, UI8)), axis=g.rng.randrange(x.type.rank))
    else:
        y = g.b.op("broadcast_to", g.b.op("reduce_max", x, axes=tuple(range(x.type.rank))), result_shape=x.type.shape)
    return g.rng.choice((transpose, reshape, cut, broadcast, cast, reduce))(g, y)


def rows(g: Growing, x: Value) -> Value:
    """Rows that follow each other, or nearly, by constant indices."""
    n, m = x.type.shape[0], g.rng.randint(1, 3)
    run = np.arange(m) + g.rng.randrange(n)
    if g.rng.random() < 0.5:
        return g.b.op("take", x, integers(g, (run if g.rng.random() < 0.7 else run[::-1]) % n))
    shape = (m, *x.type.shape[1:])
    run = run.reshape(-1, *(1,) * (x.type.rank - 1)) % n
    return g.b.op("gather", x, integers(g, np.broadcast_to(run, shape)), axis=0)


def written(g: Growing, x: Value) -> Value:
    """A window written once or twice, of equal elements or not."""
    at = integers(g, [g.rng.randint(-1, 1) for _ in x.type.shape])
    sizes = tuple(g.rng.randint(1, d) for d in x.type.static_shape)
    update = g.b.op("slice", g.like(x), starts=(0,) * x.type.rank, sizes=sizes)
    base = g.number(x.type) if g.rng.random() < 0.4 else x
    y = g.b.op("dynamic_update_slice", base, update, at, sizes=sizes)
    if g.rng.random() < 0.3:
        return cut(g, y)
    again = at if g.rng.random() < 0.8 else integers(g, [0] * x.type.rank)
    return y if g.rng.random() < 0.5 else g.b.op("dynamic_update_slice", y, g.b.op("neg", update), again, sizes=sizes)


def windows(g: Growing, x: Value) -> Value:
    n, one = x.type.rank, (1,) * x.type.rank
    window = tuple(g.rng.choice((1, 1, 2)) for _ in one)
    dilated = tuple(g.rng.choice((1, 2)) for _ in one)
    kind = g.rng.choice(("sum", "max"))
    return g.b.op(
        "reduce_window", x, window_dims=window, strides=one, padding=((0, 0),) * n, base_dilation=one, window_dilation=dilated,
        reduce=kind,
    )  # fmt: skip


def product(g: Growing, x: Value) -> Value:
    """A contraction with the identity, with zeros, of what is repeated or widened; transposed, sliced or cast then."""
    n, k = x.type.shape[0], x.type.shape[-1]
    way = g.rng.randrange(5)
    if way == 0:
        y = g.b.op("constant", value=arrays.to_literal(np.eye(k), tensor(x.type.dtype, (k, k))))
    elif way == 1:
        y = g.full(tensor(x.type.dtype, (k, 2)), 0)
    elif way == 2:
        x, y = (g.b.op("cast", v, dtype=F32) for v in (x, g.value(x.type.with_shape((k, 2)))))
    else:
        y = g.value(x.type.with_shape((k, g.rng.choice((2, n)))))
    batched = way == 3 and x.type.rank == 3
    if batched:
        y = g.b.op("broadcast_to", y, result_shape=(n, *y.type.shape))
    x = g.b.op("broadcast_to", x, result_shape=(3, *x.type.shape[1:])) if way == 4 and n == 1 else x
    batch = (0,) if batched else ()
    z = g.b.op(
        "dot_general", x, y, batch_lhs=batch, batch_rhs=batch, contract_lhs=(-1,), contract_rhs=(len(batch),),
        out_dtype=g.rng.choice((None, F32)) if x.type.dtype.is_float else None,
    )  # fmt: skip
    return g.rng.choice((lambda g, z: z, transpose, cut, cast, reshape))(g, z)


def paired(g: Growing, x: Value) -> Value:
    """A contraction of all axes, named in any order."""
    axes = tuple(g.rng.sample(range(x.type.rank), x.type.rank))
    return g.b.op("dot_general", x, g.like(x), contract_lhs=axes, contract_rhs=axes)


def widened(g: Growing, x: Value) -> Value:
    """What was converted to another dtype, then transposed."""
    return transpose(g, cast(g, x))


def alike(g: Growing, x: Value) -> Value:
    """One of two results of an op."""
    flag, y, z = g.value(tensor(I1, x.type.shape)), g.value(x.type), g.value(x.type)
    kind = g.rng.choice(("exp", "neg", "abs", "tanh", "sub", "mul", "maximum", "compare_lt"))
    others = [] if kind in ("exp", "neg", "abs", "tanh") else [z]
    return g.b.op("select", flag, g.b.op(kind, x, *others), g.b.op(kind, y, *others))


def chosen(g: Growing, x: Value) -> Value:
    """What is computed of one of two numbers."""
    flag = g.value(tensor(I1, x.type.shape))
    y = g.b.op("select", flag, g.full(x.type, g.rng.choice((0, 1))), g.full(x.type, g.rng.choice((1, 2))))
    return g.rng.choice((unary, cast, compare, binary))(g, y)


def negated(g: Growing, x: Value) -> Value:
    y = g.full(x.type, g.rng.choice((0, 1))) if g.rng.random() < 0.5 else g.b.op("neg", g.value(x.type))
    return g.b.op(g.rng.choice(COMPARISONS), g.b.op("neg", x), y)


def units(g: Growing, x: Value) -> Value:
    """A scalar that is repeated, or what has got extents 1, then transposed."""
    if g.rng.random() < 0.5:
        return transpose(g, g.b.op("broadcast_to", g.value(tensor(x.type.dtype)), result_shape=x.type.shape))
    at = g.rng.randint(0, x.type.rank)
    return transpose(g, g.b.op("reshape", x, new_shape=(*x.type.shape[:at], 1, *x.type.shape[at:])))


def branch(g: Growing, x: Value) -> Value:
    """A branch whose regions are alike or not; what they return they were given, or computed, or it is a number."""
    x = g.b.op("reduce_max", x, axes=tuple(range(x.type.rank))) if g.rng.random() < 0.5 else x
    pair = g.rng.random() < 0.4
    regions = [arm(g, x.type, pair, f"r{len(g.program.regions) + i}") for i in range(2)]
    flag = g.value(tensor(I1)) if g.rng.random() < 0.6 else g.full(tensor(I1), g.rng.random() < 0.5)
    flag = g.b.op("compare_eq", flag, g.full(tensor(I1), False)) if g.rng.random() < 0.5 else flag
    made = g.b.op("cond", flag, [x], regions=regions)
    found = g.b.op("maximum", Element(made, 0), Element(made, 1)) if pair else made
    g.program.regions += regions
    return found


def ones(t: TensorType) -> Literal:
    return Literal(t, arrays.pack(np.ones(1, arrays.numpy_dtype(t.dtype)), t.dtype), splat=t.count > 1)


def scanned(g: Growing, x: Value) -> Value:
    """What a scan carries and stacks: as it came, never changed, a number."""
    row = x.type.with_shape(x.type.shape[1:])
    region = Region(f"r{len(g.program.regions)}")
    b = Builder(DIALECT, region)
    carry, step = b.param(row), b.param(row)
    one = b.op(
        "constant", value=Literal(row, arrays.pack(np.ones(1, arrays.numpy_dtype(row.dtype)), row.dtype), splat=row.count > 1)
    )
    b.results(g.rng.choice((b.op("maximum", carry, step), carry)), g.rng.choice((step, carry, one)))
    made = g.b.op("scan", [g.value(row), x], regions=[region], carry_count=1, scan_output_count=1)
    found = g.b.op("abs", Element(made, g.rng.randrange(2)))
    g.program.regions.append(region)
    return found


def turned(g: Growing, x: Value) -> Value:
    """Parts that are transposed alike, joined."""
    perm = tuple(g.rng.sample(range(x.type.rank), x.type.rank))
    parts = [g.b.op("transpose", v, perm=perm) for v in (x, g.value(x.type))]
    return g.b.op("concat", parts, axis=g.rng.randrange(x.type.rank))


def arm(g: Growing, t: TensorType, pair: bool, name: str) -> Region:
    region = Region(name)
    b = Builder(DIALECT, region)
    x = b.param(t)
    y = g.rng.choice((lambda: x, lambda: b.op("neg", x), lambda: b.op("constant", value=ones(t))))()
    b.results(*(x,) * pair, y)
    return region


RARE = (
    scanned, scanned, turned, alike, chosen, negated, units, widened, branch, branch, largest, reduced, reduced,
    reduced, joined, rearranged, rows, written, windows, product, product, product, paired,
)  # fmt: skip
