"""Rules that plug-ins add to the canonicalization of a dialect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptir_tools.core.diagnostics import PluginFault
from ptir_tools.rewrite.driver import Endless
from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.patterns import Pattern
from ptir_tools.rewrite.step_log import BrokenPattern

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


def fault(pattern: Pattern, message: str) -> PluginFault:
    """The error for what `pattern` breaks, with its file and line."""
    return PluginFault(getattr(pattern, "function", type(pattern).match_and_rewrite), message)


@contextmanager
def blamed(patterns: FrozenPatternSet) -> Iterator[None]:
    """Raise PluginFault where one of `patterns` breaks a rule of the driver, or is applied without end."""
    try:
        yield
    except (BrokenPattern, Endless) as error:
        names = error.rules if isinstance(error, Endless) else [error.rule]
        guilty = [p for p in patterns.patterns if p.name in names]
        if not guilty:
            raise
        raise fault(guilty[0], f"the rule is wrong: {error}") from error
