"""The text of a pass pipeline: `name,name{option=value},fixpoint{n=4}(name,name)`.

A comma or a line end separates passes; `#` and `//` begin a comment that the line ends.
"""

from __future__ import annotations

import re

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass, field

_NAME = regex(r"[A-Za-z_][A-Za-z0-9_.-]*")
_VALUE = regex(r'"[^"\n]*"|[^",{}()\s]+')
_NEAR = 60  # characters of a line that are shown before and after an error
_BLANK = regex(r"(?:\s|(?:#|//)[^\n]*)*")


@dataclass(slots=True, frozen=True)
class Step:
    """One pass of a pipeline: its options as text, and for a pass over passes what is in parentheses. `at`: its offset;
    `options_at`: the offsets of the name and the value of each option."""

    name: str
    at: int
    options: dict[str, str] = field(default_factory=dict)
    body: tuple[Step, ...] | None = None
    options_at: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ",".join(f"{k}={_quoted(v)}" for k, v in self.options.items())
        inner = "" if self.body is None else f"({','.join(map(str, self.body))})"
        return self.name + (f"{{{options}}}" if options else "") + inner


def _quoted(value: str) -> str:
    return value if _VALUE.fullmatch(value) else f'"{value}"'


def point(text: str, at: int, message: str, length: int = 1) -> UsageError:
    """An error that shows the line of the pipeline, or a part of a long one, with carets under `length` characters from offset
    `at`."""
    start = text.rfind("\n", 0, at) + 1
    line, column = text[start:].partition("\n")[0].expandtabs(1), at - start
    where = f" (line {text.count(chr(10), 0, at) + 1})" if "\n" in text.strip() else ""
    if cut := max(column - _NEAR, 0):
        line, column = "…" + line[cut:], column - cut + 1
    if len(line) > 2 * _NEAR:
        line, length = line[: 2 * _NEAR] + "…", min(length, 2 * _NEAR - column)
    return UsageError(f"{message}{where}\n  {line}\n  {' ' * column}{'^' * length}")


def parse(text: str) -> tuple[Step, ...]:
    """The steps of a pipeline text. Raises UsageError with the location of the error."""
    reader = _Reader(text)
    steps = reader.steps(nesting=0)
    if reader.at < len(reader.text):
        raise reader.error(f"expected `,`, found `{reader.text[reader.at]}`")
    return steps


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line_ended = False  # between the last token and the next
        self.blank()

    def error(self, message: str) -> UsageError:
        return point(self.text, self.at, message)

    def blank(self) -> None:
        if (m := _BLANK.match(self.text, self.at)) is not None:
            self.at, self.line_ended = m.end(), "\n" in m.group()

    def take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        self.blank()
        return True

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        if (m := pattern.match(self.text, self.at)) is None:
            result = f"`{self.text[self.at]}`" if self.at < len(self.text) else "the end"
            open_quotes = what == "a value" and result == '`"`'
            raise self.error("the quotes are not closed" if open_quotes else f"expected {what}, found {result}")
        self.at = m.end()
        self.blank()
        return m.group()

    def steps(self, nesting: int) -> tuple[Step, ...]:
        if nesting > 16:
            raise self.error("the pipeline is nested too deep")
        steps: list[Step] = []
        while self.at < len(self.text) and not self.text.startswith(")", self.at):
            steps.append(self.step(nesting))
            if not (self.line_ended | self.take(",")):
                break
        return tuple(steps)

    def step(self, nesting: int) -> Step:
        at = self.at
        name = self.match(_NAME, "the name of a pass")
        options, options_at = self.options() if self.take("{") else ({}, {})
        body = None
        if self.take("("):
            body = self.steps(nesting + 1)
            if not self.take(")"):
                raise self.error("expected `)`")
        return Step(name, at, options, body, options_at)

    def options(self) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
        options: dict[str, str] = {}
        places: dict[str, tuple[int, int]] = {}
        while not self.take("}"):
            at = self.at
            name = self.match(_NAME, "the name of an option")
            if name in options:
                raise point(self.text, at, f"option `{name}` is given twice", len(name))
            given = self.take("=")
            places[name] = at, self.at if given else at
            options[name] = self.match(_VALUE, "a value").strip('"') if given else "true"
            if not self.take(",") and not self.text.startswith("}", self.at):
                raise self.error("expected `,` or `}`")
        return options, places
