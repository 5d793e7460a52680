"""From a program to its text in a format of its IR."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics, UsageError, Violation
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects import OWNERS, load_format


def require_format(program: Program, form: str) -> None:
    """Raise UsageError when `form` is a format of another IR."""
    if OWNERS[form] is not program.dialect:
        raise UsageError(f"a {program.dialect.name} program is not written as {form}; ptir translate --to {form} converts it")


def program_text(program: Program, form: str, diagnostics: Diagnostics, options: Options) -> list[str]:
    """The pieces of `program` in format `form`; what it cannot say goes to `diagnostics`. Raises UsageError."""
    require_format(program, form)
    writer = load_format(form).write
    if writer is None:
        raise UsageError(f"{form} can be read, not written")
    try:
        return list(writer(program, diagnostics, options))
    except Violation as violation:  # of a program that was not verified
        diagnostics.violation(violation, None)
        return []
