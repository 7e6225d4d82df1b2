"""Single keys from the terminal, without Enter and without echo. Ctrl-C stays a signal."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_KEYS: Final = 64


class Keyboard:
    """Keys of standard input."""

    def __init__(self, handle: int) -> None:
        """Read from a terminal that is in cbreak mode."""
        self._handle = handle
        self._is_open = True

    def wait(self, seconds: float) -> str:
        """The keys pressed within a time; returns as soon as there are some. Escape sequences are dropped."""
        if not self._is_open or not select.select([self._handle], [], [], max(0.0, seconds))[0]:
            return ""
        keys = os.read(self._handle, _KEYS)
        self._is_open = bool(keys)
        text = keys.decode(errors="ignore")
        return "" if len(text) > 1 and text.startswith("\x1b") else text  # an arrow key


@contextmanager
def keyboard() -> Iterator[Keyboard | None]:
    """The keyboard, or None where standard input is not a terminal; the terminal is restored at the end."""
    if not sys.stdin.isatty():
        yield None
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        tty.setcbreak(handle)
        yield Keyboard(handle)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
