"""A subscriber's progress for people: one line that changes in place, or plain lines where there is no terminal.

In the background of a terminal (`mailboat subscribe … &`) it is quiet, but for trouble: the line belongs to others.
Written without rich, which costs more to import than a restart with nothing to do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from mailboat.cli.rendering import bytes_text, printable

if TYPE_CHECKING:
    from mailboat.model.messages import FailureCause
    from mailboat.subscriber.progress import SubscriberStatistics


class ProgressLine:
    """Shows snapshots of one subscriber. On a terminal every one, elsewhere one whenever the state changes."""

    def __init__(self, name: str, into: TextIO) -> None:
        """Show nothing yet."""
        self._name = name
        self._into = into
        self._is_terminal = into.isatty()
        self._shown = ""
        self._state = ""

    def __call__(self, statistics: SubscriberStatistics) -> None:
        """Show a snapshot."""
        line = printable(progress_text(self._name, statistics))
        if self._is_terminal and self._is_in_front():
            import shutil

            width = shutil.get_terminal_size().columns - 1
            self._shown = line[:width]
            self._into.write(f"\r\x1b[K{self._shown}")
        else:
            state = f"{statistics.phase} {statistics.attempts} {statistics.failed} {_redrive_texts(statistics)}"
            is_trouble = statistics.failed or statistics.still_given_up or statistics.cause is not None
            if state == self._state or (self._is_terminal and not is_trouble):
                return
            self._state = state
            self._into.write(f"{line}\n")
        self._into.flush()

    def _is_in_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._into.fileno()) == os.getpgrp()
        except OSError:  # no controlling terminal: nobody else writes to it either
            return True

    def end(self) -> None:
        """Leave the line, so that what follows stands below it."""
        if self._shown:
            self._into.write("\r\x1b[K")
            self._into.flush()


def progress_text(name: str, statistics: SubscriberStatistics) -> str:
    """One line that says where a subscriber is."""
    position = "-" if statistics.next_offset is None else str(statistics.next_offset)
    end = "" if statistics.log_next_offset is None else f"/{statistics.log_next_offset}"
    parts = [f"{name}  {statistics.phase:<9}  {position}{end}", f"{statistics.imported} imported"]
    parts += [bytes_text(statistics.content_bytes)] if statistics.content_bytes else []
    build = statistics.build
    parts += [f"{build.build_id} {build.sequence + 1:,} of {build.total:,}"] if build is not None else []
    parts += ["readers wait for its end"] if statistics.held_back else []
    parts += [f"{statistics.failed} given up"] if statistics.failed else []
    parts += _redrive_texts(statistics)
    parts += [f"attempt {statistics.attempts} failed"] if statistics.attempts else []
    cause = statistics.cause
    parts += [cause_text(cause)] if cause is not None else []
    return "  ".join(parts)


def cause_text(cause: FailureCause) -> str:
    """A cause in one line: code, path, message."""
    return f"{cause.code}: {cause.path + ': ' if cause.path else ''}{cause.message}"


def _redrive_texts(statistics: SubscriberStatistics) -> list[str]:
    texts = [f"{statistics.redriven} re-driven"] if statistics.redriven else []
    texts += [f"{statistics.still_given_up} still given up"] if statistics.still_given_up else []
    return texts
