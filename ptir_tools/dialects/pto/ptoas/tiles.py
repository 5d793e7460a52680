"""Buffers, and the ops that write tiles into them."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Argument, Operand, Value, operand_type
from ptir_tools.core.violations import OP_NAME, Violation, require
from ptir_tools.dialects.pto.memory.info import tile_bytes
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.ptoas import table
from ptir_tools.dialects.pto.ptoas.flow import defined, groups, op_name, values
from ptir_tools.dialects.pto.ptoas.reader import Buffer, Reader, entries
from ptir_tools.dialects.pto.ptoas.types import BufferType
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.types import TileType, tile
from ptir_tools.grammars.parser import Node, Token

# Attributes that say how the chip does an op, not what it computes here.
_WITHOUT_MEANING = ("sat_mode", "operandSegmentSizes", "accToVecMode", "layout")


def alloc(r: Reader, node: Node) -> None:
    """A new buffer. Raises Violation."""
    listed = node.part("signature")
    t = r.type(listed.parts("types")[-1].token()) if listed else None
    if not isinstance(t, BufferType):
        raise Violation("TypeMismatch", f"`{op_name(node)}` makes a tile buffer", at=OP_NAME)
    keyed = {str(k.token("WORD")): k.tokens()[-1] for k in node.parts("keyed")}
    address = keyed.get("addr")
    valid = extents(r, t, keyed.get("valid_row"), keyed.get("valid_col"))
    name = defined(node)[0]
    storage = r.fixed.get(r.flow.first(name))
    if storage is None:
        storage = r.storage(name[1:], t.tile, None if address is None else r.named(r.index(address)))
        storage.own = True
    r.bind(name, Buffer(t, storage, valid, r.region))


def extents(r: Reader, t: BufferType, *given: Token | None) -> tuple[Operand, ...]:
    """The valid extents of a buffer where one is given as a value; nothing where the type says all. Raises Violation."""
    if all(g is None for g in given):
        return ()
    known = zip(given, t.valid, t.tile.shape, strict=True)
    return tuple(r.index(g) if g is not None else literals.integer(int(d if v is None else v), INDEX) for g, v, d in known)  # type: ignore[arg-type]


def set_valid(r: Reader, node: Node) -> None:
    """Change the valid extents of a buffer. Raises Violation."""
    name, *given = values(node)
    buffer = r.buffer(name)
    if buffer.storage.held is None:
        buffer.valid = extents(r, buffer.type, *given)
        return
    require(r.region is buffer.region, "UnknownOp", "a valid region that changes within a block cannot be read", at=OP_NAME)
    buffer.valid = extents(r, buffer.type, *given)


def renamed(r: Reader, node: Node) -> None:
    """`pto.tassign`, `pto.treshape`, `pto.bind_tile`: the bytes of a buffer with another type or address. Raises Violation."""
    source, *more = values(node)
    old = r.buffer(source)
    t = r.type(node.parts("signature")[0].parts("types")[-1].token())
    if not isinstance(t, BufferType):
        raise Violation("TypeMismatch", f"`{op_name(node)}` makes a tile buffer", at=OP_NAME)
    name = defined(node)[0]
    sizes = tile_bytes(old.type.tile), tile_bytes(t.tile)
    require(sizes[0] == sizes[1], "ShapeMismatch", f"`{source}` has {sizes[0]} bytes, `{name}` {sizes[1]}", at=str(source))
    if op_name(node) != "pto.tassign":
        r.bind(name, Buffer(t, old.storage, old.valid))
        return
    message = f"`{source}` has no address: where `pto.tassign` is used, every buffer has one"
    require(old.storage.address is not None, "TypeMismatch", message, at=str(source))
    r.bind(name, Buffer(t, r.storage(name[1:], t.tile, r.named(r.index(more[0]))), old.valid))


def tile_op(r: Reader, node: Node, name: str, target: str) -> None:
    """An op on tiles: its operands without scratch memory, and the buffer that it writes. Raises Violation."""
    given = [t for g in groups(node, "ins") for t in values(g)]
    into = [r.buffer(t) for g in groups(node, "outs") for t in values(g)]
    attrs = attributes(r, node, target)
    d = OPS[target]
    operands: list[Argument] = [*map(r.read, given[: table.operand_count(d)])]
    if not into:
        r.emit(target, [*operands, (), ()], attrs, "")
        return
    require(len(into) == 1, "UnknownOp", f"`{name}` with {len(into)} results cannot be read", at=OP_NAME)
    if target == "pto.tile.axpy":
        operands = [r.held(into[0]), *operands[:2]]
    if target == "pto.tile.extract" and is_vec(operands[0]):
        target = "pto.tile.extract.vec"
    indexed = [g.name for g in d.groups if g.name == "indices"]
    if indexed and target != "pto.tile.gather":
        windowed(r, node, target, given, into[0], attrs)
        return
    if target == "pto.tile.gather":
        operands = [operands[0], r.read(given[1]) if len(given) > 1 else ()]
    count = table.operand_count(d)
    own = [g for g in d.groups if g.name not in ("valid", "wait")]
    fits = len(operands) == (len(own) if target == "pto.tile.gather" else count)
    require(fits, "TypeMismatch", f"`{name}` takes {count} operands, got {len(operands)}", at=OP_NAME)
    write(r, into[0], target, operands, attrs)


def is_vec(x: Argument) -> bool:
    """Whether an operand is a tile in Vec."""
    return isinstance(x, Value) and isinstance(x.type, TileType) and x.type.loc == "Vec"


def windowed(r: Reader, node: Node, target: str, given: list[Token], into: Buffer, attrs: dict[str, object]) -> None:
    """`textract`, `tinsert`: a window that begins at a row and a column. Raises Violation."""
    *tiles, row, column = given
    at = [r.index(row), r.index(column)]
    parts = [r.read(t) for t in tiles]
    if target == "pto.tile.insert.fp":
        write(r, into, target, [parts[0], parts[1], r.held(into), at], attrs)
    elif target == "pto.tile.insert":
        write(r, into, target, [parts[0], at, r.held(into)], attrs)
    else:
        write(r, into, target, [parts[0], at], attrs)


def write(r: Reader, buffer: Buffer, target: str, operands: Sequence[Argument], attrs: dict[str, object]) -> None:
    """An op whose result a buffer then holds. Raises Violation."""
    made = r.emit(target, [*operands, buffer.valid, ()], {**attrs, "to": buffer.type.tile}, buffer.storage.name)
    r.put(buffer.storage, made.results[0])


def attributes(r: Reader, node: Node, target: str) -> dict[str, object]:
    """The attributes of an op, in PTO IR's words. Raises Violation."""
    found: dict[str, object] = {}
    known = OPS[target].attr_index
    every = [*entries(node), *(e for g in node.parts("group") for e in entries(g))]
    for e in every:
        key = literals.unquoted(e.token())
        text = literals.attribute(e) or ""
        word = inner(text).rpartition(" ")[2].strip("<>")
        if key == "rmode":
            found["rmode"] = f"CAST_{word}"
        elif key == "maskPattern":
            found["maskPattern"] = word
        elif key == "cmpMode":
            found["cmpMode"] = word.upper()
        elif key == "upperOrLower":
            found["upper"] = word.partition(":")[0].strip() == "1"
        elif key == "reluPreMode":
            found["relu"] = word == "normal_relu"
        elif key in known:
            found[key] = word
        elif key not in _WITHOUT_MEANING:
            raise Violation("UnknownAttribute", f"`{key}` of `{op_name(node)}` has no meaning in PTO IR", at=key)
    return found


