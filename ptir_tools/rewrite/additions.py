"""Rules that plug-ins add to the canonicalization of a dialect."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.patterns import Pattern

_ADDED: defaultdict[str, list[Pattern]] = defaultdict(list)


def add_rules(dialect: str, *patterns: Pattern) -> None:
    """Let `canonicalize` of programs of `dialect` use `patterns`, too. Raises ValueError for one whose root is no op."""
    FrozenPatternSet(patterns)
    _ADDED[dialect].extend(patterns)
    extended.cache_clear()


@cache
def extended(patterns: FrozenPatternSet, dialect: str) -> FrozenPatternSet:
    """`patterns` with those that were added for `dialect`; itself when there are none."""
    return FrozenPatternSet([*patterns.patterns, *_ADDED[dialect]]) if _ADDED[dialect] else patterns


def added(dialect: str) -> FrozenPatternSet | None:
    """The patterns that were added for `dialect`, if any."""
    return extended(_NONE, dialect) if _ADDED[dialect] else None


_NONE = FrozenPatternSet(())
