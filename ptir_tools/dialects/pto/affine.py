"""Index values as linear expressions of other values, for bounds, hazards and views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from ptir_tools.core.dtypes import Kind
from ptir_tools.core.expressions import Sum
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.typed import cast
from ptir_tools.dialects.pto.types import INDEX_TYPE, ScalarType

DEPTH = 64  # how far definitions are followed
_WIDE = 1 << 63
_QUOTIENTS = ("divsi", "floordivsi", "ceildivsi")


class Natural(Value):
    """An unknown number that is at least 0."""

    __slots__ = ()


Linear = Sum[Value]  # over values, none of which is multiplied by another


@lru_cache(4096)
def number(n: int) -> Linear:
    """The constant expression `n`."""
    return Sum(n, {})


def parts(x: Linear) -> Iterable[tuple[Value, int]]:
    """The values in an expression that `linear` made, each with its coefficient."""
    return cast("Mapping[Value, int]", x.terms).items()


def atom(v: Value) -> Linear:
    """The expression that is the value `v`."""
    return Sum(0, {v: 1})


Seen = dict[tuple[Value, int], Linear]  # values with the depth left for them


def linear(x: Operand, known: Mapping[Value, Linear] | None = None, depth: int = DEPTH, seen: Seen | None = None) -> Linear:
    """`x` as a linear expression; a value that is not a sum or product by a constant is a term. `known` gives the expressions
    of some values."""
    if isinstance(x, Literal):
        return number(_signed(x))
    assert isinstance(x, Value)
    if known is not None and (found := known.get(x)) is not None:
        return found
    if x.op is None or not depth:
        return atom(x)
    seen = {} if seen is None else seen
    if (found := seen.get((x, depth))) is None:
        made = _of_op(x.op, known, depth - 1, seen)
        seen[x, depth] = found = _in_type(made, x) if made is not None and abs(made.const) < _WIDE else atom(x)
    return found


def _in_type(made: Linear, x: Value) -> Linear:
    """`made`, the value of `x`, wrapped to a narrow integer type."""
    t = x.type
    if made.terms or t is INDEX_TYPE or not isinstance(t, ScalarType) or not t.dtype.is_signed:
        return made
    half = 1 << t.dtype.bits - 1
    return number((made.const + half) % (2 * half) - half)


def constant(x: Operand, known: Mapping[Value, Linear] | None = None) -> int | None:
    """The constant value of an index operand, by `known` or its definition; None when it is not constant."""
    if isinstance(x, Literal):
        return _signed(x)
    assert isinstance(x, Value)
    if x.op is None:
        return known[x].value if known and x in known else None
    if x.op.defn.is_constant and x.type is INDEX_TYPE:
        return _signed(x.op.attrs[0])
    return linear(x, known).value


def most(x: Operand, counters: Mapping[Value, Op], sign: int = 1, depth: int = DEPTH) -> int | None:
    """An upper bound of an index (with a `sign` of -1: of its negative), or None. `counters` has the loop of each counter."""
    return most_of(linear(x) * sign, counters, depth)


def most_of(expression: Linear, counters: Mapping[Value, Op], depth: int = DEPTH) -> int | None:
    """An upper bound of an expression, as `most`."""
    made = expression.const
    for v, k in parts(expression) if depth else ():
        end = _most(v, counters, 1 if k > 0 else -1, depth - 1)
        if end is None:
            return None
        made += end * abs(k)
    return made if depth or not expression.terms else None


def _most(v: Value, counters: Mapping[Value, Op], sign: int, depth: int) -> int | None:
    """An upper bound of a value that is not a sum, as `most`."""
    if (loop := counters.get(v)) is not None:
        end = most(loop.operands[1 if sign > 0 else 0], counters, sign, depth)
        return None if end is None else end - (sign > 0)
    if v.op is None:
        return 0 if isinstance(v, Natural) and sign < 0 else None
    short = v.op.defn.short
    if short == "remsi" and (size := constant(v.op.operands[1])):
        below = most(v.op.operands[0], counters, -1, depth)
        return 0 if sign < 0 and below is not None and below <= 0 else abs(size) - 1
    if short in ("minsi", "maxsi"):
        ends = [most(y, counters, sign, depth) for y in v.op.operands]
        known = [e for e in ends if e is not None]
        if (short == "minsi") is (sign > 0):
            return min(known, default=None)
        return max(known) if len(known) == len(ends) else None
    return None


def _signed(x: Literal) -> int:
    return int.from_bytes(x.data or b"", "little", signed=True)


def _of_op(op: Op, known: Mapping[Value, Linear] | None, depth: int, seen: Seen) -> Linear | None:
    short = op.defn.short
    if short == "constant":
        value = op.attr("value")
        return linear(value) if value.type.dtype.kind in (Kind.INDEX, Kind.INT) else None
    if short not in ("addi", "subi", "muli", "minsi", "maxsi", "index_cast", "remsi", *_QUOTIENTS):
        return None
    parts = [linear(x, known, depth, seen) for x in op.operands]
    if short == "index_cast":
        return parts[0]
    a, b = parts
    if short == "addi":
        return a + b
    if short == "subi":
        return a - b
    if short == "muli":
        return a * b.const if not b.terms else b * a.const if not a.terms else None
    if not a.terms and not b.terms:
        return _fixed(short, a.const, b.const)
    if b.terms or b.const <= 0 or short in ("minsi", "maxsi") or any(k % b.const for k in a.terms.values()):
        return None
    if a.const % b.const and not natural(a) and short in ("divsi", "remsi"):  # which way they round is not known
        return None
    if short == "remsi":
        return a % b
    return -(-a // b) if short == "ceildivsi" else a // b


def natural(x: Linear) -> bool:
    """Whether an expression is certainly at least 0."""
    return x.const >= 0 and all(isinstance(v, Natural) and k > 0 for v, k in x.terms.items())


def _fixed(short: str, a: int, b: int) -> Linear | None:
    if short == "minsi":
        return number(min(a, b))
    if short == "maxsi":
        return number(max(a, b))
    if b == 0:
        return None
    if short in ("floordivsi", "ceildivsi"):
        return number(a // b if short == "floordivsi" else -(-a // b))
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return number(quotient if short == "divsi" else a - quotient * b)
