"""From a program to its text in a format of its IR."""

from __future__ import annotations

from collections.abc import Iterable

from ptir_tools.core.diagnostics import Diagnostics, PluginFault, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import OWNERS, load_format


def require_format(program: Program, form: str) -> None:
    """Raise UsageError when `form` is a format of another IR."""
    if OWNERS[form] is not program.dialect:
        raise UsageError(f"a {program.dialect.name} program is not written as {form}; ptir translate --to {form} converts it")


def program_text(program: Program, form: str, diagnostics: Diagnostics, options: Options) -> list[str]:
    """The pieces of `program` in a format of text; what it cannot say goes to `diagnostics`. Raises UsageError."""
    require_format(program, form)
    writer = load_format(form).write
    if writer is None:
        raise UsageError(f"{form} can be read, not written" if load_format(form).encode is None else f"{form} is not text")
    try:
        pieces = writer(program, diagnostics, options)
        found = list(pieces) if isinstance(pieces, Iterable) else [pieces]
    except Violation as violation:  # of a program that was not verified
        diagnostics.violation(violation, None)
        return []
    for piece in found:
        if not isinstance(piece, str):
            raise PluginFault(writer, f"the writer of `{form}` gives {type(piece).__name__}, not text")
    return found


def program_pieces(program: Program, form: str, diagnostics: Diagnostics, options: Options) -> list[str] | list[bytes]:
    """As `program_text`, for any format: a binary one has one piece of bytes."""
    require_format(program, form)
    encode = load_format(form).encode
    if encode is None:
        return program_text(program, form, diagnostics, options)
    made = encode(program, diagnostics, options)
    if not isinstance(made, bytes):
        raise PluginFault(encode, f"the writer of `{form}` gives {type(made).__name__}, not bytes")
    return [made]
