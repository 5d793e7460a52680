"""`pto-as`: PTO assembly, one instruction a line. Output only (seed 8, step 7; facts 0).

    .arg %a : !pto.memref<32x32xf32>;
    .const %c0 = 0 : index;
    %t, %e = tload %a[%c0, %c0] : (!pto.memref<32x32xf32>, index, index) -> (!pto.tile<32x32xf32>, !pto.event);

An instruction is called as its op without `pto.tile.`, with a `t` in front. Loops and branches are labels and branches:

    %i, %a = mov 0, %t : index, !pto.tile<32x32xf32>;
    .L0:
    br.ge %i, %n, .L1;
    ...
    %i = addi %i, 1 : (index, index) -> index;
    br .L0;
    .L1:

A name is a register here, which may be written again: `mov` gives several at once what several others have. A tile that is moved
so stays where it is. `br.not` branches where a condition is 0. Of several functions each begins with `.func` and ends with `ret`;
`call` names one. What returns values is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.writer import clauses, grouped, operand_text
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, type_text

NOT_TRANSLATABLE = "NotTranslatable"


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The instructions of every function, its parameters declared before; nothing when something cannot be said."""
    before = diagnostics.errors
    for function in program.functions:
        if function.results:
            at = function.return_loc or function.loc
            diagnostics.error(NOT_TRANSLATABLE, "assembly returns nothing; store the results", at)
        for op in function.ops():
            if op.regions and op.defn.short not in _CONTROL:
                diagnostics.error(NOT_TRANSLATABLE, f"{op.defn.short} is no instruction", op.loc)
    if diagnostics.errors > before:
        return
    several = len(program.functions) > 1
    for function in program.functions:
        if several:
            yield f".func @{function.name};\n"
        yield from (f".arg %{p.name} : {_type(p.type)};\n" for p in function.params)
        yield from _block(function, count())
        if several:
            yield "ret;\n"


# Control flow


def _block(block: Region, labels: Iterator[int]) -> Iterator[str]:
    for op in block.body:
        flow = _CONTROL.get(op.defn.short)
        if flow is not None:
            yield from flow(op, labels)
        else:
            yield f"{_statement(op)};\n"


def _label(labels: Iterator[int]) -> str:
    return f".L{next(labels)}"


def _move(to: Sequence[Value], values: Sequence[Operand]) -> Iterator[str]:
    """Give names values, all at once."""
    pairs = [(v, x) for v, x in zip(to, values, strict=True) if v is not x]
    if pairs:
        names = ", ".join(f"%{v.name}" for v, _ in pairs)
        yield f"{names} = mov {', '.join(operand_text(x) for _, x in pairs)} : {_types(v.type for v, _ in pairs)};\n"


def _loop(op: Op, labels: Iterator[int]) -> Iterator[str]:
    lower, upper, step, *inits = op.operands
    body = op.regions[0]
    counter, *carried = body.params
    again, after = _label(labels), _label(labels)
    yield from _move(body.params, [lower, *inits])
    yield f"{again}:\nbr.ge %{counter.name}, {operand_text(upper)}, {after};\n"
    yield from _block(body, labels)
    yield from _move(carried, body.results)
    t = _type(counter.type)
    yield f"%{counter.name} = addi %{counter.name}, {operand_text(step)} : ({t}, {t}) -> {t};\nbr {again};\n{after}:\n"
    yield from _move(op.results, carried)


def _if(op: Op, labels: Iterator[int]) -> Iterator[str]:
    then, otherwise = op.regions
    other = _label(labels)
    yield f"br.not {operand_text(op.operands[0])}, {other};\n"
    yield from _block(then, labels)
    yield from _move(op.results, then.results)
    if otherwise.body or op.results:
        after = _label(labels)
        yield f"br {after};\n{other}:\n"
        yield from _block(otherwise, labels)
        yield from _move(op.results, otherwise.results)
        other = after
    yield f"{other}:\n"


def _while(op: Op, labels: Iterator[int]) -> Iterator[str]:
    before, body = op.regions
    condition, *given = before.results
    again, after = _label(labels), _label(labels)
    yield from _move(before.params, op.operands)
    yield f"{again}:\n"
    yield from _block(before, labels)
    yield f"br.not {operand_text(condition)}, {after};\n"
    yield from _move(body.params, given)
    yield from _block(body, labels)
    yield from _move(before.params, body.results)
    yield f"br {again};\n{after}:\n"
    yield from _move(op.results, given)


_CONTROL = {"scf.for": _loop, "scf.if": _if, "scf.while": _while}


# Instructions


def _statement(op: Op) -> str:
    short = op.defn.short
    if op.defn.is_constant:
        return f".const %{op.result.name} = {literals.scalar_text(op.attr('value'))} : {type_text(op.result.type)}"
    if short == "sync.op":
        return f"tsync.op #pto.op<{op.attr('opcode')}>"
    if short == "sync":
        return f"tsync wait({', '.join(map(operand_text, op.operands))}) : {_types(map(operand_type, op.operands))}"
    if short == "func.call":
        arguments = ", ".join(map(operand_text, op.operands))
        return f"call @{op.attr('callee')}({arguments}) : ({_types(map(operand_type, op.operands))}) -> ()"
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
        return "!pto.event" if t.eid is None else f"!pto.event<eid = {t.eid}>"
    return {TileType: "!pto.", MemRefType: "!"}.get(type(t), "") + type_text(t)


FORMAT = Format("pto-as", "pto", None, write)
