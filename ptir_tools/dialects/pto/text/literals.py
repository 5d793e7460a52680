"""Numbers and attribute values between text and the core."""

from __future__ import annotations

import math
import re

from ptir_tools.core import arrays, decimals
from ptir_tools.core.dtypes import F32, INDEX, DType, Kind
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import integer as read_integer
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import POISON, Type, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.core.violations import attribute as attribute_value
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.text.syntax import value_of
from ptir_tools.dialects.pto.types import ScalarType, type_text
from ptir_tools.grammars.literals import float_bytes
from ptir_tools.grammars.parser import Node

if TYPE_CHECKING:
    from ptir_tools.grammars.parser import Token


def integer(value: int, dtype: DType) -> Literal:
    """An integer as a literal of rank 0."""
    return Literal(tensor(dtype, ()), (value & ((1 << dtype.bits) - 1)).to_bytes(dtype.size, "little"))


def index(token: str) -> Literal:
    """A number as an operand of type index. Raises Violation("ParseError")."""
    text = str(token)
    try:
        value = read_integer(text, 0)
    except ValueError:
        raise Violation("ParseError", f"`{text}` is not an integer", at=text) from None
    require(INDEX.min <= value <= INDEX.max, "ParseError", f"`{text}` does not fit index", at=text)
    return integer(value, INDEX)


def scalar(token: Token, t: Type) -> Literal:
    """The literal of a constant of type `t`. Raises Violation."""
    if t is POISON:
        raise Violation("ParseError", "the constant's type cannot be read")
    if not isinstance(t, ScalarType):
        raise Violation("TypeMismatch", f"a constant is a scalar, not {type_text(t)}")
    text = str(token)
    require(token.type == "NUMBER", "ParseError", f"`{text}` is not a number", at=text)
    if t.dtype.is_float:
        return _float(text, t.dtype)
    if text in ("true", "false"):
        require(t.dtype.kind is Kind.BOOL, "TypeMismatch", f"`{text}` is an i1, the constant is {type_text(t)}", at=text)
        return integer(text == "true", t.dtype)
    hint = "write an integer" if "." in text or ("e" in text.lower() and "x" not in text) else None
    try:
        value = read_integer(text, 0 if "x" in text.lower() else 10)
    except ValueError:
        raise Violation("TypeMismatch", f"`{text}` is not a value of {type_text(t)}", help=hint, at=text) from None
    low, high = (0, 1) if t.dtype.kind is Kind.BOOL else (t.dtype.min, t.dtype.max)
    if "x" in text.lower():
        high = (1 << t.dtype.bits) - 1
    require(low <= value <= high, "TypeMismatch", f"`{text}` does not fit {type_text(t)}, which holds {low} to {high}", at=text)
    return integer(value, t.dtype)


def _float(text: str, dtype: DType) -> Literal:
    """A decimal, rounded once to the dtype, or hexadecimal bits."""
    if "x" in text.lower():
        bits = read_integer(text, 16)
        require(0 <= bits < 1 << dtype.bits, "TypeMismatch", f"`{text}` has more than {dtype.bits} bits", at=text)
        return Literal(tensor(dtype, ()), bits.to_bytes(dtype.size, "little"))
    whole = not any(c in text for c in ".eE")
    require(
        text not in ("true", "false") and not whole, "TypeMismatch", f"`{text}` is not a float", at=text, help=f"write {text}.0"
    )
    try:
        return Literal(tensor(dtype, ()), float_bytes(decimals.read(text), dtype))
    except OverflowError:
        raise Violation("TypeMismatch", f"`{text[:40]}` does not fit {dtype}", at=text) from None


def scalar_text(x: Literal) -> str:
    """The literal of a constant: the shortest decimal that reads back to the same bits, or the bits if there is none."""
    dtype = x.type.dtype
    assert x.data is not None
    if dtype.kind is Kind.BOOL:
        return "true" if x.data[0] else "false"
    if not dtype.is_float:
        return str(int.from_bytes(x.data, "little", signed=dtype.is_signed))
    value = arrays.unpack(x.data, dtype, 1)[0]
    wide = float(value)
    if not math.isfinite(wide):
        return f"0x{int.from_bytes(x.data, 'little'):0{dtype.size * 2}X}"
    text = repr(wide) if dtype.bits == 64 else str(np.float32(value)) if dtype is F32 else _short(value, wide)
    return text if any(c in text for c in ".e") else text + ".0"


def _short(value: np.generic, wide: float) -> str:
    for digits in range(1, 18):
        text = f"{wide:.{digits}g}"
        if value.dtype.type(float(text)) == value:
            return text
    return repr(wide)


# Attributes


def unquoted(text: str) -> str:
    """A string without its quotes; other text does not change."""
    return str(text)[1:-1] if str(text).startswith('"') else str(text)


def attribute(entry: Node) -> str | None:
    """An attribute of a module or function: its text exactly as written (None for a key alone)."""
    value = value_of(entry)
    return None if value is None else _written(value)


def _written(value: Token | Node) -> str:
    if not isinstance(value, Node):
        return str(value)
    if value.data == "elements":
        return f"[{', '.join(value.tokens())}]"
    given = ((str(e.token()), attribute(e)) for e in value.parts("entry"))  # a dictionary inside a dictionary
    return "{" + ", ".join(key if text is None else f"{key} = {text}" for key, text in given) + "}"


def typed(kind: str, entry: Node) -> bool | int | str:
    """An attribute of an op by its declared kind: `str`, `int` or `bool`. Raises Violation("ParseError")."""
    key, value = unquoted(entry.token()), value_of(entry)
    if value is None:
        require(kind == "bool", "ParseError", f"`{key}` needs a value", at=key)
        return True
    require(not isinstance(value, Node), "ParseError", f"`{key}` takes one value", at=attribute_value(key))
    text = inner(_written(value))
    if kind == "bool":
        require(text in ("true", "false"), "ParseError", f"`{key}` is true or false, not `{text}`", at=attribute_value(key))
        return text == "true"
    if kind == "int":
        require(bool(re.fullmatch("-?[0-9]+", text)), "ParseError", f"`{key}` is a number, not `{text}`", at=attribute_value(key))
        return read_integer(text)
    return text
