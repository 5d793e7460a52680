"""A function while its C++ is written: also its windows of memory, masks and scratch."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.expressions import Quotient
from ptir_tools.core.ir import Function, Literal, Op, Operand, Value
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import cast
from ptir_tools.dialects.pto.affine import Linear, number
from ptir_tools.dialects.pto.facts import Extents, facts
from ptir_tools.dialects.pto.fifos import CUBE
from ptir_tools.dialects.pto.memory.info import sides
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import is_pop
from ptir_tools.dialects.pto.targets import A3, Target
from ptir_tools.dialects.pto.text import kernel
from ptir_tools.dialects.pto.text.cpp.spelling import element, identifier, literal, tile_type
from ptir_tools.dialects.pto.text.fifos import pipes, tells_flags, used
from ptir_tools.dialects.pto.types import TileType
from ptir_tools.dialects.pto.valid import Extreme


class Window(NamedTuple):
    """A memref in C++: a pointer, and the extents and strides in elements."""

    pointer: str
    extents: Extents
    strides: Extents


class Kernel(kernel.Kernel):
    """The state of one function."""

    def __init__(self, function: Function, program: Program, target: Target, diagnostics: Diagnostics) -> None:
        super().__init__(function, program, target, diagnostics)
        self.pipes = pipes(program, target)
        self.fifos = {name: self.fresh(identifier(name)) for name in used(program, function)}  # their names here
        self.slots = {x: self.fresh(f"{name}_slots") for x, name in self.fifos.items()} if target is A3 else {}  # their memory
        self.base = self.fresh("ffts") if tells_flags(program, function, target) else ""  # where the flags between cores are
        self.windows: dict[Value, Window] = {}
        self.masks = {v for op in function.ops() if facts(op).form.packs for v in op.results}
        self.named: dict[Linear, Linear] = {}  # the constants of the open blocks, by what they are

    def begin_part(self, core: str) -> None:
        self.lines.append(f"#if defined({'__DAV_CUBE__' if core == CUBE else '__DAV_VEC__'})\n")

    def end_part(self) -> None:
        self.lines.append("#endif\n")

    def scalar(self, x: Operand) -> str:
        """A scalar, index or tile where it is used."""
        return self.name(x) if isinstance(x, Value) else literal(cast("Literal", x))

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
        return None if (at := self.place(v)) is None else self.text(at)

    def tile(self, v: Value, op: Op | None = None) -> str:
        """The type of a tile, which `op` makes."""
        pad = str(op.defn.named(op.attrs).get("pad") or "Null") if op is not None else "Null"
        return tile_type(self.tiles[v], "uint8_t" if v in self.masks else element(self.tiles[v].dtype), pad)

    def declared(self, v: Value, op: Op) -> list[str]:
        """A result of an op: the tile, its valid region and its address. A tile in a slot of a FIFO has none."""
        lines = list[str]()
        self.valid[v] = valid = tuple([self.constant(n, lines) for n in self.region(op, v)])
        if is_pop(op) and self.target is not A3:
            return self.placed(self.name(v), self.tile(v, op), valid, "")[:1]
        address = self.address(v)
        if address is None:
            self.refuse(f"%{v.name} has no address", op.loc, "bind tiles first: `ptir opt -p pto`")
        lines += self.placed(self.name(v), self.tile(v, op), self.packed(v) if v in self.masks else valid, str(address))
        return lines

    def constant(self, n: Linear, lines: list[str]) -> Linear:
        """An extent. The smaller or larger of two is a constant, so that extents of those have no long texts."""
        if not any(isinstance(x, Extreme) for m in n.terms for x in (m if isinstance(m, tuple) else (m,))):
            return n
        if n not in self.named:
            name = self.fresh("extent")
            lines.append(f"const int64_t {name} = {self.text(n)};")
            self.named[n] = self.called(name)
        return self.named[n]

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
        if address is None or (self.target is not A3 and v.op is not None and is_pop(v.op)):
            at = v.op.loc if v.op else Loc(0)
            self.refuse(f"%{v.name} has no known address, so that no other valid region of it can be declared", at)
        return name, self.placed(name, tile_type(self.tiles[v], element(self.tiles[v].dtype)), valid, address or "0")

    def stored(self, v: Value, op: Op) -> tuple[str, list[str]]:
        """A tile with the valid region that `op`, which has no result, states; else as it is."""
        t, given = v.type, [self.number(n) for n in group(op, "valid")]
        assert isinstance(t, TileType)
        return self.seen(v, self.flat(given, t, op)) if given else (self.name(v), [])

    def carry(self, v: Value) -> None:
        """A tile that a loop or branch gives has the valid region that its object has."""
        if isinstance(v.type, TileType):
            name = self.name(v)
            self.valid[v] = (self.called(f"{name}.GetValidRow()"), self.called(f"{name}.GetValidCol()"))
