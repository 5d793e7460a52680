"""Literals in text: every bit comes back, the decimal is the shortest, what no token can say is hex."""

import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from ptir_tools.core import arrayfiles
from ptir_tools.core.dtypes import (
    BF16,
    CF32,
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
    UI4,
    UI64,
    DType,
)
from ptir_tools.core.ir import Literal
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.external import Files
from ptir_tools.dialects.ptir.text.literal_text import float_text, payload_text
from ptir_tools.dialects.ptir.text.literals import read_payload


def digits(text: str) -> str:
    return text.lstrip("-").partition("e")[0].replace(".", "").strip("0")


def back(x: Literal) -> bool:
    return read_payload(payload_text(x), x.type).key == x.key


@pytest.mark.parametrize("dtype", [FP8_E4M3, FP8_E5M2], ids=str)
def test_every_fp8_value(dtype: DType) -> None:
    table = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    for bits in range(256):
        x = Literal(tensor(dtype), bytes([bits]))
        assert back(x)
        text = payload_text(x)
        if not text.startswith('"'):
            rounded = np.float64(text).astype(dtype.numpy)
            assert rounded.tobytes() == bytes([bits]) or (text == "nan" and np.isnan(np.float64(table[bits])))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([F32, F16, BF16]))
def test_floats_come_back_and_are_the_shortest(bits: int, dtype: DType) -> None:
    data = struct.pack("<I", bits)[-dtype.size :]
    assert back(Literal(tensor(dtype), data))
    text = float_text(data, dtype)
    value = np.frombuffer(data, np.dtype(getattr(ml_dtypes, dtype.numpy, None) or dtype.numpy))[0]
    if dtype is not BF16 and np.isfinite(value):
        assert text is not None
        mantissa = text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
        assert len(mantissa) <= len(
            np.format_float_scientific(value, unique=True).lstrip("-").partition("e")[0].replace(".", "").strip("0")
        )


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=48, max_size=48), st.sampled_from(PTIR_DTYPES), st.integers(0, 3))
def test_any_bytes_come_back(data: bytes, dtype: DType, count: int) -> None:
    x = Literal(tensor(dtype, (count,)), data[: dtype.packed_bytes(count)])
    assert payload_text(read_payload(payload_text(x), x.type)) == payload_text(x)
    again = read_payload(payload_text(x), x.type)
    full = again.data * count if again.splat and dtype.bits != 4 and again.data else again.data
    assert full == x.data or (dtype.bits == 4 and again.splat)


@pytest.mark.parametrize(
    ("dtype", "shape", "text", "printed"),
    [
        (F32, (), "2", "2.0"),
        (F32, (), "1e-5", "1e-5"),
        (F32, (), "100", "100.0"),
        (F32, (), "16777217", "16777216.0"),
        (F32, (), "0.1", "0.1"),
        (F64, (), "1e300", "1e300"),
        (F32, (), "-0.0", "-0.0"),
        (F32, (2, 2), "1.5", "1.5"),
        (F32, (2, 2), "[[1, 1], [1, 1]]", "1.0"),
        (F32, (2, 1), "[[1.0], [-inf]]", "[[1.0], [-inf]]"),
        (F32, (1,), "3.0", "[3.0]"),
        (F32, (2, 0), "[]", "[]"),
        (F32, (2, 0), "1.0", "[]"),
        (SI4, (0,), "3", "[]"),
        (F32, (2,), '"0x0000803f0000c07f"', "[1.0, nan]"),
        (F32, (2,), '"0x0000803f0100c07f"', '"0x0000803f0100c07f"'),
        (F32, (2,), '"0x0100c07f0100c07f"', '"0x0100c07f0100c07f"'),
        (I1, (3,), "[true, false, true]", "[true, false, true]"),
        (I1, (2,), '"0x0002"', '"0x0002"'),
        (SI4, (3,), "[-8, 7, 1]", "[-8, 7, 1]"),
        (UI4, (3,), "15", "15"),
        (SI8, (3,), "[-128, 127, 0]", "[-128, 127, 0]"),
        (UI64, (), "18446744073709551615", "18446744073709551615"),
        (CF32, (2,), "[(1, -2.5), 3]", "[(1.0, -2.5), (3.0, 0.0)]"),
        (F16, (), "65504", "65500.0"),
        (BF16, (), "0.1", "0.1"),
        (SI32, (65,), '"0x' + "01000000" * 65 + '"', "1"),
        (F32, (), "?", "?"),
    ],
)
def test_payloads(dtype: DType, shape: tuple[int, ...], text: str, printed: str) -> None:
    x = read_payload(text, tensor(dtype, shape))
    assert payload_text(x) == printed
    assert payload_text(read_payload(printed, x.type)) == printed


def test_more_than_sixty_four_elements_are_hex() -> None:
    data = np.arange(65, dtype="<f4").tobytes()
    assert payload_text(Literal(tensor(F32, (65,)), data)) == f'"0x{data.hex()}"'
    assert payload_text(Literal(tensor(F32, (64,)), data[:-4])).startswith("[0.0, 1.0,")


