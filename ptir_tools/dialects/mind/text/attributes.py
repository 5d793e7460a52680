"""The attributes that an instruction gives, by name and by position, as values of the core; the literals of constants."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain

from ptir_tools.core import decimals
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import DType, struct_code
from ptir_tools.core.ir import Attribute, Literal, OpDef
from ptir_tools.core.source import pack
from ptir_tools.core.typed import Any, TypeGuard
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation, attribute, require
from ptir_tools.dialects.external import Files
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.mind.ops.common import positive
from ptir_tools.dialects.mind.text.syntax import Call, Raw
from ptir_tools.dialects.mind.types import DTYPES, NAMES
from ptir_tools.grammars.literals import all_float_bytes, float_bytes
from ptir_tools.grammars.parser import Token

CODES = DIALECT.codes
OPCODES: dict[str, OpDef] = {d.short: d for d in OPS.values() if d.name.startswith("mind.")}
BINARY = ("Add", "Sub", "Mul", "Div")
SCALARS = {"ConstI64": DTYPES["i64"], "ConstF32": DTYPES["f32"], "ConstF64": DTYPES["f64"]}

# Opcodes whose attributes in text differ from those of the op.
_KEYS = {"Input": ("name",), "BinOp": ("op",), "ConstTensor": ("value", "dtype", "shape")}
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
    return _KEYS.get(opcode) or tuple(a.name for a in OPCODES[opcode].attrs)


def integers(opcode: str, key: str, raw: Any) -> tuple[int, ...]:
    """A list of i64."""
    fits = _is_list(raw) and all(type(i) is int and -(1 << 63) <= i < 1 << 63 for i in raw)
    require(fits, "E4013", f"attribute `{key}` of {opcode} is a list of integers")
    return tuple(raw)


def _is_list(raw: object) -> TypeGuard[list[Raw] | tuple[Raw, ...]]:
    return isinstance(raw, (list, tuple))


def boolean(opcode: str, key: str, raw: Any) -> bool:
    """`true` or `false`."""
    require(type(raw) is bool, "E4013", f"attribute `{key}` of {opcode} is true or false")
    return bool(raw)


def padding(opcode: str, key: str, raw: Any) -> str | tuple[tuple[int, ...], ...]:
    """Valid, Same or Custom, in upper or lower case. The type rule checks everything else (E4012)."""
    if isinstance(raw, str):
        return raw.capitalize()
    pairs: Any = raw.value if isinstance(raw, Call) and raw.word.capitalize() == "Custom" else None
    fits = _is_list(pairs) and all(_is_list(pair) and all(type(i) is int for i in pair) for pair in pairs)
    require(fits, "E4012", "padding must be Valid, Same or Custom([[top, bottom], [left, right]])")
    return tuple(map(tuple, pairs))


_CONVERTERS: dict[str, Callable[[str, str, Any], Attribute]] = {
    "tuple[int, ...]": integers,
    "bool": boolean,
    "Padding": padding,
}


def tensor_literal(raw: object, t: TensorType) -> Literal:
    """The literal of ConstTensor from nested lists of the shape of `t`, or a flat list of as many elements.

    Raises Violation("E4005") for another nesting or count, or an element that the dtype cannot represent.
    """
    elements: list[object] = [*raw] if _is_list(raw) else [raw]
    kinds = {*map(type, elements)}
    if not _is_list(raw) or kinds & {list, tuple}:
        elements = [raw]
        for axis, extent in enumerate(t.static_shape):
            for x in elements:
                found = len(x) if _is_list(x) else "no list"
                message = f"axis {axis} of shape {list(t.shape)} has {extent} elements, the value has {found}"
                require(found == extent, "E4005", message)
            elements = [*chain.from_iterable(elements)]  # type: ignore[arg-type]
        kinds = {*map(type, elements)}
        require(not kinds & {list, tuple}, "E4005", f"the value is nested deeper than shape {list(t.shape)}")
    require(len(elements) == t.count, "E4005", f"{len(elements)} elements for shape {list(t.shape)}, which has {t.count}")
    with suppress(OverflowError, struct.error):
        if t.dtype.is_float and kinds == {float}:
            return Literal(t, all_float_bytes(elements, t.dtype))  # type: ignore[arg-type]
        if t.dtype.is_integer and kinds == {int}:
            return Literal(t, struct.pack(f"<{len(elements)}{struct_code(t.dtype)}", *elements))
    return Literal(t, b"".join(element(x, t.dtype) for x in elements))


def from_file(reference: str, t: TensorType, files: Files) -> Literal:
    """The literal of the array that `@file:key` names. Raises Violation("E4005")."""
    try:
        found = Literal(t, files.load(reference, t))
    except Violation as violation:
        raise Violation("E4005", violation.message, help=violation.help) from None
    found.origin = os.path.join(files.folder, reference[1:])
    return found


def element(raw: object, dtype: DType) -> bytes:
    """The bytes of one element, floats rounded to nearest. Raises Violation("E4005") if the dtype cannot represent it."""
    name = NAMES[dtype]
    if type(raw) is not int and not (dtype.is_float and isinstance(raw, float)):
        shown = f"`{raw}`" if isinstance(raw, str) else repr(raw).lower() if isinstance(raw, (float, bool)) else "this"
        raise Violation("E4005", f"{shown} is not a value of {name}")
    try:
        if dtype.is_float:
            return float_bytes(raw if isinstance(raw, float) else decimals.read(str(raw)), dtype)
        return struct.pack(f"<{struct_code(dtype)}", raw)
    except (OverflowError, struct.error):
        shown = str(raw) if not isinstance(raw, int) or abs(raw) < 1 << 128 else "the integer"
        raise Violation("E4005", f"{shown} is out of the range of {name}") from None


def constant_text(raw: object, written: str, dtype: DType | None) -> str | None:
    """The instruction for the constant that the text `written` spells, of `dtype`, or else f32 or i64. None if no constant can
    hold it."""
    shape, first = list[int](), raw
    while _is_list(first):
        shape.append(len(first))
        first = first[0] if first else None
    if not (type(first) is int or isinstance(first, float)):
        return None
    try:
        dtype = dtype or DTYPES["f32" if isinstance(first, float) or "." in written else "i64"]
        tensor_literal(raw, tensor(dtype, shape))
    except Violation:
        return None
    scalar = next((opcode for opcode, d in SCALARS.items() if d is dtype and not shape), None)
    if scalar is not None:
        return f"{scalar} {{value={written}}}"
    return f"ConstTensor {{dtype={NAMES[dtype]}, shape={shape}, value={written if shape else f'[{written}]'}}}"


# ---- the attributes of one instruction

# By attribute: its value as written, and the token of its key, or of the opcode for a positional one.
Given = dict[str, tuple[Raw, Token]]


def named(opcode: Token, positional: Sequence[Raw], attributes: Iterable[tuple[Token, Raw]]) -> Given:
    """All attributes by their canonical name, positional ones too. Raises Violation("E4013") for one too many, or given twice."""
    known = keys(opcode)
    if len(positional) > len(known):
        message = f"{opcode} has {len(known)} attributes, {len(positional)} are given"
        raise Violation("E4013", message, loc=opcode.loc)
    if opcode == "Slice" and len(positional) == 1:
        positional = _bounds(positional[0]) or positional
    given = [(k, raw, opcode) for k, raw in zip(known, positional, strict=False)]
    for key, raw in attributes:
        name = ALIASES.get(opcode, {}).get(key, str(key))
        one = name == "axes" and name != key and type(raw) is int  # `axis=2` is `axes=[2]`
        given.append((name, [raw] if one else raw, key))
    found: Given = {}
    for name, raw, key in given:
        if name in found:
            labels = [(found[name][1].loc, "first given here")]
            raise Violation("E4013", f"attribute `{name}` of {opcode} is given twice", loc=key.loc, labels=labels)
        found[name] = raw, key
    return found


def _bounds(raw: Raw) -> list[Raw] | None:
    """`starts`, `ends` and `steps` of a list of `start:end:step`; None when `raw` is not one."""
    if not isinstance(raw, list) or not raw or not all(isinstance(x, slice) for x in raw):
        return None
    return [[getattr(x, part) for x in raw] for part in ("start", "stop", "step")]


def fill(
    opcode: Token, given: Given, declared: TensorType | None, end: int, diagnostics: Diagnostics, files: Files
) -> tuple[Attribute, ...] | None:
    """The core's attributes in declaration order. Attributes of the wrong kind are reported, and the result is None. `end` is the
    end of the instruction. Raises Violation when one is missing."""
    wanted = ("value",) if opcode == "ConstTensor" else keys(opcode)
    if missing := [f"`{k}`" for k in wanted if k not in given]:
        raise Violation(CODES.missing_attribute, f"{opcode} needs the attribute {', '.join(missing)}", loc=opcode.loc)
    filled: list[Attribute] = []
    for key in wanted:
        try:
            filled.append(_value(opcode, key, given, declared, files))
        except Violation as violation:
            _, written = given[str(violation.at) if violation.at in given else key]
            violation.at = attribute(written)
            diagnostics.violation(violation, pack(written.start_pos, end))
    return tuple(filled) if len(filled) == len(wanted) else None


def _value(opcode: str, key: str, given: Given, declared: TensorType | None, files: Files) -> Attribute:
    """The core's value of an attribute. Raises Violation when the written value is of another kind."""
    raw = given[key][0]
    if opcode in SCALARS:
        return Literal(tensor(SCALARS[opcode]), element(raw, SCALARS[opcode]))
    if opcode == "ConstTensor":
        t = constant_type(given, declared)
        return from_file(raw, t, files) if isinstance(raw, str) and raw.startswith("@") else tensor_literal(raw, t)
    defn = OPCODES[opcode]
    return _CONVERTERS[defn.attrs[defn.attr_index[key]].kind](opcode, key, raw)


def constant_type(given: Given, declared: TensorType | None) -> TensorType:
    """The type of a ConstTensor: its attributes, or the declared type if they are missing. Raises Violation."""
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
    positive(t.static_shape, "shape")
    return t
