"""The threads that keep a journal state current: one of each kind, also when they are started again."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from mailboat.clock import Deadline, SystemClock
from mailboat.control.journal_state import JournalState
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS


class SlowFollower:
    """Stays in a read, whatever is asked of it, until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.threads: list[threading.Thread] = []

    def follow(self, _wait_seconds: float) -> int:
        self.threads.append(threading.current_thread())
        self.entered.release()
        self.gate.wait(LONG_WAIT_SECONDS)
        return 0

    def interrupt(self) -> None:
        pass


def test_a_thread_that_was_late_to_stop_is_not_revived_by_the_next_start() -> None:
    clock, announcements, statuses = SystemClock(), SlowFollower(), SlowFollower()
    workspace: Any = SimpleNamespace(clock=clock)
    state = JournalState(workspace, ())
    vars(state).update(roster_follower=announcements, status_follower=statuses)
    state.start(with_log=False)
    assert announcements.entered.acquire(timeout=PATIENCE_SECONDS)
    late = announcements.threads[0]
    state.stop(Deadline(clock, 0.0))
    state.start(with_log=False)
    assert announcements.entered.acquire(timeout=PATIENCE_SECONDS)
    announcements.gate.set()
    statuses.gate.set()
    late.join(PATIENCE_SECONDS)
    is_revived = late.is_alive()
    state.stop(Deadline(clock, PATIENCE_SECONDS))
    assert not is_revived
