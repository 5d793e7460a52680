"""Operands and attributes for every op: ranks 0 to 5, extents 0, 1, odd and large, ties and special values among the elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.table import Row
from tests.ptir.oracle import DTYPES, FLOATS, INTEGERS, NUMPY, sample

# From small to large. The first are the bounded share that always runs.
SHAPES = ((3, 1, 5), (2, 0, 3), (), (7,), (0,), (1,), (2, 1, 3, 4), (2, 3, 1, 2, 3), (3, 1031))
RANKED = tuple(s for s in SHAPES if s)


class Case(NamedTuple):
    """An op, its operands (a list is a variable group) and attributes."""

    op: str
    operands: tuple[Any, ...]
    attrs: dict[str, Any]


def plain(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Elements without NaN and infinity, small enough for sums to stay in range."""
    x = sample(dtype, shape, seed)
    if dtype in FLOATS:
        x = (np.nan_to_num(x.astype(np.float64), nan=1.5, posinf=2.0, neginf=-2.0) / 4).astype(np.float32).astype(NUMPY[dtype])
    return x


def others(dtype: str, shape: tuple[int, ...], k: int = 1) -> np.ndarray:
    """Elements for a further operand: its special values do not stand where the first one's do."""
    return np.roll(sample(dtype, shape, k).reshape(-1), k).reshape(shape)


def nonzero(x: np.ndarray) -> np.ndarray:
    """`x` with ones for its zeros."""
    return np.where(x.astype(np.bool_), x, np.ones((), x.dtype))


def indices(shape: tuple[int, ...], extent: int, dtype: str = "si32", seed: int = 0) -> np.ndarray:
    """Indices in [0, extent)."""
    return np.asarray(np.random.default_rng([seed, *shape]).integers(0, max(extent, 1), shape), NUMPY[dtype])


Drawn = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]
DRAW: dict[str, Callable[[str], Drawn]] = {}


def draws(names: str) -> Callable[[Callable[[str], Drawn]], Callable[[str], Drawn]]:
    """Declare how operands of the ops `names` are drawn for a dtype."""

    def declare(draw: Callable[[str], Drawn]) -> Callable[[str], Drawn]:
        DRAW.update(dict.fromkeys(names.split(), draw))
        return draw

    return declare


def cases(row: Row, dtype: str) -> Iterator[Case]:
    """The cases of a row for one of its dtypes, the bounded share first."""
    for operands, attrs in DRAW[row.op](dtype):
        drawn = Case(row.op, operands, {**attrs, **row.attrs})
        if row.op == "div" and dtype in INTEGERS:
            drawn = drawn._replace(operands=(operands[0], nonzero(operands[1])))
        yield drawn


@draws("neg abs exp log tanh erf rsqrt reciprocal stop_gradient")
def one(dtype: str) -> Drawn:
    for shape in SHAPES:
        yield (sample(dtype, shape),), {}


@draws("add sub mul div maximum minimum compare_eq compare_ne compare_lt compare_le compare_ge compare_gt")
def two(dtype: str) -> Drawn:
    for shape in SHAPES:
        x, y = sample(dtype, shape), others(dtype, shape)
        if shape:
            y[-1:] = x[-1:]
        yield (x, y), {}


@draws("clamp")
def three(dtype: str) -> Drawn:
    for shape in SHAPES:
        yield tuple(others(dtype, shape, k) for k in range(3)), {}


@draws("select")
def chosen(dtype: str) -> Drawn:
    for shape in SHAPES:
        yield (sample("i1", shape), sample(dtype, shape), sample(dtype, shape, 1)), {}


@draws("cast")
def converted(dtype: str) -> Drawn:
    for target in DTYPES:
        if not dtype.startswith("c") or target in ("i1", "cf32", "cf64"):
            for shape in ((), (2, 0), (5, 7)):
                yield (sample(dtype, shape),), {"dtype": DTYPES[target]}


@draws("reduce_sum reduce_max reduce_min")
def reduced(dtype: str) -> Drawn:
    accum = {"si8": "si32", "ui8": "si32", "si32": "si64", "f16": "f64", "f32": "f64", "cf32": "cf64"}.get(dtype)
    for shape, axes in (((3, 5), (1,)), ((2, 0, 3), (1,)), ((3, 5), (0, -1)), ((), ()), ((7,), ()), ((0,), (0,))):
        yield (plain(dtype, shape),), {"axes": axes}
        yield (plain(dtype, shape, 1),), {"axes": axes, "keepdims": True}
    for shape, axes in (((2, 3, 1, 2, 3), (0, -2, 4)), ((3, 1031), (1,)), ((1031, 3), (0,)), ((9, 3), (0,))):
        yield (plain(dtype, shape),), {"axes": axes}
        yield (sample(dtype, shape, 1),), {"axes": axes}  # NaN and infinities
    if accum:
        yield (plain(dtype, (3, 40)),), {"axes": (1,), "accum_dtype": DTYPES[accum]}
        yield (plain(dtype, (3, 40)),), {"axes": (1,), "accum_dtype": DTYPES[accum], "out_dtype": DTYPES[accum]}


