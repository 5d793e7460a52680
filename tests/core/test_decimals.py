"""Decimals of every IR's text are rounded exactly once; the oracle compares fractions with the neighbors in the dtype."""

from __future__ import annotations

import random
import struct
from decimal import Context, Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core import decimals
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.dtypes import BF16, F16, F32, F64, FP8_E4M3, FP8_E5M2, DType
from ptir_tools.dialects.mind.text.attributes import element
from ptir_tools.dialects.ptir.text.literals import encode
from ptir_tools.dialects.tiny.immediates import typed, untyped
from ptir_tools.grammars.literals import all_float_bytes, float_bytes
from tests.conftest import run_ptir

NARROW = (FP8_E4M3, FP8_E5M2, F16, BF16, F32)
ULP = Fraction(1, 10**30)


def bits_type(dtype: DType) -> np.dtype:
    return np.dtype(f"u{dtype.size}")


def value(bits: int, dtype: DType) -> Fraction:
    """The value of a finite positive pattern."""
    return Fraction(float(np.array(bits, bits_type(dtype)).view(numpy_dtype(dtype)).astype(np.float64)))


def largest(dtype: DType) -> int:
    """The pattern of the largest finite value."""
    return int(np.array(ml_dtypes.finfo(numpy_dtype(dtype)).max).view(bits_type(dtype)))


