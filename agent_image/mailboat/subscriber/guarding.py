"""Limits on the time of one package: asked between its records, so that a slow one can't hold the others for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from mailboat.clock import Clock, Deadline
from mailboat.errors import ImportTimeoutError
from mailboat.model.changes import TreeChange
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath
from mailboat.workers import heartbeat

_SLOW_SECONDS: Final = 1.0


class StopAskedError(Exception):
    """The batch at hand must not be finished: the time to stop is over, or a command drops the package at hand.

    It is rolled back. Never leaves the subscriber.
    """


class ImportGuard:
    """Watches over imports, and carries the wish to stop. Any thread may ask to stop, or wake the subscriber.

    Attributes:
        stopping: Somebody wants the subscriber to end.
        woken: There is news for a subscriber that waits: a command, or the wish to stop.
        is_cleared: Tells whether a command drops the package at hand; None where nobody takes commands.
        when_slow: Called once in a batch that takes longer than a moment, from the subscriber's thread.
    """

    def __init__(self, clock: Clock, timeout_seconds: float | None) -> None:
        """Allow each package `timeout_seconds`; None sets no limit."""
        self._clock = clock
        self._beat = heartbeat(clock)
        self._timeout_seconds = timeout_seconds
        self.stopping = threading.Event()
        self.woken = threading.Event()
        self.is_cleared: Callable[[], bool] | None = None
        self.when_slow: Callable[[], None] | None = None
        self._slow_at: float | None = None
        self._stop_by: Deadline | None = None

    def stop(self, deadline: Deadline | None) -> None:
        """Ask to stop: at the next package, or in the midst of one when the deadline is over."""
        self._stop_by = deadline
        self.stopping.set()
        self.woken.set()

    def wake(self) -> None:
        """Tell the subscriber that there is news."""
        self.woken.set()

    def begin(self) -> None:
        """A batch begins."""
        self._slow_at = self._clock.monotonic() + _SLOW_SECONDS

    def check(self) -> None:
        """Go on, unless the subscriber should have stopped by now, or the package at hand is not wanted any more.

        Raises: StopAskedError.
        """
        self._beat(0.0)
        if self._stop_by is not None and self._stop_by.is_over():
            raise StopAskedError
        if self.is_cleared is not None and self.woken.is_set() and self.is_cleared():
            raise StopAskedError
        if self._slow_at is not None and self._clock.monotonic() >= self._slow_at:
            self._slow_at = None
            if self.when_slow is not None:
                self.when_slow()

    def deadline(self) -> Deadline | None:
        """The time of a package that begins now; None is without end."""
        limit = self._timeout_seconds
        return None if limit is None else Deadline(self._clock, limit)

    def check_in_time(self, deadline: Deadline | None, path: NodePath | None = None) -> None:
        """As `check`, for a package that must be done by the deadline. Raises: ImportTimeoutError, StopAskedError."""
        if deadline is not None and deadline.is_over():
            where: dict[str, Any] = {} if path is None else {"path": path}
            raise ImportTimeoutError(f"importing the package took longer than {self._timeout_seconds} seconds", **where)
        self.check()

    def guarded(self, change: TreeChange, deadline: Deadline | None) -> TreeChange:
        """The same change, whose records end in an error when the time is over.

        Raises (while the records are read):
            ImportTimeoutError: The package took too long.
            StopAskedError: The subscriber should have stopped by now.
        """
        return change._replace(records=self._records(change.records, deadline))

    def _records(self, records: Iterable[NodeRecord], deadline: Deadline | None) -> Iterator[NodeRecord]:
        for record in records:
            self.check_in_time(deadline, record.path)
            yield record
