"""Tables as data: columns, rows and colours of states. `output.py` prints them; for programs they are lines of here.

Green is well, yellow goes on without help, red needs a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mailboat.cli.terminal_line import columns_of
from mailboat.frozen import Frozen
from mailboat.printable import printable

WIDE_GAP: Final = 3
"""Columns of the terminal between two of a table, where they need not be saved."""

ABSENT: Final = "-"
"""A cell that has nothing to say."""

INDENT: Final = "    "


class Column(Frozen):
    """A column of a table. Numbers stand right.

    Attributes:
        title: What stands above it.
        is_number: It stands right.
        can_fold: The last one may: over several lines, or below its rows where a terminal is too narrow.
        can_cut: It is the first to be cut where a terminal is too narrow.
        can_hide: It is left out where a terminal is too narrow and no row has anything to say in it.
        style: The style of a cell by its text, for terminals with colours; "" is plain.
    """

    title: str
    is_number: bool = False
    can_fold: bool = False
    can_cut: bool = False
    can_hide: bool = False
    style: Callable[[str], str] = lambda _: ""


class Table(Frozen):
    """Rows of cells under titles; no rows print `empty` instead."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    empty: str = "nothing"


def plain_text(table: Table) -> str:
    """A table as lines for programs: nothing is folded, cut or coloured."""
    titles = [column.title for column in table.columns]
    rows = [titles, *([printable(cell) for cell in row] for row in table.rows)]
    widths = [max(columns_of(row[index]) for row in rows) for index in range(len(titles))]

    def line(row: Sequence[str]) -> str:
        parts = []
        for column, cell, width in zip(table.columns, row, widths, strict=True):
            space = " " * (width - columns_of(cell))
            parts.append(space + cell if column.is_number else cell + space)
        return (" " * WIDE_GAP).join(parts).rstrip()

    return "".join(f"{line(row)}\n" for row in rows)


_GOOD: Final = "green"
_BUSY: Final = "yellow"
_BAD: Final = "bold red"

_STATES: Final[Mapping[str, str]] = {
    "current": _GOOD,
    "distributed": _GOOD,
    "idle": _GOOD,
    "yes": _GOOD,
    "importing": _BUSY,
    "queued": _BUSY,
    "retrying": _BUSY,
    "running": _BUSY,
    "starting": _BUSY,
    "suspended": _BUSY,
    "waiting": _BUSY,
    "waiting-for": _BUSY,
    "active": _BUSY,
    "publishing": _BUSY,
    "published": _BUSY,
    "incomplete": _BUSY,
    "unassigned": _BUSY,
    "succeeded": _GOOD,
    "blocked": _BAD,
    "given-up": _BAD,
    "silent": _BAD,
    "failed": _BAD,
    "no": _BAD,
    "stopped": "dim",  # asked to, or by an error, which is red next to it
}


def state_style(text: str) -> str:
    """The style of a state by its first word; unknown ones are plain."""
    return _STATES.get(text.split(" ", maxsplit=1)[0].lower(), "")


def error_style(text: str) -> str:
    """The style of a cell that names an error, if there is one."""
    return "" if text in {"", ABSENT} else "red"
