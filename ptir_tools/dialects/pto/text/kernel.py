"""What is known of a function while its instructions are written, and its lines: for C++ and for the assembler's text."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op, Operand, Value, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import cast
from ptir_tools.dialects.pto.affine import Linear, atom, constant, number
from ptir_tools.dialects.pto.carried import carried_addresses
from ptir_tools.dialects.pto.facts import Extents, facts
from ptir_tools.dialects.pto.memory.info import infer, sides, unit_dims
from ptir_tools.dialects.pto.memory.spare import WORKED_IN, end_of_tiles, spare_bytes
from ptir_tools.dialects.pto.ops.memory import is_load
from ptir_tools.dialects.pto.order.signals import BARRIER, Signals, cores_of, signals_of
from ptir_tools.dialects.pto.structure import is_assign, tile_type, tiles_of
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.text.assembly import NOT_TRANSLATABLE
from ptir_tools.dialects.pto.text.cpp.spelling import RESERVED, identifier
from ptir_tools.dialects.pto.text.writer import grouped
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType, type_text
from ptir_tools.dialects.pto.valid import everywhere, of_shape, stated

NOTHING: Extents = (number(0), number(0))  # the region of a tile about which something else was reported
STEP = "  "


class Kernel:
    """The state of one function. In a program for both cores, the lines of each core are in parts of their own."""

    def __init__(self, function: Function, program: Program, target: Target, diagnostics: Diagnostics) -> None:
        self.function = function
        self.program = program
        self.target = target
        self.diagnostics = diagnostics
        self.signals: Signals = signals_of(function, program, target, cores_of(program, function))
        self.tiles = infer(function, target)
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set(RESERVED)
        self.valid: dict[Value, Extents] = {}  # rows and columns
        self.addresses = {op.operands[0]: op for op in function.ops() if is_assign(op)}
        self.carried = carried_addresses(function)
        self.end = end_of_tiles(function, self.tiles)
        self.scratched = 0  # ops that used scratch so far
        self.shared = False  # whether scratch tiles overlap the target's scratch
        if self.end is not None and target.scratch is not None and any(facts(op).scratch for op in function.ops()):
            self.shared = self.end + spare_bytes(function, self.tiles, None) > target.scratch[0]
        self.lines: list[str] = []
        self.depth = 1
        self.core = ""  # of the part that is open

    def refuse(self, why: str, at: Loc, help: str | None = None) -> None:
        """Report what has no form."""
        self.diagnostics.error(NOT_TRANSLATABLE, why, at, help=help)

    # Lines

    def line(self, text: str, core: str = "") -> None:
        """One more line, in the part of a core if the program is for both."""
        self.part(core if len(self.signals.cores) > 1 else "")
        self.lines.append(f"{STEP * self.depth}{text}\n")

    def part(self, core: str = "") -> None:
        """End the part of a core and begin that of another; without one, lines are in none."""
        if core != self.core:
            if self.core:
                self.end_part()
            self.core = core
            if core:
                self.begin_part(core)

    def begin_part(self, core: str) -> None:
        """Begin the part of a core."""
        raise NotImplementedError

    def end_part(self) -> None:
        """End the part of a core."""
        raise NotImplementedError

    def must_wait(self, op: Op, scratch: bool) -> bool:
        """Whether the op waits for others of its pipe that may have used the same scratch, its own or that of the target."""
        if "V" not in self.target.barriers:
            return False
        again = bool(self.scratched) or op not in self.function.body
        self.scratched += scratch
        if not scratch:
            return self.shared and again and facts(op).scratch
        fenced = any(s.kind == BARRIER for s in self.signals.before.get(op, ()))
        return facts(op).spare in WORKED_IN and (again or self.shared) and not fenced

    # Names and numbers

    def name(self, v: Value) -> str:
        """The name of a value."""
        if (found := self.names.get(v)) is None:
            self.names[v] = found = self.fresh(identifier(v.name))
        return found

    def fresh(self, name: str) -> str:
        """A name that nothing else has."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def number(self, x: Operand) -> Linear:
        """An index as an expression: a constant, or its name."""
        known = constant(x)
        return atom(cast("Value", x)) if known is None else number(known)

    def called(self, text: str) -> Linear:
        """The number that `text` gives."""
        v = Value(INDEX_TYPE, text)
        self.names[v] = text
        return atom(v)

    def place(self, v: Operand) -> Linear | None:
        """The address of a tile; None where it has none."""
        if (op := self.addresses.get(v)) is not None:
            return self.number(op.operands[1])
        return number(self.carried[v]) if v in self.carried else None

    def regions(self, op: Op) -> list[Extents]:
        """The valid regions of the tile operands."""
        return [self.valid.get(x, NOTHING) for x in tiles_of(op)]

    def region(self, op: Op, v: Value) -> Extents:
        """Rows and columns that are valid in a result: those that the op or its type states, else by the rule of the op."""
        t = tile_type(v)
        if (given := stated(op, t, self.number)) is not None:
            return self.flat(given, t, op)
        whole = of_shape(sides(t))
        made = (facts(op).valid or everywhere)(op, self.regions(op), whole, self.number)
        if any(isinstance(a, Value) and not a.name for e in made for a in e.terms):
            self.refuse(f"the valid region of %{v.name} is not known: state `valid`", op.loc)
            return whole
        return made

    def flat(self, given: Sequence[Linear], t: TileType, op: Op) -> Extents:
        """A valid region of any rank as rows and columns."""
        *outer, columns = given[: len(given) - unit_dims(t)]
        leading = [number(d) if isinstance(d, int) else None for d in t.shape[: t.rank - unit_dims(t) - 1]]
        first = next((k for k, d in enumerate(leading) if d != number(1)), 0) + 1
        if outer[first:] != leading[first:]:
            self.refuse(f"the valid region of {type_text(t)} is not rows and columns", op.loc)
        rows = number(1)
        for n in outer:
            rows = rows * n
        return rows, columns


