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
from ptir_tools.rewrite.vocabulary import made_by, tensor_type

Pair = tuple[Operand, Operand]
Ints = tuple[int, ...]


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
    if (op := made_by(x, opcode)) is None:
        return None
    for a, b in (op.operands, op.operands[::-1]) if opcode == "Add" else (op.operands,):
        if (n := _number(b)) is not None:
            return a, n
    return None


def _shares(x: Operand) -> tuple[Operand, int, Array] | None:
    """The operand, the divisor and the signs of the results (all 1, or of the shape of a constant), where `x` is the quotient of
    integers by one number."""
    if not tensor_type(x).dtype.is_integer:
        return None
    if (op := made_by(x, "Div")) is not None:
        by = _array(op.operands[1])
        n = 0 if by is None or not by.size else abs(int(by.reshape(-1)[0]))
        return (op.operands[0], n, np.sign(by)) if by is not None and n and np.all(np.abs(by.astype(object)) == n) else None
    if (last := _share(x)) is None:
        return None
    source, row = last
    n, turn = len(row), row[0]
    while (found := _share(source)) is not None and (found[1][0] == 1).all():
        source, n = found[0], n * len(found[1])
    return (source, n, turn) if n <= -tensor_type(x).dtype.min else None


def _share(x: Operand) -> tuple[Operand, Array] | None:
    """The operand and the constant, where `x` is the Mean along a new first axis of a product with signs, and of zeros."""
    step = made_by(x, "Mean")
    product = None if step is None else made_by(step.operands[0], "Mul")
    if step is None or product is None or step.attr("axes") != (0,) or step.attr("keepdims"):
        return None
    for a, b in (product.operands, product.operands[::-1]):
        row = _array(b)
        if row is None or row.ndim != tensor_type(a).rank + 1 or tensor_type(a).shape != tensor_type(x).shape:
            continue
        if len(row) > 1 and (abs(row[0]) == 1).all() and not row[1:].any():
            return a, row
    return None


def quotient(x: Operand) -> tuple[Operand, int] | None:
    """The operand and the divisor, where `x` is the quotient of integers by one number."""
    found = _shares(x)
    if found is None:
        return None
    source, n, turn = found
    same = turn.size and (turn == turn.reshape(-1)[0]).all()
    return (source, int(turn.reshape(-1)[0]) * n) if same else None


def _signs(x: Operand, sign: int) -> tuple[Operand, Array] | None:
    """y and the results, where `x` gives these where y is below (`sign` -1) or above 0, and 0 elsewhere."""
    whole = _shares(x)
    quarter = 1 << tensor_type(x).dtype.bits - 2
    rest = None if whole is None or whole[1] != quarter else _plus(whole[0], "Add" if sign > 0 else "Sub")
    difference = None if rest is None or rest[1] != quarter - 1 else made_by(rest[0], "Sub")
    if whole is None or difference is None:
        return None
    y, half = difference.operands
    return (y, whole[2] * sign) if quotient(half) == (y, 2) else None


def _beyond(x: Operand) -> tuple[Operand, int, bool] | None:
    """y, a number m and whether y is above m, where `x` is 1 if y is above m or if y is at most m, else 0."""
    whole = quotient(x)
    quarter = 1 << tensor_type(x).dtype.bits - 2
    if whole is None or abs(whole[1]) != quarter:
        return None
    above = whole[1] > 0
    if (rest := _plus(whole[0], "Add" if above else "Sub")) is None:
        return None
    near, n = rest
    k = quarter - 1 - n if above else n - quarter
    if not (0 <= k < quarter - 1 if above else -quarter < k < 0):
        return None
    if (half := quotient(near)) is not None and half[1] == 2:
        return half[0], 2 * k + above, above
    difference = made_by(near, "Sub")
    if difference is None or quotient(difference.operands[1]) != (difference.operands[0], 2):
        return None
    return difference.operands[0], 2 * k + (not above), above


def _sign(x: Operand, sign: int) -> Operand | None:
    found = _signs(x, sign)
    return found[0] if found is not None and (found[1] == 1).all() else None


def negative(x: Operand) -> Operand | None:
    """y, where `x` is 1 if y is below 0, else 0."""
    return _sign(x, -1)


def positive(x: Operand) -> Operand | None:
    """y, where `x` is 1 if y is above 0, else 0."""
    return _sign(x, 1)


