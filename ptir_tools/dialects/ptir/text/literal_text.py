"""The payload of a literal, `dense<…>`: bytes to text. Common dtypes need the standard library alone."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from functools import cache

from ptir_tools.core import arrays, decimals
from ptir_tools.core.dtypes import BF16, F64, DType, Kind, struct_code
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.text.literals import HALF, NAN, encode_float, repeat, repeated_element

LISTED = 64  # longer payloads are printed as hex


def payload_text(x: Literal) -> str:
    """What is between `dense<` and `>`: a splat, a nested list of up to 64 elements, raw bytes, or `?`.

    Raises LimitExceeded for a splat of many elements that only raw bytes can say.
    """
    if x.data is None:
        return "?"
    one = x.data if x.splat else repeated_element(x.type, x.data)
    if one is not None:
        text = element_texts(one, x.type.dtype, 1)
        if not text and x.type.dtype.packed_bytes(x.type.count) > current().literal_bytes:
            raise LimitExceeded(f"a literal of {x.type}", "--max-literal-bytes")
        return text[0] if text else f'"0x{repeat(x.type, one).hex()}"'
    count = x.type.count
    listed = element_texts(x.data, x.type.dtype, count) if count <= LISTED else None
    if listed is None or len(x.data) != x.type.dtype.packed_bytes(count):
        return f'"0x{x.data.hex()}"'
    return _nested(iter(listed), x.type.static_shape) if count else "[]"


def _nested(items: Iterator[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return next(items)
    return f"[{', '.join(_nested(items, shape[1:]) for _ in range(shape[0]))}]"


def element_texts(data: bytes, dtype: DType, count: int) -> list[str] | None:
    """The elements as text that reads back to the same bits; None when one cannot be said."""
    if len(data) != dtype.packed_bytes(count):
        return None
    if dtype.kind is Kind.BOOL:
        return [("false", "true")[b] for b in data] if max(data, default=0) < 2 else None
    if dtype.bits == 4:
        return _nibble_texts(data, dtype, count)
    if dtype.is_complex:
        parts = element_texts(data, HALF[dtype], 2 * count)
        return parts and [f"({re}, {im})" for re, im in zip(parts[0::2], parts[1::2], strict=True)]
    if dtype.is_integer:
        return [str(v) for v in struct.unpack(f"<{count}{struct_code(dtype)}", data)]
    texts = [float_text(data[i : i + dtype.size], dtype) for i in range(0, len(data), dtype.size)]
    return None if None in texts else [t for t in texts if t is not None]


def _nibble_texts(data: bytes, dtype: DType, count: int) -> list[str] | None:
    nibbles = [n for b in data for n in (b & 15, b >> 4)]
    if any(nibbles[count:]):
        return None
    signed = dtype.kind is Kind.INT
    return [str(n - 16 if signed and n > 7 else n) for n in nibbles[:count]]


@cache
def float_text(data: bytes, dtype: DType) -> str | None:
    """The shortest decimal that reads back to the same bits; `nan` for the canonical NaN, None for the others."""
    value = decode(data, dtype)
    if value != value:
        return "nan" if int.from_bytes(data, "little") == NAN[dtype] else None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if dtype is F64:
        return decimal_text(repr(value))
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if _same(text, data, dtype):
            return decimal_text(repr(float(text)))
    return None


def _same(text: str, data: bytes, dtype: DType) -> bool:
    try:
        return encode_float(decimals.read(text), dtype) == data
    except (Violation, OverflowError):  # rounded up beyond the dtype
        return False


def decimal_text(text: str) -> str:
    """A finite decimal with a `.` or an `e`, its exponent without `+` or leading zeros: `1e-5`, `2.0`."""
    mantissa, e, exponent = text.partition("e")
    if e:
        return f"{mantissa}e{int(exponent)}"
    return text if "." in text else text + ".0"


def decode(data: bytes, dtype: DType) -> float:
    """The value of one float."""
    code: str | None = struct_code(dtype)
    if code is not None:
        return float(struct.unpack(f"<{code}", data)[0])
    if dtype is BF16:
        return float(struct.unpack("<f", b"\0\0" + data)[0])
    return float(arrays.unpack(data, dtype, 1).astype(np.float64)[0])
