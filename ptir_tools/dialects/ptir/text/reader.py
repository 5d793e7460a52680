"""Text PTIR: the reader. A statement in its usual form, which the line reader takes, needs no grammar when it repeats another.
What else there is goes to the grammar, up to the next line that certainly begins a statement."""

from __future__ import annotations

import re

from ptir_tools import grammars
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import late, regex
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Loc, Source, Span, pack
from ptir_tools.core.spelling import nearest
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import PLACEHOLDERS
from ptir_tools.dialects.ptir.text import structure
from ptir_tools.dialects.ptir.text.assembly import Assembly
from ptir_tools.dialects.ptir.text.attributes import Given
from ptir_tools.dialects.ptir.text.spelling import NAME, read_tensor
from ptir_tools.grammars.repeats import LONGEST, Repeats

blank_comments = late("ptir_tools.dialects.jsonc", "blank_comments")
_BLANKS = regex(r"(?>(?:[ \t\r\n\f]++|//[^\n]*+|/\*[\s\S]*?\*/)*)")
# A line that begins a statement whatever came before it: where reading goes on after an error.
_START = regex(
    rf"^[ \t]*(%?{NAME}[ \t]*=[ \t]*[a-z_]\w*[ \t]*[(%\[]|%{NAME}[ \t]*=|(?:return|func|region|program|hint)\b"
    r"|\}(?![ \t]*[\],)}]))",
    re.MULTILINE,
)
_OPENING = regex(r"(?:program|func|function|region|return)\b|[%\w.$]+[ \t]*=|\}")
_BROKEN = regex(rf"(func(?:tion)?|region)\b|(return)\b|%({NAME})|({NAME})[ \t]*=")
_PLACEHOLDER = regex(r"\{\{[ \t]*(\w+)[ \t]*\}\}|//[^\n]*|/\*.*?\*/", re.DOTALL)  # comments hold none


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in a text; every independent error of it goes to `diagnostics`. Raises LimitExceeded."""
    source.inserts = True
    if not fill_placeholders(source, diagnostics, options):
        return None
    return assemble(source, diagnostics, options).finish()


def assemble(source: Source, diagnostics: Diagnostics, options: Options) -> Assembly:
    """Everything a text says, with the places of its items."""
    with collector_paused():
        return _Reader(source, diagnostics, options).items()


def fill_placeholders(source: Source, diagnostics: Diagnostics, options: Options) -> bool:
    """Replace `{{name}}` in the source by the caller's texts; what is left over is reported."""
    if "{{" not in source.text:
        return True
    values = options[PLACEHOLDERS]
    whole = True
    for m in _PLACEHOLDER.finditer(source.text):
        if m[1] and m[1] not in values:
            meant = nearest(m[1], values)
            help, instead = f"give it with --set {m[1]}=VALUE", f"{{{{{meant}}}}}"
            found = (None, instead) if meant else (help, None)
            message, at = f"nothing is given for {m[0]}", Span(*m.span())
            diagnostics.error("UnfilledPlaceholder", message, at, help=found[0], instead=found[1])
            whole = False
    if whole:
        source.text = _PLACEHOLDER.sub(lambda m: str(values[m[1]]) if m[1] else m[0], source.text)
        source._lines = None
    return whole


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.text = source.text
        self.assembly = Assembly(source, diagnostics, options)
        self.repeats = Repeats("op", "attrs", "type")
        self.given: dict[str, Given] = {"": ()}  # the attributes in texts that had no error
        self.code: str | None = None

    def items(self) -> Assembly:
        assembly, match, like = self.assembly, grammars.lines("ptir").match, self.repeats.op
        pos, size, may_begin = self.skip(0), len(self.text), False
        while pos < size:
            m = match(self.text, pos) if may_begin else None
            at = 0 if m is None else pack(pos, m.end("type"))
            op = None if m is None else like(m, assembly.values, at)
            if m is not None and op is not None:
                assembly.append(op)
                pos = m.end()
                continue
            reported = len(assembly.diagnostics.items)
            pos = m.end() if m is not None and self.by_parts(m, at) else self.skip(self.parse(pos))
            if m is not None and assembly.body and assembly.body[-1].loc == at and len(assembly.diagnostics.items) == reported:
                self.repeats.learn(m, assembly.body[-1])
            may_begin = assembly.open
        return assembly

    def by_parts(self, m: re.Match[str], at: Loc) -> bool:
        """Read a statement that the line reader takes: only its attributes need the grammar. False, with nothing done, where the
        grammar must see all of it."""
        operands = self.repeats.operands(m["operands"], self.assembly.values)
        if operands is None:
            return False
        try:
            t = read_tensor(m["type"])
        except (Violation, LimitExceeded):
            return False
        reported, text = len(self.assembly.diagnostics.items), m["attrs"]
        if (given := self.given.get(text)) is None:
            given = structure.attributes(self.assembly, *m.span("attrs"))
            if len(self.assembly.diagnostics.items) == reported and len(text) < LONGEST:
                self.given[text] = given
        self.assembly.instruction(m["id"][1:], m["op"], operands, given, t, at)
        return True

    def skip(self, pos: int) -> int:
        found = _BLANKS.match(self.text, pos)
        return found.end() if found else pos

    def parse(self, pos: int) -> int:
        """Give the text from `pos` to the next certain start of a statement to the grammar."""
        if self.code is None:
            self.code = blank_comments(self.text) if "/" in self.text else self.text
        line = self.code.find("\n", pos)
        following = _START.search(self.code, line + 1) if line >= 0 else None
        end = following.start(1) if following else len(self.text)  # a comment may end on the line that begins it
        if self.assembly.ended and not _OPENING.match(self.text, pos):
            found = pack(pos, pos + len(self.text[pos:end].partition("\n")[0].rstrip()))
            self.assembly.stray("there is text after the last `}`", found, "drop it; a comment begins with //")
            return end
        after, failed = structure.parse(self.assembly, pos, end)
        if not failed:
            return after
        error = self.skip(after)
        self.broken(error, self.text[error:end].rstrip())
        return end

    def broken(self, pos: int, item: str) -> None:
        """What an item with a syntax error would have defined, opened or returned is in error, silently."""
        m = _BROKEN.match(item)
        assembly, at = self.assembly, pack(pos, pos + len(m[0]) if m else pos + len(item))
        opens = assembly.block is None and item.endswith("{")
        if (m and m[1]) or (opens and "->" in item):
            assembly.open_broken(at)
        elif opens or (assembly.block is None and item.startswith("program")):
            assembly.open_broken_program(at)
        elif assembly.block is None:
            assembly.lost = True
        elif m and m[2]:
            assembly.returns_unknown(at)
            assembly.unread = True
        elif m and assembly.returned is None and ("=" in item or "->" in item):
            assembly.poison(m[3] or m[4], at)
        else:
            assembly.unread = True
