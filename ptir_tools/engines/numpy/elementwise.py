"""Elementwise ops as universal functions that write in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptir_tools.core.arrays import cast as cast_array
from ptir_tools.core.dtypes import F32, F64, I1, DType, Kind
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import lazy
from ptir_tools.engines.numpy.erf import erf_f32
from ptir_tools.engines.numpy.steps import Builder, Step, Workshop, declared, in_f32, is_direct, overlaps, tensor_of

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

_UFUNCS = {
    "neg": "negative", "abs": "absolute", "add": "add", "sub": "subtract", "mul": "multiply",
    "compare_lt": "less", "compare_le": "less_equal", "compare_eq": "equal", "compare_ge": "greater_equal",
    "compare_gt": "greater", "compare_ne": "not_equal",
}  # fmt: skip
_TRANSCENDENTAL = {"exp": "exp", "log": "log", "tanh": "tanh", "reciprocal": "reciprocal"}


def basic(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """One universal function, right for every dtype that has its own loop."""
    if not is_direct(tensor_of(op).dtype):
        return declared(op, ins, outs, shop)
    return [(getattr(np, _UFUNCS[op.defn.short]), (*ins, outs[0]))]


def _extreme(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if not is_direct(tensor_of(op).dtype):
        return declared(op, ins, outs, shop)
    return [(_maximum if op.name == "ptir.maximum" else _minimum, (*ins, outs[0]))]


def _maximum(x: Array, y: Array, out: Array) -> None:
    np.maximum(x, y, out=out)


def _minimum(x: Array, y: Array, out: Array) -> None:
    np.minimum(x, y, out=out)


def _transcendental(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(getattr(np, _TRANSCENDENTAL[op.defn.short]), (ins[0], outs[0]))]


def _rsqrt(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(np.sqrt, (ins[0], outs[0])), (np.reciprocal, (outs[0], outs[0]))]


def _erf(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(erf_f32, (ins[0], outs[0]))] if outs[0].dtype == np.float32 else declared(op, ins, outs, shop)


def _div(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Floats by IEEE; integers by the body, which refuses a zero."""
    t = tensor_of(op).dtype
    return declared(op, ins, outs, shop) if t.is_integer or not is_direct(t) else [(np.true_divide, (*ins, outs[0]))]


def _clamp(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(np.clip, (*ins, outs[0]))] if is_direct(tensor_of(op).dtype) else declared(op, ins, outs, shop)


def _select(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Copy one branch, then the other where it is chosen; the branch that is written over stays as it is."""
    pred, on_true, on_false = ins
    (out,) = outs
    if overlaps(pred, out):
        return declared(op, ins, outs, shop)
    if overlaps(on_true, out):
        otherwise = shop.scratch(out.shape, I1)
        return [(np.logical_not, (pred, otherwise)), (np.copyto, (out, on_false, "no", otherwise))]
    first = [] if overlaps(on_false, out) else [(np.copyto, (out, on_false))]
    return [*first, (np.copyto, (out, on_true, "no", pred))]


def _cast(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    source, target = tensor_of(op).dtype, op.attr("dtype")
    if target is I1 and is_direct(source):
        return [(np.not_equal, (ins[0], np.zeros((), ins[0].dtype), outs[0]))]
    if rounds_once(source, target):
        return [(np.copyto, (outs[0], ins[0], "unsafe"))]
    return [(_cast_declared, (ins[0], source, target, outs[0]))]


def _cast_declared(x: Array, source: DType, target: DType, out: Array) -> None:
    np.copyto(out, cast_array(x, source, target))


def rounds_once(source: DType, target: DType) -> bool:
    """Whether NumPy's own conversion is that of the cast table: exact, or rounded once to nearest even."""
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
    **dict.fromkeys((f"ptir.{name}" for name in _UFUNCS), basic),
    **dict.fromkeys((f"ptir.{name}" for name in _TRANSCENDENTAL), _floats_only(_transcendental)),
    "ptir.maximum": _extreme,
    "ptir.minimum": _extreme,
    "ptir.rsqrt": _floats_only(_rsqrt),
    "ptir.erf": _floats_only(_erf),
    "ptir.div": _div,
    "ptir.clamp": _clamp,
    "ptir.select": _select,
    "ptir.cast": _cast,
}
