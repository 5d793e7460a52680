"""Special values: casts of every element, extremes of floats and integers, ties, indices out of range, random streams, loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptir_tools.core.arrays import to_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.evaluate import Context
from ptir_tools.core.types import sym
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.engines import RunOptions
from ptir_tools.engines import run as execute
from tests.oracles.by_hand import EXACT, LIBRARY, MEANING, cast
from tests.oracles.cases import Case
from tests.oracles.check import Want, check, wide
from tests.oracles.running import ENGINES, hold
from tests.ptir.oracle import ALL, BITS, COMPLEX, DTYPES, FLOATS, INTEGERS, NUMPY, SIGNED, every, region, run, sample, typed

SI32 = DTYPES["si32"]
SMALL = [d for d in ALL if BITS[d] <= 8]
SHORT = [d for d in ALL if BITS[d] == 16]


def all_values(dtype: str) -> np.ndarray:
    """Every element of a dtype of up to 16 bits."""
    if dtype == "i1":
        return np.array([False, True])
    if dtype in FLOATS:
        return every(dtype)
    low = -(1 << (BITS[dtype] - 1)) if dtype in SIGNED else 0
    return np.arange(low, low + (1 << BITS[dtype])).astype(NUMPY[dtype])


def extremes(dtype: str) -> np.ndarray:
    """The numbers at which a dtype goes wrong."""
    if dtype in FLOATS:
        tiny, bits = (1, BITS[dtype])
        patterns = np.array([tiny, 3, 1 << (bits - 2)], f"u{bits // 8}").view(NUMPY[dtype]).astype(np.float64)
        top = np.nextafter(np.array(np.inf, NUMPY[dtype]), np.array(0, NUMPY[dtype])) if dtype != "fp8_e4m3" else np.array(448.0)
        found = [0.0, 1.0, 0.5, 1.5, 3.0, math.inf, math.nan, 88.75, 0.1, *patterns.tolist(), float(top.astype(np.float64))]
        return np.array([*found, *(-v for v in found)]).astype(NUMPY[dtype])
    low = -(1 << (BITS[dtype] - 1)) if dtype in SIGNED else 0
    high = low + (1 << BITS[dtype]) - 1
    found = sorted({low, low + 1, 0, 1, 2, 3, high // 2, high - 1, high} | ({-1, -2} if dtype in SIGNED else set()))
    return np.array(found, np.int64 if dtype in SIGNED else np.uint64).astype(NUMPY[dtype])


# ---- casts


def converted(values: np.ndarray, source: str) -> None:
    targets = [d for d in ALL if source not in COMPLEX or d in ("i1", *COMPLEX)]
    hold([Case("cast", (values,), {"dtype": DTYPES[target]}) for target in targets])


@pytest.mark.parametrize("source", SMALL)
def test_casts_of_every_element_of_up_to_8_bits(source):
    converted(all_values(source), source)


@pytest.mark.slow
@pytest.mark.parametrize("source", SHORT)
def test_casts_of_every_element_of_16_bits(source):
    converted(all_values(source), source)


@pytest.mark.parametrize("source", ["f32", "f64"])
def test_casts_of_wide_floats_at_every_edge(source):
    """Each limit of an integer dtype, each tie between two narrow floats, and what stands just beside them."""
    edges = [
        float(sign * (1 << k) + more)
        for k in (0, 3, 4, 7, 8, 15, 16, 31, 32, 53, 63, 64)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ]
    for dtype in ("fp8_e4m3", "fp8_e5m2", "bf16", "f16"):
        table = np.unique(wide(every(dtype)))
        table = table[np.isfinite(table)][:: max(1, len(table) // 97)]
        edges += ((table[1:] + table[:-1]) / 2).tolist()
    near = np.array([0.5, 1.5, 2.5, -0.5, 449.0, 464.0, 480.0, 61440.0, 65520.0, 65519.99, 3.4e38, 1e-45, 1e-40, *edges])
    near = np.concatenate([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), [np.inf, -np.inf, np.nan, -0.0]])
    with np.errstate(over="ignore"):
        converted(near.astype(NUMPY[source]), source)


@pytest.mark.parametrize("source", ["si32", "ui32", "si64", "ui64"])
def test_casts_of_wide_integers_are_rounded_once(source):
    rng, base = np.random.default_rng(3), np.int64 if source in SIGNED else np.uint64
    info = np.iinfo(NUMPY[source])
    powers = [sign * ((1 << k) + more) for k in range(BITS[source]) for more in (-1, 0, 1) for sign in (1, -1)]
    ties = [
        (1 << k) + (1 << (k - p)) + more
        for k in range(12, BITS[source] - 1)
        for p in (4, 8, 11, 24)
        if p < k
        for more in (-1, 0, 1)
    ]
    fits = [v for v in powers + ties if info.min <= v <= info.max]
    values = np.concatenate([np.array(fits, base), rng.integers(info.min, info.max, 500, base, endpoint=True)])
    converted(values.astype(NUMPY[source]), source)


def test_complex_casts():
    for source in COMPLEX:
        converted(np.array([0, 1j, complex(math.nan, 0), complex(-0.0, 1e30), 1 + 2j]).astype(NUMPY[source]), source)


# ---- extremes


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(values, len(values)), np.tile(values, len(values))


@pytest.mark.parametrize("dtype", FLOATS)
def test_ieee_extremes(dtype):
    x, y = pairs(extremes(dtype))
    unary = [Case(name, (extremes(dtype),), {}) for name in (*LIBRARY, "erf", "neg", "abs")]
    binary = [Case(name, (x, y), {}) for name in MEANING if name in EXACT or name == "div" or name.startswith("compare_")]
    binary = [case for case in binary if case.op not in ("neg", "abs", "clamp")]
    hold([*unary, *binary, Case("clamp", (x, y, y[::-1].copy()), {}), Case("clamp", (y, x, x), {})])


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_have_ieee_signs(dtype):
    """On the reference: without flags, a rewrite may change the sign of a zero."""
    x, y = pairs(extremes(dtype))
    for name in ("neg", "abs", "add", "sub", "mul", "div", "tanh", "erf", "reciprocal"):
        operands = (x,) if name in ("neg", "abs", "tanh", "erf", "reciprocal") else (x, y)
        value = MEANING[name](*operands).value
        zero = (value == 0) & (run(name, *operands).astype(np.float64) == 0)
        assert zero.any() or name == "reciprocal"
        assert np.array_equal(np.signbit(run(name, *operands).astype(np.float64)[zero]), np.signbit(value[zero]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_extremes_wrap(dtype):
    values = all_values(dtype) if BITS[dtype] == 4 else extremes(dtype)
    x, y = pairs(values)
    names = ["add", "sub", "mul", "maximum", "minimum", *(n for n in MEANING if n.startswith("compare_"))]
    batch = [Case(name, (x, y), {}) for name in names] + [Case("clamp", (x, y, x[::-1].copy()), {})]
    batch += [Case(name, (values,), {}) for name in ("neg", "abs") if dtype in SIGNED]
    divisors = y.astype(object) != 0
    hold([*batch, Case("div", (x[divisors], y[divisors]), {})])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("largest", [True, False])
def test_ranking_of_nan_infinities_and_ties(dtype, largest):
    rows = [
        [math.nan, 1.0, math.inf, math.nan, -math.inf, 1.0, 0.0, -0.0],
        [-math.inf] * 8,
        [math.nan] * 8,
        [2.0, 3.0, 3.0, 1.0, 3.0, -0.0, 0.0, 2.0],
    ]
    x = np.array(rows).astype(NUMPY[dtype])
    hold([Case("top_k", (x,), {"k": k, "axis": 1, "largest": largest}) for k in (1, 4, 8)])
    hold([Case("argmax", (x,), {"axis": axis}) for axis in (0, 1)])


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("rows", [[1, 3, 5], [4, 2, 0], [2, 2], [5, 0, 3], []], ids=str)
def test_rows_at_constant_places(dtype, rows):
    """Engines know what is evenly spaced; not every dtype of ml_dtypes is one to NumPy."""
    program, b = single_function(DIALECT)
    x, places = sample(dtype, (6, 3)), np.array(rows, np.int32)
    b.results(b.op("take", b.param(typed(x)), to_literal(places, typed(places))))
    assert verify(program, Diagnostics())
    for engine in ENGINES:
        (found,) = execute(program, [x], RunOptions(engine=engine)).values()
        check(found, np.array([x[i] for i in rows], x.dtype).reshape(-1, 3), False)


# ---- errors at run time


def outcome(engine, name, *arrays, **attrs):
    """The code with which a run fails."""
    program, b = single_function(DIALECT)
    b.results(b.op(name, *(b.param(typed(a)) for a in arrays), **attrs))
    assert verify(program, Diagnostics())
    with pytest.raises(Rejected) as caught:
        execute(program, arrays, RunOptions(engine=engine))
    return caught.value.diagnostics[0].code


ROWS = np.zeros((3, 2), np.float32)
FOUR = np.zeros((4, 2), np.float32)
INDEXING = {
    "take": ((ROWS, (4,)), {}, "GatherIndexOutOfBounds"),
    "gather": ((ROWS, (4, 2)), {"axis": 0}, "GatherIndexOutOfBounds"),
    "scatter_reduce": ((ROWS, (4, 2), FOUR), {"axis": 0}, "ScatterIndexOutOfBounds"),
    "segment_reduce": ((FOUR, (4,)), {"num_segments": 3}, "ScatterIndexOutOfBounds"),
    "scatter_add": (
        (ROWS, (4,), FOUR),
        {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)},
        "ScatterIndexOutOfBounds",
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", INDEXING)
@pytest.mark.parametrize(
    ("dtype", "wrong"), [("si32", -1), ("si32", 3), ("si64", 1 << 40), ("si64", -(1 << 63)), ("si32", -(1 << 31))]
)
def test_an_index_out_of_range_stops_the_run(engine, name, dtype, wrong):
    operands, attrs, wanted = INDEXING[name]
    arrays = [np.ones(x, NUMPY[dtype]) if isinstance(x, tuple) else x for x in operands]
    arrays[1][-1] = wrong
    assert outcome(engine, name, *arrays, **attrs) == wanted


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_zero_stops_the_run(engine, dtype):
    x = np.ones(5, np.int8).astype(NUMPY[dtype])
    y = np.array([1, 1, 1, 0, 1]).astype(NUMPY[dtype])
    assert outcome(engine, "div", x, y) == "IntegerDivideByZero"


@pytest.mark.parametrize("engine", ENGINES)
def test_argmax_over_nothing_that_a_symbol_hides(engine):
    program, b = single_function(DIALECT)
    x = b.param(typed(ROWS).with_shape((3, sym("N"))))
    b.results(b.op("argmax", x, axis=1))
    assert verify(program, Diagnostics())
    with pytest.raises(Rejected) as caught:
        execute(program, [np.zeros((3, 0), np.float32)], RunOptions(engine=engine))
    assert caught.value.diagnostics[0].code == "InvalidAttributeValue"


# ---- random numbers


def philox(key: list[int], count: int) -> list[int]:
    """Philox4x64-10 as its paper has it; NumPy counts before it draws."""
    mask, out = (1 << 64) - 1, []
    for counter in range(1, count // 4 + 2):
        c, k = [counter, 0, 0, 0], list(key)
        for _ in range(10):
            a, b = c[0] * 0xD2E7470EE14C6C93, c[2] * 0xCA5A826395121157
            c = [(b >> 64) ^ c[1] ^ k[0], b & mask, (a >> 64) ^ c[3] ^ k[1], a & mask]
            k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
        out += c
    return out[:count]


def stream_words(seed: int, stream: int, count: int) -> list[int]:
    """The words of a stream outside all loops."""
    return philox(np.random.SeedSequence(seed, spawn_key=(stream, 0)).generate_state(2, np.uint64).tolist(), count)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers_are_the_top_bits_of_philox(dtype):
    digits = {"fp8_e4m3": 4, "fp8_e5m2": 3, "bf16": 8, "f16": 11, "f32": 24, "f64": 53}[dtype]
    got = run("rng_uniform", shape=(3, 7), dtype=DTYPES[dtype], stream=5, context=Context(seed=11))
    want = np.array([(w >> (64 - digits)) / (1 << digits) for w in stream_words(11, 5, 21)]).reshape(3, 7)
    check(got, Want(want, dtype), True)
    assert (got.astype(np.float64) < 1).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_are_made_by_box_and_muller(dtype):
    got = run("rng_normal", shape=(9,), dtype=DTYPES[dtype], stream=2, context=Context(seed=3))
    words = [(w >> 11) / (1 << 53) for w in stream_words(3, 2, 18)]
    want = [math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v) for u, v in zip(words[:9], words[9:], strict=True)]
    check(got, Want(np.array(want), dtype, 8, np.abs(want)), True)


@pytest.mark.parametrize("name", ["rng_uniform", "rng_normal"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_engines_draw_the_same_numbers(name, dtype):
    program, b = single_function(DIALECT)
    shapes = ((), (0,), (1,), (5, 3), (2, 3, 1, 2, 3), (3, 1031))
    b.results(*(b.op(name, shape=shape, dtype=DTYPES[dtype]) for shape in shapes))
    assert verify(program, Diagnostics())
    first, *others = (list(execute(program, [], RunOptions(engine=engine, seed=9)).values()) for engine in ENGINES)
    for found in others:
        for a, c in zip(first, found, strict=True):
            check(c, a, False)
    assert not np.array_equal(first[4].reshape(-1)[:30], first[5].reshape(-1)[:30])


# ---- regions


@pytest.mark.parametrize("dtype", ALL)
def test_values_of_every_dtype_pass_through_regions(dtype):
    """A branch, a loop that counts, and a scan that keeps the row before."""
    x, rows = sample(dtype, (2, 3)), sample(dtype, (4, 2, 3), 1)
    program, b = single_function(DIALECT)
    t, counter, flag = typed(x), typed(np.zeros((), np.int32)), typed(np.zeros((), np.bool_))
    p, v, r, n = (b.param(s) for s in (flag, t, typed(rows), counter))
    keep = region("r0", [t, t], lambda b, a, c: [a])
    swap = region("r1", [t, t], lambda b, a, c: [c])
    test = region("r2", [t, counter], lambda b, a, k: [b.op("compare_gt", k, b.op("sub", k, k)), a, k])
    step = region(
        "r3", [t, counter], lambda b, a, k: [a, b.op("sub", k, b.op("cast", b.op("compare_eq", k, k), dtype=DTYPES["si32"]))]
    )
    shift = region("r4", [t, t], lambda b, c, row: [row, c])
    other = b.op("slice", r, starts=(2, 0, 0), sizes=(1, 2, 3))
    other = b.op("reshape", other, new_shape=(2, 3))
    b.results(
        b.op("cond", p, [v, other], regions=[keep, swap]),
        b.op("while", [v, n], regions=[test, step]),
        b.op("scan", [v, r], regions=[shift], carry_count=1, scan_output_count=1),
    )
    program.regions.extend([keep, swap, test, step, shift])
    assert verify(program, Diagnostics())
    for engine in ENGINES:
        for choice in (True, False):
            arrays = [np.array(choice), x, rows, np.array(3, np.int32)]
            found = list(execute(program, arrays, RunOptions(engine=engine)).values())
            wanted = [x if choice else rows[2], x, np.array(0, np.int32), rows[3], np.stack([x, *rows[:3]])]
            for got, want in zip(found, wanted, strict=True):
                check(got, want, False)


def test_the_oracle_of_casts_is_the_contracts_table():
    """Read off the contract, by eye."""
    float_to_int = cast(np.array([1.9, -1.9, 300.0, -300.0, math.inf, -math.inf, math.nan]), "si8")
    assert float_to_int.tolist() == [1, -1, 127, -128, 127, -128, 0]
    assert cast(np.array([-1, 300, 70000]), "ui8").tolist() == [0, 255, 255]
    half = Want(np.array([2049.0, 2051.0]), "f16")
    check(np.array([2048, 2052], np.float16), half, True)
