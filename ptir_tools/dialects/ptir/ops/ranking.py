"""Top-k, sort and segment reduction (contract: "Randomness, top-k, segments, quantization")."""

from __future__ import annotations

from ptir_tools.core import arrays, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import indices, op
from ptir_tools.core.dtypes import SI32, DType
from ptir_tools.core.ir import PURE, Asks, InPlace, Op, Operand
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, Shape, TensorType, TupleType, Type, tensor, tuple_of
from ptir_tools.core.violations import operand, require
from ptir_tools.dialects.ptir.ops import needs, numerics
from ptir_tools.dialects.ptir.ops.constants import indices_inside, indices_unknown
from ptir_tools.dialects.ptir.ops.indexing import checked_indices
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS, Result, SegmentKind
from ptir_tools.dialects.ptir.ops.scatter import OUTSIDE, accumulate
from ptir_tools.dialects.ptir.ops.typerules import (
    COMPARED,
    INDICES,
    NUMERIC,
    ORDERED,
    accumulator,
    agree,
    attribute,
    axis_of,
    default_accum,
    rule,
    same_shape,
    want,
)  # fmt: skip
from ptir_tools.rewrite.vocabulary import tensor_type

if TYPE_CHECKING:
    from ptir_tools.core.declare import Many

drawing = Later("ptir_tools.dialects.ptir.drawing")


@rule
def top_k_type(x: TensorType, *, k: int, axis: int, largest: bool, indices_dtype: DType) -> TupleType:
    """Values and indices, with `k` elements along `axis`."""
    want(x.dtype, ORDERED)
    want(indices_dtype, INDICES, "indices_dtype", at="indices_dtype")
    at = axis_of(axis, x.rank)
    extent = x.shape[at]
    attribute(k >= 0, f"k {k} is negative", "k")
    attribute(not isinstance(extent, int) or k <= extent, f"k {k} is more than axis {axis} of {x} has", "k")
    shape = (*x.shape[:at], k, *x.shape[at + 1 :])
    return tuple_of((tensor(x.dtype, shape), tensor(indices_dtype, shape)))


@op("ptir.top_k", infer=top_k_type, traits=PURE, error=errors.ranked(places=1), inplace=InPlace("top-k"))
def top_k(x: Array, *, k: int, axis: int = -1, largest: bool = True, indices_dtype: DType = SI32) -> tuple[Array, Array]:
    """The `k` largest (or smallest) elements along `axis`, best first, and their indices. Contract: TopK.

    Equal elements keep their order, the smallest index first. A NaN counts as larger than all. The result is a tuple
    (values, indices).
    DTypeNotSupported: i1, complex, or an `indices_dtype` other than si32 and si64. InvalidAttributeValue: `axis` is out of
    range, or `k` is negative or more than the extent.
    """
    best = np.take(stable_order(x, axis, descending=largest), np.arange(k), axis=axis)
    return np.take_along_axis(x, best, axis=axis), best.astype(arrays.numpy_dtype(indices_dtype))


@rule
def sort_type(xs: tuple[TensorType, ...], *, axis: int, keys: int, descending: bool) -> Type:
    """Operands of one shape; the first `keys` are compared. The result has their types, several as a tuple."""
    require(xs, "OperandCountMismatch", "sort takes at least 1 operand, got 0")
    axis_of(axis, xs[0].rank)
    attribute(1 <= keys <= len(xs), f"keys {keys} is not a number of operands, of which there are {len(xs)}", "keys")
    for i, x in enumerate(xs[:keys]):
        want(x.dtype, COMPARED, "a key", at=operand(i))
    for i, x in enumerate(xs[1:], 1):
        same_shape(xs[0], x, of=(0, i))
    return xs[0] if len(xs) == 1 else tuple_of(xs)


def fold_sort(op: Op) -> Operand | None:
    """`x`, when it is the only operand and its axis has extent 1."""
    x = op.operands[0]
    return x if len(op.operands) == 1 and tensor_type(x).shape[op.attr("axis")] == 1 else None