def is_zero(x: Operand) -> Operand | None:
    """y, where `x` is 1 if y is 0, else 0."""
    low = tensor_type(x).dtype.min
    if (whole := quotient(x)) is None or whole[1] not in (low, -low):
        return None
    y = _plus(whole[0], "Add")
    return y[0] if y is not None and y[1] == low and (whole[1] == low) else None


def less(x: Operand) -> Pair | None:
    """a and b, where `x` is 1 if a is below b, else 0."""
    step = made_by(x, "Mean")
    total = None if step is None else made_by(step.operands[0], "Add")
    if step is None or total is None or step.attr("axes") != (0,) or step.attr("keepdims"):
        return None
    for tests, ones in (total.operands, total.operands[::-1]):
        found = _signs(tests, -1) if _is_along(ones, 1, 1, 0) else None
        if found is None or found[1].reshape(-1).tolist() != [1, -1, 1]:
            continue
        stack = made_by(found[0], "Add")
        if stack is None:
            continue
        for first, second in (stack.operands, stack.operands[::-1]):
            a, b = _term(first, (1, 0, 1)), _term(second, (0, 1, -1))
            if a is not None and b is not None:
                return a, b
    return None


def _is_along(x: Operand, *numbers: int) -> bool:
    """Whether `x` is the constant of these numbers along its first axis."""
    found = _array(x)
    return found is not None and found.shape[:1] == (len(numbers),) and found.reshape(-1).tolist() == list(numbers)


def _term(x: Operand, numbers: Ints) -> Operand | None:
    """y of the product of y and these numbers along a new first axis."""
    product = made_by(x, "Mul")
    for y, row in (product.operands, product.operands[::-1]) if product is not None else ():
        if _is_along(row, *numbers) and tensor_type(row).rank > tensor_type(y).rank:
            return y
    return None


def _from_one(x: Operand) -> Operand | None:
    """y of 1 - y."""
    op = made_by(x, "Sub")
    return op.operands[1] if op is not None and _number(op.operands[0]) == 1 else None


def _is_mask(x: Operand) -> bool:
    """Whether `x` is 0 or 1 by what defines it."""
    known = _array(x)
    if known is not None:
        return bool(np.isin(known, (0, 1)).all())
    inverse = _from_one(x)
    if inverse is not None:
        return _is_mask(inverse)
    product = made_by(x, "Mul")
    if product is not None:
        return all(map(_is_mask, product.operands))
    return any(test(x) is not None for test in (negative, positive, is_zero, less, _beyond))


def _limited(mask: Operand, x: Operand, y: Operand) -> Match | None:
    """The larger or smaller of y and a number, where `mask` shows whether y is beyond that number; x where it does, else y."""
    if (found := _beyond(mask)) is None:
        return None
    source, m, above = found
    for v, n, first in ((x, _number(y), True), (y, _number(x), False)):
        if v is source and n is not None and n in (m, m + 1):
            return Match((v,), _by_number("maximum" if above == first else "minimum", n))
    return None


def _against(kind: str, n: int) -> Callable[..., Value]:
    """The mask of a comparison with a number."""

    def rule(emit: PtirEmit, op: Op, x: Value) -> Value:
        return emit.last("cast", emit(f"compare_{kind}", emit.full(x), emit.filled(n)), dtype=emit.type.dtype)

    return rule


def _compared(kind: str) -> Callable[..., Value]:
    """The mask of a comparison; of one operand, with 0."""

    def rule(emit: PtirEmit, op: Op, x: Value, y: Value | None = None) -> Value:
        flag = emit(f"compare_{kind}", emit.full(x), emit.filled(0) if y is None else emit.full(y))
        return emit.last("cast", flag, dtype=emit.type.dtype)

    return rule


def _picked(op: Op) -> Match | None:
    """y + mask * (x - y) is a choice, of ordered operands the larger or smaller."""
    for y, product in (op.operands, op.operands[::-1]):
        made = made_by(product, "Mul")
        for mask, difference in (made.operands, made.operands[::-1]) if made is not None else ():
            sub = made_by(difference, "Sub")
            if sub is None or sub.operands[1] is not y or not _is_mask(mask):
                continue
            x = sub.operands[0]
            if (pair := less(mask)) in ((x, y), (y, x)):
                return Match((x, y), _whole("minimum" if pair == (x, y) else "maximum"))
            if (limited := _limited(mask, x, y)) is not None:
                return limited
            return Match((mask, x, y), _select)
    return None


