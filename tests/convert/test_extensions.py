"""The extension ops of PTIR in MIND and in Tiny, held to NumPy in float64 and to Python's integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.choices import Seeded
from ptir_tools.core.dtypes import F16, F32, F64, SI32
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.composites import express
from ptir_tools.engines import RunOptions, run
from tests.convert.translations import agree, parse, prove, reread, translated

FLOATS = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 0.3, -0.3, 1, -1, 1e-8, -1e-8, 1e10, -1e10, 8388607.5, 4194303.5, np.inf,
     -np.inf, np.nan, 100.7, -100.2, 0.49999997, -0.49999997, 3.14159, 20.3, -20.3, 0.9999, -0.9999, 1e-3, 8190.5],
    np.float32,
)  # fmt: skip
FLOATS = np.concatenate([FLOATS, np.random.default_rng(0).normal(size=32).astype(np.float32) * 3])
NUMPY = {"si32": np.int32, "si64": np.int64, "si8": np.int8, "ui8": np.uint8, "i1": np.bool_, "f16": np.float16,
         "f32": np.float32, "f64": np.float64}  # fmt: skip


def source(op: str, dtype: str, arity: int, shape: str, out: str, attrs: str = "") -> str:
    names = ["%x", "%y"][:arity]
    params = ", ".join(f"{n}: tensor<{dtype}, {shape}>" for n in names)
    return (
        f"func @main({params}) -> tensor<{out}> {{\n  %r = {op}({', '.join(names)}) {attrs} -> tensor<{out}>\n  return %r\n}}\n"
    )


def translated_result(text: str, target: str, inputs: list[Any], lossy: bool = True, check: bool = True) -> Any:
    """What the translation computes, and, by the way, whether `--check` finds it equal."""
    before = parse(text, "ptir")
    made = translated(before, target, lossy=lossy)
    assert made.program is not None, made.errors
    given = dict(zip("xy", inputs, strict=False)) | {k: from_literal(v) for k, v in made.constants.items()}
    if target == "tiny":
        given = {k: v.astype(np.int32) if v.dtype.kind in "iu" else v for k, v in given.items()}
    with np.errstate(all="ignore"):
        (found,) = run(made.program, given, RunOptions(engine="reference")).values()
    if check:
        agree(before, made.program, made.constants)
    return np.asarray(found)


def ulps(found: Any, wanted: Any) -> float:
    """How many units of the last place they are apart; infinite where only one is a number."""
    wanted = wanted.astype(found.dtype)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(all="ignore"):
        off = np.abs(found.astype(float) - wanted.astype(float)) / np.spacing(np.abs(wanted)).astype(float)
    return float(np.max(np.where(same, 0, np.where(np.isfinite(off), off, math.inf)), initial=0))


def away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


EXACT = {"floor": np.floor, "ceil": np.ceil, "round_even": np.rint, "round_away": away, "sign": np.sign}
WITHIN = {
    "expm1": np.expm1, "log1p": np.log1p, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos, "cbrt": np.cbrt,
}  # fmt: skip
PERIODIC = {"sin": np.sin, "cos": np.cos, "tan": np.tan}


@pytest.mark.parametrize("target", ["tiny", "mind"])
@pytest.mark.parametrize("op", [*EXACT, *WITHIN, *PERIODIC])
def test_functions(op: str, target: str) -> None:
    """Exact, or within 4 units of the last place; sine, cosine and tangent only with --lossy, NaN from 8192 on."""
    for dtype in ("f32", "f16") if target == "tiny" else ("f32", "f64"):
        with np.errstate(all="ignore"):
            given = FLOATS.astype(NUMPY[dtype])
            given = given[np.abs(given) < 8192] if op in PERIODIC else given
            wanted = (EXACT | WITHIN | PERIODIC)[op](given.astype(np.float64)).astype(NUMPY[dtype])
        text = source(op, dtype, 1, str(len(given)), f"{dtype}, {len(given)}")
        found = translated_result(text, target, [given], lossy=target == "mind" or op in PERIODIC)
        assert ulps(found, wanted) <= (0 if op in EXACT else 4), (op, dtype)
        if op in PERIODIC:
            assert translated(parse(text, "ptir"), target).program is None
            assert np.isnan(translated_result(text, target, [np.full_like(given, 2.0**21 if dtype != "f16" else np.nan)])).all()


def test_the_sign_of_a_zero_stays_in_tiny() -> None:
    zeros = np.array([-0.0, 0.0, -0.2], np.float32)
    for op in ("floor", "round_even", "round_away", "sign", "sin", "asinh", "atan", "cbrt", "log1p", "expm1"):
        found = translated_result(source(op, "f32", 1, "3", "f32, 3"), "tiny", [zeros])
        np.testing.assert_array_equal(np.signbit(found), [True, False, True], err_msg=op)


def test_what_is_finite() -> None:
    found = translated_result(source("is_finite", "f32", 1, str(len(FLOATS)), f"i1, {len(FLOATS)}"), "tiny", [FLOATS])
    np.testing.assert_array_equal(found, np.isfinite(FLOATS))


@pytest.mark.parametrize("out", ["si8", "ui8", "si16", "si32"])
@pytest.mark.parametrize("dtype", ["f32", "si32"])
def test_an_extreme_is_the_nearest_number_of_its_dtype(dtype: str, out: str) -> None:
    """In Tiny, where narrow integers are carried as i32; over nothing, too."""
    given = np.array([[300, -5000], [7, -300], [70000, -70000]], NUMPY[dtype])
    least, most = {"si8": (-128, 127), "ui8": (0, 255), "si16": (-(2**15), 2**15 - 1), "si32": (-(2**31), 2**31 - 1)}[out]
    for op, nothing in (("reduce_max", least), ("reduce_min", most)):
        wanted = np.clip(getattr(given, op[7:])(axis=1).astype(np.int64), least, most)
        found = translated_result(source(op, dtype, 1, "3x2", f"{out}, 3", f"axes[1] out_dtype[{out}]"), "tiny", [given])
        np.testing.assert_array_equal(found, wanted)
        empty = source(op, dtype, 1, "3x0", f"{out}, 3", f"axes[1] out_dtype[{out}]")
        np.testing.assert_array_equal(translated_result(empty, "tiny", [given[:, :0]]), [nothing] * 3)


X = [2, 3, -1, -1, 1, 0, 0, 7, -2, 0.5, np.nan, 1, np.inf, -8, 10, 0.0]
Y = [10, -1, -3, 4, -9, -1, 0, 40, 31, 0.5, 0, np.nan, 2, 1 / 3, -20, 0.5]
V = [0, -0.0, 0, -0.0, 1, -1, 1, -1, np.inf, -np.inf, 2, 3, np.nan, 1e30, 1e-30, -5]
U = [0, 0, -1, -0.0, 1, 1, -1, -1, np.inf, -np.inf, -np.inf, 0, 1, 1e-30, 1e30, 0]


def test_powers_and_arcs_of_two() -> None:
    """A power is rounded as many units as its logarithm is large."""
    x, y, v, u = (np.array(z, np.float32) for z in (X, Y, V, U))
    with np.errstate(all="ignore"):
        powers, arcs = np.power(x.astype(np.float64), y), np.arctan2(v.astype(np.float64), u)
    for target in ("tiny", "mind"):
        assert ulps(translated_result(source("pow", "f32", 2, "16", "f32, 16"), target, [x, y]), powers) <= 100
    found = translated_result(source("atan2", "f32", 2, "16", "f32, 16"), "tiny", [v, u])
    assert ulps(found, arcs) <= 4
    some = (v != 0) & ((u < 0) | ~np.signbit(u))  # MIND does not tell the zeros apart
    found = translated_result(source("atan2", "f32", 2, "16", "f32, 16"), "mind", [v, u])
    assert ulps(found[some], arcs[some]) <= 4


def edges(dtype: str, n: int, seed: int) -> Any:
    kind = NUMPY[dtype]
    if kind is np.bool_:
        return np.random.default_rng(seed).integers(0, 2, n).astype(kind)
    info = np.iinfo(kind)
    found = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], kind)
    more = np.random.default_rng(seed).integers(info.min, info.max, n, dtype=kind, endpoint=True)
    return np.random.default_rng(seed).permutation(np.concatenate([found, more]))[:n]


def wrapped(value: int, dtype: str) -> int:
    bits = np.iinfo(NUMPY[dtype]).bits
    value %= 1 << bits
    return value - (1 << bits) if dtype[0] == "s" and value >> (bits - 1) else value


def shifted(op: str, x: int, by: int, dtype: str) -> int:
    bits = np.iinfo(NUMPY[dtype]).bits
    by = min(by % (1 << bits), bits)
    if op == "shift_right_arithmetic":
        signed = x - (1 << bits) if x % (1 << bits) >> (bits - 1) and x >= 0 else x
        return wrapped(signed >> min(by, bits - 1), dtype)
    moved = (x % (1 << bits)) << by if op == "shift_left" else (x % (1 << bits)) >> by
    return wrapped(moved, dtype) if by < bits else 0


def of_bits(op: str, dtype: str, x: Any, y: Any) -> Any:
    """The op by Python's integers."""
    if dtype == "i1":
        return {"bitwise_and": x & y, "bitwise_or": x | y, "bitwise_xor": x ^ y, "bitwise_not": ~x}[op]
    bits = np.iinfo(NUMPY[dtype]).bits
    ones = [(int(a) % (1 << bits), int(b)) for a, b in zip(x, y, strict=True)]
    compute = {
        "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
        "bitwise_not": lambda a, b: ~a, "popcount": lambda a, b: a.bit_count(),
        "count_leading_zeros": lambda a, b: bits - a.bit_length(),
    }  # fmt: skip
    if op in compute:
        return [wrapped(compute[op](a, b), dtype) for a, b in ones]
    return [shifted(op, int(a), int(b), dtype) for a, b in zip(x, y, strict=True)]


