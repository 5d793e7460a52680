"""Folding of tensors of equal elements: one element is computed, whatever the shape. A tensor without elements is a constant."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from ptir_tools.core import arrays
from ptir_tools.core.declare import OPS
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import ELEMENTWISE, MOVEMENT, Literal, Op, Operand, create
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.rewrites.helpers import extents, has_one_use, placed, rank, source, splat, static, tensor_type
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.fold import foldable
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites
from ptir_tools.rewrite.uniform import elements_of, uniform

_ORIGINS = ("ptir.broadcast_to", "ptir.constant")
_COMPUTING = tuple(d.name for d in DIALECT.ops.values() if d.groups and foldable(d) and MOVEMENT not in d.traits)


def element_of(x: Operand) -> Literal | None:
    """The scalar that all elements of `x` equal bit for bit, found through broadcasts; None when there is none."""
    literal = literal_of(source(x))
    if literal is None or literal.data is None or not (literal.splat or (literal.type.is_static and literal.type.count == 1)):
        return None
    return Literal(tensor(literal.type.dtype), literal.data)


def pad_value_of(element: Literal) -> Scalar | None:
    """The pad value attribute for `element`; None when no scalar has its bits (a NaN with a payload)."""
    dtype = element.type.dtype
    found = Scalar(scalars.natural_kind(dtype), arrays.from_literal(element).astype(object).item())
    return found if arrays.pack(scalars.element(found, dtype), dtype) == element.data else None


def equal_elements(t: TensorType, data: bytes, inline: bool) -> list[Op]:
    """The ops of a tensor of type `t`, all elements of these bytes; `inline`: from an inline scalar."""
    if inline and t.rank:
        return [create(OPS["ptir.broadcast_to"], (Literal(tensor(t.dtype), data),), {"result_shape": t.shape})]
    return splat(t, arrays.unpack(data, t.dtype, 1)[0])


def _replace_by_equal(op: OpView, t: TensorType, data: bytes) -> bool:
    """Replace the root by equal elements. When all operands are made of inline literals, so is this: a broadcast scalar."""
    ops = equal_elements(t, data, all(isinstance(source(x), Literal) for x in op.root.operands))
    if len(ops) > 1 and not any(has_one_use(op.rw, x, op.root) for x in op.root.operands):
        return False
    return placed(op, ops)


@rewrites(*_COMPUTING, operands=_ORIGINS, every=True, benefit=3)
def constant_operands(op: OpView) -> bool:
    """An op on constants, some of them broadcast, is a constant: of equal elements, or with no more elements than one of them."""
    operands, t = op.root.operands, op.result.type
    sources = [source(x) for x in operands]
    literals = [x for x in map(literal_of, sources) if x is not None and x.data is not None]
    if len(literals) < len(operands) or not isinstance(t, TensorType) or all(map(is_, sources, operands)):
        return False
    elements = elements_of(literals) if ELEMENTWISE in op.root.defn.traits else None
    if elements is None:
        return _replace_by_computed(op, t, literals)
    data = uniform(op.root.defn, op.root.attrs, t.dtype, elements)
    return data is not None and _replace_by_equal(op, t, data)


def _replace_by_computed(op: OpView, t: TensorType, literals: Sequence[Literal]) -> bool:
    """Replace the root by its result on `literals`, broadcast to the shapes of its operands."""
    operands, rw = op.root.operands, op.rw
    if not t.is_static or not static(*operands) or t.count > max(1 if x.splat else x.type.count for x in literals):
        return False
    own = [x for y in operands if (x := literal_of(y)) is not None and (x is y or has_one_use(rw, y, op.root))]
    dies = sum(len(x.data or b"") for x in own)
    read = sum(tensor_type(x).nbytes for x in operands)
    if t.dtype.packed_bytes(t.count) > max(current().fold_bytes, dies) or read > max(16 * current().fold_bytes, 4 * dies):
        return False
    arguments = [np.broadcast_to(arrays.from_literal(x), extents(y)) for x, y in zip(literals, operands, strict=True)]
    result = computed(op.root, arguments, Context())
    if result is None:
        return False
    literal = arrays.to_literal(result, t)
    return rw.accepts(op.result, literal) and op.replace(rw.materialize_constant(op.root, literal))


_REARRANGING = ("reshape", "transpose", "slice", "tile", "concat", "broadcast_to")


@rewrites(*(f"ptir.{name}" for name in _REARRANGING), operands=_ORIGINS, every=True, benefit=3)
def rearranged_equal_elements(op: OpView) -> bool:
    """Equal elements that are rearranged, joined or repeated are equal elements of the new shape. A broadcast scalar stays
    one."""
    if op.root.defn.short == "broadcast_to" and not rank(op.x):
        return False
    elements = [element_of(x) for x in op.root.operands]
    first, t = elements[0], op.result.type
    if first is None or any(e is None or not e.same(first) for e in elements):
        return False
    if not isinstance(t, TensorType) or not t.is_static or not static(*op.root.operands):
        return False
    return _replace_by_equal(op, t, first.data or b"")


_ENDING = ("transpose", "reshape", "broadcast_to", "slice", "concat", "tile", "take", "gather", "dynamic_slice", "dot_general")


@rewrites(*(f"ptir.{name}" for name in _ENDING), "ptir.reduce", benefit=5, depth=1)
def no_elements(op: OpView) -> bool:
    """An op that rearranges, reads or reduces to no element is a constant without elements."""
    t = op.result.type
    if not isinstance(t, TensorType) or 0 not in t.shape or not t.is_static:
        return False
    return op.rw.accepts(op.result, Literal(t, b"")) and op.replace(op.rw.materialize_constant(op.root, Literal(t, b"")))


UNIFORM: list[Pattern] = [constant_operands, rearranged_equal_elements, no_elements]
