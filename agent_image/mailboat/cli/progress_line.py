"""A subscriber's progress for people: one line that changes in place, or plain lines where there is no terminal.

In the background of a terminal (`mailboat subscribe … &`) it is quiet, but for trouble: the line belongs to others.
Written without rich, which costs more to import than a restart with nothing to do.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TextIO

from mailboat.cli.output import bytes_text, cause_text, seconds_text
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock
from mailboat.printable import printable

if TYPE_CHECKING:
    from mailboat.subscriber.figures import SubscriberStatistics


_IMPORTING: Final = "importing"
_TICK_SECONDS: Final = 1.0


class ProgressLine:
    """Shows snapshots of a subscriber: on a terminal all, elsewhere one per change of state."""

    def __init__(self, name: str, into: TextIO, clock: Clock) -> None:
        """Show nothing yet."""
        self._name = name
        self._into = into
        self._clock = clock
        self._line = TerminalLine(into)
        self._state = ""
        self._began: tuple[float, int] | None = None
        self._lock = threading.Lock()  # the thread that ticks shows the line too
        self._shown: tuple[float, str] | None = None
        self._ended = threading.Event()
        if self._line.is_terminal:
            threading.Thread(target=self._tick, name="progress", daemon=True).start()

    def __call__(self, statistics: SubscriberStatistics) -> None:
        """Show a snapshot."""
        text = progress_text(self._name, statistics)
        if self._line.can_show():
            seconds_left = self._seconds_left(statistics)
            shown = text if seconds_left is None else f"{text}  ETA {seconds_text(seconds_left)}"
            is_busy = statistics.phase == _IMPORTING
            with self._lock:
                self._shown = (self._clock.monotonic(), shown) if is_busy else None
                self._line.show(shown)
            return
        state = f"{statistics.phase} {statistics.attempts} {statistics.failed} {_redrive_texts(statistics)}"
        is_trouble = statistics.failed or statistics.still_given_up or statistics.cause is not None
        # In the background of a terminal the shell and its user write: only trouble is worth a line among theirs.
        if state == self._state or (self._line.is_terminal and not is_trouble):
            return
        self._state = state
        self._into.write(f"{printable(text)}\n")
        self._into.flush()

    def _tick(self) -> None:
        """A transaction can take long, and says nothing before it is committed: show that time passes."""
        while not self._ended.wait(_TICK_SECONDS):
            with self._lock:
                if self._shown is not None and not self._ended.is_set():
                    since, text = self._shown
                    self._line.show(f"{text}  {seconds_text(self._clock.monotonic() - since)}")

    def _seconds_left(self, statistics: SubscriberStatistics) -> float | None:
        """How long it still takes at the pace since it was last caught up; None where none is known."""
        if statistics.next_offset is None or not statistics.lag_offsets:
            self._began = None  # the pace of what comes next is measured from its beginning, not over idle hours
            return None
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now, statistics.next_offset
        seconds, done = now - self._began[0], statistics.next_offset - self._began[1]
        return seconds / done * statistics.lag_offsets if done > 0 and seconds > 0 else None

    def end(self) -> None:
        """Leave the line, so that what follows stands below it."""
        self._ended.set()
        with self._lock:
            self._line.clear()


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


def _redrive_texts(statistics: SubscriberStatistics) -> list[str]:
    texts = [f"{statistics.redriven} re-driven"] if statistics.redriven else []
    texts += [f"{statistics.still_given_up} still given up"] if statistics.still_given_up else []
    return texts
