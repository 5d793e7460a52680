"""The attributes that an instruction gives, by name and by position, as values of the core; the literals of constants."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

from ptir_tools.core import decimals
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import DType, struct_code
from ptir_tools.core.ir import Attribute, Literal, OpDef
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Span
from ptir_tools.core.typed import TYPE_CHECKING, TypeGuard
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation, attribute, require
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.mind.text.syntax import Call, Instruction, Range, Raw
from ptir_tools.dialects.mind.types import DTYPES, NAMES
from ptir_tools.grammars.literals import float_bytes

if TYPE_CHECKING:
    from ptir_tools.core import places
else:
    places = lazy("ptir_tools.core.places")

CODES = DIALECT.codes
OPCODES: dict[str, OpDef] = {d.short: d for d in OPS.values() if d.name.startswith("mind.")}
BINARY = ("Add", "Sub", "Mul")
SCALARS = {"ConstI64": DTYPES["i64"], "ConstF32": DTYPES["f32"], "ConstF64": DTYPES["f64"]}

ALIASES: dict[str, dict[str, str]] = {
    "ConstTensor": {"data": "value"},
    "Reshape": {"shape": "new_shape"},
    "Transpose": {"perm": "permutation"},
    "ExpandDims": {"axis": "axes"},
    "Squeeze": {"axis": "axes"},
}


@cache
def keys(opcode: str) -> tuple[str, ...]:
    """The attributes that an opcode has in text, in the order of the positional form."""
    if opcode == "Input":
        return ("name",)
    if opcode == "ConstTensor":
        return ("value", "dtype", "shape")
    return tuple(a.name for a in OPCODES[opcode].attrs)


def integers(opcode: str, key: str, raw: Raw) -> tuple[int, ...]:
    """A list of i64."""
    listed = raw if _is_list(raw) else ()
    found = tuple(i for i in listed if type(i) is int and -(1 << 63) <= i < 1 << 63)
    fits = _is_list(raw) and len(found) == len(listed)
    require(fits, "E4013", f"attribute `{key}` of {opcode} is a list of integers")
    return found


def _is_list(raw: object) -> TypeGuard[list[Raw] | tuple[Raw, ...]]:
    return isinstance(raw, (list, tuple))


def boolean(opcode: str, key: str, raw: Raw) -> bool:
    """`true` or `false`."""
    require(type(raw) is bool, "E4013", f"attribute `{key}` of {opcode} is true or false")
    return bool(raw)


def padding(opcode: str, key: str, raw: Raw) -> str | tuple[tuple[Raw, ...], ...]:
    """Valid, Same or Custom, in any case of letters; what else it holds is the type rule's to judge (E4012)."""
    if isinstance(raw, str):
        return raw.capitalize()
    pairs = raw.value if isinstance(raw, Call) and raw.word.capitalize() == "Custom" else None
    found = [tuple(p) for p in pairs if _is_list(p) and all(type(i) is int for i in p)] if _is_list(pairs) else []
    if not _is_list(pairs) or len(found) < len(pairs):
        raise Violation("E4012", "padding must be Valid, Same or Custom([[top, bottom], [left, right]])")
    return tuple(found)


_CONVERTERS: dict[str, Callable[[str, str, Raw], Attribute]] = {
    "tuple[int, ...]": integers,
    "bool": boolean,
    "Padding": padding,
}


def slice_ranges(raw: Raw) -> dict[str, list[Raw]] | None:
    """`starts`, `ends` and `steps` of a list of ranges; None when `raw` is not one."""
    ranges = [r for r in raw if isinstance(r, Range)] if isinstance(raw, list) else []
    if not isinstance(raw, list) or not ranges or len(ranges) < len(raw):
        return None
    return {"starts": [r.start for r in ranges], "ends": [r.end for r in ranges], "steps": [r.step for r in ranges]}


def tensor_literal(raw: object, t: TensorType) -> Literal:
    """The literal of ConstTensor from nested lists of the shape of `t`, or a flat list of as many elements.

    Raises Violation("E4005") for another nesting or count, or an element that the dtype does not hold.
    """
    elements: list[object] = []
    if _is_list(raw) and not any(_is_list(x) for x in raw):
        elements += raw
    else:
        _flatten(raw, t.static_shape, 0, elements)
    require(len(elements) == t.count, "E4005", f"{len(elements)} elements for shape {list(t.shape)}, which has {t.count}")
    return Literal(t, b"".join(element(x, t.dtype) for x in elements))


def _flatten(raw: object, shape: tuple[int, ...], depth: int, into: list[object]) -> None:
    if depth == len(shape):
        require(not _is_list(raw), "E4005", f"the value is nested deeper than shape {list(shape)}")
        into.append(raw)
        return
    listed: Sequence[object] = raw if _is_list(raw) else ()
    found = len(listed) if _is_list(raw) else "no list"
    message = f"axis {depth} of shape {list(shape)} has {shape[depth]} elements, the value has {found}"
    require(found == shape[depth], "E4005", message)
    for x in listed:
        _flatten(x, shape, depth + 1, into)


