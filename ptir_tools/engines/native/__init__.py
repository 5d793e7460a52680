"""The native engine: the steps of the NumPy engine, with C kernels for f32 products, elementwise chains and row reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from ptir_tools.core.arrays import Array, holds
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32, SI8, UI8, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import CALLS, Function, Op, Region
from ptir_tools.core.lazy import late, lazy, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.native import fusion, rows, tasks, threads
from ptir_tools.engines.native.library import available, kernels
from ptir_tools.engines.native.tiles import bits
from ptir_tools.engines.numpy.linalg import axes_of, is_constant, stack, work_dtype
from ptir_tools.engines.numpy.steps import Builder, Step, Target, Workshop, in_f32, tensor_of
from ptir_tools.engines.options import RunOptions
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.liveness import Unit

if TYPE_CHECKING:
    from ptir_tools.engines.native import attention, bands, byte_chains, byte_products, products, vectors
else:  # what only programs with products need
    attention = lazy("ptir_tools.engines.native.attention")
    bands = lazy("ptir_tools.engines.native.bands")
    byte_chains = lazy("ptir_tools.engines.native.byte_chains")
    byte_products = lazy("ptir_tools.engines.native.byte_products")
    products = lazy("ptir_tools.engines.native.products")
    vectors = lazy("ptir_tools.engines.native.vectors")

__all__ = ["Executable", "available"]

copied = late("ptir_tools.engines.native.moves", "copied")


def _single_op(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """A fusion group of one op. An op that cannot be in a group, or that NumPy runs equally fast on many elements of f32, is a
    NumPy step. Results larger than the cache are written with non-temporal stores, which NumPy cannot do."""
    narrow = any(holds(x, F16, BF16, SI8, UI8) for x in (*ins, *outs))
    assert op.defn.kernel is not None
    if op.defn.kernel.role == "reduce" and fusion.started(op) is None:
        return rows.folded(op, ins, outs, shop)
    pays = op.defn.kernel.pays or outs[0].size < at.small or outs[0].nbytes >= at.past_cache
    if (group := fusion.started(op)) is None or not (narrow or pays):
        return threads.shared(numpy_engine.builder(op)(op, ins, outs, shop), shop.threads)
    return group.steps(dict(zip(op.operands, ins, strict=True)).__getitem__, {op.result: outs[0]}, shop)


def _dot(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """f32 products by the kernel `gemm`, with operands of any strides. BLAS computes products of other dtypes, and those for
    which packing costs too much. A constant right operand is packed once."""
    (out,) = outs
    if byte_products.wraps_in_si32(op):
        return byte_products.product(op, ins, out, shop)
    batch, height_axes, contract, other_batch, columns, other_contract = axes_of(op)
    left_shape, right_shape = (tensor_of(op, i).static_shape for i in (0, 1))
    height, depth = (prod(left_shape[a] for a in axes) for axes in (height_axes, contract))
    width = prod(right_shape[a] for a in columns)
    if kernels().BGEMM_SCRATCH and _is_of_pairs(op) and min(height, width) > 1 and depth:
        return _pairs(op, ins, outs[0], (height, width, depth), shop)
    exact = work_dtype(op) is F32 and not tensor_of(op).dtype.is_integer
    if exact and min(height, width) == 1:
        return vectors.product(op, ins, out, int(height > 1), shop)
    packs = not batch and min(height, width) > 1 and depth and is_constant(op.operands[1])
    few = min(height, width) < at.few or (height < at.some and width * depth >= at.large_matrix)
    if not exact or (few and not packs):
        return numpy_engine.builder(op)(op, ins, outs, shop)
    steps: list[Step] = []
    packs = packs or products.packs(op, height, width, depth)
    if packs and any(holds(x, F16, BF16) for x in (ins[0], out)):
        return _by_row_blocks(op, ins, out, (height, width, depth), shop)
    left = stack(ins[0], (batch, height_axes, contract), 0, shop, F32, steps)
    wide = out if out.dtype == np.float32 else shop.scratch(out.shape, F32)
    made = wide.reshape(-1, height, width)
    pieces = products.cut(made, left, left, shop)
    if packs and products.each_packs(op, width * depth * F32.size, len(pieces)):
        parts = [_packing(kernels().gemm, kernels().PACKED_SCRATCH, op, ins, F32, piece, shop) for piece in pieces]
    else:
        if packs:
            right = products.packed(op, partial(ins.__getitem__, 1), F32, shop, steps)
        else:
            right = stack(ins[1], (other_batch, other_contract, columns), 0, shop, F32, steps)
        parts = _products(made, left, right, shop)
    steps += threads.together(parts, shop.threads)
    return steps if wide is out else [*steps, *shop.copied(out, wide)]


def _by_row_blocks(op: Op, ins: Sequence[Data], out: Array, shape: tuple[int, int, int], shop: Workshop) -> list[Step]:
    """An f32 product with a packed right operand, whose left operand or result is of narrow floats. A few rows at a time are
    widened, multiplied and rounded, so that their f32 copies stay in cache."""
    height, width, depth = shape
    _, rows, contract, *_ = axes_of(op)
    steps: list[Step] = []
    left = stack(ins[0], ([], rows, contract), 0, shop, tensor_of(op).dtype, steps)[0]
    right = products.packed(op, partial(ins.__getitem__, 1), F32, shop, steps)
    target, parts = out.reshape(height, width), list[Step]()
    workers = shop.threads if height * width * depth >= at.multiplications else 1
    for piece in threads.cuts(height, workers, threads.ROWS):
        room = shop.scratch((kernels().PACKED_SCRATCH,), F32)
        widened, made = (
            None if x.dtype == np.float32 else shop.scratch((min(at.widened, height), x.shape[1]), F32) for x in (left, target)
        )
        chain: list[Step] = []
        for start in range(piece.start, piece.stop, at.widened):
            block = slice(start, min(start + at.widened, piece.stop))
            x, y = left[block], target[block]
            if widened is not None:
                chain += copied(widened[: len(x)], x, shop, 1)
                x = widened[: len(x)]
            chain.append((kernels().gemm, ((y if made is None else made[: len(y)])[None], x[None], right, room)))
            if made is not None:
                chain += copied(y, made[: len(y)], shop, 1)
        parts.append((threads.in_turn, (chain,)))
    return [*steps, *threads.together(parts, workers)]


def _packing(
    run: Callable[..., None], room: int, op: Op, ins: Sequence[Data], dtype: DType, piece: Sequence[Array], shop: Workshop
) -> Step:
    """A step that packs the right operand of a contraction and multiplies the rows of `piece` by it."""
    steps: list[Step] = []
    right = products.packed(op, partial(ins.__getitem__, 1), dtype, shop, steps, 1)
    return threads.in_turn, ([*steps, (run, (piece[0], piece[1], right, shop.scratch((room,), F32)))],)


def _is_of_pairs(op: Op) -> bool:
    """Whether both operands of a contraction are bf16, and the sums f32."""
    return work_dtype(op) is F32 and tensor_of(op).dtype is BF16 and tensor_of(op, 1).dtype is BF16


def _pairs(op: Op, ins: Sequence[Data], out: Array, shape: tuple[int, int, int], shop: Workshop) -> list[Step]:
    """Products of bf16 in f32, by pairs; the kernel rounds the result if possible."""
    height, width, depth = shape
    steps: list[Step] = []
    each = products.packs(op, height, width, depth) and products.each_packs(op, width * depth * BF16.size, shop.threads)
    left, right, _ = products.narrow(op, ins, shop, steps, not each)
    made = out.dtype == np.float32 or (holds(out, BF16) and kernels().BGEMM_ROUNDS)
    wide = bits(out) if made else shop.scratch(out.shape, F32)
    pieces = products.cut(wide.reshape(-1, height, width), left, right, shop)
    run, room = kernels().bgemm, kernels().BGEMM_SCRATCH
    if each:
        parts = [_packing(run, room, op, ins, BF16, piece, shop) for piece in pieces]
    else:
        parts = [(run, (*piece, shop.scratch((room,), F32))) for piece in pieces]
    steps += threads.together(parts, shop.threads)
    return steps if made else [*steps, *shop.copied(out, wide)]


def _products(out: Array, left: Array, right: Array, shop: Workshop) -> list[Step]:
    """A stack of f32 products, cut for the threads."""
    room = kernels().PACKED_SCRATCH if right.ndim == 1 else kernels().GEMM_SCRATCH
    return [(kernels().gemm, (*piece, shop.scratch((room,), F32))) for piece in products.cut(out, left, right, shop)]


# By the op's role in a tile program; other ops are NumPy steps.
_BUILDERS: dict[str, Builder] = {"map": _single_op, "reduce": _single_op, "product": _dot}


# By the form of the NumPy engine's step.
_FORMS: dict[str, Builder] = {
    "window": late("ptir_tools.engines.native.windows", "pooled"),
    "layer-norm": in_f32(rows.layer_norm),
    "take": rows.taken,
    "argmax": in_f32(rows.largest),
}
_FORMS |= dict.fromkeys(("quantize", "requantize", "dequantize"), late("ptir_tools.engines.native.quantize", "rescaled"))

_CALLS: dict[str, Builder] = {"ptir.tree_ensemble.v1": late("ptir_tools.engines.native.trees", "ensemble")}

_packed_bytes = late("ptir_tools.engines.native.products", "packed_bytes")


def _builder(op: Op) -> Builder:
    if op.defn.traits & CALLS and (builder := _CALLS.get(op.attr("target"))) is not None:
        return builder
    return _BUILDERS.get(fusion.role(op)) or _FORMS.get(fusion.form(op)) or numpy_engine.builder(op)


def _partition(block: Region) -> list[Unit]:
    if not any(fusion.role(op) == "product" for op in block.body):
        return fusion.partition(block)
    uses = fusion.Uses(block)
    chains = byte_chains.found(block, uses) if any(map(byte_products.wraps_in_si32, block.body)) else []
    units = fusion.partition(block, chains)
    units = products.joined(byte_products.joined(attention.joined(units, uses), uses), uses)
    return bands.joined(units, uses) if any(fusion.form(op) == "patches" for op in block.body) else units


class Executable(numpy_engine.Executable):
    """A static PTIR program, planned for the kernels. An observer sees ops one by one."""

    def __init__(self, program: Program, function: Function, options: RunOptions) -> None:
        watched = options.observe is not None
        workers = threads.count(options.threads)
        partition = numpy_engine.one_by_one if watched else _partition
        target = Target(_builder, partition, copied, tasks.linked, workers, _packed_bytes)
        super().__init__(program, function, options, target)
