"""Clusters as tile programs for the C interpreter: registers, instructions, arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.dtypes import BF16, F16, F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import TensorType
from ptir_tools.engines.native import clusters, threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.steps import Step, Workshop

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

DST, A, B, C = 1, 2, 4, 8  # bits of an instruction: which of its registers hold one float per row
_ROUNDING = {F16: "nearest_f16", BF16: "nearest_bf16"}
_EXACT = ("neg", "abs", "maximum", "minimum", "select", "clamp", "reduce_max", "reduce_min")  # nothing to round
_EQUAL = ("ptir.select", "ptir.clamp")  # instructions without a form for mixed registers


class Assembler:
    """Builds one tile program. A register holds a full tile or, when `scalar`, one float per row of it."""

    def __init__(self) -> None:
        self.numbers = {name: i for i, name in enumerate(kernels().OPS)}
        self.code = bytearray()
        self.scalar: list[bool] = []
        self.free: list[int] = []

    def register(self, scalar: bool) -> int:
        """A register that nothing uses."""
        if self.free:
            found = self.free.pop()
            self.scalar[found] = scalar
            return found
        self.scalar.append(scalar)
        return len(self.scalar) - 1

    def emit(self, name: str, dst: int, operands: Sequence[int]) -> None:
        """One instruction."""
        a, b, c = (*operands, 0, 0, 0)[:3]
        bits = sum(bit for bit, r in zip((DST, A, B, C), (dst, *operands), strict=False) if self.scalar[r])
        self.code += bytes((self.numbers[name], dst, a, b, c, bits))

    def splat(self, r: int) -> int:
        """A full register with the elements of a scalar one."""
        full = self.register(scalar=False)
        self.emit("splat", full, [r])
        return full


def assemble(ops: Sequence[Op], data: Callable[[Operand], Data], outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps that run a cluster: inputs by `data`, each value of `outs` written to its array."""
    cluster = clusters.domain(ops)
    rows, columns = prod(cluster.shape[:-1]), cluster.shape[-1]
    steps: list[Step] = []
    arrays = [_matrix(data(v), rows, columns, shop, steps) for v in cluster.inputs]
    arrays += [bits(a.reshape(rows, -1)) for a in outs.values()]
    code, count = lowered(cluster, list(outs), [a.shape[1] == 1 for a in arrays])
    return [*steps, *_run(code, count, arrays, len(cluster.inputs), (rows, columns), cluster.reduces, shop)]


def _run(
    code: bytes, count: int, arrays: list[Array], inputs: int, shape: tuple[int, int], reduces: bool, shop: Workshop
) -> list[Step]:
    """The steps that run a tile program of `count` registers over the domain `shape`, on all threads."""
    rows, columns = shape
    parts: list[Step] = []
    for piece in _pieces(arrays, columns, len(code) * rows * columns, reduces, shop.threads):
        height = len(piece[0])
        width = columns if reduces else max(a.shape[1] for a in piece)  # a repeated row may have one element only
        room = shop.scratch((count * kernels().tile_floats(height, width, reduces),), F32)
        parts.append((kernels().tiles, (code, tuple(piece), inputs, count, height, width, reduces, room)))
    return threads.together(parts, shop.threads)


def lowered(cluster: clusters.Cluster, outs: Sequence[Value], scalar: Sequence[bool]) -> tuple[bytes, int]:
    """The code of a cluster and its number of registers; `scalar` says which arrays, inputs first, have one element per row."""
    program = Assembler()
    program.scalar = list(scalar)
    _Lowering(program, cluster, outs).run()
    return bytes(program.code), len(program.scalar)


def converted(out: Array, x: Array, shop: Workshop) -> list[Step] | None:
    """The steps that copy floats to the dense `out` of floats of another precision; None for other dtypes, or strides of `x`."""
    dtypes = {numpy_dtype(t): t for t in clusters.FLOATS}
    if x.dtype not in dtypes or out.dtype not in dtypes or not x.size or (x.ndim and not x.strides[-1]):
        return None
    shape = (1, x.size) if x.flags.c_contiguous else (prod(x.shape[:-1]), x.shape[-1])
    try:
        pair = [bits(x.reshape(shape, copy=False)), bits(out.reshape(shape))]
    except ValueError:
        return None
    program = Assembler()
    program.scalar = [False, False]
    program.emit("maximum", 1, [0, 0])
    if (rounding := _ROUNDING.get(dtypes[out.dtype])) is not None:
        program.emit(rounding, 1, [1])
    return _run(bytes(program.code), 2, pair, 1, shape, False, shop)


