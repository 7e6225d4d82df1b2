"""`mailboat status --watch`: a table that changes in place on a terminal, else lines or documents.

Keys are read without Enter and without echo; Ctrl-C stays a signal.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mailboat.api.control import Control
from mailboat.api.records import StatusView, document_of
from mailboat.cli.output import Block, blocks_text, seconds_text, show_next
from mailboat.cli.session import Session
from mailboat.cli.signals import exit_at
from mailboat.cli.status_board import StatusSelection, changed_lines, fitted_blocks, status_report
from mailboat.clock import Clock
from mailboat.errors import RetryableError
from mailboat.printable import printable

_LINES_AROUND: Final = 1
"""What a terminal needs besides: the line that the cursor stands in."""
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
        # An empty read is the end of the input, which `select` would report again and again.
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
        # Not raw mode, which would make Ctrl-C a key.
        tty.setcbreak(handle)
        yield Keyboard(handle)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def polls(control: Control, clock: Clock, every: float) -> Iterator[StatusView | RetryableError]:
    """The status again and again; a temporary failure does not end it."""
    pause = threading.Event()
    while True:
        yield _poll(control)
        clock.wait(pause, every)


def _poll(control: Control) -> StatusView | RetryableError:
    try:
        return control.status()
    except RetryableError as error:
        return error


def watch_for_programs(
    session: Session, polls: Iterator[StatusView | RetryableError], selection: StatusSelection
) -> None:
    """The documents, or names, of one status after the other; a failure in standard error, once while it stays."""
    problem = ""
    for view in polls:
        if isinstance(view, RetryableError):
            if str(view) != problem:
                session.note(str(view))
            problem = str(view)
            continue
        problem, chosen = "", selection.applied(view)
        show_next(document_of(chosen), [subscriber.name for subscriber in chosen.subscribers], session.output)


def watch_in_lines(polls: Iterator[StatusView | RetryableError], clock: Clock, selection: StatusSelection) -> None:
    """A line whenever a subscriber's figures have changed, and for a failure, once while it stays."""
    shown: dict[str, str] = {}
    problem = ""
    for view in polls:
        if isinstance(view, RetryableError):
            lines: Iterable[str] = [] if str(view) == problem else [str(view)]
            problem = str(view)
        else:
            problem, lines = "", changed_lines(selection.applied(view), shown)
        stamp = clock.now().astimezone().strftime("%H:%M:%S")
        sys.stdout.writelines(f"{stamp}  {printable(line)}\n" for line in lines)
        sys.stdout.flush()


class TerminalWatch:
    """A table on a terminal that changes in place; the last one stays when it ends."""

    def __init__(self, session: Session, control: Control, clock: Clock, every: float) -> None:
        """Ask nothing yet; a status is asked for `every` so many seconds."""
        self._session = session
        self._control = control
        self._clock = clock
        self._every = every
        self._last: StatusView | None = None
        self._problem = ""

    def run(self, selection: StatusSelection) -> None:
        """Refresh until Ctrl-C or `q`. Keys act at once, on the last status."""
        console = Console(highlight=False)
        due = self._clock.monotonic()
        try:
            with (
                exit_at(signal.SIGTERM),  # with the terminal as it was
                keyboard() as keys,
                Live(console=console, screen=True, auto_refresh=False) as live,
            ):
                while not selection.is_over:
                    if self._clock.monotonic() >= due and not selection.is_paused:
                        self._refresh()
                        due = self._clock.monotonic() + self._every
                    live.update(self._rendered(selection, console.height - _LINES_AROUND), refresh=True)
                    for key in self._pressed(keys, due, selection):
                        selection = selection.pressed(key)
        finally:
            # The alternate screen is gone with what it showed: the last status is printed where the shell goes on.
            if self._last is not None:
                self._session.show(status_report(selection.applied(self._last), self._clock.now(), selection.order))

    def _refresh(self) -> None:
        view = _poll(self._control)
        if isinstance(view, RetryableError):
            self._problem = f"no answer: {view}"
        else:
            self._problem, self._last = "", view

    def _pressed(self, keys: Keyboard | None, due: float, selection: StatusSelection) -> str:
        left = self._every if selection.is_paused else max(0.0, due - self._clock.monotonic())
        if keys is not None:
            return keys.wait(left)
        self._clock.wait(threading.Event(), left)
        return ""

    def _rendered(self, selection: StatusSelection, room: int) -> Text:
        now = self._clock.now()
        blocks: list[Block] = [f"{now.astimezone().strftime('%H:%M:%S')}   every {seconds_text(self._every)}"]
        if self._last is None:
            blocks += [self._problem] if self._problem else []
        else:
            chosen = selection.applied(self._last)
            blocks = [f"{blocks[0]}   {selection.headline(len(chosen.subscribers), len(self._last.subscribers))}"]
            blocks += [self._problem] if self._problem else []
            # what stands above may take several lines of a narrow terminal
            blocks += fitted_blocks(chosen, now, room - _height(blocks), _height, selection.order)
        return Text.from_ansi(blocks_text(blocks, sys.stdout), no_wrap=True, overflow="ellipsis")


def _height(blocks: Sequence[Block]) -> int:
    return blocks_text(blocks, sys.stdout).count("\n")
