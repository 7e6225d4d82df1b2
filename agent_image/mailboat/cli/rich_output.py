"""What rich draws: tables as lines, and the progress of a transfer. Imported on demand: quick commands need neither."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from mailboat.cli.tables import ABSENT, INDENT, WIDE_GAP, Table
from mailboat.printable import printable

_NARROW_GAP: Final = 1
_LEAST_FOLDED_WIDTH: Final = 32
"""With less room a text is a tower of single words."""

_LEAST_CUT_WIDTH: Final = 12


def styled_line(parts: Sequence[tuple[str, str]], stream: TextIO) -> str:
    """A line of texts with their styles; without colours where the stream or NO_COLOR takes none."""
    console = Console(file=stream, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(Text.assemble(*parts))
    return capture.get()


def table_text(table: Table, stream: TextIO) -> str:
    """A table as lines that fit the terminal.

    Where it leaves too little room for the column that folds, its texts stand below their rows instead.
    """
    console = Console(file=stream, highlight=False)
    table = _without_silent_columns(table, console.width)
    is_folding = bool(table.columns) and table.columns[-1].can_fold
    if not is_folding or _width(table, _NARROW_GAP) <= console.width:
        lines = _lines(table, console)
    else:
        rest = Table(table.columns[:-1], [row[:-1] for row in table.rows])
        has_room = console.width - _width(rest, _NARROW_GAP) - _NARROW_GAP >= _LEAST_FOLDED_WIDTH
        lines = _lines(table, console) if has_room else list(_with_texts_below(table, rest, console))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _without_silent_columns(table: Table, width: int) -> Table:
    """The table; where it is too wide, without the columns that say nothing."""
    if _width(table, _NARROW_GAP) <= width:
        return table
    kept = [
        index
        for index, column in enumerate(table.columns)
        if not column.can_hide or any(row[index] != ABSENT for row in table.rows)
    ]
    columns = [table.columns[index] for index in kept]
    return Table(columns, [[row[index] for index in kept] for row in table.rows], table.empty)


def _widths(table: Table) -> list[int]:
    """Columns of the terminal that each column needs when nothing is folded or cut."""
    rows = [[column.title for column in table.columns], *table.rows]
    return [max(cell_len(printable(row[index])) for row in rows) for index in range(len(table.columns))]


def _width(table: Table, gap: int) -> int:
    return sum(_widths(table)) + gap * (len(table.columns) - 1)


def _with_texts_below(table: Table, rest: Table, console: Console) -> Iterator[str]:
    """The rows without their last column, each followed by what stood in it."""
    title, *lines = _lines(rest, console)
    yield title
    for line, row in zip(lines, table.rows, strict=True):
        yield line
        text = Text(printable(row[-1]), style=table.columns[-1].style(row[-1]))
        room = max(1, console.width - len(INDENT))
        for part in text.wrap(console, room):
            if part.plain.strip():
                with console.capture() as capture:
                    console.print(part, end="", soft_wrap=True)
                yield f"{INDENT}{capture.get()}"


def _cut(table: Table, width: int) -> list[int]:
    """The widths of columns that fit `width`: what can be cut goes first, then whatever is widest but no number."""
    widths = _widths(table)
    excess = sum(widths) + _NARROW_GAP * (len(widths) - 1) - width
    while excess > 0:
        numbered = list(enumerate(table.columns))
        first = [index for index, one in numbered if one.can_cut and widths[index] > _LEAST_CUT_WIDTH]
        index = max(first or [index for index, one in numbered if not one.is_number], key=widths.__getitem__, default=0)
        if widths[index] <= 1:
            break
        widths[index] -= 1
        excess -= 1
    return widths


def _lines(table: Table, console: Console) -> list[str]:
    gap = WIDE_GAP if _width(table, WIDE_GAP) <= console.width else _NARROW_GAP
    can_fold = any(column.can_fold for column in table.columns)
    widths: Sequence[int | None] = [None] * len(table.columns) if can_fold else _cut(table, console.width)
    rich_table = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column, width in zip(table.columns, widths, strict=True):
        rich_table.add_column(
            Text(column.title),
            justify="right" if column.is_number else "left",
            no_wrap=not column.can_fold,
            overflow="fold" if column.can_fold else "ellipsis",
            width=width,
        )
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        rich_table.add_row(*(Text(printable(cell), style=column.style(cell)) for column, cell in cells))
    with console.capture() as capture:
        console.print(rich_table)
    return capture.get().splitlines()


def transfer_progress(into: TextIO) -> Progress:
    """Bytes, rate and remaining time of a transfer, in one line that is erased when it ends."""
    return Progress(
        TextColumn("{task.description}", table_column=RichColumn(no_wrap=True)),
        BarColumn(bar_width=24),
        DownloadColumn(table_column=RichColumn(no_wrap=True)),
        TransferSpeedColumn(table_column=RichColumn(no_wrap=True)),
        TextColumn("ETA", table_column=RichColumn(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=RichColumn(no_wrap=True)),
        console=Console(file=into),
        transient=True,
    )
