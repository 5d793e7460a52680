"""What ops fold to: a value that is there already and equals the result to the bit, whatever the operands hold.

A fold is declared with its op; its docstring says what it answers, as `ptir ops` and docs/rewrites.md show it. It looks at the op
and at what defines its operands. It need not compare types: an answer of another type than the result's is not taken
(`rewrite.fold`). What needs a number (`mul(x, 1)`) is a rule, and so is what may change a NaN or the sign of a zero.
"""

from __future__ import annotations

from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.constants import same_operand


def of_same_type(op: Op) -> Operand | None:
    """`x`, when the result has its type."""
    return op.operands[0]


def of_equal_operands(op: Op) -> Operand | None:
    """`x`, when every operand is `x`."""
    x, *others = op.operands
    return x if all(same_operand(x, y) for y in others) else None


def made_by(x: Operand, name: str) -> Op | None:
    """The op that defines `x`, when it is a `name` (`ptir.neg`)."""
    op = x.op if isinstance(x, Value) else None
    return op if op is not None and op.defn.name == name else None


def tensor_type(x: Operand) -> TensorType:
    """The type of an operand that is a tensor, as its op demands. Raises TypeError for a tuple."""
    t = operand_type(x)
    if not isinstance(t, TensorType):
        raise TypeError(str(t))
    return t
