"""A line in its usual form, taken whole by one regular expression, thirty times as fast as by the grammar."""

from __future__ import annotations

import re
from typing import Any

from ptir_tools.core.source import Span
from ptir_tools.dialects.mind.text.statements import WORDS, Instruction, Name, Outputs, TypeText, canonical_id

_ID = re.compile(r"%(?:[0-9]+|[A-Za-z_][A-Za-z0-9_]*)")
_INT = r"-?[0-9]{1,18}"
_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
_VALUE = rf"{_INT}(?![0-9A-Za-z_.])|{_WORD}|\[(?:{_INT}(?:, {_INT})*)?\]"
_ATTRIBUTE = re.compile(rf"({_WORD})=({_VALUE})")
_ATTRIBUTES = rf"{_WORD}=(?:{_VALUE})(?:, {_WORD}=(?:{_VALUE}))*"
_USUAL = re.compile(
    rf"({_ID.pattern}) = ({_WORD})(?: \(({_ID.pattern}(?:, {_ID.pattern})*)\))?(?: \{{({_ATTRIBUTES})\}})?"
    r"(?: : tensor<([A-Za-z_][A-Za-z0-9_.]*)\[([0-9]{1,18}(?:, [0-9]{1,18})*)?\]>)?"
)
_OUTPUTS = re.compile(rf"outputs: ({_ID.pattern}(?:, {_ID.pattern})*)")


def instruction(code: str) -> re.Match[str] | None:
    """An instruction in its usual form: groups id, opcode, operands, attributes, dtype, extents."""
    return _USUAL.fullmatch(code)


def statement(code: str, start: int) -> Instruction | Outputs | None:
    """The statement of a line that begins at `start` of the source; None when the line has another form."""
    if (usual := _USUAL.fullmatch(code)) is not None:
        return _instruction(usual, start)
    if (last := _OUTPUTS.fullmatch(code)) is not None:
        return Outputs(_ids(last, 1, start))
    return None


def _ids(match: re.Match[str], group: int, start: int) -> tuple[Name, ...]:
    at = start + match.start(group)
    return tuple([Name(canonical_id(m[0]), Span(at + m.start(), at + m.end())) for m in _ID.finditer(match[group])])


def _instruction(usual: re.Match[str], start: int) -> Instruction:
    operands, attributes, dtype, extents = usual.groups()[2:]
    made = Instruction(_name(usual, 1, start), _name(usual, 2, start))
    if operands is not None:
        made.operands = list(_ids(usual, 3, start))
    if attributes is not None:
        at = start + usual.start(4)
        made.attributes = [
            (Name(m[1], Span(at + m.start(1), at + m.end(1))), _simple(m[2])) for m in _ATTRIBUTE.finditer(attributes)
        ]
    if dtype is not None:
        span = Span(start + usual.start(5) - len("tensor<"), start + usual.end(5))
        shape = tuple(map(int, extents.split(","))) if extents else ()
        made.type = TypeText(_name(usual, 5, start), shape, span)
    return made


def _name(match: re.Match[str], group: int, start: int) -> Name:
    at, end = match.span(group)
    text = match[group]
    return Name(canonical_id(text) if group == 1 else text, Span(start + at, start + end))


def _simple(text: str) -> Any:
    if text[0] == "[":
        return [int(x) for x in text[1:-1].split(",")] if len(text) > 2 else []
    return int(text) if text[0] in "-0123456789" else WORDS.get(text, text)
