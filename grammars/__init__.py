"""The Lark grammars of the languages, their only loader, and how a syntax error is told.

`<name>.lark` defines a language (LALR, contextual lexer). `<name>.tables` is its parse table, made from it by the build
step; without the file, or with that of another Lark or another grammar, the table is computed at load.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Span

if TYPE_CHECKING:
    import lark
    import lark.lexer
else:
    lark = lazy("lark")

HERE = os.path.dirname(__file__)  # pathlib would cost more than reading a table


def _path(name: str, suffix: str) -> str:
    return os.path.join(HERE, f"{name}.{suffix}")


def grammar_text(name: str) -> str:
    """The grammar's source."""
    with open(_path(name, "lark"), encoding="utf-8") as file:
        return file.read()


def starts(name: str) -> list[str]:
    """The start rules of a grammar: those of its first line, `// start: a b`."""
    first = grammar_text(name).partition("\n")[0]
    return first.removeprefix("// start:").split() if first.startswith("// start:") else ["start"]


def _build(name: str, transformer: Any = None) -> lark.Lark:
    return lark.Lark(
        grammar_text(name),
        start=starts(name),
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=False,
        transformer=transformer,
        source_path=_path(name, "lark"),
    )


def tables(name: str) -> bytes:
    """The content of `<name>.tables` as the build step writes it: Lark's own serialization, with the version that made it."""
    data, memo = _build(name).memo_serialize([lark.lexer.TerminalDef, lark.grammar.Rule])
    return _stamp(name) + b"\n" + marshal.dumps((data, memo), 4)


def _stamp(name: str) -> bytes:
    """What a table depends on: Lark's version and the grammar's text."""
    return f"{lark.__version__} {crc32(grammar_text(name).encode()):08x}".encode()


def load(name: str, transformer: Any = None) -> lark.Lark:
    """The parser of a grammar; `transformer` is applied while parsing, so that no tree is built where it has a method."""
    saved = _saved(name)
    if saved is None:
        return _build(name, transformer)
    made: lark.Lark = lark.Lark._load_from_dict(*saved, transformer=transformer)  # type: ignore[no-untyped-call]
    return made


def _saved(name: str) -> tuple[Any, Any] | None:
    try:
        with open(_path(name, "tables"), "rb") as file:
            stamp, _, body = file.read().partition(b"\n")
        if stamp != _stamp(name):
            return None
        data, memo = marshal.loads(body)
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return data, memo


def report(
    error: Exception,
    diagnostics: Diagnostics,
    code: str,
    names: Mapping[str, str],
    *,
    offset: int = 0,
    end: int | None = None,
    help: str | None = None,
) -> Span:
    """Report a Lark syntax error: what was found, what could have stood there. Returns its span.

    `names` says terminals in the language's own words; the parsed text is source[offset:end]; `end` None is the whole rest.
    """
    source = diagnostics.source
    text = source.text if source else ""
    ending, last = ("end of input", len(text)) if end is None else ("end of line", end)
    if isinstance(error, lark.exceptions.UnexpectedToken):
        token = error.token
        at = last if token.type == "$END" or token.start_pos is None else token.start_pos + offset
        found = ending if token.type == "$END" else f"`{_shown(str(token))}`"
        expected: Iterable[str] = error.accepts or error.expected
        width = 0 if token.type == "$END" else max(1, len(str(token)))
    elif isinstance(error, lark.exceptions.UnexpectedCharacters):
        at, width = (error.pos_in_stream or 0) + offset, 1
        found = f"`{_shown(text[at : at + 1])}`" if at < len(text) else "end of input"
        expected = error.allowed or ()
    else:
        raise error
    span = Span(at, min(len(text), at + width))
    words = sorted({names.get(e, e.lower().replace("_", " ").strip()) for e in expected if e != "$END"})
    wanted = f", expected {_listing(words)}" if words else ""
    diagnostics.error(code, f"found {found}{wanted}", span, help=help)
    return span


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
        if suffix == "lark":
            with open(_path(name, "tables"), "wb") as file:
                file.write(tables(name))


if __name__ == "__main__":
    write_tables()
