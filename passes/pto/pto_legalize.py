"""Ops in forms that the target has.

Three kinds of ops are legal in PTO IR and in no target's library, or not in that of a3 (`legality`):

* An elementwise op on columns (R x 1) is computed on rows (1 x R) of the same bytes; `reshape` moves nothing.
* An op with the scalar first, except a quotient, exchanges its operands, or fills a tile with the scalar.
* A comparison that the target lacks for integers is one of a difference with 0: `a < b` where `max(a, b) - a` is not 0. An
  integer that is not 0 is not 0 in f32 either.

In a function with addresses the rows get those of their columns. There, a tile of a scalar or a difference would need bytes of
its own, so `verify` goes on to report what needs one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import F32, INDEX, SI32
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, create, operand_type
from ptir_tools.core.types import tensor
from ptir_tools.dialects.pto.carried import carried_addresses
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.legality import compares, on_columns, scalar_first
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.structure import has_addresses, is_assign, value_of
from ptir_tools.dialects.pto.targets import Target, target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import TileType, tile
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

_COMMUTING = ("adds", "muls", "maxs", "mins", "ands", "ors", "xors")
_OF_TILES = {"lrelu": "prelu"}  # the op of two tiles, where it is not the name without `s`
_RESULTS = ("to", "order")  # attributes that hold result types
# Of `a cmp b`: what is larger or equal exactly where the comparison is false (or true), and whether it is compared with NE
_DIFFERENCES = {"LT": ("max", 0, True), "GE": ("max", 0, False), "GT": ("max", 1, True), "LE": ("max", 1, False)}


def run(program: Program, context: PassContext) -> None:
    """Rewrite ops that the target does not have in their form: on columns, with the scalar first, comparisons of integers."""
    if (target := target_of(program, Options())) is None:
        return
    bound = {f for f in program.functions if has_addresses(f)}
    for rw in context.rewriters(program):
        for block in list(rw.blocks()):
            for op in list(rw.body(block)):
                if rw.block not in bound or (scalar_first(op) and _short(op) in _COMMUTING):
                    context.count("forms", _with_form(rw, op, target))
    for rw in context.rewriters(program):
        if isinstance(rw.block, Function):
            rows = _Rows(rw, rw.block, infer(rw.block, target))
            context.count("columns", rows.block(rw.block, {}))
            for back in reversed(rows.columns):  # a mask whose bits are packed is no column
                if not any(v.users for v in back.results):
                    rw.erase(back)


# Scalars and comparisons


def _with_form(rw: Rewriter, op: Op, target: Target) -> int:
    """Rewrite an op with the scalar first, or a comparison that the target lacks; the number of such ops."""
    if scalar_first(op):
        _tile_first(rw, op, target)
    elif not compares(op, target):
        _of_difference(rw, op)
    else:
        return 0
    return 1


def _short(op: Op) -> str:
    return op.defn.short.removeprefix("tile.")


def _rebuilt(rw: Rewriter, op: Op, short: str, own: Sequence[Operand], **more: object) -> None:
    """Replace `op` by another op of the same valid region, waits and attributes."""
    groups, attrs = op.defn.split(op.attrs, op.operands), op.defn.named(op.attrs) | more
    defn = OPS[f"pto.tile.{short}"]
    made = create(defn, [*own, *groups[-2:]], {k: v for k, v in attrs.items() if k in defn.attr_index}, loc=op.loc)
    rw.insert_before(op, made)
    _replace(rw, op, made.results)


def _replace(rw: Rewriter, op: Op, results: Sequence[Value]) -> None:
    for v, by in zip(op.results, results, strict=True):
        rw.replace_all_uses(v, by)
    rw.erase(op)


def _tile_first(rw: Rewriter, op: Op, target: Target) -> None:
    """`k + x` as `x + k`; `k - x` as the difference of a tile of `k` and `x`."""
    k, x = op.operands[:2]
    if _short(op) in _COMMUTING:
        _rebuilt(rw, op, _short(op), [x, k])
        return
    t = _plain(operand_type(x))
    if DTYPE_TEXT[t.dtype] in element_types(target)["expands"]:
        full = rw.build(op, "tile.expands", k, [], [], to=t)
    else:
        full = _of_bits(rw, op, t)
    _rebuilt(rw, op, _OF_TILES.get(_short(op), _short(op).removesuffix("s")), [full, x])


def _of_bits(rw: Rewriter, op: Op, t: TileType) -> Value:
    """A tile of the first operand of `op`, in elements that no op fills a tile with: `x & 0 | k`."""
    k, x, *_, waits = op.defn.split(op.attrs, op.operands)
    zero = rw.build(op, "constant", value=Literal(tensor(t.dtype), bytes(t.dtype.size)))
    none = rw.build(op, "tile.ands", x, zero, [], list(waits), to=x.type)
    return rw.build(op, "tile.ors", none, k, [], list(waits), to=x.type)


def _plain(t: object) -> TileType:
    """A tile type, all of which is valid."""
    assert isinstance(t, TileType)
    return tile(t.dtype, t.shape, t.loc, t.layout)


def _of_difference(rw: Rewriter, op: Op) -> None:
    """A comparison of i32 as one of a difference with 0."""
    groups, mode = op.defn.split(op.attrs, op.operands), str(op.attr("cmpMode"))
    a, b, *_ = groups
    waits = list(groups[-1])
    t = a.type

    def made(short: str, *own: Operand, to: TileType = t, **attrs: object) -> Value:
        result = create(OPS[f"pto.tile.{short}"], [*own, [], waits], {"to": to, **attrs}, loc=op.loc)
        return rw.insert_before(op, result)

    wide = tile(F32, t.shape, t.loc, t.layout, t.valid)
    s = "" if isinstance(b.type, TileType) else "s"
    short, which, unequal = _DIFFERENCES.get(mode, ("", 1, mode == "NE"))
    larger = made(f"{short}{s}", a, b) if short else a
    less = made("sub", larger, a) if which == 0 else made(f"sub{s}", larger, b)
    if unequal:
        less = made("cvt", less, to=wide)
    zero = rw.build(op, "constant", value=Literal(tensor(F32 if unequal else SI32), bytes(4)))
    _rebuilt(rw, op, "cmps", [less, zero], cmpMode="NE" if unequal else "EQ")


# Columns


class _Rows:
    """The rows that have the bytes of columns, in one function."""

    def __init__(self, rw: Rewriter, function: Function, tiles: Mapping[Value, TileType]) -> None:
        self.rw = rw
        self.tiles = dict(tiles)
        self.bound = has_addresses(function)
        self.addresses: dict[Operand, Operand] = {v: integer(n, INDEX) for v, n in carried_addresses(function).items()}
        self.columns: list[Op] = []  # the reshapes that see rows as columns again

    def block(self, block: Region, known: dict[Value, Value]) -> int:
        """Rewrite the ops of a block; `known` are the rows of columns that are visible there. The number of rewritten ops."""
        count = 0
        for op in list(self.rw.body(block)):
            count += sum(self.block(r, dict(known)) for r in op.regions)
            if is_assign(op):
                x, address = op.operands
                self.addresses[x] = address
                if (row := known.get(value_of(x))) is not None and row not in self.addresses:
                    self.bind(op, row, x)
            elif on_columns(op, self.tiles) and self.placed(op, known):
                self.on_rows(op, known)
                count += 1
        return count

    def placed(self, op: Op, known: Mapping[Value, Value]) -> bool:
        """Whether the rows of all columns get addresses, if tiles have them."""
        return not self.bound or all(x in known or x in self.addresses for x in op.operands if x in self.tiles)

    def bind(self, at: Op, row: Value, column: Operand) -> None:
        """Give a row the address of its column, before `at`."""
        if (address := self.addresses.get(column)) is not None:
            known = self.rw.build(at, "constant", value=address) if isinstance(address, Literal) else address
            self.rw.build(at, "tile.assign", row, known)
            self.addresses[row] = address

    def on_rows(self, op: Op, known: dict[Value, Value]) -> None:
        """Replace an op on columns by one on rows, whose results are seen as columns again."""
        attrs, groups = op.defn.named(op.attrs), op.defn.split(op.attrs, op.operands)
        waits = list(groups[-1])
        own = [self.row(op, x, waits, known) if isinstance(x, Value) and x in self.tiles else x for x in groups[:-2]]
        valid = [list(groups[-2])[k] for k in (1, 0)] if groups[-2] else []
        attrs |= {name: self.turned(attrs[name]) for name in _RESULTS if name in attrs}
        made = create(op.defn, [*own, valid, waits], attrs, loc=op.loc)
        self.rw.insert_before(op, made)
        event = [v for v, old in zip(made.results, op.results, strict=True) if old not in self.tiles]
        results = []
        for old, new in zip(op.results, made.results, strict=True):
            if old not in self.tiles:
                results.append(new)
                continue
            back = self.rw.build(op, "tile.reshape", new, [], event, to=old.type)
            known[back], self.tiles[back] = new, self.tiles[old]
            assert back.op is not None
            self.columns.append(back.op)
            results.append(back)
        _replace(self.rw, op, results)

    def row(self, op: Op, x: Value, waits: Sequence[Operand], known: dict[Value, Value]) -> Value:
        """The row of a column, before `op`."""
        if (found := known.get(x)) is None:
            known[x] = found = self.rw.build(op, "tile.reshape", x, [], waits, to=self.turned(x.type))
            self.bind(op, found, x)
        return found

    def turned(self, t: object) -> TileType:
        """The type of a row with the bytes of a column."""
        assert isinstance(t, TileType)
        return tile(t.dtype, (1, t.shape[-2]), "Vec", "ND", None if t.valid is None else (1, t.valid[-2]))
