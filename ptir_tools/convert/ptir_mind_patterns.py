"""Where several PTIR ops say what one operation of MIND says, and what holds only under a condition or within rounding.

A pattern is a function of the op and the options that gives a Match or None. It looks at definitions only; what it absorbs is
not translated unless something else uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ptir_tools.core.arrays import from_literal, pack, to_literal
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import TensorType, tensor

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


@dataclass(slots=True)
class Match:
    """`build` makes the result from the operands `needs`; `note` says under which condition."""

    needs: tuple[Operand, ...]
    build: Callable[[Any], Value]
    note: str = ""


def defined_by(x: Operand, short: str) -> Op | None:
    """The op called `short` that defines `x`, or None."""
    return x.op if isinstance(x, Value) and x.op is not None and x.op.defn.short == short else None


def constant_of(x: Operand) -> Literal | None:
    """The literal that `x` is, before any broadcast; None when it is no constant or its payload is missing."""
    while (op := defined_by(x, "broadcast_to")) is not None:
        x = op.operands[0]
    if (op := defined_by(x, "constant")) is not None:
        x = op.attr("value")
    return x if isinstance(x, Literal) and x.data is not None else None


def splat_of(x: Operand) -> Any:
    """The one value of all elements of the constant `x`, or None."""
    literal = constant_of(x)
    if literal is None or not (literal.splat or literal.type.count == 1):
        return None
    return from_literal(scalar_literal(literal)).item()


def scalar_literal(literal: Literal) -> Literal:
    """The rank-0 literal of a literal whose elements are all one value."""
    return Literal(tensor(literal.type.dtype), literal.data)


def type_of(x: Operand) -> TensorType:
    t: Any = x.type  # type: ignore[union-attr]
    return tensor(t.dtype, t.shape)


def is_zero(x: Operand) -> bool:
    """Whether `x` is a constant of positive zeros."""
    literal = constant_of(x)
    return literal is not None and not any(literal.data or b"1")


def relu(op: Op, options: Options) -> Match | None:
    """select(x > 0, x, 0) is Relu, for a NaN too."""
    pred, x, zero = op.operands
    compare = defined_by(pred, "compare_gt")
    if compare is None or compare.operands[0] is not x or not is_zero(compare.operands[1]) or not is_zero(zero):
        return None
    if not type_of(x).dtype.is_float:
        return None
    return Match((x,), lambda emit: emit.last("Relu", emit.value(x)))


def mean(op: Op, options: Options) -> Match | None:
    """A sum divided by the number of its terms is Mean."""
    total, count = op.operands
    reduce = defined_by(total, "reduce_sum")
    if reduce is None:
        return None
    x, named = reduce.operands[0], reduce.defn.named(reduce.attrs)
    t = type_of(x)
    if not t.is_static or not named["axes"] or {named["accum_dtype"], named["out_dtype"]} - {None, t.dtype}:
        return None
    n = prod(t.static_shape[a] for a in named["axes"])
    if not n or splat_of(count) != n:
        return None
    attrs = {"axes": named["axes"], "keepdims": named["keepdims"]}
    return Match((x,), lambda emit: emit.last("Mean", emit.value(x), **attrs))


def division(op: Op, options: Options) -> Match | None:
    """By constant powers of two whose reciprocals are exact, a product; with `lossy`, by any constant."""
    x, y = op.operands
    literal = constant_of(y)
    if literal is None or not type_of(x).dtype.is_float:
        return None
    divisors = from_literal(scalar_literal(literal) if literal.splat else literal)
    with np.errstate(all="ignore"):
        reciprocals = 1 / divisors
        normal = np.isfinite(reciprocals) & (np.abs(reciprocals) >= np.finfo(reciprocals.dtype).tiny)
        exact = np.all((np.abs(np.frexp(divisors)[0]) == 0.5) & normal)
    if not exact and not options.lossy:
        return None
    factor = to_literal(reciprocals, tensor(literal.type.dtype, divisors.shape))
    note = "the divisors are powers of two: their reciprocals are exact" if exact else "a reciprocal of the divisor is rounded"
    return Match((x,), lambda emit: _product(emit, x, factor), note)


def _product(emit: Any, x: Operand, factor: Literal) -> Value:
    a, b = emit.slim(x), emit.constant(factor)
    if np.broadcast_shapes(a.type.static_shape, b.type.static_shape) != emit.shape:
        a = emit.value(x)
    made: Value = emit.last("Mul", a, b)
    return made


def _lossy(build: Callable[[Any, Operand], Value], note: str) -> Callable[[Op, Options], Match | None]:
    """A pattern of one float operand, taken with `lossy` alone."""

    def pattern(op: Op, options: Options) -> Match | None:
        x = op.operands[0]
        if not options.lossy or not type_of(x).dtype.is_float:
            return None
        return Match((x,), lambda emit: build(emit, x), note)

    return pattern


def _abs(emit: Any, x: Operand) -> Value:
    v = emit.value(x)
    made: Value = emit.last("Add", emit("Relu", v), emit("Relu", emit("Neg", v)))
    return made


def _reciprocal(emit: Any, x: Operand) -> Value:
    made: Value = emit.last("Exp", emit("Neg", emit("Log", emit.value(x))))
    return made


def _rsqrt(emit: Any, x: Operand) -> Value:
    t = tensor(emit.type.dtype)
    half = emit.constant(Literal(t, pack(np.asarray(-0.5, t.dtype.numpy), t.dtype)))
    made: Value = emit.last("Exp", emit("Mul", emit("Log", emit.value(x)), half))
    return made


def maximum(op: Op, options: Options) -> Match | None:
    """With `lossy`, the larger of x and 0 is Relu."""
    x, y = op.operands
    if is_zero(x):
        x, y = y, x
    if not options.lossy or not is_zero(y) or not type_of(x).dtype.is_float:
        return None
    return Match((x,), lambda emit: emit.last("Relu", emit.value(x)), "Relu gives 0 for a NaN")


PATTERNS: dict[str, tuple[Callable[[Op, Options], Match | None], ...]] = {
    "select": (relu,),
    "div": (mean, division),
    "maximum": (maximum,),
    "abs": (_lossy(_abs, "NaN becomes 0"),),
    "reciprocal": (_lossy(_reciprocal, "through Log: positive numbers only, and rounded"),),
    "rsqrt": (_lossy(_rsqrt, "through Log: rounded"),),
}
