"""Constants and iota (contract: "`constant` and inline literals", Iota), and checks of constant operands."""

from __future__ import annotations

from collections.abc import Callable
from struct import iter_unpack

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import DType
from ptir_tools.core.expressions import of_dim
from ptir_tools.core.extents import bounds
from ptir_tools.core.ir import CONSTANT, PURE, InPlace, Literal, Op, Operand, Value, is_legal, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import UNKNOWN, Dim, Shape, TensorType, tensor
from ptir_tools.core.violations import operand, require
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.typerules import ORDERED, axis_of, extents, rule, want
from ptir_tools.rewrite.constants import scalar_of

# Ops whose result elements are all elements of their first operand.
_SPREADING = ("ptir.broadcast_to", "ptir.reshape", "ptir.transpose", "ptir.stop_gradient", "ptir.tile")


def literal_fits(t: TensorType, size: int | None, splat: bool) -> None:
    """Raise Violation unless the payload of a literal has the size of its static type.

    Raises Violation: "DynamicDimensionMismatch", "LiteralSizeMismatch".
    """
    require(t.is_static, "DynamicDimensionMismatch", f"expected a static type for a literal, got {t}")
    expected = t.dtype.packed_bytes(1 if splat else t.count)
    fits = size is None or size == expected
    require(fits, "LiteralSizeMismatch", f"a literal of {t} has {expected} bytes, this one has {size}", at="value")


@rule
def constant_type(*, value: Literal) -> TensorType:
    """The type of the literal. Its payload must have the size of the type."""
    t = value.type
    extents(t.shape, "value")
    literal_fits(t, value.size, value.splat)
    return t


@op("ptir.constant", infer=constant_type, traits=PURE | CONSTANT)
def constant(*, value: Literal) -> Array:
    """A dense tensor literal: row-major little-endian, 4-bit values two to a byte, low nibble first. Contract: Constant.

    LiteralSizeMismatch: the payload does not have the size of the type. DynamicDimensionMismatch: the type has a symbol.
    MissingPayload (at run time): the payload is not in the file.
    """
    return arrays.from_literal(value)


@rule
def iota_type(*, shape: Shape, dtype: DType, axis: int) -> TensorType:
    """An integer or float tensor of `shape`; `axis` is one of its axes."""
    want(dtype, ORDERED, "the dtype", at="dtype")
    extents(shape, "shape")
    axis_of(axis, len(shape))
    return tensor(dtype, shape)


@op("ptir.iota", infer=iota_type, traits=PURE, error=errors.exact, inplace=InPlace("count"))
def iota(*, shape: Shape, dtype: DType, axis: int, result: Result) -> Array:
    """Elements that count 0, 1, 2, … along `axis` and repeat along the others. Contract: Iota.

    Integers that do not fit the dtype wrap, floats are rounded.
    DTypeNotSupported: `dtype` is i1 or complex. InvalidAttributeValue: `axis` is out of range (always, for rank 0).
    """
    row = np.arange(result.static_shape[axis], dtype=np.float64 if dtype.is_float else np.int64)
    column = arrays.narrow(row, dtype).reshape([-1 if a == axis % result.rank else 1 for a in range(result.rank)])
    return np.broadcast_to(column, result.static_shape)


def constant_elements(x: Operand) -> Literal | None:
    """The literal that has all elements of `x`, found through broadcasts and ops that move elements; None when `x` is not
    constant or its payload is missing."""
    while isinstance(x, Value) and x.op is not None and x.op.name in _SPREADING and x.op.operands:
        x = x.op.operands[0]
    if isinstance(x, Value) and x.op is not None and x.op.name == "ptir.constant":
        x = x.op.attrs[0]
    return x if isinstance(x, Literal) and x.data is not None else None


