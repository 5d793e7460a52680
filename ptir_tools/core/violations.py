"""A broken rule of a program, and the piece of an op's text that it concerns."""

from __future__ import annotations

from collections.abc import Iterable

from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Loc


class Place(NamedTuple):
    """A piece of an op's text in the terms of a type rule; `places.find` finds it in the text."""

    kind: str
    key: int | str = 0
    entry: tuple[int, ...] = ()


OP_NAME = Place("op")


def operand(number: int) -> Place:
    """The operand of this number."""
    return Place("operand", number)


def operands(first: int = 0) -> Place:
    """The operands from number `first` on."""
    return Place("operands", first)


def group(name: str, *entry: int) -> Place:
    """All operands of a group of the declaration, or one of them."""
    return Place("group", name, entry)


def attribute(name: str, *entry: int) -> Place:
    """The value of an attribute, or one entry of a list, or an entry of that."""
    return Place("attribute", name, entry)


def key(name: str, *time: int) -> Place:
    """The name of an attribute; `time` 1 is its second occurrence."""
    return Place("key", name, time)


def result(number: int = 0) -> Place:
    """The declared type of a result."""
    return Place("result", number)


RETURNED = Place("returned")  # the operands of a `return`
LITERAL = Place("literal")  # the constant of a constant op


class Violation(Exception):
    """A broken rule, raised by type rules and bodies. The caller that has the op turns it into a diagnostic.

    `at` is the piece of the op's own text to point at: a `Place`, or the text itself; None is the complete op. `instead` is
    the text that must replace it, if only one is right; with `was`, only if that is there now. `through` is an op on the operand
    at `at`, written `{}`, whose result could replace it. `loc` is the op's place, if only the raiser has it; `labels` are other
    related places.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        help: str | None = None,
        at: str | Place | None = None,
        instead: str | None = None,
        was: str | None = None,
        through: str | None = None,
        loc: Loc = 0,
        labels: Iterable[tuple[Loc | str | Place, str]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        if help is not None:
            self.add_note(f"help: {help}")
        self.code = code
        self.message = message
        self.help = help
        self.at = at
        self.instead = instead
        self.was = was
        self.through = through
        self.loc = loc
        self.labels = tuple(labels)


def free_axis(named: Iterable[object], rank: int) -> str | None:
    """The last axis of a tensor that is not in `named`: a suggestion for an axis that does not exist."""
    taken = {a % rank for a in named if isinstance(a, int) and -rank <= a < rank}
    return next((str(a) for a in reversed(range(rank)) if a not in taken), None)


def require(condition: object, code: str, message: str, *, help: str | None = None, at: str | Place | None = None) -> None:
    """Raise Violation(code, message) unless `condition` holds."""
    if not condition:
        raise Violation(code, message, help=help, at=at)
