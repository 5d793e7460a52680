"""Patterns of several PTIR ops that are one MIND operation, some under a condition or within rounding.

A pattern is a function of the op and the options that returns a Match or None. It reads definitions only; an absorbed op is
translated only where it has other uses.
"""

from __future__ import annotations

from math import log, prod

from ptir_tools.convert.emitter import Match, Pattern
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.patterns import constant_of, is_zero, relu_operand, scalar_literal, splat_of, type_of
from ptir_tools.convert.ptir_to_mind.emit import MindEmit, Read
from ptir_tools.core.arrays import from_literal, pack, to_literal
from ptir_tools.core.dialect import PROFILE, Options
from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.ir import Literal, Op
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.mind.building import mean as mean_of
from ptir_tools.dialects.mind.building import reshaped
from ptir_tools.dialects.mind.ops.common import CURRENT
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.rewrite.expression import Term
from ptir_tools.rewrite.vocabulary import made_by

Shape = tuple[int, ...]
Padding = str | tuple[tuple[int, int], ...]  # "Valid", "Same" or two pairs


def relu(op: Op, options: Options) -> Match | None:
    """select(x > 0, x, 0) is Relu, for a NaN too."""
    x = relu_operand(op)
    if x is None or type_of(x).dtype not in (F32, F64):
        return None
    return Match((x,), lambda emit, op, x: emit.last("Relu", emit.value(x)))


def mean(op: Op, options: Options) -> Match | None:
    """A sum divided by the number of its terms, or times the reciprocal if that is exact, is Mean. A reshape between the two
    follows it, unless it only keeps the axes."""
    total, count = op.operands
    if op.defn.short == "mul" and splat_of(total) is not None:
        total, count = count, total
    view = made_by(total, "reshape")
    reduce = made_by(view.operands[0] if view else total, "reduce_sum")
    if reduce is None:
        return None
    x, named = reduce.operands[0], reduce.defn.named(reduce.attrs)
    t = type_of(x)
    if not t.is_static or (t.rank and not named["axes"]) or {named["accum_dtype"], named["out_dtype"]} - {None, t.dtype}:
        return None
    axes = {a % t.rank for a in named["axes"]}
    n = prod(t.static_shape[a] for a in axes)
    exact = op.defn.short == "div" or (t.dtype.is_float and n & (n - 1) == 0)
    if not n or not exact or splat_of(count) != (n if op.defn.short == "div" else 1 / n):
        return None
    shape = type_of(op.result).shape
    keeps = bool(named["keepdims"] or (view and shape == tuple(1 if i in axes else d for i, d in enumerate(t.shape))))
    attrs = {"axes": named["axes"], "keepdims": keeps}
    if view is None or keeps:
        return Match((x,), lambda emit, op, x: emit.last("Mean", emit.value(x), **attrs))
    return Match((x,), lambda emit, op, x: emit.last("Reshape", mean_of(emit.value(x), **attrs), new_shape=shape))


def index(op: Op, options: Options) -> Match | None:
    """A window of one element as a scalar is Index."""
    window = made_by(op.operands[0], "slice")
    if window is None or type_of(op.result).rank or not type_of(window.operands[0]).rank:
        return None
    at = window.attr("starts")
    return Match((window.operands[0],), lambda emit, op, x: emit.last("Index", emit.value(x), indices=at))


def strided_slice(op: Op, options: Options) -> Match | None:
    """A window reshaped to rows of a step each, of which the first column stays, is a Slice with steps."""
    firsts = made_by(op.operands[0], "slice")
    rows = made_by(firsts.operands[0], "reshape") if firsts else None
    padded = made_by(rows.operands[0], "pad") if rows else None
    if firsts is None or rows is None or padded is None or any(padded.attr("low")) or any(padded.attr("interior")):
        return None
    matrix, counts = type_of(rows.result), type_of(op.result)
    if not (matrix.is_static and counts.is_static and type_of(padded.result).is_static):
        return None
    shape, steps = matrix.static_shape[::2], matrix.static_shape[1::2]
    whole = tuple(n * s for n, s in zip(shape, steps, strict=False))
    if len(shape) != len(steps) or whole != type_of(padded.result).static_shape or shape != counts.static_shape:
        return None
    if any(firsts.attr("starts")) or firsts.attr("sizes") != tuple(d for n in shape for d in (n, 1)):
        return None
    x = padded.operands[0]
    if any(h >= s for h, s in zip(padded.attr("high"), steps, strict=True)):
        return None  # a first column would come from the padding
    if (window := made_by(x, "slice")) is not None:
        x, starts = window.operands[0], window.attr("starts")
    else:
        starts = (0,) * len(steps)
    ends = tuple(a + d for a, d in zip(starts, type_of(padded.operands[0]).static_shape, strict=True))
    return Match((x,), lambda emit, op, x: emit.last("Slice", emit.value(x), starts=starts, ends=ends, steps=steps))


