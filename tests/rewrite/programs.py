"""Random PTIR programs on which rules fire: few shapes (square ones too), many identities, chains and constants."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.builder import single_function
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F32, I1, SI8, SI32, UI8, DType
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT

SHAPES = ((), (1,), (3,), (3, 3), (2, 2, 2), (1, 3), (3, 1), (2, 3), (1, 1, 3), (6,), (1, 2, 1))
DTYPES = (F32, F32, F32, SI32, SI8, UI8, BF16)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, np.inf, -np.inf, np.nan, -np.nan, 1e-30, 3e38)
COMPARISONS = ("compare_lt", "compare_le", "compare_eq", "compare_ge", "compare_gt", "compare_ne")


def sample(rng: random.Random, t: TensorType) -> np.ndarray:
    """An array of `t`: special numbers, integer extremes."""
    n = prod(t.static_shape)
    if t.dtype is I1:
        flat = [rng.random() < 0.5 for _ in range(n)]
    elif t.dtype.is_float:
        flat = [rng.choice((*SPECIAL, rng.uniform(-4, 4))) for _ in range(n)]
    else:
        flat = [rng.choice((0, 1, t.dtype.max, t.dtype.min, rng.randint(max(t.dtype.min, -5), 5))) for _ in range(n)]
    with np.errstate(all="ignore"):
        return with_payloads(rng, np.array(flat).astype(arrays.numpy_dtype(t.dtype))).reshape(t.static_shape)


def with_payloads(rng: random.Random, a: np.ndarray) -> np.ndarray:
    """`a` with other payloads in its NaNs, where arithmetic keeps one; they stay quiet."""
    if a.dtype.name in ("float16", "float32", "float64"):
        bits = a.view(f"u{a.dtype.itemsize}")
        bits[np.isnan(a)] |= rng.randrange(32)
    return a


class Growing:
    """A program in the making. `values` are what ops may use, `made` those that are no parameters."""

    def __init__(self, seed: int, ops: int, steps: Sequence[Step] | None = None) -> None:
        self.rng = rng = random.Random(seed)
        self.program, self.b = single_function(DIALECT)
        dtype = rng.choice(DTYPES)
        shapes = rng.sample(SHAPES, 3)
        self.values: list[Value] = [self.b.param(tensor(dtype, s)) for s in (*shapes, shapes[0])]
        self.values.append(self.b.param(tensor(I1, shapes[0])))
        self.made: list[Value] = []
        while len(self.made) < ops:
            try:
                v = rng.choice(steps or STEPS)(self, rng.choice(self.values[-8:]))
            except (Violation, IndexError, ValueError):
                continue
            if v is not None and isinstance(v.type, TensorType) and prod(v.type.static_shape) <= 64:
                self.values.append(v)
                self.made.append(v)
        self.b.results(*rng.sample(self.made, min(5, len(self.made))))

    def like(self, x: Value) -> Value:
        """A value of the type of `x`, often `x` itself or a recent one."""
        same = [v for v in self.values if v.type is x.type]
        return self.rng.choice((same[-1], self.rng.choice(same), x))

    def number(self, t: TensorType) -> Value:
        """A constant of type `t`: uniform through a broadcast, uniform, or not."""
        rng = self.rng
        way = rng.randrange(4)
        if way < 2:
            values = (0.0, -0.0, 1.0, -1.0, 2.0) if t.dtype.is_float else (True, False) if t.dtype is I1 else (0, 1, 2)
            scalar = arrays.to_literal(np.array(rng.choice(values)).astype(arrays.numpy_dtype(t.dtype)), tensor(t.dtype))
            x = scalar if way else self.b.op("constant", value=scalar)
            return self.b.op("broadcast_to", x, result_shape=t.shape)
        x = sample(rng, t)
        return self.b.op("constant", value=arrays.to_literal(np.full_like(x, x.flat[0]) if way == 2 else x, t))


Step = Callable[[Growing, Value], Value]
Draw = Callable[[random.Random, TensorType], np.ndarray]


def unary(g: Growing, x: Value) -> Value:
    return g.b.op(g.rng.choice(("neg", "abs", "exp", "log", "reciprocal", "tanh", "neg", "abs", "reciprocal")), x)


def binary(g: Growing, x: Value) -> Value:
    name = g.rng.choice(("add", "sub", "mul", "maximum", "minimum", "div"))
    y = g.number(x.type) if g.rng.random() < 0.4 else g.like(x)
    if name == "div" and not x.type.dtype.is_float:
        return g.b.op(
            "div", x, g.b.op("maximum", y, g.b.op("constant", value=arrays.to_literal(np.ones(x.type.static_shape), x.type)))
        )
    return g.b.op(name, *((x, y) if g.rng.random() < 0.7 else (y, x)))


def compare(g: Growing, x: Value) -> Value:
    y = g.number(x.type) if g.rng.random() < 0.5 else g.like(x)
    return g.b.op(g.rng.choice(COMPARISONS), *((x, y) if g.rng.random() < 0.6 else (y, x)))


def select(g: Growing, x: Value) -> Value:
    flags = [v for v in g.values if v.type is tensor(I1, x.type.shape)]
    p = g.rng.choice(flags) if flags and g.rng.random() < 0.7 else g.number(tensor(I1, x.type.shape))
    return g.b.op("select", p, *((g.number(x.type) if g.rng.random() < 0.3 else g.like(x)) for _ in range(2)))


def clamp(g: Growing, x: Value) -> Value:
    return g.b.op("clamp", x, g.like(x), g.like(x))


def cast(g: Growing, x: Value) -> Value:
    d: DType = g.rng.choice((*DTYPES, I1, x.type.dtype))
    return g.b.op("cast", x, dtype=d)


def transpose(g: Growing, x: Value) -> Value:
    axes = list(range(x.type.rank))
    g.rng.shuffle(axes)
    return g.b.op("transpose", x, perm=tuple(a - x.type.rank if g.rng.random() < 0.2 else a for a in axes))


def reshape(g: Growing, x: Value) -> Value:
    shape = g.rng.choice([s for s in SHAPES if prod(s) == x.type.count])
    return g.b.op("reshape", x, new_shape=shape if not shape or g.rng.random() < 0.7 else (-1, *shape[1:]))


def broadcast(g: Growing, x: Value) -> Value:
    lead = g.rng.choice(((), (), (1,), (2,)))
    return g.b.op("broadcast_to", x, result_shape=(*lead, *(g.rng.choice((1, 3)) if d == 1 else d for d in x.type.shape)))


def cut(g: Growing, x: Value) -> Value:
    starts = tuple(g.rng.randrange(d) if g.rng.random() < 0.5 else 0 for d in x.type.static_shape)
    sizes = tuple(d - s if g.rng.random() < 0.6 else g.rng.randint(0, d - s) for s, d in zip(starts, x.type.shape, strict=True))
    return g.b.op("slice", x, starts=starts, sizes=sizes)


def halves(g: Growing, x: Value) -> Value:
    axis = g.rng.randrange(x.type.rank)
    at = g.rng.randint(0, x.type.shape[axis])
    sizes = [list(x.type.static_shape), list(x.type.static_shape)]
    sizes[0][axis], sizes[1][axis] = at, x.type.shape[axis] - at
    start = tuple(at if i == axis else 0 for i in range(x.type.rank))
    parts = [g.b.op("slice", x, starts=(0,) * x.type.rank, sizes=tuple(sizes[0]))]
    parts.append(g.b.op("slice", x, starts=start, sizes=tuple(sizes[1])))
    g.values += parts
    return g.b.op("concat", parts if g.rng.random() < 0.8 else parts[::-1], axis=axis)


def concat(g: Growing, x: Value) -> Value:
    return g.b.op("concat", [x, *(g.like(x) for _ in range(g.rng.randrange(3)))], axis=g.rng.randrange(-x.type.rank, x.type.rank))


def pad(g: Growing, x: Value) -> Value:
    low, high = (tuple(g.rng.choice((0, 0, 1)) for _ in x.type.shape) for _ in range(2))
    return g.b.op("pad", x, low=low, high=high)


def tile(g: Growing, x: Value) -> Value:
    return g.b.op("tile", x, repeats=tuple(g.rng.choice((1, 1, 2)) for _ in x.type.shape))


def reduce(g: Growing, x: Value) -> Value:
    axes = [a - x.type.rank if g.rng.random() < 0.2 else a for a in range(x.type.rank) if g.rng.random() < 0.5]
    g.rng.shuffle(axes)
    kind = g.rng.choice(("reduce_max", "reduce_min", "reduce_max", "reduce_sum"))
    return g.b.op(kind, x, axes=tuple(axes), keepdims=g.rng.random() < 0.5)


def dot(g: Growing, x: Value) -> Value:
    y = g.like(x)
    if x.type.rank == 3:
        return g.b.op(
            "dot_general", x, y, batch_lhs=(0,), batch_rhs=(0,), contract_lhs=(g.rng.choice((1, 2)),), contract_rhs=(2,)
        )
    return g.b.op("dot_general", x, y, contract_lhs=(g.rng.randrange(-1, x.type.rank),), contract_rhs=(0,))


def dynamic_slice(g: Growing, x: Value) -> Value:
    start = arrays.to_literal(np.array([g.rng.randint(-1, 3) for _ in x.type.shape]), tensor(SI32, (x.type.rank,)))
    sizes = tuple(g.rng.randint(1, d) for d in x.type.static_shape)
    return g.b.op("dynamic_slice", x, g.b.op("constant", value=start), sizes=sizes)


STEPS = (
    unary, unary, binary, binary, binary, compare, select, clamp, cast, transpose, transpose, reshape, reshape, broadcast,
    broadcast, cut, halves, concat, pad, tile, reduce, reduce, dot, dynamic_slice,
)  # fmt: skip


def grow(seed: int, ops: int = 14) -> Program:
    """A random program of about `ops` ops, the same for equal seeds."""
    return Growing(seed, ops).program


def ordinary(rng: random.Random, t: TensorType) -> np.ndarray:
    """An array of `t`: numbers that neither overflow nor cancel."""
    n = prod(t.static_shape)
    flat = [rng.uniform(0.5, 2) if t.dtype.is_float or t.dtype.is_complex else rng.randint(0, 3) for _ in range(n)]
    return np.array(flat).astype(arrays.numpy_dtype(t.dtype)).reshape(t.static_shape)


def outputs(program: Program, seed: int, draw: Draw = sample) -> list[np.ndarray]:
    """What the program computes on random inputs, by default full of special numbers, by the declared bodies."""
    rng = random.Random(seed)
    return list(run_block(program.main, [draw(rng, p.type) for p in program.main.params], Context()))


def agree(a: np.ndarray, b: np.ndarray, exact: bool, loose: bool) -> bool:
    """Whether two results are the same: bit for bit when `exact`, else zeros may differ in sign; `loose` allows a rounding, for
    sums, whose order is free. The sign and payload of a NaN are open: NumPy's `power` keeps them on some processors only."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "c":
        return all(agree(part(a), part(b), exact, loose) for part in (np.real, np.imag))
    if not loose and (a.dtype.kind in "biu" or a.dtype.name.endswith("int4")):
        return arrays.same_bits(a, b)
    if not loose and exact:
        numbers = ~np.isnan(arrays.widen(a))
        return bool((numbers != np.isnan(arrays.widen(b))).all()) and arrays.same_bits(a[numbers], b[numbers])
    x, y = arrays.widen(a), arrays.widen(b)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if loose:
        with np.errstate(all="ignore"):
            same |= np.isclose(x, y, rtol=1e-2 if a.dtype.itemsize < 4 else 1e-5)
    return bool(same.all())
