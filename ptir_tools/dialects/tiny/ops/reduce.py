"""REDUCE (Tiny IR 2.2, 3.3): the source is cast to `dtype`, which is the accumulator's and the result's."""

from __future__ import annotations

import math

from ptir_tools.core import arrays, costs, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op as declare
from ptir_tools.core.dtypes import DType
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import PURE
from ptir_tools.core.lazy import np
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import cast
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.tiny import immediates
from ptir_tools.dialects.tiny.ops.movement import resolve_axes
from ptir_tools.dialects.tiny.ops.rules import NUMBERS, SPELLED, Axes, Scalar

KINDS = ("SUM", "MAX", "MIN")


def identity(op: str, dtype: DType) -> Scalar:
    """The neutral element: SUM 0; MAX -inf or the smallest i32; MIN inf or the largest."""
    if op == "SUM":
        return 0
    if dtype.is_float:
        return -math.inf if op == "MAX" else math.inf
    return dtype.min if op == "MAX" else dtype.max


def reduce_type(x: TensorType, *, op: str, axes: Axes, dtype: DType, init: Scalar | None = None) -> TensorType:
    """The axes are those of `x`, each once, and are removed; `dtype` is a number dtype; `init` is representable in it."""
    if op not in KINDS:
        meant = nearest(op, KINDS)
        message = f"REDUCE has no op `{op}`, only {', '.join(KINDS)}"
        raise Violation("InvalidArg", message, at="op", instead=meant and f'"{meant}"')
    require(dtype in NUMBERS, "DtypeMismatch", f"REDUCE does not accumulate in {SPELLED.get(dtype, dtype)}", at="dtype")
    found = resolve_axes("REDUCE", x, axes)
    if init is not None:
        good = not isinstance(init, bool) and not _fraction(init, dtype)
        require(good, "NeutralInvalid", f"init {init} is no {SPELLED[dtype]}", at="init")
        immediates.require_fits(init, dtype, "init", "NeutralInvalid", at="init")
    return tensor(dtype, tuple(d for i, d in enumerate(x.shape) if i not in found))


def _fraction(value: Scalar, dtype: DType) -> bool:
    return dtype.is_integer and isinstance(value, float) and not value.is_integer()


@declare("tiny.REDUCE", infer=reduce_type, traits=PURE, error=errors.by("op", SUM=errors.linear(init=None)), cost=costs.reads)
def reduce(
    x: Array,
    *,
    op: str,
    axes: Axes,
    dtype: DType,
    init: Scalar | None = None,
) -> Array:
    """The SUM, MAX or MIN of `x` over `axes`, which are removed. `x` is cast to `dtype` first; the accumulator starts at
    `init`, or at the op's neutral element, which is also the result over no elements. Without axes it is the cast alone.
    A float SUM is rounded once, at the end; an i32 SUM wraps; MAX and MIN give NaN when an element is, and
    order zeros as the ops do. Tiny IR 2.2, 3.3."""
    source: Array = arrays.widen(arrays.cast(x, immediates.dtype_of(x), dtype))
    start: Array = arrays.widen(immediates.as_array(identity(op, dtype) if init is None else init, dtype))
    along = cast("tuple[int, ...]", axes)
    with np.errstate(all="ignore"):
        if op == "SUM":
            total = np.add.reduce(source, axis=along, dtype=source.dtype)
            return arrays.narrow(np.asarray(total if init is None else total + start), dtype)
        best = MAXIMUM if op == "MAX" else MINIMUM
        return arrays.narrow(np.asarray(best.reduce(source, axis=along, initial=start[()])), dtype)
