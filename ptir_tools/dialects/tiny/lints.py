"""Notes on legal graphs that are probably mistakes."""

from __future__ import annotations

import json

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.core.source import INDEX_BITS, Source, Span
from ptir_tools.core.types import Shape, Sym, TensorType
from ptir_tools.dialects.tiny.ops.rules import shape_text


def lint(op: Op, function: Function, diagnostics: Diagnostics) -> None:
    """SuspiciousReshape: a RESHAPE that only reorders symbols keeps the row-major order, and so permutes the elements in an
    unexpected way."""
    x = op.operands[0] if op.operands else None
    if op.defn.short != "RESHAPE" or not isinstance(x, Value) or not isinstance(x.type, TensorType):
        return
    before, after = _wide(x.type.shape), _wide(op.attr("result_shape"))
    moved = [d for a, b in zip(before, after, strict=False) if a != b for d in (a, b)]
    if not moved or not all(isinstance(d, Sym) for d in moved) or sorted(map(str, before)) != sorted(map(str, after)):
        return
    shapes = f"{shape_text(x.type.shape)} to {shape_text(op.attr('result_shape'))}"
    message = f"RESHAPE from {shapes} keeps the row-major order: it does not exchange axes"
    source = _unpermuted(x, after)
    help = f"{source.name} already has these axes in this order: reshape that" if source else "use PERMUTE to exchange axes"
    fix = _fix(op, source, function, diagnostics.source) if source else None
    diagnostics.note("SuspiciousReshape", message, op.loc, help=help, fix=fix)


def _wide(shape: Shape) -> list[int | Sym]:
    return [d for d in shape if d != 1]


def _unpermuted(x: Value, wanted: list[int | Sym]) -> Value | None:
    """The operand of the PERMUTE that made `x`, when its axes are `wanted`; else None."""
    if x.op is None or x.op.defn.short != "PERMUTE":
        return None
    y = x.op.operands[0]
    fits = isinstance(y, Value) and isinstance(y.type, TensorType) and _wide(y.type.shape) == wanted
    return y if fits and isinstance(y, Value) else None


def _fix(op: Op, y: Value, function: Function, source: Source | None) -> Fix | None:
    """The edit that makes `y` the source of the node. It also updates the outputs if the node is an output."""
    if source is None or source.json_span is None or op.loc >= 0:
        return None
    index = (-1 - op.loc) & ((1 << INDEX_BITS) - 1)
    span, listed = source.json_span(("uops", index, "src", 0)), source.json_span(("uops",))
    if span is None or listed is None:
        return None
    named = source.json_span(("outputs",)) != source.json_span(())
    others = [user for user in function.body if user.defn.short != "RESHAPE"]  # another RESHAPE may be corrected, too
    still_used = any(x is op.operands[0] for user in others for x in user.operands)
    names = json.dumps([x.name for x in function.results if isinstance(x, Value)], ensure_ascii=False)
    keep = () if named or still_used else (Fix(Span(listed.end, listed.end), f',\n  "outputs":{names}'),)
    return Fix(span, f'"{y.name}"', keep)