@pytest.mark.parametrize(
    ("dtype", "shape", "text", "code"),
    [
        (F32, (2,), "[1.0]", "LiteralSizeMismatch"),
        (F32, (2,), "[[1.0, 2.0]]", "LiteralSizeMismatch"),
        (F32, (), "[1.0", "SyntaxError"),
        (F32, (), "", "SyntaxError"),
        (F32, (0,), "x", "InvalidLiteral"),
        (F32, (), "1e39", "InvalidLiteral"),
        (F32, (), "one", "InvalidLiteral"),
        (SI8, (), "128", "InvalidLiteral"),
        (SI8, (), "1.0", "InvalidLiteral"),
        (I1, (), "1", "InvalidLiteral"),
        (F16, (), "70000", "InvalidLiteral"),
        (BF16, (), "1e39", "InvalidLiteral"),
        (FP8_E4M3, (), "inf", "InvalidLiteral"),
        (FP8_E4M3, (), "1000", "InvalidLiteral"),
        (F32, (), '"0x0"', "InvalidLiteral"),
        (F32, (), '"00"', "InvalidLiteral"),
    ],
)
def test_refused_payloads(dtype: DType, shape: tuple[int, ...], text: str, code: str) -> None:
    with pytest.raises(Violation) as caught:
        read_payload(text, tensor(dtype, shape))
    assert caught.value.code == code


def test_a_list_beyond_the_limit() -> None:
    with pytest.raises(LimitExceeded):
        read_payload("[1.0]", tensor(F64, (1 << 40,)))


def test_payloads_in_files(tmp_path) -> None:
    values = np.array([[1.0, -2.5], [0.0, 3.0]], np.float32)
    save_file({"w": values, "half": values.astype(np.float16)}, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", w=values)
    t, files = tensor(F32, (2, 2)), Files(str(tmp_path))
    for reference in ("@a.safetensors:w", "@b.npz:w"):
        assert read_payload(reference, t, files).data == values.tobytes()
    assert read_payload("@a.safetensors:half", tensor(F16, (2, 2)), files).data == values.astype(np.float16).tobytes()
    wrong = ("@a.safetensors:half", "@a.safetensors:v", "@b.npz:v", "@c.npz:w", "@b.txt:w", "@a.safetensors")
    for reference in wrong:
        with pytest.raises(Violation) as caught:
            read_payload(reference, t, files)
        assert caught.value.code == "InvalidLiteral"
    with pytest.raises(Violation, match="shape"):
        read_payload("@b.npz:w", tensor(F32, (4,)), files)


def test_raw_bytes_are_those_of_every_element() -> None:
    with pytest.raises(Violation) as caught:
        read_payload('"0x00000000"', tensor(F32, (2,)))
    assert caught.value.code == "LiteralSizeMismatch"
    with pytest.raises(LimitExceeded):
        payload_text(Literal(tensor(F32, (10**11,)), bytes.fromhex("0100c07f"), splat=True))


def test_payloads_outside_of_the_folder_are_asked_for(tmp_path) -> None:
    inner, other = tmp_path / "in", tmp_path / "other"
    inner.mkdir()
    (inner / "below").mkdir()
    other.mkdir()
    for place in (tmp_path, inner, inner / "below", other):
        np.savez(place / "w.npz", w=np.ones(2, np.float32))
    (inner / "link.npz").symlink_to(other / "w.npz")
    (other / "back.npz").symlink_to(inner / "w.npz")
    t = tensor(F32, (2,))
    within = ("@w.npz:w", "@below/w.npz:w", "@below/../w.npz:w", f"@{inner}/w.npz:w", "@../other/back.npz:w")
    outside = (
        "@../w.npz:w",
        "@../other/w.npz:w",
        f"@{other}/w.npz:w",
        "@link.npz:w",
        "@../in2/w.npz:w",
        "@../../../nothing.npz:w",
    )
    for reference in within:
        assert read_payload(reference, t, Files(str(inner))).data is not None
    for reference in outside:
        with pytest.raises(Violation, match="outside of the program's folder"):
            read_payload(reference, t, Files(str(inner)))
    for roots in ((str(other),), (str(other / "w.npz"),), (str(tmp_path),), ("/",)):
        for reference in ("@../other/w.npz:w", f"@{other}/w.npz:w", "@link.npz:w"):
            assert read_payload(reference, t, Files(str(inner), roots)).data is not None
    with pytest.raises(Violation, match="outside"):
        read_payload("@../w.npz:w", t, Files(str(inner), (str(other), str(inner / "w.npz"))))


def test_the_contents_of_a_file_are_listed_once(tmp_path, monkeypatch) -> None:
    save_file({f"w{i}": np.full(2, i, np.float32) for i in range(50)}, tmp_path / "a.safetensors")
    opened = []
    monkeypatch.setattr(arrayfiles, "_header", lambda data, read=arrayfiles._header: opened.append(1) or read(data))
    files = Files(str(tmp_path))
    for i in range(50):
        assert read_payload(f"@a.safetensors:w{i}", tensor(F32, (2,)), files).data == np.float32(i).tobytes()
    assert len(opened) == 1