def has_zero(literal: Literal) -> bool:
    """Whether a literal of integers has an element 0."""
    data, dtype = literal.data or b"", literal.type.dtype
    if dtype.bits == 4:
        count = 1 if literal.splat else literal.type.count
        return any((data[i // 2] >> 4 * (i % 2)) & 15 == 0 for i in range(count))
    zero, size = bytes(dtype.size), dtype.size
    return zero in data and any(data[i : i + size] == zero for i in range(0, len(data), size))


def check_divisor(op: Op) -> None:
    """Raise Violation("IntegerDivideByZero") when the constant divisor of an integer `op` has a zero."""
    literal, t = constant_elements(op.operands[1]), operand_type(op.operands[1])
    if literal is not None and literal.type.dtype.is_integer and isinstance(t, TensorType) and 0 not in t.shape:
        message = f"the divisor is a constant of {literal.type.dtype} with a zero"
        require(not has_zero(literal), "IntegerDivideByZero", message, at=operand(1))


def divisor_unknown(op: Op) -> bool:
    """Whether the divisor of an integer `op` is not a constant, so that `check_divisor` did not check it."""
    t = operand_type(op.operands[1])
    return isinstance(t, TensorType) and t.dtype.is_integer and constant_elements(op.operands[1]) is None


def indices_unknown(extent: Callable[[Op, Shape], Dim]) -> Callable[[Op], bool]:
    """A function of an op: whether its indices, operand 1, may be outside [0, extent). Constant indices of static extents are
    checked by the op's `check`. The numbers of an iota are less than its extent. A tensor without elements has no index."""

    def unknown(op: Op) -> bool:
        x, t = operand_type(op.operands[0]), operand_type(op.operands[1])
        if not (isinstance(x, TensorType) and isinstance(t, TensorType)) or 0 in t.shape:
            return False
        if constant_elements(op.operands[1]) is not None:
            return not (x.is_static and is_legal(op))
        bound, found = extent(op, x.shape), counted(op.operands[1])
        if found is None or bound == UNKNOWN or found[1] == UNKNOWN:
            return True
        return found[0] < 0 or bounds(of_dim(bound) - of_dim(found[1]))[0] < found[0]

    return unknown


def counted(x: Operand, levels: int = 8) -> tuple[int, Dim] | None:
    """The first and the number of consecutive integers, in order, that all elements of `x` are among: those of an iota, moved by
    constants; None for any other value, and for one made by more than `levels` ops."""
    op = x.op if isinstance(x, Value) else None
    if op is None or not levels or not isinstance(op.result.type, TensorType):
        return None
    if op.name in _SPREADING and op.operands:
        return counted(op.operands[0], levels - 1)
    if op.name == "ptir.iota":
        axis: int = op.attr("axis")
        return 0, op.result.type.shape[axis]
    if op.name not in ("ptir.add", "ptir.sub") or not op.result.type.dtype.is_integer:
        return None
    for run, by in (op.operands, op.operands[::-1]):
        if (number := scalar_of(by)) is not None and (op.name == "ptir.add" or by is op.operands[1]):
            found = counted(run, levels - 1)
            return None if found is None else (found[0] + (int(number) if op.name == "ptir.add" else -int(number)), found[1])
    return None


def constant_indices(x: Operand) -> list[int]:
    """The elements of a constant si32 or si64 operand; empty when it is not constant."""
    literal = constant_elements(x)
    if literal is None or literal.data is None or 0 in literal.type.shape:
        return []
    return [v for (v,) in iter_unpack("<i" if literal.type.dtype.size == 4 else "<q", literal.data)]


def indices_inside(extent: Callable[[Op, Shape], Dim], code: str) -> Callable[[Op], None]:
    """A check of an op: raise Violation(`code`) when a constant index, in operand 1, is outside [0, extent). A symbolic extent is
    checked at run time."""

    def check(op: Op) -> None:
        x = operand_type(op.operands[0])
        if isinstance(x, TensorType) and isinstance(bound := extent(op, x.shape), int):
            check_indices(constant_indices(op.operands[1]), bound, code)

    return check


def axis_extent(op: Op, shape: Shape) -> Dim:
    """The extent of the axis that the indices of `op` count."""
    return shape[op.attr("axis")]


def check_indices(values: list[int], extent: int, code: str) -> None:
    """Raise Violation(`code`) when one of the constant indices is outside [0, extent)."""
    low, high = min(values, default=0), max(values, default=-1)
    worst = low if low < 0 else high
    require(low >= 0 and high < extent, code, f"the constant index {worst} is outside [0, {extent})", at=operand(1))
