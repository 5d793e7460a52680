"""Elementwise ops as universal functions that write in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ptir_tools.core import extremes
from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.arrays import cast as cast_array
from ptir_tools.core.dtypes import F32, F64, I1, SI8, SI16, SI32, SI64, DType, Kind
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines.numpy.erf import erf_f32
from ptir_tools.engines.numpy.integers import truncate
from ptir_tools.engines.numpy.steps import (
    Builder,
    Step,
    Workshop,
    declared,
    extreme_of,
    function_of,
    in_f32,
    is_direct,
    overlaps,
    tensor_of,
)  # fmt: skip
from ptir_tools.rewrite.constants import scalar_of


def _ufunc(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """One universal function, for every dtype that has its own loop."""
    if not is_direct(tensor_of(op).dtype):
        return declared(op, ins, outs, shop)
    return [(_rounded(function_of(op), outs[0]), (*map(_single, ins), outs[0]))]


def _rounded(function: np.ufunc, out: Array) -> Callable[..., object]:
    """`function` with one rounding: complex numbers are computed in complex128, since products of their parts may overflow."""
    return function if out.dtype != np.complex64 else partial(function, dtype=np.complex128, casting="same_kind")


def _larger_or_smaller(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """`maximum` or `minimum`. NumPy has no vector code if one operand is a single element, so that operand is expanded to a
    row."""
    if not is_direct(tensor_of(op).dtype):
        return declared(op, ins, outs, shop)
    steps: list[Step] = []
    x, y = sorted(ins, key=_is_single)
    extreme, (out,) = extreme_of(op), outs
    rows = [_row(v, shop, steps) for v in (x, y)]
    if not _is_single(y) or y.dtype.kind in "biu":
        return [*steps, (extreme, (*rows, out))]
    return [*steps, (extreme.with_number, (*rows, _single(y), out))]


def _clamp(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if not is_direct(tensor_of(op).dtype):
        return declared(op, ins, outs, shop)
    x, low, high = map(_single, ins)
    if x.dtype.kind in "biu":
        return [(_clip, (x, low, high, outs[0]))]
    return [(_clip_floats, (x, low, high, outs[0]))]


def _clip(x: Array, low: Array, high: Array, out: Array) -> None:
    np.clip(x, low, high, out=out)


def _clip_floats(x: Array, low: Array, high: Array, out: Array) -> None:
    """`minimum(maximum(x, low), high)` into `out`."""
    if low.ndim == high.ndim == 0 and low != 0 and high != 0:
        np.clip(x, low, high, out=out)
        return
    raised = np.empty_like(out) if overlaps(high, out) else out
    for extreme, value, bound, into in ((extremes.MAXIMUM, x, low, raised), (extremes.MINIMUM, raised, high, out)):
        if bound.ndim == 0:
            extreme.with_number(value, bound, bound, into)
        else:
            extreme(value, bound, into)


def _is_single(x: Array) -> bool:
    return x.size > 1 and not any(x.strides)


def _single(x: Array) -> Array:
    """`x`, or its element if it repeats one."""
    return x[(0,) * x.ndim + (...,)] if _is_single(x) else x


def _row(x: Array, shop: Workshop, steps: list[Step]) -> Array:
    """`x`, or, if it repeats one element, a row of it: NumPy has vector code for that."""
    if not _is_single(x) or x.ndim < 2:
        return x
    row = shop.scratch_like(x[(0,) * (x.ndim - 1)])
    steps.append((np.copyto, (row, x[(0,) * (x.ndim - 1)])))
    return np.broadcast_to(row, x.shape)


def _float_ufunc(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(_rounded(function_of(op), outs[0]), (*ins, outs[0]))]


def _reciprocal(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """A division, because NumPy's reciprocal is not vector code. The body computes complex ones, in twice the precision."""
    if outs[0].dtype.kind == "c":
        return declared(op, ins, outs, shop)
    return [(np.true_divide, (np.ones((), outs[0].dtype), ins[0], outs[0]))]


