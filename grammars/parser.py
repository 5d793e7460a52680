"""Runs a grammar's parse table without Lark: the same tokens, the same actions in the same order, a tenth of the time.

A text that it refuses is given to Lark, which says what is wrong (`grammars.report`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ptir_tools.core.limits import LimitExceeded, integer
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.grammars.expressions import expression


class Token(str):
    """A terminal's text, its name and its place in the parsed text."""

    __slots__ = ("end_pos", "start_pos", "type")
    type: str
    start_pos: int
    end_pos: int

    @property
    def loc(self) -> Loc:
        """Its place."""
        return pack(self.start_pos, self.end_pos)

    @property
    def natural(self) -> int:
        """The number that it is, when that is one to count with; another one is -1, out of every range."""
        return integer(self) if self.isdigit() else -1

    def to(self, last: Token) -> Loc:
        """The place from its beginning to the end of `last`."""
        return pack(self.start_pos, last.end_pos)


def token(kind: str, text: str, start: int, end: int) -> Token:
    """A terminal at a place."""
    made = Token(text)
    made.type, made.start_pos, made.end_pos = kind, start, end
    return made


Children = list[Any]  # tokens, nodes, and what actions made


def located(method: Callable[..., Any]) -> Callable[..., Any]:
    """An action that takes where its rule begins and ends, after its children."""
    method.__dict__["located"] = True
    return method


class Node(NamedTuple):
    """What a rule makes where nothing else is said: its name, its children, and where it begins and ends.

    A child is a token, a node, or what an action made of a rule.
    """

    data: str
    children: Children
    start: int = 0
    end: int = 0

    @property
    def loc(self) -> Loc:
        """Its place."""
        return pack(self.start, self.end)

    def parts(self, rule: str) -> list[Node]:
        """The children that `rule` made."""
        return [x for x in self.children if isinstance(x, Node) and x.data == rule]

    def part(self, rule: str) -> Node | None:
        """The first child that `rule` made."""
        return next(iter(self.parts(rule)), None)

    def tokens(self, *rules: str) -> list[Token]:
        """The tokens among its children; with the name of a rule, those in the parts that it made, and so on."""
        found = [self]
        for rule in rules:
            found = [x for node in found for x in node.parts(rule)]
        return [x for node in found for x in node.children if isinstance(x, Token)]

    def token(self, kind: str = "") -> Token:
        """The first token among its children, of a kind if one is named."""
        return next(x for x in self.tokens() if kind in ("", x.type))


class Nodes:
    """Actions that make a Node of every rule."""

    def __getattr__(self, rule: str) -> Callable[..., Node]:
        if not rule[:1].islower():  # Lark asks for terminals, too
            raise AttributeError(rule)
        return located(lambda children, start, end: Node(rule, children, start, end))


class Refused(Exception):
    """The text is not of the language."""


# Of a rule: what it makes, how many symbols, the action or nothing, the children that are kept (with those that are lists to be
# joined), whether one child replaces it.
RuleText: TypeAlias = "tuple[str, int, str, list[tuple[int, bool]] | None, bool]"


class Table(NamedTuple):
    """What the build step makes of a grammar: plain values, which `marshal` takes.

    A state has the number of its lexer, and for each symbol where it goes, or the complement of the rule that is whole there.
    """

    starts: dict[str, tuple[int, int]]  # the first and the last state
    lexers: list[str]
    words: list[dict[str, dict[str, str]]]  # of each lexer, by terminal: the texts that are terminals of their own
    dropped: list[str]  # terminals that no action is given
    states: list[tuple[int, dict[str, int]]]
    rules: list[RuleText]
    lines: str  # the line reader
    compiled: dict[str, bytes]  # regular expressions, by their text


