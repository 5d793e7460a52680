"""Extension ops on the bits of elements. Integers are two's complement, i1 is one bit."""

from __future__ import annotations

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import COMMUTES, PURE, Algebra, InPlace
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.ops.elementwise import MAP, alike, binary, unary
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute, dtype_of
from ptir_tools.dialects.ptir.ops.typerules import BITS, INTEGERS, ORDERED, rule, want
from ptir_tools.rewrite.vocabulary import of_equal_operands


@rule
def of_bits(*xs: TensorType) -> TensorType:
    """Operands of one type, integers or i1; the result has it.

    DTypeNotSupported: neither integers nor i1. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: two
    operands' types differ.
    """
    want(xs[0].dtype, BITS)
    return alike(*xs)


@rule
def of_integers(*xs: TensorType) -> TensorType:
    """Operands of one integer type; the result has it.

    DTypeNotSupported: not an integer. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: two
    operands' types differ.
    """
    want(xs[0].dtype, INTEGERS)
    return alike(*xs)


def unsigned(x: Array, dtype: DType) -> Array:
    """The bits of integers as uint64."""
    return np.asarray(x.astype(np.uint64) & np.uint64((1 << dtype.bits) - 1))


@binary(
    "ptir.bitwise_and",
    infer=of_bits,
    fold=of_equal_operands,
    traits=MAP | COMMUTES,
    error=errors.discrete,
    algebra=Algebra(idempotent=True, identity=-1, absorbing=0),
    inplace=InPlace("ufunc", "bitwise_and"),
)
def bitwise_and(x: Array, y: Array, *, result: Result) -> Array:
    """The bits set in both operands; of i1, the logical and. Extension."""
    return compute(result, np.bitwise_and, x, y)


@binary(
    "ptir.bitwise_or",
    infer=of_bits,
    fold=of_equal_operands,
    traits=MAP | COMMUTES,
    error=errors.discrete,
    algebra=Algebra(idempotent=True, identity=0, absorbing=-1),
    inplace=InPlace("ufunc", "bitwise_or"),
)
def bitwise_or(x: Array, y: Array, *, result: Result) -> Array:
    """The bits set in either operand; of i1, the logical or. Extension."""
    return compute(result, np.bitwise_or, x, y)


@binary(
    "ptir.bitwise_xor",
    infer=of_bits,
    traits=MAP | COMMUTES,
    error=errors.discrete,
    algebra=Algebra(identity=0),
    inplace=InPlace("ufunc", "bitwise_xor"),
)
def bitwise_xor(x: Array, y: Array, *, result: Result) -> Array:
    """The bits set in exactly one operand; of i1, whether the operands differ. Extension."""
    return compute(result, np.bitwise_xor, x, y)


@unary(
    "ptir.bitwise_not", infer=of_bits, error=errors.discrete, algebra=Algebra(involution=True), inplace=InPlace("ufunc", "invert")
)
def bitwise_not(x: Array, *, result: Result) -> Array:
    """The complement of each bit; of i1, the logical not. Extension."""
    return compute(result, np.invert, x)


def _shifted_left(x: Array, y: Array, dtype: DType) -> Array:
    by = unsigned(y, dtype)
    return np.where(by < dtype.bits, unsigned(x, dtype) << np.minimum(by, np.uint64(63)), np.uint64(0))


def _shifted_right(x: Array, y: Array, dtype: DType) -> Array:
    by = unsigned(y, dtype)
    return np.where(by < dtype.bits, unsigned(x, dtype) >> np.minimum(by, np.uint64(63)), np.uint64(0))


def _signed_shifted_right(x: Array, y: Array, dtype: DType) -> Array:
    spare = np.int64(64 - dtype.bits)
    value = (unsigned(x, dtype) << np.uint64(spare)).view(np.int64) >> spare
    return np.asarray(value >> np.minimum(unsigned(y, dtype), np.uint64(dtype.bits - 1)).astype(np.int64))