def text_of(exact: Fraction) -> str:
    """A finite decimal expansion, written out in full."""
    context = Context(prec=2000, Emin=-100000, Emax=100000)
    return str(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


@st.composite
def near_ties(draw: st.DrawFn) -> tuple[DType, str, int]:
    """A dtype, a decimal on, just below or just above the middle of two neighbors, and the pattern it rounds to."""
    dtype = draw(st.sampled_from(NARROW))
    low = draw(st.integers(0, largest(dtype) - 1))
    side = draw(st.sampled_from((-1, 0, 1)))
    a, b = value(low, dtype), value(low + 1, dtype)
    middle = (a + b) / 2
    pattern = low + (side > 0 or (side == 0 and low % 2 == 1))
    return dtype, text_of(middle + side * (b - a) * ULP), pattern


@settings(max_examples=300, deadline=None)
@given(near_ties())
def test_ties_and_near_ties_are_rounded_once(case: tuple[DType, str, int]) -> None:
    dtype, text, pattern = case
    assert int.from_bytes(encode([text], dtype), "little") == pattern
    assert int.from_bytes(encode(["-" + text], dtype), "little") == pattern | 1 << (dtype.bits - 1)
    if dtype in (F16, BF16, F32):
        immediate = typed(untyped(decimals.read(text)), dtype, 0)
        assert int.from_bytes(immediate.data or b"", "little") == pattern


@settings(max_examples=100, deadline=None)
@given(near_ties().filter(lambda case: case[0] is F32))
def test_f32_of_mind(case: tuple[DType, str, int]) -> None:
    dtype, text, pattern = case
    assert int.from_bytes(element(decimals.read(text), dtype), "little") == pattern


@settings(max_examples=500, deadline=None)
@given(st.integers(-(10**12), 10**12), st.integers(0, 14), st.integers(-12, 12))
def test_what_is_halfway_is_known_to_be_exact_or_not(digits: int, at: int, exponent: int) -> None:
    """Short decimals near multiples of 1/32, too, which are known to be exact without looking."""
    for text in (
        str(Decimal(digits).scaleb(-at)),
        f"{digits}e{exponent}",
        str(Decimal(digits * 3125).scaleb(-5)),
        repr(digits / 32),
    ):
        found, exact = decimals.read(text), Decimal(text)
        if isinstance(found, decimals.Inexact):
            assert (found.apart > found) == (exact > Decimal(float(found)))
        elif Fraction(found).numerator.bit_length() <= 25:
            assert exact == Decimal(found)


NEAR = "1.00000005960464477539062500001"  # just above the middle of 1 and the next f32


def run_output(text: str, *more: str) -> str:
    ran = run_ptir("run", "-", "--precision", "9", *more, stdin=text.encode())
    assert ran.status == 0, ran.err
    return ran.out.decode()


def test_every_reader_rounds_once() -> None:
    shown = "1.0000001"  # not 1., where it ends after two roundings
    constant = f"constant() value[dense<{NEAR}>] -> tensor<f32>"
    assert shown in run_output(f"func @f() -> tensor<f32> {{\n  %y = {constant}\n  return %y\n}}\n")
    assert shown in run_output(f"%0 = ConstF32({NEAR})\noutputs: %0\n")
    mind = f"%0 = ConstTensor {{dtype=f32, shape=(1), value=[{NEAR}]}} : tensor<f32[1]>\noutputs: %0\n"
    assert shown in run_output(mind)
    pto = f"""module {{
  func.func @f(%o: pto.memref<1x8xf32>) {{
    %c0 = pto.constant 0 : index
    %k = pto.constant {NEAR} : f32
    %t = pto.tile.expands %k : f32 -> tile<1x8xf32>
    pto.tile.store %t, %o[%c0, %c0] : pto.memref<1x8xf32>, tile<1x8xf32>
    return
  }}
}}
"""
    assert shown in run_output(pto, "--random", "0")
    tiny = f"""{{"uops": [{{"id": "x", "uop": "INPUT", "arg": {{"tensor_id": "x", "shape": [1], "dtype": "fp32"}}}},
      {{"id": "y", "uop": "MUL", "src": ["x", {NEAR}]}}]}}"""
    assert shown in run_output(tiny, "--input", "x=1")


def test_a_decimal_beyond_its_dtype_is_an_error() -> None:
    for dtype, text in (
        ("f32", "3.4028235677973367e38"),
        ("f32", "1e999999999"),
        ("f64", "1e999999999"),
        ("fp8_e4m3", "464.001"),
    ):
        program = f"func @f() -> tensor<{dtype}> {{\n  %y = constant() value[dense<{text}>] -> tensor<{dtype}>\n  return %y\n}}\n"
        ran = run_ptir("verify", "-", stdin=program.encode())
        assert ran.status == 1 and "InvalidLiteral" in ran.err
        assert run_ptir("verify", "-", stdin=program.replace(text, "-inf" if dtype[:2] != "fp" else "448.0").encode()).status == 0
    pad = "%y = pad(%x) low[] high[] pad_value[1e999999999] -> tensor<f32>"
    pad = f"func @f(%x: tensor<f32>) -> tensor<f32> {{\n  {pad}\n  return %y\n}}\n"
    ran = run_ptir("verify", "-", stdin=pad.encode())
    assert ran.status == 1 and ran.err.count("error[") == 1 and "InvalidAttributeValue" in ran.err


@pytest.mark.parametrize("many", [1, 1 << 16])
def test_many_numbers_are_read_as_each(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists have a way of their own: halfway cases, ends of the range and plain numbers together."""
    monkeypatch.setattr(decimals, "_MANY", many)
    rng = random.Random(0)
    halfway = 1 + 2.0**-24  # of f32
    texts = [repr(rng.uniform(-1, 1) * 10.0 ** rng.randint(-45, 38)) for _ in range(500)]
    texts += [repr(struct.unpack("f", struct.pack("f", rng.gauss(0, 1)))[0]) for _ in range(100)]
    texts += ["1.000000059604644775390625", "1.00000005960464477539062500001", "1.00000005960464477539062499999"]
    texts += ["0.0", "-0.0", "1e-46", "1.401298464324817e-45", "7.006492321624085e-46", "3.4028234e38", "0.5", repr(halfway)]
    for dtype in (F32, F64, F16, BF16, FP8_E4M3, FP8_E5M2):
        largest = {F16: 6.5e4, FP8_E4M3: 440, FP8_E5M2: 57000}.get(dtype, 3.3e38)
        between = []
        for power in range(-150, 8):  # normal and subnormal numbers, and what is between two of them, or next to that
            middle = Decimal((2 * rng.getrandbits(dtype.precision) + 1) * 2.0 ** (power - dtype.precision))
            between += [str(middle), str(middle * (1 + Decimal("1e-25"))), str(-middle * (1 - Decimal("1e-25")))]
        fitting = [x for x in texts + between if abs(float(x)) < largest]
        each = b"".join(float_bytes(decimals.read(x), dtype) for x in fitting)
        assert all_float_bytes(decimals.read_all(fitting, dtype), dtype) == each
        plain = [v for v in map(float, fitting) if v * 3 != 0]
        expected = b"".join(float_bytes(v, dtype) for v in plain)
        assert all_float_bytes(plain, dtype) == expected


def test_many_numbers_beyond_their_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decimals, "_MANY", 1)
    for dtype, value in ((F32, 3.5e38), (F16, 65520.0), (FP8_E4M3, 465.0)):
        with pytest.raises(OverflowError):
            all_float_bytes(decimals.read_all(["1.0", str(value)], dtype), dtype)
