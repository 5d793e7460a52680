"""`pto-as`: PTO assembly, one instruction a line. Output only (seed 8, step 7; facts 0).

    .arg %a : !pto.memref<32x32xf32>;
    .const %c0 = 0 : index;
    %t, %e = tload %a[%c0, %c0] : (!pto.memref<32x32xf32>, index, index) -> (!pto.tile<32x32xf32>, !pto.event);

An instruction is called as its op without `pto.tile.`, with a `t` in front. A program is a list of statements: what has blocks,
calls, or returns values is refused at every such op.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options
from ptir_tools.core.ir import Op, Program
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.writer import clauses, grouped, operand_text
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, type_text

NOT_TRANSLATABLE = "NotTranslatable"


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The instructions of the entry, its parameters declared before; nothing when something cannot be said."""
    main, before = program.main, diagnostics.errors
    for other in program.functions:
        if other is not main:
            diagnostics.error(
                NOT_TRANSLATABLE, f"assembly is one list of instructions; @{other.name} is not the entry", other.loc
            )
    if main.results:
        diagnostics.error(NOT_TRANSLATABLE, "assembly returns nothing; store the results", main.return_loc or main.loc)
    for op in main.body:
        if op.regions or op.defn.short == "func.call":
            diagnostics.error(NOT_TRANSLATABLE, f"{op.defn.short} is no instruction", op.loc, help="assembly has no control flow")
    if diagnostics.errors == before:
        yield from (f".arg %{p.name} : {_type(p.type)};\n" for p in main.params)
        yield from (f"{_statement(op)};\n" for op in main.body)


def _statement(op: Op) -> str:
    short = op.defn.short
    if op.defn.is_constant:
        return f".const %{op.result.name} = {literals.scalar_text(op.attr('value'))} : {type_text(op.result.type)}"
    if short == "sync.op":
        return f"tsync.op #pto.op<{op.attr('opcode')}>"
    if short == "sync":
        return f"tsync wait({', '.join(map(operand_text, op.operands))}) : {_types(map(operand_type, op.operands))}"
    words = " ".join([mnemonic(short), *(_view(op) if short == "memref.subview" else clauses(op))])
    given = [operand_type(x) for name, part in grouped(op).items() if name not in ("valid", "wait") for x in part]
    made = _types(v.type for v in op.results)
    types = f"({_types(given)}) -> {made if len(op.results) == 1 else f'({made})'}"
    results = ", ".join(f"%{v.name}" for v in op.results)
    return f"{results} = {words} : {types}" if results else f"{words} : {types}"


def mnemonic(short: str) -> str:
    """What an op is called: `tadd` for `tile.add`, `tmov.m2l` for `tile.mov.m2l`; scalar ops as they are."""
    return f"t{short.removeprefix('tile.')}" if short.startswith("tile.") else short


def _view(op: Op) -> list[str]:
    source, *parts = op.defn.split(op.attrs, op.operands)
    return [f"%{source.name}" + " ".join(f"[{', '.join(map(operand_text, part))}]" for part in parts)]


def _types(types: Iterable[Type]) -> str:
    return ", ".join(map(_type, types))


def _type(t: Type) -> str:
    if isinstance(t, EventType):
        return "!pto.event"
    return {TileType: "!pto.", MemRefType: "!"}.get(type(t), "") + type_text(t)


FORMAT = Format("pto-as", "pto", None, write)
