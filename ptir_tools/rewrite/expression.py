"""Formulas in Python: values with operators, and ops as functions of them.

    select(x < 0, -x, x)        (x + 1) * y        x * rsqrt(x)

A formula takes values and returns one. It does not say where its ops go: each value knows its *sink*, and so do the results. A
sink appends an op to a program under construction (the builder), inserts it before another op (the rewriter), or emits what a
target has instead (a conversion). The names are those of PTIR.

A number next to a value becomes a constant that fits the value. Nothing else is broadcast or promoted, unless the sink says so:
MIND's ops broadcast by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Attribute, Operand, Value
from ptir_tools.core.typed import ClassVar, Protocol, Self, TypeVar, cast
from ptir_tools.core.types import Shape, TensorType
from ptir_tools.rewrite.vocabulary import tensor_type

Number = bool | int | float | complex


class Expression:
    """A value of a sink. `op` appends an op there."""

    __slots__ = ()
    __array_ufunc__ = None  # an array on the left leaves the operator to us

    def op(self, name: str, *operands: object, **attrs: Attribute) -> Self:
        """The result of the op `name`, in the sink of this value. Operands are values, and numbers in elementwise ops."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise TypeError("a value has no truth yet: choose with `select` or `cond`")

    def __neg__(self) -> Self:
        return self.op("neg", self)

    def __abs__(self) -> Self:
        return self.op("abs", self)

    def __add__(self, other: Self | Number) -> Self:
        return self.op("add", self, other)

    def __radd__(self, other: Number) -> Self:
        return self.op("add", other, self)

    def __sub__(self, other: Self | Number) -> Self:
        return self.op("sub", self, other)

    def __rsub__(self, other: Number) -> Self:
        return self.op("sub", other, self)

    def __mul__(self, other: Self | Number) -> Self:
        return self.op("mul", self, other)

    def __rmul__(self, other: Number) -> Self:
        return self.op("mul", other, self)

    def __truediv__(self, other: Self | Number) -> Self:
        return self.op("div", self, other)

    def __rtruediv__(self, other: Number) -> Self:
        return self.op("div", other, self)

    def __lt__(self, other: Self | Number) -> Self:
        return self.op("compare_lt", self, other)

    def __le__(self, other: Self | Number) -> Self:
        return self.op("compare_le", self, other)

    def __gt__(self, other: Self | Number) -> Self:
        return self.op("compare_gt", self, other)

    def __ge__(self, other: Self | Number) -> Self:
        return self.op("compare_ge", self, other)


E = TypeVar("E", bound=Expression)


class Function(Protocol):
    """An op as a function of values and numbers, at least one a value."""

    def __call__(self, *operands: E | Number, **attrs: Attribute) -> E: ...


def function(name: str) -> Function:
    """The op `name` as a function."""

    def call(*operands: E | Number, **attrs: Attribute) -> E:
        return next(x for x in operands if isinstance(x, Expression)).op(name, *operands, **attrs)

    return call


select = function("select")
maximum, minimum = function("maximum"), function("minimum")
compare_eq, compare_ne = function("compare_eq"), function("compare_ne")
exp, log, rsqrt, reciprocal, tanh, erf = map(function, ("exp", "log", "rsqrt", "reciprocal", "tanh", "erf"))


def series(x: E, coefficients: Sequence[float]) -> E:
    """The polynomial of `x` with these coefficients, the constant first. There are at least two."""
    *rest, last = coefficients
    total = x * last + rest.pop()
    for c in reversed(rest):
        total = x * total + c
    return total


class Sink:
    """Where terms go. `names` are those of ops that the dialect calls otherwise."""

    names: ClassVar[Mapping[str, str]] = {}

    def built(self, name: str, operands: Sequence[Operand], attrs: Mapping[str, Attribute]) -> Value:
        """The result of a new op. Raises Violation when it is not well typed."""
        raise NotImplementedError

    def number(self, x: Number, dtype: DType) -> Operand:
        """A number next to a value of `dtype`, as an operand."""
        raise NotImplementedError

    def build(self, name: str, *operands: object, **attrs: Attribute) -> Term:
        """The result of a new op. A number among the operands gets the dtype of the last operand that is none."""
        known = [x for x in operands if isinstance(x, Term)]
        made = [x.operand if isinstance(x, Term) else self.number(cast("Number", x), known[-1].dtype) for x in operands]
        return Term(self, self.built(self.names.get(name, name), made, attrs))


class Term(Expression):
    """A value of a sink, of any dialect: `operand`, or what the sink makes of a number."""

    __slots__ = ("operand", "sink")

    def __init__(self, sink: Sink, operand: Operand) -> None:
        self.sink, self.operand = sink, operand

    def op(self, name: str, *operands: object, **attrs: Attribute) -> Term:
        """The result of the op `name`, in the sink of this value."""
        return self.sink.build(name, *operands, **attrs)

    def number(self, x: Number) -> Term:
        """A constant of the dtype of this value."""
        return Term(self.sink, self.sink.number(x, self.dtype))

    @property
    def type(self) -> TensorType:
        """Its type."""
        return tensor_type(self.operand)

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self.type.shape

    @property
    def extents(self) -> tuple[int, ...]:
        """Its shape. Raises ValueError for a symbol."""
        return self.type.static_shape
