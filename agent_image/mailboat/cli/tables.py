"""Tables as data: columns, rows, and text that is safe for a terminal. `output.py` prints them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mailboat.frozen import Frozen

PIPE_WIDTH: Final = 100_000
"""Columns of a table that no terminal limits: nothing is folded or cut for a program that reads it."""

ABSENT: Final = "-"
"""A cell that has nothing to say."""

INDENT: Final = "    "


def _plain(_: str) -> str:
    return ""


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
    style: Callable[[str], str] = _plain


class Table(Frozen):
    """Rows of cells under titles; no rows print `empty` instead."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    empty: str = "nothing"


def printable(text: str) -> str:
    """The text with control characters, which could steer a terminal, and lone surrogates made visible."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
