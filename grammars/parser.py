"""Runs a grammar's parse table without Lark: the same tokens, the same actions in the same order, a tenth of the time.

A text that it refuses is given to Lark, which says what is wrong (`grammars.report`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


class Token(str):
    """A terminal's text, its name and its place in the parsed text."""

    __slots__ = ("end_pos", "start_pos", "type")
    type: str
    start_pos: int
    end_pos: int


class Refused(Exception):
    """The text is not of the language."""


def located(method: Callable[..., Any]) -> Callable[..., Any]:
    """An action that takes where its rule begins and ends, after its children."""
    method.located = True  # type: ignore[attr-defined]
    return method


class Parser:
    """The table of a grammar with the actions of its rules: methods of the rules' names, called bottom up with the children.

    What the children are is Lark's convention: punctuation is left out, `_rules` and repetitions are part of their parent, and
    `?rules` of one child are that child.
    """

    def __init__(self, name: str, table: dict[str, Any], actions: Any) -> None:
        self.name, self.actions = name, actions
        self.starts: dict[str, tuple[int, int]] = table["starts"]
        self.sources: list[str] = table["lexers"]
        self.words: list[dict[str, dict[str, str]]] = table["words"]
        self.lexers: list[Callable[[str, int], re.Match[str] | None] | None] = [None] * len(self.sources)
        self.dropped = frozenset(table["dropped"])
        self.states: list[tuple[int, dict[str, int]]] = table["states"]
        self.rules = [self._rule(*rule) for rule in table["rules"]]

    def _rule(self, origin: str, size: int, name: str, kept: Any, single: bool) -> tuple[Any, ...]:
        method = getattr(self.actions, name, *[None] * single) if name else None
        return origin, size, kept, single, method, hasattr(method, "located")

    def lexer(self, index: int) -> Callable[[str, int], re.Match[str] | None]:
        """The tokens that may come in a state, compiled when the state is first met."""
        found = self.lexers[index] = re.compile(self.sources[index]).match
        return found

    def parse(self, text: str, start: str) -> Any:
        """What the actions make of `text` as a `start`. Raises Refused, and what the actions raise."""
        state, final = self.starts[start]
        states, rules, lexers, dropped, words = self.states, self.rules, self.lexers, self.dropped, self.words
        stack, values, places = [state], list[Any](), list[tuple[int, int]]()
        at, size = 0, len(text)
        while True:
            number, actions = states[stack[-1]]
            m = (lexers[number] or self.lexer(number))(text, at)
            if m is None:
                raise Refused
            kind = m.lastgroup or "$END"
            place = begin, end = m.span(m.lastindex or 0)
            if kind == "$END" and end < size:
                raise Refused
            if kind in words[number]:
                kind = words[number][kind].get(text[begin:end], kind)
            while (action := actions.get(kind, 0)) < 0:
                origin, length, kept, single, method, wants_place = rules[~action]
                over = place
                if length:
                    children = values[-length:]
                    over = (places[-length][0], places[-1][1])
                    del stack[-length:], values[-length:], places[-length:]
                else:
                    children = []
                if kept is not None:
                    children = _kept(children, kept)
                if method is None or (single and len(children) == 1):
                    value = children[0] if single else children
                else:
                    value = method(children, *over) if wants_place else method(children)
                stack.append(states[stack[-1]][1][origin])
                values.append(value)
                places.append(over)
                if stack[-1] == final and kind == "$END":
                    return value
                actions = states[stack[-1]][1]
            if not action:
                raise Refused
            stack.append(action)
            places.append(place)
            if kind in dropped:
                values.append(None)
            else:
                values.append(token := Token(text[begin:end]))
                token.type, token.start_pos, token.end_pos = kind, begin, end
            at = end


def _kept(children: list[Any], kept: list[tuple[int, bool]]) -> list[Any]:
    """The children that are not left out, repetitions in place."""
    found: list[Any] = []
    for i, is_list in kept:
        if not is_list:
            found.append(children[i])
        elif found:
            found += children[i]
        else:
            found = children[i]
    return found
