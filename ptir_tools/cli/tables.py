"""Tables: drawn by rich where a person looks at them, plain lines in a pipe or a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from ptir_tools.core.lazy import lazy

if TYPE_CHECKING:
    from rich import box, console, table, text
else:
    box, console, table, text = (lazy(f"rich.{name}") for name in ("box", "console", "table", "text"))


@dataclass(slots=True, frozen=True)
class Table:
    """What rich draws. A column whose cells are numbers is aligned to the right; `footer` is a last row, set apart."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    footer: Sequence[str] = ()


def write(stream: TextIO, plain: Iterable[str], drawn: Callable[[], Iterable[Table]], color: bool = True) -> None:
    """Draw the tables on a terminal; write the plain pieces, which end their own lines, anywhere else."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        stream.writelines(plain)
        return
    screen = console.Console(file=stream, no_color=not color, highlight=False, emoji=False, markup=False)
    for each in drawn():
        if each.title:
            screen.print(text.Text(each.title, style="bold"))
        screen.print(_drawn(each))


def _drawn(each: Table) -> table.Table:
    made = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=bool(each.footer), header_style="bold")
    for i, name in enumerate(each.columns):
        justify = "right" if all(_number(row[i]) for row in each.rows) else "left"
        footer = text.Text(each.footer[i]) if each.footer else ""
        made.add_column(text.Text(name), footer, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in each.rows:
        made.add_row(*map(text.Text, row))
    return made


def _number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("-", "?")
