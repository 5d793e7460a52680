"""Text PTIR: the writer, a stream of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ptir_tools.core import extents
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import OUTSIDE, Options, Program
from ptir_tools.core.ir import (
    REQUIRED,
    Attr,
    Derived,
    Element,
    Function,
    Literal,
    Op,
    OpDef,
    Operand,
    Region,
    Value,
    operand_type,
    result_names,
)
from ptir_tools.core.lazy import regex
from ptir_tools.core.symbols import DERIVED
from ptir_tools.core.types import Sym, TupleType, Type, dim_text, sym
from ptir_tools.core.where import spelled
from ptir_tools.dialects.ptir import ELIDE_CONSTANTS
from ptir_tools.dialects.ptir.hints import Hint, hints
from ptir_tools.dialects.ptir.text import attribute_text
from ptir_tools.dialects.ptir.text.attributes import FROM_RESULT
from ptir_tools.dialects.ptir.text.literal_text import payload_text
from ptir_tools.dialects.ptir.text.spelling import NAME, quote

_NAME = regex(NAME)
_WORD = regex(r"[A-Za-z_][\w.$]*")


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The lines of a program; a bare func when it is one function, its entry, without regions."""
    program = spelled(program)
    writer = _Writer(options)
    if len(program.functions) == 1 and not program.regions and program.entry == program.functions[0].name:
        yield from writer.block(program.functions[0], "")
        return
    yield f"program @{_symbol_name(program.entry)} (spec_version = ptir.v0.4) {{\n"
    for block in (*program.functions, *program.regions):
        yield from writer.block(block, "  ")
    yield "}\n"


def names_of(block: Region) -> dict[Value, str]:
    """A name for every value that has none, or one that is taken or cannot be written: the next free number."""
    taken: set[str] = set()
    nameless: list[Value] = []
    for values in (block.params, *(op.results for op in block.body)):
        for v in values:
            if v.name in taken or not _NAME.fullmatch(v.name):
                nameless.append(v)
            else:
                taken.add(v.name)
    if not nameless:
        return {}
    first = max((int(n) for n in taken if n.isascii() and n.isdigit() and len(n) < 11), default=-1) + 1
    return {v: str(first + i) for i, v in enumerate(nameless)}


def _where(block: Region) -> str:
    """The expressions of a function's symbols; nothing for one without."""
    table = block.attrs.get(DERIVED, {}) if isinstance(block, Function) else {}
    derived = ((sym(name), d) for name, d in table.items() if isinstance(d, Sym) and d.poly is not None)
    shown = [f"{dim_text(s)} = {extents.text(d)}" for s, d in derived]
    return f" where {', '.join(shown)}" if shown else ""


def _symbol_name(name: str) -> str:
    """A function's name as it is after `@`: quoted unless it is a plain name."""
    return name if _NAME.fullmatch(name) else quote(name)


class _TypeTexts(dict[Type, str]):
    """The text of every type printed so far."""

    def __missing__(self, t: Type) -> str:
        text = f"({', '.join(map(self.__getitem__, t.elements))})" if isinstance(t, TupleType) else str(t)
        self[t] = text
        return text


def _shown(defn: OpDef, attrs: tuple[object, ...], types: tuple[Type, ...]) -> list[tuple[Attr, object]]:
    """The attributes that are printed: not what the result type says, not what equals its default."""
    left = FROM_RESULT.get(defn.short, ())
    named: dict[str, object] = {}
    found = []
    for a, value in zip(defn.attrs, attrs, strict=True):
        default = a.default.rule(named, types) if isinstance(a.default, Derived) else a.default
        named[a.name] = value
        if a.name not in left and (default is REQUIRED or default != value or type(default) is not type(value)):
            found.append((a, value))
    return found


