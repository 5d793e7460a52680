"""Which ops may run where the program does not run them: those that no operand makes fail, and that draw nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptir_tools.core import arrays
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.constants import literal_of

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

# Ops that check an index when they run, or that may mean nothing here.
_CHECKED = frozenset(
    f"ptir.{name}" for name in ("take", "gather", "scatter_add", "scatter_reduce", "segment_reduce", "custom_call")
)


def never_fails(op: Op) -> bool:
    """Whether `op` ends without an error on any operands of its types. Loops and branches may do anything."""
    if op.defn.name in _CHECKED or op.regions:
        return False
    return op.defn.name != "ptir.div" or _divides(op.operands[1])


def _divides(divisor: Operand) -> bool:
    """Whether a division by `divisor` cannot fail: floats give infinities, integer constants may have no zero."""
    t = operand_type(divisor)
    if isinstance(t, TensorType) and not t.dtype.is_integer:
        return True
    while isinstance(divisor, Value) and divisor.op is not None and divisor.op.defn.name == "ptir.broadcast_to":
        divisor = divisor.op.operands[0]
    literal = literal_of(divisor)
    return literal is not None and literal.data is not None and bool(np.all(arrays.from_literal(literal) != 0))


def draws(op: Op) -> bool:
    """Whether `op`, or anything in a region that it runs, draws random numbers."""
    found: set[Region] = set()
    stack = [op]
    while stack:
        at = stack.pop()
        if at.defn.is_random:
            return True
        for region in at.regions:
            if region not in found:
                found.add(region)
                stack.extend(region.body)
    return False
