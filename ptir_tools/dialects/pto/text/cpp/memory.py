"""Memory in C++: views are pointers, and a load, store or prefetch gets its window as a global tensor."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.source import Loc
from ptir_tools.dialects.pto.affine import Linear, number
from ptir_tools.dialects.pto.memory.info import sides, unit_dims
from ptir_tools.dialects.pto.ops.memory import memory_of, touches_memory
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import memref_type, tiles_of
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel, Window
from ptir_tools.dialects.pto.text.cpp.spelling import element, value_type
from ptir_tools.dialects.pto.text.kernel import sizes, strides
from ptir_tools.dialects.pto.types import MemRefType, TileType

RANK = 5  # of a global tensor


def parameter(kernel: Kernel, p: Value) -> Iterator[str]:
    """The C++ parameters of a memref: a pointer, and its extents that are not in the type."""
    t = memref_type(p)
    name = kernel.name(p)
    yield f"{value_type(t)}{name}"
    extents = []
    for k, d in enumerate(t.shape):
        if isinstance(d, int):
            extents.append(number(d))
        else:
            text = kernel.fresh(f"{name}_{k}")
            extents.append(kernel.called(text))
            yield f"int64_t {text}"
    kernel.windows[p] = Window(name, tuple(extents), strides(kernel, t, extents))


def view(kernel: Kernel, op: Op) -> str:
    """A subview: a pointer into its source."""
    source, offsets, sizes, steps = op.defn.split(op.attrs, op.operands)
    parent = window(kernel, source, op.loc)
    name = kernel.name(op.result)
    strides = tuple([s * kernel.number(k) for s, k in zip(parent.strides, steps, strict=True)])
    kernel.windows[op.result] = Window(name, tuple(map(kernel.number, sizes)), strides)
    return f"{value_type(op.result.type)}{name} = {_moved(kernel, parent, offsets)};"


def _moved(kernel: Kernel, base: Window, offsets: list[Operand]) -> str:
    """The pointer to an element."""
    apart = number(0)
    for o, s in zip(offsets, base.strides, strict=False):
        apart = apart + kernel.number(o) * s
    return base.pointer if apart == number(0) else f"{base.pointer} + {kernel.text(apart)}"


def window(kernel: Kernel, x: Operand, at: Loc) -> Window:
    """A memref as it is used."""
    found = kernel.windows.get(x) if isinstance(x, Value) else None
    if found is None:
        kernel.refuse("memory that a loop or a branch gives has no strides in C++", at)
    return found or Window("nullptr", (), ())


def global_tensor(kernel: Kernel, op: Op) -> tuple[str, str]:
    """The window of a load, store or prefetch: the name of the global tensor, and its declaration."""
    at = memory_of(op) if touches_memory(op) else op.operands[0]
    base = window(kernel, at, op.loc)
    memref = memref_type(at)
    tiles = [*(v for v in op.results if isinstance(v.type, TileType)), *tiles_of(op)]
    pairs = _dimensions(kernel, op, base, memref, tiles[0] if tiles else None)
    whole = base.extents[0] * base.strides[0] if base.extents else number(1)
    layout = memref.layout or "ND"
    if tiles and (t := kernel.tiles[tiles[0]]).layout != "ND" and memref.layout in (None, "ND"):
        rows, columns = pairs[:-1], pairs[-1]
        if _is_column(t):
            layout, rows, columns = "DN", pairs, (number(1), whole)
        pairs = [*_merged(kernel, op, rows), columns]
    pairs = [(number(1), whole)] * (RANK - len(pairs)) + pairs
    while len(pairs) > RANK and any(n == number(1) for n, _ in pairs):
        del pairs[next(k for k, (n, _) in enumerate(pairs) if n == number(1))]
    if len(pairs) > RANK:
        kernel.refuse(f"a window of {len(pairs)} extents: the library has {RANK}", op.loc)
    shape, strides = (", ".join(map(kernel.text, values)) for values in zip(*pairs, strict=True))
    name = kernel.fresh(f"{kernel.name(tiles[0]) if tiles else 'prefetch'}_gm")
    ones = ["1" if k < RANK - 2 and n == number(1) else "-1" for k, (n, _) in enumerate(pairs)]  # matrices must have them
    shapes, apart = f"pto::Shape<{', '.join(ones)}>", f"pto::Stride<{', '.join(['-1'] * RANK)}>"
    kind = f"GlobalTensor<{element(memref.dtype)}, {shapes}, {apart}, pto::Layout::{layout}>"
    start = _moved(kernel, base, list(group(op, "indices")))
    return name, f"{kind} {name}({start}, {shapes}({shape}), {apart}({strides}));"


def _is_column(t: TileType) -> bool:
    """Whether a tile is a column of the vector unit, whose elements are one after the other."""
    return t.loc == "Vec" and t.layout == "DN" and sides(t)[1] == 1


def _merged(kernel: Kernel, op: Op, rows: list[tuple[Linear, Linear]]) -> list[tuple[Linear, Linear]]:
    """The rows of a matrix, or of a column, as the single dimension that the library takes."""
    found = [(n, s) for n, s in rows if n != number(1)] or rows[-1:]
    while len(found) > 1 and found[-2][1] == found[-1][0] * found[-1][1]:
        found[-2:] = [(found[-2][0] * found[-1][0], found[-1][1])]
    if len(found) > 1:
        kernel.refuse("the rows of the window are not evenly apart in memory", op.loc)
    return found[-1:]


def _dimensions(kernel: Kernel, op: Op, base: Window, memref: MemRefType, tile: Value | None) -> list[tuple[Linear, Linear]]:
    """The extents of a window with their strides, in the order in which the tile has its dimensions in C++."""
    given = [kernel.number(x) for x in group(op, "valid")]
    found = list(sizes(kernel, op, tile)) if tile is not None else given or [number(1)] * memref.rank
    steps = list(base.strides)
    if len(found) > memref.rank:  # one element of each row
        steps.append(number(1))
    found = [*[number(1)] * (len(steps) - len(found)), *found]
    if tile is not None and (last := unit_dims(kernel.tiles[tile])):
        lead = len(steps) - kernel.tiles[tile].rank
        found, steps = ([*x[:lead], *x[-last:], *x[lead:-last]] for x in (found, steps))
    return list(zip(found, steps, strict=True))
