"""The listing that MIND's tool prints with `--emit-ir`; it can be read."""

from __future__ import annotations

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import PROFILE, Format, Options, Program
from ptir_tools.core.source import Source
from ptir_tools.dialects.mind.mic.reader import Reader
from ptir_tools.dialects.mind.ops.common import CURRENT


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`; with errors it is partial, and what is in error has the type POISON."""
    with collector_paused():
        return Reader(source, diagnostics, "mindc", options[PROFILE] == CURRENT).read()


FORMAT = Format("mindc", "mind", read, None)
