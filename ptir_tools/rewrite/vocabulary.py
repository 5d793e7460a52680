"""The questions that rules, typed patterns and folds of every dialect ask: of shapes, dtypes, constants, uses, lists of axes, and
what made an operand. In a rule, `const c`, `var x` and `once y` say `constant(c)`, not that, and `has_one_use`.

A fold is declared with its op and names a value that is there already and equals the result to the bit, whatever the operands
hold. Its docstring says which, as `ptir ops` and docs/rewrites.md show it. It looks at the op and at what defines its operands.
It need not compare types: an answer of another type than the result's is not taken (`rewrite.fold`). What needs a number
(`mul(x, 1)`) is a rule, and so is what may change a NaN or the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, inf, isfinite

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import FP8_E4M3, I1, DType
from ptir_tools.core.ir import Op, Operand, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.rewrite.constants import literal_of, same_op, same_operand, scalar_of, source
from ptir_tools.rewrite.inspector import Inspector

Thing = Operand | Op

# Folds


def of_same_type(op: Op) -> Operand | None:
    """`x`, if the result has its type."""
    return op.operands[0]


def of_equal_operands(op: Op) -> Operand | None:
    """`x`, when every operand is `x`."""
    x, *others = op.operands
    return x if all(same_operand(x, y) for y in others) else None


def made_by(x: Operand, *names: str) -> Op | None:
    """The op that defines `x`, when it is called one of `names` in its dialect (`neg`)."""
    op = x.op if isinstance(x, Value) else None
    return op if op is not None and op.defn.short in names else None


# Types


def tensor_type(x: Thing) -> TensorType:
    """The type of an operand, or of an op's result, that is a tensor, as its op demands. Raises TypeError for another."""
    t = x.results[0].type if isinstance(x, Op) else operand_type(x)
    if not isinstance(t, TensorType):
        raise TypeError(str(t))
    return t


def shape(x: Thing) -> Shape:
    """The shape of an operand or result; empty for a tuple."""
    t = x.results[0].type if isinstance(x, Op) else operand_type(x)
    return t.shape if isinstance(t, TensorType) else ()


def extents(x: Thing) -> tuple[int, ...]:
    """The shape as integers. Raises ValueError when an extent is symbolic."""
    return tensor_type(x).static_shape


def dtype(x: Thing) -> DType:
    """The dtype of an operand or result."""
    return tensor_type(x).dtype


def rank(x: Thing) -> int:
    """The number of axes."""
    return len(shape(x))


def static(*things: Thing) -> bool:
    """Whether all extents are numbers."""
    return all(isinstance(d, int) for x in things for d in shape(x))


def count(x: Thing) -> int:
    """The number of elements; -1 when an extent is symbolic."""
    t = tensor_type(x)
    return t.count if t.is_static else -1


def floating(x: Thing) -> bool:
    """Whether the elements are real floats."""
    return dtype(x).is_float


def integer(x: Thing) -> bool:
    """Whether the elements are integers, not i1."""
    return dtype(x).is_integer


def boolean(x: Thing) -> bool:
    """Whether the elements are i1."""
    return dtype(x) is I1


def real(x: Thing) -> bool:
    """Whether the elements are not complex."""
    return not dtype(x).is_complex


def inexact(x: Thing) -> bool:
    """Whether the elements are floats or complex: there are NaNs among their values."""
    return dtype(x).is_float or dtype(x).is_complex


# Constants


def constant(x: Operand) -> bool:
    """Whether `x` is a constant whose payload is there, or a broadcast of one."""
    literal = literal_of(source(x))
    return literal is not None and literal.data is not None


def lowest(c: Operand) -> bool:
    """Whether all elements of a constant are the lowest value of its dtype, -inf where it has one."""
    return _is_end(c, -1)


def highest(c: Operand) -> bool:
    """Whether all elements of a constant are the highest value of its dtype, inf where it has one."""
    return _is_end(c, 1)


def _is_end(c: Operand, sign: int) -> bool:
    d, result = dtype(c), scalar_of(c)
    if d.is_integer:
        return result is not None and bool(result == (d.min if sign < 0 else d.max))
    return d.is_float and result is not None and bool(result == sign * (448.0 if d is FP8_E4M3 else inf))


def ordered(a: Operand, b: Operand) -> bool:
    """Whether the constants `a` and `b` are one number each, the first not greater."""
    x, y = scalar_of(a), scalar_of(b)
    return x is not None and y is not None and bool(x <= y)


def fits(c: Operand, d: DType) -> bool:
    """Whether the one number that the constant `c` is, no NaN, is one of the dtype `d`, too."""
    result = scalar_of(c)
    if result is None or isinstance(result, complex) or d.is_complex or result != result:
        return False
    if d.is_float:
        return bool(float(arrays.narrow(np.asarray(float(result)), d)) == result)
    return bool(result in (0, 1) if d is I1 else d.min <= result <= d.max and result == int(result))


def power_of_two(c: Operand) -> bool:
    """Whether all elements of a float constant are one power of two whose reciprocal the dtype has, too."""
    result = scalar_of(c) if floating(c) else None
    if not result or not isfinite(result) or abs(frexp(result)[0]) != 0.5:
        return False
    return bool(float(arrays.narrow(np.asarray(1 / result), dtype(c))) == 1 / result)


# Uses


def has_one_use(rw: Inspector, x: Operand, user: Op) -> bool:
    """Whether nothing but `user`, and an op that equals it, uses `x`: it dies when they are rewritten. Two uses at most, as the
    driver looks again only when so few are left."""
    if not isinstance(x, Value) or not 0 < rw.uses(x) <= 2 or rw.is_result(x):
        return False
    return all(u is user or same_op(u, user) for u in rw.users_of(x))


# Lists


def axes(given: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes in [0, rank)."""
    return tuple(a % rank if rank else a for a in given)


def compose(inner: Sequence[int], outer: Sequence[int]) -> tuple[int, ...]:
    """The permutation that does `inner`, then `outer`."""
    n = len(inner)
    first = axes(inner, n)
    return tuple(first[i] for i in axes(outer, n))


def sums(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Elementwise sums."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def products(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Elementwise products."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def zeros(xs: Sequence[int]) -> bool:
    """Whether all are 0."""
    return not any(xs)


def ones(xs: Sequence[Dim]) -> bool:
    """Whether all are 1."""
    return all(x == 1 for x in xs)


COMMON: dict[str, object] = {
    f.__name__: f
    for f in (
        tensor_type, shape, extents, dtype, rank, static, count, floating, integer, boolean, real, inexact, constant, lowest,
        highest, ordered, fits, power_of_two, has_one_use, axes, compose, sums, products, zeros, ones,
    )
}  # fmt: skip
