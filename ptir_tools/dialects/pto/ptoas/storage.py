"""What a kernel in the assembler's text works on: numbers, views of memory, and buffers.

Buffers of one type and one constant address are one, made at the head of the function. One whose address or valid region is
computed is made before the op that fills it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import I1, INDEX, SI64, DType
from ptir_tools.core.ir import Function, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.records import NamedTuple
from ptir_tools.dialects.pto.affine import Linear, number
from ptir_tools.dialects.pto.facts import Extents
from ptir_tools.dialects.pto.memory.info import sides, unit_dims
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops.memory import memory_of
from ptir_tools.dialects.pto.ptoas import passing
from ptir_tools.dialects.pto.ptoas.types import LAYOUTS, PADS
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.cpp.spelling import identifier
from ptir_tools.dialects.pto.text.kernel import NOTHING, sizes, strides
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, ScalarType, TileType, scalar
from ptir_tools.dialects.pto.valid import Extreme

_SPELLED = {layout: pair for pair, layout in LAYOUTS.items()}
_PADS = {pad: code for code, pad in PADS.items()}
_LOCS = {"Scale": "scaling", "ScaleLeft": "scaling", "ScaleRight": "scaling"}


class _View(NamedTuple):
    """A window of memory: the view of a parameter, where the window begins, and the extents and element type of the view."""

    view: str
    starts: Extents
    dtype: DType


class Storage(passing.Passing):
    """The numbers, views and buffers of one function."""

    def __init__(self, function: Function, program: Program, target: Target, diagnostics: Diagnostics, old: bool) -> None:
        super().__init__(function, program, target, diagnostics)
        self.old = old
        self.head: list[str] = []  # constants, views and buffers, before the ops
        self.numbers: dict[tuple[str, DType], str] = {}
        self.buffers: dict[tuple[object, ...], str] = {}
        self.views: dict[Value, _View] = {}
        self.depth = 2

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


def scalar_text(t: object) -> str:
    """The type of a scalar; integers have no sign."""
    assert isinstance(t, ScalarType)
    return DTYPE_TEXT[t.dtype].replace("u", "i") if DTYPE_TEXT[t.dtype].startswith("u") else DTYPE_TEXT[t.dtype]
