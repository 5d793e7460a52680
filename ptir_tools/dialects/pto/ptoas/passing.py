"""FIFOs in the assembler's text: a pipe, whose buffer the consumer reserves and its producer imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.dialects.pto.affine import Linear
from ptir_tools.dialects.pto.fifos import CUBE, users
from ptir_tools.dialects.pto.memory.spare import aligned
from ptir_tools.dialects.pto.structure import has_events, is_open, is_pop, is_push, moves
from ptir_tools.dialects.pto.targets import A3, Target
from ptir_tools.dialects.pto.text.assembly import NOT_TRANSLATABLE
from ptir_tools.dialects.pto.text.cpp.spelling import function_name, identifier
from ptir_tools.dialects.pto.text.fifos import LOCATIONS, Pipe, fenced, passable, pipes, tells_flags, used
from ptir_tools.dialects.pto.text.kernel import Kernel
from ptir_tools.dialects.pto.types import TileType

_SPLITS = {"none": 0, "rows": 1, "columns": 2}
_SLOTS = (4, 8)


def check(program: Program, found: Mapping[str, Pipe], old: bool, diagnostics: Diagnostics) -> None:
    """Report what the assembler's pipes cannot do: each function reserves and imports one buffer."""
    for f in program.functions:
        for direction in LOCATIONS:
            opened = [op for op in f.body if is_open(op) and op.attr("direction") == direction]
            for op in opened[1:]:
                diagnostics.error(NOT_TRANSLATABLE, f"@{f.name} has two FIFOs {direction}, the assembler one", op.loc)
    for name, pipe in found.items():
        if old:
            diagnostics.error(NOT_TRANSLATABLE, "this dialect has no FIFOs", pipe.op.loc)
        elif (n := pipe.op.attr("slots")) not in _SLOTS:
            diagnostics.error(NOT_TRANSLATABLE, f"{name} has {n} slots, a pipe of the assembler 4 or 8", pipe.op.loc)
        elif len(_sides(program, name)) != 2:
            diagnostics.error(NOT_TRANSLATABLE, f"{name} is opened by one function; the assembler wants its peer", pipe.op.loc)


def _sides(program: Program, name: str) -> list[Function]:
    """The functions that open a FIFO."""
    return [f for f in program.functions if any(is_open(op) and op.attr("fifo") == name for op in f.ops())]


def kind(program: Program, function: Function) -> list[str]:
    """The attribute of a function that is for one core."""
    core = users(program).get(function.name)
    return [] if core is None else [f"pto.kernel_kind = #pto.kernel_kind<{core}>"]


