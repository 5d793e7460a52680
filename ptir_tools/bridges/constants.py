"""Elements of constants in a program that is being built."""

from __future__ import annotations

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.ir import Literal, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.constants import literal_of


def known(x: Tensor) -> Array | None:
    """The elements of a tensor that is a constant, or None."""
    op = x.operand.op if isinstance(x.operand, Value) else None
    t = x.type
    if op is not None and op.defn.name == "ptir.broadcast_to" and isinstance(op.operands[0], Literal):
        if not isinstance(t, TensorType) or not all(isinstance(d, int) for d in t.shape):
            return None
        return np.broadcast_to(arrays.from_literal(op.operands[0]), t.static_shape)
    result = literal_of(x.operand)
    return None if result is None or result.data is None else arrays.from_literal(result)
