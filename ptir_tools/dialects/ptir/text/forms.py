"""How text PTIR spells attributes: for every kind of annotation, what is between the brackets. `attribute_text` is the way back.

Between text and kind there are plain values: int, float, str (in quotes), Word, Sym, RegionName, Payload, list, tuple (in
parentheses), Call, and Items (in braces).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core.ir import Attr
from ptir_tools.core.limits import integer
from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeAlias
from ptir_tools.core.types import Sym, TensorType, Type, sym
from ptir_tools.core.violations import Violation
from ptir_tools.core.violations import attribute as place
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS, SCALAR_KINDS, Attrs, AttrValue
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text.literals import decimal
from ptir_tools.dialects.ptir.text.spelling import read_dtype, read_symbol

if TYPE_CHECKING:
    from ptir_tools.grammars.parser import Token


class Word(str):
    """A bare word: `true`, `f32`, `add`."""


class RegionName(str):
    """The name behind `^`."""


class Payload(str):
    """What is between `dense<` and `>`."""


@dataclass(slots=True, frozen=True)
class Call:
    """`signed(3)`."""

    name: str
    values: tuple[Plain, ...]


@dataclass(slots=True, frozen=True)
class Items:
    """`{key = value, …}`; each value with the word behind a colon, if any (`[] : f64`)."""

    entries: tuple[tuple[str, Plain, str | None], ...]


Plain: TypeAlias = "int | float | str | Sym | Call | Items | list[Plain] | tuple[Plain, ...]"


def atom(token: Token) -> Plain:
    """The value of one token. Raises Violation("InvalidAttributeValue") for a number beyond float64."""
    text = str(token)
    if token.type == "WORD":
        return Word(text)
    if token.type == "SYMBOL":
        return sym(read_symbol(text))
    if token.type == "REGION":
        return RegionName(text[1:])
    if text.lstrip("+-").isdecimal():
        return integer(text)
    return float(decimal(text, "InvalidAttributeValue", text))


class Form(NamedTuple):
    """The spelling of a kind. `wanted` is what an error says that it takes, `types` are those of a value, of which there may be
    `many`; `read` gives what one means, None when it is not that."""

    wanted: str
    types: tuple[type, ...]
    read: Callable[[Any], object] = lambda value: value
    many: bool = False


def _pair(value: Sequence[Plain]) -> tuple[Plain, ...] | None:
    return tuple(value) if len(value) == 2 and all(type(x) is int for x in value) else None


_EXTENTS = Form("extents separated by commas: [2, ?N, 4]", (int, Sym), many=True)
FORMS: dict[str, Form] = {
    "int": Form("an integer", (int,)),
    "bool": Form("true or false", (Word,), {"true": True, "false": False}.get),
    "str": Form("a string in quotes", (str,)),
    "float": Form("a number", (int, float), float),
    "DType": Form("a dtype", (Word,), read_dtype),
    "tuple[int, ...]": Form("integers, separated by commas", (int,), many=True),
    "tuple[float, ...]": Form("numbers, separated by commas", (int, float), float, many=True),
    "tuple[tuple[int, int], ...]": Form("pairs of integers: [[0, 0], [1, 1]]", (list, tuple), _pair, many=True),
    "Shape": _EXTENTS,
    "NewShape": _EXTENTS,
}


def read(attr: Attr, values: Sequence[Plain], operand: Type | None) -> Any:
    """The attribute's value. `operand` is the type of the first operand, to which a scalar is natural.

    Raises Violation: "InvalidAttributeValue", "DTypeNotSupported".
    """
    kind = attr.kind.removesuffix(" | None")
    if not values and kind != attr.kind:
        return None
    if kind == "Scalar":
        return _scalar(attr, values, operand)
    if kind == "Attrs":
        return _items(attr, values)
    if kind in ENUMERATIONS:
        return _enumerated(attr, values)
    form = FORMS[kind]
    if form.many and list not in form.types and len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = values[0]  # bracketed once more, as gpt.rs does: axes[[1, 2]]
    try:
        made = [form.read(v) if type(v) in form.types else None for v in values]
    except Violation as v:
        raise Violation(v.code, v.message, help=v.help, at=place(attr.name), instead=v.instead) from None
    if None in made or (len(made) != 1 and not form.many):
        raise _wrong(attr, form.wanted, _BOOLEANS_MEANT.get(str(values[0])) if kind == "bool" and len(values) == 1 else None)
    return tuple(made) if form.many else made[0]


def _wrong(attr: Attr, wanted: str, instead: str | None = None) -> Violation:
    return Violation("InvalidAttributeValue", f"`{attr.name}` takes {wanted}", at=place(attr.name), instead=instead)


# What other systems call kinds and booleans.
_KINDS_MEANT = {"maximum": "max", "minimum": "min", "plus": "add", "sum": "add", "assign": "replace", "update": "replace"}
_BOOLEANS_MEANT = {"True": "true", "False": "false", "1": "true", "0": "false"}


def _enumerated(attr: Attr, values: Sequence[Plain]) -> str:
    known = ENUMERATIONS[attr.kind]
    value = str(values[0]) if len(values) == 1 else ""
    if value in known:
        return value
    other = _KINDS_MEANT.get(value)
    meant = other if other in known else nearest(value, known) if value else None
    message = f"`{attr.name}` {'is' if value else 'takes'} one of {', '.join(known)}"
    raise Violation("InvalidAttributeValue", message, at=place(attr.name), instead=meant)


# ---- scalars


def _scalar(attr: Attr, values: Sequence[Plain], operand: Type | None) -> Scalar:
    """A number in the kind natural to the operand, or in the kind that a word in front names."""
    if len(values) != 1:
        raise _wrong(attr, "one value")
    value = values[0]
    if isinstance(value, Call):
        kind = value.name.capitalize() if value.name in ("signed", "unsigned", "float", "complex") else value.name.upper()
        return scalar(attr, kind, value.values)
    parts = value if isinstance(value, tuple) else (value,)
    if isinstance(operand, TensorType):
        return scalar(attr, scalars.natural_kind(operand.dtype), parts)
    return scalar(attr, scalars.COMPLEX if len(parts) == 2 else scalars.FLOAT if type(value) is float else scalars.SIGNED, parts)


def scalar(attr: Attr, kind: str, values: Sequence[Any]) -> Scalar:
    """The scalar of `kind` with this value (a complex one has two). Raises Violation("InvalidAttributeValue")."""
    first = values[0] if values else None
    numbers = bool(values) and all(type(v) in (int, float) for v in values)
    if kind == scalars.I1 and len(values) == 1 and first in ("true", "false", 0, 1):
        return Scalar(kind, first in ("true", 1))
    if kind in (scalars.SIGNED, scalars.UNSIGNED) and len(values) == 1 and type(first) is int:
        low, high = (0, 2**64) if kind == scalars.UNSIGNED else (-(2**63), 2**63)
        if low <= first < high:
            return Scalar(kind, first)
    if kind == scalars.FLOAT and numbers and len(values) == 1:
        return Scalar(kind, float(values[0]))
    if kind == scalars.COMPLEX and numbers and len(values) <= 2:
        return Scalar(kind, complex(values[0], values[1] if len(values) > 1 else 0.0))
    shown = {scalars.I1: "true or false", scalars.FLOAT: "a number", scalars.COMPLEX: "(re, im)"}
    raise _wrong(attr, shown.get(kind, f"{'an unsigned' if kind == scalars.UNSIGNED else 'a signed'} integer of 64 bits"))


# ---- attributes of custom calls and hints


def _items(attr: Attr, values: Sequence[Plain]) -> Attrs:
    found = values[0] if len(values) == 1 else None
    if not isinstance(found, Items):
        raise _wrong(attr, "a list in braces: {f = 1.5}")
    entries: dict[str, tuple[str, AttrValue]] = {}
    for key, value, said in found.entries:
        if key in entries:
            raise Violation("DuplicateAttribute", f"the key `{key}` is given twice", at=key)
        entries[key] = _item(attr, key, value, said)
    return tuple(sorted(entries.items()))


_SAID = {None: "I64Array", "i64": "I64Array", "f64": "F64Array", "bool": "BoolArray", "string": "StringArray"}


def _item(attr: Attr, key: str, value: Plain, said: str | None) -> tuple[str, AttrValue]:
    if not isinstance(value, list):
        one = _plain(attr, key, value)
        return SCALAR_KINDS[type(one)], one
    elements = [_plain(attr, key, v) for v in value]
    if said not in _SAID:
        raise _wrong(attr, "arrays of i64, f64, bool or string")
    kinds = {SCALAR_KINDS[type(v)] + "Array" for v in elements} or {_SAID[said]}
    if kinds == {"I64Array", "F64Array"} or (kinds == {"I64Array"} and said == "f64"):
        kinds, elements = {"F64Array"}, [float(v) for v in elements]
    if len(kinds) != 1 or (said is not None and _SAID[said] not in kinds):
        raise _wrong(attr, f"one kind of elements in an array, `{key}` has several")
    return kinds.pop(), tuple(elements)  # type: ignore[return-value]


def _plain(attr: Attr, key: str, value: Plain) -> bool | int | float | str:
    if isinstance(value, Word) and value in ("true", "false"):
        return value == "true"
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise _wrong(attr, f"integers of 64 bits, `{key}` has {value}")
    if type(value) in SCALAR_KINDS:
        return value  # type: ignore[return-value]
    raise _wrong(attr, f"integers, floats, booleans and strings, `{key}` is none of them")
