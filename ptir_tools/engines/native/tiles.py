"""Tile programs on arrays: the steps that run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ptir_tools.core.arrays import Array, holds
from ptir_tools.core.dtypes import BF16, F32
from ptir_tools.core.ir import Value
from ptir_tools.core.lazy import np
from ptir_tools.engines.native import fusion, threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import INSTRUCTION, ROUNDING, Assembler, lowered
from ptir_tools.engines.numpy.steps import Look, Step, Workshop
from ptir_tools.engines.thresholds import at


def assemble(group: fusion.Group, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps that run a fusion group: inputs by `look`, each value of `outs` written to its array."""
    rows, columns = prod(group.shape[:-1]), group.shape[-1] if group.shape else 1
    if columns == 1 and not group.reduces:
        rows, columns = 1, rows
    steps: list[Step] = []
    arrays = [matrix(look(v), rows, columns, shop, steps) for v in group.inputs]
    arrays += [bits(a.reshape(rows, -1)) for a in outs.values()]
    code, kinds = lowered(group, list(outs), register_kinds(group, arrays, list(outs)))
    return [*steps, *_run(code, kinds, arrays, len(group.inputs), (rows, columns), group.reduces, shop, shop.threads)]


def past_cache() -> int:
    """The smallest size of results that bypass the cache. A large cache keeps them, which is faster."""
    return max(at.past_cache, int(kernels().LAST_CACHE) // at.share_of_cache)


def register_kinds(group: fusion.Group, arrays: Sequence[Array | None], outs: Sequence[Value]) -> list[int]:
    """The kinds of the registers of a fusion group's arrays: inputs (per row, or not; None is not), then `outs`."""
    kernel = kernels()
    inputs = [kernel.ROWS if a is not None and a.shape[-1] == 1 else kernel.FULL for a in arrays[: len(group.inputs)]]
    return [*inputs, *(kernel.ROWS if group.kinds[v] == fusion.ROWS else kernel.FULL for v in outs)]


def _run(
    code: bytes,
    kinds: bytes,
    arrays: list[Array],
    inputs: int,
    shape: tuple[int, int],
    reduces: bool,
    shop: Workshop,
    workers: int,
) -> list[Step]:
    """The steps that run a tile program over the domain `shape`, on so many threads."""
    rows, columns = shape
    parts: list[Step] = []
    is_large = sum(a.nbytes for a in arrays[inputs:]) >= past_cache()
    for piece in _pieces(arrays, columns, len(code) // INSTRUCTION * rows * columns, reduces, workers):
        height = len(piece[0])
        width = columns if reduces else max(a.shape[1] for a in piece)  # a repeated row may have only one element
        room = shop.scratch((kernels().tile_floats(kinds, height, width, reduces),), F32)
        parts.append((kernels().tiles, (code, kinds, tuple(piece), inputs, height, width, reduces, room, is_large)))
    return threads.together(parts, workers)


def converted(out: Array, x: Array, shop: Workshop, workers: int) -> list[Step] | None:
    """The steps that copy floats to the dense `out` of another precision; None for other dtypes or strides of `x`."""
    if not holds(x, *fusion.FLOATS) or not holds(out, *fusion.FLOATS) or not x.size or (x.ndim and not x.strides[-1]):
        return None
    shape = (1, x.size) if x.flags.c_contiguous else (prod(x.shape[:-1]), x.shape[-1])
    try:
        pair = [bits(x.reshape(shape, copy=False)), bits(out.reshape(shape))]
    except ValueError:
        return None
    program = Assembler([kernels().FULL] * 2)
    program.emit("on_elements")
    program.emit("load", 0)
    if (rounding := next((name for dtype, name in ROUNDING.items() if holds(out, dtype)), None)) is not None:
        program.emit(rounding)
    program.emit("store", 1)
    return _run(bytes(program.code), bytes(program.kinds), pair, 1, shape, False, shop, workers)


def reduced(out: Array, x: Array, name: str, shop: Workshop) -> list[Step]:
    """The steps that reduce every row of `x`, f32, to the element of its row of `out`."""
    program = Assembler([kernels().FULL, kernels().ROWS])
    program.emit("on_elements")
    program.emit("load", 0)
    program.emit(name, 1, 0)
    return _run(bytes(program.code), bytes(program.kinds), [x, out], 1, (x.shape[0], x.shape[1]), True, shop, shop.threads)


def _pieces(arrays: list[Array], columns: int, work: int, reduces: bool, workers: int) -> list[list[Array]]:
    """The domain divided among the threads: by row, or by column if a single row is not reduced."""
    chunks = 4 * workers if workers > 1 and work >= at.work else 1
    rows = len(arrays[0])
    if rows == 1 and not reduces:
        return [[a[:, s] if a.shape[1] == columns else a for a in arrays] for s in threads.cuts(columns, chunks)]
    return [[a[s] for a in arrays] for s in threads.cuts(rows, chunks)]


def matrix(x: Array, rows: int, columns: int, shop: Workshop, steps: list[Step]) -> Array:
    """`x` as [rows, columns], or [rows, 1] with one element per row; copied only if its strides do not allow that."""
    width = 1 if x.size == rows else columns
    try:
        found = x.reshape((rows, width), copy=False)
    except ValueError:
        copy = shop.scratch_like(x)
        steps.append((np.copyto, (copy, x)))
        found = copy.reshape(rows, width)
    return bits(found[:, :1] if width > 1 and found.strides[1] == 0 else found)


def bits(x: Array) -> Array:
    """`x` for kernels: bf16, which has no buffers, as its bits."""
    return x.view(np.uint16) if holds(x, BF16) else x
