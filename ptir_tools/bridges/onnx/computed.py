"""The dtypes in which ONNX Runtime computes operators."""

from __future__ import annotations

from collections.abc import Collection

from ptir_tools.bridges.onnx.table import NUMBERS
from ptir_tools.core.dtypes import (
    BF16,
    F16,
    F32,
    F64,
    FP8_E4M3,
    FP8_E5M2,
    I1,
    SI4,
    SI8,
    SI16,
    SI32,
    SI64,
    UI4,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
)

_FLOATS = frozenset((F16, F32, F64))
_INTS = frozenset((SI8, UI8, SI16, UI16, SI32, UI32, SI64, UI64))
_WORDS = frozenset((SI32, SI64))
_COMMON = frozenset((SI8, UI8, SI32, SI64))


def _each(names: str, dtypes: frozenset[DType]) -> dict[str, frozenset[DType]]:
    return dict.fromkeys(names.split(), dtypes)


# The dtypes in which ONNX Runtime computes an operator on a CPU. What is of another is cast to one that holds it, and back.
COMPUTED: dict[str, frozenset[DType]] = {
    **_each("Add Sub Mul Div Mod Abs Less LessOrEqual Greater GreaterOrEqual", _FLOATS | _INTS),
    **_each("Equal", _FLOATS | _INTS | {I1}),
    **_each("Max Min", _FLOATS | _COMMON | {UI32, UI64}),
    **_each("Where", _FLOATS | _COMMON | {UI32}),
    **_each("Neg", _FLOATS | {SI8, SI16, SI32, SI64}),
    **_each("Pow Exp Log Tanh Erf Sqrt Reciprocal Floor Ceil Round", _FLOATS),
    **_each("Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh", _FLOATS),
    **_each("Sign", _FLOATS | _INTS),
    **_each("IsNaN IsInf Softmax LogSoftmax LayerNormalization", _FLOATS),
    **_each("Gelu Conv", frozenset((F16, F32))),
    **_each("Reshape Transpose Identity", _FLOATS | _INTS | {I1, BF16, FP8_E4M3, FP8_E5M2}),
    **_each("Expand Tile Shape", _FLOATS | _INTS | {I1}),
    **_each("Pad", _FLOATS | _COMMON | {I1, UI32, UI64}),
    **_each("Slice Concat Gather GatherElements ScatterElements ScatterND", _FLOATS | _INTS | {I1, BF16}),
    **_each("TopK", _FLOATS | _COMMON | {SI16}),
    **_each("ReduceSum ReduceProd CumSum", _FLOATS | _WORDS),
    **_each("ReduceMax ReduceMin ArgMax ArgMin", _FLOATS | _COMMON),
    **_each("Gemm", frozenset((F32, F64))),
    **_each("MatMul", _FLOATS | _WORDS | {UI32, UI64}),
    **_each("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot", _INTS),
    **_each("BitShift", frozenset((UI8, UI32, UI64))),
    **_each("MaxPool", _FLOATS | {SI8, UI8}),
    **_each("Resize", frozenset((F32, SI32, SI8, UI8))),
    **_each("ConvTranspose", frozenset((F32,))),
    **_each("Relu Clip Sigmoid ReduceMean", frozenset((F32, F64))),
    **_each("LeakyRelu PRelu Elu Softplus HardSigmoid HardSwish AveragePool GlobalAveragePool", frozenset((F32,))),
}  # fmt: skip
# What holds every value of a dtype, nearest first. For ui64, si64 has the same bits.
_WIDER: dict[DType, tuple[DType, ...]] = {
    I1: (UI8, SI32), UI4: (UI8, SI32), SI4: (SI8, SI32), UI8: (SI32, UI32), SI8: (SI32,), UI16: (SI32, UI32), SI16: (SI32,),
    UI32: (SI64,), SI32: (SI64,), UI64: (SI64,), FP8_E4M3: (F16, F32), FP8_E5M2: (F16, F32), BF16: (F32,), F16: (F32,),
    F32: (F64,),
}  # fmt: skip
_BY_BITS = frozenset((
    "Add", "Sub", "Mul", "Where", "ReduceSum", "ReduceProd", "CumSum", "MatMul", "Expand", "Tile", "Pad", "Slice", "Concat",
    "Gather",
))  # fmt: skip


def spelled(d: DType) -> str:
    """A dtype in the spelling of operator schemas."""
    return f"tensor({_NAMES.get(d) or d.numpy})"


_NAMES = {
    F16: "float16", F32: "float", F64: "double", FP8_E4M3: "float8e4m3fn", FP8_E5M2: "float8e5m2", I1: "bool", BF16: "bfloat16",
}  # fmt: skip


def computing(name: str, dtype: DType, types: Collection[str]) -> DType | None:
    """The dtype, one of `types`, in which the operator `name` computes operands of `dtype`; None if there is none."""

    def taken(d: DType) -> bool:
        return d in NUMBERS and spelled(d) in types

    good = COMPUTED.get(name)
    if taken(dtype) and (good is None or dtype in good):
        return dtype
    for wider in _WIDER.get(dtype, ()):
        if dtype is UI64 and name not in _BY_BITS:
            continue
        if taken(wider) and (good is None or wider in good):
            return wider
    return dtype if taken(dtype) else None
