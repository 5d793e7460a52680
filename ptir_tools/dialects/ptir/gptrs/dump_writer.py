"""PTIR as gpt.rs's dump: the writer, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Element, Op, Operand, Value
from ptir_tools.core.types import TensorType, TupleType, Type
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.dialects.ptir.gptrs.forms import attributes
from ptir_tools.dialects.ptir.gptrs.kinds import RUST_DTYPE
from ptir_tools.dialects.ptir.gptrs.lowering import Block, lower, region_ids, written
from ptir_tools.dialects.ptir.gptrs.model import Model
from ptir_tools.dialects.ptir.gptrs.values import debug
from ptir_tools.dialects.ptir.hints import Hint

BYTE = len(", 255")  # of a constant


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The lines of a program, byte for byte as gpt.rs prints it; nothing after an op that gpt.rs does not have."""
    lowered = lower(program, diagnostics)
    if lowered is None or missing_payloads(program, diagnostics, inline=False):
        return
    writer = _Writer(region_ids(*lowered))
    yield f"program @{program.entry} (spec_version = ptir.v0.4) {{\n"
    for block in lowered[0]:
        yield f"  func @{block.name} {{\n"
        yield from writer.block(block, [f"%{block.ids[p]}" for p in block.params], [f"%{block.ids[v]}" for v in block.results])
    for block in lowered[1]:
        yield f"  region ^r{writer.regions[block.name]} {{\n"
        params, results = (
            [f"%{word}{k}" for k in range(len(vs))] for word, vs in (("arg", block.params), ("res", block.results))
        )
        yield from writer.block(block, params, results)
    yield "}\n"


def type_text(t: Type) -> str:
    """`tensor<F32 x 2x?N>` or `tuple<…>`."""
    if isinstance(t, TupleType):
        return f"tuple<{', '.join(map(type_text, t.elements))}>"
    return f"tensor<{RUST_DTYPE[t.dtype]} x {shape_text(t)}>" if isinstance(t, TensorType) else str(t)


def shape_text(t: TensorType) -> str:
    """`2x?N`, `[]` for a scalar; a symbol is as it is, unquoted."""
    return "x".join(str(d) if isinstance(d, int) else f"?{d.name}" for d in t.shape) or "[]"


class _Writer:
    def __init__(self, regions: dict[str, int]) -> None:
        self.regions, self.model = regions, Model(regions, BYTE)
        self.types: dict[Type, str] = {}
        self.ops: dict[tuple[object, ...], str] = {}
        self.ids: dict[Value, int] = {}

    def block(self, b: Block, params: list[str], results: list[str]) -> Iterator[str]:
        self.ids = b.ids
        yield from self.declarations("params", params, [p.type for p in b.params])
        if b.body:
            yield "    body:\n"
        for op in b.body:
            yield f"      {self.instruction(op)}"
        if b.hints:
            yield "    hints:\n"
        for hint in b.hints:
            yield from self.hint(hint)
        yield from self.declarations("results", results, b.result_types)
        yield "  }\n"

    def declarations(self, title: str, names: list[str], types: list[Type]) -> Iterator[str]:
        if names:
            yield f"    {title}:\n"
        for name, t in zip(names, types, strict=True):
            yield f"      {name} : {self.type(t)}\n"

    def hint(self, hint: Hint) -> Iterator[str]:
        yield f"      fused_hint id={hint.id} kind={hint.kind} policy={hint.policy} {{\n"
        for key, values in (("inputs", hint.inputs), ("exports", hint.exports)):
            if values:
                yield f"        {key}: [{', '.join(f'%{self.ids[v]}' for v in values)}]\n"
        if hint.attrs:
            yield "        attrs:\n"
        for key, value in attributes(hint.attrs).items():
            yield f"          {key} = {debug(value)}\n"
        if hint.body:
            yield "        body:\n"
        for op in hint.body:
            yield f"          {self.instruction(op)}"
        yield "      }\n"

    def instruction(self, op: Op) -> str:
        operands = f"({', '.join(map(self.operand, op.operands))})" if op.operands else ""
        result = op.results[0]
        return f"%{self.ids[result]} = {self.operation(op)}{operands} -> {self.type(result.type)}\n"

    def operation(self, op: Op) -> str:
        attrs = written(op)
        if op.regions or op.defn.float_attrs or op.defn.is_constant:  # those that `==` does not tell apart, and come once
            return debug(self.model.operation(op, attrs))
        found = self.ops.get((op.defn, attrs))
        if found is None:
            found = self.ops[op.defn, attrs] = debug(self.model.operation(op, attrs))
        return found

    def operand(self, x: Operand) -> str:
        if isinstance(x, Value):
            return f"%{self.ids[x]}"
        if isinstance(x, Element):
            return f"%{self.ids[x.value]}[{x.index}]"
        return f"literal(dtype={RUST_DTYPE[x.type.dtype]}, shape={shape_text(x.type)})"

    def type(self, t: Type) -> str:
        found = self.types.get(t)
        if found is None:
            found = self.types[t] = type_text(t)
        return found
