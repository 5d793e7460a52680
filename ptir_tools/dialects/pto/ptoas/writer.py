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
from ptir_tools.core.dtypes import I1, INDEX, SI64, DType
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.records import NamedTuple
from ptir_tools.dialects.pto import DIALECT_VERSION
from ptir_tools.dialects.pto.affine import Linear, number
from ptir_tools.dialects.pto.facts import Extents, facts
from ptir_tools.dialects.pto.fifos import CUBE
from ptir_tools.dialects.pto.memory.info import sides, tile_bytes, unit_dims
from ptir_tools.dialects.pto.memory.spare import aligned, spares
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops.memory import is_load, memory_of, touches_memory
from ptir_tools.dialects.pto.order.signals import BARRIER, SET, Signal
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.ptoas import passing, table
from ptir_tools.dialects.pto.ptoas.types import LAYOUTS, PADS
from ptir_tools.dialects.pto.rules import group
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
from ptir_tools.dialects.pto.targets import A3, Target, target_of
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.addresses import addresses_first
from ptir_tools.dialects.pto.text.assembly import refused
from ptir_tools.dialects.pto.text.cpp.spelling import function_name, identifier
from ptir_tools.dialects.pto.text.fifos import check as check_pipes
from ptir_tools.dialects.pto.text.fifos import pipes, used
from ptir_tools.dialects.pto.text.kernel import NOTHING, STEP, own_operands, sizes, strides
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, ScalarType, TileType, scalar
from ptir_tools.dialects.pto.valid import Extreme, of_shape

_SPELLED = {layout: pair for pair, layout in LAYOUTS.items()}
_PADS = {pad: code for code, pad in PADS.items()}
_LOCS = {"Scale": "scaling", "ScaleLeft": "scaling", "ScaleRight": "scaling"}
_OLD = "0.1"
_FLAGS = "memref<?xi64>"  # where the flags between cores are


class _View(NamedTuple):
    """A window of memory: the view of a parameter, where the window begins, and the extents and element type of the view."""

    view: str
    starts: Extents
    dtype: DType


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