ON_BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "popcount", "count_leading_zeros", "shift_left",
           "shift_right_logical", "shift_right_arithmetic"]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "dtype"), [("tiny", "si32"), ("tiny", "si8"), ("tiny", "ui8"), ("tiny", "i1"), ("mind", "si32")]
)
def test_bits(target: str, dtype: str) -> None:
    n = 12
    x, y = edges(dtype, n, 1), edges(dtype, n, 2)
    for op in ON_BITS[:4] if dtype == "i1" else ON_BITS:
        by = np.resize([0, 1, 3, 7, 8, 31, 40, 2], n).astype(NUMPY[dtype]) if op.startswith("shift") else y
        arity = 1 if op in ("bitwise_not", "popcount", "count_leading_zeros") else 2
        text = source(op, dtype, arity, str(n), f"{dtype}, {n}")
        found = translated_result(text, target, [x, by][:arity], lossy=False, check=target == "tiny")
        np.testing.assert_array_equal(found, of_bits(op, dtype, x, by), err_msg=op)


def test_bits_of_64() -> None:
    x, y = edges("si64", 6, 1), edges("si64", 6, 2)
    for op in ON_BITS:
        by = np.array([0, 1, 7, 63, 64, -1]) if op.startswith("shift") else y
        arity = 1 if op in ("bitwise_not", "popcount", "count_leading_zeros") else 2
        found = translated_result(source(op, "si64", arity, "6", "si64, 6"), "mind", [x, by][:arity], lossy=False, check=False)
        np.testing.assert_array_equal(found, of_bits(op, "si64", x, by), err_msg=op)


