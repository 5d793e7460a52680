"""The FIFOs of a program: which functions use them on which core, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op, Region, Value, operand_type
from ptir_tools.core.violations import Violation, attribute, require, result
from ptir_tools.dialects.pto.memory.info import tile_bytes
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.structure import is_call, is_fifo, is_free, is_open, is_pop, is_push, is_subblock, moves
from ptir_tools.dialects.pto.types import TileType

CUBE, VECTOR = "cube", "vector"


def users(program: Program) -> dict[str, str]:
    """The functions that use FIFOs themselves, and whether they run on the cube core or on vector cores."""
    opened = {op.attr("fifo"): op for f in program.functions for op in f.ops() if is_open(op)}
    found: dict[str, str] = {}
    for f in program.functions:
        sides = set(_sides(f, opened))
        if sides or any(is_fifo(op) for op in f.ops()):
            found[f.name] = CUBE if CUBE in sides else VECTOR
    return found


def _sides(function: Function, opened: Mapping[str, Op]) -> Iterator[str]:
    """The cores on which the ops of a function run."""
    for op in function.ops():
        if moves(op) and (first := opened.get(op.attr("fifo"))) is not None:
            yield CUBE if (first.attr("direction") == "c2v") == is_push(op) else VECTOR
        elif is_subblock(op):
            yield VECTOR


def check(program: Program) -> Iterator[tuple[Op, Violation]]:
    """What is wrong with the FIFOs of a program, each with its op."""
    ops = [(f, op) for f in program.functions for op in f.ops() if is_fifo(op) or is_call(op)]
    opened: dict[str, Op] = {}
    for _, op in ops:
        if is_open(op):
            opened.setdefault(op.attr("fifo"), op)
    pushed = {op.attr("fifo"): op for _, op in ops if is_push(op)}
    cores, entry = users(program), program.entry
    for function, op in ops:
        try:
            if is_call(op):
                _starts(op, function.name == entry, cores)
                continue
            name = op.attr("fifo")
            if is_open(op):
                _same(op, opened[name])
                continue
            own = any(is_open(x) and x.attr("fifo") == name for x in function.ops())
            require(own, "UndefinedValue", f"@{function.name} opens no FIFO {name}", at=attribute("fifo"))
            if is_pop(op) and name in pushed:
                _split(op, pushed[name])
        except Violation as violation:
            yield op, violation
    yield from _late(program, cores)
    for function in program.functions:
        for block in (function, *(r for op in function.ops() for r in op.regions)):
            yield from _freed(block)
        if len(set(_sides(function, opened))) > 1:
            op = next(op for op in function.ops() if moves(op))
            message = f"@{function.name} does what the cube core does, and what a vector core does"
            yield op, Violation("InvalidLocation", message, help="a kernel has a function for each")


def _freed(block: Region) -> Iterator[tuple[Op, Violation]]:
    """Uses of tiles that were popped in a block, after their slots were freed there."""
    held: dict[str, list[Value]] = {}
    freed: set[Value] = set()
    for op in block.body:
        for inner in (op, *(x for r in op.regions for x in r.ops())):
            if (lost := next((x for x in inner.operands if x in freed), None)) is not None:
                assert isinstance(lost, Value)
                message = f"%{lost.name} is used after its slot was freed, where the next tile may be"
                yield inner, Violation("TileOverwritten", message, at=f"%{lost.name}", help="free it after its last use")
        if is_pop(op):
            held.setdefault(op.attr("fifo"), []).append(op.results[0])
        elif is_free(op) and (popped := held.get(op.attr("fifo"))):
            freed.add(popped.pop(0))


def _late(program: Program, cores: Mapping[str, str]) -> Iterator[tuple[Op, Violation]]:
    """What the entry does after it has started a core. It would run before the cores have ended."""
    entry = program.function(program.entry)
    started: Op | None = None
    for op in entry.body if entry is not None and entry.name not in cores else ():
        inner = [op, *(x for r in op.regions for x in r.ops())]
        starts = next((x for x in inner if is_call(x) and x.attr("callee") in cores), None)
        if (started or starts) is not None:
            for x in inner:
                if is_tile_op(x.defn) or (is_call(x) and x.attr("callee") not in cores):
                    message = f"the entry does `{x.defn.short}` next to cores, which run when it has ended"
                    yield x, Violation("IllegalOnTarget", message, help="do it in the function of a core")
        started = started or starts


def _starts(op: Op, of_entry: bool, cores: Mapping[str, str]) -> None:
    """Check that a call that starts a core is one of the entry, and wants no results."""
    callee = op.attr("callee")
    if callee in cores:
        require(of_entry, "IllegalOnTarget", f"@{callee} runs on a core of its own; only the entry starts cores")
        require(not op.results, "TypeMismatch", f"@{callee} runs on a core of its own, which gives no results", at=result())


def _same(op: Op, first: Op) -> None:
    for name in ("direction", "slots", "slotSize"):
        message = f"{name} of {op.attr('fifo')} is {op.attr(name)}, and {first.attr(name)} where it is opened first"
        require(op.attr(name) == first.attr(name), "TypeMismatch", message, at=attribute(name))


def _split(op: Op, source: Op) -> None:
    """Check that both sides of a FIFO split its tiles, or none."""
    mine, theirs = op.attr("split"), source.attr("split")
    message = f"the tiles of {op.attr('fifo')} are split by {mine} here, and by {theirs} where they are pushed"
    require((mine == "none") == (theirs == "none"), "TypeMismatch", message, at=attribute("split"))


def too_large(program: Program) -> Iterator[tuple[Op, str]]:
    """The pushes and pops of a tile that does not fit its slot, with what to say. The next tile is then written over it."""
    opened = {op.attr("fifo"): op for f in program.functions for op in f.ops() if is_open(op)}
    for op in (op for f in program.functions for op in f.ops() if moves(op)):
        if (first := opened.get(op.attr("fifo"))) is not None and (said := _too_large(op, first)):
            yield op, said


def _too_large(op: Op, opened: Op) -> str:
    """A vector core has half of a tile that is split."""
    t = op.results[0].type if is_pop(op) else operand_type(op.operands[0])
    assert isinstance(t, TileType)
    on_vector = (opened.attr("direction") == "c2v") == is_pop(op)
    size, room = tile_bytes(t) * (2 if on_vector and op.attr("split") != "none" else 1), opened.attr("slotSize")
    return f"the tile has {size} bytes, a slot of {op.attr('fifo')} has {room}" if size > room else ""
