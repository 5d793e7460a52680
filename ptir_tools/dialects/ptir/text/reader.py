"""Text PTIR: the reader. One regular expression takes a statement in its usual form whole, about a microsecond an op; what
it does not take goes to the grammar, up to the next line that certainly begins a statement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Element, Op, Operand, Program, Region, Value, collector_paused
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import integer
from ptir_tools.core.opdef import Derived, OpDef, operand_type
from ptir_tools.core.source import LENGTH_BITS, Source, Span, pack
from ptir_tools.core.types import TensorType, Type, tuple_of
from ptir_tools.dialects.jsonc import blank_comments
from ptir_tools.dialects.ptir.text.assembly import Assembly
from ptir_tools.dialects.ptir.text.attributes import FROM_RESULT, Payload, flat_values
from ptir_tools.dialects.ptir.text.literals import read_payload
from ptir_tools.dialects.ptir.text.spelling import NAME, WORD, nearest, read_tensor

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.text import structure
else:
    structure = lazy("ptir_tools.dialects.ptir.text.structure")

_B = r"[ \t]*+"
_SKIP = r"(?:[ \t\r\n\f]++|//[^\n]*+|/\*[\s\S]*?\*/)*+"
_TENSOR = r"[Tt]ensor<[^<>\"{}()\n/]*+>"
_RESULT = rf"{_TENSOR}|\({_B}(?:{_TENSOR}(?:{_B},{_B}{_TENSOR})*+)?{_B}\)"
_DENSE = r"dense<[^<>\"\n/]*+>|dense<\"0x[0-9a-fA-F]*+\">"
_LITERAL = rf"(?:{_DENSE}){_B}:{_B}{_TENSOR}"
_VALUE = rf"%{NAME}"
# What may come before a name: its sigil, or nothing where the name is a word or a number and no keyword.
_SIGIL = r"(?:%|(?!(?:program|func|function|region|hint|return|tuple|spec_version)\b)(?=[A-Za-z_]|[0-9]++(?![\w.$])))"
_ELEMENT = rf"{_SIGIL}{NAME}(?:\[[0-9]+\])?"
_ATTR = rf"{WORD}\[(?:{_DENSE}|\^{WORD}|[^\[\]\"{{}}()<>/\n^%]|\[[^\[\]\"{{}}()<>/\n^%]*+\])*+\]"

_STATEMENT = re.compile(
    rf"{_SIGIL}({NAME}){_B}={_B}({WORD}){_B}"
    rf"(?:\(([^()\"{{}}<>\n/]*+|(?:{_LITERAL}|{_ELEMENT})(?:{_B},{_B}(?:{_LITERAL}|{_ELEMENT}))*+)\){_B}"
    rf"|({_VALUE}(?:{_B},{_B}{_VALUE})*+)(?!\[){_B})?"
    rf"((?:{_ATTR}{_B})*+)->{_B}({_RESULT})[ \t\r\n\f]*+(?![,;)\]\[>])"
)
_PARAM = rf"{_SIGIL}{NAME}{_B}:{_B}{_TENSOR}"
_HEADER = re.compile(
    rf"(?:func[ \t]++(?:@|{_SIGIL})({NAME})|region[ \t]++\^({WORD})){_B}\({_B}((?:{_PARAM}(?:{_B},{_B}{_PARAM})*+)?){_B}\){_B}"
    rf"->{_B}({_RESULT}){_B}\{{"
)
_RETURN = re.compile(
    rf"return\b{_B}((?:%{NAME}(?:\[[0-9]+\])?(?:{_B},{_B}%{NAME}(?:\[[0-9]+\])?)*+)?){_B}(?:;{_B})*+(?={_SKIP}(?:\}}|hint\b|\Z))"
)
_PROGRAM = re.compile(rf"program[ \t]++@({NAME}){_B}\({_B}spec_version{_B}={_B}({WORD}){_B}\){_B}\{{")
_CLOSE = re.compile(r"\}")
_BLANKS = re.compile(_SKIP)

_OPERAND = re.compile(rf"{_B}(?:({_DENSE}){_B}:{_B}({_TENSOR})|{_SIGIL}({NAME})(?:\[([0-9]+)\])?){_B}(?:,|$)")
_ATTRIBUTE = re.compile(rf"({WORD})\[((?:{_DENSE}|[^\[\]]|\[[^\[\]]*+\])*+)\]")
_TYPES = re.compile(_TENSOR)
_PARAMS = re.compile(rf"%?({NAME}){_B}:{_B}({_TENSOR})")
# A line that begins a statement whatever came before it: where reading goes on after an error.
_START = re.compile(
    rf"^[ \t]*(%?{NAME}[ \t]*=[ \t]*[a-z_]\w*[ \t]*[(%\[]|{_VALUE}[ \t]*=|(?:return|func|region|program|hint)\b"
    r"|\}(?![ \t]*[\],)}]))",
    re.MULTILINE,
)
_OPENING = re.compile(r"(?:program|func|function|region|return)\b|[%\w.$]+[ \t]*=|\}")
_BROKEN = re.compile(rf"(func(?:tion)?|region)\b|(return)\b|%({NAME})|({NAME})[ \t]*=")
_PLACEHOLDER = re.compile(r"\{\{[ \t]*(\w+)[ \t]*\}\}|//[^\n]*|/\*.*?\*/", re.DOTALL)  # comments hold none


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
    values = options.placeholders
    whole = True
    for m in _PLACEHOLDER.finditer(source.text):
        if m[1] and m[1] not in values:
            meant = nearest(m[1], values)
            help = f"did you mean {meant}?" if meant else f"give it with --set {m[1]}=VALUE"
            diagnostics.error("UnfilledPlaceholder", f"nothing is given for {m[0]}", Span(*m.span()), help=help)
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
        self.attrs: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.contextual = {d for d in self.assembly.ops.values() if depends_on_types(d)}
        self.code: str | None = None

    def items(self) -> Assembly:
        pos, size = self.skip(0), len(self.text)
        while pos < size:
            after = self.statements(pos) if self.assembly.block is not None else pos
            if after == pos:
                after = self.other(pos)
            pos = self.skip(after)
        return self.assembly

    def skip(self, pos: int) -> int:
        found = _BLANKS.match(self.text, pos)
        return found.end() if found else pos

    def other(self, pos: int) -> int:
        """Read what is no statement in its usual form; returns where it ends."""
        assembly = self.assembly
        if m := _CLOSE.match(self.text, pos):
            assembly.close(pack(*m.span()))
        elif (m := _RETURN.match(self.text, pos)) and (returned := self.operands(m[1])) is not None:
            assembly.returns(returned, pack(pos, pos + len(m[0].rstrip(" \t"))))
        elif (m := _HEADER.match(self.text, pos)) and (header := self.header(m)):
            name, params, results = header
            open_block = assembly.open_function if m[1] else assembly.open_region
            open_block(name, params, results, pack(*m.span()))
        elif m := _PROGRAM.match(self.text, pos):
            assembly.open_program(m[1], m[2], pack(*m.span()))
        else:
            return self.parse(pos)
        return m.end()

    def header(self, m: re.Match[str]) -> tuple[str, list[tuple[str, Type]], list[Type]] | None:
        try:
            params = [(p[1], self.tensor(p[2])) for p in _PARAMS.finditer(m[3])]
            results = [self.tensor(t) for t in _TYPES.findall(m[4])]
        except Violation:  # the grammar says where
            return None
        return m[1] or m[2], params, results

    def tensor(self, text: str) -> Type:
        found = self.types.get(text)
        if found is None:
            found = self.types[text] = read_tensor(text)
        return found

    # ---- statements

    def statements(self, pos: int) -> int:
        """Read statements in their usual form from `pos` on; returns where the first other item stands."""
        assembly, text = self.assembly, self.text
        if assembly.returned is not None and assembly.hint is None:
            return pos
        values, body, ops = assembly.values, assembly.body, assembly.ops
        types, cached, match = self.types, self.attrs, _STATEMENT.match
        defining = assembly.hint is None
        while m := match(text, pos):
            name, short, inside, bare, given, type_text = m.groups()
            defn, t = ops.get(short), types.get(type_text) or self.type_of(type_text)
            if defn is None or t is None:
                break
            at = (pos + 1) << LENGTH_BITS | (m.end(6) - pos)
            listed = inside if bare is None else bare
            try:
                operands: tuple[Operand, ...] | None = None
                if listed and listed[0] == "%":
                    operands = tuple([values[n] for n in listed[1:].split(", %")])
            except KeyError:
                operands = None
            if operands is None and (operands := self.operands(listed or "")) is None:
                break
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
            if text.startswith("/", pos):
                pos = self.skip(pos)
        return pos

    def instruction(
        self, name: str, defn: OpDef, operands: tuple[Operand, ...], given: str, t: Type, at: int, key: tuple[object, ...]
    ) -> bool:
        """Add an op whose attributes have not been seen yet; False when its text needs the grammar."""
        values: list[tuple[str, list[object]]] = []
        for m in _ATTRIBUTE.finditer(given):
            if m[2].startswith("dense<") and m[2].endswith(">"):
                found: list[object] | None = [Payload(m[2][6:-1])]
            else:
                found = flat_values(m[2])
            if found is None:
                return False
            values.append((m[1], found))
        attrs = self.assembly.instruction(name, defn.short, operands, values, t, at)
        if attrs is not None and not defn.regions and defn.short != "constant":
            self.attrs[key] = attrs
        return True

    def operands(self, text: str) -> tuple[Operand, ...] | None:
        """The operands in a plain list; None when the grammar is needed, to read them or to say what is wrong."""
        found: list[Operand] = []
        pos, size = 0, len(text)
        while pos < size:
            m = _OPERAND.match(text, pos)
            if m is None or (m.end() == size and text[-1] == ","):
                return None
            operand = self.operand(m)
            if operand is None:
                return None
            found.append(operand)
            pos = m.end()
        return tuple(found)

    def operand(self, m: re.Match[str]) -> Operand | None:
        try:
            if m[1]:
                t = self.type_of(m[2])
                return read_payload(m[1][6:-1], t, self.assembly.files) if isinstance(t, TensorType) else None
            value = self.assembly.values.get(m[3])
            if value is None or m[4] is None:
                return value
            element = Element(value, integer(m[4]))
            operand_type(element)
        except Violation:  # the grammar says where
            return None
        return element

    def type_of(self, text: str) -> Type | None:
        """A type without nesting; None when it needs the grammar, to be read or to say what is wrong."""
        try:
            if text[0] != "(":
                return self.tensor(text)
            self.types[text] = found = tuple_of(map(self.tensor, _TYPES.findall(text)))
        except Violation:
            return None
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
        if not structure.parse(self.assembly, pos, end):
            self.broken(pos, self.text[pos:end].rstrip())
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
