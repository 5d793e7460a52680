"""`pto-cpp`: C++ that calls the PTO tile library, in its public spelling. Output only.

    Tile<TileType::Vec, float, 32, 32, BLayout::RowMajor, -1, -1, SLayout::NoneBox, 512, PadValue::Null> t(32, 32);
    TASSIGN(t, 0);
    TLOAD(t, t_gm);
    set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);

Every tile is an object with its address (`pto.tile.assign`) and its valid region; what is carried is copied as an object and
moves nothing. Order is in flags (`pto.order.signals`). A function for both cores has the parts of each between
`#if defined(__DAV_CUBE__)` or `__DAV_VEC__` and `#endif`. An op that needs scratch gets it behind the last tile of Vec. What has
no such form is refused at every op.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.dtypes import F16, F32, I1, UI32
from ptir_tools.core.ir import ELEMENTWISE, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Loc
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.carried import carried
from ptir_tools.dialects.pto.facts import facts, tile_at
from ptir_tools.dialects.pto.memory.info import extents, infer, tile_bytes
from ptir_tools.dialects.pto.memory.spare import PAIR, WORKED_IN, aligned, end_of_tiles, like_first, spare_bytes, spares
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops.irregular import BLOCK
from ptir_tools.dialects.pto.ops.memory import is_load, memory_of, touches_memory
from ptir_tools.dialects.pto.order.signals import BARRIER, CUBE, SET, Signal, Signals, cores_of, signals_of
from ptir_tools.dialects.pto.pipes import is_tile_op, opcodes_of
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import callees, is_assign, is_for
from ptir_tools.dialects.pto.targets import A3, Target, target_of
from ptir_tools.dialects.pto.text.addresses import addresses_first
from ptir_tools.dialects.pto.text.assembly import NOT_TRANSLATABLE, refused
from ptir_tools.dialects.pto.text.writer import grouped
from ptir_tools.dialects.pto.types import EventType, MemRefType, ScalarType, TileType, tile, type_text

STEP = "  "
RANK = 5  # of what the library calls a global tensor

_ELEMENTS = {
    "i1": "bool", "index": "int64_t", "f16": "half", "bf16": "bfloat16_t", "f32": "float", "f8e4m3fn": "float8_e4m3_t",
    "f8e5m2": "float8_e5m2_t",
} | {f"{sign}{n}": f"{'u' * (sign == 'u')}int{n}_t" for sign in "iu" for n in (8, 16, 32, 64)}  # fmt: skip
_LOCATIONS = {"Scale": "Scaling"}
_BOXES = {"ND": "RowMajor NoneBox", "DN": "ColMajor NoneBox", "Nz": "ColMajor RowMajor", "Zn": "RowMajor ColMajor",
          "Zz": "RowMajor RowMajor", "Nn": "ColMajor ColMajor"}  # fmt: skip
_PADS = {"Null": "Null", "Zero": "Zero", "Max": "Max", "Min": "Min"}

# Scalar ops as expressions of {0}, {1}, {2}; {t} is the type of the result, {u} that of operand 0 without a sign.
_SCALARS = {
    "addi": "{0} + {1}", "subi": "{0} - {1}", "muli": "{0} * {1}", "divsi": "{0} / {1}", "remsi": "{0} % {1}",
    "divui": "({t})(({u}){0} / ({u}){1})", "remui": "({t})(({u}){0} % ({u}){1})",
    "floordivsi": "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))",
    "ceildivsi": "{0} / {1} + ({0} % {1} != 0 && ({0} < 0) == ({1} < 0))",
    "minsi": "{0} < {1} ? {0} : {1}", "maxsi": "{0} > {1} ? {0} : {1}",
    "minui": "({u}){0} < ({u}){1} ? {0} : {1}", "maxui": "({u}){0} > ({u}){1} ? {0} : {1}",
    "andi": "{0} & {1}", "ori": "{0} | {1}", "xori": "{0} ^ {1}",
    "shli": "{0} << {1}", "shrsi": "{0} >> {1}", "shrui": "({t})(({u}){0} >> {1})",
    "addf": "{0} + {1}", "subf": "{0} - {1}", "mulf": "{0} * {1}", "divf": "{0} / {1}", "select": "{0} ? {1} : {2}",
    "maximumf": "{0} != {0} || {0} > {1} ? {0} : {1}", "minimumf": "{0} != {0} || {0} < {1} ? {0} : {1}",
} | dict.fromkeys(("index_cast", "extsi", "trunci", "extf", "truncf", "sitofp", "fptosi"), "({t}){0}")  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

_RUN = 32  # elements that are sorted at once


def _ones(t: TileType) -> int:
    """How many last dimensions of one element C++ puts first: without them a tile has rows and columns that may be valid in part.
    One that is a single column keeps them."""
    if t.rank < 3 or sum(d != 1 for d in t.shape) < 2:
        return 0
    return next(k for k, d in enumerate(reversed(t.shape)) if d != 1)


def _sides(t: TileType) -> tuple[int, int]:
    """Rows and columns of a tile in C++."""
    return extents(t.with_shape(t.shape[: t.rank - _ones(t)]))


class _Window(NamedTuple):
    """A memref as C++: where it begins, its extents and strides in elements."""

    pointer: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """A function for each function, a kernel for what nothing calls; nothing when something cannot be said."""
    if refused(program, diagnostics):
        return
    target = target_of(program, options) or A3
    cores = cores_of(program)
    called = {g for f in program.functions for g in callees(f.ops(), program)}
    made = [_Function(f, program, f not in called, target, cores, diagnostics) for f in program.functions]
    texts = [list(f.text()) for f in made]
    if diagnostics.errors:
        return
    yield "#include <pto/pto-inst.hpp>\n\nusing namespace pto;\n"
    for f in made if len(made) > 1 else ():
        yield f"\n{f.heading};\n"
    for text in texts:
        yield "\n"
        yield from text


def _carried_addresses(function: Function, bound: Mapping[Operand, Op]) -> dict[Operand, int]:
    """Where tiles lie that loops and branches give, if all that they are given is bound to one number."""
    same: dict[Value, list[Value]] = {}
    for one in (c for op in function.ops() for c in carried(op)):
        given = [one.given(*source) for source in one.sources]
        if not all(isinstance(x, Value) and isinstance(x.type, TileType) for x in given):
            continue
        members: list[Value] = []
        for x in (*one.homes, *given):
            assert isinstance(x, Value)
            for member in same.get(x, [x]):
                if same.get(member) is not members:
                    members.append(member)
                    same[member] = members
    made: dict[Operand, int] = {}
    homes = {home for op in function.ops() for one in carried(op) for home in one.homes}
    for v, members in same.items():
        ends = {constant(bound[m].operands[1]) if m in bound else None for m in members if m in bound or m not in homes}
        if len(ends) == 1 and (at := next(iter(ends))) is not None:
            made[v] = at
    return made


class _Function:
    """The text of one function."""

    def __init__(
        self,
        function: Function,
        program: Program,
        is_kernel: bool,
        target: Target,
        cores: tuple[str, ...],
        diagnostics: Diagnostics,
    ) -> None:
        self.function = function
        self.is_kernel = is_kernel
        self.program = program
        self.target = target
        self.diagnostics = diagnostics
        self.signals: Signals = signals_of(function, program, target, cores)
        self.tiles = infer(function, target)
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set(_RESERVED)
        self.valid: dict[Value, tuple[str, str]] = {}
        self.windows: dict[Value, _Window] = {}
        self.addresses = {op.operands[0]: op for op in function.ops() if is_assign(op)}
        self.carried = _carried_addresses(function, self.addresses)
        self.counters = {op.regions[0].params[0]: op for op in function.ops() if is_for(op)}
        self.masks = {v for op in function.ops() if op.defn.short in ("tile.cmp", "tile.cmps") for v in op.results}
        self.scratched = 0
        self.end = end_of_tiles(function, self.tiles)
        self.shared = False  # whether what ops take beyond their tiles reaches into the target's scratch
        if self.end is not None and target.scratch is not None and any(facts(op).scratch for op in function.ops()):
            self.shared = self.end + spare_bytes(function, self.tiles, None) > target.scratch[0]
        self.gm = ""  # the global tensor of the load or store at hand
        self.depth = 1
        self.heading = self.head()

    # Lines

    def text(self) -> Iterator[str]:
        """Head, body, end."""
        yield f"{self.heading} {{\n"
        yield from _merged(self.block(self.function))
        yield "}\n"

    def head(self) -> str:
        """The declaration: a pointer for a memref, and its extents that are not known before it runs."""
        parts = []
        for p in self.function.params:
            parts.append(f"{self.kind(p)}{self.name(p)}")
            self.taken_over(p)
            if isinstance(p.type, MemRefType):
                sizes = [str(d) if isinstance(d, int) else self.fresh(f"{self.name(p)}_{k}") for k, d in enumerate(p.type.shape)]
                parts += [f"int64_t {s}" for s in sizes if not s.isdigit()]
                self.windows[p] = _Window(self.name(p), tuple(sizes), self.strides(p.type, sizes, self.function.loc))
        return f"{'__global__ ' if self.is_kernel else ''}AICORE void {_function(self.function)}({', '.join(parts)})"

    def strides(self, t: MemRefType, sizes: Sequence[str], at: Loc) -> tuple[str, ...]:
        """The strides of an argument, in elements."""
        if t.strides is not None:
            if not all(isinstance(s, int) for s in (*t.strides, t.offset or 0)):
                self.refuse("an argument's strides are numbers", at)
            return tuple(map(str, t.strides))
        if t.layout not in (None, "ND", "DN"):
            self.refuse(f"memory of layout {t.layout} has no strides", at)
        made, step = [], "1"
        for size in sizes if t.layout == "DN" else reversed(sizes):
            made.append(step)
            step = (
                size if step == "1" else str(int(step) * int(size)) if step.isdigit() and size.isdigit() else f"{step} * {size}"
            )
        return tuple(made if t.layout == "DN" else reversed(made))

    def line(self, text: str) -> str:
        return f"{STEP * self.depth}{text}\n"

    def block(self, block: Region) -> Iterator[str]:
        """The ops of a block and their flags."""
        for op in addresses_first(block):
            yield from self.flags(self.signals.before.get(op))
            yield from self.op(op)
            yield from self.flags(self.signals.behind.get(op))
        yield from self.flags(self.signals.ends.get(block))

    def flags(self, found: Sequence[Signal] | None) -> Iterator[str]:
        for s in found or ():
            core = s.source.core if s.kind in (SET, BARRIER) else s.target.core
            yield from self.on(core, [self.flag(s)])

    def flag(self, s: Signal) -> str:
        """One flag or barrier; between the cores the two targets have instructions of their own."""
        source, target = f"PIPE_{s.source.pipe}", f"PIPE_{s.target.pipe}"
        if s.kind == BARRIER:
            return f"{s.kind}({source});"
        if not s.inter:
            return f"{s.kind}({source}, {target}, EVENT_ID{s.eid});"
        if self.target is A3:
            message = f"getFFTSMsg(FFTS_MODE_VAL, {s.eid})"
            return f"ffts_cross_core_sync({source}, {message});" if s.kind == SET else f"wait_flag_dev({s.eid});"
        return f"set_intra_block({source}, {s.eid});" if s.kind == SET else f"wait_intra_block({target}, {s.eid});"

    def on(self, core: str, lines: Sequence[str]) -> Iterator[str]:
        """Lines for one core."""
        mixed = len(self.signals.cores) > 1
        if mixed:
            yield f"#if defined({'__DAV_CUBE__' if core == CUBE else '__DAV_VEC__'})\n"
        yield from map(self.line, lines)
        if mixed:
            yield "#endif\n"

    # Ops

    def op(self, op: Op) -> Iterator[str]:
        short = op.defn.short
        if (flow := _FLOW.get(short)) is not None:
            yield from flow(self, op)
        elif short == "memref.subview":
            yield from self.view(op)
        elif is_tile_op(op.defn):
            yield from self.tile_op(op)
        elif op.defn.is_constant:
            t = op.result.type
            yield self.line(f"const {self.type(t)}{self.name(op.result)} = {self.literal(op.attr('value'))};")
        elif short not in ("tile.assign", "sync", "sync.op"):
            yield self.line(f"const {self.type(op.result.type)}{self.name(op.result)} = {self.expression(op)};")

    def expression(self, op: Op) -> str:
        """A scalar op."""
        short, given = op.defn.short, [self.scalar(x) for x in op.operands]
        if short in ("cmpi", "cmpf"):
            predicate = str(op.attr("predicate"))
            unsigned = predicate[0] == "u" and short == "cmpi"
            cast = f"({self.unsigned(op.operands[0])})" if unsigned else ""
            sign = _COMPARISONS[predicate if predicate in _COMPARISONS else predicate[1:]]
            test = f"{cast}{given[0]} {sign} {cast}{given[1]}"
            return f"{test} && {given[0]} == {given[0]} && {given[1]} == {given[1]}" if predicate == "one" else test
        form = _SCALARS.get(short)
        if form is None:
            self.refuse(f"{short} has no form in C++", op.loc)
            return "0"
        return form.format(*given, t=self.type(op.result.type).strip(), u=self.unsigned(op.operands[0]) if "{u}" in form else "")

    def unsigned(self, x: Operand) -> str:
        t = self.type(operand_type(x)).strip()
        return t if t.startswith("u") else f"u{t}"

    def scalar(self, x: Operand) -> str:
        """A scalar or index where it is used."""
        if isinstance(x, Value):
            return self.name(x)
        assert isinstance(x, Literal)
        return self.literal(x)

    def literal(self, x: Literal) -> str:
        """A number in C++."""
        value = arrays.from_literal(x)
        dtype = x.type.dtype
        if not dtype.is_float:
            return str(bool(value)).lower() if dtype is I1 else str(int(value))
        number = float(value)
        text = "NAN" if math.isnan(number) else f"{'-' * (number < 0)}INFINITY" if math.isinf(number) else f"{number!r}f"
        return text if DTYPE_TEXT[dtype] == "f32" else f"({_ELEMENTS[DTYPE_TEXT[dtype]]}){text}"

    def view(self, op: Op) -> Iterator[str]:
        source, offsets, sizes, steps = op.defn.split(op.attrs, op.operands)
        parent = self.window(source, op.loc)
        terms = [f"{self.scalar(o)} * {s}" for o, s in zip(offsets, parent.strides, strict=True) if constant(o) != 0]
        name, t = self.name(op.result), self.type(op.result.type)
        yield self.line(f"{t}{name} = {' + '.join([parent.pointer, *terms])};")
        strides = [s if constant(k) == 1 else f"{s} * {self.scalar(k)}" for s, k in zip(parent.strides, steps, strict=True)]
        self.windows[op.result] = _Window(name, tuple(map(self.scalar, sizes)), tuple(strides))

    def window(self, x: Operand, at: Loc) -> _Window:
        """A memref as it is used."""
        found = self.windows.get(x) if isinstance(x, Value) else None
        if found is None:
            self.refuse("memory that a loop or a branch gives has no strides in C++", at)
        return found or _Window("nullptr", (), ())

    # Tiles

    def tile_op(self, op: Op) -> Iterator[str]:
        short = op.defn.short
        self.check_masks(op)
        lines: list[str] = []
        for v in op.results:
            if isinstance(v.type, TileType):
                lines += self.declared(v, self.region(op, v), op)
        calls = []
        if touches_memory(op):
            lines += self.memory(op)
            calls.append(self.access(op))
        elif short in _OWN_FORMS:
            more, calls = _OWN_FORMS[short](self, op)
            lines += more
        else:
            names, more = self.scratch(op)
            lines += more
            calls.append(self.call(op, names))
        if facts(op).renames and self.address(op.result) != self.address(op.operands[0]):
            self.refuse("reshape moves nothing: bind the result where the operand lies", op.loc)
        if facts(op).renames or facts(op).over is not None:
            self.check_over(op)
        yield from map(self.line, lines)
        yield from self.on(self.signals.units[op].core, calls)

    def check_masks(self, op: Op) -> None:
        """A mask is packed bits on the chip: it goes from a comparison to a selection, and nowhere else."""
        for i, x in enumerate(op.operands):
            wants = op.defn.short == "tile.sel" and i == 0
            if isinstance(x, Value) and isinstance(x.type, TileType) and wants != (x in self.masks):
                what = "the mask of sel is not made by cmp or cmps" if wants else f"%{x.name} is a mask, which sel alone takes"
                self.refuse(f"{what}; on the chip a mask is packed bits", op.loc)

    def check_over(self, op: Op) -> None:
        """What an op writes over lies where its result does."""
        tiles = [x for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
        over = tiles[facts(op).over or 0]
        if self.address(over) != self.address(op.result):
            name = op.defn.short.removeprefix("tile.")
            self.refuse(f"{name} is written over %{over.name}: bind it to the same address", op.loc)

    def declared(self, v: Value, valid: tuple[str, str], op: Op) -> list[str]:
        """A tile and its address."""
        name = self.name(v)
        self.valid[v] = valid
        address = self.address(v)
        if address is None:
            hint = "bind tiles first: `ptir opt -p pto`"
            self.diagnostics.error(NOT_TRANSLATABLE, f"%{v.name} has no address", op.loc, help=hint)
        return [f"{self.tile(v, op)} {name}({valid[0]}, {valid[1]});", f"TASSIGN({name}, {address});"]

    def address(self, v: Operand) -> str | None:
        """The address of a tile as an expression."""
        op = self.addresses.get(v)
        if op is None:
            return str(self.carried[v]) if v in self.carried else None
        at = constant(op.operands[1])
        return self.scalar(op.operands[1]) if at is None else str(at)

    def tile(self, v: Value, op: Op | None = None) -> str:
        """The type of a tile."""
        t = self.tiles[v]
        element = "uint8_t" if v in self.masks else _ELEMENTS[DTYPE_TEXT[t.dtype]]
        pad = _PADS.get(str(op.attr("pad")), "Null") if op is not None and "pad" in op.defn.attr_index else "Null"
        return self.kind_of(t, element, pad)

    def kind_of(self, t: TileType, element: str, pad: str = "Null") -> str:
        """A tile type in C++."""
        rows, columns = _sides(t)
        loc, layout = t.loc or "Vec", "ND" if _ones(t) else t.layout or "ND"
        outer, inner = _BOXES[layout].split()
        fractal = 1024 if loc == "Acc" else 32 if loc in ("ScaleLeft", "ScaleRight") else 512
        parts = [f"TileType::{_LOCATIONS.get(loc, loc)}", element, str(rows), str(columns), f"BLayout::{outer}", "-1", "-1"]
        return f"Tile<{', '.join([*parts, f'SLayout::{inner}', str(fractal), f'PadValue::{pad}'])}>"

    def region(self, op: Op, v: Value) -> tuple[str, str]:
        """Rows and columns that are valid in a result: the op's, its type's, else what the op makes of its operands'."""
        t = v.type
        assert isinstance(t, TileType)
        given = [self.scalar(x) for x in group(op, "valid")]
        if not given and t.valid is not None and all(isinstance(n, int) for n in t.valid):
            given = list(map(str, t.valid))
        if given:
            return self.flat(given, t, op)
        rows, columns = map(str, _sides(t))
        short = op.defn.short.removeprefix("tile.")
        tiles = [self.valid.get(x, ("0", "0")) for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
        if (
            not tiles
            or short in ("load", "reshape")
            or short.startswith("fillpad")
            or short in ("insert", "insert.fp", "scatter")
        ):
            return rows, columns
        first, last = tiles[0], tiles[-1]
        if short.startswith(("matmul", "gemv")):
            at = [self.tiles[x].loc for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
            return tiles[at.index("Left")][0], tiles[at.index("Right")][1]
        if short == "trans":
            return first[1], first[0]
        if short == "extract":
            r, c = (self.scalar(x) for x in group(op, "indices"))
            return _least(rows, _minus(first[0], r)), _least(columns, _minus(first[1], c))
        if short == "concat":
            return _least(first[0], last[0]), _plus(first[1], last[1])
        if short == "sort32":
            return first
        if short == "mrgsort":
            total = "0"
            for _, n in tiles:
                total = _plus(total, n)
            return "1", _least(columns, total)
        if short == "gatherb":
            block = BLOCK // self.tiles[v].dtype.size
            return last[0], _least(columns, _times(last[1], str(block)))
        if short == "gather":
            return (first[0], columns) if len(tiles) == 1 else last
        if re.fullmatch(r"row(expand|\w+)", short):
            if short == "rowexpand":
                return first[0], columns
            return (_least(first[0], last[0]), first[1]) if short.startswith("rowexpand") else (first[0], "1")
        if re.fullmatch(r"col(expand|\w+)", short):
            if short == "colexpand":
                return rows, first[1]
            return (first[0], _least(first[1], last[1])) if short.startswith("colexpand") else ("1", first[1])
        if short.startswith("part"):
            return _most(first[0], last[0]), _most(first[1], last[1])
        if short.startswith("mov.") or op.defn.traits & ELEMENTWISE:
            tiles = tiles[:1] if short == "mov.fp" else tiles
            made = tiles[0]
            for other in tiles[1:]:
                made = _least(made[0], other[0]), _least(made[1], other[1])
            return made
        self.refuse(f"what is valid in the result of {short} is not known here; state `valid`", op.loc)
        return rows, columns

    def flat(self, given: list[str], t: TileType, op: Op) -> tuple[str, str]:
        """A valid region of any rank as rows and columns."""
        *outer, columns = given[: len(given) - _ones(t)]
        leading = [str(d) for d in t.shape[: t.rank - _ones(t) - 1]]
        if len(outer) > 1 and any(d != "1" for d in leading[:-1]) and outer[1:] != leading[1:]:
            self.refuse(f"the valid region of {type_text(t)} is not rows and columns", op.loc)
        rows = "1"
        for n in outer:
            rows = _times(rows, n)
        return rows, columns

    def memory(self, op: Op) -> list[str]:
        """The window that a load, a store or a prefetch touches, as a global tensor."""
        at = memory_of(op) if touches_memory(op) else op.operands[0]
        base = self.window(at, op.loc)
        memref = operand_type(at)
        assert isinstance(memref, MemRefType)
        terms = [f"{self.scalar(o)} * {s}" for o, s in zip(group(op, "indices"), base.strides, strict=False) if constant(o) != 0]
        tiles = [v for v in (*op.results, *op.operands) if isinstance(v, Value) and isinstance(v.type, TileType)]
        sizes = self.sizes(op, tiles[0]) if tiles else [self.scalar(x) for x in group(op, "valid")] or ["1"] * memref.rank
        whole = "1"
        for n, s in zip(base.extents[:1], base.strides[:1], strict=True):
            whole = _times(n, s)
        steps = list(base.strides)
        sizes = [*["1"] * (memref.rank - len(sizes)), *sizes]
        if tiles and (last := _ones(self.tiles[tiles[0]])):
            lead = memref.rank - self.tiles[tiles[0]].rank
            sizes, steps = ([*x[:lead], *x[-last:], *x[lead:-last]] for x in (sizes, steps))
        pairs = [*[("1", whole)] * (RANK - memref.rank), *zip(sizes, steps, strict=True)]
        while len(pairs) > RANK and any(n == "1" for n, _ in pairs):
            del pairs[next(k for k, (n, _) in enumerate(pairs) if n == "1")]
        if len(pairs) > RANK:
            self.refuse(f"a window of {len(pairs)} extents: the library has {RANK}", op.loc)
        shape, strides = (", ".join(values) for values in zip(*pairs, strict=True))
        name, dynamic = self.fresh(f"{self.name(tiles[0]) if tiles else 'prefetch'}_gm"), ", ".join(["-1"] * RANK)
        layout = memref.layout if memref.layout is not None else "ND"
        shapes, apart = f"pto::Shape<{dynamic}>", f"pto::Stride<{dynamic}>"
        kind = f"GlobalTensor<{_ELEMENTS[DTYPE_TEXT[memref.dtype]]}, {shapes}, {apart}, pto::Layout::{layout}>"
        self.gm = name
        return [f"{kind} {name}({' + '.join([base.pointer, *terms])}, {shapes}({shape}), {apart}({strides}));"]

    def sizes(self, op: Op, tile: Value) -> list[str]:
        """The extents of a window: the op's valid region, else what is valid in the tile."""
        if given := group(op, "valid"):
            return [self.scalar(x) for x in given]
        t = tile.type
        assert isinstance(t, TileType)
        if t.valid is not None and all(isinstance(n, int) for n in t.valid):
            return list(map(str, t.valid))
        if is_load(op):
            return list(map(str, t.shape))
        rows, columns = self.valid.get(tile, ("0", "0"))
        if t.rank == 1:
            return [columns]
        shape, last = t.shape[: t.rank - _ones(t)], ["1"] * _ones(t)
        leading = list(shape[:-2])
        if any(d != 1 for d in leading) and (rows, columns) != tuple(map(str, _sides(t))):
            self.refuse(f"what is valid in {type_text(t)} is not a window", op.loc)
        inner = [*map(str, shape[:-1]), columns] if any(d != 1 for d in leading) else [*["1"] * len(leading), rows, columns]
        return [*inner, *last]

    def access(self, op: Op) -> str:
        """TLOAD or TSTORE."""
        if is_load(op):
            return f"TLOAD({self.name(op.results[0])}, {self.gm});"
        tile = op.operands[0]
        assert isinstance(tile, Value)
        if op.defn.short == "tile.store.fp":
            return f"TSTORE_FP({self.gm}, {self.name(tile)}, {self.scalar(op.operands[1])});"
        name, atomic, relu = self.name(tile), op.attr("atomic"), op.attr("relu")
        if atomic == "AtomicNone" and not relu:
            return f"TSTORE({self.gm}, {name});"
        parts = [
            f"decltype({name})",
            f"decltype({self.gm})",
            f"AtomicType::{atomic}",
            *(["ReluPreMode::NormalRelu"] if relu else []),
        ]
        return f"TSTORE<{', '.join(parts)}>({self.gm}, {name});"

    def call(self, op: Op, scratch: Sequence[str]) -> str:
        """Any other instruction: results, then operands in order, then the scratch, then its modes."""
        short = op.defn.short
        name = opcodes_of(op.defn)[0]
        if short.startswith("tile.mov.") and short != "tile.mov.fp":
            name = "TMOV"
        elif ".mx" in short:
            name = f"T{short.split('.')[1].upper()}_MX"
        elif short == "tile.mov.fp":
            name = "TMOV_FP"
        results = [self.name(v) for v in op.results if isinstance(v.type, TileType)]
        operands = [x for part, given in grouped(op).items() if part not in ("valid", "wait") for x in given]
        if (over := facts(op).over) is not None and not short.endswith(".acc"):
            tiles = [x for x in operands if isinstance(operand_type(x), TileType)]
            operands.remove(tiles[over])
        given = [*results, *map(self.scalar, operands), *scratch]
        modes, template = [], ""
        attrs = op.defn.named(op.attrs)
        if "cmpMode" in attrs:
            modes.append(f"CmpMode::{attrs['cmpMode']}")
        if "rmode" in attrs:
            modes.append(f"RoundMode::{attrs['rmode']}")
        if "isBinary" in attrs:
            modes.append(str(bool(attrs["isBinary"])).lower())
        if short == "tile.ci":
            template = f"<decltype({results[0]}), {self.type(operand_type(operands[0])).strip()}, {int(attrs['descending'])}>"
        if short == "tile.tri":
            template = f"<decltype({results[0]}), {int(attrs['upper'])}>"
        if attrs.get("maskPattern"):
            template = f"<decltype({results[0]}), decltype({given[1]}), MaskPattern::{attrs['maskPattern']}>"
        if attrs.get("relu"):
            template = f"<decltype({results[0]}), decltype({given[1]}), ReluPreMode::NormalRelu>"
        return f"{name}{template}({', '.join([*given, *modes])});"

    # Scratch

    def spares(self, op: Op) -> list[tuple[TileType, tuple[str, str]]]:
        """The tiles that the library's form of an op takes beyond those of the op, each with what is valid in it."""
        short = op.defn.short
        if short == "tile.prefetch":
            return [self.fetched(op)]
        made = spares(op, self.tiles)
        if facts(op).spare is like_first:
            return [(t, self.valid.get(op.operands[0], ("0", "0"))) for t in made]  # type: ignore[arg-type]
        return [(t, tuple(map(str, extents(t)))) for t in made]  # type: ignore[misc]

    def scratch(self, op: Op) -> tuple[list[str], list[str]]:
        """The names of an op's tiles of scratch, and the lines that declare them, behind the last tile of Vec."""
        wanted = self.spares(op)
        if not wanted:
            return [], self.fence() if self.shared and (self.scratched or self.depth > 1) and facts(op).scratch else []
        if self.end is None:
            self.refuse("the op needs scratch, and where the tiles of Vec end is not known", op.loc)
        start, room = self.end or 0, self.target.capacity["Vec"]
        if op.defn.short == "tile.prefetch":  # which runs next to the others
            others = [o for o in self.function.ops() if is_tile_op(o.defn) and o.defn.short != "tile.prefetch"]
            start += max((sum(aligned(tile_bytes(t)) for t, _ in self.spares(o)) for o in others), default=0)
            if self.target.scratch is not None and any(facts(o).scratch for o in others):
                room = self.target.scratch[0]
        needs = sum(aligned(tile_bytes(t)) for t, _ in wanted[:-1]) + tile_bytes(wanted[-1][0])
        if start + needs > room:
            self.refuse(f"the op needs {needs} bytes of scratch in Vec, {max(room - start, 0)} are left", op.loc)
        names, lines = [], []
        base = self.name(op.results[0]) if op.results else "prefetch"
        for t, (rows, columns) in wanted:
            names.append(self.fresh(f"{base}_tmp"))
            lines += self.placed(names[-1], t, (rows, columns), str(start))
            start += aligned(tile_bytes(t))
        fenced = any(s.kind == BARRIER for s in self.signals.before.get(op, ()))
        if facts(op).spare in WORKED_IN and (self.scratched or self.depth > 1 or self.shared) and not fenced:
            lines += self.fence()
        self.scratched += 1
        return names, lines

    def placed(self, name: str, t: TileType, valid: tuple[str, str], address: str) -> list[str]:
        """A tile object of this type at an address."""
        kind = self.kind_of(t, _ELEMENTS[DTYPE_TEXT[t.dtype]])
        return [f"{kind} {name}({valid[0]}, {valid[1]});", f"TASSIGN({name}, {address});"]

    def seen(self, v: Operand, valid: tuple[str, str]) -> tuple[str, list[str]]:
        """A tile with another valid region: its name, and the lines that declare it."""
        assert isinstance(v, Value)
        if self.valid.get(v) == valid:
            return self.name(v), []
        name = self.fresh(f"{self.name(v)}_part")
        address = self.address(v)
        if address is None:
            self.refuse(
                f"another valid region of %{v.name} has no form, as its address is not known", v.op.loc if v.op else Loc(0)
            )
        return name, self.placed(name, self.tiles[v], valid, address or "0")

    def fence(self) -> list[str]:
        """Order within the vector pipe, where the target does not keep it by itself."""
        return ["pipe_barrier(PIPE_V);"] if "V" in self.target.barriers else []

    # Ops with forms of their own: the lines before, and the instructions

    def pairs(self, op: Op, sources: Sequence[str], into: Sequence[str], places: str) -> list[str]:
        """Every 32 elements sorted, as pairs of a value and its column."""
        everything = "pipe_barrier(PIPE_ALL);"
        counted = f"TCI<decltype({places}), uint32_t, 0>({places}, 0);"
        sorted_ = [f"TSORT32({b}, {a}, {places});" for a, b in zip(sources, into, strict=True)]
        return [everything, counted, everything, *sorted_, *self.fence()]

    def sort(self, op: Op) -> tuple[list[str], list[str]]:
        """Pairs, sorted and taken apart."""
        values, order = op.results[:2]
        self.runs(self.valid[values][1], op)
        if self.tiles[order].dtype.size != 4:
            self.refuse(f"the order is {type_text(self.tiles[order])}; the library gives numbers of 32 bits", op.loc)
        source, lines = self.seen(op.operands[0], self.valid[values])
        (places, made), more = self.scratch(op)
        t = self.tiles[values]
        rows = self.valid[values][0]
        whole = extents(t)
        numbers, at = self.fresh(f"{made}_u32"), more[-1].removesuffix(");").split(", ")[1]
        lines += [*more, *self.placed(numbers, tile(UI32, (whole[0], 2 * whole[1]), "Vec", "ND"), (rows, str(2 * whole[1])), at)]
        calls = self.pairs(op, [source], [made], places)
        return lines, [*calls, self.picked(values, made, self.in_pairs(t, op)), self.picked(order, numbers, "P1010")]

    def merge(self, op: Op) -> tuple[list[str], list[str]]:
        """Pairs of each list, merged; then their values."""
        values = op.results[0]
        given = [x for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
        for x in given:
            self.runs(self.valid.get(x, ("0", "0"))[1], op)
        (places, *made), lines = self.scratch(op)
        calls = self.pairs(op, list(map(self.name, given)), made[: len(given)], places)
        size = self.tiles[values].dtype.size
        length = int(op.attr("blockLen"))
        whole = self.valid.get(given[0], ("0", "0"))[1]
        if any(self.valid.get(x) != ("1", str(extents(self.tiles[x])[1])) for x in given):
            self.refuse("the library merges lists that are as long as their tiles", op.loc)
        if length:
            if length % _RUN or (whole.isdigit() and int(whole) % (4 * length)):
                self.refuse(f"the library merges groups of 4 blocks of a multiple of {_RUN}, not {whole} in {length}", op.loc)
            merged = made[1]
            calls.append(f"TMRGSORT({merged}, {made[0]}, {length * PAIR // size});")
        else:
            *lists, merged, spare = made
            counts = self.name(op.results[1])
            lines.append(f"MrgSortExecutedNumList {counts};")
            kinds = ", ".join(f"decltype({x})" for x in (merged, spare, *lists))
            exhausted = str(bool(op.attr("exhausted"))).lower()
            calls.append(f"TMRGSORT<{kinds}, {exhausted}>({', '.join([merged, counts, spare, *lists])});")
        return lines, [*calls, *self.fence(), self.picked(values, merged, self.in_pairs(self.tiles[values], op))]

    def runs(self, columns: str, op: Op) -> None:
        """Report what is not sorted in whole runs."""
        if not columns.isdigit() or int(columns) % _RUN:
            what = columns if columns.isdigit() else "an unknown number of"
            self.refuse(f"the library sorts {_RUN} elements at once, here are {what} columns", op.loc)

    def in_pairs(self, t: TileType, op: Op) -> str:
        """The columns of the values in pairs."""
        if t.dtype not in _VALUES:
            self.refuse(f"the library sorts f16 and f32, not {DTYPE_TEXT[t.dtype]}", op.loc)
        return _VALUES.get(t.dtype, "P0101")

    def picked(self, to: Value, source: str, pattern: str) -> str:
        """Every second or fourth column."""
        return f"TGATHER<decltype({self.name(to)}), decltype({source}), MaskPattern::{pattern}>({self.name(to)}, {source});"

    def fetched(self, op: Op) -> tuple[TileType, tuple[str, str]]:
        """The tile that a prefetch fills: no one reads it."""
        memref = operand_type(op.operands[0])
        assert isinstance(memref, MemRefType)
        sizes = [constant(x) for x in group(op, "valid")] or [1] * memref.rank
        if None in sizes:
            self.refuse("the library prefetches into a tile: state its extents as numbers", op.loc)
        *outer, columns = [n or 1 for n in sizes]
        per = max(1, BLOCK // memref.dtype.size)
        rows = math.prod(outer)
        return tile(memref.dtype, (rows, -(-columns // per) * per), "Vec", "ND"), (str(rows), str(columns))

    def fetch(self, op: Op) -> tuple[list[str], list[str]]:
        """Into a tile that no one reads."""
        (name,), lines = self.scratch(op)
        return [*lines, *self.memory(op)], [f"TPREFETCH({name}, {self.gm});"]

    def shown(self, op: Op) -> tuple[list[str], list[str]]:
        """The tile, or as much of it as the op says."""
        x, given = op.operands[0], [self.scalar(n) for n in group(op, "valid")]
        assert isinstance(x, Value) and isinstance(x.type, TileType)
        name, lines = self.seen(x, self.flat(given, x.type, op)) if given else (self.name(x), [])
        return lines, [f"TPRINT({name});"]

    def blocks(self, op: Op) -> tuple[list[str], list[str]]:
        """Blocks by byte offset, as unsigned numbers of 32 bits."""
        offsets = tile_at(op, self.tiles, 1)
        if offsets.dtype.size != 4:
            self.refuse(f"the offsets are {type_text(offsets)}; the library takes numbers of 32 bits", op.loc)
        return [], [self.call(op, [])]

    def extreme(self, op: Op) -> tuple[list[str], list[str]]:
        """The library takes the second of equal ones, so operands are exchanged: values first, then their indices."""
        values, order = op.results[:2]
        a, ai, b, bi = op.operands[:4]
        regions = [self.valid.get(x, ("0", "0")) for x in (a, ai, b, bi) if isinstance(x, Value)]
        if regions[0] != regions[1] or regions[2] != regions[3]:
            self.refuse("the library wants the same valid region in a tile and in its index", op.loc)
        if self.valid[values] not in regions:
            self.refuse("the library wants the valid region of one operand in the result", op.loc)
        names = ", ".join(self.scalar(x) for x in (values, b, a, order, bi, ai))
        return [], [f"{opcodes_of(op.defn)[0]}({names});"]

    # Control flow

    def loop(self, op: Op) -> Iterator[str]:
        """`for`, with what it carries declared before it."""
        lower, upper, step, *inits = op.operands
        body = op.regions[0]
        counter, *carried = body.params
        yield from self.start(carried, inits, op)
        t, i = self.type(counter.type), self.name(counter)
        test = f"{t}{i} = {self.scalar(lower)}; {i} < {self.scalar(upper)}; {i} += {self.scalar(step)}"
        yield self.line(f"for ({test}) {{")
        self.depth += 1
        yield from self.block(body)
        yield from self.assign(carried, body.results)
        self.depth -= 1
        yield self.line("}")
        yield from self.start(op.results, carried, op)

    def branch(self, op: Op) -> Iterator[str]:
        """`if`, with its results declared before it."""
        then, otherwise = op.regions
        yield from self.open(op.results)
        yield self.line(f"if ({self.scalar(op.operands[0])}) {{")
        for k, r in enumerate((then, otherwise)):
            if k and (r.body or r.results or r in self.signals.ends):
                yield self.line("} else {")
            self.depth += 1
            yield from self.block(r)
            yield from self.assign(op.results, r.results)
            self.depth -= 1
        yield self.line("}")

    def repeat(self, op: Op) -> Iterator[str]:
        """`while (true)`, left in the middle."""
        before, body = op.regions
        condition, *given = before.results
        yield from self.start(before.params, op.operands, op)
        yield from self.open(op.results)
        yield self.line("while (true) {")
        self.depth += 1
        yield from self.block(before)
        yield from self.assign(op.results, given)
        yield self.line(f"if (!{self.scalar(condition)}) {{")
        yield self.line(f"{STEP}break;")
        yield self.line("}")
        yield from self.start(body.params, given, op)
        yield from self.block(body)
        yield from self.assign(before.params, body.results)
        self.depth -= 1
        yield self.line("}")

    def invoke(self, op: Op) -> Iterator[str]:
        """A call; memory takes along the extents that are not in its type."""
        callee = self.program.function(op.attr("callee"))
        assert callee is not None
        given = []
        for p, x in zip(callee.params, op.operands, strict=True):
            if isinstance(p.type, MemRefType):
                found, view = self.window(x, op.loc), operand_type(x)
                given += [
                    found.pointer,
                    *(n for n, d in zip(found.extents, p.type.shape, strict=False) if not isinstance(d, int)),
                ]
                if p.type.strides is None and isinstance(view, MemRefType) and view.strides is not None:
                    self.refuse("a view is passed as memory without strides", op.loc)
            else:
                given.append(self.scalar(x))
        yield self.line(f"{_function(callee)}({', '.join(given)});")

    def start(self, to: Sequence[Value], values: Sequence[Operand], op: Op) -> Iterator[str]:
        """Declare names with values."""
        for v, x in zip(to, values, strict=True):
            if isinstance(v.type, EventType):
                continue
            if isinstance(v.type, MemRefType):
                self.refuse("memory that a loop carries has no strides in C++", op.loc)
                continue
            given = self.scalar(x)
            yield self.line(f"{self.kind(v)}{self.name(v)} = {given};")
            self.taken_over(v)

    def open(self, to: Sequence[Value]) -> Iterator[str]:
        """Declare names without values."""
        for v in to:
            if not isinstance(v.type, EventType):
                yield self.line(f"{self.kind(v)}{self.name(v)}{'(1, 1)' if isinstance(v.type, TileType) else ''};")
                self.taken_over(v)

    def taken_over(self, v: Value) -> None:
        if isinstance(v.type, TileType):
            self.valid[v] = (f"{self.name(v)}.GetValidRow()", f"{self.name(v)}.GetValidCol()")

    def assign(self, to: Sequence[Value], values: Sequence[Operand]) -> Iterator[str]:
        """Give names values, all at once."""
        pairs = [(v, x) for v, x in zip(to, values, strict=True) if v is not x and not isinstance(v.type, EventType)]
        names = {self.name(v) for v, _ in pairs}
        crossed = len(pairs) > 1 and any(self.scalar(x) in names for _, x in pairs)
        given = []
        for v, x in pairs:
            if crossed:
                name = self.fresh(f"{self.name(v)}_next")
                yield self.line(f"{self.kind(v)}{name} = {self.scalar(x)};")
                given.append((v, name))
            else:
                given.append((v, self.scalar(x)))
        yield from (self.line(f"{self.name(v)} = {x};") for v, x in given)

    # Names and types

    def kind(self, v: Value) -> str:
        return f"{self.tile(v)} " if isinstance(v.type, TileType) else self.type(v.type)

    def type(self, t: Type) -> str:
        """A scalar's or a pointer's type, ready for a name."""
        if isinstance(t, MemRefType):
            return f"__gm__ {_ELEMENTS[DTYPE_TEXT[t.dtype]]} *"
        if isinstance(t, TensorType):
            return "MrgSortExecutedNumList "  # the counts of a merge
        assert isinstance(t, ScalarType)
        return f"{_ELEMENTS[DTYPE_TEXT[t.dtype]]} "

    def name(self, v: Value) -> str:
        if (found := self.names.get(v)) is None:
            self.names[v] = found = self.fresh(_identifier(v.name))
        return found

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def refuse(self, why: str, at: Loc) -> None:
        self.diagnostics.error(NOT_TRANSLATABLE, why, at)


_FLOW = {"scf.for": _Function.loop, "scf.if": _Function.branch, "scf.while": _Function.repeat, "func.call": _Function.invoke}
_OWN_FORMS = {
    "tile.sort32": _Function.sort, "tile.mrgsort": _Function.merge, "tile.prefetch": _Function.fetch,
    "tile.print": _Function.shown, "tile.gatherb": _Function.blocks, "tile.partargmax": _Function.extreme,
    "tile.partargmin": _Function.extreme,
}  # fmt: skip
_VALUES = {F16: "P0001", F32: "P0101"}  # the columns of the values in pairs
_WORDS = """
alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do double
else enum explicit export extern false float for friend goto half if inline int long mutable namespace new not nullptr operator or
private protected public register return short signed sizeof static struct switch template this throw true try typedef typename
union unsigned using virtual void volatile while xor Tile pto"""
_RESERVED = frozenset(_WORDS.split())


def _merged(lines: Iterator[str]) -> Iterator[str]:
    """Lines, with parts for one core that follow each other as one."""
    core, open_, inside = "", False, False
    for line in lines:
        if line.startswith("#if"):
            if open_ and line != core:
                yield "#endif\n"
            if not open_ or line != core:
                yield line
            core, open_ = line, True
            inside = True
        elif line == "#endif\n":
            inside = False
        else:
            if open_ and not inside:
                yield "#endif\n"
                open_ = False
            yield line
    if open_:
        yield "#endif\n"


def _function(f: Function) -> str:
    """The name of a function; `main` is the host's."""
    name = _identifier(f.name)
    return f"{name}_kernel" if name == "main" or name in _RESERVED else name


def _identifier(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() and not plain.startswith("_") else f"v{plain}"


def _numbers(a: str, b: str) -> bool:
    return a.isdigit() and b.isdigit()


def _least(a: str, b: str) -> str:
    return a if a == b else str(min(int(a), int(b))) if _numbers(a, b) else f"({a} < {b} ? {a} : {b})"


def _most(a: str, b: str) -> str:
    return a if a == b else str(max(int(a), int(b))) if _numbers(a, b) else f"({a} > {b} ? {a} : {b})"


def _plus(a: str, b: str) -> str:
    return str(int(a) + int(b)) if _numbers(a, b) else f"({a} + {b})"


def _minus(a: str, b: str) -> str:
    return a if b == "0" else str(int(a) - int(b)) if _numbers(a, b) else f"({a} - {b})"


def _times(a: str, b: str) -> str:
    return b if a == "1" else a if b == "1" else str(int(a) * int(b)) if _numbers(a, b) else f"{a} * {b}"


FORMAT = Format("pto-cpp", "pto", None, write)
