"""One line of a terminal that changes in place; nothing anywhere else, and nothing in the background of a shell.

Written without rich, which costs more to import than a restart with nothing to do.
"""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from mailboat.printable import printable


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
        """Show nothing yet."""
        self._into = into
        self._is_terminal = into.isatty()
        self._is_shown = False

    @property
    def is_terminal(self) -> bool:
        """Whether a person may see the line."""
        return self._is_terminal

    def can_show(self) -> bool:
        """Whether the line is ours now: a shell may move the process to the background and back."""
        return is_in_foreground(self._into)

    def show(self, text: str) -> None:
        """Replace the line, cut to the terminal's width."""
        if self.can_show():
            width = shutil.get_terminal_size().columns - 1
            self._into.write(f"\r\x1b[K{printable(text)[:width]}")
            self._into.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Remove the line, so that what follows stands in its place."""
        if self._is_shown:
            self._into.write("\r\x1b[K")
            self._into.flush()
            self._is_shown = False