class Writing(passing.Passing):
    """The text of one function."""

    def __init__(self, function: Function, program: Program, target: Target, diagnostics: Diagnostics, old: bool) -> None:
        super().__init__(function, program, target, diagnostics)
        self.old = old
        self.head: list[str] = []  # constants, views and buffers, before the ops
        self.numbers: dict[tuple[str, DType], str] = {}
        self.buffers: dict[tuple[object, ...], str] = {}
        self.views: dict[Value, _View] = {}
        self.depth = 2

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

    # Numbers

    def constant(self, x: Literal, name: str = "") -> str:
        """A number, which the head defines."""
        dtype, text = x.type.dtype, literals.scalar_text(x)
        if (found := self.numbers.get((text, dtype))) is None:
            usual = f"c{text.replace('-', 'm')}" if not dtype.is_float else "number"
            self.numbers[text, dtype] = found = (
                f"%{self.unused(name or (usual if dtype is INDEX else f'{usual}_{DTYPE_TEXT[dtype]}'))}"
            )
            mantissa, e, power = text.partition("e")
            text = f"{mantissa}.0e{power}" if e and "." not in mantissa and dtype.is_float else text
            self.head.insert(0, f"{found} = arith.constant {text}{'' if dtype is I1 else f' : {scalar_text(scalar(dtype))}'}")
        return found

    def index(self, x: Linear) -> str:
        """The value of an expression, after the ops that compute it."""
        if x.value is not None:
            return self.constant(literals.integer(x.value, INDEX))
        whole = ""
        for m, c in x.terms.items():
            factors = [self.factor(v) for v in (m if isinstance(m, tuple) else (m,)) if isinstance(v, Value)]
            for part in (*factors[1:], *([self.constant(literals.integer(c, INDEX))] if c != 1 else [])):
                factors[0] = self.computed("muli", factors[0], part)
            whole = self.computed("addi", whole, factors[0]) if whole else factors[0]
        return self.computed("addi", whole, self.index(number(x.const))) if x.const else whole

    def factor(self, v: Value) -> str:
        if isinstance(v, Extreme):
            a, b = map(self.index, v.sides)
            return self.computed("maxsi" if v.largest else "minsi", a, b)
        return f"%{self.name(v)}"

    def computed(self, op: str, a: str, b: str, kind: str = "index") -> str:
        name = self.unused("at")
        self.line(f"%{name} = arith.{op} {a}, {b} : {kind}")
        return f"%{name}"

    def operand(self, x: Operand) -> str:
        """A scalar operand."""
        if isinstance(x, Literal):
            return self.constant(x)
        assert isinstance(x, Value)
        if x.op is not None and x.op.defn.is_constant:
            return self.constant(x.op.attr("value"), "" if x.type is INDEX_TYPE else identifier(x.name))
        return f"%{self.name(x)}"

    def kind(self, x: Operand) -> str:
        """The type of a scalar operand."""
        return scalar_text(scalar(x.type.dtype) if isinstance(x, Literal) else operand_type(x))

    # Memory

    def parameter_type(self, p: Value) -> str:
        """The type of a parameter."""
        if isinstance(p.type, MemRefType):
            return f"!pto.ptr<{DTYPE_TEXT[p.type.dtype]}>"
        return scalar_text(p.type) if isinstance(p.type, ScalarType) else "index"

    def view(self, p: Value, t: MemRefType) -> list[str]:
        """The view of a parameter; the parameters that its extents are, where none is."""
        name, more, extents = self.name(p), list[str](), list[Linear]()
        known = {q.name: q for q in self.function.params}
        for k, d in enumerate(t.shape):
            if isinstance(d, int) or (d.name or "") in known:
                extents.append(number(d) if isinstance(d, int) else self.number(known[d.name or ""]))
                continue
            text = self.unused(f"{name}_{k}")
            extents.append(self.called(text))
            more.append(f"%{text}: index")
        self.views[p] = _View(f"%{self.unused(f'{name}_view')}", (number(0),) * t.rank, t.dtype)
        outer, self.lines, self.depth = self.lines, self.head, 0
        shape, steps = (", ".join(map(self.index, x)) for x in (extents, strides(self, t, extents)))
        comma, layout = ("" if self.old else ","), " {layout = #pto.layout<dn>}" if t.layout == "DN" and not self.old else ""
        made = f"pto.make_tensor_view %{name}, shape = [{shape}]{comma} strides = [{steps}]{layout}"
        self.head.append(f"{self.views[p].view} = {made} : {self.view_type(t.rank, t.dtype)}")
        self.lines, self.depth = outer, 2
        return more

    def view_type(self, rank: int, dtype: DType) -> str:
        return f"!pto.tensor_view<{rank if self.old else 'x'.join('?' * rank)}x{DTYPE_TEXT[dtype]}>"

    def subview(self, op: Op) -> None:
        """A window of a window; its elements are side by side."""
        source, offsets, _, steps = op.defn.split(op.attrs, op.operands)
        found = self.window_of(source, op)
        if any(self.number(s) != number(1) for s in steps):
            self.refuse("a view with steps has no form in the assembler's text", op.loc)
        starts = tuple(a + self.number(o) for a, o in zip(found.starts, offsets, strict=False))
        self.views[op.result] = found._replace(starts=starts)

    def window_of(self, x: Operand, op: Op) -> _View:
        found = self.views.get(x) if isinstance(x, Value) else None
        if found is None:
            self.refuse("memory that a loop or a branch gives has no view", op.loc)
        return found or _View("%none", (), INDEX)

    def window(self, op: Op, moved: Value) -> tuple[str, str]:
        """The part of a view that a load or store moves, with its type."""
        if unit_dims(self.tiles[moved]):
            self.refuse("a tile whose last dimension has one element has no window in the assembler's text", op.loc)
        found = self.window_of(memory_of(op), op)
        extents: Sequence[Linear] = sizes(self, op, moved)
        extents = [*[number(1)] * (len(found.starts) - len(extents)), *extents]
        at = zip(found.starts, group(op, "indices"), strict=False)
        starts = ", ".join(self.index(a + self.number(x)) for a, x in at)
        text = "x".join([*("?" if n.value is None else str(n.value) for n in extents), DTYPE_TEXT[found.dtype]])
        kind = f"!pto.{'tile_view' if self.old else 'partition_tensor_view'}<{text}>"
        name = f"%{self.unused('part')}"
        word, listed = "subview" if self.old else "partition_view", ", ".join(map(self.index, extents))
        types = f"{self.view_type(len(found.starts), found.dtype)} -> {kind}"
        self.line(f"{name} = pto.{word} {found.view}, offsets = [{starts}], sizes = [{listed}] : {types}")
        return name, kind

    # Buffers

    def buffer(self, v: Value, op: Op | None = None) -> tuple[str, str]:
        """The buffer of a tile and its type; one that `op` fills is made before it."""
        if (found := self.seen.get(v)) is None:
            t, valid = self.tiles[v], self.valid.get(v, NOTHING)
            self.seen[v] = found = self.made(t, valid, self.address(v), identifier(v.name), self.pad_of(op))
        return found

    def pad_of(self, op: Op | None) -> str | None:
        pad = op.defn.named(op.attrs).get("pad") if op is not None else None
        return None if pad is None else str(pad)

    def address(self, v: Value) -> Linear:
        """Where a tile is."""
        if (at := self.place(v)) is None:
            loc = v.op.loc if v.op is not None else self.function.loc
            self.refuse(f"%{v.name} has no address", loc, "bind tiles first: `ptir opt -p pto`")
        return number(0) if at is None else at

    def made(self, t: TileType, valid: Extents, address: Linear, name: str, pad: str | None = None) -> tuple[str, str]:
        """A buffer: in the head if all about it is a number, else here."""
        static = [n.value for n in valid]
        text = self.tile_text(t, static, pad)
        key = (address.value, text)
        if address.value is not None and None not in static and key in self.buffers:
            return self.buffers[key], text
        name = f"%{self.unused(name)}"
        words, whole = "", address.value is not None and None not in static
        if not self.old:
            words += f" addr = {self.at(address)}"
        for side, n in zip(("valid_row", "valid_col"), valid, strict=True):
            words += f" {side} = {self.index(n)}" if n.value is None else ""
        made = f"{name} = pto.alloc_tile{words} : {text.removeprefix('!pto.tile_buf') if self.old else text}"
        if whole:
            self.buffers[key] = name
            self.head.append(made)
        else:
            self.part()
            self.line(made)
        return name, text

    def at(self, x: Linear) -> str:
        """An address as an i64."""
        if x.value is not None:
            return self.constant(literals.integer(x.value, SI64))
        at, name = self.index(x), f"%{self.unused('address')}"
        self.line(f"{name} = arith.index_cast {at} : index to i64")
        return name

    def tile_text(self, t: TileType, valid: Sequence[int | None], pad: str | None) -> str:
        """`!pto.tile_buf<loc=vec, dtype=f32, …>`."""
        rows, columns = sides(t)
        loc, layout = t.loc or "Vec", "ND" if unit_dims(t) else t.layout or "ND"
        outer, inner = _SPELLED[layout]
        fractal = 1024 if loc == "Acc" else 32 if loc in ("ScaleLeft", "ScaleRight") else 512
        place = "ub" if self.old and loc == "Vec" else _LOCS.get(loc, loc.lower())
        v_row, v_col = ("?" if n is None else str(n) for n in valid)
        parts = f"rows={rows}, cols={columns}, v_row={v_row}, v_col={v_col}, blayout={outer}, slayout={inner}"
        element = DTYPE_TEXT[t.dtype] if not DTYPE_TEXT[t.dtype].startswith("u") else f"ui{DTYPE_TEXT[t.dtype][1:]}"
        return f"!pto.tile_buf<loc={place}, dtype={element}, {parts}, fractal={fractal}, pad={_PADS[pad]}>"

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


def scalar_text(t: object) -> str:
    """The type of a scalar; integers have no sign."""
    assert isinstance(t, ScalarType)
    return DTYPE_TEXT[t.dtype].replace("u", "i") if DTYPE_TEXT[t.dtype].startswith("u") else DTYPE_TEXT[t.dtype]
