"""The Lark grammars of the languages, what is read by them, and how a syntax error is reported.

`<name>.lark` defines a language (LALR, contextual lexer). Three readers are made of it:

- `lines`: one regular expression, which takes a whole statement in a usual form (`building`).
- `parser`: its parse table, which is run without Lark and takes every other correct text (`parser`).
- `load`: Lark itself, which finds what is wrong with the rest (`refused`, `report`).

The build step writes what they need to `<name>.tables`. If this file is missing or is that of another grammar, it is computed
when a text is read.
"""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Mapping
from functools import cache
from zlib import crc32

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Span, pack
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.grammars.expressions import expression, of_this_python
from ptir_tools.grammars.parser import Parser, Table

if TYPE_CHECKING:
    import lark
    import lark.lexer

    from ptir_tools.grammars import building, lark_tables
else:
    lark = lazy("lark")
    building, lark_tables = lazy("ptir_tools.grammars.building"), lazy("ptir_tools.grammars.lark_tables")

HERE = os.path.dirname(__file__)  # pathlib would cost more than reading a table


def _path(name: str, suffix: str) -> str:
    return os.path.join(HERE, f"{name}.{suffix}")


def grammar_text(name: str) -> str:
    """The grammar's source."""
    with open(_path(name, "lark"), encoding="utf-8") as file:
        return file.read()


def starts(name: str) -> list[str]:
    """The start rules of a grammar: those of its first line, `// start: a b`."""
    return grammar_text(name).partition("\n")[0].removeprefix("// start:").split()


def _build(name: str, transformer: object = None) -> lark.Lark:
    return lark.Lark(
        grammar_text(name),
        start=starts(name),
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=False,
        transformer=transformer,
    )


def tables(name: str) -> bytes:
    """The content of `<name>.tables` as the build step writes it: what `Parser` and the line reader need, then Lark's own
    serialization, with the version that made it. Each is packed apart: a command unpacks what it needs."""
    data = lark_tables.serialized(building.ordered(_build(name)))
    automaton = building.packed((*_automaton(name),))
    return building.packed((_stamp(name), automaton, lark.__version__, building.packed(data)))


def _automaton(name: str) -> Table:
    return building.table(building.ordered(_build(name)), grammar_text(name))


def _stamp(name: str) -> int:
    """What a table depends on."""
    return crc32(f"{grammar_text(name)}{Table._fields}".encode())


def load(name: str, transformer: object = None) -> lark.Lark:
    """The grammar as Lark parses it; `transformer` is applied while parsing, so that no tree is built where it has a method."""
    saved = _saved(name)
    if saved is None or saved[1] != lark.__version__:
        return _build(name, transformer)
    return lark_tables.restored(marshal.loads(saved[2]), transformer)


def parser(name: str, actions: object) -> Parser:
    """The grammar with `actions`, without Lark."""
    return Parser(name, _table(name), actions)


@cache
def lines(name: str) -> re.Pattern[str]:
    """What takes a statement in one of the usual forms of the grammar whole; `lastgroup` says which."""
    table = _table(name)
    return expression(table.lines, table.compiled)


@cache
def _table(name: str) -> Table:
    saved = _saved(name)
    if saved is None:
        return _automaton(name)
    table = Table(*marshal.loads(saved[0]))
    return table._replace(compiled=of_this_python(name, table.compiled))


def _saved(name: str) -> tuple[bytes, str, bytes] | None:
    """The parts of a table that the build step has written; None when it is not there, or of another grammar."""
    try:
        with open(_path(name, "tables"), "rb") as file:
            stamp, automaton, version, data = marshal.loads(file.read())
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return (automaton, version, data) if stamp == _stamp(name) else None


class Fault(NamedTuple):
    """Why Lark refuses a text: where, what is there (nothing at the end), and which terminals could be."""

    error: lark.exceptions.UnexpectedInput
    at: int
    found: str
    expected: set[str]

    @property
    def is_character(self) -> bool:
        """Whether a character that no terminal begins with is what is wrong."""
        return isinstance(self.error, lark.exceptions.UnexpectedCharacters)


def refused(name: str, text: str, start: str) -> Fault:
    """What is wrong with a text that `Parser` refuses."""
    try:
        _reporting(name).parse(text, start=start)
    except lark.exceptions.UnexpectedInput as error:
        return fault(error, text)
    raise AssertionError(f"Lark reads what {name}.tables refuses: {text[:80]!r}")


def fault(error: lark.exceptions.UnexpectedInput, text: str) -> Fault:
    """What an error of Lark says of the text that it parsed."""
    at = error.pos_in_stream or 0
    if not isinstance(error, lark.exceptions.UnexpectedToken):
        return Fault(error, at, text[at : at + 1], {*(getattr(error, "allowed", None) or ())})
    ended = error.token.type == "$END"
    return Fault(error, len(text) if ended else at, "" if ended else str(error.token), {*(error.accepts or error.expected)})


@cache
def _reporting(name: str) -> lark.Lark:
    return load(name)


