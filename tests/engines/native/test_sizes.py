"""Random programs at the sizes where kernels change their ways, on the default engine and every instruction set of the machine.

Sums longer than a block, odd rests, both layouts, views, special values at every position, calls one after the other. Most
operands are small integers, so that every sum is exact and any order of summation gives the same bits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.limits import Limits
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor
from ptir_tools.engines import native
from tests import tiles

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

KINDS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
ROWS = (1, 2, 3, 5, 7, 8, 9, 13, 24, 31, 33, 64, 97, 100, 193)
DEPTHS = (1, 5, 47, 63, 100, 255, 257, 385, 511, 513, 515, 600, 769, 1030, 1100)
COLUMNS = (1, 3, 5, 15, 17, 31, 33, 47, 49, 65, 97, 129, 527, 529, 577, 1001, 1025, 1030, 1040, 1057, 1100)
WORK = 1 << 24  # products of a program, at most
SHARE = int(os.environ.get("PTIR_SHARE_OF_SEEDS", "1"))  # one seed of so many


def seeds(count: int, more: int) -> Any:
    """The seeds of a test, and those of a campaign."""
    ordinary = [*range(0, count, SHARE)]
    return pytest.mark.parametrize("seed", ordinary + [pytest.param(i, marks=pytest.mark.campaign) for i in range(count, more)])


def rounded(x: Any, kind: str) -> np.ndarray:
    """Exact numbers, which float32 has, rounded once."""
    return np.asarray(x).astype(np.float32).astype(KINDS[kind]).astype(np.float64)


def small(rng: np.random.Generator, shape: Sequence[int], kind: str = "f32", most: int = 4) -> np.ndarray:
    """Integers of a few bits."""
    return rng.integers(-most, most + 1, shape).astype(KINDS[kind])


def called(program: ptir.Program, given: Any, threads: int = 1, limits: Limits = Limits()) -> list[np.ndarray]:  # noqa: B008
    """The results on the default engine of an installation with a compiler."""
    return [*ptir.run(program, given, engine="native", threads=threads, limits=limits).values()]


def same(found: np.ndarray, exact: np.ndarray, what: object = "") -> None:
    """Equal numbers; a NaN for a NaN."""
    np.testing.assert_array_equal(found.astype(np.float64), exact, err_msg=str(what))


class Operands:
    """Operands of one program: arrays for its parameters, or constants."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.graph, self.given = rng, Graph(), dict[str, np.ndarray]()

    def of(self, x: np.ndarray, kind: str, constant: bool = False) -> Tensor:
        """`x` as an operand."""
        if constant:
            return self.graph.constant(x)
        name = f"x{len(self.given)}"
        self.given[name] = x
        return self.graph.input(name, kind, x.shape)

    def laid_out(self, x: np.ndarray, kind: str, constant: bool = False) -> Tensor:
        """`x` as it is, as a transposed one, or as a part of a larger one."""
        *batch, _, _ = x.shape
        how = self.rng.integers(3)
        if how == 0:
            return self.of(x, kind, constant)
        if how == 1:
            order = [*range(len(batch)), len(batch) + 1, len(batch)]
            return self.of(np.ascontiguousarray(x.transpose(order)), kind, constant).transpose(order)
        before, after = self.rng.integers(0, 4, (2, 2))
        edges = [(0, 0)] * len(batch) + [*zip(before, after, strict=True)]
        whole = np.pad(x.astype(np.float32), edges, constant_values=77).astype(x.dtype)
        starts = [0] * len(batch) + [int(i) for i in before]
        return self.of(whole, kind, constant).slice(starts, x.shape)


def sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Rows, depth and columns of a product of not too much work."""
    while True:
        m, k, n = (int(rng.choice(x)) for x in (ROWS, DEPTHS, COLUMNS))
        if m * k * n <= WORK:
            return m, k, n


# ---- Products


def _ended(rng: np.random.Generator, g: Operands, y: Tensor, exact: np.ndarray, kind: str) -> tuple[Tensor, np.ndarray]:
    """What may follow a product in one step, and its numbers."""
    how = rng.integers(5)
    if how == 0:
        return y, exact
    if how == 1:  # a bias by column and a bound
        bias = small(rng, exact.shape[-1:], kind)
        z = (y + g.of(bias, kind, bool(rng.integers(2))).broadcast_like(y)).maximum(0.0)
        return z, np.maximum(rounded(exact + bias.astype(float), kind), 0)
    if how == 2:  # a residual, given or made before by another product, so that its memory may be that of the result
        more = small(rng, exact.shape, kind)
        if rng.integers(2):
            return y + g.of(more, kind), rounded(exact + more.astype(float), kind)
        other = small(rng, (exact.shape[-1], exact.shape[-1]), kind, 1)
        before = rounded(more.astype(float) @ other.astype(float), kind)
        return g.of(more, kind) @ g.of(other, kind) + y, rounded(exact + before, kind)
    if how == 3:  # a factor by row, then the largest of each row taken off
        factor = small(rng, (*exact.shape[:-1], 1), kind, 2)
        z = y * g.of(factor, kind).broadcast_like(y)
        wide = rounded(exact * factor.astype(float), kind)
        top = z.reduce_max([z.rank - 1], keepdims=True)
        return z - top.broadcast_like(z), rounded(wide - wide.max(-1, keepdims=True), kind)
    return -y, -exact


@seeds(160, 3000)
def test_products(seed: int) -> None:
    """Of exact sums: any element that is wrong by 1 is seen."""
    rng = np.random.default_rng(seed)
    g, (m, k, n) = Operands(rng), sizes(rng)
    kind = str(rng.choice(["f32", "f32", "f16", "bf16"]))
    batch = ((), (), (), (2,), (3, 2))[rng.integers(5)] if m * k * n <= WORK // 6 else ()
    shared = bool(batch) and bool(rng.integers(2))
    x, w = small(rng, (*batch, m, k), kind), small(rng, (() if shared else batch) + (k, n), kind)
    left, right = g.laid_out(x, kind), g.laid_out(w, kind, bool(rng.integers(2)))
    y = left @ right
    exact = rounded(x.astype(float) @ w.astype(float), kind)
    z, wanted = _ended(rng, g, y, exact, kind)
    results = [z.named("z"), y.named("y")] if rng.integers(4) == 0 and z is not y else [z.named("z")]
    for found, want in zip(called(g.graph.returns(*results), g.given, int(rng.integers(1, 3))), (wanted, exact), strict=False):
        same(found, want, (kind, batch, m, k, n))


@seeds(24, 400)
def test_products_of_all_bits(seed: int) -> None:
    """Numbers that need all of their bits, some of them far larger than others: within a rounding for each product."""
    rng = np.random.default_rng(seed)
    g, (m, k, n) = Operands(rng), sizes(rng)
    spread = float(rng.choice([0, 1, 20]))
    x, w = ((rng.standard_normal(s) * 2.0 ** rng.integers(-spread, spread + 1, s)).astype(np.float32) for s in ((m, k), (k, n)))
    y = g.laid_out(x, "f32") @ g.laid_out(w, "f32", bool(rng.integers(2)))
    (found,) = called(g.graph.returns(y), g.given, int(rng.integers(1, 3)))
    exact, size = x.astype(float) @ w.astype(float), abs(x.astype(float)) @ abs(w.astype(float))
    assert (abs(found - exact) <= (k + 1) * 2.0**-24 * size).all(), (m, k, n)


def _requantized(rng: np.random.Generator, y: Tensor, exact: np.ndarray, plain: bool) -> tuple[Tensor, np.ndarray]:
    """Sums as bytes or floats, by one scale or one for each column, and their numbers as the contract defines them."""
    n = 1 if plain or rng.integers(2) else exact.shape[-1]
    size = max(1.0, abs(exact).max() / 100)
    scales = 2.0 ** rng.integers(-2, 3, n) / 2.0 ** np.rint(np.log2(size)) if plain else rng.uniform(0.3, 3, n) / size
    zeros, outs, ends = rng.integers(-99, 99, n), rng.uniform(0.5, 2, n), rng.integers(0, 50, n) * (not plain)
    given = {"axis": y.rank - 1 if n > 1 else None, "scales": scales.tolist(), "zero_points": (zeros * (not plain)).tolist()}
    real = (exact.astype(float) - zeros * (not plain)) * scales
    if not plain and rng.integers(3) == 0:
        return y.dequantize(**given), real.astype(np.float32).astype(float)
    name, kind = (("si8", np.int8), ("ui8", np.uint8))[rng.integers(2)]
    if not plain:
        given |= {"output_scales": outs.tolist(), "output_zero_points": ends.tolist()}
        real = real / outs
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return y.requantize(name, **given), np.clip(np.rint(real) + ends, low, high)


@seeds(60, 1000)
def test_products_of_bytes(seed: int) -> None:
    """Extreme bytes, so that sums of columns and of rows are as large as they can be."""
    rng = np.random.default_rng(seed)
    g, (m, k, n) = Operands(rng), sizes(rng)
    kind, name = ((np.int8, "si8"), (np.uint8, "ui8"))[rng.integers(2)]
    ends = np.iinfo(kind)

    def drawn(shape: tuple[int, int]) -> np.ndarray:
        values = [[ends.max], [ends.min], [ends.min, ends.max], [ends.min, ends.max, 0, 1, 77], [ends.max, 3]]
        return rng.choice(np.array(values[rng.integers(len(values))], kind), shape)

    x, w = drawn((m, k)), drawn((k, n))
    if rng.integers(2):
        a, b = g.of(x, name), g.of(w, name, bool(rng.integers(2)))
    else:
        a, b = g.of(x, name), g.of(np.ascontiguousarray(w.T), name, bool(rng.integers(2))).transpose([1, 0])
    y = a.dot_general(b, contract_lhs=[1], contract_rhs=[0], accum_dtype="si32", out_dtype="si32")
    exact = x.astype(np.int64) @ w.astype(np.int64)
    if how := rng.integers(3):  # a bias by column, or more sums of the same shape
        more = rng.integers(-999, 999, (n,) if how == 1 else (m, n), np.int32)
        y, exact = y + g.of(more, "si32", bool(rng.integers(2))).broadcast_like(y), exact + more
    if how := rng.integers(4):
        y, exact = _requantized(rng, y, exact, how == 1)
    (found,) = called(g.graph.returns(y), g.given, int(rng.integers(1, 3)))
    same(found, exact, (name, m, k, n))


# ---- One weight in several products


@seeds(60, 800)
def test_products_with_parts_of_one_weight(seed: int) -> None:
    """Parts of one shape at other places, turned, reshaped, for few rows and for many: each has a packed form of its own."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["f32", "f32", "f16", "bf16", "si8"]))
    k, n = (int(rng.choice([20, 33, 64, 100])) for _ in range(2))
    deep, wide = int(rng.choice([4, 17, 32])), int(rng.choice([5, 16, 40]))
    n = k if rng.integers(2) else max(n, wide)  # a square and the same turned have one shape
    w = rng.integers(-4, 5, (2 * k, 2 * n)).astype(np.int8 if kind == "si8" else KINDS[kind])
    g = Operands(rng)
    weights = [(g.of(x, kind, bool(rng.integers(4))), x) for x in (w, w[::-1].copy())]  # two of the same shape
    exact, found = list[np.ndarray](), list[Tensor]()
    for _ in range(int(rng.integers(2, 7))):
        weight, w = weights[rng.integers(2)]
        m = int(rng.choice([1, 3, 8, 23, 24, 40, 100]))
        how = rng.integers(7)
        if how == 0:  # a part by columns
            at = int(rng.choice([0, min(1, w.shape[1] - wide), w.shape[1] - wide]))
            right, own = weight.slice([0, at], [len(w), wide]), w[:, at : at + wide]
        elif how == 1:  # a part by rows
            at = int(rng.choice([0, min(1, len(w) - deep), len(w) - deep]))
            right, own = weight.slice([at, 0], [deep, w.shape[1]]), w[at : at + deep]
        elif how == 2:
            right, own = weight.transpose([1, 0]), w.T
        elif how == 3:
            half = (len(w) // 2, 2 * w.shape[1])
            right, own = weight.reshape(half), w.reshape(half)
        elif how == 4:  # a corner
            right, own = weight.slice([0, 0], [deep, wide]), w[:deep, :wide]
        elif how == 5:  # one of the same shape whose rows are twice as far from each other
            half = (len(w) // 2, 2 * w.shape[1])
            rows = min(deep, half[0])
            right, own = weight.reshape(half).slice([0, 0], [rows, wide]), w.reshape(half)[:rows, :wide]
        else:
            right, own = weight, w
        x = rng.integers(-4, 5, (m, len(own))).astype(w.dtype)
        more = {"accum_dtype": "si32", "out_dtype": "si32"} if kind == "si8" else {}
        found.append(g.of(x, kind).dot_general(right, contract_lhs=[1], contract_rhs=[0], **more))
        made = x.astype(float) @ own.astype(float)
        exact.append(made if kind == "si8" else rounded(made, kind))
    program = g.graph.returns(*found)
    text = ptir.write(program)
    limits = Limits(fold_bytes=64)  # parts of a weight stay parts of it, as those of large ones do
    for _ in range(2):
        for number, (y, want) in enumerate(zip(called(program, g.given, limits=limits), exact, strict=True)):
            same(y, want, (kind, number))
    assert ptir.write(program) == text  # a literal whose bytes were freed has them again


# ---- Attention


def _weights(s: np.ndarray, kind: str) -> np.ndarray:
    """The softmax of each row, every step rounded to `kind`; NaN where nothing has a weight."""
    if kind == "f32":
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))
    e = rounded(np.exp(rounded(s - s.max(-1, keepdims=True), kind)), kind)
    return rounded(e / rounded(e.sum(-1, keepdims=True), kind), kind)