class Parser:
    """The table of a grammar with the actions of its rules: methods of the rules' names, called bottom up with the children.

    What the children are is Lark's convention: punctuation is left out, `_rules` and repetitions are part of their parent, and
    `?rules` of one child are that child. A rule without an action gives its children as a list.
    """

    def __init__(self, name: str, table: Table, actions: object) -> None:
        self.name, self.actions, self.table = name, actions, table
        self.lexers: list[Callable[[str, int, int], Any] | None] = [None] * len(table.lexers)
        self.dropped = frozenset(table.dropped)
        methods = (getattr(actions, name, None) if name else None for _, _, name, _, _ in table.rules)
        self.rules = [
            (origin, size, kept, single, method, hasattr(method, "located"))
            for (origin, size, _, kept, single), method in zip(table.rules, methods, strict=True)
        ]

    def lexer(self, index: int) -> Callable[[str, int, int], Any]:
        """The tokens that may come in a state, compiled when the state is first met."""
        found = self.lexers[index] = expression(self.table.lexers[index], self.table.compiled).match
        return found

    def parse(
        self,
        text: str,
        start: str,
        *,
        keep: bool = False,
        at: int = 0,
        end: int | None = None,
        lines: re.Pattern[str] | None = None,
    ) -> Any:
        """What the actions make of text[at:end] as a `start`. Raises Refused, and what the actions raise.

        With `keep`, what is whole before the token that is refused, and cannot go on, is given to the actions. `lines` is the
        line reader: the matches of statements that it takes, one after the other, are together one terminal `LINES`.
        """
        state, final = self.table.starts[start]
        states, words, rules, lexers, dropped = self.table.states, self.table.words, self.rules, self.lexers, self.dropped
        stack, values, places = [state], list[Any](), list[tuple[int, int]]()
        size = len(text) if end is None else end
        while True:
            number, actions = states[stack[-1]]
            m = (lexers[number] or self.lexer(number))(text, at, size)
            kind, (begin, end) = m.lastgroup or "$END", m.span(m.lastindex or 0)
            if kind in words[number]:
                kind = words[number][kind].get(text[begin:end], kind)
            run = [] if lines is None or not _begins_line(actions, kind) else _run(lines.match, text, begin, size)
            if run:
                kind, end = "LINES", run[-1].end()
            refused = kind == "$END" and end < size  # a character that begins no terminal
            if refused and not (keep and _over(actions)):
                raise Refused
            while (action := actions.get(kind, 0)) <= 0:
                if not action:
                    if refused or kind == "$END" or not (keep and _over(actions)):
                        raise Refused
                    refused, kind = True, "$END"
                    continue
                origin, length, kept, single, method, wants_place = rules[~action]
                place = (begin, begin)
                children = []
                if length:
                    children = values[-length:]
                    place = (places[-length][0], places[-1][1])
                    del stack[-length:], values[-length:], places[-length:]
                if kept is not None:
                    children = _kept(children, kept)
                if method is None or (single and len(children) == 1):
                    value = children[0] if single else children
                else:
                    try:
                        value = method(children, *place) if wants_place else method(children)
                    except LimitExceeded as limit:
                        raise limit.at(pack(*place)) from None
                stack.append(states[stack[-1]][1][origin])
                values.append(value)
                places.append(place)
                if stack[-1] == final and kind == "$END":
                    if refused:
                        raise Refused
                    return value
                actions = states[stack[-1]][1]
            stack.append(action)
            places.append((begin, end))
            values.append(run or (None if kind in dropped else token(kind, text[begin:end], begin, end)))
            at = end


def _begins_line(actions: dict[str, int], kind: str) -> bool:
    """Whether a terminal may begin a statement, and nothing else."""
    line, other = actions.get("LINES", 0), actions.get(kind, 0)
    return line > 0 < other or line == other != 0


def _run(match: Callable[[str, int, int], re.Match[str] | None], text: str, at: int, end: int) -> list[re.Match[str]]:
    """The statements in usual form that follow each other from `at` on."""
    found: list[re.Match[str]] = []
    while (m := match(text, at, end)) is not None:
        found.append(m)
        at = m.end()
    return found


def _over(actions: dict[str, int]) -> bool:
    """Whether what was read last cannot go on."""
    return max(actions.values()) < 0


def _kept(children: Children, kept: list[tuple[int, bool]]) -> Children:
    """The children that are not left out, repetitions in place."""
    found = children[:0]
    for i, is_list in kept:
        if not is_list:
            found.append(children[i])
        elif found:
            found += children[i]
        else:
            found = children[i]
    return found
