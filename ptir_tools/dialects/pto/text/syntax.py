"""Text to statements: the line reader, the grammar, and recovery after a syntax error. Statements are not resolved; `reader`
makes ops of them."""

from __future__ import annotations

import re
from functools import cache

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Attribute, OpDef
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Source
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.text import recovery
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token

MAX_ERRORS = 100


class Statement:
    """One op from the grammar. `before` and `after` are the type tokens on either side of the signature's arrow."""

    __slots__ = ("after", "before", "counted", "loc", "name", "node", "results")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.loc = node.loc
        self.name = str(node.token())
        self.counted = [x.tokens() for part in node.parts("results") for x in part.parts("result")]  # with their numbers
        self.results = [names[0] for names in self.counted]
        lists = [x.tokens() for x in (node.part("signature") or node).parts("types")]
        self.before = lists[0] if lists else None
        self.after = lists[1] if len(lists) > 1 else None

    @property
    def operands(self) -> list[Node]:
        """Each is a token, with its subscripts."""
        return [*self.node.parts("operand"), *(x for part in self.node.parts("operands") for x in part.parts("operand"))]

    @property
    def entries(self) -> list[Node]:
        """What its dictionaries hold."""
        return entries(self.node)


@dataclass(slots=True, frozen=True)
class Plan:
    """The result of similar statements, for operands of certain types. They differ in holes: names, and numbers in lists. An
    operand is the number of a hole."""

    defn: OpDef
    operands: tuple[int, ...]
    attrs: tuple[Attribute, ...]
    types: tuple[Type, ...]


@dataclass(slots=True)
class File:
    """The functions of a text, with or without a module, and the statements outside of functions. Plans are found by the text
    between the holes and by the types of the operands in them."""

    functions: list[Node]
    statements: list[Node]
    attributes: list[Node]  # of its module
    lost: set[str] = field(default_factory=set)  # names that statements with syntax errors would have defined
    plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)


def entries(node: Node) -> list[Node]:
    """The entries of the dictionaries of attributes among a node's children."""
    return [x for part in node.parts("attributes") for x in part.parts("entry")]


def value_of(entry: Node) -> Token | Node | None:
    """What an entry of a dictionary gives its key: a token, a list, a dictionary, or nothing."""
    return entry.children[1] if len(entry.children) > 1 else None


def elements_of(entry: Node) -> list[Token] | None:
    """The list that an entry of a dictionary gives its key; None for anything else."""
    found = entry.part("elements")
    return None if found is None else found.tokens()


@cache
def parser() -> Parser:
    """The grammar, as nodes with places."""
    return grammars.parser("pto", Nodes())


def parse_piece(text: str, at: int = 0, end: int | None = None, lines: re.Pattern[str] | None = None) -> File | None:
    """The statements of text[at:end], which the line reader does not know; None when they are not complete."""
    try:
        return _file(parser().parse(text, "file", at=at, end=end, lines=lines))
    except Refused:
        return None


def _file(root: Node) -> File:
    items = [y for x in root.children for y in (x.children if x.data == "module" else [x])]
    nodes = [x for x in items if isinstance(x, Node) and x.data not in ("attributes", "func")]
    functions = [x for x in items if isinstance(x, Node) and x.data == "func"]
    return File(functions, nodes, [x for m in root.parts("module") for x in entries(m)])


def parse(source: Source, diagnostics: Diagnostics) -> File | None:
    """The statements of `source`. Every syntax error is reported, and its statement is left out. None when nothing else can be
    read."""
    text = source.text
    lost, seen, lines = set[str](), set[int](), grammars.lines("pto")
    while len(seen) < MAX_ERRORS:
        if (found := parse_piece(text, lines=lines)) is not None:
            found.lost = lost
            return found
        fault = grammars.refused("pto", text, "file")
        again = (at := fault.at) in seen
        if not again:
            recovery.report(fault, diagnostics)
        seen.add(at)
        chunk = recovery.broken(text, at, again)
        if chunk is None:
            return None
        start, end = chunk
        if (names := recovery.DEFINED.match(text, start, end)) is not None:
            lost.update(re.findall(r"%([\w$.-]+)", names[1]))
        line = text[text.rfind("\n", 0, at) + 1 : end]
        if (unbound := re.match(r"\s*%([\w$.-]+)\s+[\"\w]", line)) is not None:  # without its `=`
            lost.add(unbound[1])
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return None
