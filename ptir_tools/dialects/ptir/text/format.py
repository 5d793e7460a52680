"""Text PTIR, the form that people write and `ptir` prints."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.ptir.text.reader import read

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.text import fmt, writer
else:
    fmt = lazy("ptir_tools.dialects.ptir.text.fmt")
    writer = lazy("ptir_tools.dialects.ptir.text.writer")


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The lines of a program. See `writer`."""
    return writer.write(program, diagnostics, options)


def format_text(source: Source, diagnostics: Diagnostics) -> str | None:
    """The text laid out, or None after reporting why it cannot be read. See `fmt`."""
    return fmt.format_text(source, diagnostics)


FORMAT = Format("ptir", "ptir", read, write, format_text)
