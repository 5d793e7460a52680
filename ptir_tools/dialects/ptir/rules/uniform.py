"""Elementwise ops on operands of equal elements: one element is computed, whatever the shape."""

from __future__ import annotations

from ptir_tools.core import arrays
from ptir_tools.core.constants import literal_of
from ptir_tools.core.folding import uniform
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.patterns import OpView, Pattern, named, rewrites
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir.rules.helpers import splat

_FAMILIES = ("ptir.elementwise_unary", "ptir.elementwise_binary", "ptir.compare", "ptir.select", "ptir.cast", "ptir.clamp")


def element_of(x: Operand) -> Literal | None:
    """The scalar that all elements of `x` are, bit for bit; looks through broadcasts."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.broadcast_to":
        x = x.op.operands[0]
    literal = literal_of(x)
    if literal is None or literal.data is None or not (literal.splat or (literal.type.is_static and literal.type.count == 1)):
        return None
    return Literal(tensor(literal.type.dtype), literal.data)


@rewrites(*(d.name for family in _FAMILIES for d in named(family)), operands=["ptir.broadcast_to"], benefit=3)
def uniform_operands(op: OpView) -> bool:
    """An elementwise op on constants of equal elements, some of them broadcast, is such a constant."""
    t = op.result.type
    elements = [e for x in op.root.operands if (e := element_of(x)) is not None]
    if not isinstance(t, TensorType) or not t.rank or len(elements) < len(op.root.operands):
        return False
    data = uniform(op.root.defn, op.root.attrs, t.dtype, [(e.type.dtype, e.data or b"") for e in elements])
    if data is None:
        return False
    ops = splat(t, arrays.unpack(data, t.dtype, 1)[0])
    if not op.rw.accepts(op.result, ops[-1].results[0]):
        return False
    for new in ops:
        op.rw.insert_before(op.root, new)
    return op.replace(ops[-1].results[0])


UNIFORM: list[Pattern] = [uniform_operands]