class _Writer:
    def __init__(self, options: Options) -> None:
        self.elide, self.outside = options[ELIDE_CONSTANTS], options[OUTSIDE]
        self.types = _TypeTexts()
        self.attrs: dict[tuple[OpDef, tuple[object, ...]], str] = {}
        self.names: dict[Value, str] = {}

    def block(self, block: Region, indent: str) -> Iterator[str]:
        """A function or region with its braces."""
        self.names = names_of(block)
        params = ", ".join(f"%{self.name(p)}: {self.types[p.type]}" for p in block.params)
        title = f"func @{_symbol_name(block.name)}" if isinstance(block, Function) else f"region ^{block.name}"
        yield f"{indent}{title}({params}) -> {self.results(block)}{_where(block)} {{\n"
        inner = indent + "  "
        for op in block.body:
            yield self.line(op, inner)
        returned = ", ".join(map(self.result, block.results, self.labels(block)))
        yield f"{inner}return {returned}\n" if returned else f"{inner}return\n"
        for hint in hints(block) if isinstance(block, Function) else ():
            yield from self.hint(hint, inner)
        yield f"{indent}}}\n"

    def result(self, x: Operand, label: str) -> str:
        """A result, and its name where that is another than its value's."""
        return f"{self.operand(x)} as {label if _WORD.fullmatch(label) else quote(label)}" if label else self.operand(x)

    def labels(self, block: Region) -> list[str]:
        """For each result the name that must be said, or nothing."""
        given = block.attrs.get("output_names") if isinstance(block, Function) else None
        if given is None:
            return [""] * len(block.results)
        return [name if name != own else "" for name, own in zip(given, result_names(block, self.names), strict=True)]

    def results(self, block: Region) -> str:
        types: list[Type] = block.result_types
        if len(types) != len(block.results):
            types = [operand_type(x) for x in block.results]
        if len(types) == 1 and not isinstance(types[0], TupleType):
            return self.types[types[0]]
        return f"({', '.join(map(self.types.__getitem__, types))})"

    def hint(self, hint: Hint, indent: str) -> Iterator[str]:
        lists = ((key, values) for key, values in (("inputs", hint.inputs), ("exports", hint.exports)) if values)
        said = "".join(f" {key}[{', '.join(map(self.operand, values))}]" for key, values in lists)
        attrs = f" attrs[{attribute_text.write('Attrs', hint.attrs)}]" if hint.attrs else ""
        yield f"{indent}hint {hint.id} {hint.kind} {hint.policy}{said}{attrs} {{\n"
        for op in hint.body:
            yield self.line(op, indent + "  ")
        yield f"{indent}}}\n"

    def line(self, op: Op, indent: str) -> str:
        operands = ", ".join([f"%{x.name}" if type(x) is Value and not self.names else self.operand(x) for x in op.operands])
        result = op.results[0]
        return f"{indent}%{self.name(result)} = {op.defn.short}({operands}){self.attributes(op)} -> {self.types[result.type]}\n"

    def name(self, value: Value) -> str:
        return self.names.get(value) or value.name

    def operand(self, x: Operand) -> str:
        if isinstance(x, Value):
            return f"%{self.name(x)}"
        if isinstance(x, Element):
            return f"%{self.name(x.value)}[{x.index}]"
        return f"{self.literal(x)} : {self.types[x.type]}"

    def literal(self, x: Literal) -> str:
        """`dense<…>`: the payload, the file that it is in, or `?` when it is to be elided."""
        if (reference := self.outside.get(x)) is not None:
            return f"dense<{reference}>"
        return "dense<?>" if self.elide is not None and x.type.count > self.elide else f"dense<{payload_text(x)}>"

    def attributes(self, op: Op) -> str:
        defn = op.defn
        if not defn.attrs and not op.regions:
            return ""
        if op.regions or defn.float_attrs or any(isinstance(a.default, Derived) for a in defn.attrs):
            return self.all_attributes(op)
        key = (defn, op.attrs)
        found = self.attrs.get(key)
        if found is None:
            found = self.attrs[key] = self.all_attributes(op)
        return found

    def all_attributes(self, op: Op) -> str:
        types = tuple(map(operand_type, op.operands))
        regions = "".join(f" {name}[^{r.name}]" for name, r in zip(op.defn.regions, op.regions, strict=True))
        return regions + "".join(self.attribute_texts(op, types))

    def attribute_texts(self, op: Op, types: tuple[Type, ...]) -> Iterable[str]:
        for attr, value in _shown(op.defn, op.attrs, types):
            operand = types[0] if types else None
            text = self.literal(value) if isinstance(value, Literal) else attribute_text.write(attr.kind, value, operand)
            yield f" {attr.name}[{text}]"