def _size(op: Op) -> Match | None:
    """x * (1 - (m + m)), where m is 1 if x is below 0, is the magnitude."""
    for x, sign in (op.operands, op.operands[::-1]):
        twice = None if (inner := _from_one(sign)) is None else made_by(inner, "Add")
        if twice is not None and twice.operands[0] is twice.operands[1] and negative(twice.operands[0]) is x:
            return Match((x,), same("abs"))
    return None


def _divided(x: Operand) -> tuple[Operand, int] | None:
    """The operand and the divisor of a quotient, which may be negated."""
    if (op := made_by(x, "Neg")) is None:
        return quotient(x)
    found = quotient(op.operands[0])
    return None if found is None else (found[0], -found[1])


def _left_over(x: Operand) -> tuple[Operand, int] | None:
    """The dividend and the divisor, where `x` is the remainder of a quotient toward zero."""
    difference = made_by(x, "Sub")
    product = None if difference is None else made_by(difference.operands[1], "Mul")
    for part, by in (product.operands, product.operands[::-1]) if product is not None else ():
        if difference is not None and (n := _number(by)) is not None and _divided(part) == (difference.operands[0], n):
            return difference.operands[0], n
    return None


def _modulo(op: Op) -> Match | None:
    """A remainder, and the divisor where that has the other sign."""
    for left, product in (op.operands, op.operands[::-1]):
        found, made = _left_over(left), made_by(product, "Mul")
        for other, by in (made.operands, made.operands[::-1]) if found is not None and made is not None else ():
            if found is None or _number(by) != found[1]:
                continue
            source, n = found
            size = max(2, 1 << (abs(n) - 1).bit_length())
            test = quotient(other)
            near = None if test is None or abs(test[1]) != size else _plus(test[0], "Sub" if n > 0 else "Add")
            small = test is not None and test[1] * n < 0 and near == (left, size - 1)
            if small or (negative if n > 0 else positive)(other) is left:
                return Match((source,), _by_number("mod", n))
    return None


def _whole(name: str) -> Callable[..., Value]:
    return lambda emit, op, x, y: emit.last(name, emit.full(x), emit.full(y))


def _by_number(name: str, n: int) -> Callable[..., Value]:
    return lambda emit, op, x: emit.last(name, emit.full(x), emit.filled(n))


def _select(emit: PtirEmit, op: Op, mask: Value, x: Value, y: Value) -> Value:
    """By the i1 that the mask was made of."""
    cast = mask.op
    pred = cast.operands[0] if cast is not None and cast.defn.short == "cast" else emit("cast", mask, dtype=I1)
    return emit.last("select", emit.full(pred), emit.full(x), emit.full(y))


def _equal(kind: str, y: Operand) -> Match:
    """The comparison of y with 0, or of the operands of the difference that y is."""
    difference = made_by(y, "Sub")
    return Match((y,) if difference is None else difference.operands, _compared(kind))


def _mask(x: Operand, inverted: bool = False) -> Match | None:
    """The comparison whose mask, or what is left of its mask from 1, `x` is."""
    if (y := negative(x)) is not None:
        return Match((y,), _compared("ge" if inverted else "lt"))
    if (y := positive(x)) is not None:
        return Match((y,), _compared("le" if inverted else "gt"))
    if (y := is_zero(x)) is not None:
        return _equal("ne" if inverted else "eq", y)
    if (pair := less(x)) is not None:
        return Match(pair, _compared("ge" if inverted else "lt"))
    if (found := _beyond(x)) is not None:
        y, m, above = found
        return Match((y,), _against("gt" if above != inverted else "le", m))
    return None


def _pattern(op: Op, options: Options) -> Match | None:
    x = op.results[0]
    if not tensor_type(x).dtype.is_integer:
        return None
    if (found := _mask(x)) is not None:
        return found
    if (whole := _divided(x)) is not None and op.defn.short != "Div":
        return Match((whole[0],), _by_number("div", whole[1]))
    if op.defn.short == "Mul":
        return _size(op)
    if op.defn.short == "Add":
        return _modulo(op) or _picked(op)
    if op.defn.short == "Sub" and (y := positive(op.operands[0])) is not None and negative(op.operands[1]) is y:
        return Match((y,), same("sign"))
    if (left := _left_over(x)) is not None:
        return Match((left[0],), _by_number("rem", left[1]))
    inner = _from_one(x)
    return None if inner is None else _mask(inner, inverted=True)


INTEGERS: dict[str, tuple[Pattern, ...]] = dict.fromkeys(("Mean", "Div", "Neg", "Mul", "Add", "Sub"), (_pattern,))
