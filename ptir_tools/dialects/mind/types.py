"""MIND's dtypes and the spelling of its types: `tensor<f32[2, 3]>`."""

from ptir_tools.core.dtypes import F32, F64, SI32, SI64, DType
from ptir_tools.core.types import TensorType, Type

# The dtypes of Core v1 by MIND's names.
DTYPES: dict[str, DType] = {"i32": SI32, "i64": SI64, "f32": F32, "f64": F64}
NAMES: dict[DType, str] = {dtype: name for name, dtype in DTYPES.items()}


def dtype_text(dtype: DType) -> str:
    """MIND's name of a dtype; PTIR's name if MIND does not have the dtype."""
    return NAMES.get(dtype, dtype.name)


def type_text(t: Type) -> str:
    """`tensor<f32[2, 3]>`, `tensor<f32[]>`."""
    if not isinstance(t, TensorType):
        return str(t)
    return f"tensor<{dtype_text(t.dtype)}{list(t.shape)}>"
