"""Pipes between cores: they are FIFOs of PTO IR, named after the buffer that one function reserves and its peer imports.

The names of ops say the direction (`tpush_to_aiv`), or the pipe and the location of the tile do (`tpush`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.limits import integer as read_integer
from ptir_tools.core.types import UNKNOWN
from ptir_tools.core.violations import OP_NAME, Violation, require
from ptir_tools.dialects.pto.ptoas.flow import defined, op_name, values
from ptir_tools.dialects.pto.ptoas.reader import Buffer, Pipe, Reader, Reserved, entries
from ptir_tools.dialects.pto.ptoas.tiles import extents
from ptir_tools.dialects.pto.ptoas.types import BufferType
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.types import MemRefType, TileType, memref
from ptir_tools.grammars.parser import Node

_DIRECTIONS = {1: ("c2v",), 2: ("v2c",), 3: ("c2v", "v2c")}  # by `dir_mask`
_SLOTS = {1: 8, 2: 8, 3: 4}  # of each direction, by `dir_mask`, where `slot_num` does not say it
_SPLITS = {"0": "none", "1": "rows", "2": "columns"}
_BUFFERS = {"c2v": "c2v_consumer_buf", "v2c": "v2c_consumer_buf"}


def attributes(node: Node) -> dict[str, str]:
    """The attributes of an op, without quotes."""
    return {literals.unquoted(e.token()): literals.unquoted(literals.attribute(e) or "true") for e in entries(node)}


def reserve(r: Reader, node: Node) -> None:
    """`pto.reserve_buffer`, `pto.import_reserved_buffer`: the bytes of a FIFO, by name."""
    given, name = attributes(node), defined(node)[0]
    require("name" in given, "ParseError", f"`{op_name(node)}` needs a name", at=OP_NAME)
    peer = given.get("peer_func", "").removeprefix("@")
    if op_name(node) == "pto.reserve_buffer":
        right = (given.get("auto", "true") == "true") != ("base" in given)
        require(right, "TypeMismatch", "a buffer has either `auto = true` or a `base`", at=OP_NAME)
    base = read_integer(given["base"], 0) if "base" in given else None
    made = Reserved(given["name"], r.made.name, peer, node.loc, base)
    r.shared.append(made)
    r.bind(name, made)


def initialize(r: Reader, node: Node) -> None:
    """`pto.aic_initialize_pipe` and the like: the FIFOs of a function. Raises Violation."""
    given, name = attributes(node), op_name(node)
    mask, size = (read_integer(given.get(key, "0"), 0) for key in ("dir_mask", "slot_size"))
    require(mask in _DIRECTIONS, "TypeMismatch", f"dir_mask is {mask}, must be 1, 2 or 3", at="dir_mask")
    keyed = {str(k.token("WORD")): k.tokens()[-1] for g in node.parts("group") for k in g.parts("keyed")}
    # In the form with a result the buffers are the last operands, that of c2v first.
    last = [str(t) for t in values(node)][-len(_DIRECTIONS[mask]) :]
    buffers = [str(keyed[_BUFFERS[d]]) for d in _DIRECTIONS[mask] if _BUFFERS[d] in keyed] or last
    pipe = Pipe({}, {"true": True, "false": False}.get(given.get("nosplit", "")), {})
    slots = read_integer(given.get("slot_num", str(_SLOTS[mask])), 0)
    memory = [str(keyed["gm_slot_buffer"])] if "gm_slot_buffer" in keyed else [str(t) for t in values(node)]
    for x in (r.known.get(name[1:]) for name in memory):
        if isinstance(x, Value) and isinstance(x.type, MemRefType) and x.type is memref(x.type.dtype, (UNKNOWN,)):
            x.type = memref(x.type.dtype, (len(_DIRECTIONS[mask]) * slots * size // x.type.dtype.size,))
    for direction, buffer in zip(_DIRECTIONS[mask], buffers, strict=True):
        of = r.look(buffer)
        if isinstance(of, Reserved):
            of.opened = True
        else:
            known = "flag_base" in given or name.startswith("pto.ai")
            message = "the buffer of a pipe comes from `pto.reserve_buffer` or `pto.import_reserved_buffer`"
            require(known, "TypeMismatch", message, at=buffer, help="or give `flag_base`")
        called = of.name if isinstance(of, Reserved) else f"{r.made.name}_{direction}"
        fifo = pipe.fifos[direction] = re.sub(r"\W", "_", called)
        if isinstance(of, Reserved) and of.base is not None and given.get("local_slot_num", "").split(":")[0].strip() == "1":
            pipe.places[fifo] = of.base
        attrs: dict[str, object] = {"fifo": fifo, "direction": direction, "slots": slots, "slotSize": size}
        r.emit("pto.fifo.open", [], attrs, "")
    if made := defined(node):
        r.bind(made[0], pipe)
    else:
        r.pipe = pipe


def _pipe(r: Reader, node: Node) -> Pipe:
    """The pipe of an op. Raises Violation."""
    named = [t for t in values(node) if isinstance(r.known.get(str(t)[1:]), Pipe)]
    pipe = r.look(named[0]) if named else r.pipe
    if not isinstance(pipe, Pipe):
        raise Violation("UndefinedValue", f"@{r.made.name} initializes no pipe before `{op_name(node)}`", at=OP_NAME)
    return pipe


def _fifo(r: Reader, node: Node, direction: str) -> dict[str, object]:
    """The attributes of an op on a FIFO: its name, and how tiles are split. Raises Violation."""
    pipe = _pipe(r, node)
    # A pipe of one direction is the only one that an op without a direction can mean.
    fifo = pipe.fifos.get(direction or next(iter(pipe.fifos)))
    if fifo is None:
        raise Violation("TypeMismatch", f"the pipe of @{r.made.name} has no direction {direction}", at=OP_NAME)
    split = _SPLITS.get(given := attributes(node).get("split", "0"))
    if split is None:
        raise Violation("TypeMismatch", f"split is {given}, must be 0, 1 or 2", at="split")
    wanted = "none" if pipe.whole else "rows or columns"
    require(pipe.whole in (None, split == "none"), "TypeMismatch", f"the pipe splits tiles by {wanted}, not {split}", at="split")
    return {"fifo": fifo, "split": split}


def push(r: Reader, node: Node) -> None:
    """`pto.tpush_to_aiv`, `pto.tpush_to_aic`, `pto.tpush`. Raises Violation."""
    tile = r.read(values(node)[0])
    at = tile.type.loc if isinstance(tile.type, TileType) else None
    direction = {"pto.tpush_to_aiv": "c2v", "pto.tpush_to_aic": "v2c"}.get(op_name(node), "c2v" if at == "Acc" else "v2c")
    r.emit("pto.tile.push", [tile, (), ()], _fifo(r, node, direction), "")


def pop(r: Reader, node: Node) -> None:
    """`pto.tpop_from_aic`, `pto.tpop_from_aiv`, `pto.tpop`: the last writes a declared tile. Raises Violation."""
    if op_name(node) == "pto.tpop":
        into = r.buffer(values(node)[0])
        attrs = {**_fifo(r, node, "v2c" if into.type.tile.loc == "Mat" else "c2v"), "to": into.type.tile}
        r.put(into.storage, _popped(r, node, into.valid, attrs, into.storage.name))
        return
    t = _declared(r, node)
    rows, columns = [*values(node), None, None][:2]
    if rows is not None:
        message = "a pop with valid extents makes a tile with `v_row=?, v_col=?`"
        require(t.valid == (None, None), "TypeMismatch", message, at=OP_NAME)
    valid, name = extents(r, t, rows, columns), defined(node)[0]
    attrs = {**_fifo(r, node, "c2v" if op_name(node) == "pto.tpop_from_aic" else "v2c"), "to": t.tile}
    made = _popped(r, node, valid, attrs, name[1:])
    r.bind(name, Buffer(t, r.storage(name[1:], t.tile, held=made), valid, r.region))


def _popped(r: Reader, node: Node, valid: Sequence[Operand], attrs: dict[str, object], name: str) -> Value:
    """The tile of a pop, at its address if the text gives that. Raises Violation."""
    made = r.emit("pto.tile.pop", [valid, ()], attrs, name).results[0]
    if (at := _pipe(r, node).places.get(str(attrs["fifo"]))) is not None:
        r.emit("pto.tile.assign", [made, r.named(literals.integer(at, INDEX))], {}, "")
    return made


def _declared(r: Reader, node: Node) -> BufferType:
    listed = node.part("signature")
    t = r.type(listed.parts("types")[-1].token()) if listed else None
    if not isinstance(t, BufferType):
        raise Violation("TypeMismatch", f"`{op_name(node)}` makes a tile buffer", at=OP_NAME)
    return t


def declare(r: Reader, node: Node) -> None:
    """`pto.declare_tile`: a tile that a pop will write. Raises Violation."""
    t, name = _declared(r, node), defined(node)[0]
    r.bind(name, Buffer(t, r.storage(name[1:], t.tile), (), r.region))


def free(r: Reader, node: Node) -> None:
    """`pto.tfree_from_aic`, `pto.tfree_from_aiv`, `pto.tfree`. Raises Violation."""
    direction = {"pto.tfree_from_aic": "c2v", "pto.tfree_from_aiv": "v2c"}.get(op_name(node), "")
    r.emit("pto.fifo.free", [], {"fifo": _fifo(r, node, direction)["fifo"]}, "")


def check_peers(found: list[Reserved], diagnostics: Diagnostics) -> None:
    """Report buffers that are imported and not reserved, and pipes that only one side initializes."""
    for x in found:
        if not x.peer:
            continue
        other = next((y for y in found if y.function == x.peer and y.name == x.name and not y.peer), None)
        if other is None:
            diagnostics.error("UndefinedValue", f"@{x.peer} reserves no buffer `{x.name}`", x.loc)
        elif x.opened != other.opened:
            idle = other if x.opened else x
            message = f"@{idle.function} initializes no pipe with `{x.name}`, and @{(x if x.opened else other).function} does"
            diagnostics.error("TypeMismatch", message, idle.loc)
