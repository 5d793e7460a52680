"""`ptir hash`."""

from __future__ import annotations

import sys

from ptir_tools.cli.options import files_argument, option, subcommand
from ptir_tools.cli.session import Session, shown
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.lazy import lazy

convert = lazy("ptir_tools.convert")


@subcommand(
    files_argument,
    option("--canonical", is_flag=True, help="Rename functions, regions and values by position: equal for renamed programs."),
    option("--symbol", is_flag=True, help="Print the entry's symbol, NAME__HASH, as gpt.rs compiles it."),
)
def command(session: Session, files: tuple[str, ...], canonical: bool, symbol: bool) -> None:
    """Print the hash by which gpt.rs identifies a PTIR program: FNV-1a over its bincode, 16 hexadecimal digits.

    The same program has the same hash in every PTIR format. For several files, each line ends with the file's name. A program
    with a literal whose payload is missing has no hash. Programs are read, not verified.

    \b
    Examples:
      ptir hash program.json
      ptir hash --canonical before.ptir after.ptir
      ptir translate net.mind.ir --to ptir | ptir hash --symbol
    """

    def tell(path: str) -> int:
        diagnostics = Diagnostics()
        source = session.source(path, diagnostics)
        program = None if source is None else session.parse(source, diagnostics)
        hashing = None if program is None else program.dialect.hash
        if program is not None and hashing is None:
            way = "; ptir translate --to ptir converts it" if convert.route(program.dialect.name, convert.HUB) else ""
            raise UsageError(f"{shown(path)} is a {program.dialect.name} program, only PTIR has a hash{way}")
        result = None
        if program is not None and hashing is not None and not diagnostics.errors:
            result = hashing.number(program, diagnostics, canonical)
        status = session.reporter.status(diagnostics)
        if program is not None and hashing is not None and result is not None and not status:
            text = hashing.symbol(program.entry, result) if symbol else f"{result:016x}"
            sys.stdout.write(text + (f"  {path}" if len(files) > 1 else "") + "\n")
        return status

    session.each(files, tell)
