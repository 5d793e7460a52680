"""Attributes in text PTIR: from values to what is between the brackets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from ptir_tools.core.ir import REQUIRED, Attr, Derived, OpDef
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType, Type, dim_text
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text.attributes import FROM_RESULT
from ptir_tools.dialects.ptir.text.literals import decimal_text, payload_text
from ptir_tools.dialects.ptir.text.spelling import WORD, quote


def shown(defn: OpDef, attrs: tuple[object, ...], types: tuple[Type, ...]) -> list[tuple[Attr, Any]]:
    """The attributes that are printed: not what the result type says, not what equals its default."""
    left = FROM_RESULT.get(defn.short, ())
    named: dict[str, Any] = {}
    found = []
    for a, value in zip(defn.attrs, attrs, strict=True):
        default = a.default.rule(named, types) if isinstance(a.default, Derived) else a.default
        named[a.name] = value
        if a.name not in left and (default is REQUIRED or default != value or type(default) is not type(value)):
            found.append((a, value))
    return found


def attribute_text(attr: Attr, value: Any, operand: Type | None) -> str:
    """What is between the brackets."""
    if attr.kind == "Scalar":
        return _scalar_text(value, operand)
    return _TO_TEXT.get(attr.kind, str)(value)


def _scalar_text(x: Scalar, operand: Type | None) -> str:
    v = x.value
    if isinstance(v, complex):
        text = f"({float_text(v.real)}, {float_text(v.imag)})"
    elif isinstance(v, bool):
        text = str(v).lower()
    else:
        text = float_text(v) if isinstance(v, float) else str(v)
    if isinstance(operand, TensorType) and scalars.natural_kind(operand.dtype) == x.kind:
        return text
    return f"{x.kind.lower()}{text if text[0] == '(' else f'({text})'}"


def float_text(value: float) -> str:
    """The shortest decimal of a float64, with a `.` or an `e`; `inf`, `-inf`, `nan`."""
    return decimal_text(repr(value)) if math.isfinite(value) else repr(value)


def items_text(entries: tuple[tuple[str, tuple[str, object]], ...]) -> str:
    """`{key = value, …}`, as the attributes of custom calls and hints are written."""
    return f"{{{', '.join(f'{_key(k)} = {_item_text(*v)}' for k, v in entries)}}}"


def _key(name: str) -> str:
    return name if re.fullmatch(WORD, name) else quote(name)


def _item_text(kind: str, value: Any) -> str:
    if not kind.endswith("Array"):
        return _plain_text(ATTR_KINDS[kind], value)
    said = f" : {kind.removesuffix('Array').lower()}" if not value and kind != "I64Array" else ""
    return f"[{', '.join(_plain_text(ATTR_KINDS[kind], v) for v in value)}]{said}"


def _plain_text(kind: type, value: Any) -> str:
    return quote(value) if kind is str else float_text(value) if kind is float else str(value).lower()


def _list_text(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))


_TO_TEXT: dict[str, Callable[[Any], str]] = {
    "bool": lambda v: "true" if v else "false",
    "str": quote,
    "float": float_text,
    "int | None": lambda v: "" if v is None else str(v),
    "DType | None": lambda v: "" if v is None else str(v),
    "tuple[int, ...]": _list_text,
    "tuple[float, ...]": lambda v: ", ".join(map(float_text, v)),
    "tuple[tuple[int, int], ...]": lambda v: ", ".join(f"[{a}, {b}]" for a, b in v),
    "Shape": lambda v: ", ".join(map(dim_text, v)),
    "NewShape": lambda v: ", ".join(map(dim_text, v)),
    "Literal": lambda v: f"dense<{payload_text(v)}>",
    "Attrs": items_text,
}
