"""Conversion of Python values to attributes: lists to tuples, names to dtypes and symbols, numbers to scalars, NumPy's numbers
to Python's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from operator import index

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Argument, Attr, Attribute, Literal, Operand, operand_type
from ptir_tools.core.typed import SupportsFloat, SupportsIndex, TypeVar, cast
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, sym
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS, SCALAR_KINDS, Attrs, AttrValue
from ptir_tools.dialects.ptir.text.spelling import DTYPES
from ptir_tools.rewrite.expression import Number

T = TypeVar("T")

_WORDS = {
    "int": "an integer",
    "bool": "True or False",
    "float": "a number",
    "str": "a text",
    "tuple[int, ...]": "a list of integers",
    "tuple[float, ...]": "a list of numbers",
    "tuple[tuple[int, int], ...]": "a list of pairs of integers",
    "Shape": "a list of integers and names",
    "NewShape": "a list of integers and names",
    "Scalar": "a number",
    "Attrs": "a dict of numbers, flags, texts and lists of one of them",
    **{kind: " or ".join(known) for kind, known in ENUMERATIONS.items()},
}


def attribute(attr: Attr, x: object, operands: Sequence[Argument]) -> Attribute:
    """`x` as a value of the attribute `attr`; a scalar has the kind natural to the first of the `operands`.

    Raises Violation: "InvalidAttributeValue" for another kind of thing, "DTypeNotSupported" for a name that is not a dtype's.
    """
    kind = attr.kind.removesuffix(" | None")
    try:
        if kind == "Scalar":
            return _scalar(x, operands[0])
        return None if x is None and kind != attr.kind else _FROM_PYTHON[kind](x)
    except (TypeError, ValueError, KeyError):
        message = f"{attr.name} is {x!r}; {_WORDS.get(kind, kind)} is wanted"
        raise Violation("InvalidAttributeValue", message, at=attr.name) from None


def dtype_named(dtype: str | DType) -> DType:
    """A dtype by its name in PTIR. Raises Violation("DTypeNotSupported")."""
    if isinstance(dtype, DType):
        return dtype
    if dtype not in DTYPES:
        raise Violation("DTypeNotSupported", f"there is no dtype {dtype!r}", help=f"one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def extents(shape: Iterable[Dim | str]) -> Shape:
    """A shape; strings are symbols. Raises TypeError for anything else."""
    if isinstance(shape, str):
        raise TypeError(f"a shape is a list, not {shape!r}")
    return tuple(d if isinstance(d, Sym) else sym(d.removeprefix("?")) if isinstance(d, str) else _integer(d) for d in shape)


def natural(value: Number, dtype: DType) -> scalars.Scalar:
    """A Python number as a scalar for `dtype`, of the kind natural to it where no value is lost."""
    kind = scalars.natural_kind(dtype)
    if kind == scalars.FLOAT and not isinstance(value, complex):
        return scalars.Scalar(kind, float(value))
    if kind == scalars.COMPLEX or isinstance(value, complex):
        return scalars.Scalar(scalars.COMPLEX, complex(value))
    if isinstance(value, bool):
        return scalars.Scalar(scalars.I1, value)
    if isinstance(value, int):
        return scalars.Scalar(kind if value >= 0 else scalars.SIGNED, value)
    return scalars.Scalar(scalars.FLOAT, value)


def plain(x: object) -> object:
    """A number or nested lists of them as Python's own types; NumPy's are converted by `tolist`."""
    return x.tolist() if hasattr(x, "tolist") else x


def _scalar(x: object, operand: Argument) -> object:
    if not isinstance(operand, Operand):
        raise TypeError(x)
    t = operand_type(operand)
    value = plain(x)
    if isinstance(x, scalars.Scalar) or not isinstance(t, TensorType):
        return x
    if not isinstance(value, (bool, int, float, complex)):
        raise TypeError(x)
    return natural(value, t.dtype)


def _integer(x: SupportsIndex) -> int:
    if isinstance(x, bool):
        raise TypeError(x)
    return index(x)


def _flag(x: object) -> bool:
    if not isinstance(plain(x), bool):
        raise TypeError(x)
    return bool(x)


def _float(x: SupportsFloat) -> float:
    if not isinstance(plain(x), Real) or isinstance(plain(x), bool):
        raise TypeError(x)
    return float(x)


def _text(x: object) -> str:
    if not isinstance(x, str):
        raise TypeError(x)
    return x


def _pair(x: Iterable[SupportsIndex]) -> tuple[int, int]:
    low, high = x
    return _integer(low), _integer(high)


def _literal(x: object) -> Literal:
    if not isinstance(x, Literal):
        raise TypeError(x)
    return x


def _several(each: Callable[[Attribute], T]) -> Callable[[Iterable[Attribute]], tuple[T, ...]]:
    return lambda x: tuple(map(each, x))


def _one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    return lambda x: known[known.index(x)]


def _attrs(x: Mapping[str, object] | Attrs) -> Attrs:
    return tuple(sorted((_text(key), _custom(value)) for key, value in x.items())) if isinstance(x, Mapping) else tuple(x)


def _custom(value: object) -> tuple[str, AttrValue]:
    """An attribute of a custom call with its kind; an empty list is an I64Array."""
    value = plain(value)
    if isinstance(value, (list, tuple)):
        kinds = {SCALAR_KINDS[type(v)] for v in value} or {"I64"}
        if len(kinds) > 1:
            raise TypeError(value)
        return kinds.pop() + "Array", tuple(value)
    return SCALAR_KINDS[type(value)], cast("AttrValue", value)


_FROM_PYTHON: dict[str, Callable[[Attribute], object]] = {
    "int": _integer,
    "bool": _flag,
    "float": _float,
    "str": _text,
    "DType": dtype_named,
    "tuple[int, ...]": _several(_integer),
    "tuple[float, ...]": _several(_float),
    "tuple[tuple[int, int], ...]": _several(_pair),
    "Shape": extents,
    "NewShape": extents,
    "Literal": _literal,
    "Attrs": _attrs,
    **{kind: _one_of(known) for kind, known in ENUMERATIONS.items()},
}
