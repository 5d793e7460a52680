"""Conversions between dtypes, against exact rational arithmetic and ml_dtypes' own tables of values."""

import json
import signal
import sys
from collections.abc import KeysView
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core import arrayfiles, arrays
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dtypes import (
    BF16,
    CF32,
    CF64,
    F16,
    F32,
    F64,
    FP8_E4M3,
    FP8_E5M2,
    I1,
    PTIR_DTYPES,
    SI4,
    SI8,
    SI32,
    SI64,
    UI4,
    UI8,
    UI64,
    DType,
    Kind,
    lossless,
)
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import Violation

SMALL_FLOATS = {BF16: ml_dtypes.bfloat16, F16: np.float16, FP8_E4M3: ml_dtypes.float8_e4m3fn, FP8_E5M2: ml_dtypes.float8_e5m2}


def finite_values(dtype: DType) -> np.ndarray:
    """Every finite non-negative value of a small float dtype, ascending, as float64 (all are exact there)."""
    bits = np.arange(1 << (dtype.bits - 1), dtype=f"u{dtype.bits // 8}")
    with np.errstate(invalid="ignore"):  # signaling NaNs
        values = bits.view(SMALL_FLOATS[dtype]).astype(np.float64)
    return np.sort(values[np.isfinite(values)])


TABLES = {d: finite_values(d) for d in SMALL_FLOATS}


def nearest_even(x: Fraction, dtype: DType) -> float:
    """`x` rounded to nearest even by comparing exact distances to the dtype's values."""
    table = TABLES[dtype]
    magnitude = abs(x)
    step = Fraction(table[-1]) - Fraction(table[-2])
    if magnitude >= Fraction(table[-1]) + step / 2:
        # Halfway above the largest rounds to even, which is the next power: infinity. e4m3fn has no infinity, and its
        # largest value has an even last bit, so that exactly halfway stays there.
        if dtype is not FP8_E4M3:
            return float(np.copysign(np.inf, float(np.sign(float(x)))))
        return float(np.copysign(table[-1], float(x))) if magnitude == Fraction(table[-1]) + step / 2 else float("nan")
    above = int(np.searchsorted(table, float(magnitude)))
    candidates = [i for i in (above - 2, above - 1, above, above + 1) if 0 <= i < len(table)]
    best = min(candidates, key=lambda i: (abs(Fraction(table[i]) - magnitude), i % 2))
    return float(np.copysign(table[best], -1.0 if x < 0 else 1.0))


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_rounding_from_f64_is_once_and_to_even(dtype: DType, data: st.DataObject) -> None:
    table = TABLES[dtype]
    i = data.draw(st.integers(0, len(table) - 2))
    middle = (table[i] + table[i + 1]) / 2  # exact: one more bit
    nudge = data.draw(st.sampled_from([0.0, 2.0**-40, -(2.0**-40), 2.0**-52, -(2.0**-52)]))
    x = middle * (1 + nudge) * data.draw(st.sampled_from([1.0, -1.0]))
    got = float(arrays.round_float(np.array([x]), dtype)[0])
    assert got == nearest_even(Fraction(x), dtype)


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
@settings(max_examples=200, deadline=None)
@given(x=st.integers(-(2**63), 2**63 - 1))
def test_rounding_from_int64_is_once(dtype: DType, x: int) -> None:
    got = float(arrays.cast(np.array([x], np.int64), SI64, dtype)[0])
    want = nearest_even(Fraction(x), dtype)
    assert got == want or (np.isnan(got) and np.isnan(want))


def test_ties_of_int64_that_float64_cannot_hold() -> None:
    x = np.array([2**62 + 2**54 + 1, 2**62 + 2**54, -(2**62) - 2**54 - 1])
    assert arrays.cast(x, SI64, BF16).astype(np.float64).tolist() == [2.0**62 + 2.0**55, 2.0**62, -(2.0**62) - 2.0**55]