@draws("argmax")
def located(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        axis = k % len(shape)
        if shape[axis]:
            x = sample(dtype, shape)
            yield (x,), {"axis": axis}
            yield (plain(dtype, shape),), {"axis": axis - len(shape), "keepdims": True, "output_dtype": DTYPES["si64"]}


@draws("top_k")
def ranked(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        axis = (k + 1) % len(shape)
        for count in sorted({0, 1, shape[axis] // 2, min(shape[axis], 40)}):
            if count <= shape[axis]:
                yield (sample(dtype, shape),), {"k": count, "axis": axis}
                attrs = {"axis": axis - len(shape), "largest": False, "indices_dtype": DTYPES["si64"]}
                yield (plain(dtype, shape),), {"k": count, **attrs}


DOTS = (  # shapes, then batch axes and contracted axes of both
    ((2, 3, 4, 5), (5, 2, 6, 3), (0,), (1,), (3, 1), (0, 3)),
    ((3, 4), (4, 5), (), (), (1,), (0,)),
    ((2, 3, 4), (2, 4, 5), (0,), (0,), (2,), (1,)),
    ((2, 0), (0, 3), (), (), (1,), (0,)),
    ((), (), (), (), (), ()),
    ((4, 3), (5, 4), (), (), (-2,), (-1,)),
    ((7,), (7,), (), (), (0,), (0,)),
    ((2, 3), (4,), (), (), (), ()),
    ((0, 3), (3, 2), (), (), (1,), (0,)),
    ((2, 3, 4, 5), (3, 2, 5, 4), (0, 1), (1, 0), (3,), (2,)),
    ((1, 2, 1, 3, 2), (3, 2, 2, 1), (1,), (2,), (3, 4), (0, 1)),
    ((5, 257), (257, 3), (), (), (1,), (0,)),
)


@draws("dot_general")
def contracted(dtype: str) -> Drawn:
    for xs, ys, *axes in DOTS:
        numbers = dict(zip(("batch_lhs", "batch_rhs", "contract_lhs", "contract_rhs"), axes, strict=True))
        x, y = plain(dtype, xs), plain(dtype, ys, 1)
        yield (x, y), numbers
        if dtype in ("si8", "bf16", "f16"):
            big = DTYPES["si32" if dtype == "si8" else "f32"]
            yield (x, y), {**numbers, "accum_dtype": big}
            yield (x, y), {**numbers, "accum_dtype": big, "out_dtype": big}
        if dtype in ("f16", "f32", "cf64"):
            yield (x, y), {**numbers, "out_dtype": DTYPES["cf32" if dtype == "cf64" else "cf64"]}


@draws("layer_norm")
def normalized(dtype: str) -> Drawn:
    for shape, axis in (((3, 5), -1), ((2, 3, 4), 1), ((4, 0), 1), ((0, 4), -1), ((5,), 0), ((4, 1), 1), ((2, 257), -1)):
        n = shape[axis]
        yield (plain(dtype, shape), plain(dtype, (n,), 1), plain(dtype, (n,), 2)), {"epsilon": 1e-2, "feature_axis": axis}


@draws("quantize")
def quantized(dtype: str) -> Drawn:
    for target, zero in (("si8", -3), ("ui8", 128), ("si4", 1)):
        yield (sample(dtype, (4, 7)),), {"output_dtype": DTYPES[target], "scales": (0.03,), "zero_points": (zero,)}
        axis = {"axis": -2, "scales": (0.5, 0.1, 1e-3, 3.0), "zero_points": (zero, 0, 1, 2)}
        yield (sample(dtype, (4, 7)),), {"output_dtype": DTYPES[target], **axis}
    for target in ("si8", "ui4", "si32", "bf16", "ui64"):
        for shape in ((3, 5), (0,), ()):
            yield (sample(dtype, shape),), {"output_dtype": DTYPES[target]}


@draws("requantize")
def requantized(dtype: str) -> Drawn:
    x, out = sample(dtype, (3, 5)), {"output_dtype": DTYPES["si8"]}
    yield (x,), {**out, "axis": 0, "scales": (0.5, 2.0, 0.1), "output_scales": (0.3, 4.0, 0.1), "output_zero_points": (1, 0, 2)}
    yield (x,), {**out, "scales": (0.5,), "zero_points": (1,)}
    yield (x,), {**out, "output_scales": (0.25,), "output_zero_points": (-1,)}
    for target in ("si8", "ui4", "si32", "ui64"):
        for shape in ((3, 5), (0,), ()):
            yield (sample(dtype, shape),), {"output_dtype": DTYPES[target]}


@draws("dequantize")
def dequantized(dtype: str) -> Drawn:
    yield (sample(dtype, (3, 5)),), {"scales": (0.25,), "zero_points": (3,)}
    yield (sample(dtype, (3, 5)),), {"axis": 1, "scales": (0.5, 0.1, 2.0, 1e-3, 7.0), "output_dtype": DTYPES["f16"]}
    for target in (None, "bf16", "f64", "fp8_e4m3"):
        for shape in ((3, 5), (0,), ()):
            yield (sample(dtype, shape),), {"output_dtype": target and DTYPES[target]}
