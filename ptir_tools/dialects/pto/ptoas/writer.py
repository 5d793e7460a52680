"""Programs of PTO IR in the assembler's text: a tile is a buffer at the address that `pto.tile.assign` gives it.

Buffers of one type and one constant address are one, made at the head of the function. So a tile that a loop carries is the
buffer that its values are written to. A buffer whose address or valid region is computed is made before the op that fills it.

Flags and barriers are written where the program has events (`pto.order.signals`); without any, the assembler inserts its own.
The dialect 0.1 of the wheel spells memory differently and has no addresses: buffers are then apart, and it plans them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.dialects.pto import DIALECT_VERSION
from ptir_tools.dialects.pto.affine import number
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.fifos import CUBE
from ptir_tools.dialects.pto.memory.info import sides, tile_bytes
from ptir_tools.dialects.pto.memory.spare import aligned, spares
from ptir_tools.dialects.pto.ops.memory import is_load, touches_memory
from ptir_tools.dialects.pto.order.signals import BARRIER, SET, Signal
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.ptoas import passing, table
from ptir_tools.dialects.pto.ptoas.storage import Storage, scalar_text
from ptir_tools.dialects.pto.structure import (
    BLOCK_DIM,
    block_dim,
    callees,
    is_block_idx,
    is_call,
    is_subblock,
    is_view,
    meets,
    moves,
    tiles_of,
    value_of,
)
from ptir_tools.dialects.pto.targets import A3, target_of
from ptir_tools.dialects.pto.text.addresses import addresses_first
from ptir_tools.dialects.pto.text.assembly import refused
from ptir_tools.dialects.pto.text.cpp.spelling import function_name, identifier
from ptir_tools.dialects.pto.text.fifos import check as check_pipes
from ptir_tools.dialects.pto.text.fifos import pipes, used
from ptir_tools.dialects.pto.text.kernel import NOTHING, STEP, own_operands, sizes
from ptir_tools.dialects.pto.types import MemRefType, ScalarType, TileType
from ptir_tools.dialects.pto.valid import of_shape

_OLD = "0.1"
_FLAGS = "memref<?xi64>"  # where the flags between cores are


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The module. Nothing is written when something is refused."""
    if refused(program, diagnostics):
        return
    target, old = target_of(program, options) or A3, options[DIALECT_VERSION] == _OLD
    if not check_pipes(program, target, diagnostics):
        return
    passing.check(program, pipes(program, target), old, diagnostics)
    made, called = list[str](), {g for f in program.functions for g in callees(f.ops(), program)}
    for f in program.functions:
        made += Writing(f, program, target, diagnostics, old).text(f not in called and len(program.functions) > 1)
    if not diagnostics.errors:
        yield f'module attributes {{pto.target_arch = "{target.name}"}} {{\n' if not old else "module {\n"
        yield from made
        yield "}\n"