@settings(max_examples=300, deadline=None)
@given(x=st.floats(width=64), target=st.sampled_from([d for d in PTIR_DTYPES if d.is_integer]))
def test_float_to_integer_truncates_and_saturates(x: float, target: DType) -> None:
    got = int(arrays.cast(np.array([x]), F64, target)[0])
    want = (
        0 if np.isnan(x) else max(target.min, min(target.max, int(x) if np.isfinite(x) else (10**400 if x > 0 else -(10**400))))
    )
    assert got == want


@settings(max_examples=300, deadline=None)
@given(
    source=st.sampled_from([d for d in PTIR_DTYPES if d.is_integer]),
    target=st.sampled_from([d for d in PTIR_DTYPES if d.is_integer]),
    data=st.data(),
)
def test_integer_to_integer_saturates(source: DType, target: DType, data: st.DataObject) -> None:
    x = data.draw(st.integers(source.min, source.max))
    array = np.array([x], np.int64 if source.is_signed else np.uint64).astype(arrays.numpy_dtype(source))
    assert int(arrays.cast(array, source, target)[0]) == max(target.min, min(target.max, x))


def test_cast_to_and_from_i1() -> None:
    x = np.array([0.0, -0.0, 0.25, np.nan, -np.inf])
    assert arrays.cast(x, F64, I1).tolist() == [False, False, True, True, True]
    for target in PTIR_DTYPES:
        got = arrays.cast(np.array([False, True]), I1, target)
        assert got.dtype == arrays.numpy_dtype(target)
        assert got.astype(np.float64).tolist() == [0.0, 1.0] if not target.is_complex else got.tolist() == [0, 1]


def test_complex_to_real_is_refused_and_real_to_complex_has_no_imaginary_part() -> None:
    with pytest.raises(Violation, match="imaginary"):
        arrays.cast(np.array([1j]), CF64, F32)
    assert arrays.cast(np.array([1.5], np.float32), F32, CF32).tolist() == [1.5 + 0j]


