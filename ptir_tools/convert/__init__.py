"""From one dialect to another, with PTIR as the hub.

A conversion is a module with `convert(program, diagnostics, options) -> Program | None`, which reports everything that the
target cannot express before it gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program, collector_paused
from ptir_tools.core.lazy import lazy

HUB = "ptir"
NOT_TRANSLATABLE = "NotTranslatable"

Convert = Callable[[Program, Diagnostics, Options], Program | None]

# (from, to) -> the module that converts.
CONVERSIONS: dict[tuple[str, str], str] = {
    ("mind", "ptir"): "ptir_tools.convert.mind_ptir",
    ("tiny", "ptir"): "ptir_tools.convert.tiny_ptir",
    ("ptir", "mind"): "ptir_tools.convert.ptir_mind",
}


def route(source: str, target: str) -> list[tuple[str, str]] | None:
    """The conversions that lead from one dialect to another, in order; None when there is no way. Equal dialects need none."""
    if source == target:
        return []
    steps = [(source, target)] if (source, target) in CONVERSIONS else [(source, HUB), (HUB, target)]
    return steps if all(step in CONVERSIONS for step in steps) else None


def translate(program: Program, target: str, diagnostics: Diagnostics, options: Options | None = None) -> Program | None:
    """`program`, which verifies, as a new program of the dialect `target`; None after reporting what cannot be translated.

    Symbols stay symbols. A program that is of that dialect is given back itself.
    """
    source = program.dialect.name
    steps = route(source, target)
    if steps is None:
        known = ", ".join(f"{a} to {b}" for a, b in CONVERSIONS)
        diagnostics.error(NOT_TRANSLATABLE, f"no conversion leads from {source} to {target} (there are: {known})")
        return None
    with collector_paused():
        for step in steps:
            convert = cast(Convert, lazy(CONVERSIONS[step]).convert)
            if (converted := convert(program, diagnostics, options or Options())) is None:
                return None
            converted.source = program.source
            program = converted
    return program
