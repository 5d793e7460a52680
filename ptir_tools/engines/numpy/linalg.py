"""Contractions as batched matrix products. A transpose that BLAS supports is not copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod

from ptir_tools.convert.ranges import nearby
from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import F32, F64, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Operand, Region
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.transforms import window_of
from ptir_tools.engines.numpy.constants import constant
from ptir_tools.engines.numpy.elementwise import rounds_once
from ptir_tools.engines.numpy.fourier import transform
from ptir_tools.engines.numpy.steps import NARROW, Builder, Step, Workshop, declared, tensor_of

Groups = Sequence[Sequence[int]]


def work_dtype(op: Op) -> DType | None:
    """The dtype in which BLAS computes this contraction exactly enough for one final rounding, or None. Narrow floats and f32
    use f32; f64 and complex their own dtype. Integers that are known to be small use f32 if their sums fit it exactly, else f64
    unless they might wrap."""
    t = tensor_of(op)
    accum: DType | None = op.attr("accum_dtype")
    out: DType = op.attr("out_dtype") or t.dtype
    if t.dtype.is_integer:
        if (accum or t.dtype).bits < 32 or out is not (accum or t.dtype):
            return None
        length = prod(t.static_shape[a] for a in op.attr("contract_lhs"))
        largest = _largest(op.operands[0]) * _largest(op.operands[1]) * length
        return F32 if largest <= 1 << 24 else F64 if largest < 1 << 31 else None
    natural = F32 if t.dtype in NARROW else t.dtype
    work = accum or natural
    fits = work is natural or (natural is F32 and work is F64)
    return work if fits and rounds_once(work, out) else None


def _largest(x: Operand) -> int:
    """The largest magnitude that the integers `x` may have."""
    low, high = nearby(x) or (-(1 << 64), 1 << 64)
    return max(-low, high)


def axes_of(op: Op) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int]]:
    """Batch, free and contracted axes of the left operand, then of the right one."""

    def side(operand: int, name: str) -> tuple[list[int], list[int], list[int]]:
        rank = tensor_of(op, operand).rank
        batch, contract = ([a % rank for a in op.attr(f"{what}_{name}")] for what in ("batch", "contract"))
        return batch, [a for a in range(rank) if a not in batch and a not in contract], contract

    return *side(0, "lhs"), *side(1, "rhs")


def is_constant(x: Operand) -> bool:
    """Whether an operand is a constant, or a view of one."""
    return constant(x) is not None


def kept_bytes(blocks: Iterable[Region], packed: Callable[[Op, DType], int] | None = None) -> int:
    """An upper bound of the bytes of converted constant operands: widened or transposed ones, and packed right operands;
    `packed` gives the bytes of those."""
    result = 0
    for op in (op for block in blocks for op in block.body if op.defn.inplace is not None and op.defn.inplace.form == "dot"):
        for i, x in enumerate(op.operands):
            t, work, c = tensor_of(op, i), work_dtype(op), constant(x)
            if work is None or c is None:
                continue
            batch, free, contract = axes_of(op)[3 * i :][:3]
            groups = ((batch, free, contract), (batch, contract, free))[i]
            copy = 0 if _as_stack(c.like, groups, 0, work) is not None else t.count * work.size
            result += max(copy, packed(op, work) if packed is not None and i == 1 else 0)
    return result


def stack(x: Array, groups: Groups, kept: int, shop: Workshop, dtype: DType, steps: list[Step]) -> Array:
    """`x` with one axis per group of its axes; with `kept`, the axes of the first group stay separate. It is copied to scratch (a
    step) only if the axes of a group are not contiguous or `dtype` differs."""
    if (result := _as_stack(x, groups, kept, dtype)) is not None:
        return result
    moved = x.transpose(_order(groups))
    copy = shop.scratch(moved.shape, dtype)
    steps += shop.copied(copy, moved)
    return copy.reshape(_stacked(x.shape, groups, kept))


def operand_stack(
    op: Op, number: int, ins: Sequence[Data], groups: Groups, kept: int, shop: Workshop, dtype: DType, steps: list[Step]
) -> Array:
    """Like `stack`, for an operand of `op`. A constant that needs a copy is copied once, now."""
    result = constant(op.operands[number])
    if result is None or _as_stack(result.like, groups, kept, dtype) is not None:
        return stack(ins[number], groups, kept, shop, dtype, steps)
    how = _Stacked(result.shape, tuple(map(tuple, groups)), kept, dtype)
    return result.once(how, partial(ins.__getitem__, number), shop)


class _Stacked(NamedTuple):
    """A conversion to a stack: the operand's shape, its axes in groups, whether those of the first group stay separate."""

    shape: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    kept: int
    dtype: DType

    def converted(self, x: Array) -> Array:
        """A dense copy."""
        copy: Array = x.transpose(_order(self.groups)).astype(numpy_dtype(self.dtype), order="C")
        return copy.reshape(_stacked(self.shape, self.groups, self.kept))

    def restored(self, x: Array) -> Array:
        """A view with the operand's axes."""
        order = _order(self.groups)
        return x.reshape([self.shape[a] for a in order]).transpose(np.argsort(order))


def _order(groups: Groups) -> list[int]:
    return [a for g in groups for a in g]


def _stacked(shape: tuple[int, ...], groups: Groups, kept: int) -> tuple[int, ...]:
    apart = tuple(shape[a] for a in groups[0]) if kept else ()
    return apart + tuple(prod(shape[a] for a in g) for g in groups[bool(kept) :])


def _as_stack(x: Array, groups: Groups, kept: int, dtype: DType) -> Array | None:
    if x.dtype != numpy_dtype(dtype):
        return None
    try:
        return x.transpose(_order(groups)).reshape(_stacked(x.shape, groups, kept), copy=False)
    except ValueError:
        return None


def _dot(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if (dtype := work_dtype(op)) is None:
        return declared(op, [*ins], outs, shop)
    batch, rows, contract, other_batch, columns, other_contract = axes_of(op)
    steps: list[Step] = []
    left = operand_stack(op, 0, ins, (batch, rows, contract)[not batch :], len(batch), shop, dtype, steps)
    right = operand_stack(op, 1, ins, (other_batch, other_contract, columns)[not batch :], len(batch), shop, dtype, steps)
    (out,) = outs
    shape = (*left.shape[:-1], right.shape[-1])
    if dtype is F64 and not batch and is_constant(op.operands[1]) and (window := window_of(right)) is not None:
        return [*steps, *transform(left, right, window, out.reshape(shape), shop)]
    if out.dtype == left.dtype:
        return [*steps, (np.matmul, (left, right, out.reshape(shape)))]
    product = shop.scratch(shape, dtype)
    return [*steps, (np.matmul, (left, right, product)), *shop.copied(out, product.reshape(out.shape))]


BUILDERS: dict[str, Builder] = {"dot": _dot}
