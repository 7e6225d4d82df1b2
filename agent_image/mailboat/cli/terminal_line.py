"""Columns of a terminal, and one line of it that changes in place: only there, and not in the background of a shell.

Written without rich, which costs more to import than a restart with nothing to do.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from typing import Final, TextIO

from mailboat.printable import printable

_WIDE: Final = frozenset("WF")
"""Classes of East Asian characters that take two columns (Unicode Standard Annex 11)."""

_MARKS: Final = frozenset({"Mn", "Me"})
"""Categories of what is drawn over the character before."""


def columns_of(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of_one, text))


def cut_to_columns(text: str, columns: int) -> str:
    """The beginning of a printable text that takes at most so many columns of a terminal."""
    if text.isascii():
        return text[:columns]
    taken = 0
    for place, character in enumerate(text):
        taken += _columns_of_one(character)
        if taken > columns:
            return text[:place]
    return text


def _columns_of_one(character: str) -> int:
    if unicodedata.category(character) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def width_of(stream: TextIO) -> int:
    """Columns of the terminal that a stream leads to, which need not be that of standard output."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns
    except (OSError, ValueError):  # not a terminal of the system, as in tests
        return shutil.get_terminal_size().columns


def is_in_foreground(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal, and this process not in its background (`mailboat subscribe … &`)."""
    if stream is None or not stream.isatty():  # None: closed by the caller (`<&-`)
        return False
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except OSError:  # no controlling terminal: no other process uses it either
        return True


class TerminalLine:
    """The line that the cursor is in."""

    def __init__(self, into: TextIO) -> None:
        self._into = into
        self.is_terminal: Final = into.isatty()
        """Whether a person may see the line."""
        self._is_shown = False

    def can_show(self) -> bool:
        """Whether the line is ours now: a shell may move the process to the background and back."""
        return is_in_foreground(self._into)

    def show(self, text: str) -> None:
        """Replace the line, cut to the terminal's width."""
        if self.can_show():
            shown = cut_to_columns(printable(text), width_of(self._into) - 1)
            self._into.write(f"\r\x1b[K{shown}")
            self._into.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Remove the line, so that what follows stands in its place."""
        if self._is_shown:
            self._into.write("\r\x1b[K")
            self._into.flush()
            self._is_shown = False
