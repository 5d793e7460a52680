"""How text PTIR spells attributes: what is between the brackets. `forms` reads it."""

from __future__ import annotations

import math
import re

from ptir_tools.core.typed import Any
from ptir_tools.core.types import Sym, TensorType, Type, dim_text
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS, Attrs, AttrValue
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text.literal_text import decimal_text
from ptir_tools.dialects.ptir.text.spelling import WORD, quote


def write(kind: str, value: Any, operand: Type | None = None) -> str:
    """What is between the brackets of an attribute of a kind; a scalar in the kind natural to `operand` does not say it."""
    if value is None:
        return ""
    if isinstance(value, Scalar):
        return _scalar_text(value, operand)
    if kind == "Attrs":
        return _items_text(value)
    if isinstance(value, str):
        return quote(value) if kind.startswith("str") else value  # others are one of some words
    return ", ".join(map(_part_text, value)) if isinstance(value, tuple) else _part_text(value)


def _part_text(value: Any) -> str:
    """An entry of a list, or what is alone."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return dim_text(value) if isinstance(value, Sym) else _plain_text(type(value), value)


def float_text(value: float) -> str:
    """The shortest decimal of a float64, with a `.` or an `e`; `inf`, `-inf`, `nan`."""
    return decimal_text(repr(value)) if math.isfinite(value) else repr(value)


def _plain_text(kind: type, value: Any) -> str:
    return quote(value) if kind is str else float_text(value) if kind is float else str(value).lower()


def _scalar_text(x: Scalar, operand: Type | None) -> str:
    v = x.value
    text = f"({float_text(v.real)}, {float_text(v.imag)})" if isinstance(v, complex) else _plain_text(type(v), v)
    if isinstance(operand, TensorType) and scalars.natural_kind(operand.dtype) == x.kind:
        return text
    return f"{x.kind.lower()}{text if text[0] == '(' else f'({text})'}"


def _items_text(entries: Attrs) -> str:
    """`{key = value, …}`."""
    keys = (key if re.fullmatch(WORD, key) else quote(key) for key, _ in entries)
    return f"{{{', '.join(f'{key} = {_item_text(*v)}' for key, (_, v) in zip(keys, entries, strict=True))}}}"


def _item_text(kind: str, value: AttrValue) -> str:
    if not isinstance(value, tuple):
        return _plain_text(ATTR_KINDS[kind], value)
    said = f" : {kind.removesuffix('Array').lower()}" if not value and kind != "I64Array" else ""
    return f"[{', '.join(_plain_text(ATTR_KINDS[kind], v) for v in value)}]{said}"