def of_pair(op: str, a: int, b: int, dtype: str) -> int:
    """An op on two integers of 8 bits, by Python's integers."""
    if op in ON_BITS:
        return of_bits(op, dtype, [a], [b])[0]
    whole = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if op in ("div", "rem") else 0
    number = {
        "div": whole,
        "rem": a - whole * b,
        "mod": a % b if op == "mod" else 0,
        "maximum": max(a, b),
        "sub": a - b,
        "compare_lt": a < b,
        "compare_eq": a == b,
    }
    return wrapped(int(number[op]), dtype)


@pytest.mark.parametrize("dtype", ["si8", "ui8"])
@pytest.mark.parametrize("op", [*ON_BITS, "div", "rem", "mod", "maximum", "sub", "compare_lt", "compare_eq"])
def test_all_pairs_of_8_bits(op: str, dtype: str) -> None:
    """In Tiny, which carries them as i32."""
    least, most = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
    every = np.arange(least, most + 1).astype(NUMPY[dtype])
    x, y = (v.reshape(-1) for v in np.meshgrid(every, every))
    if op in ("div", "rem", "mod"):
        x, y = x[y != 0], y[y != 0]
    arity = 1 if op in ("bitwise_not", "popcount", "count_leading_zeros") else 2
    if arity == 1:
        x = y = every
    out = "i1" if op.startswith("compare") else dtype
    text = source(op, dtype, arity, str(len(x)), f"{out}, {len(x)}")
    found = translated_result(text, "tiny", [x, y][:arity], lossy=False, check=False)
    np.testing.assert_array_equal(found, [of_pair(op, int(a), int(b), dtype) for a, b in zip(x, y, strict=True)])