class Writing(Storage):
    """The text of one function."""

    # Lines

    def text(self, entry: bool) -> list[str]:
        """The lines of the function."""
        f, params = self.function, list[str]()
        for p in f.params:
            params.append(f"%{self.name(p)}: {self.parameter_type(p)}")
            if isinstance(p.type, MemRefType):
                params += self.view(p, p.type)
            elif isinstance(p.type, TileType):
                self.refuse("a tile is no parameter of a kernel", f.loc)
        params += [f"%{name}: !pto.ptr<f32>" for name in self.slots.values()]
        if self.base and not self.old:
            params.append(f"%{self.base}: {_FLAGS}")
            self.line(f"pto.set_ffts %{self.base} : {_FLAGS}")
        self.block(f)
        self.part()
        given = [
            *passing.kind(self.program, f),
            *["pto.entry"] * entry,
            *[f"{BLOCK_DIM} = {block_dim(f)} : i32"] * (block_dim(f) > 1),
        ]
        marked = f" attributes {{{', '.join(given)}}}" if given else ""
        return [
            f"{STEP}func.func @{function_name(f)}({', '.join(params)}){marked} {{\n",
            *(f"{STEP * 2}{line.rstrip()}\n" for line in self.head),
            *self.lines,
            f"{STEP * 2}return\n{STEP}}}\n",
        ]

    def begin_part(self, core: str) -> None:
        if self.old:
            self.refuse(f"dialect {_OLD} has no ops of two cores in one function", self.function.loc)
        self.lines.append(f"{STEP * self.depth}pto.section.{'cube' if core == CUBE else 'vector'} {{\n")
        self.depth += 1

    def end_part(self) -> None:
        self.depth -= 1
        self.lines.append(f"{STEP * self.depth}}}\n")

    # Ops

    def block(self, block: Region) -> None:
        """The ops of a block, with flags."""
        for x in self.signals.along(block, addresses_first(block)):
            if not isinstance(x, Signal):
                self.op(x)
            elif self.flags:  # else the assembler inserts its own
                self.line(f"pto.{_signal(x)}", x.core)

    def op(self, op: Op) -> None:
        """One op."""
        short = op.defn.short
        if (flow := _FLOW.get(short)) is not None:
            self.part()
            flow(self, op)
        elif is_call(op):
            self.call(op)
        elif meets(op):
            self.refuse("the assembler has no barrier of all cores; a kernel of one function needs none", op.loc)
        elif is_block_idx(op):
            self.line(f"%{self.name(op.result)} = pto.get_block_idx")
        elif is_subblock(op):
            self.line(f"%{self.name(op.result)} = pto.get_subblock_idx")
        elif moves(op):
            self.passed(op)
        elif is_view(op):
            self.subview(op)
        elif is_tile_op(op.defn):
            self.tile_op(op)
        elif op.results and isinstance(op.results[0].type, TileType):
            self.valid[op.result] = self.region(op, op.result)  # undefined elements: into this buffer nothing is written
            self.buffer(op.result)
        elif op.results and not op.defn.is_constant:
            self.scalar_op(op)

    def call(self, op: Op) -> None:
        """A call, which is given pointers, and extents that are not in their types."""
        callee = self.program.function(op.attr("callee"))
        assert isinstance(callee, Function)
        given, types = list[str](), list[str]()
        known = {q.name for q in callee.params}
        for p, x in zip(callee.params, op.operands, strict=True):
            given.append(self.operand(x))
            types.append(self.parameter_type(p))
            if isinstance(p.type, MemRefType):
                if x not in self.function.params:
                    self.refuse("a view is passed as memory", op.loc)
                if any(not isinstance(d, int) and (d.name or "") not in known for d in p.type.shape):
                    self.refuse("memory of unknown extents is passed to a function", op.loc)
        slots = [self.slots[name] for name in used(self.program, callee) if name in self.slots]
        given, types = [*given, *(f"%{name}" for name in slots)], [*types, *["!pto.ptr<f32>"] * len(slots)]
        self.line(f"func.call @{function_name(callee)}({', '.join(given)}) : ({', '.join(types)}) -> ()")

    def scalar_op(self, op: Op) -> None:
        """A scalar op of arith."""
        name, kind, short = f"%{self.name(op.result)}", scalar_text(op.result.type), op.defn.short
        given = ", ".join(map(self.operand, op.operands))
        attrs, source = op.defn.named(op.attrs), self.kind(op.operands[0])
        if "predicate" in attrs:
            self.line(f"{name} = arith.{short} {attrs['predicate']}, {given} : {source}")
        elif "to" in attrs:
            self.line(f"{name} = arith.{short} {given} : {source} to {kind}")
        else:
            self.line(f"{name} = arith.{short} {given} : {kind}")

    def tile_op(self, op: Op) -> None:
        """An op that reads and writes buffers."""
        own, core = facts(op), self.signals.units[op].core
        tiles = [v for v in op.results if isinstance(v.type, TileType)]
        name = table.written_name(op.defn)
        if name is None or len(tiles) > 1:
            self.refuse(f"{op.defn.short} has no form in the assembler's text", op.loc)
            return
        for v in tiles:
            self.valid[v] = self.region(op, v)
        if own.renames:
            self.renamed(op, tiles[0])
            return
        into = [self.buffer(v, op) for v in tiles]
        before, inside, behind = _attributes(op)
        if touches_memory(op):
            moved = value_of(tiles[0] if is_load(op) else op.operands[0])
            part = self.window(op, moved)
            scale = [self.given(x) for x in op.operands[1:2] if isinstance(operand_type(x), TileType)]
            given, into = ([part], into) if is_load(op) else ([self.stored(op, moved), *scale], [part])
        else:
            given = [self.given(x) for x in self.operands(op)]
            given += self.scratch(op) if not self.old or name in table.OLD_SCRATCH else []
        outs = f" outs({into[0][0]} : {into[0][1]})" if into else ""
        if self.old:
            inside, behind = (inside, behind) if "cmpMode" in inside else ("", inside + behind)
            inside = table.old_text(inside)
        self.line(f"{name} ins({self.listed(name, given, before + inside)}){outs}{behind}", core)

    def listed(self, name: str, given: Sequence[tuple[str, str]], attributes: str) -> str:
        """Operands, attributes and types in `ins`."""
        if self.old and name in table.OLD_EACH:
            return ", ".join(f"{x} : {t}" for x, t in given) + attributes
        names, types = zip(*given, strict=True)
        if self.old and [t for t in types[1:3] if t == "index"]:  # a window of a tile
            return f"{names[0]}[{', '.join(names[1:])}] : {types[0]}"
        return f"{', '.join(names)}{attributes} : {', '.join(types)}"

    def stored(self, op: Op, v: Value) -> tuple[str, str]:
        """The buffer of a tile that is stored; one with a smaller valid region if the store moves only that."""
        moved = tuple(sizes(self, op, v))
        whole = self.valid.get(v, NOTHING)
        if self.flat(moved, self.tiles[v], op) == whole:
            return self.buffer(v)
        return self.made(self.tiles[v], self.flat(moved, self.tiles[v], op), self.address(v), identifier(v.name))

    def whole(self, v: Value) -> tuple[str, str]:
        """The buffer of a tile; one that is valid in full if the tile is not."""
        every = of_shape(sides(self.tiles[v]))
        return (
            self.buffer(v) if self.valid.get(v) == every else self.made(self.tiles[v], every, self.address(v), identifier(v.name))
        )

    def operands(self, op: Op) -> list[Operand]:
        """The operands of an op in the assembler's order: without the tile that it is written over, unless it adds to it."""
        at = facts(op).over
        if at is not None and not facts(op).renames:
            over = tiles_of(op)[at]
            if self.buffer(over)[0] != self.buffer(op.result)[0] and self.address(over) != self.address(op.result):
                self.refuse(f"{op.defn.short} is written over %{over.name}, which is at another address", op.loc)
        return own_operands(op)

    def given(self, x: Operand) -> tuple[str, str]:
        """An operand and its type."""
        if isinstance(x, Value) and isinstance(x.type, TileType):
            return self.buffer(x)
        return self.operand(x), self.kind(x)

    def renamed(self, op: Op, v: Value) -> None:
        """The same bytes under another type: another buffer at their address."""
        source = value_of(op.operands[0])
        if self.address(source) != self.address(v):
            self.refuse(f"reshape moves nothing: bind %{source.name} and %{v.name} to the same address", op.loc)
        first, t = self.buffer(source)
        name, other = self.buffer(v, op)
        if self.old and name != first:
            self.line(f"pto.treshape ins({first} : {t}) outs({name} : {other})", self.signals.units[op].core)

    def scratch(self, op: Op) -> list[tuple[str, str]]:
        """The tiles that the library needs for an op, after all others."""
        wanted = spares(op, self.tiles)
        if self.must_wait(op, bool(wanted)) and self.flags:
            self.line("pto.barrier <PIPE_V>", self.signals.units[op].core)
        if not wanted:
            return []
        start = self.end
        if start is None:
            self.refuse("the op needs scratch, and where the tiles of Vec end is not known", op.loc)
        at, found = start or 0, list[tuple[str, str]]()
        for t in wanted:
            found.append(self.made(t, of_shape(sides(t)), number(at), "tmp"))
            at += aligned(tile_bytes(t))
        if at > self.target.capacity["Vec"]:
            self.refuse("there is no room for the scratch of the op in Vec", op.loc)
        return found

    # Control flow: buffers are not carried

    def inner(self, block: Region) -> None:
        """The ops of a nested block, and what it yields."""
        self.depth += 1
        self.block(block)
        self.part()
        kept = [x for x in block.results if is_scalar(x)]
        if kept:
            types = ", ".join(map(self.kind, kept))
            self.line(f"scf.yield {', '.join(map(self.operand, kept))} : {types}")
        self.depth -= 1

    def kept(self, values: Sequence[Value], op: Op) -> list[Value]:
        """The scalars among what an op carries."""
        if any(isinstance(v.type, MemRefType) for v in values):
            self.refuse("memory that a loop or a branch gives has no view", op.loc)
        return [v for v in values if isinstance(v.type, ScalarType)]

    def carry(self, to: Sequence[Value], values: Sequence[Operand], op: Op) -> None:
        """Tiles that are given others: the same buffer, with the same valid region."""
        for v, x in zip(to, values, strict=True):
            if isinstance(v.type, TileType) and isinstance(x, Value):
                given = self.valid.get(x, NOTHING)
                if self.valid.setdefault(v, given) != given or any(n.value is None for n in given):
                    self.refuse(f"%{v.name} is carried, and its valid region is not always the same", op.loc)
                self.seen.setdefault(v, self.buffer(x))
                if self.address(v) != self.address(x):
                    self.refuse(f"%{v.name} and %{x.name} are the same tile at two addresses", op.loc)

    def results(self, op: Op) -> tuple[str, str]:
        """The names that an op with blocks defines, and its types."""
        kept = self.kept(op.results, op)
        names = ", ".join(f"%{self.name(v)}" for v in kept)
        return f"{names} = " if kept else "", ", ".join(scalar_text(v.type) for v in kept)

    def loop(self, op: Op) -> None:
        """`scf.for`."""
        lower, upper, step, *inits = op.operands
        counter, *carried = op.regions[0].params
        head, types = self.results(op)
        pairs = zip(carried, inits, strict=True)
        given = ", ".join(f"%{self.name(v)} = {self.operand(x)}" for v, x in pairs if isinstance(v.type, ScalarType))
        more = f" iter_args({given}) -> ({types})" if given else ""
        bounds = f"{self.operand(lower)} to {self.operand(upper)} step {self.operand(step)}"
        of = "" if scalar_text(counter.type) == "index" else f" : {scalar_text(counter.type)}"
        self.carry(carried, inits, op)
        self.line(f"{head}scf.for %{self.name(counter)} = {bounds}{more}{of} {{")
        self.inner(op.regions[0])
        self.line("}")
        self.carry(carried, op.regions[0].results, op)
        self.carry(op.results, carried, op)

    def branch(self, op: Op) -> None:
        """`scf.if`."""
        head, types = self.results(op)
        self.line(f"{head}scf.if {self.operand(op.operands[0])}{f' -> ({types})' if types else ''} {{")
        self.inner(op.regions[0])
        other = op.regions[1]
        if other.body or other.results or (self.flags and other in self.signals.ends):
            self.line("} else {")
            self.inner(other)
        self.line("}")
        for r in op.regions:
            self.carry(op.results, r.results, op)

    def repeat(self, op: Op) -> None:
        """`scf.while`."""
        before, body = op.regions
        condition, *passed = before.results
        head, types = self.results(op)
        kept = self.kept(before.params, op)
        pairs = zip(before.params, op.operands, strict=True)
        given = ", ".join(f"%{self.name(v)} = {self.operand(x)}" for v, x in pairs if v in kept)
        self.line(f"{head}scf.while ({given}) : ({', '.join(scalar_text(v.type) for v in kept)}) -> ({types}) {{")
        self.depth += 1
        self.carry(before.params, op.operands, op)
        self.block(before)
        self.part()
        scalars = [x for x in passed if is_scalar(x)]
        more = f" {', '.join(map(self.operand, scalars))} : {types}" if scalars else ""
        self.line(f"scf.condition({self.operand(condition)}){more}")
        self.depth -= 1
        self.line("} do {")
        if label := ", ".join(f"%{self.name(v)}: {scalar_text(v.type)}" for v in self.kept(body.params, op)):
            self.line(f"^bb0({label}):")
        self.carry(body.params, passed, op)
        self.inner(body)
        self.line("}")
        self.carry(before.params, body.results, op)
        self.carry(op.results, passed, op)


