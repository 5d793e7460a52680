"""The contraction `dot_general` (contract: "Linear algebra")."""

from __future__ import annotations

from math import prod

from ptir_tools.core import arrays, costs, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import PURE, InPlace, Kernel
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import Shape, TensorType, tensor
from ptir_tools.core.violations import Violation, operand
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.typerules import (
    NUMERIC,
    accumulator,
    agree,
    attribute,
    axes_of,
    default_accum,
    rule,
    same_dtype,
    want,
)  # fmt: skip

drawing = Later("ptir_tools.dialects.ptir.drawing")

Axes = tuple[int, ...]


def _axes_of_side(x: TensorType, batch: Axes, contract: Axes, side: str) -> tuple[Axes, Axes, Axes]:
    """Batch, free and contracted axes of one operand, normalized and disjoint."""
    b = axes_of(batch, x.rank, f"batch_{side}")
    c = axes_of(contract, x.rank, f"contract_{side}")
    common = sorted(set(b) & set(c))
    attribute(not common, f"axes {common} of {side} are both batch and contracted", f"contract_{side}")
    return b, tuple(i for i in range(x.rank) if i not in b and i not in c), c


def _check_paired(x: TensorType, y: TensorType, left: Axes, right: Axes, what: str) -> None:
    attribute(len(left) == len(right), f"{what}_lhs has {len(left)} axes, {what}_rhs {len(right)}", f"{what}_rhs")
    for i, j in zip(left, right, strict=True):
        try:
            agree(x.shape[i], y.shape[j], "OperandShapeMismatch", f"{what} axes {i} of {x} and {j} of {y} differ")
        except Violation as v:
            raise Violation(v.code, v.message, at=operand(1), labels=[(operand(0), f"is {x}")]) from None


@rule
def dot_general_type(
    lhs: TensorType,
    rhs: TensorType,
    *,
    batch_lhs: Axes,
    batch_rhs: Axes,
    contract_lhs: Axes,
    contract_rhs: Axes,
    accum_dtype: DType | None,
    out_dtype: DType | None,
) -> TensorType:
    """The batch axes, then the free axes of `lhs`, then those of `rhs`."""
    want(lhs.dtype, NUMERIC)
    same_dtype(lhs, rhs)
    batch, free, contract = _axes_of_side(lhs, batch_lhs, contract_lhs, "lhs")
    other_batch, other_free, other_contract = _axes_of_side(rhs, batch_rhs, contract_rhs, "rhs")
    _check_paired(lhs, rhs, batch, other_batch, "batch")
    _check_paired(lhs, rhs, contract, other_contract, "contract")
    shape: Shape = tuple(lhs.shape[i] for i in batch + free) + tuple(rhs.shape[i] for i in other_free)
    return tensor(accumulator(lhs.dtype, accum_dtype, out_dtype), shape)


def _matrices(x: Array, batch: Axes, contract: Axes, contract_last: bool) -> tuple[Array, tuple[int, ...]]:
    """`x` as a stack of matrices, and the extents of its free axes."""
    b, c = ([a % x.ndim for a in axes] for axes in (batch, contract))
    free = [a for a in range(x.ndim) if a not in b and a not in c]
    rows, depth = (prod(x.shape[a] for a in axes) for axes in (free, c))
    moved = np.transpose(x, b + free + c if contract_last else b + c + free)
    shape = (prod(x.shape[a] for a in b), *((rows, depth) if contract_last else (depth, rows)))
    return moved.reshape(shape), tuple(x.shape[a] for a in free)


def contract_arrays(lhs: Array, rhs: Array, batch_lhs: Axes, batch_rhs: Axes, contract_lhs: Axes, contract_rhs: Axes) -> Array:
    """The contraction in the dtype of the arrays; integers wrap."""
    left, rows = _matrices(lhs, batch_lhs, contract_lhs, contract_last=True)
    right, columns = _matrices(rhs, batch_rhs, contract_rhs, contract_last=False)
    product: Array = np.matmul(left, right)
    return product.reshape(tuple(lhs.shape[a] for a in batch_lhs) + rows + columns)


def product_count(step: errors.Step) -> int:
    """The number of products that each element of the result sums."""
    return prod(step.operands[0].shape[a] for a in step.op.attr("contract_lhs"))


@op(
    "ptir.dot_general",
    infer=dot_general_type,
    traits=PURE,
    error=errors.products(product_count),
    generate=drawing.draw_dot_general,
    kernel=Kernel("product"),
    inplace=InPlace("dot"),
    cost=costs.products(lambda op: [costs.shape_of(op, 0)[a] for a in op.attr("contract_lhs")]),
    factors=factors.product,
)
def dot_general(
    lhs: Array,
    rhs: Array,
    *,
    batch_lhs: tuple[int, ...] = (),
    batch_rhs: tuple[int, ...] = (),
    contract_lhs: tuple[int, ...],
    contract_rhs: tuple[int, ...],
    accum_dtype: DType | None = None,
    out_dtype: DType | None = None,
    result: Result,
) -> Array:
    """The sum of products over the contracted axes, for each index of the batch axes. Contract: DotGeneral.

    The k-th entries of `batch_lhs` and `batch_rhs` are one axis of the result. Those of `contract_lhs` and
    `contract_rhs` are summed over. The result has the batch axes (in the order of `batch_lhs`), the free axes of `lhs`, those
    of `rhs`.
    Products are exact (also of f16 and bf16). They are accumulated in `accum_dtype` (f32 for floats up to f32, else the operands'
    dtype, in which integers wrap), then cast to `out_dtype` (the operands'). In the text form `batch[…]` gives both sides.
    InvalidAttributeValue: an axis out of range, named twice, or lists of different length. OperandShapeMismatch,
    DynamicDimensionMismatch: paired extents differ. OperandDTypeMismatch: the dtypes differ. DTypeNotSupported: i1, or a
    real `out_dtype` of complex operands. InvalidAccumDTypeOverride: `accum_dtype` of another kind or narrower.
    """
    source = numerics.dtype_of(lhs)
    accum = accum_dtype or default_accum(source)
    if source.is_integer:
        lhs, rhs = arrays.cast(lhs, source, accum), arrays.cast(rhs, source, accum)
    with np.errstate(all="ignore"):
        product = contract_arrays(arrays.widen(lhs), arrays.widen(rhs), batch_lhs, batch_rhs, contract_lhs, contract_rhs)
        return numerics.cast_accumulated(product, accum, result.dtype)
