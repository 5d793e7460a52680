"""What the line reader takes out of a text: runs of statements in their usual form. The grammar parses the rest."""

from __future__ import annotations

import re

from ptir_tools import grammars
from ptir_tools.core.ir import Literal, OpDef
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.text import recovery
from ptir_tools.dialects.pto.text.syntax import File, Lines, Statement, parse_piece

TAKEN = "\0"  # in place of what the line reader has taken


@dataclass(slots=True, frozen=True)
class Plan:
    """What statements that are alike make of operands of certain types. They differ in holes: names, and numbers in lists.

    An operand is the number of a hole, or a literal.
    """

    defn: OpDef
    operands: tuple[int | Literal, ...]
    attrs: tuple[Any, ...]
    types: tuple[Type, ...]


@dataclass(slots=True)
class Usual:
    """The usual statements of a text, by the place where a run is taken out. Plans are found by the text between the holes and by
    the types of the operands in them."""

    runs: dict[int, list[re.Match[str]]] = field(default_factory=dict)
    plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)

    def first(self, s: Statement | Lines) -> Loc:
        """The place of a statement, or of the first that was taken."""
        return s.loc if isinstance(s, Statement) else pack(s.start, self.runs[s.taken][0].end("types"))


def scan(text: str) -> tuple[File, Usual] | None:
    """What `text` says, runs of usual statements apart; None when the grammar must read it whole."""
    if TAKEN in text:
        return None
    match, found, pieces, done = grammars.lines("pto").match, Usual(), list[str](), 0
    start = recovery.start(text, 0)
    while start is not None:
        run, m = list[re.Match[str]](), match(text, start)
        while m is not None:
            run.append(m)
            m = match(text, m.end())
        if run:  # the results of its first statement stay: they may belong to what is before
            first, end = run[0].start("op"), run[-1].end("types")
            found.runs[first] = run
            pieces += text[done:first], TAKEN * (end - first)
            done = end
        start = recovery.start(text, max(done, start + 1))
    file = parse_piece("".join((*pieces, text[done:])))
    return None if file is None else (file, found)