_FLOW: dict[str, Callable[[Writing, Op], None]] = {
    "scf.for": Writing.loop,
    "scf.if": Writing.branch,
    "scf.while": Writing.repeat,
    "fifo.open": Writing.opened,
    "fifo.free": Writing.freed,
}


def _signal(s: Signal) -> str:
    """A flag or barrier."""
    source, waiting = f"<PIPE_{s.source.pipe}>", f"<PIPE_{s.target.pipe}>"
    if s.kind == BARRIER:
        return f"barrier {source}"
    if s.inter:
        return f"sync.{f'set {source}' if s.kind == SET else f'wait {waiting}'}, {s.eid}"
    return f"{s.kind}[{source}, {waiting}, <EVENT_ID{s.eid}>]"


def _attributes(op: Op) -> tuple[str, str, str]:
    """The attributes of an op: those that follow its operands as one of them, those inside of `ins`, and those behind `outs`."""
    attrs, found = op.defn.named(op.attrs), {"before": list[str](), "inside": list[str](), "behind": list[str]()}
    for key, (place, form) in table.ATTRIBUTES.items():
        if key in attrs and (text := form(attrs[key])):
            found[place].append(text)
    before, inside, behind = (f"{{{', '.join(x)}}}" if x else "" for x in found.values())
    return f", {before}" if before else "", inside and f" {inside}", behind and f" {behind}"


def is_scalar(x: Operand) -> bool:
    """Whether an operand is a number: no tile, event or memory."""
    return isinstance(x, Literal) or isinstance(operand_type(x), ScalarType)
