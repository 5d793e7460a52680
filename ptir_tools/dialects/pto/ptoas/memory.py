"""Memory: pointers become memrefs, views of them windows; loads and stores."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.types import UNKNOWN, Dim, sym
from ptir_tools.core.violations import OP_NAME, Violation, require
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.ptoas import table
from ptir_tools.dialects.pto.ptoas.flow import defined, groups, op_name, values
from ptir_tools.dialects.pto.ptoas.reader import Buffer, Reader, Shifted, View, entries, number
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType, memref, tile
from ptir_tools.grammars.parser import Node


def tensor_view(r: Reader, node: Node) -> None:
    """A view of all that a pointer points to; its shape and strides become those of the parameter. Raises Violation."""
    pointer, *_ = values(node)
    shape, strides = (listed(r, node, key) for key in ("shape", "strides"))
    source = r.look(pointer)
    if isinstance(source, View):
        r.bind(defined(node)[0], source)
        return
    value = r.scalar(pointer)
    pointed = value.type
    if not isinstance(pointed, MemRefType):
        raise Violation("TypeMismatch", f"`{pointer}` is not a pointer", at=str(pointer))
    dims, steps = tuple(extent(r, x) for x in shape), tuple(extent(r, x) for x in strides)
    if len(dims) == 1:
        dims, steps = (1, *dims), (dims[0], *steps)
        shape = [literals.integer(1, INDEX), *shape]
    layout = next((inner(str(e.children[1])).upper() for e in entries(node) if str(e.token()) == "layout"), None)
    packed = dense(dims, steps)
    strides_and_offset = (None, None) if packed else (steps, 0)
    t = memref(pointed.dtype, dims, None, "DN" if layout == "DN" else None, *strides_and_offset)
    seen = r.views.setdefault(value, (dims, steps))
    same = seen == (dims, steps)
    require(same, "UnknownOp", f"`{pointer}` is seen with two shapes; PTO IR has one for each parameter", at=str(pointer))
    value.type = t
    zero = literals.integer(0, INDEX)
    r.bind(defined(node)[0], View(value, (zero,) * len(dims), tuple(shape)))


def shifted(r: Reader, node: Node) -> None:
    """`pto.addptr`: a pointer behind another. Raises Violation."""
    source = r.look(values(node)[0])
    r.bind(defined(node)[0], Shifted(source.memory if isinstance(source, Shifted) else r.scalar(values(node)[0])))


def extent(r: Reader, x: Operand) -> Dim:
    """An operand as an extent: a number, the symbol of a parameter, or unknown."""
    if (known := number(x)) is not None:
        return known
    own = isinstance(x, Value) and x.type is INDEX_TYPE and x in r.made.params
    return sym(x.name) if own and isinstance(x, Value) else UNKNOWN


def listed(r: Reader, node: Node, key: str) -> list[Operand]:
    """The indices of a list that follows `key =`. Raises Violation."""
    found = next((k.part("list") for k in node.parts("keyed") if k.token("WORD") == key), None)
    if found is None:
        raise Violation("ParseError", f"`{op_name(node)}` needs `{key} = […]`", at=OP_NAME)
    return [r.index(t) for t in found.tokens()]


def partition(r: Reader, node: Node) -> None:
    """A window of a view. Raises Violation."""
    source = r.view(values(node)[0])
    offsets, sizes = listed(r, node, "offsets"), listed(r, node, "sizes")
    rank = len(source.offsets)
    while len(offsets) < rank and len(offsets) == len(sizes):
        offsets, sizes = [literals.integer(0, INDEX), *offsets], [literals.integer(1, INDEX), *sizes]
    for what, given in (("offsets", offsets), ("sizes", sizes)):
        require(len(given) == rank, "RankMismatch", f"{what} has {len(given)} entries for rank {rank}", at=what)
    starts = tuple(add(r, a, b) for a, b in zip(source.offsets, offsets, strict=True))
    r.bind(defined(node)[0], View(source.memory, starts, tuple(sizes)))


def add(r: Reader, a: Operand, b: Operand) -> Operand:
    """The sum of two indices."""
    x, y = number(a), number(b)
    if x is not None and y is not None:
        return literals.integer(x + y, INDEX)
    if 0 in (x, y):
        return b if x == 0 else a
    return r.emit("pto.addi", [r.named(a), r.named(b)], {}, "offset").results[0]


def window(r: Reader, view: View, buffer: Buffer, what: str) -> tuple[list[Operand], list[Operand]]:
    """Where a load or store begins, and the extents that it moves where they are not those of the tile. Raises Violation."""
    rank = len(buffer.type.tile.shape)
    sizes = list(view.sizes[-rank:])
    if buffer.valid:
        return list(view.offsets), list(buffer.valid)
    for d, (size, valid) in enumerate(zip(sizes, buffer.type.valid, strict=True)):
        known = number(size)
        if known is not None and valid is not None and known != valid and known > 0:
            message = f"the {what} moves {known} elements of dimension {d}, the tile has {valid} valid ones"
            raise Violation("ShapeMismatch", message, at=OP_NAME)
    held = buffer.storage.held.type if what == "store" and buffer.storage.held is not None else buffer.type.tile
    whole = (held.valid or held.shape) if isinstance(held, TileType) else ()
    same = all(number(s) in (v, 0) for s, v in zip(sizes, whole, strict=False))
    return list(view.offsets), [] if same else sizes


def box(view: View, buffer: Buffer, what: str) -> TileType | None:
    """The tile of all dimensions of a window whose rows are those of several: `2x8x16` is 16 rows of 16. None for a window of
    one matrix. Raises Violation for one that the tile does not fill."""
    t, sizes = buffer.type.tile, [number(s) for s in view.sizes]
    if all(s == 1 for s in sizes[: -t.rank]):
        return None
    known = [s for s in sizes if s]
    fits = len(known) == len(sizes) and (prod(known[:-1]), known[-1]) == t.shape and t.layout in (None, "ND")
    require(fits, "UnknownOp", f"a {what} of more than {t.rank} dimensions cannot be read", at=OP_NAME)
    return tile(t.dtype, known, t.loc, t.layout)


def load(r: Reader, node: Node) -> None:
    """A load. Raises Violation."""
    view = r.view(values(groups(node, "ins")[0])[0])
    buffer = r.buffer(values(groups(node, "outs")[0])[0])
    name, whole = buffer.storage.name, box(view, buffer, "load")
    at, valid = (list(view.offsets), []) if whole else window(r, view, buffer, "load")
    made = r.emit("pto.tile.load", [view.memory, at, valid, ()], {"to": whole or buffer.type.tile}, name)
    if whole:
        r.assign(buffer.storage, made.results[0])
        made = r.emit("pto.tile.reshape", [made.results[0], (), ()], {"to": buffer.type.tile}, name)
    r.put(buffer.storage, made.results[0])


def store(r: Reader, node: Node) -> None:
    """A store. Raises Violation."""
    source, *scale = values(groups(node, "ins")[0])
    buffer, view = r.buffer(source), r.view(values(groups(node, "outs")[0])[0])
    whole = box(view, buffer, "store")
    at, valid = (list(view.offsets), []) if whole else window(r, view, buffer, "store")
    kind = {str(e.token()): inner(literals.attribute(e) or "").rpartition(" ")[2] for e in entries(node)}
    value = r.held(buffer)
    if whole:
        value = r.emit("pto.tile.reshape", [value, (), ()], {"to": whole}, buffer.storage.name).results[0]
        r.assign(buffer.storage, value)
    if scale:
        r.emit("pto.tile.store.fp", [value, r.read(scale[0]), view.memory, at, valid, ()], {}, "")
        return
    attrs: dict[str, object] = {"atomic": table.ATOMICS[kind["atomicType"]]} if kind.get("atomicType") in table.ATOMICS else {}
    r.emit("pto.tile.store", [value, view.memory, at, valid, ()], attrs, "")


def hint(r: Reader, node: Node) -> None:
    """A prefetch: it has no effect. Raises Violation."""
    view = r.view(values(groups(node, "ins")[0])[0])
    r.emit("pto.tile.prefetch", [view.memory, list(view.offsets), (), ()], {}, "")


def dense(dims: Sequence[Dim], steps: Sequence[Dim]) -> bool:
    """Whether strides are row-major; the stride of a single element is never used."""
    step: Dim = 1
    for d, s in zip(reversed(dims), reversed(steps), strict=True):
        if d != 1 and s != step:
            return False
        step = step * d if isinstance(step, int) and isinstance(d, int) else UNKNOWN
    return True
