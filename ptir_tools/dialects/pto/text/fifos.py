"""FIFOs between cores, as the library and the assembler have them: pipes of one function in each core.

On a3 the slots of a FIFO are in memory, which a parameter points to. A pop loads the tile to its address. On a5 the slots are in
the consumer, after all tiles. A popped tile is where its slot is, and nothing is moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op, Region, Value
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.fifos import users
from ptir_tools.dialects.pto.memory.info import infer, sides
from ptir_tools.dialects.pto.memory.spare import aligned, end_of_tiles, spare_bytes
from ptir_tools.dialects.pto.order.signals import cores_of
from ptir_tools.dialects.pto.pipes import is_tile_op, pipe_of
from ptir_tools.dialects.pto.structure import (
    callees,
    is_assign,
    is_call,
    is_free,
    is_loop,
    is_open,
    is_pop,
    moves,
    tiles_of,
    value_of,
)
from ptir_tools.dialects.pto.targets import A3, Target
from ptir_tools.dialects.pto.text.assembly import NOT_TRANSLATABLE
from ptir_tools.dialects.pto.types import type_text
from ptir_tools.dialects.pto.valid import of_shape

if TYPE_CHECKING:
    from ptir_tools.dialects.pto.text.kernel import Kernel

_WAITS = {"c2v": "V", "v2c": "MTE1"}  # the pipe of a5 in which a pop waits, and that gives a slot back
_SPLIT_SIZE, _HALVED = 4, 32  # what a5 can split: bytes of an element, and of how many columns it takes the half
MOST = 7  # FIFOs of a program: each has two flags of 16, and two are for barriers of all cores
LOCATIONS = {"c2v": "Vec", "v2c": "Mat"}  # of the tiles that are popped


class Pipe(NamedTuple):
    """A FIFO: the op that opens it first, its number in the program, whether tiles are split, and its slots' address on a5."""

    op: Op
    number: int
    split: bool
    start: int

    @property
    def direction(self) -> str:
        return str(self.op.attr("direction"))

    @property
    def bytes(self) -> int:
        """Of all slots."""
        return int(self.op.attr("slots")) * int(self.op.attr("slotSize"))


def tells_flags(program: Program, function: Function, target: Target) -> bool:
    """Whether a function that nothing calls says where the flags between cores are, which a3 has in memory."""
    called = {g for f in program.functions for g in callees(f.ops(), program)}
    both = bool(users(program)) or len(cores_of(program, function)) > 1
    return target is A3 and both and function not in called


def splits(program: Program) -> bool:
    """Whether two vector cores work on one program."""
    return any(op.attr("split") != "none" for f in program.functions for op in f.ops() if moves(op))


def pipes(program: Program, target: Target) -> dict[str, Pipe]:
    """The FIFOs of a program, by name."""
    found = dict[str, Pipe]()
    ends = {loc: _end(program, target, loc) for loc in LOCATIONS.values()} if target is not A3 else {}
    split = splits(program)
    for op in (op for f in program.functions for op in f.ops() if is_open(op)):
        if (name := op.attr("fifo")) not in found:
            loc = LOCATIONS[op.attr("direction")]
            found[name] = Pipe(op, len(found), split, ends.get(loc, 0))
            ends[loc] = ends.get(loc, 0) + aligned(found[name].bytes)
    return found


def _end(program: Program, target: Target, loc: str) -> int:
    """Where the tiles of all functions end, with the scratch behind them; the end of the space where that is not known."""
    ends = []
    for f in program.functions:
        tiles = infer(f, target)
        end = end_of_tiles(f, tiles, loc)
        ends.append(target.capacity[loc] if end is None else end + (spare_bytes(f, tiles, target) if loc == "Vec" else 0))
    return max(ends, default=0)


def used(program: Program, function: Function) -> list[str]:
    """The FIFOs of a function and of those that it calls."""
    own = [op.attr("fifo") for op in function.ops() if is_open(op)]
    return list(dict.fromkeys([*own, *(name for f in callees(function.ops(), program) for name in used(program, f))]))


