"""Shape manipulation."""

from __future__ import annotations

from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op, same
from ptir_tools.core.ir import MOVEMENT, PURE, Asks, Op, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.mind.ops.common import Result, distinct, in_range, positive
from ptir_tools.dialects.mind.types import type_text
from ptir_tools.rewrite.vocabulary import of_same_type


def reshape_type(input: TensorType, *, new_shape: tuple[int, ...]) -> TensorType:
    """E3006: positive extents, at most one -1. E3007: the element count is kept."""
    free = [d for d in new_shape if d == -1]
    require(len(free) <= 1, "E3006", f"new_shape {list(new_shape)} has {len(free)} times -1, one is allowed", at="new_shape")
    positive(new_shape, "new_shape", free=-1)
    known = prod(d for d in new_shape if d != -1)
    if free and input.count % known:
        message = f"Element count mismatch: the {input.count} elements of {type_text(input)} are not a multiple of {known}"
        raise Violation("E3007", message, at="new_shape")
    shape = tuple(input.count // known if d == -1 else d for d in new_shape)
    message = f"Element count mismatch: {type_text(input)} has {input.count} elements, {list(shape)} has {prod(shape)}"
    require(prod(shape) == input.count, "E3007", message, at="new_shape")
    return input.with_shape(shape)


def transpose_type(input: TensorType, *, permutation: tuple[int, ...]) -> TensorType:
    """E3008: a permutation of the axes, each in [0, rank) once."""
    wrong = "" if len(permutation) == input.rank else f"it has {len(permutation)} entries"
    for i, axis in enumerate(permutation):
        if not 0 <= axis < input.rank:
            wrong = wrong or f"{axis} is out of range [0, {input.rank})"
        elif axis in permutation[:i]:
            wrong = wrong or f"{axis} is given twice"
    message = f"{list(permutation)} is not a permutation of the {input.rank} axes of {type_text(input)}: {wrong}"
    require(not wrong, "E3008", message, at="permutation")
    return input.with_shape(input.shape[p] for p in permutation)


def expand_dims_type(input: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    """E3004: each axis in [0, rank at its insertion], ascending. E3005: no axis twice."""
    shape = list(input.shape)
    distinct("ExpandDims", axes, input)
    for a in sorted(axes):
        message = f"axis {a} of ExpandDims is out of range [0, {len(shape)}]: the rank is {len(shape)} when it is inserted"
        require(0 <= a <= len(shape), "E3004", message, at="axes")
        shape.insert(a, 1)
    return input.with_shape(shape)


def squeeze_type(input: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    """E3004: axes in [0, rank). E3005: no axis twice. E3009: each has extent 1."""
    in_range("Squeeze", axes, 0, input.rank, input)
    distinct("Squeeze", axes, input)
    for a in axes:
        require(input.shape[a] == 1, "E3009", f"axis {a} of {type_text(input)} has extent {input.shape[a]}, not 1", at="axes")
    return input.with_shape(d for i, d in enumerate(input.shape) if i not in axes)


def fold_transpose(op: Op) -> Operand | None:
    """`input`, when the axes keep their order."""
    permutation = op.attr("permutation")
    return op.operands[0] if permutation == tuple(range(len(permutation))) else None


@op("mind.Reshape", infer=reshape_type, fold=of_same_type, traits=PURE | MOVEMENT, family="reshaping", asks=Asks(passed=same))
def reshape(input: Array, *, new_shape: tuple[int, ...], result: Result) -> Array:
    """The same elements in row-major order under another shape; -1 is inferred. Shape manipulation, Reshape."""
    return input.reshape(result.static_shape)


@op("mind.Transpose", infer=transpose_type, fold=fold_transpose, traits=PURE | MOVEMENT)
def transpose(input: Array, *, permutation: tuple[int, ...]) -> Array:
    """Axis `i` of the result is axis `permutation[i]` of the input. Shape manipulation, Transpose."""
    return np.transpose(input, permutation)


@op("mind.ExpandDims", infer=expand_dims_type, fold=of_same_type, traits=PURE | MOVEMENT, family="reshaping")
def expand_dims(input: Array, *, axes: tuple[int, ...], result: Result) -> Array:
    """Axes of extent 1 inserted one after another, in ascending order. Shape manipulation, ExpandDims."""
    return input.reshape(result.static_shape)


@op("mind.Squeeze", infer=squeeze_type, fold=of_same_type, traits=PURE | MOVEMENT, family="reshaping")
def squeeze(input: Array, *, axes: tuple[int, ...], result: Result) -> Array:
    """The given axes of extent 1 removed; none given, none removed. Shape manipulation, Squeeze."""
    return input.reshape(result.static_shape)
