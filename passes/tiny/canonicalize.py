"""Tiny's canonical form (docs/tiny.md): explicit, topological, without no-op movement."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.tiny.rewrites import CANONICALIZATION
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Canonical form: POOL as VIEW, no-op movement and casts dropped, RESHAPE and PERMUTE chains merged, dead nodes dropped.

    An output keeps its node, so that it keeps its name; a graph without "outputs" has no dead nodes.
    """
    context.apply(program, CANONICALIZATION, enable_constant_fold=False)
