"""What is known of a function while its C++ is written: names, addresses, valid regions and windows of memory."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.expressions import Quotient
from ptir_tools.core.ir import Function, Literal, Op, Operand, Value
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import cast
from ptir_tools.dialects.pto.affine import Linear, atom, constant, number
from ptir_tools.dialects.pto.carried import carried_addresses
from ptir_tools.dialects.pto.facts import Extents, facts
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.memory.spare import end_of_tiles, spare_bytes
from ptir_tools.dialects.pto.order.signals import Signals, signals_of
from ptir_tools.dialects.pto.structure import is_assign, tiles_of
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.text.assembly import NOT_TRANSLATABLE
from ptir_tools.dialects.pto.text.cpp.spelling import RESERVED, element, identifier, literal, sides, tile_type, unit_dims
from ptir_tools.dialects.pto.types import INDEX_TYPE, TileType, type_text
from ptir_tools.dialects.pto.valid import Extreme, everywhere, of_shape, stated

NOTHING: Extents = (number(0), number(0))  # the region of a tile about which something else was reported


class Window(NamedTuple):
    """A memref in C++: a pointer, and the extents and strides in elements."""

    pointer: str
    extents: Extents
    strides: Extents


class Kernel:
    """The state of one function."""

    def __init__(
        self, function: Function, program: Program, target: Target, cores: tuple[str, ...], diagnostics: Diagnostics
    ) -> None:
        self.function = function
        self.program = program
        self.target = target
        self.diagnostics = diagnostics
        self.signals: Signals = signals_of(function, program, target, cores)
        self.tiles = infer(function, target)
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set(RESERVED)
        self.valid: dict[Value, Extents] = {}  # rows and columns
        self.windows: dict[Value, Window] = {}
        self.addresses = {op.operands[0]: op for op in function.ops() if is_assign(op)}
        self.carried = carried_addresses(function)
        self.masks = {v for op in function.ops() if facts(op).form.packs for v in op.results}
        self.scratched = 0  # ops that used scratch so far
        self.end = end_of_tiles(function, self.tiles)
        self.shared = False  # whether scratch tiles overlap the target's scratch
        if self.end is not None and target.scratch is not None and any(facts(op).scratch for op in function.ops()):
            self.shared = self.end + spare_bytes(function, self.tiles, None) > target.scratch[0]
        self.depth = 1

    def refuse(self, why: str, at: Loc, help: str | None = None) -> None:
        """Report what has no C++."""
        self.diagnostics.error(NOT_TRANSLATABLE, why, at, help=help)

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

    def scalar(self, x: Operand) -> str:
        """A scalar, index or tile where it is used."""
        return self.name(x) if isinstance(x, Value) else literal(cast("Literal", x))

    def number(self, x: Operand) -> Linear:
        """An index as an expression: a constant, or its name."""
        known = constant(x)
        return atom(cast("Value", x)) if known is None else number(known)

    def called(self, text: str) -> Linear:
        """The number that the C++ `text` gives."""
        v = Value(INDEX_TYPE, text)
        self.names[v] = text
        return atom(v)

    def text(self, x: Linear) -> str:
        """An expression in C++."""
        signed = []
        for m, c in x.terms.items():
            factors = map(self._factor, m if isinstance(m, tuple) else (m,))
            signed.append((c, " * ".join([*[str(abs(c))] * (abs(c) != 1), *factors])))
        if x.const or not signed:
            signed.append((x.const, str(abs(x.const))))
        text = "".join((" - " if c < 0 else " + ") + shown for c, shown in signed)
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"

    def _factor(self, v: Value | Quotient[Value]) -> str:
        assert isinstance(v, Value)
        if isinstance(v, Extreme):
            a, b = map(self.text, v.sides)
            return f"({a} {'>' if v.largest else '<'} {b} ? {a} : {b})"
        return self.name(v)

    # Tiles

    def address(self, v: Operand) -> str | None:
        """The address of a tile."""
        if (op := self.addresses.get(v)) is not None:
            return self.text(self.number(op.operands[1]))
        return str(self.carried[v]) if v in self.carried else None

    def tile(self, v: Value, op: Op | None = None) -> str:
        """The type of a tile, which `op` makes."""
        pad = str(op.defn.named(op.attrs).get("pad") or "Null") if op is not None else "Null"
        return tile_type(self.tiles[v], "uint8_t" if v in self.masks else element(self.tiles[v].dtype), pad)

    def declared(self, v: Value, op: Op) -> list[str]:
        """A result of an op: the tile, its valid region and its address."""
        self.valid[v] = valid = self.region(op, v)
        address = self.address(v)
        if address is None:
            self.refuse(f"%{v.name} has no address", op.loc, "bind tiles first: `ptir opt -p pto`")
        return self.placed(self.name(v), self.tile(v, op), self.packed(v) if v in self.masks else valid, str(address))

    def packed(self, v: Value) -> Extents:
        """The bytes of a mask: rows of bits, of all columns."""
        return self.valid[v][0], number(-(-sides(self.tiles[v])[1] // 8))

    def placed(self, name: str, kind: str, valid: Extents, address: str) -> list[str]:
        """A tile object at an address."""
        return [f"{kind} {name}({', '.join(map(self.text, valid))});", f"TASSIGN({name}, {address});"]

    def seen(self, v: Value, valid: Extents) -> tuple[str, list[str]]:
        """A tile with another valid region: its name, and the lines that declare it."""
        if self.valid.get(v) == valid:
            return self.name(v), []
        name, address = self.fresh(f"{self.name(v)}_part"), self.address(v)
        if address is None:
            at = v.op.loc if v.op else Loc(0)
            self.refuse(f"%{v.name} has no known address, so that no other valid region of it can be declared", at)
        return name, self.placed(name, tile_type(self.tiles[v], element(self.tiles[v].dtype)), valid, address or "0")

    def carry(self, v: Value) -> None:
        """A tile that a loop or branch gives has the valid region that its object has."""
        if isinstance(v.type, TileType):
            name = self.name(v)
            self.valid[v] = (self.called(f"{name}.GetValidRow()"), self.called(f"{name}.GetValidCol()"))

    def regions(self, op: Op) -> list[Extents]:
        """The valid regions of the tile operands."""
        return [self.valid.get(x, NOTHING) for x in tiles_of(op)]

    def region(self, op: Op, v: Value) -> Extents:
        """Rows and columns that are valid in a result: those that the op or its type states, else by the rule of the op."""
        t = v.type
        assert isinstance(t, TileType)
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
        if len(outer) > 1 and any(d != number(1) for d in leading[:-1]) and outer[1:] != leading[1:]:
            self.refuse(f"the valid region of {type_text(t)} is not rows and columns", op.loc)
        rows = number(1)
        for n in outer:
            rows = rows * n
        return rows, columns