def conv2d(op: Op, options: Options) -> Match | None:
    """Patches of an NHWC image times a matrix is Conv2d by that matrix in the shape HWCF."""
    patches, matrix = made_by(op.operands[0], "extract_patches"), op.operands[1]
    axes = op.attr("batch_lhs"), op.attr("contract_lhs"), op.attr("contract_rhs")
    if patches is None or type_of(matrix).rank != 2 or axes not in (((), (3,), (0,)), ((), (-1,), (0,)), ((), (3,), (-2,))):
        return None
    x, image = patches.operands[0], type_of(patches.operands[0])
    if image.rank != 4 or not (image.is_static and type_of(matrix).is_static):
        return None
    window, strides = tuple(patches.attr("window")), patches.attr("strides")
    shape = (*window, image.static_shape[3], type_of(matrix).static_shape[1])
    one_dtype = {op.attr("accum_dtype"), op.attr("out_dtype")} <= {None, image.dtype}
    if not one_dtype or patches.attr("pad_value").value or tuple(patches.attr("dilation")) != (1, 1) or 0 in shape:
        return None
    view = made_by(matrix, "reshape")
    f = view.operands[0] if view is not None and type_of(view.operands[0]).shape == shape else matrix
    attrs = {"strides": strides, "padding": _padding(image.static_shape, shape, strides, patches.attr("padding"))}

    def rule(emit: MindEmit, op: Op, x: Read, f: Read) -> Term:
        return emit.last("Conv2d", emit.value(x), reshaped(emit.value(f), shape), **attrs)

    return Match((x, f), rule)


def _padding(image: Shape, window: Shape, strides: Shape, pairs: Padding) -> Padding:
    """The word for the pads where there is one."""
    return next((word for word in ("Valid", "Same") if pads(image, window, strides, word) == pairs), pairs)


def exp2(op: Op, options: Options) -> Match | None:
    """Tiny's EXP2 in PTIR, an exp of a product with ln 2 in f64, only in f32."""
    exp = made_by(op.operands[0], "exp")
    product = made_by(exp.operands[0], "mul") if exp else None
    wide = made_by(product.operands[0], "cast") if product else None
    if product is None or wide is None or {type_of(op.result).dtype, type_of(wide.operands[0]).dtype} != {F32}:
        return None
    if splat_of(product.operands[1]) != log(2):
        return None
    x = wide.operands[0]
    ln2 = Literal(tensor(F32), pack(np.asarray(log(2), np.float32), F32))
    note = "EXP2 becomes Exp(x * ln 2) in f32: the rounding of the product grows with x"
    return Match((x,), lambda emit, op, x: emit.last("Exp", emit.value(x) * emit.constant(ln2)), note)


def division(op: Op, options: Options) -> Match | None:
    """By constants with reciprocals that are not subnormal, a product."""
    x, y = op.operands
    literal = constant_of(y)
    if literal is None or type_of(x).dtype not in (F32, F64) or options[PROFILE] == CURRENT:
        return None
    divisors = from_literal(scalar_literal(literal) if literal.splat else literal)
    with np.errstate(all="ignore"):
        reciprocals = 1 / divisors
        normal = np.isfinite(reciprocals) & (np.abs(reciprocals) >= np.finfo(reciprocals.dtype).tiny)
        exact = np.all(np.abs(np.frexp(divisors)[0]) == 0.5)
    if not normal.all():
        return None
    factor = to_literal(reciprocals, tensor(literal.type.dtype, divisors.shape))
    note = "the divisors are powers of two: their reciprocals are exact" if exact else "a reciprocal of the divisor is rounded"
    return Match((x,), lambda emit, op, x: _product(emit, x, factor), note)


def _product(emit: MindEmit, x: Read, factor: Literal) -> Term:
    a, b = emit.narrow(x), emit.constant(factor)
    if np.broadcast_shapes(a.extents, b.extents) != emit.shape:
        a = emit.value(x)
    return emit.last("Mul", a, b)


def maximum(op: Op, options: Options) -> Match | None:
    """With `lossy`, the larger of x and 0 is Relu."""
    x, y = op.operands
    if is_zero(x):
        x, y = y, x
    if not options[LOSSY] or not is_zero(y) or type_of(x).dtype not in (F32, F64):
        return None
    return Match((x,), lambda emit, op, x: emit.last("Relu", emit.value(x)), "Relu gives 0 for a NaN")


PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "select": (relu,),
    "cast": (exp2,),
    "reshape": (index, strided_slice),
    "dot_general": (conv2d,),
    "div": (mean, division),
    "mul": (mean,),
    "maximum": (maximum,),
}