def strides(kernel: Kernel, t: MemRefType, extents: list[Linear]) -> Extents:
    """The strides of an argument."""
    at = kernel.function.loc
    if t.strides is not None:
        if not all(isinstance(s, int) for s in (*t.strides, t.offset or 0)):
            kernel.refuse("an argument's strides are numbers", at)
        return of_shape(t.strides)
    if t.layout not in (None, "ND", "DN"):
        kernel.refuse(f"memory of layout {t.layout} has no strides", at)
    made, step = list[Linear](), number(1)
    for size in extents if t.layout == "DN" else reversed(extents):
        made.append(step)
        step = step * size
    return tuple(made if t.layout == "DN" else reversed(made))


def sizes(kernel: Kernel, op: Op, tile: Value) -> list[Linear]:
    """The extents of a window: the valid region that the op or the type states, else that of the tile."""
    t = tile_type(tile)
    if (given := stated(op, t, kernel.number)) is not None:
        return list(given)
    if is_load(op):
        return list(of_shape(t.shape))
    rows, columns = kernel.valid.get(tile, NOTHING)
    if t.rank == 1:
        return [columns]
    shape, last = t.shape[: t.rank - unit_dims(t)], [number(1)] * unit_dims(t)
    leading = shape[:-2]
    if all(d == 1 for d in leading):
        return [*[number(1)] * len(leading), rows, columns, *last]
    if (rows, columns) != of_shape(sides(t)):
        kernel.refuse(f"what is valid in {type_text(t)} is not a window", op.loc)
    return [*of_shape(shape[:-1]), columns, *last]


def own_operands(op: Op) -> list[Operand]:
    """The operands of an op as an instruction has them: without the tile that it is written over, unless it adds to it."""
    own, found = facts(op), [x for part, given in grouped(op).items() if part not in ("valid", "wait") for x in given]
    if own.over is not None and not own.form.accumulates:
        found.remove([x for x in found if isinstance(operand_type(x), TileType)][own.over])
    return found
