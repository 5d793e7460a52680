"""The payload of a literal, `dense<…>`: text to bytes. Common dtypes need the standard library alone."""

from __future__ import annotations

import math
import os
import re
import struct
from contextlib import suppress
from itertools import chain

from ptir_tools.core import decimals
from ptir_tools.core.dtypes import BF16, CF32, CF64, F16, F32, F64, FP8_E4M3, FP8_E5M2, DType, Kind, struct_code
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import LITERAL, Place, Violation, require
from ptir_tools.grammars.literals import all_float_bytes, float_bytes

if TYPE_CHECKING:
    import json

    from ptir_tools.dialects import external
else:
    json = lazy("json")
    external = lazy("ptir_tools.dialects.external")

_ELEMENT = regex(r"\([^()]*\)|[^\s,\[\]]+")
_NUMBER = regex(r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|inf|nan)")
_OTHER = regex(r"[^0-9.eE,\s\[\]+-]")  # what no list of numbers has
_INTEGER = regex(r"[+-]?[0-9]+")
_COMPLEX = regex(r"\(([^(),]+),([^(),]+)\)")
_COMMENT = regex(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# The bits of the one NaN that `nan` means: quiet, positive, no payload.
NAN = {F64: 0x7FF8 << 48, F32: 0x7FC00000, F16: 0x7E00, BF16: 0x7FC0, FP8_E4M3: 0x7F, FP8_E5M2: 0x7E}
HALF = {CF32: F32, CF64: F64}


def read_payload(text: str, t: TensorType, files: external.Files | None = None) -> Literal:
    """The literal of static type `t` whose payload is `text`, what is between `dense<` and `>`; it may be in one of `files`.

    Raises Violation: "DynamicDimensionMismatch", "InvalidLiteral", "LiteralSizeMismatch", "SyntaxError".
    """
    require(t.is_static, "DynamicDimensionMismatch", f"a literal's type is static, this one is {t}", at=LITERAL)
    text = text.strip()
    if text == "?":
        return Literal(t, None)
    if t.dtype.packed_bytes(t.count) > current().literal_bytes and text.startswith("["):
        raise LimitExceeded(f"a literal of {t}", "--max-literal-bytes")
    if text.startswith('"'):
        return _read_hex(text, t)
    if text.startswith("@"):
        files = external.Files() if files is None else files
        found = literal(t, files.load(text, t))
        found.origin = os.path.join(files.folder, text[1:])
        return found
    if text.startswith("["):
        elements, numbers = _flatten(text, t)
        return literal(t, encode(elements, t.dtype, numbers))
    if not text or (text[0] != "(" and re.search(r"[\s,\[\]]", text)):
        help = "several elements are written [1.0, 2.0], a fraction 1.5"
        raise Violation("SyntaxError", f"`{text}` is not an element", at=text or LITERAL, help=help)
    element = encode([text], t.dtype)
    return Literal(t, element if t.count else b"", splat=t.count > 1)


def literal(t: TensorType, data: bytes) -> Literal:
    """The literal with all its bytes; a splat when it has several elements, all of the same bits."""
    one = repeated_element(t, data)
    return Literal(t, data) if one is None else Literal(t, one, splat=True)


def repeat(t: TensorType, one: bytes) -> bytes:
    """All bytes of a splat of the element `one`."""
    if t.dtype.bits != 4:
        return one * t.count
    low = one[0] & 15
    return bytes([low | low << 4]) * (t.count // 2) + bytes([low]) * (t.count % 2)


def repeated_element(t: TensorType, data: bytes) -> bytes | None:
    """The one element that a payload of several repeats, or None."""
    count, size = t.count, t.dtype.size
    if count < 2 or len(data) != t.dtype.packed_bytes(count):
        return None
    if t.dtype.bits != 4:
        return data[:size] if data[:size] * count == data else None
    low = bytes([data[0] & 15])
    return low if data == repeat(t, low) else None


def _read_hex(text: str, t: TensorType) -> Literal:
    digits = text[1:-1].removeprefix("0x")
    good = text.endswith('"') and text[1:3] == "0x" and len(digits) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]*", digits)
    require(good, "InvalidLiteral", 'raw bytes are written "0x", then two hex digits a byte', at=LITERAL)
    data, wanted = bytes.fromhex(digits), t.dtype.packed_bytes(t.count)
    message = f"a literal of {t} has {wanted} bytes, this one has {len(data)}"
    require(len(data) == wanted, "LiteralSizeMismatch", message, at=text)
    return literal(t, data)


def _flatten(text: str, t: TensorType) -> tuple[list[str], bool]:
    """The elements of a nested list, whose shape is that of `t`, and whether all are known to be numbers."""
    text = _COMMENT.sub(" ", text) if "/" in text else text
    try:
        nested = numbers = _numbers(text)
        nested = nested or json.loads(_ELEMENT.sub(lambda m: json.dumps(m[0]), text))
    except (ValueError, RecursionError):
        raise Violation("SyntaxError", "the lists of this literal are not well formed", at=LITERAL) from None
    level: list[Any] = [nested]
    if nested == [] and t.count == 0:
        return [], False
    for extent in t.static_shape:
        fits = {*map(type, level)} <= {list} and {*map(len, level)} <= {extent}
        require(fits, "LiteralSizeMismatch", f"the lists of this literal have not the shape of {t}", at=LITERAL)
        level = [*chain.from_iterable(level)]
    flat = {*map(type, level)} <= {str}
    require(flat, "LiteralSizeMismatch", f"the lists of this literal are deeper than {t}", at=LITERAL)
    return level, bool(numbers)


def _numbers(text: str) -> Any:
    """Nested lists of numbers, as texts, that are JSON; None of others."""
    if _OTHER.search(text) is None:
        with suppress(ValueError):
            return json.loads(text, parse_float=str, parse_int=str)
    return None


def encode(elements: list[str], dtype: DType, numbers: bool = False) -> bytes:
    """Little-endian bytes of elements given as text; `numbers`: all are known to be some. Raises Violation("InvalidLiteral")."""
    if dtype.is_float and len(elements) > 1 and (numbers or all(map(_NUMBER.fullmatch, elements))):
        try:
            floats = decimals.read_all(elements, dtype)
            if all(map(math.isfinite, floats)):
                return all_float_bytes(floats, dtype)
        except OverflowError as error:
            raise Violation("InvalidLiteral", str(error), at=LITERAL) from None
    plain = dtype.is_integer and len(elements) > 1 and max(map(len, elements)) < 20 and all(map(_INTEGER.fullmatch, elements))
    values: list[Any] = [*map(int, elements)] if plain else [read_element(x, dtype) for x in elements]
    if plain and not dtype.min <= min(values) <= max(values) <= dtype.max:
        values = [read_element(x, dtype) for x in elements]
    if dtype.is_float:
        return b"".join([encode_float(v, dtype) for v in values])
    if dtype.is_complex:
        return b"".join([encode_float(part, HALF[dtype]) for pair in values for part in pair])
    if dtype.kind is Kind.BOOL:
        return bytes(values)
    if dtype.bits == 4:
        values += [0] * (len(values) % 2)
        return bytes((a & 15) | (b & 15) << 4 for a, b in zip(values[0::2], values[1::2], strict=True))
    return struct.pack(f"<{len(values)}{struct_code(dtype)}", *values)


def encode_float(value: float, dtype: DType) -> bytes:
    """The bytes of one number, rounded once. Raises Violation("InvalidLiteral") when a finite one is beyond the dtype."""
    if value != value:
        return NAN[dtype].to_bytes(dtype.size, "little")
    require(dtype is not FP8_E4M3 or math.isfinite(value), "InvalidLiteral", f"{value!r} is beyond {dtype}", at=LITERAL)
    try:
        return float_bytes(value, dtype)
    except OverflowError as error:
        raise Violation("InvalidLiteral", str(error), at=LITERAL) from None


def decimal(text: str, code: str = "InvalidLiteral", at: str | Place = LITERAL) -> float:
    """The number that a decimal is, to be rounded once more. Raises Violation(code) for one beyond float64."""
    try:
        return decimals.read(text)
    except OverflowError as error:
        raise Violation(code, str(error), at=at) from None


def read_element(text: str, dtype: DType) -> Any:
    """One element of a literal: bool, int, float or a pair of floats. Raises Violation("InvalidLiteral")."""
    if dtype.kind is Kind.BOOL:
        require(text in ("true", "false"), "InvalidLiteral", f"`{text}` is neither true nor false", at=text)
        return text == "true"
    if dtype.is_complex:
        pair = _COMPLEX.fullmatch(text)
        parts = [pair[1].strip(), pair[2].strip()] if pair else [text, "0.0"]
        numbers = all(_NUMBER.fullmatch(p) for p in parts)
        require(numbers, "InvalidLiteral", f"`{text}` is not a complex number", help="write (re, im)", at=text)
        return decimal(parts[0]), decimal(parts[1])
    if dtype.is_float:
        require(_NUMBER.fullmatch(text), "InvalidLiteral", f"`{text}` is not a number", at=text)
        return decimal(text)
    require(_INTEGER.fullmatch(text), "InvalidLiteral", f"`{text}` is not an integer, the literal is of {dtype}", at=text)
    value = int(text) if len(text) <= current().most_digits else dtype.max + 1
    require(dtype.min <= value <= dtype.max, "InvalidLiteral", f"{text[:40]} is beyond {dtype}", at=text)
    return value
