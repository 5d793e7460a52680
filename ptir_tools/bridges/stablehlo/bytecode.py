"""StableHLO bytecode: jaxlib converts it to text, which is read, and written text to bytecode."""

from __future__ import annotations

from ptir_tools.bridges.stablehlo import portable, reader, writer
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.source import Source


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in the bytes of `source`; places point into the text of the module. Raises UsageError without jaxlib."""
    text = portable.text_of(source.data or b"", diagnostics, "bytecode of StableHLO")
    if text is None:
        return None
    source.text = text
    return reader.read(source, diagnostics, options)


def encode(program: Program, diagnostics: Diagnostics, options: Options) -> bytes:
    """The portable bytecode of `program`, which readers of the last three months take. Raises UsageError without jaxlib."""
    text = "".join(writer.write(program, diagnostics, options))
    return b"" if diagnostics.errors else portable.bytecode_of(text, diagnostics)


FORMAT = Format("stablehlo-bytecode", "ptir", read, None, encode=encode)
