"""Text PTIR: the reader. The line reader takes a statement in its usual form whole, about two microseconds an op. What it does
not take goes to the grammar, up to the next line that certainly begins a statement."""

from __future__ import annotations

import re

from ptir_tools import grammars
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Derived, Element, Op, OpDef, Operand, Region, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import LENGTH_BITS, Source, Span, pack
from ptir_tools.core.spelling import nearest
from ptir_tools.core.types import TupleType, Type
from ptir_tools.dialects.jsonc import blank_comments
from ptir_tools.dialects.ptir import PLACEHOLDERS
from ptir_tools.dialects.ptir.text import structure
from ptir_tools.dialects.ptir.text.assembly import Assembly
from ptir_tools.dialects.ptir.text.attributes import FROM_RESULT
from ptir_tools.dialects.ptir.text.forms import Plain
from ptir_tools.dialects.ptir.text.spelling import NAME

_BLANKS = regex(r"(?>(?:[ \t\r\n\f]++|//[^\n]*+|/\*[\s\S]*?\*/)*)")
_INDEX = regex(r"[0-9]{1,9}\]")
REMEMBERED = 200  # characters of attributes: longer ones are constants, and seldom come twice
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
        source.text = _PLACEHOLDER.sub(lambda m: values[m[1]] if m[1] else m[0], source.text)
        source._lines = None
    return whole


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.text = source.text
        self.assembly = Assembly(source, diagnostics, options)
        self.types: dict[str, Type] = {}
        self.values: dict[str, list[tuple[str, list[Plain]]]] = {}  # of attributes, by their text
        self.attrs: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.match = grammars.lines("ptir").match
        self.contextual = {d for d in self.assembly.ops.values() if depends_on_types(d)}
        self.code: str | None = None

    def items(self) -> Assembly:
        pos, size = self.skip(0), len(self.text)
        while pos < size:
            after = self.statements(pos) if self.assembly.block is not None else pos
            if after == pos:
                after = self.parse(pos)
            pos = self.skip(after)
        return self.assembly

    def skip(self, pos: int) -> int:
        found = _BLANKS.match(self.text, pos)
        return found.end() if found else pos

    # ---- statements

    def statements(self, pos: int) -> int:
        """Read statements in their usual form from `pos` on; returns where the first other item is."""
        assembly, text = self.assembly, self.text
        if assembly.returned is not None and assembly.hint is None:
            return pos
        values, body, ops = assembly.values, assembly.body, assembly.ops
        types, cached, match = self.types, self.attrs, self.match
        defining = assembly.hint is None
        while m := match(text, pos):
            name, short, inside, bare, given, type_text = m.group("result", "op", "operands", "bare", "attrs", "type")
            defn, t = ops.get(short), types.get(type_text) or self.type_of(type_text)
            if defn is None or t is None:
                break
            name, listed, at = name[1:], inside or bare, (pos + 1) << LENGTH_BITS | (m.end("type") - pos)
            try:
                operands: tuple[Operand, ...] = tuple([values[n] for n in listed[1:].split(", %")]) if listed else ()
            except KeyError:
                if (found := self.elements(listed)) is None:
                    break
                operands = found
            key = (short, given, t, *map(type_of_operand, operands[:1])) if defn in self.contextual else (short, given)
            attrs = cached.get(key)
            if attrs is not None and defining and name not in values:
                op = Op(defn, operands, attrs, (), (), at)
                op.results = (value := Value(t, name, op),)
                values[name] = value
                body.append(op)
            elif not self.instruction(name, defn, operands, given, t, at, key):
                break
            pos = m.end()
        return pos

    def instruction(
        self, name: str, defn: OpDef, operands: tuple[Operand, ...], given: str, t: Type, at: int, key: tuple[object, ...]
    ) -> bool:
        """Add an op whose attributes have not been seen yet; False when there is something to report of their text."""
        values = self.values.get(given)
        if values is None:
            values = structure.attributes(given) if given else []
            if values is None:
                return False
            if len(given) < REMEMBERED:
                self.values[given] = values
        attrs = self.assembly.instruction(name, defn.short, operands, values, t, at)
        if attrs is not None and not defn.regions and defn.short != "constant":
            self.attrs[key] = attrs
        return True

    def elements(self, listed: str) -> tuple[Operand, ...] | None:
        """Operands, elements of tuples too; None when they are spelled otherwise, or there is something to report."""
        found: list[Operand] = []
        for text in listed.split(", "):
            name, _, index = text.partition("[")
            value = self.assembly.values.get(name[1:])
            if value is None or (index and not _INDEX.fullmatch(index)):
                return None
            operand = Element(value, int(index[:-1])) if index else value
            if isinstance(operand, Element) and not (
                isinstance(value.type, TupleType) and operand.index < len(value.type.elements)
            ):
                return None
            found.append(operand)
        return tuple(found)

    def type_of(self, text: str) -> Type | None:
        """A type; None when there is something to report."""
        if (found := structure.type_of(text)) is not None:
            self.types[text] = found
        return found

    # ---- the rest

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
            assembly.block, assembly.unnamed = None, True
            assembly.open_block(Region(loc=at), damaged=True)
        elif opens or (assembly.block is None and item.startswith("program")):
            assembly.wrapped, assembly.unnamed, assembly.braces = True, True, at
        elif assembly.block is None:
            assembly.lost = True
        elif m and m[2]:
            assembly.returns_unknown(at)
            assembly.unread = True
        elif m and assembly.returned is None and ("=" in item or "->" in item):
            assembly.poison(m[3] or m[4], at)
        else:
            assembly.unread = True


def depends_on_types(defn: OpDef) -> bool:
    """Whether the attributes of an op mean something else with other operand or result types."""
    special = any(a.kind in ("Scalar", "Literal") or isinstance(a.default, Derived) for a in defn.attrs)
    return special or defn.short in FROM_RESULT


def type_of_operand(x: Operand) -> object:
    """What tells the type of an operand, whether or not it has one."""
    return (x.value.type, x.index) if isinstance(x, Element) else x.type
