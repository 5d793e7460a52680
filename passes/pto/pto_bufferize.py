"""Addresses for tiles, written as `pto.tile.assign` behind every tile: those of `ptir plan` (seed 8, step 6; facts 2.1, 5).

The plan takes the ops in order. Where asynchronous ops would meet in memory that their tiles share, that is a `MemoryHazard`:
`pto-insert-events` comes after this pass, and knows the addresses. A function that binds tiles itself is left alone. What does
not fit the target's spaces is `CapacityExceeded`; what a loop carries or a branch gives must lie in one place: `TileMoved`. A
copy takes the vector pipe's time, so it is the program's to ask for, by `pto.tile.mov.v2v`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Function, Op, Operand, Program, Region, Value
from ptir_tools.core.opdef import OPS, create
from ptir_tools.dialects.pto import capacity, hazards
from ptir_tools.dialects.pto.info import infer
from ptir_tools.dialects.pto.targets import ALIGNMENT, target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.windows import on_chip
from ptir_tools.passes import PassContext
from ptir_tools.plan import Plan, plan
from ptir_tools.rewrite.rewriter import Rewriter

Places = dict[Value, int]
ASSIGN = "tile.assign"


def run(program: Program, context: PassContext) -> None:
    """Bind every tile to an address of its memory space."""
    made = plan(program, align=ALIGNMENT)
    for rw in context.rewriters(program):
        function = rw.block
        if not isinstance(function, Function) or any(op.defn.short == ASSIGN for op in function.ops()):
            continue
        places = _places(program, function, made, context)
        if places is not None and not _moved(function, places, context) and _ordered(function, program, places, context):
            context.count("tiles", _bind(rw, places))


def _places(program: Program, function: Function, made: Plan, context: PassContext) -> Places | None:
    """The address of every tile; None after reporting a space that is too small."""
    found: Places = {}
    before = context.diagnostics.errors
    for space in capacity.spaces(function, target_of(program, Options())):
        block = made.functions[f"{function.name} {space.name}"]
        if block.capacity is not None and block.peak > block.capacity:
            message = f"the tiles of {space.name} need {block.peak} bytes, there are {block.capacity}"
            context.diagnostics.error("CapacityExceeded", message, function.loc, help="`ptir plan` shows them")
        found |= {b.value: p.offset or 0 for b, p in zip(space.buffers, block.buffers, strict=True)}
    return found if context.diagnostics.errors == before else None


def _moved(function: Function, places: Places, context: PassContext) -> bool:
    """Report tiles that would have to be copied at the edge of a block, once for each result."""
    before = context.diagnostics.errors
    for op in function.ops():
        for v, others in _same(op):
            apart = [x for x in others if isinstance(x, Value) and v in places and places[x] != places[v]]
            if apart:
                x = apart[0]
                message = f"%{x.name} lies at {places[x]}, %{v.name} for which it stands at {places[v]}, and nothing copies it"
                at = op.loc if x.op is None else x.op.loc
                context.diagnostics.error("TileMoved", message, at, labels=[(op.loc, f"gives %{v.name}")], help=_COPY)
    return context.diagnostics.errors > before


_COPY = "finish with what is carried before it is made anew, or copy it with pto.tile.mov.v2v before the yield"


def _ordered(function: Function, program: Program, places: Places, context: PassContext) -> bool:
    """Whether asynchronous ops keep off the memory of each other; what does not is reported."""
    report = Diagnostics(program.source)
    tiles = infer(function, target_of(program, Options()))
    hazards.check(function, program, report, {v: on_chip(tiles[v], at) for v, at in places.items()})
    for found in (d for d in report if d.severity is Severity.ERROR):
        context.diagnostics.add(replace(found, help="tiles share memory here: bufferize before events are inserted"))
    return not report.errors


def _same(op: Op) -> Iterator[tuple[Value, list[Operand]]]:
    """The results of an op with blocks, each with the tiles that must lie where it does."""
    for k, v in enumerate(op.results if op.regions else ()):
        ends = [r.results[k] for r in op.regions]
        yield v, ends + ([op.operands[3 + k], op.regions[0].params[k + 1]] if op.defn.short == "scf.for" else [])


def _bind(rw: Rewriter, places: Places) -> int:
    """Put the assignments in, each behind its tile; how many."""
    for block in list(rw.blocks()):
        ops = list(rw.body(block))
        waiting = [p for p in block.params if p in places]
        for op in [*ops, None]:
            for v in waiting:
                _assign(rw, block, op, v, places[v])
            waiting = [v for v in op.results if v in places] if op is not None else []
    return len(places)


def _assign(rw: Rewriter, block: Region, before: Op | None, v: Value, address: int) -> None:
    constant = create(OPS["pto.constant"], (), {"value": integer(address, INDEX)})
    assign = create(OPS[f"pto.{ASSIGN}"], (v, constant.result))
    for op in (constant, assign):
        if before is None:
            rw.append(block, op)
        else:
            rw.insert_before(before, op)
