"""Contractions as stacks of matrix products; a transpose that BLAS can take is not carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import F32, F64, SI8, UI8, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import CONSTANT, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.strides import dense_strides
from ptir_tools.engines.numpy.elementwise import rounds_once
from ptir_tools.engines.numpy.steps import NARROW, Builder, Step, Workshop, declared, tensor_of
from ptir_tools.plan.liveness import view
from ptir_tools.rewrite.vocabulary import tensor_type

LONGEST = 1 << 15  # products of 8-bit integers whose sum fits 32 bits, whatever they are


def work_dtype(op: Op) -> DType | None:
    """The dtype in which BLAS computes this contraction right, and from which the result is one rounding away, or None.

    Narrow floats and f32 in f32; f64 and complex in their own; 8-bit integers exactly, in f32 where their sums fit it, else in
    f64, unless they might wrap.
    """
    t = tensor_of(op)
    accum: DType | None = op.attr("accum_dtype")
    out: DType = op.attr("out_dtype") or t.dtype
    if t.dtype.is_integer:
        exact = t.dtype in (SI8, UI8) and accum is not None and accum.bits >= 32 and out is accum
        length = prod(t.static_shape[a] for a in op.attr("contract_lhs"))
        largest = max(-t.dtype.min, t.dtype.max) ** 2 * length
        return None if not exact or length > LONGEST else F32 if largest <= 1 << 24 else F64
    natural = F32 if t.dtype in NARROW else t.dtype
    work = accum or natural
    fits = work is natural or (natural is F32 and work is F64)
    return work if fits and rounds_once(work, out) else None


def axes_of(op: Op) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int]]:
    """Batch, free and contracted axes of the left operand, then of the right one."""
    sides = []
    for side, operand in (("lhs", 0), ("rhs", 1)):
        rank = tensor_of(op, operand).rank
        batch, contract = ([a % rank for a in op.attr(f"{what}_{side}")] for what in ("batch", "contract"))
        sides += [batch, [a for a in range(rank) if a not in batch and a not in contract], contract]
    return tuple(sides)  # type: ignore[return-value]


def is_constant(x: Operand) -> bool:
    """Whether an operand is a constant, or a view of one. What a view has to copy is not there before the run."""
    chain: list[Op] = []
    while isinstance(x, Value) and x.op is not None and x.op.defn.view is not None:
        chain.append(x.op)
        x = x.op.operands[0]
    if not (isinstance(x, Literal) or (isinstance(x, Value) and x.op is not None and x.op.defn.traits & CONSTANT)):
        return False
    shape = tensor_type(x).static_shape
    strides = dense_strides(shape)
    for op in reversed(chain):
        out = tensor_type(op.result).static_shape
        if (found := view(op, shape, strides, out)) is None:
            return False
        shape, strides = out, found[1]
    return True


def kept_bytes(blocks: Iterable[Region], packed: Callable[[Op, DType], int] | None = None) -> int:
    """The bytes, at most, of what stays of constant operands: those that are widened, and right ones for an engine that packs:
    `packed` says how many it takes for one as a dtype."""
    found = 0
    for op in (op for block in blocks for op in block.body if op.defn.inplace is not None and op.defn.inplace.form == "dot"):
        for i, x in enumerate(op.operands):
            t, work = tensor_of(op, i), work_dtype(op)
            if work is None or not is_constant(x):
                continue
            if packed is not None and i == 1:
                found += packed(op, work)
            elif t.dtype is not work:
                found += t.count * work.size
    return found


def stack(
    x: Array,
    groups: Sequence[Sequence[int]],
    kept: int,
    shop: Workshop,
    dtype: DType,
    steps: list[Step],
    once: tuple[Op, str] | None = None,
) -> Array:
    """`x` with one axis per group of its axes; with `kept`, the axes of the first group stay apart.

    A copy into scratch (a step) only where the axes of a group do not lie as one, or the dtype is another. Where `x` is a
    constant, named by `once`, one that is made now and stays.
    """
    moved = x.transpose([a for g in groups for a in g])
    shape = moved.shape[:kept] + tuple(prod(x.shape[a] for a in g) for g in groups[bool(kept) :])
    if x.dtype == numpy_dtype(dtype):
        try:
            return moved.reshape(shape, copy=False)
        except ValueError:
            pass
    if once is not None:
        return shop.kept(once, lambda: moved.astype(numpy_dtype(dtype), order="C").reshape(shape))
    copy = shop.scratch(moved.shape, dtype)
    steps += shop.copied(copy, moved)
    return copy.reshape(shape)


def _dot(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if (dtype := work_dtype(op)) is None:
        return declared(op, ins, outs, shop)
    batch, rows, contract, other_batch, columns, other_contract = axes_of(op)
    steps: list[Step] = []
    once = [(op, side) if is_constant(x) else None for side, x in zip(("lhs", "rhs"), op.operands, strict=True)]
    left = stack(ins[0], (batch, rows, contract)[not batch :], len(batch), shop, dtype, steps, once[0])
    right = stack(ins[1], (other_batch, other_contract, columns)[not batch :], len(batch), shop, dtype, steps, once[1])
    (out,) = outs
    shape = (*left.shape[:-1], right.shape[-1])
    if out.dtype == left.dtype:
        return [*steps, (np.matmul, (left, right, out.reshape(shape)))]
    product = shop.scratch(shape, dtype)
    return [*steps, (np.matmul, (left, right, product)), *shop.copied(out, product.reshape(out.shape))]


BUILDERS: dict[str, Builder] = {"dot": _dot}
