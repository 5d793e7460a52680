"""Tables as rich draws them on a terminal. Imported only for a terminal; a pipe gets plain lines (`Reporter.tabulate`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box, table
from rich.console import Console
from rich.text import Text

from ptir_tools.core.records import dataclass, replace
from ptir_tools.core.render import clean
from ptir_tools.core.typed import TextIO

_NARROWEST = 60
_GAP = 2  # between columns
_SHORTEST = 8  # least letters of a cell that is cut


@dataclass(slots=True, frozen=True)
class Table:
    """A table for rich. A column of numbers is aligned to the right; `footer` is a separate last row. With `one_line`, text is
    cut if the terminal is too narrow; else it takes several lines."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    footer: Sequence[str] = ()
    one_line: bool = False


def draw(stream: TextIO, tables: Iterable[Table], color: bool) -> None:
    """Draw the tables on `stream`, a terminal, in its width; a narrow one wraps lines."""
    screen = Console(file=stream, color_system="auto" if color else None, highlight=False, emoji=False, markup=False)
    screen.width = max(screen.width, _NARROWEST)
    for each in tables:
        each = replace(each, rows=[[*map(clean, row)] for row in each.rows], title=clean(each.title))
        if each.title:
            screen.print(Text(each.title, style="bold"))
        screen.print(_drawn(_cut(each, screen.width) if each.one_line else each))


def _cut(each: Table, width: int) -> Table:
    """The table in lines of `width`: the longest column of text is cut."""
    widths = [max(map(len, cells)) for cells in zip(each.columns, *each.rows, strict=True)]
    texts = [i for i in range(len(widths)) if not _right(each, i)]
    while texts and sum(widths) + _GAP * len(widths) > width:
        longest = max(texts, key=widths.__getitem__)
        if widths[longest] <= _SHORTEST:
            break
        widths[longest] -= 1
    rows = [[c if len(c) <= n else f"{c[: n - 1]}…" for c, n in zip(row, widths, strict=True)] for row in each.rows]
    return replace(each, rows=rows)


def _right(each: Table, i: int) -> bool:
    return all(_number(row[i]) for row in each.rows)


def _drawn(each: Table) -> table.Table:
    result = table.Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_footer=bool(each.footer), header_style="bold"
    )
    for i, name in enumerate(each.columns):
        footer = Text(each.footer[i]) if each.footer else ""
        result.add_column(Text(name), footer, justify="right" if _right(each, i) else "left", overflow="fold")
    for row in each.rows:
        result.add_row(*map(Text, row))
    return result


def _number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("-", "?", "")