@binary("ptir.shift_left", infer=of_integers, error=errors.discrete)
def shift_left(x: Array, y: Array, *, result: Result) -> Array:
    """`x` shifted left by `y`, zeros shifted in; 0 when `y`, read as unsigned, is at least the width. Extension."""
    return compute(result, lambda a, b: _shifted_left(a, b, result.dtype), x, y)


@binary("ptir.shift_right_logical", infer=of_integers, error=errors.discrete)
def shift_right_logical(x: Array, y: Array, *, result: Result) -> Array:
    """`x` shifted right by `y`, zeros shifted in; 0 when `y`, read as unsigned, is at least the width. Extension."""
    return compute(result, lambda a, b: _shifted_right(a, b, result.dtype), x, y)


@binary("ptir.shift_right_arithmetic", infer=of_integers, error=errors.discrete)
def shift_right_arithmetic(x: Array, y: Array, *, result: Result) -> Array:
    """`x` shifted right by `y`, the highest bit shifted in, also for unsigned dtypes. Extension.

    Every bit of the result is the highest bit of `x` when `y`, read as unsigned, is at least the width.
    """
    return compute(result, lambda a, b: _signed_shifted_right(a, b, result.dtype), x, y)


@unary("ptir.popcount", infer=of_integers, error=errors.discrete)
def popcount(x: Array, *, result: Result) -> Array:
    """The number of bits set in each element, in its own dtype. Extension."""
    return compute(result, lambda v: np.bitwise_count(unsigned(v, result.dtype)), x)


def _leading_zeros(x: Array, bits: int) -> Array:
    """The number of zeros above the highest set bit of the lowest `bits` bits."""
    rest, found = x.copy(), np.full(x.shape, bits, np.int64)
    for width in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(width) != 0
        found -= width * high
        rest = np.where(high, rest >> np.uint64(width), rest)
    return np.asarray(found - (rest != 0))


@unary("ptir.count_leading_zeros", infer=of_integers, error=errors.discrete)
def count_leading_zeros(x: Array, *, result: Result) -> Array:
    """The number of bits above the highest set bit; the width for 0. Extension."""
    return compute(result, lambda v: _leading_zeros(unsigned(v, result.dtype), result.dtype.bits), x)


@rule
def bitcast_type(x: TensorType, *, dtype: DType) -> TensorType:
    """The shape with `dtype`. A narrower dtype adds a last axis; a wider one drops the last axis, whose extent is the ratio of
    the widths."""
    want(x.dtype, ORDERED)
    want(dtype, ORDERED, "dtype", at="dtype")
    if dtype.bits == x.dtype.bits:
        return x.with_dtype(dtype)
    if dtype.bits < x.dtype.bits:
        return x.with_dtype(dtype).with_shape((*x.shape, x.dtype.bits // dtype.bits))
    parts = dtype.bits // x.dtype.bits
    whole = x.rank > 0 and x.shape[-1] == parts
    require(
        whole, "OperandShapeMismatch", f"the bits of {parts} elements are one {dtype}: the last axis of {x} has another extent"
    )
    return x.with_dtype(dtype).with_shape(x.shape[:-1])


@op("ptir.bitcast", infer=bitcast_type, traits=PURE, error=errors.bits, inplace=InPlace("bits"))
def bitcast(x: Array, *, dtype: DType, result: Result) -> Array:
    """The bits of `x` as `dtype`; of equal width, element by element. Extension.

    A narrower dtype adds a last axis with the parts of each element, the low bits first. A wider dtype drops the last axis, whose
    elements are the parts.
    DTypeNotSupported: i1, complex. OperandShapeMismatch: the last axis does not have the number of elements that a wider `dtype`
    needs.
    """
    return arrays.unpack(arrays.pack(x, dtype_of(x)), dtype, result.count).reshape(result.static_shape)
