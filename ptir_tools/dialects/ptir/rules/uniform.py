"""Constants of equal elements stay that: one element is computed, whatever the shape. What has no element is a constant."""

from __future__ import annotations

from ptir_tools.core import arrays
from ptir_tools.core.constants import literal_of
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.opdef import OPS, create
from ptir_tools.core.patterns import OpView, Pattern, named, rewrites
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.uniform import elements_of, uniform
from ptir_tools.dialects.ptir import scalars
from ptir_tools.dialects.ptir.rules.helpers import alone, insert, rank, splat, static
from ptir_tools.dialects.ptir.scalars import Scalar

_ORIGINS = ("ptir.broadcast_to", "ptir.constant")
_FAMILIES = ("ptir.elementwise_unary", "ptir.elementwise_binary", "ptir.compare", "ptir.select", "ptir.cast", "ptir.clamp")


def element_of(x: Operand) -> Literal | None:
    """The scalar that all elements of `x` are, bit for bit; looks through broadcasts."""
    literal = literal_of(_repeated(x))
    if literal is None or literal.data is None or not (literal.splat or (literal.type.is_static and literal.type.count == 1)):
        return None
    return Literal(tensor(literal.type.dtype), literal.data)


def pad_value_of(element: Literal) -> Scalar | None:
    """The attribute of a pad that puts in `element`; None when a scalar has not its bits (a NaN with a payload)."""
    dtype = element.type.dtype
    found = Scalar(scalars.natural_kind(dtype), arrays.from_literal(element).astype(object).item())
    return found if arrays.pack(scalars.element(found, dtype), dtype) == element.data else None


def _repeated(x: Operand) -> Operand:
    """What `x` is a broadcast of, through all of them."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.broadcast_to":
        x = x.op.operands[0]
    return x


def _in_place(op: OpView, t: TensorType, data: bytes) -> bool:
    """Replace the root by equal elements. Where all operands are made of inline literals, so is this: a scalar, broadcast."""
    inline = all(isinstance(_repeated(x), Literal) for x in op.root.operands)
    if inline and t.rank:
        scalar = Literal(tensor(t.dtype), data)
        ops = [create(OPS["ptir.broadcast_to"], (scalar,), {"result_shape": t.shape})]
    else:
        ops = splat(t, arrays.unpack(data, t.dtype, 1)[0])
    if len(ops) > 1 and not any(alone(op.rw, x, op.root) for x in op.root.operands):
        return False
    return op.rw.accepts(op.result, ops[-1].results[0]) and op.replace(insert(op.rw, op.root, ops))


@rewrites(*(d.name for family in _FAMILIES for d in named(family)), operands=["ptir.broadcast_to"], benefit=3)
def uniform_operands(op: OpView) -> bool:
    """An elementwise op on constants of equal elements, some of them broadcast, is such a constant."""
    t = op.result.type
    elements = [e for x in op.root.operands if (e := element_of(x)) is not None]
    if not isinstance(t, TensorType) or not t.rank or len(elements) < len(op.root.operands):
        return False
    known = elements_of(elements)
    data = None if known is None else uniform(op.root.defn, op.root.attrs, t.dtype, known)
    return data is not None and _in_place(op, t, data)


_REARRANGING = ("reshape", "transpose", "slice", "tile", "concat", "broadcast_to")


@rewrites(*(f"ptir.{name}" for name in _REARRANGING), operands=_ORIGINS, every=True, benefit=3)
def rearranged_equal_elements(op: OpView) -> bool:
    """Equal elements that are rearranged, joined or repeated are as many equal elements; a scalar that is broadcast stays so."""
    if op.root.defn.short == "broadcast_to" and not rank(op.x):
        return False
    elements = [element_of(x) for x in op.root.operands]
    first, t = elements[0], op.result.type
    if first is None or any(e is None or not e.same(first) for e in elements):
        return False
    if not isinstance(t, TensorType) or not t.is_static or not static(*op.root.operands):
        return False
    return _in_place(op, t, first.data or b"")


_ENDING = ("transpose", "reshape", "broadcast_to", "slice", "concat", "tile", "take", "gather", "dynamic_slice", "dot_general")


@rewrites(*(f"ptir.{name}" for name in _ENDING), "ptir.reduce", benefit=5, depth=1)
def no_elements(op: OpView) -> bool:
    """What rearranges, reads or reduces to no element is a constant without elements."""
    t = op.result.type
    if not isinstance(t, TensorType) or 0 not in t.shape or not t.is_static:
        return False
    return op.rw.accepts(op.result, Literal(t, b"")) and op.replace(op.rw.materialize_constant(op.root, Literal(t, b"")))


UNIFORM: list[Pattern] = [uniform_operands, rearranged_equal_elements, no_elements]
