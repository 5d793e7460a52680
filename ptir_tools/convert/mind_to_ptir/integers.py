"""MIND to PTIR: quotients, comparisons and choices of integers, found in the formulas that `ptir_to_mind` makes of them.

A formula may have any shape, so these are matched op by op: `Parts` reads definitions. What a formula absorbs stays where it has
other uses.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.convert.emitter import Match, Pattern
from ptir_tools.convert.to_ptir import PtirEmit, same
from ptir_tools.core.arrays import Array, from_literal
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.dialects.mind.ops.reduce import truncated
from ptir_tools.rewrite.vocabulary import tensor_type

Pair = tuple[Operand, Operand]


def _made(x: Operand, *opcodes: str) -> Op | None:
    """The op that defines `x`, if it is one of these."""
    op = x.op if isinstance(x, Value) else None
    return op if op is not None and op.defn.short in opcodes else None


def _array(x: Operand) -> Array | None:
    """The elements of a constant."""
    op = x.op if isinstance(x, Value) else None
    if op is None or not op.defn.is_constant or op.attr("value").data is None:
        return None
    return from_literal(op.attr("value"))


def _number(x: Operand) -> int | None:
    """The number that a constant of rank 0 is."""
    found = _array(x)
    return int(found) if found is not None and not found.shape else None


def _plus(x: Operand, opcode: str) -> tuple[Operand, int] | None:
    """The operand and the number of `x + n` or `x - n`."""
    if (op := _made(x, opcode)) is None:
        return None
    for a, b in (op.operands, op.operands[::-1]) if opcode == "Add" else (op.operands,):
        if (n := _number(b)) is not None:
            return a, n
    return None


def quotient(x: Operand) -> tuple[Operand, int] | None:
    """The operand and the divisor, where `x` is the quotient of integers by one number."""
    if (op := _made(x, "Div")) is not None:
        n = _number(op.operands[1])
        return None if n is None else (op.operands[0], n)
    if (op := _made(x, "Reshape")) is None:
        return None
    column, n = op.operands[0], 1
    while (step := _made(column, "Mean")) is not None:
        rank = tensor_type(column).rank
        product = _made(step.operands[0], "Mul")
        if step.attr("axes") != (rank - 1,) or not step.attr("keepdims") or product is None:
            return None
        a, b = product.operands
        a, b = (b, a) if _array(a) is not None else (a, b)
        row = _array(b)
        if row is None or row.ndim != 1 or tensor_type(a).shape[-1:] != (1,) or row[0] != 1 or row[1:].any():
            return None
        column, n = a, n * row.size
    start = _made(column, "Reshape")
    if n == 1 or start is None:
        return None
    source, t = start.operands[0], tensor_type(x)
    whole = tensor_type(source).shape == t.shape and tensor_type(column).shape == (*t.shape, 1)
    return (source, n) if whole and t.dtype.is_integer and n <= -t.dtype.min else None


def negative(x: Operand) -> Operand | None:
    """y, where `x` is 1 if y is below 0, else 0."""
    if (op := _made(x, "Neg")) is None or (whole := quotient(op.operands[0])) is None:
        return None
    quarter = 1 << tensor_type(x).dtype.bits - 2
    rest = _plus(whole[0], "Sub")
    if whole[1] != quarter or rest is None or rest[1] != quarter - 1 or (difference := _made(rest[0], "Sub")) is None:
        return None
    y, half = difference.operands
    return y if quotient(half) == (y, 2) else None


def not_zero(x: Operand) -> Operand | None:
    """y, where `x` is 1 if y is not 0, else 0."""
    low = tensor_type(x).dtype.min
    if (found := _plus(x, "Add")) is not None and found[1] == 1:
        inner = found[0]
        if (neg := _made(inner, "Neg")) is not None and (whole := quotient(neg.operands[0])) is not None and whole[1] == low:
            pass
        elif (whole := quotient(inner)) is None or whole[1] != -low:
            return None
        y = _plus(whole[0], "Add")
        return y[0] if y is not None and y[1] == low else None
    return None


def less(x: Operand) -> Pair | None:
    """a and b, where `x` is 1 if a is below b, else 0."""
    if (op := _made(x, "Neg")) is None or (whole := quotient(op.operands[0])) is None:
        return None
    quarter = 1 << tensor_type(x).dtype.bits - 2
    down = _plus(whole[0], "Sub")
    if whole[1] != quarter or down is None or down[1] != quarter + 1 or (total := _made(down[0], "Add")) is None:
        return None
    for apart, rest in (total.operands, total.operands[::-1]):
        quotients, part = _made(apart, "Sub"), quotient(rest)
        if quotients is None or part is None or part[1] != 4 or (left := _plus(part[0], "Add")) is None or left[1] != 8:
            continue
        both = _made(left[0], "Sub")
        difference = None if both is None else _made(both.operands[0], "Sub")
        if both is None or difference is None or not _times_four(both.operands[1], apart):
            continue
        a, b = difference.operands
        if all(_is_fourth(q, v) for q, v in zip(quotients.operands, (a, b), strict=True)):
            return a, b
    return None


def _times_four(x: Operand, of: Operand) -> bool:
    op = _made(x, "Mul")
    return op is not None and any(a is of and _number(b) == 4 for a, b in (op.operands, op.operands[::-1]))


def _is_fourth(x: Operand, of: Operand) -> bool:
    """Whether `x` is the quotient of `of` by 4."""
    known, numbers = _array(x), _array(of)
    if known is not None and numbers is not None:
        return bool(np.array_equal(known, truncated(numbers, 4)))
    return quotient(x) == (of, 4)


def _from_one(x: Operand) -> Operand | None:
    """y of 1 - y."""
    op = _made(x, "Sub")
    return op.operands[1] if op is not None and _number(op.operands[0]) == 1 else None


def _is_mask(x: Operand) -> bool:
    """Whether `x` is 0 or 1 by what defines it."""
    known = _array(x)
    if known is not None:
        return bool(np.isin(known, (0, 1)).all())
    inverse = _from_one(x)
    if inverse is not None:
        return _is_mask(inverse)
    product = _made(x, "Mul")
    if product is not None:
        return all(map(_is_mask, product.operands))
    return negative(x) is not None or not_zero(x) is not None or less(x) is not None


def _compared(kind: str) -> Callable[..., Value]:
    """The mask of a comparison; of one operand, with 0."""

    def rule(emit: PtirEmit, op: Op, x: Value, y: Value | None = None) -> Value:
        flag = emit(f"compare_{kind}", emit.full(x), emit.filled(0) if y is None else emit.full(y))
        return emit.last("cast", flag, dtype=emit.type.dtype)

    return rule


def _divided(n: int) -> Callable[..., Value]:
    def rule(emit: PtirEmit, op: Op, x: Value) -> Value:
        if n <= emit.type.dtype.max:
            return emit.last("div", x, emit.filled(n))
        return emit.last("neg", emit("div", x, emit.filled(-n)))

    return rule


def _picked(op: Op) -> Match | None:
    """y + mask * (x - y) is a choice, of ordered operands the larger or smaller, of x and -x the magnitude."""
    for y, product in (op.operands, op.operands[::-1]):
        made = _made(product, "Mul")
        for mask, difference in (made.operands, made.operands[::-1]) if made is not None else ():
            sub = _made(difference, "Sub")
            if sub is None or sub.operands[1] is not y or not _is_mask(mask):
                continue
            x = sub.operands[0]
            if (pair := less(mask)) in ((x, y), (y, x)):
                return Match((x, y), _whole("minimum" if pair == (x, y) else "maximum"))
            negated = _made(x, "Neg")
            if negated is not None and negated.operands[0] is y and negative(mask) is y:
                return Match((y,), same("abs"))
            return Match((mask, x, y), _select)
    return None


def _whole(name: str) -> Callable[..., Value]:
    return lambda emit, op, x, y: emit.last(name, emit.full(x), emit.full(y))


def _select(emit: PtirEmit, op: Op, mask: Value, x: Value, y: Value) -> Value:
    """By the i1 that the mask was made of."""
    cast = mask.op
    pred = cast.operands[0] if cast is not None and cast.defn.short == "cast" else emit("cast", mask, dtype=I1)
    return emit.last("select", emit.full(pred), emit.full(x), emit.full(y))


def _inverted(x: Operand) -> Match | None:
    """1 - mask of a comparison."""
    if (mask := _from_one(x)) is None:
        return None
    if (pair := less(mask)) is not None:
        return Match(pair, _compared("ge"))
    if (y := negative(mask)) is not None:
        return Match((y,), _compared("ge"))
    if (y := not_zero(mask)) is not None:
        difference = _made(y, "Sub")
        return Match((y,) if difference is None else difference.operands, _compared("eq"))
    return None


def _pattern(op: Op, options: Options) -> Match | None:
    x = op.results[0]
    if not tensor_type(x).dtype.is_integer:
        return None
    if (found := quotient(x)) is not None and op.defn.short == "Reshape":
        return Match((found[0],), _divided(found[1]))
    if (y := negative(x)) is not None:
        return Match((y,), _compared("lt"))
    if (y := not_zero(x)) is not None:
        difference = _made(y, "Sub")
        return Match((y,) if difference is None else difference.operands, _compared("ne"))
    if (pair := less(x)) is not None:
        return Match(pair, _compared("lt"))
    if (negated := _inverted(x)) is not None:
        return negated
    return _picked(op) if op.defn.short == "Add" else None


INTEGERS: dict[str, tuple[Pattern, ...]] = dict.fromkeys(("Reshape", "Neg", "Add", "Sub"), (_pattern,))