@pytest.mark.parametrize("dtype", PTIR_DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_pack_and_unpack_are_inverse(dtype: DType, count: int) -> None:
    x = np.arange(count).astype(np.int8).astype(arrays.numpy_dtype(dtype))
    data = arrays.pack(x, dtype)
    assert len(data) == dtype.packed_bytes(count)
    assert np.array_equal(arrays.unpack(data, dtype, count), x)


def test_four_bit_values_stand_two_to_a_byte_low_nibble_first() -> None:
    assert arrays.pack(np.array([-1, -8, 3], ml_dtypes.int4), SI4) == b"\x8f\x03"
    assert arrays.unpack(b"\x8f\x03", SI4, 3).astype(int).tolist() == [-1, -8, 3]
    assert arrays.unpack(b"\x8f\x03", UI4, 3).astype(int).tolist() == [15, 8, 3]


def test_a_literal_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(Violation, match="3 elements of f32 are 12 bytes, got 8"):
        arrays.from_literal(Literal(tensor(F32, (3,)), bytes(8)))
    with pytest.raises(Violation, match="payload"):
        arrays.from_literal(Literal(tensor(F32, (3,)), None))


def test_splats_are_found_by_bits() -> None:
    assert arrays.to_literal(np.full((2, 2), np.nan, np.float32), tensor(F32, (2, 2))).splat
    assert not arrays.to_literal(np.array([0.0, -0.0], np.float32), tensor(F32, (2,))).splat
    assert not arrays.to_literal(np.array(1.0, np.float32), tensor(F32)).splat
    huge = arrays.to_literal(np.broadcast_to(np.float32(2), (1, 3)), tensor(F32, (1, 3)))
    assert huge.splat and huge.data == np.float32(2).tobytes()
    assert arrays.from_literal(Literal(tensor(F32, (10**6, 10**6)), bytes(4), splat=True)).strides == (0, 0)


def test_narrow_wraps_integers_and_rounds_floats() -> None:
    assert arrays.narrow(np.array([9, -9], np.int8), SI4).astype(int).tolist() == [-7, 7]
    assert arrays.narrow(np.array([17], np.uint8), UI4).astype(int).tolist() == [1]
    assert arrays.narrow(np.array([300]), SI8).tolist() == [44]
    assert arrays.narrow(np.array([1e39, 1 + 2**-24]), F32).tolist() == [np.inf, 1.0]


def test_uint64_and_int64_extremes() -> None:
    assert arrays.cast(np.array([2**64 - 1], np.uint64), UI64, SI64).tolist() == [2**63 - 1]
    assert arrays.cast(np.array([-1], np.int64), SI64, UI64).tolist() == [0]
    assert arrays.cast(np.array([2**64 - 1], np.uint64), UI64, UI8).tolist() == [255]
    assert arrays.cast(np.array([1e30, -1e30, 9.3e18]), F64, UI64).tolist() == [2**64 - 1, 0, 9300000000000000000]
    assert arrays.cast(np.array([3e9, -3e9]), F64, SI32).tolist() == [2**31 - 1, -(2**31)]


def test_the_names_of_an_archive_are_not_listed_for_every_reference(tmp_path: Path) -> None:
    """A program asks once per weight; a list that is made or searched each time would be quadratic."""
    path = tmp_path / "w.npz"
    np.savez(path, a=np.zeros(1), b=np.zeros(2))
    archive = arrayfiles.Archive(str(path))
    assert archive.names is archive.names and list(archive.names) == ["a", "b"]
    assert isinstance(archive.names, KeysView)


def test_the_only_array_of_an_archive_needs_no_key(tmp_path: Path) -> None:
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    np.savez(one, a=np.arange(3))
    np.savez(two, a=np.arange(3), b=np.arange(2))
    assert arrayfiles.load(str(one)).tolist() == [0, 1, 2] and arrayfiles.load(str(two), "b").tolist() == [0, 1]
    with pytest.raises(UsageError, match="holds a, b; name one"):
        arrayfiles.load(str(two))


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False), (2, False)])
def test_an_index_of_files_is_read_up_to_its_limit(
    more: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"weight_map": {}}'
    monkeypatch.setattr(arrayfiles, "_SAFE_HEADER", len(text))
    path = tmp_path / "w.safetensors.index.json"
    path.write_text(text + " " * more)
    if fits:
        assert not arrayfiles.Archive(str(path)).names
    else:
        with pytest.raises(OSError, match=f"more than {len(text)} bytes"):
            arrayfiles.Archive(str(path))


@pytest.mark.parametrize("length", range(1, 18))
def test_the_arrays_of_a_safetensors_file_are_aligned(length: int, tmp_path: Path) -> None:
    """Whatever the length of the header, which is read here by the format's own description."""
    arrays_ = {"n" * length: np.arange(3, dtype=np.float32), "d": np.arange(2.0), "b": np.array([1, 2, 3], np.int8)}
    with open(path := tmp_path / "x.safetensors", "wb") as file:
        arrayfiles.save(str(path), file, arrays_)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0 and list(header) == list(arrays_)
    for name, a in arrays_.items():
        start, end = header[name]["data_offsets"]
        assert (8 + size + start) % a.itemsize == 0
        assert data[8 + size + start : 8 + size + end] == a.tobytes()


