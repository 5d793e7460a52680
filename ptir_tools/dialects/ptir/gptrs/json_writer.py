"""PTIR as gpt.rs's JSON: the writer. The bytes are those of serde_json's pretty printer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Op
from ptir_tools.core.ir import Value as IrValue
from ptir_tools.core.types import Type
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.dialects.ptir.gptrs.forms import type_of
from ptir_tools.dialects.ptir.gptrs.lowering import lower, region_ids, written
from ptir_tools.dialects.ptir.gptrs.model import Model
from ptir_tools.dialects.ptir.gptrs.values import STEP, Printed, Struct, Value, Variant, json_array, json_pieces, json_text

BYTE = len(",\n255") + 16  # of a constant, with its indent


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The pieces of a program's JSON; nothing after an op that gpt.rs does not have, or a payload that is missing."""
    lowered = lower(program, diagnostics)
    if lowered is not None and not missing_payloads(program, diagnostics):
        model = _Model(region_ids(*lowered), diagnostics)
        yield from json_pieces(model.program(program.entry, *lowered), "")


class _Model(Model):
    """Prints instructions, which are most of a program. It keeps the texts of operations and types. It warns of floats that
    JSON cannot express."""

    def __init__(self, regions: Mapping[str, int], diagnostics: Diagnostics) -> None:
        super().__init__(regions, BYTE)
        self.diagnostics = diagnostics
        self.types: dict[tuple[Type, str], str] = {}
        self.ops: dict[tuple[object, ...], str] = {}

    def instruction(self, op: Op) -> Value:
        return Printed(self.text, op)

    def text(self, op: Op, pad: str) -> str:
        """The JSON of an instruction."""
        inner, deep, ids, result = pad + STEP, pad + 2 * STEP, self.ids, op.results[0]
        operands = [
            f'{{\n{deep}{STEP}"Value": {ids[x]}\n{deep}}}' if isinstance(x, IrValue) else json_text(self.operand(x), deep)
            for x in op.operands
        ]
        first = f'{{\n{inner}"id": {ids[result]},\n{inner}"op": {self.operation_text(op, inner)},\n{inner}"operands": '
        return f'{first}{json_array(operands, inner)},\n{inner}"output": {self.type_text(result.type, inner)}\n{pad}}}'

    def type_text(self, t: Type, pad: str) -> str:
        """The JSON of a type."""
        found = self.types.get((t, pad))
        if found is None:
            found = self.types[t, pad] = json_text(type_of(t), pad)
        return found

    def operation_text(self, op: Op, pad: str) -> str:
        """The JSON of an operation. Those that `==` does not tell apart, and those that come once, are not kept."""
        attrs = written(op)
        if op.regions or op.defn.float_attrs or op.defn.is_constant:
            made = self.operation(op, attrs)
            for x in _floats(made):
                if not math.isfinite(x):
                    self.diagnostics.warning("LossyFloat", f"{x} is written as null, as gpt.rs does; it is lost", op.loc)
            return json_text(made, pad)
        found = self.ops.get((op.defn, attrs, pad))
        if found is None:
            found = self.ops[op.defn, attrs, pad] = json_text(self.operation(op, attrs), pad)
        return found


def _floats(x: Value) -> Iterator[float]:
    if isinstance(x, float):
        yield x
    elif isinstance(x, Variant):
        yield from _floats(x.payload)
    elif isinstance(x, (Struct, dict, list)):
        for part in x.fields.values() if isinstance(x, Struct) else x.values() if isinstance(x, dict) else x:
            yield from _floats(part)
