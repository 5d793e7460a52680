"""Extension ops that split complex numbers into parts and join them. All are exact."""

from __future__ import annotations

from ptir_tools.core import errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import CF32, CF64, F32, F64
from ptir_tools.core.ir import Op, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.elementwise import MAP, alike
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute
from ptir_tools.dialects.ptir.ops.typerules import COMPLEX, PARTS, rule, want
from ptir_tools.rewrite.constants import same_operand
from ptir_tools.rewrite.vocabulary import made_by


@rule
def complex_part_type(x: TensorType) -> TensorType:
    """A complex operand; the result is a float of the width of its parts.

    DTypeNotSupported: `x` is not complex.
    """
    want(x.dtype, COMPLEX)
    return x.with_dtype(F32 if x.dtype is CF32 else F64)


@rule
def complex_type(re: TensorType, im: TensorType) -> TensorType:
    """Two operands of f32 or f64; the result is complex."""
    want(re.dtype, PARTS)
    return alike(re, im).with_dtype(CF32 if re.dtype is F32 else CF64)


def fold_complex_part(op: Op) -> Operand | None:
    """the part, when `x` is made by `complex`."""
    inner = made_by(op.operands[0], "complex")
    return None if inner is None else inner.operands[op.defn.short == "imag"]


def fold_complex(op: Op) -> Operand | None:
    """`z`, when the operands are `real(z)` and `imag(z)`."""
    re, im = made_by(op.operands[0], "real"), made_by(op.operands[1], "imag")
    if re is None or im is None or not same_operand(re.operands[0], im.operands[0]):
        return None
    return re.operands[0]


@op("ptir.real", infer=complex_part_type, fold=fold_complex_part, traits=MAP, error=errors.together)
def real(x: Array, *, result: Result) -> Array:
    """The real part. Extension."""
    return compute(result, np.real, x)


@op("ptir.imag", infer=complex_part_type, fold=fold_complex_part, traits=MAP, error=errors.together)
def imag(x: Array, *, result: Result) -> Array:
    """The imaginary part. Extension."""
    return compute(result, np.imag, x)


def _joined(re: Array, im: Array) -> Array:
    made = np.empty(re.shape, np.complex128)
    made.real, made.imag = re, im  # a product with 1j would make NaN of infinities
    return made


@op("ptir.complex", infer=complex_type, fold=fold_complex, traits=MAP, error=errors.together)
def complex_(re: Array, im: Array, *, result: Result) -> Array:
    """The complex number of two parts: cf32 of f32, cf64 of f64. Extension.

    DTypeNotSupported: neither f32 nor f64. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: the types
    differ.
    """
    return compute(result, _joined, re, im)