def _rsqrt(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if outs[0].dtype.kind == "c":
        return declared(op, ins, outs, shop)
    return [(np.sqrt, (ins[0], outs[0])), *_reciprocal(op, outs, outs, shop)]


def _erf(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(erf_f32, (ins[0], outs[0]))] if outs[0].dtype == np.float32 else declared(op, ins, outs, shop)


def _div(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """IEEE division of floats, and of integers by a positive number. The body divides other integers, and refuses a zero."""
    t = tensor_of(op).dtype
    if t.is_integer and t.bits >= 8 and (divisor := scalar_of(op.operands[1])) is not None and divisor > 0:
        return _quotient(ins[0], np.asarray(divisor, ins[0].dtype), outs[0], shop, t)
    if t.is_integer or not is_direct(t):
        return declared(op, ins, outs, shop)
    return [(_rounded(np.true_divide, outs[0]), (*ins, outs[0]))]


def _quotient(x: Array, divisor: Array, out: Array, shop: Workshop, dtype: DType) -> list[Step]:
    """The quotient by a positive number, rounded toward 0: NumPy rounds down, so negative numbers are raised before."""
    if not dtype.is_signed:
        return [(np.floor_divide, (x, divisor, out))]
    raised = shop.scratch(x.shape, dtype)
    return [
        (np.right_shift, (x, dtype.bits - 1, raised)),  # -1 for negative numbers, else 0
        (np.bitwise_and, (raised, np.asarray(int(divisor) - 1, x.dtype), raised)),
        (np.add, (raised, x, raised)),
        (np.floor_divide, (raised, divisor, out)),
    ]


def _real_only(function: str) -> Builder:
    """NumPy's `function` for floats; the body computes anything else."""

    def build(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
        if not tensor_of(op).dtype.is_float:
            return declared(op, ins, outs, shop)
        return [(getattr(np, function), (*ins, outs[0]))]

    return build


def _select(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """A selection of bits, `y ^ ((x ^ y) & mask)`, without a branch."""
    pred, on_true, on_false = ins
    (out,) = outs
    if out.dtype.itemsize > 8 or overlaps(pred, out):
        return declared(op, ins, outs, shop)
    word = (SI8, SI16, SI32, SI64)[out.dtype.itemsize.bit_length() - 1]
    x, y, target = (a.view(numpy_dtype(word)) for a in (on_true, on_false, out))
    mask = shop.scratch(pred.shape, word)
    mixed = shop.scratch(out.shape, word) if overlaps(on_false, out) else target
    return [
        (np.negative, (pred.view(np.int8), mask)),
        (np.bitwise_xor, (x, y, mixed)),
        (np.bitwise_and, (mixed, mask, mixed)),
        (np.bitwise_xor, (mixed, y, target)),
    ]


def _cast(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    source, target = tensor_of(op).dtype, op.attr("dtype")
    if target is I1 and is_direct(source):
        return [(np.not_equal, (ins[0], np.zeros((), ins[0].dtype), outs[0]))]
    if rounds_once(source, target):
        return [(np.copyto, (outs[0], ins[0], "unsafe"))]
    if source in (F32, F64) and target.is_integer and target.bits >= 8 and ins[0].flags.c_contiguous:
        return [(truncate, (ins[0], outs[0], target))]
    return [(_cast_declared, (ins[0], source, target, outs[0]))]


def _bitcast(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """A copy of elements of the same width."""
    source, target = tensor_of(op).dtype, op.attr("dtype")
    if source.bits != target.bits or source.bits < 8:
        return declared(op, ins, outs, shop)
    return [(np.copyto, (outs[0], ins[0].view(outs[0].dtype)))]


def _cast_declared(x: Array, source: DType, target: DType, out: Array) -> None:
    np.copyto(out, cast_array(x, source, target))


def rounds_once(source: DType, target: DType) -> bool:
    """Whether NumPy's conversion is that of the cast table: exact, or rounded once to nearest even."""
    if source is target:
        return True
    if 4 in (source.bits, target.bits) or target is I1:
        return False
    if source is I1:
        return target in (F32, F64) or target.is_integer
    if target.is_complex:
        return source.is_complex or (source.is_float and source.bits >= 16)
    if source.is_float and target.is_float:
        return source.bits < target.bits or source is F32 or target is F32
    if source.is_integer and target in (F32, F64):
        return True
    wider = source.is_integer and target.is_integer and source.bits < target.bits
    return wider and (source.kind is target.kind or source.kind is Kind.UINT)


def _floats_only(build: Builder) -> Builder:
    """`build` for f32, f64 and complex, through f32 for narrower floats."""
    narrow = in_f32(build)

    def chosen(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
        t = tensor_of(op).dtype
        return (narrow if t.is_float and t.bits < 32 else build)(op, ins, outs, shop)

    return chosen


BUILDERS: dict[str, Builder] = {
    "ufunc": _ufunc,
    "larger-or-smaller": _larger_or_smaller,
    "clamp": _clamp,
    "float-ufunc": _floats_only(_float_ufunc),
    "reciprocal": _floats_only(_reciprocal),
    "rsqrt": _floats_only(_rsqrt),
    "erf": _floats_only(_erf),
    "divide": _div,
    "power": _floats_only(_real_only("power")),
    "log1p": _floats_only(_real_only("log1p")),
    "select": _select,
    "cast": _cast,
    "bits": _bitcast,
}
