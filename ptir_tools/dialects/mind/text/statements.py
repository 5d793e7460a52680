"""The statements of MIND text, before they mean anything."""

from __future__ import annotations

from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.source import Span
from ptir_tools.core.typed import Any

ID_DIGITS = 18  # a longer value id is a name, not a number
# Words that are values.
WORDS: dict[str, object] = {"true": True, "True": True, "false": False, "False": False, "inf": float("inf"), "nan": float("nan")}
_CODE = regex(r'(?:[^"#]+|"(?:[^"\\]|\\.)*"?)*')


class Name(NamedTuple):
    """A piece of text with its place in the source; a value id is without its `%`."""

    text: str
    span: Span


@dataclass(slots=True, frozen=True)
class Call:
    """`word(value)`: Custom padding."""

    word: str
    value: Any


@dataclass(slots=True, frozen=True)
class Range:
    """`start:end:step`, an item of Slice's positional attribute."""

    start: int
    end: int
    step: int


class TypeText(NamedTuple):
    """A type as written; an extent is a number or the text of a symbol."""

    dtype: Name
    extents: tuple[int | str, ...]
    span: Span


@dataclass(slots=True)
class Instruction:
    """`%id = Opcode (operands, positional attributes) {attributes} : type`. Attribute values are Python's: a list is a list,
    a tuple a tuple, a word a string."""

    id: Name
    opcode: Name
    operands: list[Name] = field(default_factory=list)
    positional: list[Any] = field(default_factory=list)
    attributes: list[tuple[Name, Any]] = field(default_factory=list)
    type: TypeText | None = None


@dataclass(slots=True, frozen=True)
class Alias:
    """`%id = %target`: another name for a value."""

    id: Name
    target: Name


@dataclass(slots=True, frozen=True)
class Outputs:
    """`outputs: %a, %b`."""

    ids: tuple[Name, ...]


@dataclass(slots=True, frozen=True)
class Inputs:
    """An `inputs:` line, which says nothing that the Input instructions do not."""

    text: str


Statement = Instruction | Alias | Outputs | Inputs


def canonical_id(token: str) -> str:
    """A value id without its `%`; `%007` is `%7`."""
    text = str(token[1:])
    return text.lstrip("0") or "0" if text.isdecimal() else text


def split_comment(line: str) -> tuple[str, str]:
    """The line without its comment and the space before that, and the comment with its `#` (empty when there is none)."""
    if '"' not in line and "#" not in line:
        return line.rstrip(), ""
    found = _CODE.match(line)
    end = found.end() if found else 0
    return line[:end].rstrip(), line[end:].rstrip()
