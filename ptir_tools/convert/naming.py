"""Names in translations: spelled for the target, unique."""

from __future__ import annotations

from collections.abc import Iterable

from ptir_tools.core.lazy import regex

_BAD = regex(r"[^A-Za-z0-9_]")
_ID = regex(r"(?:0|[1-9][0-9]*)\Z")
_NOT_PTIR = regex(r"[^\w.$]")


def in_ptir(name: str) -> str:
    """`name` with `_` for what PTIR cannot spell."""
    return _NOT_PTIR.sub("_", name)


def spelled(name: str) -> str:
    """`name` with `_` for what some dialect cannot spell. One that begins with a digit and is not a value id gets `_` in front;
    `01` is not one, since MIND reads it as the id 1."""
    plain = _BAD.sub("_", name)
    return f"_{plain}" if plain[:1].isdigit() and not _ID.match(plain) else plain


_OPERATORS = {"//": "_over_", "+": "_plus_", "-": "_minus_", "*": "_times_", "%": "_mod_", "(": "_of_", ")": "_end_"}
_OPERATOR = regex(r"//|[-+*%()]")


def extent_name(text: str) -> str:
    """The name of a parameter that is the extent `text`: `N_plus_1` for `N+1`."""
    return spelled(_OPERATOR.sub(lambda m: _OPERATORS[m[0]], text))


class Names:
    """Fresh names that differ from those in use."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.next: dict[str, int] = {}

    def between(self, name: str) -> str:
        """A fresh name for an intermediate value on the way to `name`: `v5_0` for `5`."""
        stem = f"v{name}" if name.isdecimal() else name
        n = self.next.get(stem, 0)
        while (own := f"{stem}_{n}") in self.taken:
            n += 1
        self.next[stem] = n + 1
        self.taken.add(own)
        return own
