"""What a shell may propose for the words of a command line; a parameter's metavar tells what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from ptir_tools.core.lazy import lazy
from ptir_tools.dialects import DIALECTS, FORMATS, load_dialect

if TYPE_CHECKING:
    from click import shell_completion

    from ptir_tools import passes
    from ptir_tools.cli import codes
    from ptir_tools.dialects.pto import targets

    Text = click.ParamType[str]
    Items = list[shell_completion.CompletionItem]
else:
    codes = lazy("ptir_tools.cli.codes")
    passes = lazy("ptir_tools.passes")
    shell_completion = lazy("click.shell_completion")
    targets = lazy("ptir_tools.dialects.pto.targets")
    Text = click.ParamType


class Words(Text):
    """Text with known words in it. What stands before the last `,` or `(` of it stays."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        kept = re.sub(r"[^,(]*\Z", "", incomplete)
        proposed = (kept + word for word in sorted(set(self.known())))
        return [shell_completion.CompletionItem(word) for word in proposed if word.startswith(incomplete)]


class Paths(Text):
    """The path of a file or of a folder, `kind`."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        return [shell_completion.CompletionItem(incomplete, type=self.kind)]


def _ops() -> list[str]:
    return [name for dialect in DIALECTS for op in load_dialect(dialect).ops.values() for name in (op.short, op.name)]


def _passes() -> list[str]:
    return [name for dialect in DIALECTS for name in passes.names(dialect)]


_FILE, _PASSES = Paths("file"), Words(_passes)
_TYPES: dict[str, Text] = {
    "FILE": _FILE,
    "A": _FILE,
    "B": _FILE,
    "PLAN.json": _FILE,
    "DIR": Paths("dir"),
    "PASS": _PASSES,
    "PIPELINE": _PASSES,
    "FORMAT": Words(lambda: FORMATS),
    "CODE": Words(lambda: [code.code for _, code in codes.all_codes()]),
    "OP": Words(_ops),
    "TARGET": Words(lambda: targets.TARGETS),
}


def proposing(command: click.Command) -> click.Command:
    """`command`, its parameters of plain text completed by what their metavars say."""
    for p in command.params:
        if p.type is click.STRING and p.metavar:
            p.type = _TYPES.get(p.metavar.strip("[]."), p.type)
    return command
