"""The threads that keep a journal state current: one of each kind, also when they are started again."""

from __future__ import annotations

import threading
from typing import Any, cast

from mailboat.clock import Deadline, SystemClock
from mailboat.control.subscriber_directory import Followers
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


class PlayedPicture:
    def __init__(self) -> None:
        self.roster_follower = SlowFollower()
        self.status_follower = SlowFollower()


def test_a_thread_that_was_late_to_stop_is_not_revived_by_the_next_start() -> None:
    journal_state, clock = PlayedPicture(), SystemClock()
    followers = Followers(cast("Any", journal_state), clock)
    followers.start(with_log=False)
    assert journal_state.roster_follower.entered.acquire(timeout=PATIENCE_SECONDS)
    late = journal_state.roster_follower.threads[0]
    followers.stop(Deadline(clock, 0.0))
    followers.start(with_log=False)
    assert journal_state.roster_follower.entered.acquire(timeout=PATIENCE_SECONDS)
    journal_state.roster_follower.gate.set()
    journal_state.status_follower.gate.set()
    late.join(PATIENCE_SECONDS)
    is_revived = late.is_alive()
    followers.stop(Deadline(clock, PATIENCE_SECONDS))
    assert not is_revived
