"""`pto-as`: PTO assembly, one instruction a line. Output only.

    .arg %a : !pto.memref<32x32xf32>;
    .const %c0 = 0 : index;
    %t = tload %a[%c0, %c0] : (!pto.memref<32x32xf32>, index, index) -> !pto.tile<32x32xf32>;
    set_flag[PIPE_MTE2, PIPE_V, EVENT_ID0];

An instruction is called as its op without `pto.tile.`, with a `t` in front. `tassign` is before the op that fills the tile, with
what computes the address. Events are flags (`pto.order.signals`):
`set_flag` and `wait_flag` with the two pipes and the id; `pipe_barrier` is between ops of one pipe. In a function for both cores
they name the core of the first pipe, and flags to the other core are `inter`.

Loops and branches are labels and branches:

    %i, %a = mov 0, %t : index, !pto.tile<32x32xf32>;
    .L0:
    br.ge %i, %n, .L1;
    ...
    %i = addi %i, 1 : (index, index) -> index;
    br .L0;
    .L1:

A name is a register here, which may be written again. `mov` assigns several registers at once. It does not move the bytes of a
tile. `br.not` branches where a condition is 0. Of several functions each begins with `.func` and ends with `ret`;
`call` names one. Functions that return values or take events are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.order.signals import BARRIER, Signal, Signals, cores_of, signals_of
from ptir_tools.dialects.pto.structure import is_barrier, is_fifo, is_subblock, is_sync, meets
from ptir_tools.dialects.pto.targets import target_of
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.addresses import addresses_first, late
from ptir_tools.dialects.pto.text.writer import clauses, grouped, operand_text
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, type_text

NOT_TRANSLATABLE = "NotTranslatable"


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The instructions of every function, after its parameters. Nothing is written when something is refused."""
    if refused(program, diagnostics, fifos=False):
        return
    several = len(program.functions) > 1
    target = target_of(program, options)
    for function in program.functions:
        if several:
            yield f".func @{function.name};\n"
        yield from (f".arg %{p.name} : {_type(p.type)};\n" for p in function.params)
        yield from _Text(signals_of(function, program, target, cores_of(program, function))).block(function)
        if several:
            yield "ret;\n"


def refused(program: Program, diagnostics: Diagnostics, fifos: bool = True) -> bool:
    """Report what has no instruction: returned values, events as parameters, unknown ops with blocks, addresses that are computed
    too late, and without `fifos` those."""
    before = diagnostics.errors
    for function in program.functions:
        if function.results:
            at = function.return_loc or function.loc
            diagnostics.error(NOT_TRANSLATABLE, "assembly returns nothing; store the results", at)
        if any(isinstance(p.type, EventType) for p in function.params):
            diagnostics.error(NOT_TRANSLATABLE, "a flag is not an argument; wait for the event before the call", function.loc)
        for op in function.ops():
            if not fifos and (is_fifo(op) or is_subblock(op)):
                message = "assembly shows one core; a kernel that passes tiles between cores is written in C++"
                diagnostics.error(NOT_TRANSLATABLE, message, op.loc)
            if op.regions and op.defn.short not in _CONTROL:
                diagnostics.error(NOT_TRANSLATABLE, f"{op.defn.short} is not an instruction", op.loc)
        for block in function.blocks():
            for op, why in late(block):
                diagnostics.error(NOT_TRANSLATABLE, why, op.loc, help="compute the address before the op that makes the tile")
    return diagnostics.errors > before


