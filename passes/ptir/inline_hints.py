"""Drops fusion hints. They are copies of ops in the function, which stay."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Drop every fusion hint, required ones too; the ops that they group stay."""
    for function in program.functions:
        context.count("dropped", len(function.annotations))
        context.edits += len(function.annotations)
        function.annotations.clear()