def test_powers_of_integers() -> None:
    x, y = np.array([2, 3, -1, -1, 1, 0, 0, 7, -2], np.int32), np.array([10, -1, -3, 4, -9, -1, 0, 40, 31], np.int32)
    wanted = [
        wrapped(int(a) ** int(b), "si32") if b >= 0 else {1: 1, -1: -1 if b % 2 else 1}.get(int(a), 0)
        for a, b in zip(x, y, strict=True)
    ]
    found = translated_result(source("pow", "si32", 2, "9", "si32, 9"), "tiny", [x, y])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", ["div", "rem", "mod"])
@pytest.mark.parametrize(("target", "dtype"), [("mind", "si32"), ("mind", "si64"), ("tiny", "si32")])
def test_quotients_by_one_number(target: str, dtype: str, op: str) -> None:
    """As Python's integers, at both ends of the range and around multiples."""
    low, high = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
    x = [0, 1, -1, 2, -2, 3, -3, 5, -5, 6, 7, -7, 100, -100, 1000003, -1000003, low, high, low + 1, high - 1]
    divisors = (1, -1, 2, -2, 3, -3, 7, -7, 64, -4096, 1000, 1 << 20, (1 << 23) - 1, -(1 << 23), (1 << 23) + 1, high, low)
    if target == "mind":
        divisors = tuple(n for n in divisors if n not in ((1 << 23) + 1, high, (1 << 23) - 1))  # they have large prime factors
    for n in divisors:
        for whole in (n, high // n * n, low // n * n, 1000 * n):
            x += [v for v in (whole - 1, whole, whole + 1) if low <= v <= high]
        whole = [abs(v) // abs(n) * (1 if (v < 0) == (n < 0) else -1) for v in x]
        wanted = {"div": whole, "rem": [v - q * n for v, q in zip(x, whole, strict=True)], "mod": [v % n for v in x]}[op]
        number = f"dense<{n}> : tensor<{dtype}, {len(x)}>"
        text = source(op, dtype, 1, str(len(x)), f"{dtype}, {len(x)}").replace("(%x)", f"(%x, {number})")
        found = translated_result(text, target, [np.array(x, NUMPY[dtype])])
        np.testing.assert_array_equal(found, [wrapped(v, dtype) for v in wanted], str(n))


RUNNING = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}


@pytest.mark.parametrize(("target", "dtype"), [("tiny", "si32"), ("tiny", "f32"), ("mind", "si32"), ("mind", "f64")])
@pytest.mark.parametrize("n", [5, 70])
def test_running_results(target: str, dtype: str, n: int) -> None:
    """A short axis, and one that has no windows."""
    x = edges("si32", 3 * n, 3).reshape(3, n)
    x = x if dtype == "si32" else np.random.default_rng(4).normal(size=(3, n)).astype(NUMPY[dtype])
    for op, compute in RUNNING.items():
        for axis, reverse in ((0, False), (1, True)):
            with np.errstate(over="ignore"):
                given = np.flip(x, axis) if reverse else x
                wanted = compute(given if dtype == "si32" else given.astype(np.float64), axis=axis)
            wanted = (np.flip(wanted, axis) if reverse else wanted).astype(x.dtype)
            attrs = f"axis[{axis}] reverse[{str(reverse).lower()}]"
            found = translated_result(
                source(op, dtype, 1, f"3x{n}", f"{dtype}, 3x{n}", attrs), target, [x], check=target == "tiny"
            )
            tolerance = 0 if op[:4] == "cumm" or dtype == "si32" else 1e-5 if dtype == "f32" else 1e-13
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=op)
    exclusive = translated_result(
        source("cumsum", "si32", 1, "4", "si32, 4", "axis[0] exclusive[true]"), target, [np.arange(1, 5, dtype=np.int32)]
    )
    np.testing.assert_array_equal(exclusive, [0, 1, 3, 6])


