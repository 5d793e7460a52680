"""Reductions: narrow floats are accumulated in f32, all others in their own loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, F64, SI64, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines.numpy.elementwise import rounds_once
from ptir_tools.engines.numpy.steps import Builder, Step, Workshop, declared, extreme_of, in_f32, is_narrow, tensor_of
from ptir_tools.engines.thresholds import at


def accumulates_as_is(op: Op) -> bool:
    """Whether the accumulator is NumPy's for the operand (f32 for narrow floats, else its dtype), and the result has its dtype
    or is a float one rounding away."""
    source = tensor_of(op).dtype
    accum: DType | None = op.attr("accum_dtype")
    out: DType | None = op.attr("out_dtype")
    natural = F32 if source.is_float and source.bits <= 32 else source
    if accum not in (None, natural):
        return False
    return out in (None, source) or (source.is_float and out.is_float and rounds_once(natural, out))


def _sum(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, (out,) = ins[0], outs
    if (accum := _wider(op)) is not None:
        return [(np.add.reduce, (x, op.attr("axes"), accum.numpy, out, op.attr("keepdims")))]
    if not accumulates_as_is(op) or tensor_of(op).dtype.bits == 4:
        return declared(op, ins, outs, shop)
    if not is_narrow(x):
        return _summed(op, x, out, shop)
    wide = shop.scratch(x.shape, F32)
    return [(np.copyto, (wide, x, "unsafe")), *_summed(op, wide, out, shop)]


def _wider(op: Op) -> DType | None:
    """The accumulator of a sum of integers if it is a wider integer, has all their numbers, and is the result's dtype."""
    source, accum = tensor_of(op).dtype, op.attr("accum_dtype")
    if accum is None or not (source.is_integer and accum.is_integer) or not 4 < source.bits < accum.bits:
        return None
    fits = accum.min <= source.min
    return accum if fits and op.attr("out_dtype") is accum else None


def _summed(op: Op, x: Array, out: Array, shop: Workshop) -> list[Step]:
    """Sum into `out` if it has the accumulator's dtype, else into scratch, then round."""
    axes, keepdims = op.attr("axes"), op.attr("keepdims")
    if out.dtype == x.dtype and (steps := _by_columns(op, np.add, x, out)):
        return [*steps, (np.add, (out, np.zeros((), x.dtype), out))]  # a sum begins with 0: it is no -0.0
    if out.dtype == x.dtype:
        return [(np.add.reduce, (x, axes, x.dtype, out, keepdims))]
    total = shop.scratch(out.shape, F32 if x.dtype == np.float32 else F64)
    return [(np.add.reduce, (x, axes, x.dtype, total, keepdims)), (np.copyto, (out, total, "unsafe"))]


def _extreme(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Max and min are exact in any accumulator. The body is used for no elements, and for another result dtype."""
    x, (out,) = ins[0], outs
    if x.size == 0 or out.dtype != x.dtype or tensor_of(op).dtype.bits < 16:
        return declared(op, ins, outs, shop)
    function = extreme_of(op)
    return _by_columns(op, function, x, out) or [(function.reduce, (x, op.attr("axes"), x.dtype, out, op.attr("keepdims")))]


def _by_columns(op: Op, function: Callable[..., object], x: Array, out: Array) -> list[Step]:
    """The steps that combine the columns of short rows, which NumPy would reduce one by one; empty for other shapes."""
    count = x.shape[-1] if x.ndim else 0
    is_last = [a % x.ndim for a in op.attr("axes")] == [x.ndim - 1]
    if not is_last or not 2 <= count <= at.short_row or out.size < at.short_rows:
        return []
    total, columns = out.reshape(x.shape[:-1]), [x[..., k] for k in range(count)]
    return [(function, (*columns[:2], total)), *((function, (total, c, total)) for c in columns[2:])]


def _argmax(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, (out,) = ins[0], outs
    if tensor_of(op).dtype.bits == 4:
        return declared(op, ins, outs, shop)
    result = out if out.dtype == np.intp else shop.scratch(out.shape, SI64)
    after: list[Step] = [] if result is out else [(np.copyto, (out, result, "unsafe"))]
    return [(_arg_max, (x, op.attr("axis"), result, op.attr("keepdims"))), *after]


def _arg_max(x: Array, axis: int, out: Array, keepdims: bool) -> None:
    np.argmax(x, axis, out, keepdims=keepdims)


BUILDERS: dict[str, Builder] = {
    "sum": _sum,
    "extreme": _extreme,
    "argmax": in_f32(_argmax),
}