def stable_order(x: Array, axis: int, descending: bool) -> Array:
    """The stable order of the elements along `axis`; a NaN is larger than all. Equal elements keep their order also when
    descending."""
    wide = arrays.widen(x)
    if not descending:
        return np.argsort(wide, axis=axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(wide, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - backwards)


@op(
    "ptir.sort",
    infer=sort_type,
    fold=fold_sort,
    traits=PURE,
    error=errors.ordered("keys"),
    generate=drawing.draw_sort,
    asks=Asks(passed=needs.ordered),
    factors=factors.off_axis,
)
def sort(xs: Many, *, axis: int = -1, keys: int = 1, descending: bool = False) -> tuple[Array, ...] | Array:
    """The operands, sorted along `axis` by the first `keys` of them. The order is stable. Extension.

    The first key decides; where it is equal, the next one, and so on. Zeros of both signs are equal. A NaN is larger than all
    numbers and equal to a NaN. Several operands give a tuple.
    OperandShapeMismatch, DynamicDimensionMismatch: the shapes differ. DTypeNotSupported: a complex key. InvalidAttributeValue:
    `axis` is out of range, or `keys` is not a number of operands.
    """
    order = np.indices(xs[0].shape)[axis]
    for key in reversed(xs[:keys]):
        again = stable_order(np.take_along_axis(key, order, axis), axis, descending)
        order = np.take_along_axis(order, again, axis)
    found = tuple(np.take_along_axis(x, order, axis) for x in xs)
    return found if len(found) > 1 else found[0]


@rule
def segment_reduce_type(
    data: TensorType,
    ids: TensorType,
    *,
    kind: SegmentKind,
    num_segments: int,
    indices_are_sorted: bool,
    unique: bool,
    accum_dtype: DType | None,
) -> TensorType:
    """A vector of one id per row of `data`; the result has `num_segments` rows."""
    kinds = ENUMERATIONS["SegmentKind"]
    attribute(kind in kinds, f"kind is one of {', '.join(kinds)}; got {kind}", "kind")
    want(data.dtype, NUMERIC if kind == "sum" else ORDERED)
    want(ids.dtype, INDICES, "the segment operand", at=operand(1))
    require(data.rank >= 1, "OperandRankMismatch", f"segments are along axis 0, {data} has none", at=operand(0))
    require(ids.rank == 1, "OperandRankMismatch", f"the segment operand is a vector, got {ids}", at=operand(1))
    agree(
        data.shape[0], ids.shape[0], "OperandShapeMismatch", f"expected one segment id per row of {data}, got {ids}", operand(1)
    )
    attribute(num_segments >= 0, f"num_segments {num_segments} is negative", "num_segments")
    accumulator(data.dtype, accum_dtype)
    return data.with_shape((num_segments, *data.shape[1:]))


def segments(op: Op, shape: Shape) -> Dim:
    """How many segments `op` has."""
    n: int = op.attr("num_segments")
    return n


@op(
    "ptir.segment_reduce",
    infer=segment_reduce_type,
    check=indices_inside(segments, OUTSIDE),
    fails=indices_unknown(segments),
    traits=PURE,
    error=errors.by("kind", sum=errors.linear(data=(0,))),
    generate=drawing.draw_segment_reduce,
    inplace=InPlace("segment-reduce"),
    asks=indices(1, lambda op, shape: (op.attr("num_segments"),)),
)
def segment_reduce(
    data: Array,
    ids: Array,
    *,
    kind: SegmentKind = "sum",
    num_segments: int,
    indices_are_sorted: bool = False,
    unique: bool = False,
    accum_dtype: DType | None = None,
    result: Result,
) -> Array:
    """Row s is the sum (or max) of the rows of `data` whose id is s; the identity when there is none. Contract: SegmentReduce.

    Accumulated in `accum_dtype` with the defaults of `reduce_sum`. `indices_are_sorted` and `unique` are promises that allow
    faster kernels and change no result.
    DTypeNotSupported: i1, complex with max, or ids other than si32 and si64. OperandRankMismatch, OperandShapeMismatch,
    DynamicDimensionMismatch: the ids are not one per row. InvalidAttributeValue: a negative count, an unknown kind.
    InvalidAccumDTypeOverride: `accum_dtype` of another kind or narrower. ScatterIndexOutOfBounds: an id is outside
    [0, num_segments).
    """
    source = numerics.dtype_of(data)
    accum = accum_dtype or default_accum(source)
    wide = arrays.widen(arrays.cast(data, source, accum) if source.is_integer else data)
    total = np.full(result.static_shape, numerics.identity(kind, source), wide.dtype)
    accumulate(kind, total, (checked_indices(ids, num_segments, OUTSIDE),), wide)
    return numerics.cast_accumulated(total, accum, result.dtype)