def move(r: Reader, node: Node) -> None:
    """A move, by the locations of its tiles. Raises Violation."""
    given = [t for g in groups(node, "ins") for t in values(g)] or values(node)[:1]
    into = [r.buffer(t) for g in groups(node, "outs") for t in values(g)] or [r.buffer(values(node)[1])]
    source = r.read(given[0])
    from_, to = (t.loc if isinstance(t, TileType) else None for t in (source.type, into[0].type.tile))
    kind = table.MOVES.get((from_, to))
    if kind is None:
        raise Violation("InvalidLocation", f"there is no move from {from_} to {to}", at=OP_NAME)
    scaled = len(given) > 1 and isinstance(operand_type(r.read(given[1])), TileType)
    require(len(given) == 1 or scaled, "UnknownOp", "a move with a scalar scale cannot be read", at=OP_NAME)
    target = "pto.tile.mov.fp" if scaled else f"pto.tile.{kind}"
    write(r, into[0], target, [source, *([r.read(given[1])] if scaled else [])], attributes(r, node, target))


def choose(r: Reader, node: Node) -> None:
    """`tsels`: elements of a tile where a mask is set, else a scalar. Raises Violation."""
    given = [t for g in groups(node, "ins") for t in values(g)]
    require(len(given) == 4, "TypeMismatch", f"`pto.tsels` takes 4 operands, got {len(given)}", at=OP_NAME)
    into = r.buffer(values(groups(node, "outs")[0])[0])
    mask, source, number = r.read(given[0]), r.read(given[1]), r.scalar(given[3])
    filled = r.emit("pto.tile.expands", [number, (), ()], {"to": into.type.tile}, into.storage.name).results[0]
    write(r, into, "pto.tile.sel", [mask, source, filled], {})


def pack(r: Reader, node: Node) -> None:
    """`tpack`: the low bits of integers, as a conversion has them. Raises Violation."""
    source = r.read(values(groups(node, "ins")[0])[0])
    into = r.buffer(values(groups(node, "outs")[0])[0])
    whole = all(isinstance(t, TileType) and t.dtype.is_integer for t in (source.type, into.type.tile))
    require(whole, "TypeMismatch", "`pto.tpack` of floats cannot be read", at=OP_NAME)
    write(r, into, "pto.tile.cvt", [source], {})


def dequantize(r: Reader, node: Node) -> None:
    """`tdequant`: integers minus the offset of their row, times its scale: the first columns of tiles. Raises Violation."""
    source, *given = (r.read(t) for t in values(groups(node, "ins")[0]))
    into = r.buffer(values(groups(node, "outs")[0])[0])
    require(len(given) == 2, "TypeMismatch", f"`pto.tdequant` takes 3 operands, got {1 + len(given)}", at=OP_NAME)
    to, zero, name = into.type.tile, literals.integer(0, INDEX), into.storage.name
    column = tile(to.dtype, (to.shape[0], 1), "Vec", "DN")
    scale, offset = (r.emit("pto.tile.extract.vec", [x, [zero, zero], (), ()], {"to": column}, x.name).results[0] for x in given)
    floats = r.emit("pto.tile.cvt", [source, into.valid, ()], {"to": to}, name).results[0]
    moved = r.emit("pto.tile.rowexpandsub", [floats, offset, into.valid, ()], {"to": to}, name).results[0]
    write(r, into, "pto.tile.rowexpandmul", [moved, scale], {})


def pad(r: Reader, node: Node) -> None:
    """`tfillpad` and its forms: the fill is that of the result's type. Raises Violation."""
    name = op_name(node)
    source = r.read(values(groups(node, "ins")[0])[0])
    into = r.buffer(values(groups(node, "outs")[0])[0])
    d = table.tile_op(name)
    assert d is not None
    write(r, into, d.name, [source], {"pad": into.type.pad or "Zero"})
