"""Constants, index and scalar arithmetic (PTO IR 4.1). Integers wrap; `pto.` and `arith.` spell the same ops."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import ASKS_NOTHING, op
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import COMMUTES, CONSTANT, PURE, Asks, Literal
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, Type
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.pto import needs
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.types import ScalarType, scalar, type_text

if TYPE_CHECKING:
    Result = ScalarType


def constant_type(*, value: Literal) -> Type:
    """A scalar of the literal's element type."""
    return scalar(value.type.dtype)


@op("pto.constant", infer=constant_type, traits=PURE | CONSTANT)
def constant(*, value: Literal) -> Array:
    """A scalar constant: `%c = pto.constant 32 : index`. PTO IR 4.1."""
    return arrays.from_literal(value)


def dtype_of(what: str, t: Type) -> DType:
    """The element type of a scalar. Raises Violation("TypeMismatch")."""
    if isinstance(t, ScalarType) or (isinstance(t, TensorType) and not t.shape):
        return t.dtype
    raise Violation("TypeMismatch", f"{what} is {type_text(t)}, expected a scalar")


def same(a: Type, b: Type) -> DType:
    """Two scalars of one type."""
    x, y = dtype_of("operand 0", a), dtype_of("operand 1", b)
    require(x is y, "TypeMismatch", f"the operands are {type_text(a)} and {type_text(b)}, expected one type")
    return x


def integers(a: Type, b: Type) -> Type:
    """Two integers of one type, including `index` and `i1`; the result has it."""
    dtype = same(a, b)
    require(not dtype.is_float, "TypeMismatch", f"the operands are {type_text(a)}, expected integers")
    return scalar(dtype)


def floats(a: Type, b: Type) -> Type:
    """Two floats of one type; the result has it."""
    dtype = same(a, b)
    require(dtype.is_float, "TypeMismatch", f"the operands are {type_text(a)}, expected floats")
    return scalar(dtype)


def binary(name: str, infer: Callable[..., Type], fn: n.Function, doc: str, asks: Asks = ASKS_NOTHING) -> None:
    """Declare a scalar op of two operands of one type."""

    def body(a: Array, b: Array, *, out: Result) -> Array:
        return n.apply(fn, out.dtype, a, b)

    body.__doc__ = doc
    fails = needs.divisor_fails if name in _DIVISIONS else None
    op(f"pto.{name}", infer=infer, traits=PURE | COMMUTES if name in _COMMUTE else PURE, asks=asks, fails=fails)(body)


_INTEGER: dict[str, tuple[n.Function, str]] = {
    "addi": (lambda a, b: a + b, "Integer sum."),
    "subi": (lambda a, b: a - b, "Integer difference."),
    "muli": (lambda a, b: a * b, "Integer product."),
    "divsi": (n.divide, "Signed integer quotient, rounded toward zero; by zero is a run-time error."),
    "divui": (n.unsigned(n.divide), "Unsigned integer quotient; by zero is a run-time error."),
    "remsi": (n.remainder, "Signed remainder, with the sign of the dividend."),
    "remui": (n.unsigned(n.remainder), "Unsigned remainder."),
    "floordivsi": (n.floor_divide, "Signed integer quotient, rounded down."),
    "ceildivsi": (n.ceil_divide, "Signed integer quotient, rounded up."),
    "minsi": (MINIMUM, "The smaller of two signed integers."),
    "maxsi": (MAXIMUM, "The larger of two signed integers."),
    "minui": (n.unsigned(MINIMUM), "The smaller of two unsigned integers."),
    "maxui": (n.unsigned(MAXIMUM), "The larger of two unsigned integers."),
    "andi": (lambda a, b: a & b, "Bitwise and."),
    "ori": (lambda a, b: a | b, "Bitwise or."),
    "xori": (lambda a, b: a ^ b, "Bitwise exclusive or."),
    "shli": (n.shift_left, "Shift left."),
    "shrsi": (n.shift_right, "Arithmetic shift right."),
    "shrui": (n.unsigned(n.shift_right), "Logical shift right."),
}
_DIVISIONS = {"divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi"}
_COMMUTE = {"addi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui"}
_FLOAT: dict[str, tuple[n.Function, str]] = {
    "addf": (lambda a, b: a + b, "Float sum."),
    "subf": (lambda a, b: a - b, "Float difference."),
    "mulf": (lambda a, b: a * b, "Float product."),
    "divf": (lambda a, b: a / b, "Float quotient."),
    "maximumf": (MAXIMUM, "The larger of two floats, where 0.0 is above -0.0; a NaN wins."),
    "minimumf": (MINIMUM, "The smaller of two floats, where -0.0 is below 0.0; a NaN wins."),
}
_ASKS = {"addi": needs.SUM, "muli": needs.PRODUCT, "maxsi": needs.NO_MORE, "minsi": needs.NO_MORE}
for _name, (_fn, _doc) in _INTEGER.items():
    binary(_name, integers, _fn, _doc, _ASKS.get(_name, ASKS_NOTHING))
