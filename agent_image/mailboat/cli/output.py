"""How results are printed: one place for tables, JSON, YAML and bare names.

A command makes a `Report`: a document whose keys are stable and tested, the names that identify its rows, and the
blocks that people read. Everything printed may come from others, so control characters are made visible and nothing
is taken for markup. rich is imported only when a table is printed: it costs as much as the rest of a quick command.
"""

from __future__ import annotations

import enum
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from mailboat.cli.tables import ABSENT, INDENT, PIPE_WIDTH, Table, printable
from mailboat.frozen import Frozen

_WIDE_GAP: Final = 3
_NARROW_GAP: Final = 1
_LEAST_FOLDED_WIDTH: Final = 32
"""With less room a text is a tower of single words."""

_LEAST_CUT_WIDTH: Final = 12


def table_text(table: Table, stream: TextIO) -> str:
    """A table as lines: as wide as the terminal when there is one, as wide as it needs otherwise.

    Where a terminal leaves too little room for the column that folds, its texts stand below their rows instead.
    """
    console = Console(file=stream, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)
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
        text = Text(printable(row[-1]))
        room = max(1, console.width - len(INDENT))
        yield from (f"{INDENT}{part.plain}" for part in text.wrap(console, room) if part.plain.strip())


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

    gap = _WIDE_GAP if _width(table, _WIDE_GAP) <= console.width else _NARROW_GAP
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


_TITLE: Final = re.compile(r"[a-z]+ {2,}")
"""What begins a line of a page of facts: `journal    `."""


class Output(enum.StrEnum):
    """The forms that every command can print its result in."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Block = Table | str
"""A table, or a line of text."""


class Report(Frozen):
    """What a command found out.

    Attributes:
        document: For JSON and YAML: mappings, lists, texts, numbers, truth values and None.
        names: For `-o name`: the identifiers of the rows, one a line.
        blocks: Makes what people read; called for tables only.
    """

    document: Mapping[str, Any] | Sequence[Any]
    names: Sequence[str]
    blocks: Callable[[], Sequence[Block]]


def show(report: Report, output: Output, into: TextIO | None = None) -> None:
    """Print a report to standard output, or elsewhere."""
    stream = sys.stdout if into is None else into
    match output:
        case Output.JSON:
            stream.write(json.dumps(report.document, indent=2, ensure_ascii=False) + "\n")
        case Output.YAML:
            stream.write(_yaml(report.document))
        case Output.NAME:
            stream.writelines(f"{printable(name)}\n" for name in report.names)
        case Output.TABLE:
            stream.write(blocks_text(report.blocks(), stream))
    stream.flush()


def bytes_text(count: int) -> str:
    """A size for people: `41 kB`, `3.1 MB`; decimal units."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
    return f"{value:.0f} TB"


def seconds_text(seconds: float) -> str:
    """A duration for people: `14 ms`, `2.5 s`, `12 s`, `3 min`, `5 h`, `7 d`."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def count_text(count: int, noun: str) -> str:
    """`1 file`, `3 files`, `2 entries`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun.removesuffix('y')}ies" if noun.endswith("try") else f"{count:,} {noun}s"


def time_text(at: datetime | None) -> str | None:
    """A time as RFC 3339, to the millisecond; None stays None."""
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _yaml(document: object) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=PIPE_WIDTH)
    return text


def blocks_text(blocks: Sequence[Block], stream: TextIO) -> str:
    """Blocks as lines for a stream: as wide as its terminal."""
    return "".join(_block_text(block, stream) for block in blocks)


def _block_text(block: Block, stream: TextIO) -> str:
    if isinstance(block, str):
        return "".join(f"{line}\n" for line in _wrapped(printable(block), stream))
    if not block.rows:
        return block.empty + "\n"

    return table_text(block, stream)


def _wrapped(text: str, stream: TextIO) -> list[str]:
    """The text in lines of a terminal, broken between words. What is indented may be pasted elsewhere: left whole."""
    width = shutil.get_terminal_size().columns if stream.isatty() else PIPE_WIDTH
    if len(text) <= width or text.startswith(" ") or not stream.isatty():
        return [text]
    title = _TITLE.match(text)
    indent = " " * (len(INDENT) if title is None else title.end())
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        text
    ]