class _Text:
    """The instructions of one function, with its flags."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.labels = (f".L{k}" for k in count())

    def block(self, block: Region) -> Iterator[str]:
        """All ops of a block, and the flags at its end."""
        for x in self.signals.along(block, addresses_first(block)):
            if isinstance(x, Signal):
                yield _signal(x, len(self.signals.cores) > 1)
            elif (flow := _CONTROL.get(x.defn.short)) is not None:
                yield from flow(self, x)
            elif meets(x):
                yield "syncall;\n"
            elif not is_sync(x) and not is_barrier(x):  # they are their flags
                yield f"{_statement(x)};\n"

    def loop(self, op: Op) -> Iterator[str]:
        """A counter that goes up to a bound."""
        lower, upper, step, *inits = op.operands
        body = op.regions[0]
        counter, *carried = body.params
        again, after = next(self.labels), next(self.labels)
        yield from _move(body.params, [lower, *inits])
        yield f"{again}:\nbr.ge %{counter.name}, {operand_text(upper)}, {after};\n"
        yield from self.block(body)
        yield from _move(carried, body.results)
        t = _type(counter.type)
        yield f"%{counter.name} = addi %{counter.name}, {operand_text(step)} : ({t}, {t}) -> {t};\nbr {again};\n{after}:\n"
        yield from _move(op.results, carried)

    def branch(self, op: Op) -> Iterator[str]:
        """Two blocks, one of which is skipped by a jump."""
        then, otherwise = op.regions
        other = next(self.labels)
        yield f"br.not {operand_text(op.operands[0])}, {other};\n"
        yield from self.block(then)
        yield from _move(op.results, then.results)
        if otherwise.body or op.results or otherwise in self.signals.ends:
            after = next(self.labels)
            yield f"br {after};\n{other}:\n"
            yield from self.block(otherwise)
            yield from _move(op.results, otherwise.results)
            other = after
        yield f"{other}:\n"

    def repeat(self, op: Op) -> Iterator[str]:
        """A loop that ends after its first block."""
        before, body = op.regions
        condition, *given = before.results
        again, after = next(self.labels), next(self.labels)
        yield from _move(before.params, op.operands)
        yield f"{again}:\n"
        yield from self.block(before)
        yield f"br.not {operand_text(condition)}, {after};\n"
        yield from _move(body.params, given)
        yield from self.block(body)
        yield from _move(before.params, body.results)
        yield f"br {again};\n{after}:\n"
        yield from _move(op.results, given)


_CONTROL = {"scf.for": _Text.loop, "scf.if": _Text.branch, "scf.while": _Text.repeat}


def _signal(s: Signal, mixed: bool) -> str:
    """A flag or barrier. In a function for both cores it names the core of its source."""
    words = [f"PIPE_{unit.pipe}" for unit in ((s.source,) if s.kind == BARRIER else (s.source, s.target))]
    words += [] if s.kind == BARRIER else [f"EVENT_ID{s.eid}"]
    words += ["inter"] if s.inter else []
    return f"{s.kind}[{', '.join([*words, *([s.source.core] if mixed else [])])}];\n"


def _move(to: Sequence[Value], values: Sequence[Operand]) -> Iterator[str]:
    """Assign to names, all at once. Events have no name."""
    pairs = [(v, x) for v, x in zip(to, values, strict=True) if v is not x and not isinstance(v.type, EventType)]
    if pairs:
        names = ", ".join(f"%{v.name}" for v, _ in pairs)
        yield f"{names} = mov {', '.join(operand_text(x) for _, x in pairs)} : {_types(v.type for v, _ in pairs)};\n"


# Instructions


def _statement(op: Op) -> str:
    short = op.defn.short
    if op.defn.is_constant:
        return f".const %{op.result.name} = {literals.scalar_text(op.attr('value'))} : {type_text(op.result.type)}"
    if short == "func.call":
        arguments = ", ".join(map(operand_text, op.operands))
        return f"call @{op.attr('callee')}({arguments}) : ({_types(map(operand_type, op.operands))}) -> ()"
    words = " ".join([mnemonic(short), *clauses(op, waits=False)])
    given = [operand_type(x) for name, part in grouped(op).items() if name not in ("valid", "wait") for x in part]
    results = [v for v in op.results if not isinstance(v.type, EventType)]
    made = _types(v.type for v in results)
    types = f"({_types(given)}) -> {made if len(results) == 1 else f'({made})'}"
    names = ", ".join(f"%{v.name}" for v in results)
    return f"{names} = {words} : {types}" if results else f"{words} : {types}"


def mnemonic(short: str) -> str:
    """The name of an instruction: `tadd` for `tile.add`, `tmov.m2l` for `tile.mov.m2l`. Scalar ops keep their name."""
    return f"t{short.removeprefix('tile.')}" if short.startswith("tile.") else short


def _types(types: Iterable[Type]) -> str:
    return ", ".join(map(_type, types))


def _type(t: Type) -> str:
    return {TileType: "!pto.", MemRefType: "!"}.get(type(t), "") + type_text(t)


FORMAT = Format("pto-as", "pto", None, write)