def check(program: Program, target: Target, diagnostics: Diagnostics) -> bool:
    """Whether the library's pipes can do what a program does. Reports what they cannot."""
    before = diagnostics.errors
    cores, opened = users(program), [(f, op) for f in program.functions for op in f.ops() if is_open(op)]
    found = pipes(program, target) if opened else {}
    for f, op in opened:
        name, pipe = op.attr("fifo"), found[op.attr("fifo")]
        side = [x for g, x in opened if x.attr("fifo") == name and cores[g.name] == cores[f.name]]
        if op is not side[0]:
            _refuse(diagnostics, op, f"{name} is opened twice on one core; the library counts the tiles of one function")
        elif op not in f.body:
            _refuse(diagnostics, op, f"{name} is opened in a loop or a branch", "open it at the beginning of the function")
        if pipe.number >= MOST:
            _refuse(diagnostics, op, f"the library has flags for {MOST} FIFOs")
        loc = LOCATIONS[pipe.direction]
        if target is not A3 and pipe.start + pipe.bytes > target.capacity[loc]:
            _refuse(diagnostics, op, f"there is no room for the slots of {name} after the tiles of {loc}")
    if found:
        split = splits(program)
        for op in (op for f in program.functions for op in f.ops() if moves(op)):
            if split and op.attr("split") == "none":
                _refuse(diagnostics, op, "a tile is not split, but others are; the vector cores run one program")
        for f in program.functions:
            popped = {op.attr("fifo") for op in f.ops() if is_pop(op)}
            for op in (op for op in f.ops() if is_free(op) and op.attr("fifo") not in popped):
                _refuse(diagnostics, op, f"a slot of {op.attr('fifo')} is freed, and @{f.name} pops no tile of it")
        for op, why in _calls(program):
            _refuse(diagnostics, op, why)
        for f in program.functions if target is not A3 else ():
            for block in f.blocks():
                for op in _overlapping(block):
                    _refuse(diagnostics, op, "two tiles are popped at one time; the library frees the one that was popped last")
    return diagnostics.errors == before


def _calls(program: Program) -> Iterator[tuple[Op, str]]:
    """Calls of cores that the library's pipes do not count, and what else the entry does."""
    cores, count = users(program), Counter[str]()
    for f in program.functions:
        inner = {id(x) for op in f.ops() if is_loop(op) for r in op.regions for x in r.ops()}
        for op in f.ops():
            if is_call(op) and (callee := op.attr("callee")) in cores:
                count[callee] += 1
                if count[callee] > 1 or id(op) in inner:
                    yield op, f"@{callee} is started more than once; the library counts the tiles of one run"
    entry = program.function(program.entry)
    if entry is not None and entry.name not in cores:
        for op in entry.ops():
            if is_tile_op(op.defn) or (is_call(op) and op.attr("callee") not in cores):
                yield op, "the entry does more than to start cores; do it in the function of a core"


def _overlapping(block: Region) -> Iterator[Op]:
    """The ops of a block that pop a tile before the slot of the one before is freed, or free one that was popped elsewhere."""
    held = set[str]()
    for op in block.body:
        inner = {x.attr("fifo") for r in op.regions for x in r.ops() if is_pop(x)}
        if (is_pop(op) and op.attr("fifo") in held) or not held.isdisjoint(inner):
            yield op
        if is_pop(op):
            held.add(op.attr("fifo"))
        elif is_free(op):
            if op.attr("fifo") not in held:
                yield op
            held.discard(op.attr("fifo"))


def _refuse(diagnostics: Diagnostics, op: Op, why: str, help: str | None = None) -> None:
    diagnostics.error(NOT_TRANSLATABLE, why, op.loc, help=help)


def fenced(function: Function, name: str, pipe: Pipe) -> bool:
    """Whether other pipes than that of a5 in which a pop waits use the tiles that a function pops."""
    popped = {op.results[0] for op in function.ops() if is_pop(op) and op.attr("fifo") == name}
    return any(not is_tile_op(op.defn) or pipe_of(op) != _WAITS[pipe.direction] for op in function.ops() if uses(op, popped))


def passable(kernel: Kernel, op: Op) -> Value:
    """The tile of a push or pop. All its elements are passed. Reports what the library's pipes do not pass."""
    v = op.results[0] if is_pop(op) else value_of(op.operands[0])
    t, split = kernel.tiles[v], op.attr("split")
    if is_pop(op) and kernel.valid.get(v) != of_shape(sides(t)):
        kernel.refuse("a tile that is not valid in full is popped", op.loc)
    if is_pop(op) and kernel.target is not A3 and not stays(kernel.function, v):
        kernel.refuse("a tile that is carried or written over is popped; on this target it is in a slot of its FIFO", op.loc)
    wanted = "ND" if kernel.target is A3 else "Nz"
    if not is_pop(op) and t.loc == "Vec" and t.layout != wanted:
        kernel.refuse(f"a tile of layout {t.layout} is pushed; on this target it is {wanted}", op.loc, "move it (`mov.v2v`)")
    rows, columns = sides(t)
    if not is_pop(op) and t.loc == "Acc" and kernel.target is not A3 and split != "none":
        whole = rows % 2 == 0 if split == "rows" else columns % _HALVED == 0
        if t.dtype.size != _SPLIT_SIZE or not whole:
            kernel.refuse(f"{type_text(t)} is split by {split}; this target splits 32 bits, even rows, 32 columns", op.loc)
    return v


def stays(function: Function, tile: Value) -> bool:
    """Whether a tile is neither carried nor written over, so that it may be in a slot."""
    for op in function.ops():
        own = facts(op)
        if op.regions and uses(op, {tile}):
            return False
        if own.over is not None and not own.renames and tiles_of(op)[own.over] is tile:
            return False
    return True


def uses(op: Op, tiles: set[Value]) -> bool:
    """Whether an op uses one of these tiles, or gives it on."""
    return not is_assign(op) and any(x in tiles for x in (*op.operands, *(x for r in op.regions for x in r.results)))