@seeds(70, 1000)
def test_attention(seed: int) -> None:
    """Keys around the end of a block and past it, odd heads, masks, a NaN or an infinity anywhere."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["f32", "f32", "f16", "bf16"]))
    n = int(rng.choice([*range(511, 520), 1023, 1025, 1100]))
    rows = int(rng.choice([33, 35, 40, 49, 97]))
    depth, width = (int(rng.choice([1, 3, 8, 17, 33, 64, 65, 80])) for _ in range(2))
    lead = ((1,), (2,), (2, 2))[rng.integers(3)]
    q, key, v = (small(rng, (*lead, *s), kind, most) for s, most in (((rows, depth), 2), ((n, depth), 2), ((n, width), 4)))
    strange = rng.choice([np.nan, np.inf, -np.inf]) if rng.integers(3) == 0 else None
    if strange is not None:
        x = (q, key, v)[rng.integers(3)]
        last = [rng.choice([0, e - 1, int(rng.integers(e))]) for e in x.shape]
        x[tuple(last)] = strange
    if rng.integers(3) == 0:  # one key far above the others, so that the largest of each row is needed
        key[..., rng.choice([0, n - 1, n - 2, n - 3, min(511, n - 1), int(rng.integers(n))]), :] *= 30
    g = Operands(rng)
    left, values = g.of(q, kind), g.of(v, kind)
    if rng.integers(2):  # keys as columns
        order = [*range(len(lead)), len(lead) + 1, len(lead)]
        right = g.of(np.ascontiguousarray(key.swapaxes(-1, -2)), kind).transpose(order)
    else:
        right = g.of(key, kind)
    batch, at = [*range(len(lead))], len(lead) + 1
    s = left.dot_general(right, batch_lhs=batch, batch_rhs=batch, contract_lhs=[at], contract_rhs=[at])
    with np.errstate(all="ignore"):
        exact = rounded(q.astype(float) @ key.astype(float).swapaxes(-1, -2), kind)
        scale = float(rng.choice([0.125, 0.25, 1.0]))
        s, exact = s * scale, rounded(exact * scale, kind)
        low, mask = float(rng.choice([-1e4, -3.0])), int(rng.integers(4))
        i, j = np.arange(rows)[:, None] + (n - rows), np.arange(n)
        kept = (None, j <= i, (j <= i) & (j > i - 37), rng.random((rows, n)) < 0.7)[mask]
        if kept is not None:
            flags = (
                g.graph.constant(kept).broadcast_to(exact.shape)
                if rng.integers(2)
                else g.of(kept, "i1").broadcast_to(exact.shape)
            )
            s, exact = flags.select(s, low), np.where(kept, exact, rounded(low, kind))
        top = s.reduce_max([at], keepdims=True).broadcast_like(s)
        e = (s - top).exp()
        p = e / e.reduce_sum([at], keepdims=True).broadcast_like(s)
        weights = _weights(exact, kind)
        if len(lead) == 2 and rng.integers(2):  # the weights of one head, the values of another
            p, weights = p.transpose([1, 0, 2, 3]), weights.swapaxes(0, 1)
        y = p.dot_general(values, batch_lhs=batch, batch_rhs=batch, contract_lhs=[at], contract_rhs=[at - 1])
        wanted, size = weights @ v.astype(float), weights @ abs(v.astype(float))
    (found,) = called(g.graph.returns(y), g.given, int(rng.integers(1, 3)))
    unit, least = {"f32": (2.0**-17, 0.0), "f16": (2.0**-8, 2.0**-24), "bf16": (2.0**-5, 0.0)}[kind]  # of weights, too
    finite, wide = np.isfinite(wanted), found.astype(float)
    apart = abs(np.where(finite, wide, 0) - np.where(finite, wanted, 0))
    fine = np.where(finite, apart <= unit * np.where(finite, size, 0) + 4 * n * least + 1e-7, np.isnan(wide) | (wide == wanted))
    what = (kind, rows, n, depth, width, mask, strange)
    np.testing.assert_array_equal(found[~fine], wanted[~fine], err_msg=str(what))


@seeds(24, 400)
def test_convolutions_of_all_bits(seed: int) -> None:
    """Numbers of all sizes in some places of the image and of the weights, others near 1: within a rounding for each product."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(rng.choice([1, 2, 3, 5])) for _ in range(2))
    stride = int(rng.integers(1, 3))
    channels, outputs = int(rng.choice([3, 8, 32, 64])), int(rng.choice([5, 16, 33, 64]))
    x = rng.standard_normal((int(rng.integers(1, 3)), int(rng.integers(6, 20)), int(rng.integers(6, 40)), channels))
    w = rng.standard_normal((rows * columns * channels, outputs))
    x *= np.where(rng.random((*x.shape[:3], 1)) < rng.choice([0, 0.1]), 10.0 ** rng.integers(-38, 15, x.shape), 1)
    w *= np.where(rng.random((1, outputs)) < rng.choice([0, 0.3]), 10.0 ** rng.integers(-30, 15, w.shape), 1)
    image, weights = x.astype(np.float32), w.astype(np.float32)
    g = Operands(rng)
    patches = g.of(image, "f32").extract_patches((rows, columns), strides=(stride, stride))
    y = patches.dot_general(g.of(weights, "f32", True), contract_lhs=[3], contract_rhs=[0])
    (found,) = called(g.graph.returns(y), g.given, int(rng.integers(1, 3)))
    views = np.lib.stride_tricks.sliding_window_view(image.astype(float), (rows, columns), (1, 2))[:, ::stride, ::stride]
    laid = np.moveaxis(views, 3, -1).reshape(*views.shape[:3], -1)
    exact, size = laid @ weights.astype(float), abs(laid) @ abs(weights.astype(float))
    bound = (len(weights) + 1) * (2.0**-24 * size + 2.0**-149)
    assert (abs(found - exact) <= bound).all(), (image.shape, rows, columns, stride, weights.shape)


