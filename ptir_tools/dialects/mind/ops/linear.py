"""Linear and tensor algebra. Floats are accumulated in float64 and rounded once; integers wrap in their own dtype."""

from __future__ import annotations

from math import prod

from ptir_tools.core import costs, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.mind.ops.common import Result, broadcast, exact, rounded, same_dtype
from ptir_tools.dialects.mind.types import type_text

drawing = Later("ptir_tools.dialects.mind.drawing")

Pairs = tuple[tuple[int, int], tuple[int, int]]
Padding = str | Pairs  # "Valid", "Same", or ((top, bottom), (left, right))


def check_contracted(op: str, lhs: TensorType, rhs: TensorType, k: int, n: int) -> None:
    """E3003: the contracted extents are equal."""
    if k != n:
        message, labels = (
            f"{op} contracts extents {k} and {n}: {type_text(lhs)} and {type_text(rhs)}",
            [(operand(0), f"is {type_text(lhs)}")],
        )
        raise Violation("E3003", message, at=operand(1), labels=labels)


def matmul_type(lhs: TensorType, rhs: TensorType) -> TensorType:
    """E2004: one dtype. E3002: ranks of at least 2. E3003: lhs.shape[-1] == rhs.shape[-2]. E3001: the batches broadcast."""
    same_dtype(lhs, rhs)
    for i, t in enumerate((lhs, rhs)):
        message = f"MatMul needs operands of rank 2 or more, got {type_text(t)}"
        require(t.rank >= 2, "E3002", message, help="Dot takes rank 1 too", at=operand(i))
    a, b = lhs.static_shape, rhs.static_shape
    check_contracted("MatMul", lhs, rhs, a[-1], b[-2])
    return lhs.with_shape((*broadcast(a[:-2], b[:-2], "the batches "), a[-2], b[-1]))


def dot_type(lhs: TensorType, rhs: TensorType) -> TensorType:
    """E2004: one dtype. E3002: ranks 1 or 2. E3003: the inner extents are equal."""
    same_dtype(lhs, rhs)
    for i, t in enumerate((lhs, rhs)):
        message = f"Dot needs operands of rank 1 or 2, got {type_text(t)}"
        require(t.rank in (1, 2), "E3002", message, help="MatMul takes batches", at=operand(i))
    a, b = lhs.static_shape, rhs.static_shape
    check_contracted("Dot", lhs, rhs, a[-1], b[0])
    return lhs.with_shape(a[:-1] + b[1:])


def same_padding(extent: int, kernel: int, stride: int) -> tuple[int, int]:
    """The (low, high) padding that gives ceil(extent / stride) outputs; an odd element is on the high side."""
    total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
    return total // 2, total - total // 2


def pads(input: tuple[int, ...], filter: tuple[int, ...], strides: tuple[int, ...], padding: Padding) -> Pairs:
    """((top, bottom), (left, right)) of a convolution of these shapes."""
    if padding == "Valid":
        return (0, 0), (0, 0)
    if isinstance(padding, str):
        return same_padding(input[1], filter[0], strides[0]), same_padding(input[2], filter[1], strides[1])
    return padding


def padding_fits(padding: Padding) -> bool:
    """Whether it is Valid, Same or two pairs of non-negative integers."""
    if isinstance(padding, str):
        return padding in ("Valid", "Same")
    return len(padding) == 2 and all(len(pair) == 2 and min(pair) >= 0 for pair in padding)


def conv2d_type(input: TensorType, filter: TensorType, *, strides: tuple[int, ...], padding: Padding) -> TensorType:
    """E4010: two positive strides. E4012: Valid, Same or Custom. E2004: one dtype. E3002: ranks 4. E4009: the channels
    agree. E3006: the window fits into the padded input."""
    fits = len(strides) == 2 and min(strides) > 0
    require(fits, "E4010", f"Conv2d needs two positive strides, got {list(strides)}", at="strides")
    require(padding_fits(padding), "E4012", "padding must be Valid, Same or Custom([[top, bottom], [left, right]])", at="padding")
    same_dtype(input, filter)
    for i, t in enumerate((input, filter)):
        require(t.rank == 4, "E3002", f"Conv2d needs operands of rank 4, got {type_text(t)}", at=operand(i))
    x, f = input.static_shape, filter.static_shape
    message = f"the input {type_text(input)} has {x[3]} channels, the filter {type_text(filter)} takes {f[2]}"
    require(x[3] == f[2], "E4009", message, at=operand(1))
    spans = [x[i + 1] + sum(p) - f[i] for i, p in enumerate(pads(x, f, strides, padding))]
    message = f"the window {list(f[:2])} does not fit into the padded input {type_text(input)}"
    require(min(spans) >= 0, "E3006", message, at=operand(1))
    return input.with_shape((x[0], spans[0] // strides[0] + 1, spans[1] // strides[1] + 1, f[3]))


@op(
    "mind.Dot",
    infer=dot_type,
    traits=PURE,
    error=errors.products(lambda step: step.operands[0].shape[-1]),
    safe=exact,
    generate=drawing.draw_dot,
    cost=costs.products(lambda op: costs.shape_of(op, 0)[-1:]),
)
def dot(lhs: Array, rhs: Array, *, result: Result) -> Array:
    """Inner, matrix-vector, vector-matrix or matrix product of operands of rank 1 or 2. Linear algebra, Dot."""
    return rounded(np.matmul, result.dtype, lhs, rhs)  # np.dot gives 0 for 0 times infinity next to an extent of 1


@op(
    "mind.MatMul",
    infer=matmul_type,
    traits=PURE,
    error=errors.products(lambda step: step.operands[0].shape[-1]),
    safe=exact,
    generate=drawing.draw_matmul,
    cost=costs.products(lambda op: costs.shape_of(op, 0)[-1:]),
)
def matmul(lhs: Array, rhs: Array, *, result: Result) -> Array:
    """Matrix product; leading axes are batches and broadcast. Linear algebra, MatMul."""
    return rounded(np.matmul, result.dtype, lhs, rhs)


@op(
    "mind.Conv2d",
    infer=conv2d_type,
    traits=PURE,
    error=errors.products(lambda step: prod(step.operands[1].shape[:3])),
    safe=exact,
    generate=drawing.draw_conv2d,
    cost=costs.products(lambda op: costs.shape_of(op, 1)[:3]),
)
def conv2d(input: Array, filter: Array, *, strides: tuple[int, ...], padding: Padding, result: Result) -> Array:
    """Cross-correlation of an NHWC input with an HWCF filter; outside of the input is 0. Linear algebra, Conv2d."""

    def correlate(x: Array, f: Array) -> Array:
        (top, bottom), (left, right) = pads(x.shape, f.shape, strides, padding)
        n, height, width, channels = x.shape
        padded = np.zeros((n, top + height + bottom, left + width + right, channels), x.dtype)
        padded[:, top : top + height, left : left + width] = x
        windows = np.lib.stride_tricks.sliding_window_view(padded, f.shape[:2], axis=(1, 2))
        return np.asarray(np.einsum("nijchw,hwcf->nijf", windows[:, :: strides[0], :: strides[1]], f))

    return rounded(correlate, result.dtype, input, filter)
