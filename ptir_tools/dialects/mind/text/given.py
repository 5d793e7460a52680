"""The attributes that an instruction gives, by name and by position, as values of the core."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source, Span
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation, attribute
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.text.attributes import (
    ALIASES,
    SCALARS,
    convert,
    integers,
    keys,
    scalar_literal,
    slice_ranges,
    tensor_literal,
)
from ptir_tools.dialects.mind.text.statements import Instruction
from ptir_tools.dialects.mind.types import DTYPES

if TYPE_CHECKING:
    from ptir_tools.core import places
else:
    places = lazy("ptir_tools.core.places")

CODES = DIALECT.codes

Given = dict[str, tuple[Any, Span]]  # name -> value as written, and where


def named(statement: Instruction, opcode: str, diagnostics: Diagnostics) -> Given | None:
    """All attributes by their one name, positional ones too; None after reporting one too many, or one given twice."""
    at, known = statement.opcode.span, keys(opcode)
    positional = list(statement.positional)
    given: list[tuple[str, Any, Span]] = []
    if opcode == "Slice" and len(positional) == 1 and (ranges := slice_ranges(positional[0])) is not None:
        given, positional = [(k, raw, at) for k, raw in ranges.items()], []
    if len(positional) > len(known):
        diagnostics.error("E4013", f"{opcode} has {len(known)} attributes, {len(positional)} are given", at)
        return None
    given += [(k, raw, at) for k, raw in zip(known, positional, strict=False)]
    spelled = ALIASES.get(opcode, {})
    given += [
        (spelled.get(k.text, k.text), [raw] if _single(opcode, k.text, raw) else raw, k.span) for k, raw in statement.attributes
    ]
    found: Given = {}
    for key, raw, span in given:
        if key in found:
            message = f"attribute `{key}` of {opcode} is given twice"
            diagnostics.error("E4013", message, span, labels=[(found[key][1], "first given here")])
            return None
        found[key] = (raw, span)
    return found


def _single(opcode: str, key: str, raw: object) -> bool:
    """Whether one axis is given where there may be several: `axis=2` is `axes=[2]`."""
    return ALIASES.get(opcode, {}).get(key) == "axes" and type(raw) is int


def fill(
    statement: Instruction, opcode: str, given: Given, declared: TensorType | None, diagnostics: Diagnostics
) -> tuple[Any, ...] | None:
    """The core's attributes in declaration order, or None after reporting what is missing or of the wrong kind."""
    if opcode == "ConstTensor" and statement.type is not None and declared is None:  # the type is in error, and reported
        return None
    wanted = ("value",) if opcode == "ConstTensor" else keys(opcode)
    if missing := [k for k in wanted if k not in given]:
        names = ", ".join(f"`{k}`" for k in missing)
        diagnostics.error(CODES.missing_attribute, f"{opcode} needs the attribute {names}", statement.opcode.span)
        return None
    filled: list[Any] = []
    for key in wanted:
        try:
            filled.append(_value(opcode, key, given, declared))
        except Violation as violation:
            at = str(violation.at) if violation.at in given else key
            line = _line(diagnostics.source, given[at][1])
            place = None if line is None or diagnostics.source is None else places.find(diagnostics.source, line, attribute(at))
            diagnostics.error(violation.code, violation.message, place or given[at][1])
    return tuple(filled) if len(filled) == len(wanted) else None


def _line(source: Source | None, span: Span) -> Span | None:
    """The rest of the line from `span` on."""
    if source is None:
        return None
    end = source.text.find("\n", span.start)
    return Span(span.start, len(source.text) if end < 0 else end)


def _value(opcode: str, key: str, given: Given, declared: TensorType | None) -> object:
    raw = given[key][0]
    if opcode in SCALARS:
        return scalar_literal(opcode, raw)
    if opcode == "ConstTensor":
        return tensor_literal(raw, constant_type(given, declared))
    return convert(opcode, key, raw)


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
