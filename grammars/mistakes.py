"""What people write in other ways than a language has it: one list for each language, one way to find and to report it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Span
from ptir_tools.core.spelling import GUESSED, did_you_mean
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from ptir_tools.grammars import Fault

HERE = "\0"  # in a pattern: where the grammar gave up


class Mistake(NamedTuple):
    """A mistake: how it looks, the message, and what to write instead.

    The group `wrong` of the pattern is replaced. The group `shown` is pointed at, if there is one; else `wrong`. Where that is
    empty, it is the token at which the grammar gave up, or what is behind `wrong` if that comes later. `instead` is a template,
    or gives the text; with None it is another mistake. The message is a template, too. `wants` is a terminal that the grammar
    would have taken. The help for what is `guessed` is a question.
    """

    pattern: str
    message: str
    instead: str | Callable[[re.Match[str]], str | None]
    wants: str = ""
    guessed: bool = False


def reported(
    mistakes: Iterable[Mistake], fault: Fault, diagnostics: Diagnostics, code: str, start: int, end: int, at: int
) -> bool:
    """Report the first of `mistakes` that is in source.text[start:end], with its edit; False when there is none.

    `fault` is at `at`. In a text of more than `GUESSED` characters no mistake is looked for.
    """
    source = diagnostics.source
    text = source.text[start:end] if source is not None else ""
    if len(text) > GUESSED:
        return False
    at -= start
    marked = f"{text[:at]}{HERE}{text[at:]}"
    for pattern, message, instead, wants, guessed in mistakes:
        given = marked if HERE in pattern else text
        found = re.search(pattern, given) if not wants or wants in getattr(fault.error, "expected", ()) else None
        made = None if found is None else found.expand(instead) if isinstance(instead, str) else instead(found)
        if found is None or made is None:
            continue
        wrong, shown = (_span(found, group, at if given is marked else len(text)) for group in ("wrong", "shown"))
        if shown.start == shown.end:
            token = Span(at, at + len(fault.found or " "))
            shown = wrong if wrong.start < wrong.end else token if wrong.end <= at else Span(wrong.end, wrong.end + 1)
        if text[: wrong.start][-1:].isspace():
            made = made.lstrip()
        help = did_you_mean([made]) if guessed else f"write `{made.strip()}`" if made.strip() else "drop it"
        edit = Fix(Span(start + wrong.start, start + wrong.end), made)
        diagnostics.error(code, found.expand(message), Span(start + shown.start, start + shown.end), help=help, fix=edit)
        return True
    return False


def closed(text: str, count: int) -> Fix:
    """The edit that closes `count` braces at the end of a text."""
    braces = "".join(f"{'  ' * depth}}}\n" for depth in reversed(range(count)))
    return Fix(Span(len(text), len(text)), braces if text.endswith("\n") else f"\n{braces}")


def _span(found: re.Match[str], group: str, at: int) -> Span:
    """Where a group is in the text without the mark at `at`; nothing where the pattern has no such group."""
    start, end = found.span(group) if group in found.re.groupindex else (0, 0)
    return Span(start - (start > at), end - (end > at))
