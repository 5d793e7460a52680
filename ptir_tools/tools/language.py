"""Language services for a text that is being edited: diagnostics, names, types, uses, formatting. Independent of any editor.

Offsets count code points. A name is looked for in the text of its block, so that it is found in a text with errors, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from ptir_tools.core import places
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Fix
from ptir_tools.core.dialect import Dialect, Options, Program
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.ir import SEGMENTS, OpDef, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Source, Span
from ptir_tools.core.types import POISON, UNTYPED
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import result
from ptir_tools.dialects import FORMATS, OWNERS, load_format, reading
from ptir_tools.dialects.sniff import sniff
from ptir_tools.tools.textmate import colored, rules

_WORD = regex(r'[%@^][\w$][\w.$-]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w.]*')
_SKIPPED = regex(r'//[^\n]*|/\*[\s\S]*?\*/|"(?:[^"\\\n]|\\.)*"')
_FOLDED = regex(r'(?:^[ \t]*(?://|#)[^\n]*\n)+|//[^\n]*|/\*[\s\S]*?\*/|"(?:[^"\\\n]|\\.)*"|[(){}\[\]]', re.MULTILINE)
_BLOCK = regex(r"^[ \t]*(?:func|function|region|func\.func)\b", re.MULTILINE)


@dataclass(slots=True, frozen=True)
class Hover:
    """The hover text of the word at `span`: about the value that it names, or the op."""

    span: Span
    value: Value | None = None
    type: str = ""
    op: OpDef | None = None


@dataclass(slots=True)
class Document:
    """A text as an editor holds it. `program` is the last that could be read, `diagnostics` are those of the current text."""

    name: str
    options: Options = field(default_factory=Options)
    text: str = ""
    form: str | None = None
    program: Program | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def change(self, text: str) -> None:
        """Replace the text: read and verify it."""
        self.text = text
        collected = Diagnostics(source := Source(self.name, text))
        self.form = sniff(text) or self.form
        try:
            program = reading.read(source, collected, self.options, self.form) if text.strip() else None
            if program is not None:
                verify(program, collected, self.options)
        except LimitExceeded as error:
            collected.error("LimitExceeded", str(error), error.loc or Span(0, 0))
            program = None
        self.diagnostics = collected.sorted()
        self.program = program or self.program

    @property
    def dialect(self) -> Dialect | None:
        """The dialect of the text, its ops declared."""
        owner = OWNERS.get(self.form or "")
        if owner is not None:
            owner.declare()
        return owner

    @property
    def is_json(self) -> bool:
        """Whether names are strings of JSON."""
        return self.text.lstrip().startswith("{")

    # ---- words

    def word(self, offset: int) -> Span | None:
        """The word at a place: a name with its mark, a string, or the name of an op."""
        start = self.text.rfind("\n", 0, offset) + 1
        for m in _WORD.finditer(self.text, start):
            if m.start() > offset:
                return None
            if offset <= m.end():
                return Span(*m.span())
        return None

    def block(self, offset: int) -> Span:
        """The text in which a name has one meaning: a function or a region, or the complete text of a program without these."""
        starts = [m.start() for m in _BLOCK.finditer(self.text)]
        before = [s for s in starts if s <= offset]
        if not before or self.is_json:
            return Span(0, len(self.text))
        after = [s for s in starts if s > offset]
        return Span(before[-1], after[0] if after else len(self.text))

    def uses(self, offset: int) -> list[Span]:
        """Every place of the name at `offset`, in order; of a symbol such as `@f` in the complete text."""
        at = self.word(offset)
        name = self.text[at.start : at.end] if at else ""
        if at is None or not (name[0] in "%@^" or (name[0] == '"' and self._is_id(name))):
            return []
        scope = Span(0, len(self.text)) if name[0] in "@^" else self.block(at.start)
        skipped = [] if name[0] == '"' else [m.span() for m in _SKIPPED.finditer(self.text, *scope)]
        end = r"(?![\w$]|[.-][\w$])" if name[0] != '"' else ""
        matches = re.compile(re.escape(name) + end).finditer(self.text, *scope)
        return [Span(*m.span()) for m in matches if not any(a <= m.start() < b for a, b in skipped)]

    def _is_id(self, quoted: str) -> bool:
        return re.search(rf'"id"\s*:\s*{re.escape(quoted)}', self.text) is not None

    def definition(self, offset: int) -> Span | None:
        """The place where the name at `offset` is defined."""
        return next((span for span in self.uses(offset) if self._defines(span)), None)

    def _defines(self, span: Span) -> bool:
        before, after = self.text[max(0, span.start - 40) : span.start], self.text[span.end : span.end + 200]
        first = self.text[span.start]
        if first == '"':
            return re.search(r'"id"\s*:\s*\Z', before) is not None
        if first in "@^":
            return re.search(r"\b(?:func|function|region|func\.func(?:\s+\w+)?)\s+\Z", before) is not None
        line = self.text.rfind("\n", 0, span.start) + 1
        leads = re.fullmatch(r"[ \t]*(?:%[\w.$-]+[ \t]*,[ \t]*)*", self.text[line : span.start]) is not None
        assigned = leads and re.match(r"(?:[ \t]*,[ \t]*%[\w.$-]+)*[ \t]*=(?!=)", after) is not None
        parameter = re.match(r"\s*:", after) is not None and re.search(r"[(,]\s*\Z", before) is not None
        bound = re.search(r"\bscf\.for\s+\Z", before) is not None or (
            re.match(r"\s*=", after) and re.search(r"[(,]\s*\Z", before)
        )
        return bool(assigned or parameter or bound)

    def rename(self, offset: int, name: str) -> list[Fix]:
        """The edits that rename the name at `offset`; none if there is no name. Raises ValueError if `name` is not valid, or
        is another name there."""
        spans = self.uses(offset)
        if not spans:
            return []
        mark = self.text[spans[0].start]
        plain = name.strip().strip('"').removeprefix(mark)
        if not re.fullmatch(r"[^\"\\\n]+" if mark == '"' else r"[A-Za-z_]\w*|[0-9]+", plain):
            raise ValueError(f"`{plain}` is not a name")
        new = f'"{plain}"' if mark == '"' else mark + plain
        if new != self.text[spans[0].start : spans[0].end] and self._names(new, spans[0].start):
            raise ValueError(f"`{new}` is another name here")
        return [Fix(span, f'"{plain}"' if mark == '"' else mark + plain) for span in spans]

    def _names(self, name: str, place: int) -> bool:
        """Whether the block around `place` has a name, also one that only a nested or an outer block defines."""
        if name[0] == '"':
            return self._is_id(name)
        scope = Span(0, len(self.text)) if name[0] in "@^" else self.block(place)
        skipped = [m.span() for m in _SKIPPED.finditer(self.text, *scope)]
        matches = re.compile(re.escape(name) + r"(?![\w$]|[.-][\w$])").finditer(self.text, *scope)
        return any(not any(a <= m.start() < b for a, b in skipped) for m in matches)

    def highlights(self, offset: int) -> list[tuple[Span, bool]]:
        """Every place of the name at `offset`, and whether it is defined there."""
        return [(span, self._defines(span)) for span in self.uses(offset)]

    def tokens(self) -> list[tuple[Span, str]]:
        """The words of the text with their kinds, of `TOKENS`, in order. Comments and strings are words of one line each."""
        if self.form not in colored():
            return []
        params = {p.name for block in self.program.blocks() for p in block.params} if self.program is not None else set[str]()
        found: list[tuple[Span, str]] = []
        for m in _coloring(self.form).finditer(self.text):
            kind = _KINDS[int((m.lastgroup or "_0")[1:])]
            if kind == "variable" and m[0][1:] in params:
                kind = "parameter"
            start = m.start()
            for line in m[0].split("\n"):
                if line:
                    found.append((Span(start, start + len(line)), kind))
                start += len(line) + 1
        return found

    def folds(self) -> list[tuple[int, int]]:
        """The lines, from 0, of the first and the last line of what can be folded: brackets over several lines, and comments."""
        found, opened, line, at = list[tuple[int, int]](), list[int](), 0, 0
        for m in _FOLDED.finditer(self.text):
            line, at = line + self.text.count("\n", at, m.start()), m.start()
            if m[0] in "{[(":
                opened.append(line)
            elif m[0] in ")]}":
                if opened and line > (first := opened.pop()) + (m[0] != "}"):
                    found.append((first, line - 1))
            elif lines := m[0].rstrip("\n").count("\n"):
                found.append((line, line + lines))
        return sorted({*found})

    def signature(self, offset: int) -> tuple[OpDef, int] | None:
        """The op between whose parentheses a place is, and the number of the operand there."""
        text, depth, operand = self.text[max(self.text.rfind("\n", 0, offset), 0) : offset], 0, 0
        for k in reversed(range(len(text))):
            if text[k] in ")]>":
                depth += 1
            elif text[k] in "([<" and depth:
                depth -= 1
            elif text[k] == "," and not depth:
                operand += 1
            elif text[k] == "(":
                word = re.search(r"[\w.]+\s*\Z", text[:k])
                op = self._op(word[0].strip()) if word is not None else None
                return None if op is None else (op, operand)
        return None

    # ---- facts about words

    def hover(self, offset: int) -> Hover | None:
        """The hover text of the word at a place."""
        at = self.word(offset)
        if at is None:
            return None
        text = self.text[at.start : at.end]
        if text[0] in '%"' and (value := self._value(at, text.strip('%"'))) is not None:
            dialect = self.dialect
            return Hover(at, value, dialect.type_text(value.type) if dialect else str(value.type))
        op = self._op(text.strip('"'))
        return None if op is None else Hover(at, op=op)

    def _value(self, at: Span, name: str) -> Value | None:
        scope = self.block(at.start)
        for value, span in self._values():
            if value.name == name and value.type not in (POISON, UNTYPED) and scope.start <= span.start < scope.end:
                return value
        return None

    def _values(self) -> Iterator[tuple[Value, Span]]:
        """The values of the program, with the places of their definitions."""
        program = self.program
        source = program.source if program is not None else None
        if program is None or source is None:
            return
        for block in program.blocks():
            header = source.span(block.loc) or Span(0, 0)
            yield from ((p, header) for p in block.params)
            for op in block.body:
                span = source.span(op.loc) or header
                yield from ((v, span) for v in op.results)

    def _op(self, name: str) -> OpDef | None:
        dialect = self.dialect
        if dialect is None:
            return None
        ops = dialect.ops
        short = name.partition(".")[2] if name.partition(".")[0] == dialect.name else name
        return ops.get(short) or ops.get(name)

    def completions(self, offset: int) -> list[tuple[str, str, str]]:
        """(text, kind, about) for each completion at a place: `value`, `op`, `attribute`, `type` or `snippet`, a text with places
        to fill in (`${1:…}`). An editor filters them by the text written so far."""
        line = self.text[self.text.rfind("\n", 0, offset) + 1 : offset]
        dialect = self.dialect
        if dialect is None:
            return []
        if self.is_json or re.search(r"%[\w.$-]*\Z", line):
            types = {v.name: dialect.type_text(v.type) for v, _ in self._values() if v.name} if self._in_scope(offset) else {}
            values = [(n if self.is_json else f"%{n}", "value", t) for n, t in types.items()]
            if not self.is_json:
                return values
            return [*values, *((d.short, "op", _first(d)) for d in dialect.ops.values())]
        if re.search(r"(?:<|\bdtype=|_dtype\[)\s*\w*\Z", line):
            return [(name, "type", "") for name in _DTYPES.get(self.form or "", map(str, PTIR_DTYPES))]
        mark = f"{dialect.name}."
        qualified = any(w.removeprefix(mark) in dialect.ops for w in re.findall(rf"\b{re.escape(mark)}[\w.]+", self.text))
        prefix = mark if qualified else ""  # with the prefix, if the text writes it
        op = next((d for w in reversed(re.findall(r"[\w.]+", line)) if (d := self._op(w)) is not None), None)
        if op is not None and re.search(r"[)\]\s{]\s*\w*\Z", line) and "(" in line + "(":
            names = [*(a.name for a in op.attrs if a.name != SEGMENTS), *op.regions]
            return [(name, "attribute", op.short) for name in names]
        known = _SNIPPETS.get(self.form or "", ()) if re.fullmatch(r"\s*\w*", line) else ()
        snippets = [(text, "snippet", about) for text, about in known]
        return [*snippets, *((prefix + d.short, "op", _first(d)) for d in dialect.ops.values())]

    def _in_scope(self, offset: int) -> bool:
        return self.program is not None and offset <= len(self.text)

    def hints(self) -> Iterable[tuple[int, str]]:
        """(place, type) of values without a written type."""
        dialect, program = self.dialect, self.program
        source = program.source if program is not None else None
        if dialect is None or program is None or source is None or source.text != self.text:
            return
        for block in program.blocks():
            for op in block.body:
                span = source.span(op.loc)
                written = span is not None and not self.is_json and places.find(source, span, result(), op) is not None
                if span is not None and not written and op.results and op.results[0].type not in (POISON, UNTYPED):
                    yield span.end, ", ".join(dialect.type_text(v.type) for v in op.results)

    def symbols(self) -> list[tuple[str, Span]]:
        """The functions and regions of the text with their blocks; without any, the values with their definitions."""
        found = [
            (self.text[m.start() : self.text.find("(", m.start())].strip() or "func", self.block(m.start()))
            for m in _BLOCK.finditer(self.text)
        ]
        if found or self.program is None:
            return found
        mark, pattern = ("", r'"(\w[^"\\\n]*)"') if self.is_json else ("%", r"%([\w.$-]+)")
        names = [(m[1], Span(m.start(), m.end())) for m in re.finditer(pattern, self.text)]
        places = {name: span for name, span in reversed(names) if self._defines(span)}
        shown = [(v, f"{mark}{v.name} = {v.op.defn.short}" if v.op else mark + v.name, at) for v, at in self._values() if v.name]
        return [(text, at if v.op else places.get(v.name, at)) for v, text, at in shown]

    def layout(self) -> str | None:
        """The text as `ptir fmt` formats it; None if it cannot be read, or has no layout."""
        if self.form is None or self.form not in FORMATS:
            return None
        lay_out = load_format(self.form).layout
        return None if lay_out is None else lay_out(Source(self.name, self.text), Diagnostics(Source(self.name, self.text)))


TOKENS = ("comment", "string", "variable", "parameter", "function", "method", "keyword", "type", "property", "number")
_KINDS = (  # of each rule of a grammar
    "comment", "comment", "string", "variable", "function", "type", "method", "keyword", "type", "property", "keyword", "number",
)  # fmt: skip
_BOX = "tensor<${3:f32}, ${4:4}>"
_SNIPPETS = {
    "ptir": (
        (f"func @${{1:main}}(%${{2:x}}: {_BOX}) -> {_BOX} {{\n  $0\n  return %${{2:x}}\n}}", "a function"),
        (f"region ^${{1:r0}}(%${{2:a}}: {_BOX}) -> {_BOX} {{\n  $0\n  return %${{2:a}}\n}}", "a region"),
    ),
    "pto": (("func.func @${1:main}(%${2:a}: pto.memref<${3:32x32xf32}>) {\n  $0\n  return\n}", "a function"),),
    "mind": (("%${1:0} = Input {name=${2:x}} : tensor<${3:f32}[${4:2, 3}]>", "an input"),),
}
_DTYPES = {  # of formats that spell them in their own way
    "mind": ("f32", "f64", "i32", "i64"),
    "pto": ("f32", "f16", "bf16", "i8", "i16", "i32", "u8", "u16", "u32"),
}


@cache
def _coloring(form: str) -> re.Pattern[str]:
    """The words of a format as the grammars for editors color them: group `_k` for rule k."""
    parts = []
    for k, rule in enumerate(rules(form)):
        pattern = rule.get("match") or (r"/\*[\s\S]*?\*/" if "block" in rule["name"] else r'"(?:[^"\\\n]|\\.)*"')
        parts.append(f"(?P<_{k}>{pattern})")
    return re.compile("|".join(parts), re.MULTILINE)


def _first(d: OpDef) -> str:
    return d.doc.strip().partition("\n")[0]
