"""What Rust's `{:?}` prints of gpt.rs's payloads."""

from __future__ import annotations

import math
from collections.abc import Callable

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal, Op
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Dim, TensorType, TupleType, Type
from ptir_tools.dialects.ptir.gptrs.kinds import RUST_DTYPE, SPELLED, fields
from ptir_tools.dialects.ptir.gptrs.lowering import written
from ptir_tools.dialects.ptir.gptrs.serde import BYTES, all_bytes
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text.literals import decimal_text
from ptir_tools.dialects.ptir.text.spelling import quote


def op_text(op: Op, regions: dict[str, int]) -> str:
    """An operation with its payload, without operands."""
    kind, sub = SPELLED[op.defn.short]
    if not kind.has_payload:
        return kind.name
    if not kind.struct:
        return f"{kind.name}({sub})"
    if op.defn.short == "constant":
        return f"{kind.name}({_literal(op.attrs[0])})"
    members = [f"{kind.field}: {sub}"] if kind.field else []
    members += [f"{name}: RegionId({regions[r.name]})" for name, r in zip(op.defn.regions, op.regions, strict=True)]
    named = dict(zip((a.name for a in op.defn.attrs), written(op), strict=True))
    members += [f"{a.name}: {_TEXT.get(a.kind, str)(named[a.name])}" for a in fields(op.defn.short)]
    return f"{kind.name}({kind.struct} {{ {', '.join(members)} }})"


def type_text(t: Type) -> str:
    """`tensor<F32 x 2x?N>` or `tuple<…>`."""
    if isinstance(t, TupleType):
        return f"tuple<{', '.join(map(type_text, t.elements))}>"
    return f"tensor<{RUST_DTYPE[t.dtype]} x {shape_text(t)}>" if isinstance(t, TensorType) else str(t)


def shape_text(t: TensorType) -> str:
    """`2x?N`, `[]` for a scalar; a symbol is as it is, unquoted."""
    return "x".join(str(d) if isinstance(d, int) else f"?{d.name}" for d in t.shape) or "[]"


def attr_text(kind: str, value: Any) -> str:
    """An attribute of a custom call or a hint: `I64Array([1, -2])`."""
    element = _ELEMENT[ATTR_KINDS[kind]]
    return f"{kind}([{', '.join(map(element, value))}])" if kind.endswith("Array") else f"{kind}({element(value)})"


def float_text(value: float) -> str:
    """A float64 as Rust prints it."""
    if not math.isfinite(value):
        return "NaN" if value != value else repr(value)
    return decimal_text(repr(value))


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: object) -> str:
    if value is None:
        return "None"
    return f"Some({RUST_DTYPE[value] if isinstance(value, DType) else value})"


def _dim(d: Dim) -> str:
    return f"Static({d})" if isinstance(d, int) else f"Dynamic(DimSymbol({quote(d.name)}))"


def _shape(dims: tuple[Dim, ...]) -> str:
    return f"Shape {{ dims: [{', '.join(map(_dim, dims))}] }}"


def _new_shape(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join('Infer' if d == -1 else f'Explicit({_dim(d)})' for d in dims)}]"


def _scalar(x: Scalar) -> str:
    v = x.value
    if isinstance(v, complex):
        return f"Complex {{ re: {float_text(v.real)}, im: {float_text(v.imag)} }}"
    return f"{x.kind}({_ELEMENT[type(v)](v)})"


def _literal(x: Literal) -> str:
    spec = f"TensorSpec {{ dtype: {RUST_DTYPE[x.type.dtype]}, shape: {_shape(x.type.shape)} }}"
    return f"TensorLiteral {{ spec: {spec}, bytes: [{', '.join(BYTES[b] for b in all_bytes(x, len(', 255')) or b'')}] }}"


def _attrs(entries: tuple[tuple[str, tuple[str, object]], ...]) -> str:
    return f"{{{', '.join(f'{quote(k)}: {attr_text(*v)}' for k, v in entries)}}}"


_ELEMENT: dict[type, Callable[[Any], str]] = {bool: _boolean, int: str, float: float_text, str: quote}
_TEXT: dict[str, Callable[[Any], str]] = {
    "bool": _boolean,
    "str": quote,
    "float": float_text,
    "int | None": _optional,
    "DType": RUST_DTYPE.__getitem__,
    "DType | None": _optional,
    "tuple[int, ...]": lambda v: str(list(v)),
    "tuple[tuple[int, int], ...]": lambda v: str(list(v)),
    "Shape": _shape,
    "NewShape": _new_shape,
    "Scalar": _scalar,
    "Attrs": _attrs,
    "ScatterKind": str.capitalize,
    "WindowKind": str.capitalize,
    "SegmentKind": str.capitalize,
}