@pytest.mark.parametrize(
    ("op", "compute"), [("reduce_and", np.bitwise_and), ("reduce_or", np.bitwise_or), ("reduce_xor", np.bitwise_xor)]
)
def test_reductions_of_bits(op: str, compute: Any) -> None:
    for dtype in ("si32", "i1"):
        x = edges(dtype, 15, 5).reshape(3, 5)
        found = translated_result(source(op, dtype, 1, "3x5", f"{dtype}, 3", "axes[1]"), "tiny", [x])
        np.testing.assert_array_equal(found, compute.reduce(x, axis=1))


def test_products() -> None:
    x = np.random.default_rng(6).normal(size=(3, 5)).astype(np.float32)
    for target in ("tiny", "mind"):
        found = translated_result(source("reduce_prod", "f32", 1, "3x5", "f32, 3", "axes[1]"), target, [x])
        np.testing.assert_allclose(found, np.prod(x.astype(np.float64), axis=1), rtol=1e-6)
    found = translated_result(source("reduce_prod", "f32", 1, "3x0", "f32, 3", "axes[1]"), "tiny", [x[:, :0]])
    np.testing.assert_array_equal(found, [1, 1, 1])


def test_products_in_f16_do_not_overflow_in_an_order_of_their_own() -> None:
    """A half that overflows times one that vanishes would be NaN; the product is 1."""
    x = np.float16([[1e4, 1e-4, 1e4, 1e-4]])
    found = translated_result(source("reduce_prod", "f16", 1, "1x4", "f16, 1", "axes[1] accum_dtype[f16]"), "tiny", [x])
    np.testing.assert_allclose(found.astype(float), [np.prod(x.astype(float))], rtol=1e-3)


def test_orders() -> None:
    x = np.array([[3, np.nan, -1, 3, -np.inf], [0, 5, 5, np.inf, 2]], np.float32)
    found = translated_result(source("sort", "f32", 1, "2x5", "f32, 2x5", "axis[1]"), "tiny", [x])
    np.testing.assert_array_equal(found, np.sort(x, axis=1))
    found = translated_result(source("argmin", "f32", 1, "2x5", "si32, 2", "axis[1]"), "tiny", [x])
    np.testing.assert_array_equal(found, np.argmin(x, axis=1))
    least = np.array([[5, -(2**31), 3, 2**31 - 1, -(2**31)]], np.int32)
    found = translated_result(source("argmin", "si32", 1, "1x5", "si32, 1", "axis[1]"), "tiny", [least])
    np.testing.assert_array_equal(found, [1])


def assert_proved(target: str, seeds: range) -> None:
    """Generated programs of these ops, proved without and checked with --lossy."""
    generate = load_dialect("ptir").generate
    assert generate is not None
    ops = [*express.EXACT, *express.FUNCTIONS, *express.PERIODIC, *express.PAIRS]
    dtypes = (F32, F16, SI32) if target == "tiny" else (F32, F64, SI32)
    accepted = 0
    for seed in seeds:
        before = reread(generate(Seeded(seed), size=4, dtypes=dtypes, only=ops, symbols=seed % 4 == 0))
        prove(before, target, seed)
        made = translated(before, target, lossy=True)
        if made.program is not None:
            accepted += 1
            agree(before, made.program, made.constants, seed=seed)
    assert accepted >= len(seeds) // 5


@pytest.mark.parametrize("target", ["tiny", "mind"])
def test_generated_programs_of_extensions(target: str) -> None:
    assert_proved(target, range(20))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["tiny", "mind"])