@pytest.mark.parametrize("piece", [1, 7, 16, 1000])
@pytest.mark.parametrize("behind", [0, 5, 100])
def test_an_array_is_read_piece_by_piece_and_no_further(
    piece: int, behind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever follows its bytes in the file; one that ends too early is refused."""
    monkeypatch.setattr(arrayfiles, "_PIECE", piece)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole + b"?" * behind)
    np.testing.assert_array_equal(arrayfiles.load(str(tmp_path / "x.npy")), x)
    (tmp_path / "x.npy").write_bytes(whole[:-1])
    with pytest.raises(OSError, match="bytes"):
        arrayfiles.load(str(tmp_path / "x.npy"))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends a signal")
def test_a_long_copy_answers_signals() -> None:
    """It is left before its end: the last byte is as it was."""
    source, to = np.ones(1 << 27, np.uint8), np.zeros(1 << 27, np.uint8)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            arrays.fill(to, source)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert to[-1] == 0


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (3000, 3001)])
def test_a_copy_is_the_same_array_elsewhere(shape: tuple[int, ...]) -> None:
    """Also in pieces, of which the last one is not full, and of an array that is turned."""
    x = np.random.default_rng(0).random(shape, np.float32)
    for array in (x, x.T):
        before = array.copy()
        made = arrays.copied(array)
        assert np.array_equal(array, before)
        assert np.array_equal(made, before) and made.shape == array.shape and not np.shares_memory(made, array)


def values_of(dtype: DType) -> list[int | float | complex]:
    """All values of a small dtype; of a larger one those at the ends, around powers of two, and with all digits."""
    if dtype.kind is Kind.BOOL:
        return [0, 1]
    if dtype.is_integer:
        near = {s * (1 << k) + d for k in range(dtype.bits + 1) for s in (1, -1) for d in (-1, 0, 1)} | {0}
        return [v for v in sorted(near) if dtype.min <= v <= dtype.max]
    if dtype.is_complex:
        parts = values_of(F32 if dtype is CF32 else F64)
        return [complex(1, v) for v in parts] + [complex(v, -0.0) for v in parts]
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    own = numpy_dtype(dtype).type
    found = [own(v) for v in (0.0, -0.0, 1, np.nan, info.max, info.min, info.tiny, info.smallest_subnormal)]
    found += [own(1) + own(info.eps), own(2) - own(info.eps)]
    return [float(v) for v in found] + ([np.inf] if np.isinf(own(np.inf)) else [])


def is_value_of(v: complex, dtype: DType) -> bool:
    """Whether a dtype has exactly this value, by Python's numbers."""
    if dtype.kind is Kind.BOOL:
        return not isinstance(v, complex | float) and v in (0, 1)
    if isinstance(v, complex):
        return dtype.is_complex and all(is_value_of(x, F32 if dtype is CF32 else F64) for x in (v.real, v.imag))
    if dtype.is_integer:
        return isinstance(v, int) and dtype.min <= v <= dtype.max
    own = numpy_dtype(dtype).type
    with np.errstate(over="ignore"):
        made = float(own(float(v)) if dtype.size < 4 else own(v).real)
    if made != made or v != v:
        return made != made and v != v
    return made == v and np.signbit(made) == np.signbit(np.float64(v))  # Python compares integers with floats exactly


@pytest.mark.parametrize("target", PTIR_DTYPES, ids=str)
@pytest.mark.parametrize("source", PTIR_DTYPES, ids=str)
def test_a_cast_is_lossless_where_each_value_is_one_of_the_other_dtype(source: DType, target: DType) -> None:
    assert lossless(source, target) is all(is_value_of(v, target) for v in values_of(source))


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("dtype", PTIR_DTYPES, ids=str)
def test_literals_are_read_on_machines_of_either_byte_order(dtype: DType, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array is as stored if reading any bytes gives the same bytes in memory, which no other machine has."""
    data = bytes(range(240, 256)) + bytes(range(16))
    count = len(data) * 2 if dtype.bits == 4 else len(data) // dtype.size
    here = arrays.unpack(data, dtype, count)
    monkeypatch.setattr(sys, "byteorder", order)
    assert arrays.unpack(data, dtype, count).tobytes() == here.tobytes()
    assert arrays.is_as_stored(dtype) is (order == "little" and here.tobytes() == data)


def test_fresh_zeros_have_the_shape_and_the_dtype() -> None:
    for dtype in PTIR_DTYPES:
        made = arrays.zeros(tensor(dtype, (2, 3)))
        assert made.shape == (2, 3) and made.dtype == numpy_dtype(dtype) and not made.astype(complex).any()
