"""Rules that plug-ins add to the canonicalization of a dialect."""

from __future__ import annotations

from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.patterns import Pattern

_ADDED: dict[str, FrozenPatternSet] = {}


def add_rules(dialect: str, *patterns: Pattern) -> None:
    """Add `patterns` to the first pass of the default pipeline of `dialect`.

    Raises ValueError for one whose root is not an op.
    """
    before = _ADDED[dialect].patterns if dialect in _ADDED else []
    _ADDED[dialect] = FrozenPatternSet([*before, *patterns])


def added(dialect: str) -> FrozenPatternSet | None:
    """The patterns that were added for `dialect`, if any."""
    return _ADDED.get(dialect)