class Passing(Kernel):
    """The state of one function that may use FIFOs."""

    def __init__(self, function: Function, program: Program, target: Target, diagnostics: Diagnostics) -> None:
        super().__init__(function, program, target, diagnostics)
        self.counts: dict[str, int] = {}
        self.base = self.unused("ffts") if tells_flags(program, function, target) else ""  # where the flags between cores are
        self.seen: dict[Value, tuple[str, str]] = {}  # the buffer of a tile, with its type
        self.flags = has_events(function)
        self.pipes = pipes(program, target)
        self.fifos = {name: self.unused(identifier(name)) for name in used(program, function)}  # their names here
        self.slots = {x: self.unused(f"{name}_slots") for x, name in self.fifos.items()} if target is A3 else {}  # their memory

    def unused(self, name: str) -> str:
        """A name that nothing else has: `part`, `part_1`, …"""
        found = name
        while found in self.taken:
            self.counts[name] = self.counts.get(name, 0) + 1
            found = f"{name}_{self.counts[name]}"
        self.taken.add(found)
        return found

    def address(self, v: Value) -> Linear:
        """Where a tile is."""
        raise NotImplementedError

    def whole(self, v: Value) -> tuple[str, str]:
        """The buffer of a tile; one that is valid in full if the tile is not."""
        raise NotImplementedError

    def tile_text(self, t: TileType, valid: Sequence[int | None], pad: str | None) -> str:
        """The type of a buffer."""
        raise NotImplementedError

    def opened(self, op: Op) -> None:
        """A pipe, with its buffer."""
        name, target = op.attr("fifo"), self.target
        pipe, buffer, made = self.pipes[name], self.unused(f"{name}_buf"), self.fifos[name]
        if (users(self.program)[self.function.name] == CUBE) == (pipe.direction == "v2c"):
            size, base = (aligned(op.attr("slotSize")), self.place_of(op)) if target is A3 else (pipe.bytes, pipe.start)
            where = f"location = #pto.address_space<{LOCATIONS[pipe.direction].lower()}>"
            self.line(
                f'%{buffer} = pto.reserve_buffer {{name = "{name}", size = {size}, {where}, auto = false, base = {base}}} -> i32'
            )
        else:
            peer = next((f for f in _sides(self.program, name) if f is not self.function), self.function)
            named = f'name = "{name}", peer_func = @{function_name(peer)}'
            self.line(f"%{buffer} = pto.import_reserved_buffer {{{named}}} -> i32")
        words = [f"dir_mask = {1 if pipe.direction == 'c2v' else 2}", f"slot_size = {op.attr('slotSize')}"]
        words += [f"slot_num = {op.attr('slots')}", *["local_slot_num = 1"] * (target is A3), f"flag_base = {2 * pipe.number}"]
        words += ["nosplit = true"] * (not pipe.split)
        given = f"%{self.slots[name]} : !pto.ptr<f32>, " if target is A3 else ""
        word = "initialize_l2g2l_pipe" if target is A3 else "initialize_l2l_pipe"
        self.line(f"%{made} = pto.{word} {{{', '.join(words)}}}({given}%{buffer} : i32) -> !pto.pipe")

    def place_of(self, op: Op) -> int:
        """The address of all tiles that are popped from a FIFO on a3."""
        pops = [x for x in self.function.ops() if is_pop(x) and x.attr("fifo") == op.attr("fifo")]
        places = {self.address(x.results[0]) for x in pops}
        at = next(iter(places)).value if len(places) == 1 else None
        if pops and at is None:
            self.refuse(f"the tiles of {op.attr('fifo')} are popped to several addresses, or to computed ones", op.loc)
        return at or 0

    def passed(self, op: Op) -> None:
        """A push or pop. A popped tile is declared, since it has no address of its own."""
        name, core = self.fifos[op.attr("fifo")], self.signals.units[op].core
        if is_push(op):
            tile, t = self.whole(passable(self, op))
        else:
            self.valid[op.results[0]] = valid = self.region(op, op.results[0])
            v = passable(self, op)
            tile, t = f"%{self.unused(v.name)}", self.tile_text(self.tiles[v], [n.value for n in valid], None)
            self.seen[v] = tile, t
            self.line(f"{tile} = pto.declare_tile -> {t}", core)
        word = "tpush" if is_push(op) else "tpop"
        self.line(f"pto.{word}({tile}, %{name} : {t}, !pto.pipe) {{split = {_SPLITS[op.attr('split')]}}}", core)
        if is_pop(op):
            self.fence(op)

    def freed(self, op: Op) -> None:
        """The slot of a popped tile."""
        pop = next(x for x in self.function.ops() if moves(x) and x.attr("fifo") == op.attr("fifo"))
        self.fence(op)
        self.line(f"pto.tfree(%{self.fifos[op.attr('fifo')]} : !pto.pipe) {{split = {_SPLITS[pop.attr('split')]}}}")

    def fence(self, op: Op) -> None:
        """A barrier where a tile in a slot of a5 is used by other pipes than that in which its pop waits."""
        name = op.attr("fifo")
        if self.flags and self.target is not A3 and fenced(self.function, name, self.pipes[name]):
            self.line("pto.barrier <PIPE_ALL>")
