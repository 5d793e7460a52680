"""The text of a pass pipeline: `name,name{option=value},fixpoint{n=4}(name,name)`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ptir_tools.core.diagnostics import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_VALUE = re.compile(r'"[^"]*"|[^,{}()\s]+')
_BLANK = re.compile(r"\s*")


@dataclass(slots=True, frozen=True)
class Step:
    """One pass of a pipeline: its options as text, and for a pass over passes what stands in parentheses. `at`: its offset."""

    name: str
    at: int
    options: dict[str, str] = field(default_factory=dict)
    body: tuple[Step, ...] | None = None

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        inner = "" if self.body is None else f"({','.join(map(str, self.body))})"
        return self.name + (f"{{{options}}}" if options else "") + inner


def point(text: str, at: int, message: str) -> UsageError:
    """An error that shows the pipeline with a caret under the character at offset `at`."""
    return UsageError(f"{message}\n  {text}\n  {' ' * at}^")


def parse(text: str) -> tuple[Step, ...]:
    """The steps of a pipeline text. Raises UsageError pointing at what is wrong."""
    reader = _Reader(text.replace("\n", " "))
    steps = reader.steps(nesting=0)
    if reader.at < len(reader.text):
        raise reader.error(f"expected `,`, found `{reader.text[reader.at]}`")
    return steps


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.blank()

    def error(self, message: str) -> UsageError:
        return point(self.text, self.at, message)

    def blank(self) -> None:
        if (m := _BLANK.match(self.text, self.at)) is not None:
            self.at = m.end()

    def take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        self.blank()
        return True

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        if (m := pattern.match(self.text, self.at)) is None:
            found = f"`{self.text[self.at]}`" if self.at < len(self.text) else "the end"
            raise self.error(f"expected {what}, found {found}")
        self.at = m.end()
        self.blank()
        return m.group()

    def steps(self, nesting: int) -> tuple[Step, ...]:
        if nesting > 16:
            raise self.error("the pipeline is nested too deep")
        steps: list[Step] = []
        while self.at < len(self.text) and not self.text.startswith(")", self.at):
            steps.append(self.step(nesting))
            if not self.take(","):
                break
        return tuple(steps)

    def step(self, nesting: int) -> Step:
        at = self.at
        name = self.match(_NAME, "the name of a pass")
        options = self.options() if self.take("{") else {}
        body = None
        if self.take("("):
            body = self.steps(nesting + 1)
            if not self.take(")"):
                raise self.error("expected `)`")
        return Step(name, at, options, body)

    def options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        while not self.take("}"):
            name = self.match(_NAME, "the name of an option")
            if name in options:
                raise self.error(f"option `{name}` is given twice")
            options[name] = self.match(_VALUE, "a value").strip('"') if self.take("=") else "true"
            if not self.take(",") and not self.text.startswith("}", self.at):
                raise self.error("expected `,` or `}`")
        return options
