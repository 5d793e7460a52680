"""Dense literals: `dense<…>` of every dtype, nested lists, hexadecimal bits and blobs."""

from __future__ import annotations

import re
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import CF32, F32, F64, DType, Kind
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import np, regex
from ptir_tools.core.limits import LimitExceeded, current, integer
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation, require

_ELEMENT = regex(r"[^\s,\[\]()]+")
_BRACKETS = regex(r"[\s\[]*")


def dense(text: str, t: TensorType, resources: str = "") -> Literal:
    """The literal of type `t` that `dense<…>` spells; `resources` is the text that defines `dense_resource<…>`.

    Raises Violation("InvalidLiteral" or "LiteralSizeMismatch"), LimitExceeded.
    """
    shape = t.static_shape
    if prod(shape) * t.dtype.size > current().literal_bytes:
        raise LimitExceeded(f"a literal of {t}", "--max-literal-bytes")
    inside = text[text.index("<") + 1 : -1].strip()
    if text.startswith("dense_resource"):
        return _blob(_resource(inside, resources), t)
    if inside.startswith('"'):
        require(inside[1:3] == "0x", "InvalidLiteral", f'a literal of {t} is numbers, or bytes as `"0x…"`')
        return _blob(_bytes(inside[3:-1]), t)
    words = _ELEMENT.findall(inside)
    if t.dtype.is_complex and "(" in inside:
        parts = _numbers(words, F32 if t.dtype is CF32 else F64)
        require(len(parts) % 2 == 0, "InvalidLiteral", "a complex element is `(real, imaginary)`")
        values = np.empty(len(parts) // 2, arrays.numpy_dtype(t.dtype))
        values.real, values.imag = parts[0::2], parts[1::2]
    else:
        values = _numbers(words, t.dtype)
    depth = (_BRACKETS.match(inside) or [""])[0].count("[")
    if depth == 0 and len(values) == 1:
        return _splat(values, t)
    message = f"{t} has {prod(shape)} elements, the literal {len(values)}"
    require(len(values) == prod(shape), "LiteralSizeMismatch", message)
    nested = depth == t.rank or not len(values)
    require(nested, "LiteralSizeMismatch", f"{t} has {t.rank} axes, the literal {depth} brackets")
    return arrays.to_literal(values.reshape(shape), t)


def _splat(values: Array, t: TensorType) -> Literal:
    data = arrays.pack(values, t.dtype)
    return Literal(t, data, splat=t.rank > 0) if prod(t.static_shape) else Literal(t, b"")


def _numbers(words: list[str], dtype: DType) -> Array:
    """Elements of `dtype`, decimal or (floats) by their bits."""
    native = arrays.numpy_dtype(dtype)
    try:
        if dtype.is_float:
            return _floats(words, dtype, native)
        if dtype.is_complex:  # real elements of a complex splat
            return _numbers(words, F32 if dtype is CF32 else F64).astype(native)
        if dtype.kind is Kind.BOOL:
            return np.array([_TRUTH[w] for w in words], native)
        short = max(map(len, words), default=0) < 20 and "x" not in "".join(words)
        numbers = [*map(int, words)] if short else [integer(w, 0) if "x" in w else integer(w) for w in words]
    except (ValueError, KeyError):
        raise Violation("InvalidLiteral", f"an element does not fit {dtype}") from None
    least, most = min(numbers, default=0), max(numbers, default=0)
    fits = dtype.min <= least and most <= (2 * dtype.max + 1 if dtype.is_signed else dtype.max)
    require(fits, "InvalidLiteral", f"an element is outside of {dtype}")
    wide = np.array(
        [n - (1 << dtype.bits) if n > dtype.max else n for n in numbers] if most > dtype.max else numbers,
        np.uint64 if dtype.bits == 64 and not dtype.is_signed else np.int64,
    )
    return wide.astype(native)


_TRUTH = {"true": True, "false": False, "1": True, "0": False, "-1": True}


def _floats(words: list[str], dtype: DType, native: np.dtype[np.generic]) -> Array:
    if not any(w.startswith(("0x", "-0x")) for w in words):
        return arrays.cast(np.array(words, np.float64) if words else np.zeros(0), F64, dtype)
    unsigned = np.dtype(f"u{dtype.size}")
    bits = [
        integer(w, 16) if w.startswith("0x") else int(arrays.cast(np.array(float(w)), F64, dtype).view(unsigned)) for w in words
    ]
    require(all(b < 1 << dtype.bits for b in bits), "InvalidLiteral", f"an element has more than {dtype.bits} bits")
    return np.array(bits, unsigned).view(native)


def _bytes(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise Violation("InvalidLiteral", "the bytes of a literal are hexadecimal digits, two to a byte") from None


def _blob(data: bytes, t: TensorType) -> Literal:
    """Little-endian elements, each in whole bytes; i1 also eight to a byte. A single element is a splat."""
    count, size = prod(t.static_shape), t.dtype.size
    if t.dtype.kind is Kind.BOOL and len(data) == -(-count // 8) != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count]
        return arrays.to_literal(bits.reshape(t.static_shape) != 0, t)
    if len(data) == size and count != 1:
        data *= count
    require(len(data) == count * size, "LiteralSizeMismatch", f"{t} has {count * size} bytes, the literal {len(data)}")
    if t.dtype.bits == 4:
        low = np.frombuffer(data, np.uint8) & 15
        signed = (low.astype(np.int8) ^ 8) - np.int8(8) if t.dtype.is_signed else low
        return arrays.to_literal(signed.astype(arrays.numpy_dtype(t.dtype)).reshape(t.static_shape), t)
    return arrays.to_literal(arrays.unpack(data, t.dtype, count).reshape(t.static_shape), t)


def _resource(key: str, text: str) -> bytes:
    """The bytes that `{-# dialect_resources … #-}` has under `key`, after the four bytes of their alignment."""
    match = re.search(rf'\b{re.escape(key)}\s*:\s*"0x([0-9A-Fa-f]*)"', text)
    if match is None:
        raise Violation("InvalidLiteral", f"there is no resource `{key}` at the end of the text")
    return _bytes(match[1])[4:]