# ---- Special values at every position of a row

LENGTHS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 79, 100, 127, 129, 200)
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)


def _first_of(x: np.ndarray, largest: bool) -> np.ndarray:
    """The first place of the largest element of each row, or of the smallest; a NaN is before all."""
    best = np.where(np.isnan(x).any(1), np.nan, x.max(1) if largest else x.min(1))[:, None]
    return np.asarray(((x == best) | (np.isnan(x) & np.isnan(best))).argmax(1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", LENGTHS)
def test_a_special_value_at_every_position(n: int, kind: str) -> None:
    """Row `i` has it at `i`: the largest, the smallest, their places, the sum, along rows and along columns."""
    rng = np.random.default_rng(n)
    square = np.stack([np.where(np.eye(n, dtype=bool), s, rng.integers(-9, 10, (n, n))) for s in SPECIAL]).astype(KINDS[kind])
    g = Operands(rng)
    x = g.of(square, kind)
    results, wanted = list[Tensor](), list[np.ndarray]()
    with np.errstate(invalid="ignore"):
        wide = square.astype(float)
        for axis in (2, 1):
            results += [x.reduce_max([axis]), x.reduce_min([axis]), x.reduce_sum([axis])]
            wanted += [wide.max(axis), wide.min(axis), wide.sum(axis)]
            along = wide.swapaxes(axis, 2).reshape(-1, n)
            results += [x.argmax(axis), x.argmin(axis)]
            wanted += [_first_of(along, largest).reshape(len(SPECIAL), n) for largest in (True, False)]
        doubled = x + x  # so that a group does it, not a step of its own
        results.append((doubled - doubled.reduce_max([2], keepdims=True).broadcast_like(x)).reduce_min([2]))
        wanted.append((2 * wide - 2 * wide.max(2, keepdims=True)).min(2))
        other = g.of(np.ascontiguousarray(square[::-1]), kind)
        results += [x.maximum(other), x.minimum(other), x.clamp(-3.0, 4.0), x > other, x.clamp(other, other)]
        turned = wide[::-1]
        wanted += [np.maximum(wide, turned), np.minimum(wide, turned), np.clip(wide, -3, 4), wide > turned]
        wanted.append(np.minimum(np.maximum(wide, turned), turned))
    found = called(g.graph.returns(*results), g.given)
    for number, (y, want) in enumerate(zip(found, wanted, strict=True)):
        same(y, want, number)


@pytest.mark.parametrize("n", [255, 1000, 4097, 4099, 5001, 9000])
def test_a_special_value_near_the_ends_of_a_long_row(n: int) -> None:
    """Rows that are reduced in parts, and their rests."""
    places = sorted({*range(3), *range(n // 2, n // 2 + 3), *range(n - 70, n), 63, 64, 65, 4095 % n, 4096 % n, 4097 % n})
    x = np.random.default_rng(n).integers(-9, 10, (len(places), n)).astype(np.float32)
    for special in SPECIAL[:3]:
        given = x.copy()
        given[range(len(places)), places] = special
        g = Graph()
        v = g.input("x", "f32", x.shape)
        e = v - v.reduce_max([1], keepdims=True).broadcast_like(v)
        program = g.returns(v.argmax(1), v.argmin(1), v.reduce_max([1]), v.reduce_min([1]), v.reduce_sum([1]), e.reduce_sum([1]))
        with np.errstate(invalid="ignore"):
            wide = given.astype(float)
            wanted = [_first_of(wide, True), _first_of(wide, False), wide.max(1), wide.min(1), wide.sum(1)]
            wanted.append((wide - wide.max(1, keepdims=True)).sum(1))
            wanted[-1][np.isnan(wanted[-1])] = np.nan
        for number, (y, want) in enumerate(zip(called(program, [given]), wanted, strict=True)):
            same(y, want, (special, number))


# ---- Values of rows between the phases of a group


@seeds(120, 3000)
def test_values_of_rows_between_phases(seed: int) -> None:
    """Random ops on whole rows and on one value for each row, reductions between: integers, so exact in any order."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["f32", "f32", "f16", "bf16"]))
    most = {"f32": 1 << 23, "f16": 1 << 11, "bf16": 1 << 8}[kind]
    shape = (int(rng.choice([1, 2, 3, 5, 16, 17, 35])), int(rng.choice([2, 3, 15, 16, 31, 33, 64, 65, 100, 129, 1000, 4099])))
    g = Operands(rng)
    some = {"f32": 9, "f16": 3, "bf16": 1}[kind]
    full = [(g.of(x, kind), x.astype(float)) for x in (small(rng, shape, kind, some) for _ in range(2))]
    rows = [(g.of(x, kind), x.astype(float)) for x in (small(rng, (shape[0], 1), kind, some) for _ in range(2))]
    column = small(rng, (1, shape[1]), kind, some)
    full.append((g.of(column, kind).broadcast_like(full[0][0]), np.broadcast_to(column.astype(float), shape)))
    ops: dict[str, Callable[..., np.ndarray]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    }  # fmt: skip

    def one_of(values: list[tuple[Tensor, np.ndarray]]) -> tuple[Tensor, np.ndarray]:
        return values[int(rng.integers(max(0, len(values) - 5), len(values)))]

    for _ in range(int(rng.integers(8, 28))):
        how = rng.integers(6)
        if how == 0:
            x, exact = one_of(full)
            name = str(rng.choice(["sum", "max", "min"]))
            if name == "sum" and abs(exact).sum(1).max() > most:
                continue
            made = getattr(x, f"reduce_{name}")([1], keepdims=True), getattr(exact, name)(1, keepdims=True)
            rows.append(made)
            continue
        (a, x), (b, y) = one_of(rows if how == 1 else full), one_of(rows if how in (1, 2, 3) else full)
        name = str(rng.choice([*ops]))
        if how == 3:  # the value of the row first
            a, x, b, y = b.broadcast_like(a), np.broadcast_to(y, x.shape), a, x
        elif how == 2:
            b, y = b.broadcast_like(a), np.broadcast_to(y, x.shape)
        made = getattr(a, name)(b), ops[name](x, y)
        if how == 5:
            made = (a > b).select(b, -a), np.where(x > y, y, -x)
        if abs(made[1]).max() <= most:
            (rows if how == 1 else full).append(made)
    kept = [*full[3:][-3:], *rows[2:][-3:]] or full[:1]
    program = g.graph.returns(*(v.named(f"r{i}") for i, (v, _) in enumerate(kept)))
    for number, (y, (_, want)) in enumerate(zip(called(program, g.given, int(rng.integers(1, 3))), kept, strict=True)):
        same(y, want, (kind, shape, number))


# ---- Calls of one prepared program, one after the other


def _forward(rng: np.random.Generator, kind: str) -> tuple[Operands, list[str], Callable[..., list[np.ndarray]]]:
    """A program of some products, reductions and views, and its exact results."""
    m, k, n = (int(rng.choice(x)) for x in ((8, 100, 700, 700), (16, 65, 300), (8, 48, 97)))
    g = Operands(rng)
    x, w, bias = small(rng, (m, k), kind), small(rng, (k, n), kind), small(rng, (n,), kind)
    given = [g.of(x, kind), g.of(w, kind), g.of(bias, kind)]
    fixed = small(rng, (n, 24), kind, 1)
    y = (given[0] @ given[1] + given[2].broadcast_to((m, n))).maximum(0.0).minimum(3.0)
    z = y @ g.graph.constant(fixed)
    top = given[0].reduce_max([1])
    turned = given[0].transpose([1, 0]).slice([0, 0], [min(5, k), m])
    g.graph.returns(y, z, top, turned, given[2])

    def exact(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> list[np.ndarray]:
        a, b, c = (v.astype(float) for v in (x, w, bias))
        y = np.clip(rounded(rounded(a @ b, kind) + c, kind), 0, 3)
        return [y, rounded(y @ fixed.astype(float), kind), a.max(1), a.T[:5], c]

    return g, [*g.given], exact


def _placed(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same numbers elsewhere: anywhere in other memory, transposed, reversed, every second one, or read-only."""
    how = rng.integers(6)
    if how == 0:
        return x.copy()
    if how == 1:
        return np.asfortranarray(x)
    if how == 2:
        return x[::-1].copy()[::-1]
    room = np.full([2 * e + 3 for e in x.shape], 5, x.dtype)
    start, step = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    part = room[tuple(slice(start, start + step * e, step) for e in x.shape)]
    part[...] = x
    if how == 5:
        part.flags.writeable = False
    return part


@pytest.mark.parametrize("reuse", [False, True])
@seeds(24, 300)
def test_calls_one_after_the_other(seed: int, reuse: bool) -> None:
    """Each call answers for its own inputs, whether they are new arrays, other views, or the same ones with new numbers."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["f32", "f32", "bf16", "f16"]))
    g, names, exact = _forward(rng, kind)
    call = ptir.compile(g.graph.program, engine="native", threads=int(rng.integers(1, 3)), reuse=reuse)
    held, before = [g.given[name].copy() for name in names], list[list[tuple[np.ndarray, np.ndarray]]]()
    for number in range(7):
        for i, x in enumerate(held):
            how = rng.integers(4)
            if how == 0 and x.flags.writeable:  # the same array, other numbers
                x[...] = small(rng, x.shape, kind)
            elif how == 1:
                held[i] = small(rng, x.shape, kind)
            elif how == 2:
                held[i] = _placed(rng, small(rng, x.shape, kind))
        given = dict(zip(names, held, strict=True)) if rng.integers(2) else held
        results = dict(enumerate(zip(call(given).values(), exact(*held), strict=True)))
        for at, (y, want) in results.items():
            same(y, want, (kind, number, at))
        if not reuse:  # results belong to the caller, who may keep any of them
            before.append([pair for pair in results.values() if rng.integers(2)])
        del results, y
        for kept in before[-3:]:
            for pair in kept:
                same(*pair, (kind, number, "an earlier result"))


# ---- Every instruction set

_OTHERS = ("test_emulated", "test_isa")  # which choose one themselves
NATIVE_TESTS = sorted(str(p) for p in Path(__file__).parent.glob("test_*.py") if p.stem not in _OTHERS)
ALL = native.kernels().ISAS if native.available() else []
THESE = ("-m", "not campaign", "-k", "not instruction_set", __file__)
MANY = "3"  # a third of the seeds


def _passes(*arguments: str, **variables: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=tiles.ROOT, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "failed" not in done.stdout and "." in done.stdout


@pytest.mark.parametrize("isa", [i for i in ALL if i != native.kernels().ISA])
def test_the_programs_on_another_instruction_set(isa: str) -> None:
    """Some of the programs above, on kernels that this machine has and does not choose."""
    _passes(*THESE, PTIR_ISA=isa, PTIR_SHARE_OF_SEEDS=MANY)


@pytest.fixture(scope="module")
def with_tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension with the tiles of AMX in C."""
    if not tiles.is_possible():
        pytest.skip("needs AVX-512 with products of bf16, and gcc")
    return tiles.built(tmp_path_factory.mktemp("tiles"))


@pytest.mark.slow
def test_the_programs_on_the_instruction_set_with_tiles(with_tiles: Path) -> None:
    """On AMX, which few machines have: with its tiles made in C."""
    _passes(*THESE, PTIR_SHARE_OF_SEEDS=MANY, **tiles.environment(with_tiles, "amxf32"))


@pytest.mark.campaign
@pytest.mark.parametrize("isa", tiles.ISAS)
def test_all_native_tests_on_an_instruction_set_with_tiles(isa: str, with_tiles: Path) -> None:
    """All tests of the kernels on tiles made in C, and those of each kernel by itself."""
    variables = tiles.environment(with_tiles, isa)
    _passes("-m", "not campaign", "-k", "not instruction_set", *NATIVE_TESTS, **variables)
    from tests.engines.native.test_isa import PROGRAMS

    for name, program in PROGRAMS.items():
        done = subprocess.run(
            [sys.executable, "-c", program, isa], env={**os.environ, **variables}, capture_output=True, text=True
        )
        assert done.returncode == 0, name + done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("isa", ALL)
def test_all_native_tests_on_an_instruction_set(isa: str) -> None:
    """All tests of the kernels but those that choose one themselves."""
    _passes("-m", "not campaign", "-k", "not instruction_set", *NATIVE_TESTS, PTIR_ISA=isa)