def _pieces(arrays: list[Array], columns: int, work: int, reduces: bool, workers: int) -> list[list[Array]]:
    """The domain cut for the threads: by row; a single row that nothing reduces by column."""
    chunks = 4 * workers if workers > 1 and work >= 6 * threads.WORTH else 1  # an instruction has six bytes
    rows = len(arrays[0])
    if rows == 1 and not reduces:
        return [[a[:, s] if a.shape[1] == columns else a for a in arrays] for s in threads.cuts(columns, chunks)]
    return [[a[s] for a in arrays] for s in threads.cuts(rows, chunks)]


def _matrix(x: Array, rows: int, columns: int, shop: Workshop, steps: list[Step]) -> Array:
    """`x` as [rows, columns], or [rows, 1] when its elements are one per row; copied only when it has no such strides."""
    width = 1 if x.size == rows else columns
    try:
        found = x.reshape((rows, width), copy=False)
    except ValueError:
        copy = shop.scratch_like(x)
        steps.append((np.copyto, (copy, x)))
        found = copy.reshape(rows, width)
    return bits(found[:, :1] if width > 1 and found.strides[1] == 0 else found)


def bits(x: Array) -> Array:
    """`x` as kernels take it: bf16, which has no buffers, as its bits."""
    return x.view(np.uint16) if x.dtype == numpy_dtype(BF16) else x


def _rounding(op: Op) -> str | None:
    """The instruction that rounds the result of `op` to its dtype."""
    t = op.result.type
    assert isinstance(t, TensorType)
    return None if op.defn.short in _EXACT else _ROUNDING.get(t.dtype)


class _Lowering:
    """Ops to instructions: every value gets a register, free again after its last use."""

    def __init__(self, program: Assembler, cluster: clusters.Cluster, outs: Sequence[Value]) -> None:
        self.program = program
        self.cluster = cluster
        self.at = {v: i for i, v in enumerate(cluster.inputs)}
        self.outs = {v: len(self.at) + i for i, v in enumerate(outs)}
        self.pinned = len(program.scalar)
        self.last = {v: i for i, op in enumerate(cluster.ops) for v in op.values()}

    def run(self) -> None:
        for i, op in enumerate(self.cluster.ops):
            if op.name in ("ptir.reshape", "ptir.broadcast_to"):
                self.rename(op)
            else:
                self.compute(op)
            dying = {self.at[v] for v in op.values() if self.last[v] == i}
            alive = {r for v, r in self.at.items() if self.last.get(v, -1) > i}
            self.program.free += [r for r in sorted(dying - alive) if r >= self.pinned]

    def rename(self, op: Op) -> None:
        """The result is the operand's register, copied if it is also handed out."""
        r = self.at[op.operands[0]]  # type: ignore[index]
        self.at[op.result] = r
        if (out := self.outs.get(op.result)) is not None:
            self.put(r, out)

    def put(self, r: int, out: int) -> None:
        """Copy a register to an output's."""
        if self.program.scalar[r] and not self.program.scalar[out]:
            self.program.emit("splat", out, [r])
        else:
            self.program.emit("maximum", out, [r, r])

    def compute(self, op: Op) -> None:
        p = self.program
        operands = [self.at[x] for x in op.operands]  # type: ignore[index]
        full = not all(p.scalar[r] for r in operands)
        reduces = op.name in clusters.REDUCTIONS
        temporary: list[int] = []
        if reduces or (full and op.name in _EQUAL):
            spread = {r: p.splat(r) for r in operands if p.scalar[r] and (full or self.cluster.shape[-1] > 1)}
            temporary += spread.values()
            operands = [spread.get(r, r) for r in operands]
        scalar = reduces or not full
        out = self.outs.get(op.result)
        direct = out is not None and p.scalar[out] == scalar
        dst = out if out is not None and direct else p.register(scalar)
        if op.name == "ptir.cast":
            p.emit("maximum", dst, operands * 2)
        else:
            p.emit(op.defn.short, dst, operands)
        if (rounding := _rounding(op)) is not None:
            p.emit(rounding, dst, [dst])
        self.at[op.result] = dst
        p.free += temporary
        if out is not None and not direct:
            self.put(dst, out)