@cache
def _spelled(name: str) -> dict[str, str]:
    """What the terminals of a grammar that are a fixed text look like, in backquotes."""
    patterns = {t.name: t.pattern for t in _reporting(name).terminals}
    return {n: f"`{p.value}`" for n, p in patterns.items() if isinstance(p, lark.lexer.PatternStr)}


def check_depth(text: str, limits: Limits, start: int = 0) -> None:
    """Raise LimitExceeded when brackets in `text`, outside of strings, are nested deeper than `limits` allow. `start` is where
    `text` begins in its source."""
    if sum(map(text.count, "([{<")) <= limits.nesting or _matched(text, limits.nesting):
        return
    depth = 0
    for m in re.finditer(r'"(?:\\.|[^"\\\n])*"|([(\[{<])|[)\]}]|(?<!-)>', text):
        if m[0][0] != '"':
            depth += 1 if m[1] else -1
        if depth > limits.nesting:
            here = pack(start + m.start(), start + m.end())
            raise LimitExceeded(f"brackets nested deeper than {limits.nesting}", "--max-nesting", here)


def _matched(text: str, depth: int) -> bool:
    """Whether the brackets of a text without strings are in pairs that are nested at most so deep."""
    left = text.replace("->", "").translate(_NO_BRACKETS) if text.isascii() and '"' not in text else text
    while left and depth and left != text:
        text, left, depth = left, re.sub(r"\[\]|\(\)|\{\}|<>", "", left), depth - 1
    return not left


_NO_BRACKETS = dict.fromkeys({*range(128)} - {*map(ord, "()[]{}<>")})


def report(
    grammar: str,
    fault: Fault,
    diagnostics: Diagnostics,
    code: str,
    names: Mapping[str, str],
    *,
    offset: int = 0,
    end: int | None = None,
    help: str | None = None,
) -> None:
    """Report a syntax error: what was found, what could be there instead.

    `names` says in words the terminals that are not a fixed text; the parsed text is source[offset:end]; `end` None is
    the whole rest. A mark that alone is missing is named, with the edit; so is a closing bracket that nothing opens.
    """
    names = _spelled(grammar) | {**names}
    text = diagnostics.source.text if diagnostics.source else ""
    ending, last = ("end of input", len(text)) if end is None else ("end of line", end)
    at, found = (fault.at + offset, f"`{_shown(fault.found)}`") if fault.found else (last, ending)
    span, fix = Span(at, min(len(text), at + len(fault.found))), None
    if (opening := _unopened(text[offset:at], text[at : at + 1])) is not None:
        message = f"no `{opening}` is before this {found}"
    elif (mark := _missing(fault, names)) is not None:
        place = offset + len(text[offset:at].rstrip())
        message, help = f"`{mark}` is missing {'before' if fault.found else 'at the'} {found}", f"write `{mark}`"
        fix = Fix(Span(place, place), f" {mark}" if mark == "{" else mark)
    else:
        words = sorted({names.get(e, e.lower().replace("_", " ").strip()) for e in fault.expected - {"$END"}})
        words = words or [ending] * len(fault.expected)
        message = f"found {found}{f', expected {_listing(words)}' if words else ''}"
    diagnostics.error(code, message, span, help=help, fix=fix)


def _missing(fault: Fault, names: Mapping[str, str]) -> str | None:
    """The one mark that, written before the token in error, lets it be there; None when none or several do."""
    error = fault.error
    if not isinstance(error, lark.exceptions.UnexpectedToken) or error.interactive_parser is None:
        return None
    fitting: list[str] = []
    for terminal in error.accepts or ():
        mark = names.get(terminal, "").strip("`")
        if mark and mark in "()[]{}<>,:=" and lark_tables.continues(error, terminal, mark):
            fitting.append(mark)
    return fitting[0] if len(fitting) == 1 else None


def _unopened(before: str, closing: str) -> str | None:
    """The bracket that `closing` would close, when none is open in the text before it."""
    opening = {")": "(", "]": "[", "}": "{"}.get(closing)
    code = re.sub(r'"(?:\\.|[^"\\\n])*"|(?://|#(?!\w))[^\n]*', "", before)
    return opening if opening is not None and code.count(opening) <= code.count(closing) else None


def _shown(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= 30 else line[:29] + "…"


def _listing(words: list[str]) -> str:
    if len(words) > 6:
        return ", ".join(words[:6]) + ", …"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def write_tables() -> None:
    """What the build step does: write `<name>.tables` for every grammar."""
    for file_name in sorted(os.listdir(HERE)):
        name, _, suffix = file_name.rpartition(".")
        if suffix == "tables":
            os.remove(os.path.join(HERE, file_name))
    for file_name in sorted(os.listdir(HERE)):
        name, _, suffix = file_name.rpartition(".")
        if suffix == "lark":
            content = tables(name)
            with open(_path(name, "tables"), "wb") as file:
                file.write(content)


if __name__ == "__main__":
    write_tables()
