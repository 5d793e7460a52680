"""Ops in forms that the target has.

Five kinds of ops are legal in PTO IR and in no target's library, or not in that of a3 (`legality`):

* An elementwise op on columns (R x 1) is computed on rows (1 x R) of the same bytes; `reshape` moves nothing.
* An op with the scalar first, except a quotient, exchanges its operands, or fills a tile with the scalar.
* A conversion that the target lacks goes through other elements: `i8` through `f16`, `f16` through `f32` to `bf16`. Integers of
  16 and 32 bits without a sign have the bits of those with one. Large integers that become `bf16` through `f32` round twice.
* A comparison that the target lacks for integers is one of a difference with 0: `a < b` where `max(a, b) - a` is not 0. An
  integer that is not 0 is not 0 in f32 either.
* A load of elements that are apart in memory, such as every second column, takes each alone into a row of 32 bytes, whose
  maximum is the element. A store spreads each over such a row, and moves the first of it.

In a function with addresses the rows get those of their columns. There, a tile of a scalar, a difference or rows of single
elements would need bytes of its own, so `verify` goes on to report what needs one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import BF16, F16, F32, FP8_E4M3, FP8_E5M2, INDEX, SI8, SI16, SI32, SI64, UI8, UI16, UI32, DType
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, create, operand_type
from ptir_tools.core.types import tensor
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.carried import carried_addresses
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.legality import compares, converts, moved, on_columns, scalar_first
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.memory.neighbors import distance
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops.memory import LOAD_ROWS, is_load, memory_of, window
from ptir_tools.dialects.pto.structure import has_addresses, is_assign, memref_type, value_of
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target, target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import EventType, TileType, event, tile
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
        if isinstance(rw.block, Function) and rw.block not in bound:
            tiles = infer(rw.block, target)
            for op, t in [(op, t) for op in rw.block.ops() if (t := moved(op, tiles)) is not None and distance(op, t) != 1]:
                context.count("windows", _Apart(rw, op, t).run())
    for rw in context.rewriters(program):
        if isinstance(rw.block, Function):
            rows = _Rows(rw, rw.block, infer(rw.block, target))
            context.count("columns", rows.block(rw.block, {}))
            for back in reversed(rows.columns):  # a mask whose bits are packed is no column
                if not any(v.users for v in back.results):
                    rw.erase(back)


# Scalars and comparisons


def _with_form(rw: Rewriter, op: Op, target: Target) -> int:
    """Rewrite an op with the scalar first, or a comparison or conversion that the target lacks; the number of such ops."""
    if scalar_first(op):
        _tile_first(rw, op, target)
    elif not converts(op, target):
        return _Conversion(rw, op, target).run()
    elif not compares(op, target):
        _of_difference(rw, op)
    else:
        return 0
    return 1


def _short(op: Op) -> str:
    return op.defn.short.removeprefix("tile.")


def _rebuilt(rw: Rewriter, op: Op, short: str, own: Sequence[Operand], **more: object) -> None:
    """Replace `op` by another op of the same valid region, waits and attributes; its event then names no op."""
    groups, attrs = op.defn.split(op.attrs, op.operands), op.defn.named(op.attrs) | more
    defn = OPS[f"pto.tile.{short}"]
    if isinstance(t := attrs["event"], EventType) and defn is not op.defn:
        attrs["event"] = event(None, t.scope, t.eid)
        rw.retype(op.results[-1], attrs["event"])
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


# Conversions

_SIGNED = {UI8: SI8, UI16: SI16, UI32: SI32}


class _Conversion:
    """A conversion through other elements. Floats saturate where they become integers, and narrower integers are low bits."""

    def __init__(self, rw: Rewriter, op: Op, target: Target) -> None:
        self.rw, self.op, self.target = rw, op, target
        x, *_, waits = op.defn.split(op.attrs, op.operands)
        self.source, self.waits = x, list(waits)

    def run(self) -> int:
        """Rewrite the conversion; 0 where there is no way."""
        to, op = self.op.attr("to"), self.op
        if (found := self.through(self.source, to.dtype, str(op.attr("rmode")))) is None:
            return 0
        last = found.op
        assert last is not None
        own = [
            x for group in last.defn.split(last.attrs, last.operands)[:-2] for x in ([group] if isinstance(group, Value) else [])
        ]
        more = {k: v for k, v in last.defn.named(last.attrs).items() if k not in ("to", "event")}
        _rebuilt(self.rw, op, _short(last), own, **more)
        self.rw.erase(last)
        return 1

    def through(self, x: Value, to: DType, rmode: str = "CAST_RINT") -> Value | None:
        """The tile `x` in other elements; None where there is no way."""
        source = _plain(x.type).dtype
        if DTYPE_TEXT[to] in self.target.conversions.get(DTYPE_TEXT[source], "").split():
            return self.made("cvt", x, to=to, rmode=rmode)
        if source.is_integer:
            return self.of_integers(x, source, to)
        if to.is_float or source is not F32:
            return None if F32 in (source, to) else self.then(self.through(x, F32), to, rmode)
        return self.bounded(x, to, rmode)

    def then(self, x: Value | None, to: DType, rmode: str = "CAST_RINT") -> Value | None:
        return None if x is None else self.through(x, to, rmode)

    def of_integers(self, x: Value, source: DType, to: DType) -> Value | None:
        """Integers: the same bits, low bits, or through a wider type."""
        if source.bits == to.bits and to.is_integer:
            return self.made("reshape", x, to=to)
        if source is UI32 and to.bits < 64:
            return self.through(self.made("reshape", x, to=SI32), to) if to.is_integer else self.then(self.halves(x), to)
        if source is UI16:
            low = self.made("reshape", x, to=SI16)
            return self.through(low, to) if to.bits == 8 else self.then(self.positive(low), to)
        if to in (UI16, UI32):
            return self.then(self.through(x, _SIGNED[to]), to)
        if source.bits == 8:
            return self.then(self.made("cvt", x, to=F16), to)
        if to.bits == 8:
            return self.low_bits(x, source, to)
        if source is SI64:
            return self.then(self.made("cvt", x, to=SI32 if to.is_integer else F32), to)
        return self.then(self.made("cvt", x, to=F32), to) if source in (SI16, SI32) and to.bits < 64 else None

    def low_bits(self, x: Value, source: DType, to: DType) -> Value | None:
        """The low byte of integers of at least 16 bits."""
        if (x16 := x if source is SI16 else self.through(x, SI16)) is None:
            return None
        up = self.made("shls", x16, self.number(8, SI16), to=SI16)
        low = self.made("shrs", up, self.number(8, SI16), to=SI16)
        if to is UI8:
            low = self.made("ands", low, self.number(255, SI16), to=SI16)
        return self.then(self.made("cvt", low, to=F16), to)

    def positive(self, x: Value) -> Value | None:
        """i16 as f32, those below 0 as the numbers without a sign that have their bits."""
        if (f := self.through(x, F32)) is None:
            return None
        below = self.made("maxs", self.made("mins", f, self.number(0, F32), to=F32), self.number(-1, F32), to=F32)  # 0 or -1
        return self.made("add", f, self.made("muls", below, self.number(-(2**16), F32), to=F32), to=F32)

    def halves(self, x: Value) -> Value | None:
        """u32 as f32: the sum of its halves."""
        high = self.made("shrs", x, self.number(16, UI32), to=UI32)
        cleared = self.made("reshape", self.made("shls", high, self.number(16, UI32), to=UI32), to=SI32)
        low = self.through(self.made("sub", self.made("reshape", x, to=SI32), cleared, to=SI32), F32)
        top = self.through(self.made("reshape", high, to=SI32), F32)
        if low is None or top is None:
            return None
        return self.made("add", self.made("muls", top, self.number(2**16, F32), to=F32), low, to=F32)

    def bounded(self, x: Value, to: DType, rmode: str) -> Value | None:
        """f32 as integers that the target makes of other integers."""
        if to is UI32:
            inside = self.made("maxs", x, self.number(0, F32), to=F32)
            inside = self.made("mins", inside, self.number(last := 2**32 - 2**8, F32), to=F32)
            bits = self.then(self.through(inside, SI64, rmode), SI32)
            over = self.made("adds", x, self.number(-last, F32), to=F32)  # from 256 on where the result is the largest number
            for short, edge in (("mins", 256), ("maxs", 0)):
                over = self.made(short, over, self.number(edge, F32), to=F32)
            more = self.through(self.made("muls", over, self.number(255 / 256, F32), to=F32), SI32)
            return self.made("reshape", self.made("add", bits, more, to=SI32), to=UI32) if bits and more else None
        if to.bits > 16 or (whole := self.through(x, SI32, rmode)) is None:
            return None
        for short, edge in (("maxs", to.min), ("mins", to.max)):
            whole = self.made(short, whole, self.number(edge, SI32), to=SI32)
        return self.through(whole, to)

    def like(self, to: DType) -> TileType:
        t = _plain(self.source.type)
        return tile(to, t.shape, t.loc, t.layout)

    def number(self, n: float, dtype: DType) -> Value:
        raw = struct.pack("<f", n) if dtype is F32 else (int(n) % 2**dtype.bits).to_bytes(dtype.size, "little")
        return self.rw.build(self.op, "constant", value=Literal(tensor(dtype), raw))

    def made(self, short: str, *own: Operand, to: DType, **attrs: object) -> Value:
        defn = OPS[f"pto.tile.{short}"]
        result = create(defn, [*own, [], self.waits], {"to": self.like(to), **attrs}, loc=self.op.loc)
        return self.rw.insert_before(self.op, result)


# Windows

_ALIKE = {BF16: SI16, UI16: SI16, UI32: SI32, FP8_E4M3: UI8, FP8_E5M2: UI8}  # elements of the same bits that ops take


class _Apart:
    """A load or store of elements that are apart in memory: each is alone in a row of a tile of 32 bytes."""

    def __init__(self, rw: Rewriter, op: Op, t: TileType) -> None:
        self.rw, self.op, self.t = rw, op, t
        *_, valid, waits = op.defn.split(op.attrs, op.operands)
        self.waits = list(waits)
        known = list(valid) or [None if d is None else integer(d, INDEX) for d in window(op)[-t.rank :]]
        more = memref_type(memory_of(op)).rank - t.rank
        self.valid = [x for x in known if x is not None]
        inside, lead = (0, t.shape[:-1]) if t.shape[-1] == 1 else (more, (*[1] * more, *t.shape))
        self.rows = tuple([d for d in lead if isinstance(d, int)])
        self.region = [*[integer(1, INDEX)] * inside, *self.valid, *[integer(1, INDEX)] * (t.shape[-1] != 1)]
        self.first = next((k for k, d in enumerate(lead) if d != 1), 0)  # the dimension of which a part may be valid

    def run(self) -> int:
        """Rewrite the op; 0 where there is no way."""
        t, total = self.t, prod(self.rows)
        whole = len(self.valid) == t.rank and len(self.rows) + 1 == len(self.region)
        if t.loc != "Vec" or t.dtype.bits == 64 or not whole or total > LOAD_ROWS:
            return 0
        rest = self.rows[self.first + 1 :]
        if [constant(x) for x in self.region[self.first + 1 : -1]] != [*rest]:
            return 0
        count = self.region[self.first]
        if (many := prod(rest)) != 1:
            count = self.times(count, many)
        self.flat = [count, integer(1, INDEX)]
        (self.load if is_load(self.op) else self.store)()
        return 1

    def times(self, count: Operand, many: int) -> Operand:
        if (known := constant(count)) is not None:
            return integer(known * many, INDEX)
        return self.rw.build(self.op, "muli", count, self.rw.build(self.op, "constant", value=integer(many, INDEX)))

    def load(self) -> None:
        """Load the rows, and take the maximum of each."""
        op, t, attrs = self.op, self.t, self.op.defn.named(self.op.attrs)
        source, indices, *_ = op.defn.split(op.attrs, op.operands)
        made = create(op.defn, [source, list(indices), self.region, self.waits], {"to": self.apart}, loc=op.loc)
        x = self.rw.insert_before(op, made)
        dtype = _ALIKE.get(t.dtype, t.dtype)
        x = self.seen(x, tile(dtype, (prod(self.rows), self.wide), "Vec"), self.flat)
        if narrow := dtype.bits == 8:
            x = self.rw.build(op, "tile.cvt", x, [], [], to=tile(F16, (prod(self.rows), self.wide), "Vec"))
        x = self.rw.build(op, "tile.rowmax", x, self.flat, [], to=tile(F16 if narrow else dtype, (prod(self.rows), 1), "Vec"))
        if narrow:
            x = self.rw.build(op, "tile.cvt", x, [], [], to=tile(dtype, (prod(self.rows), 1), "Vec"))
        if isinstance(e := attrs["event"], EventType):
            e = event(None, e.scope, e.eid)
            self.rw.retype(op.results[-1], e)
        back = create(OPS["pto.tile.reshape"], [x, self.valid, []], {"to": op.results[0].type, "event": e}, loc=op.loc)
        self.rw.insert_before(op, back)
        _replace(self.rw, op, back.results)

    def store(self) -> None:
        """Spread each element over a row, and store the first of it."""
        op, dtype = self.op, _ALIKE.get(self.t.dtype, self.t.dtype)
        x, memory, indices, *_ = op.defn.split(op.attrs, op.operands)
        x = self.seen(x, tile(dtype, (prod(self.rows), 1), "Vec"), self.flat, self.waits)
        x = self.rw.build(op, "tile.rowexpand", x, self.flat, [], to=tile(dtype, (prod(self.rows), self.wide), "Vec"))
        x = self.seen(x, self.apart, self.region)
        made = create(op.defn, [x, memory, list(indices), self.region, []], op.defn.named(op.attrs), loc=op.loc)
        self.rw.insert_before(op, made)
        _replace(self.rw, op, made.results)

    @property
    def wide(self) -> int:
        """The elements of a row."""
        return ALIGNMENT // self.t.dtype.size

    @property
    def apart(self) -> TileType:
        """The type of the tile that is moved."""
        return tile(self.t.dtype, (*self.rows, self.wide), "Vec")

    def seen(self, x: Value, to: TileType, valid: Sequence[Operand], waits: Sequence[Operand] = ()) -> Value:
        """The bytes of a tile as one of another type."""
        return x if x.type is to else self.rw.build(self.op, "tile.reshape", x, list(valid), list(waits), to=to)


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