def test_many_generated_programs_of_extensions(target: str) -> None:
    assert_proved(target, range(100, 200))


def test_a_truth_is_no_result_in_mind_a_literal_neither() -> None:
    text = "func @main(%x: tensor<f32, 2>) -> tensor<i1, 2> {\n  return dense<[true, false]> : tensor<i1, 2>\n}\n"
    assert [m for _, m in translated(parse(text, "ptir"), "mind").errors] == ["a result: MIND has no i1"]


@pytest.mark.parametrize("target", ["mind", "tiny", "pto"])
@pytest.mark.parametrize("start", ["iota() axis[0]", "reshape(%x) new_shape[4]"])
def test_a_value_that_is_used_twice_is_looked_at_once(start: str, target: str) -> None:
    """Sixty doublings, by constants alone or not, behind a comparison: a walk of every path would not end."""
    t, test = "tensor<f32, 4>", "tensor<i1, 4>"
    doubled = "".join(f"  %v{k + 1} = {('add', 'maximum')[k % 2]}(%v{k}, %v{k}) -> {t}\n" for k in range(60))
    ends = f"  %c = compare_gt(%v60, %x) -> {test}\n  %y = select(%c, %v60, %x) -> {t}\n  return %y\n"
    before = parse(f"func @main(%x: {t}) -> {t} {{\n  %v0 = {start} -> {t}\n{doubled}{ends}}}\n", "ptir")
    made = translated(before, target, lossy=True)
    assert made.program is not None, made.errors


def test_what_is_never_negative_is_asked_once_of_each_value() -> None:
    """Sixty sums and products of an exponential, and a quotient by the last: to MIND, and back."""
    t = "tensor<f32, 4>"
    doubled = "".join(f"  %v{k + 1} = {('add', 'mul')[k % 2]}(%v{k}, %v{k}) -> {t}\n" for k in range(60))
    ends = f"  %y = div(%x, %v60) -> {t}\n  return %y\n"
    made = translated(
        parse(f"func @main(%x: {t}) -> {t} {{\n  %v0 = exp(%x) -> {t}\n{doubled}{ends}}}\n", "ptir"), "mind", lossy=True
    )
    assert made.program is not None, made.errors
    assert translated(made.program, "ptir", constants=made.constants).program is not None


@pytest.mark.parametrize("target", ["mind", "tiny", "pto"])
def test_a_long_chain_of_constants_is_computed(target: str) -> None:
    """Deeper than Python's stack: the integers 2000, 2001, … are compared, a mask by constants alone."""
    t = "tensor<si64, 4>"
    chain = "".join(f"  %v{k + 1} = add(%v{k}, %one) -> {t}\n" for k in range(2000))
    source = (
        f"func @main(%x: tensor<f32, 4>) -> tensor<f32, 4> {{\n  %v0 = iota() axis[0] -> {t}\n"
        f"  %one = constant() value[dense<1>] -> {t}\n  %most = constant() value[dense<2002>] -> {t}\n{chain}"
        "  %m = compare_lt(%v2000, %most) -> tensor<i1, 4>\n  %z = sub(%x, %x) -> tensor<f32, 4>\n"
        "  %y = select(%m, %x, %z) -> tensor<f32, 4>\n  return %y\n}\n"
    )
    made = translated(parse(source, "ptir"), target)
    assert made.program is not None, made.errors
    agree(parse(source, "ptir"), made.program, made.constants)


def test_constants_that_fail_are_left_to_run() -> None:
    """A quotient of constants by 0 fails when it runs, and not while it is translated."""
    t = "tensor<si32, 4>"
    source = (
        f"func @main(%x: tensor<f32, 4>) -> tensor<f32, 4> {{\n  %a = iota() axis[0] -> {t}\n"
        f"  %b = div(%a, %a) -> {t}\n  %m = compare_lt(%b, %a) -> tensor<i1, 4>\n"
        "  %y = select(%m, %x, %x) -> tensor<f32, 4>\n  return %y\n}\n"
    )
    for target in ("mind", "pto"):
        made = translated(parse(source, "ptir"), target)
        assert made.program is not None or {code for code, _ in made.errors} == {"NotTranslatable"}, made.errors
