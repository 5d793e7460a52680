"""`--weights FILE`: large constants of text PTIR in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ptir_tools.cli.output import to_stdout, write_bytes
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.ir import Program
from ptir_tools.core.lazy import lazy

if TYPE_CHECKING:
    from ptir_tools.core import arrayfiles
    from ptir_tools.core.arrays import Array
    from ptir_tools.dialects.ptir.text import external
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")
    external = lazy("ptir_tools.dialects.ptir.text.external")

weights_option = click.option(
    "--weights", metavar="FILE", help="Text PTIR: keep constants of more than 16 elements in FILE (.safetensors or .npz)."
)


def taken_out(session: Session, program: Program, form: str, path: str | None, output: str | None) -> dict[str, Array]:
    """What goes to the file at `path`; the writer then refers to it. Without one, what was read from files stays there: a text
    that is written to `output` refers to them, too. Raises UsageError for another format."""
    if path is None:
        if form == "ptir":
            session.set(outside=external.kept(program, "" if to_stdout(output) else os.path.dirname(output or "")))
        return {}
    if form != "ptir":
        raise UsageError(f"--weights is for text PTIR; {form} holds its constants itself")
    references, arrays = external.outside(program, path)
    session.set(outside=references)
    return arrays


def write(path: str | None, arrays: Mapping[str, Array]) -> None:
    """Write the file, where there is one to write. Raises OSError."""
    if path is not None:
        write_bytes(path, lambda file: arrayfiles.save(path, file, arrays))
