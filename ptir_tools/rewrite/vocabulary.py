"""What rules and folds of every dialect ask: of shapes, dtypes, lists of axes, and what made an operand.

A fold is declared with its op and names a value that is there already and equals the result to the bit, whatever the operands
hold; its docstring says which, as `ptir ops` and docs/rewrites.md show it. It looks at the op and at what defines its operands.
It need not compare types: an answer of another type than the result's is not taken (`rewrite.fold`). What needs a number
(`mul(x, 1)`) is a rule, and so is what may change a NaN or the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.rewrite.constants import same_operand

Thing = Operand | Op

# Folds


def of_same_type(op: Op) -> Operand | None:
    """`x`, when the result has its type."""
    return op.operands[0]


def of_equal_operands(op: Op) -> Operand | None:
    """`x`, when every operand is `x`."""
    x, *others = op.operands
    return x if all(same_operand(x, y) for y in others) else None


def made_by(x: Operand, name: str) -> Op | None:
    """The op that defines `x`, when it is a `name` (`ptir.neg`)."""
    op = x.op if isinstance(x, Value) else None
    return op if op is not None and op.defn.name == name else None


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


def known(y: Thing, x: Thing) -> bool:
    """Whether every extent of `y` is a number or a symbol that `x` has: dropping `y` drops no symbol's definition."""
    return all(isinstance(d, int) or d in shape(x) for d in shape(y))


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


COMMON: dict[str, Any] = {
    f.__name__: f
    for f in (
        tensor_type, shape, extents, dtype, rank, static, known, count, floating, integer, boolean, real, inexact,
        axes, compose, sums, products, zeros, ones,
    )
}  # fmt: skip
