"""The threads that keep a journal state current: the log's end, its past, announcements and statuses.

Each has a reader of its own and touches the state only with what it has read, so none waits for another. A journal
that can't be reached ends no thread: each tries again with growing pauses, where it left off.
"""

from __future__ import annotations

import logging
from typing import Final

from mailboat.clock import Clock, Deadline
from mailboat.control.journal_state import Follower, JournalState
from mailboat.workers import Worker, WorkerOptions

_LOG: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 5.0
"""How long a read without records lasts; after that, retention and the past are checked again."""

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0


class Followers:
    """The threads of one journal state."""

    def __init__(self, journal_state: JournalState, clock: Clock) -> None:
        """Nothing runs before `start`."""
        self._journal_state = journal_state
        self._clock = clock
        self._workers: list[Worker] = []

    @property
    def are_running(self) -> bool:
        """Whether the threads keep the state current."""
        return bool(self._workers)

    def start(self, *, with_log: bool = True) -> None:
        """Follow from now on: announcements, statuses, and the log unless it is of no interest. Again does nothing."""
        if self.are_running:
            return
        journal_state = self._journal_state
        workers = [
            self._following("topology", "following announcements", journal_state.roster_follower),
            self._following("statuses", "following statuses", journal_state.status_follower),
        ]
        if with_log:
            workers.append(self._following("log", "following the log", journal_state.log_follower))
            workers.append(Worker("log-past", self._count, self._clock, _care("counting the past of the log")))
        self._workers = workers  # a thread that was late to stop keeps its own, and is not revived
        for worker in workers:
            worker.start()

    def stop(self, deadline: Deadline) -> None:
        """End the threads within the deadline; those that do not end are daemons, and do no harm."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.ask_to_stop()
        late = [worker.name for worker in workers if not worker.join(deadline.remaining_seconds())]
        if late:
            _LOG.warning("threads that did not end in time: %s", ", ".join(late))

    def _following(self, name: str, purpose: str, follower: Follower) -> Worker:
        def turn() -> float:
            if follower.follow(_WAIT_SECONDS):
                self._journal_state.notifier.notify_all()
            return 0.0

        return Worker(name, turn, self._clock, _care(purpose, follower))

    def _count(self) -> float:
        """Count all of the past, and again when the view was reset; forget what concerns removed packages."""
        if self._journal_state.count_past():
            return 0.0
        earliest = self._journal_state.view.bounds.earliest_offset
        self._journal_state.failed.trim(earliest)
        self._journal_state.reports.trim(earliest)
        return _WAIT_SECONDS


def _care(purpose: str, follower: Follower | None = None) -> WorkerOptions:
    return WorkerOptions(
        purpose,
        _FIRST_PAUSE_SECONDS,
        _LONGEST_PAUSE_SECONDS,
        interrupt=None if follower is None else follower.interrupt,
    )
