"""Tables as rich draws them on a terminal. Imported only where a person looks; a pipe sees plain lines (`Reporter.tabulate`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box, table
from rich.console import Console
from rich.text import Text

from ptir_tools.core.records import dataclass

_NARROWEST = 60


@dataclass(slots=True, frozen=True)
class Table:
    """What rich draws. A column whose cells are numbers is aligned to the right; `footer` is a last row, set apart."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    footer: Sequence[str] = ()


def draw(stream: TextIO, tables: Iterable[Table], color: bool) -> None:
    """Draw the tables on `stream`, a terminal, as wide as it is; one that is too narrow breaks lines."""
    screen = Console(file=stream, color_system="auto" if color else None, highlight=False, emoji=False, markup=False)
    screen.width = max(screen.width, _NARROWEST)
    for each in tables:
        if each.title:
            screen.print(Text(each.title, style="bold"))
        screen.print(_drawn(each))


def _drawn(each: Table) -> table.Table:
    made = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=bool(each.footer), header_style="bold")
    for i, name in enumerate(each.columns):
        footer = Text(each.footer[i]) if each.footer else ""
        right = all(_number(row[i]) for row in each.rows)
        made.add_column(Text(name), footer, justify="right" if right else "left", overflow="fold")
    for row in each.rows:
        made.add_row(*map(Text, row))
    return made


def _number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("-", "?")
