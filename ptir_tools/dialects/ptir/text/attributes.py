"""Attributes in text PTIR: from what is between the brackets to the value of an annotation's kind.

Between text and kind there are plain Python values: int, float, str (in quotes), Word, Sym, RegionName, Payload, list, tuple (in
parentheses), Call, and Items (in braces).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptir_tools.core import decimals
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Attr, OpDef, Operand, operand_type
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import integer
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Span
from ptir_tools.core.spelling import attribute_meant, nearest
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import POISON, Sym, TensorType, Type, sym
from ptir_tools.core.violations import OP_NAME, Violation
from ptir_tools.core.violations import attribute as place
from ptir_tools.core.violations import key as place_of
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS, SCALAR_KINDS
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text.literals import read_payload
from ptir_tools.dialects.ptir.text.spelling import read_dtype, read_symbol

if TYPE_CHECKING:
    from ptir_tools.core import places
    from ptir_tools.dialects.ptir.text.external import Files
    from ptir_tools.grammars.parser import Token
else:
    places = lazy("ptir_tools.core.places")

CODES = DIALECT.codes


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
    values: tuple[Any, ...]


@dataclass(slots=True, frozen=True)
class Items:
    """`{key = value, …}`; each value with the word behind a colon, if any (`[] : f64`)."""

    entries: tuple[tuple[str, Any, str | None], ...]


def atom(token: Token) -> object:
    """The value of one token. Raises Violation("InvalidAttributeValue") for a number beyond float64."""
    text = str(token)
    if token.type == "WORD":
        return Word(text)
    if token.type == "SYMBOL":
        return sym(read_symbol(text))
    if token.type == "REGION":
        return RegionName(text[1:])
    return integer(text) if text.lstrip("+-").isdecimal() else _read_float(text)


def _read_float(text: str) -> float:
    """The float64 that a decimal, `inf` or `nan` means. Raises Violation("InvalidAttributeValue") for one beyond float64."""
    try:
        return float(decimals.read(text))
    except OverflowError as error:
        raise Violation("InvalidAttributeValue", str(error), at=text) from None


# ---- values to kinds


def convert(attr: Attr, values: list[object], operand: Type | None) -> Any:
    """The attribute's value. `operand` is the type of the first operand, to which a scalar is natural.

    Raises Violation: "InvalidAttributeValue", "DTypeNotSupported".
    """
    kind = attr.kind
    if kind == "Scalar":
        return _scalar(attr, _single(attr, values), operand)
    return _FROM_TEXT[kind](attr, values) if kind in _FROM_TEXT else _enumerated(attr, values)


def _wrong(attr: Attr, wanted: str) -> Violation:
    return Violation("InvalidAttributeValue", f"`{attr.name}` takes {wanted}", at=place(attr.name))


def _single(attr: Attr, values: list[object], wanted: str = "one value") -> object:
    if len(values) != 1:
        raise _wrong(attr, wanted)
    return values[0]


def _unwrap(values: list[object]) -> list[Any]:
    """gpt.rs takes a list in brackets or parentheses of its own: `axes[[1, 2]]`."""
    return list(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else values


def _integer(attr: Attr, values: list[object]) -> int:
    value = _single(attr, values, "an integer")
    if type(value) is not int:
        raise _wrong(attr, "an integer")
    return value


def _integers(attr: Attr, values: list[object]) -> tuple[int, ...]:
    found = _unwrap(values)
    if not all(type(v) is int for v in found):
        raise _wrong(attr, "integers, separated by commas")
    return tuple(found)


def _floats(attr: Attr, values: list[object]) -> tuple[float, ...]:
    found = _unwrap(values)
    if not all(type(v) in (int, float) for v in found):
        raise _wrong(attr, "numbers, separated by commas")
    return tuple(map(float, found))


def _pairs(attr: Attr, values: list[Any]) -> tuple[tuple[int, int], ...]:
    for v in values:
        if not (isinstance(v, (list, tuple)) and len(v) == 2 and all(type(x) is int for x in v)):
            raise _wrong(attr, "pairs of integers: [[0, 0], [1, 1]]")
    return tuple((v[0], v[1]) for v in values)


def _extents(attr: Attr, values: list[object]) -> tuple[object, ...]:
    found = _unwrap(values)
    if not all(type(v) is int or isinstance(v, Sym) for v in found):
        raise _wrong(attr, "extents separated by commas: [2, ?N, 4]")
    return tuple(found)


def _boolean(attr: Attr, values: list[object]) -> bool:
    if values not in (["true"], ["false"]) or not isinstance(values[0], Word):
        meant = {"True": "true", "False": "false", "1": "true", "0": "false"}.get(str(values[0])) if len(values) == 1 else None
        raise Violation("InvalidAttributeValue", f"`{attr.name}` takes true or false", at=place(attr.name), instead=meant)
    return values[0] == "true"


def _string(attr: Attr, values: list[object]) -> str:
    value = _single(attr, values, "a string in quotes")
    if type(value) is not str:
        raise _wrong(attr, "a string in quotes")
    return value


def _dtype(attr: Attr, values: list[object]) -> DType:
    value = _single(attr, values, "a dtype")
    if not isinstance(value, Word):
        raise _wrong(attr, "a dtype")
    try:
        return read_dtype(value)
    except Violation as violation:
        v = violation
        raise Violation(v.code, v.message, help=v.help, at=place(attr.name), instead=v.instead) from None


# What other systems call kinds.
_KINDS_MEANT = {"maximum": "max", "minimum": "min", "plus": "add", "sum": "add", "assign": "replace", "update": "replace"}


def _enumerated(attr: Attr, values: list[object]) -> str:
    known = ENUMERATIONS[attr.kind]
    value = _single(attr, values, f"one of {', '.join(known)}")
    if value not in known:
        other = _KINDS_MEANT.get(str(value))
        meant = other if other in known else nearest(str(value), known)
        message = f"`{attr.name}` is one of {', '.join(known)}"
        raise Violation("InvalidAttributeValue", message, at=place(attr.name), instead=meant)
    return str(value)


def _scalar(attr: Attr, value: object, operand: Type | None) -> Scalar:
    """A number in the kind natural to the operand, or in the kind that a word in front names."""
    if isinstance(value, Call):
        kind = value.name.capitalize() if value.name in ("signed", "unsigned", "float", "complex") else value.name.upper()
        return scalar(attr, kind, value.values)
    values = value if isinstance(value, tuple) else (value,)
    if isinstance(operand, TensorType):
        return scalar(attr, scalars.natural_kind(operand.dtype), values)
    return scalar(
        attr, scalars.COMPLEX if len(values) == 2 else scalars.FLOAT if type(value) is float else scalars.SIGNED, values
    )


def scalar(attr: Attr, kind: str, values: tuple[Any, ...]) -> Scalar:
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


def _items(attr: Attr, values: list[object]) -> object:
    found = _single(attr, values, "a list in braces: {f = 1.5}")
    if not isinstance(found, Items):
        raise _wrong(attr, "a list in braces: {f = 1.5}")
    entries: dict[str, tuple[str, Any]] = {}
    for key, value, said in found.entries:
        if key in entries:
            raise Violation("DuplicateAttribute", f"the key `{key}` is given twice", at=key)
        entries[key] = _item(attr, key, value, said)
    return tuple(sorted(entries.items()))


_SAID = {None: "I64Array", "i64": "I64Array", "f64": "F64Array", "bool": "BoolArray", "string": "StringArray"}


def _item(attr: Attr, key: str, value: object, said: str | None) -> tuple[str, object]:
    if not isinstance(value, list):
        value = _plain(attr, key, value)
        return SCALAR_KINDS[type(value)], value
    elements = [_plain(attr, key, v) for v in value]
    if said not in _SAID:
        raise _wrong(attr, "arrays of i64, f64, bool or string")
    kinds = {SCALAR_KINDS[type(v)] + "Array" for v in elements} or {_SAID[said]}
    if kinds == {"I64Array", "F64Array"} or (kinds == {"I64Array"} and said == "f64"):
        kinds, elements = {"F64Array"}, [float(v) for v in elements]
    if len(kinds) != 1 or (said is not None and _SAID[said] not in kinds):
        raise _wrong(attr, f"one kind of elements in an array, `{key}` has several")
    return kinds.pop(), tuple(elements)


def _plain(attr: Attr, key: str, value: object) -> Any:
    if isinstance(value, Word) and value in ("true", "false"):
        return value == "true"
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise _wrong(attr, f"integers of 64 bits, `{key}` has {value}")
    if type(value) in SCALAR_KINDS:
        return value
    raise _wrong(attr, f"integers, floats, booleans and strings, `{key}` is none of them")


def _optional(read: Callable[[Attr, list[Any]], Any]) -> Callable[[Attr, list[Any]], Any]:
    return lambda attr, values: read(attr, values) if values else None


_FROM_TEXT: dict[str, Callable[[Attr, list[Any]], Any]] = {
    "int": _integer,
    "int | None": _optional(_integer),
    "bool": _boolean,
    "str": _string,
    "float": lambda attr, values: scalar(attr, scalars.FLOAT, tuple(values)).value,
    "DType": _dtype,
    "DType | None": _optional(_dtype),
    "tuple[int, ...]": _integers,
    "tuple[float, ...]": _floats,
    "tuple[tuple[int, int], ...]": _pairs,
    "Shape": _extents,
    "NewShape": _extents,
    "Attrs": _items,
}


# ---- what the text leaves out

# Attributes that the result type says.
FROM_RESULT: dict[str, tuple[str, ...]] = {
    "cast": ("dtype",),
    "iota": ("shape", "dtype"),
    "rng_uniform": ("shape", "dtype"),
    "rng_normal": ("shape", "dtype"),
}


def of_result(name: str, result: Type) -> object:
    """The attribute `name` as the result type says it. Raises Violation("ResultTypeMismatch") when that is not a tensor."""
    if not isinstance(result, TensorType):
        raise Violation("ResultTypeMismatch", f"the result is {result}, a tensor is wanted")
    return getattr(result, name)


# ---- of one statement

# Names and the plain values between their brackets, in the order of the text.
Given = Sequence[tuple[str, list[Any]]]
# Attributes that are read under another name.
_ALIASES = {("broadcast_to", "shape"): ("result_shape",), ("dot_general", "batch"): ("batch_lhs", "batch_rhs")}


class Filling:
    """Reads attributes, and reports what is wrong with them; `files` are those that payloads may be in."""

    def __init__(self, diagnostics: Diagnostics, files: Files) -> None:
        self.diagnostics, self.files = diagnostics, files

    def attributes(
        self, defn: OpDef, given: Given, operands: tuple[Operand, ...], result: Type, at: Loc
    ) -> tuple[tuple[Any, ...], tuple[str, ...]] | None:
        """(attributes in declaration order, names of the regions), or None after reporting what is wrong with them."""
        errors = self.diagnostics.errors
        named: dict[str, Any] = {}
        regions: dict[str, str] = {}
        for key, values in self.distinct(defn, given, at):
            if key not in defn.regions and key in FROM_RESULT.get(defn.short, ()):
                self.implied(defn, key, at)
                continue
            try:
                self.attribute(defn, key, values, operands, result, named, regions)
            except Violation as violation:
                self.diagnostics.violation(violation, at)
        try:
            named |= {n: of_result(n, result) for n in FROM_RESULT.get(defn.short, ())}
            if self.diagnostics.errors > errors:
                return None
            if missing := [r for r in defn.regions if r not in regions]:
                message = f"{defn.short} needs the attribute `{missing[0]}`"
                raise Violation(CODES.missing_attribute, message, at=OP_NAME, help=f"write {missing[0]}[^r0]")
            return defn.fill(named, _types(operands)), tuple(regions[r] for r in defn.regions)
        except Violation as violation:
            self.diagnostics.violation(violation, at)
        return None

    def distinct(self, defn: OpDef, given: Given, at: Loc) -> Iterable[tuple[str, list[object]]]:
        """What is given, aliases replaced; unknown and repeated names are reported and left out."""
        said: set[str] = set()
        for key, values in given:
            if key in said:
                twice = Violation(
                    "DuplicateAttribute", f"`{key}` is given twice", at=place_of(key, 1), help="keep one of the two"
                )
                self.diagnostics.violation(twice, at)
                continue
            said.add(key)
            names = _ALIASES.get((defn.short, key), (key,))
            if names[0] not in defn.attr_index and names[0] not in defn.regions:
                self.unknown_attribute(defn, key, at)
            elif names == (key,):
                yield key, values
            else:  # what is said under its own name wins over the common one
                own = {k for k, _ in given}
                yield from ((n, values) for n in names if n not in own)

    def unknown_attribute(self, defn: OpDef, key: str, at: Loc) -> None:
        left_out = FROM_RESULT.get(defn.short, ())
        known = [*defn.regions, *(a.name for a in defn.attrs if a.name not in left_out)]
        message = f"{defn.short} has no attribute `{key}` (it has: {', '.join(known) or 'none'})"
        meant = attribute_meant(key, known)
        help = None if meant else f"drop {key}[…]"
        self.diagnostics.violation(Violation(CODES.unknown_attribute, message, at=place_of(key), help=help, instead=meant), at)

    def implied(self, defn: OpDef, key: str, at: Loc) -> None:
        """Report an attribute that the result type says already; the edit drops it."""
        source, span, fix = self.diagnostics.source, None, None
        if source is not None and (whole := source.span(at)) is not None:
            span, value = places.find(source, whole, place_of(key)), places.find(source, whole, place(key))
            if span is not None and value is not None and source.text.startswith("]", value.end):
                fix = Fix(Span(len(source.text[: span.start].rstrip()), value.end + 1), "")
        message = f"`{key}` of {defn.short} is not written: it is that of the result type"
        self.diagnostics.error(CODES.unknown_attribute, message, span or at, help=f"drop {key}[…]", fix=fix)

    def attribute(
        self,
        defn: OpDef,
        key: str,
        values: list[object],
        operands: tuple[Operand, ...],
        result: Type,
        named: dict[str, object],
        regions: dict[str, str],
    ) -> None:
        """Read one attribute into `named` or `regions`. Raises Violation."""
        if key in defn.regions:
            if len(values) != 1 or not isinstance(values[0], RegionName):
                raise Violation("InvalidAttributeValue", f"`{key}` takes a region: [^r0]", at=place(key))
            regions[key] = values[0]
            return
        attr = defn.attrs[defn.attr_index[key]]
        if attr.kind != "Literal":
            types = _types(operands[:1])
            named[key] = convert(attr, values, types[0] if types else None)
        elif len(values) != 1 or not isinstance(values[0], Payload):
            plain = len(values) == 1 and isinstance(values[0], (int, float))
            wanted, meant = f"`{key}` takes a literal: dense<…>", f"dense<{values[0]}>" if plain else None
            raise Violation("InvalidAttributeValue", wanted, at=place(key), instead=meant)
        elif not isinstance(result, TensorType):
            raise Violation("ResultTypeMismatch", f"a literal is a tensor, the result is {result}")
        else:
            named[key] = read_payload(values[0], result, self.files)


def _types(operands: Sequence[Operand]) -> tuple[Type, ...]:
    """The operand types, () when one is not known."""
    try:
        types = tuple(map(operand_type, operands))
    except Violation:
        return ()
    return () if POISON in types else types