def element(raw: object, dtype: DType) -> bytes:
    """The bytes of one element, floats rounded to nearest. Raises Violation("E4005") for what the dtype does not hold."""
    name = NAMES[dtype]
    if type(raw) is not int and not (dtype.is_float and isinstance(raw, float)):
        spelled = {bool: str(raw).lower(), str: f"`{raw}`", float: repr(raw)}
        shown = spelled.get(type(raw), "this")
        raise Violation("E4005", f"{shown} is not a value of {name}")
    try:
        if dtype.is_float:
            return float_bytes(raw if isinstance(raw, float) else decimals.read(str(raw)), dtype)
        return struct.pack(f"<{struct_code(dtype)}", raw)
    except (OverflowError, struct.error):
        shown = str(raw) if not isinstance(raw, int) or abs(raw) < 1 << 128 else "the integer"
        raise Violation("E4005", f"{shown} is out of the range of {name}") from None


# ---- of one instruction

Given = dict[str, tuple[Raw, Loc]]  # name -> value as written, and where


def named(statement: Instruction, opcode: str, diagnostics: Diagnostics) -> Given | None:
    """All attributes by their one name, positional ones too; None after reporting one too many, or one given twice."""
    at, known = statement.opcode.loc, keys(opcode)
    given: list[tuple[str, Raw, Loc]] = []
    ranges = slice_ranges(statement.positional[0]) if opcode == "Slice" and len(statement.positional) == 1 else None
    if len(statement.positional) > len(known):
        diagnostics.error("E4013", f"{opcode} has {len(known)} attributes, {len(statement.positional)} are given", at)
        return None
    given += [(k, raw, at) for k, raw in (ranges.items() if ranges else zip(known, statement.positional, strict=False))]
    for k, raw in statement.attributes:
        name = ALIASES.get(opcode, {}).get(k, str(k))
        one = name == "axes" and name != k and type(raw) is int  # `axis=2` is `axes=[2]`
        given.append((name, [raw] if one else raw, k.loc))
    found: Given = {}
    for key, raw, span in given:
        if key in found:
            message = f"attribute `{key}` of {opcode} is given twice"
            diagnostics.error("E4013", message, span, labels=[(found[key][1], "first given here")])
            return None
        found[key] = (raw, span)
    return found


def fill(
    statement: Instruction, opcode: str, given: Given, declared: TensorType | None, diagnostics: Diagnostics
) -> tuple[Attribute, ...] | None:
    """The core's attributes in declaration order, or None after reporting what is missing or of the wrong kind."""
    if opcode == "ConstTensor" and statement.type is not None and declared is None:  # the type is in error, and reported
        return None
    wanted = ("value",) if opcode == "ConstTensor" else keys(opcode)
    if missing := [k for k in wanted if k not in given]:
        names = ", ".join(f"`{k}`" for k in missing)
        diagnostics.error(CODES.missing_attribute, f"{opcode} needs the attribute {names}", statement.opcode.loc)
        return None
    filled: list[Attribute] = []
    for key in wanted:
        try:
            filled.append(_value(opcode, key, given, declared))
        except Violation as violation:
            key = str(violation.at) if violation.at in given else key
            at, source = given[key][1], diagnostics.source
            place = None
            if source is not None and (span := source.span(at)) is not None:
                end = source.text.find("\n", span.start)
                rest = Span(span.start, len(source.text) if end < 0 else end)
                place = places.find(source, rest, attribute(key))
            diagnostics.error(violation.code, violation.message, place or at)
    return tuple(filled) if len(filled) == len(wanted) else None


def _value(opcode: str, key: str, given: Given, declared: TensorType | None) -> Attribute:
    """The core's value of an attribute. Raises Violation when what is written is of another kind."""
    raw = given[key][0]
    if opcode in SCALARS:
        return Literal(tensor(SCALARS[opcode]), element(raw, SCALARS[opcode]))
    if opcode == "ConstTensor":
        return tensor_literal(raw, constant_type(given, declared))
    defn = OPCODES[opcode]
    return _CONVERTERS[defn.attrs[defn.attr_index[key]].kind](opcode, key, raw)


def constant_type(given: Given, declared: TensorType | None) -> TensorType:
    """The type of a ConstTensor: its attributes, or the declared type where they say nothing. Raises Violation."""
    for key in ("dtype", "shape"):
        if key not in given and declared is None:
            raise Violation("E4013", f"ConstTensor needs the attribute `{key}`, or a type")
    t = declared or tensor(DTYPES["f32"])
    if "dtype" in given:
        name = given["dtype"][0]
        if not isinstance(name, str) or name not in DTYPES:
            raise Violation("E2005", f"unknown dtype `{name}`; MIND has {', '.join(DTYPES)}", at="dtype")
        t = t.with_dtype(DTYPES[name])
    if "shape" in given:
        t = t.with_shape(integers("ConstTensor", "shape", given["shape"][0]))
    if (bad := next((d for d in t.static_shape if d < 1), None)) is not None:
        raise Violation("E3006", f"extent {bad} is not positive", at="shape")
    return t
