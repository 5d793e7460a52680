"""`mind-json`: the CoreOperation records of the specification, one JSON object a line. Output only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Literal, Op, Value
from ptir_tools.core.typed import Any
from ptir_tools.dialects.mind.text.attributes import SCALARS
from ptir_tools.dialects.mind.text.syntax import ID_DIGITS, Call
from ptir_tools.dialects.mind.text.writer import input_names
from ptir_tools.dialects.mind.types import dtype_text, type_text


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """A record for each Input and each operation. Value ids that are not numbers become dense numbers, with a note."""
    function = program.main
    values = [*function.params, *(op.result for op in function.body)]
    ids = {v: int(v.name) for v in values if v.name.isdecimal() and len(v.name) <= ID_DIGITS}
    if len(set(ids.values())) < len(values):
        ids = {v: i for i, v in enumerate(values)}
        diagnostics.note("ValuesRenumbered", "a record's value id is an integer: the values are numbered from 0")
    kept = {name: dict(pairs) for name, pairs in function.attrs.get("extra", {}).items()}
    for v, name in zip(function.params, input_names(function), strict=True):
        yield _record(ids[v], "Input", [], {"name": name} | kept.get(v.name, {}), type_text(v.type))
    for op in function.body:
        operands = [ids[x] for x in op.operands if isinstance(x, Value)]
        attributes = _attributes(op) | kept.get(op.result.name, {})
        yield _record(ids[op.result], op.defn.short, operands, attributes, type_text(op.result.type))


def _record(value_id: int, opcode: str, operands: list[int], attributes: dict[str, Any], result_type: str) -> str:
    shown = {k: _plain(attributes[k]) for k in sorted(attributes)}
    record = {"value_id": value_id, "opcode": opcode, "operands": operands, "attributes": shown, "result_type": result_type}
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _attributes(op: Op) -> dict[str, object]:
    named = op.defn.named(op.attrs)
    literal = named.get("value")
    if isinstance(literal, Literal):
        array = from_literal(literal)
        elements = array.astype(str).astype(float) if literal.type.dtype is F32 else array
        scalar = op.defn.short in SCALARS
        head = {} if scalar else {"dtype": dtype_text(literal.type.dtype), "shape": literal.type.static_shape}
        return {**head, "value": elements.tolist()}
    if isinstance(pairs := named.get("padding"), tuple):
        named["padding"] = {"Custom": pairs}
    return named


def _plain(value: object) -> Any:
    """`value` as JSON; a value that JSON cannot express becomes a string."""
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Call):
        return {value.word: _plain(value.value)}
    return [value.start, value.stop, value.step] if isinstance(value, slice) else value


FORMAT = Format("mind-json", "mind", None, write)
