"""Constants. The literal has the dtype and shape; its text is checked where it is read (E4005)."""

from __future__ import annotations

from ptir_tools.core.arrays import Array, from_literal
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import F32, F64, SI64, DType
from ptir_tools.core.ir import CONSTANT, PURE, Literal
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind.ops.common import positive
from ptir_tools.dialects.mind.types import NAMES, type_text


def scalar_of(opcode: str, dtype: DType, value: Literal) -> TensorType:
    """E4005: the literal is a scalar of the opcode's dtype."""
    fits = value.type.dtype is dtype and not value.type.shape
    require(fits, "E4005", f"{opcode} holds one {NAMES[dtype]}, not {type_text(value.type)}", at="value")
    return value.type


def const_i64_type(*, value: Literal) -> TensorType:
    """The result is `tensor<i64[]>`."""
    return scalar_of("ConstI64", SI64, value)


def const_f32_type(*, value: Literal) -> TensorType:
    """The result is `tensor<f32[]>`."""
    return scalar_of("ConstF32", F32, value)


def const_f64_type(*, value: Literal) -> TensorType:
    """The result is `tensor<f64[]>`."""
    return scalar_of("ConstF64", F64, value)


def const_tensor_type(*, value: Literal) -> TensorType:
    """E2005: the dtype is MIND's. E3006: the extents are positive. The result has the literal's type."""
    t = value.type
    require(t.dtype in NAMES, "E2005", f"dtype {t.dtype}; MIND has i32, i64, f32, f64", at="dtype")
    positive(t.static_shape, "shape")
    return t


@op("mind.ConstI64", infer=const_i64_type, traits=PURE | CONSTANT)
def const_i64(*, value: Literal) -> Array:
    """A rank-0 `i64` tensor. Constants, ConstI64."""
    return from_literal(value)


@op("mind.ConstF32", infer=const_f32_type, traits=PURE | CONSTANT)
def const_f32(*, value: Literal) -> Array:
    """A rank-0 `f32` tensor; the text's value is rounded to nearest. Constants, ConstF32."""
    return from_literal(value)


@op("mind.ConstF64", infer=const_f64_type, traits=PURE | CONSTANT)
def const_f64(*, value: Literal) -> Array:
    """A rank-0 `f64` tensor. Constants, ConstF64."""
    return from_literal(value)


@op("mind.ConstTensor", infer=const_tensor_type, traits=PURE | CONSTANT)
def const_tensor(*, value: Literal) -> Array:
    """A tensor with the literal's elements, dtype and shape. Constants, ConstTensor."""
    return from_literal(value)