for _name, (_fn, _doc) in _FLOAT.items():
    binary(_name, floats, _fn, _doc)

_PREDICATES = {
    "eq": "EQ", "ne": "NE", "slt": "LT", "sle": "LE", "sgt": "GT", "sge": "GE", "ult": "LT", "ule": "LE", "ugt": "GT",
    "uge": "GE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE",
    "oeq": "EQ", "one": "NE", "une": "NE", "olt": "LT", "ole": "LE", "ogt": "GT", "oge": "GE",
}  # fmt: skip


def compare_type(a: Type, b: Type, *, predicate: str) -> Type:
    """Two scalars of one type; the result is i1."""
    same(a, b)
    known = ", ".join(_PREDICATES)
    require(predicate in _PREDICATES, "TypeMismatch", f"`{predicate}` is not a comparison (known: {known})", at=predicate)
    return scalar(I1)


def compare(a: Array, b: Array, predicate: str) -> Array:
    """The comparison `predicate` names; one that begins with u is of unsigned integers."""
    with np.errstate(all="ignore"):
        fn = n.COMPARISONS[_PREDICATES[predicate]]
        wide = n.unsigned(fn)(a, b) if predicate[0] == "u" and n.is_integer(a) else fn(arrays.widen(a), arrays.widen(b))
        return np.asarray(wide, np.bool_) & (predicate != "one" or ~np.isnan(a.astype(np.float64) + b.astype(np.float64)))


@op("pto.cmpi", infer=compare_type, traits=PURE)
def cmpi(a: Array, b: Array, *, predicate: str) -> Array:
    """Compare two integers: `%p = arith.cmpi slt, %a, %b : index`."""
    return compare(np.asarray(a), np.asarray(b), predicate)


@op("pto.cmpf", infer=compare_type, traits=PURE)
def cmpf(a: Array, b: Array, *, predicate: str) -> Array:
    """Compare two floats; with a NaN only `une` is true."""
    return compare(np.asarray(a), np.asarray(b), predicate)


def select_type(condition: Type, a: Type, b: Type) -> Type:
    """An i1 and two scalars of one type."""
    require(
        dtype_of("operand 0", condition) is I1, "TypeMismatch", f"operand 0 is {type_text(condition)}, expected i1", at=operand(0)
    )
    return scalar(same(a, b))


@op("pto.select", infer=select_type, traits=PURE)
def select(condition: Array, a: Array, b: Array) -> Array:
    """`a` where the condition is true, else `b`."""
    return np.asarray(a if condition else b)


def conversion(name: str, kinds: str, doc: str, asks: Asks = ASKS_NOTHING) -> None:
    """Declare a conversion; `kinds` are the kinds of source and target: f(loat) or i(nteger)."""

    def infer(x: Type, *, to: ScalarType) -> Type:
        for kind, t in zip(kinds, (dtype_of("operand 0", x), dtype_of("the result", to)), strict=True):
            wrong = f"{name} does not take {type_text(x)} to {type_text(to)}"
            require(t.is_float == (kind == "f"), "TypeMismatch", wrong)
        return to

    def body(x: Array, *, to: ScalarType) -> Array:
        source = np.asarray(x)
        return np.asarray(n.convert(source, n.dtype_of(source), to.dtype, "CAST_TRUNC"))

    body.__doc__ = doc
    op(f"pto.{name}", infer=infer, traits=PURE, asks=asks)(body)


conversion(
    "index_cast",
    "ii",
    "Between index and an integer type, or two integer types; bits that do not fit are dropped.",
    needs.NO_MORE,
)
conversion("extsi", "ii", "A signed integer to a wider one.")
conversion("trunci", "ii", "An integer to a narrower one; the high bits are dropped.")
conversion("extf", "ff", "A float to a wider one.")
conversion("truncf", "ff", "A float to a narrower one, rounded to nearest even.")
conversion("sitofp", "if", "An integer to a float, rounded to nearest even.")
conversion("fptosi", "fi", "A float to an integer, truncated; it saturates, NaN gives 0.")
