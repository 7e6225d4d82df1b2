"""The threads that keep a picture current: the log's end, its past, announcements and statuses.

Each has a reader of its own and touches the picture only with what it has read, so none waits for another. A journal
that can't be reached is no reason to end: it is logged once, and tried again with growing pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from mailboat.agent.control.picture import Follower, Picture
from mailboat.clock import Clock, Deadline
from mailboat.errors import MailboatError

_LOG: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 5.0
"""How long a read of nothing lasts; after that, retention and the past are looked at again."""

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0


class Followers:
    """The threads of one picture."""

    def __init__(self, picture: Picture, clock: Clock) -> None:
        """Nothing runs before `start`."""
        self._picture = picture
        self._clock = clock
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._running: set[Follower] = set()

    @property
    def are_running(self) -> bool:
        """Whether the threads keep the picture current."""
        return bool(self._threads)

    def start(self, *, with_log: bool = True) -> None:
        """Follow from now on: announcements, statuses, and the log unless it is of no interest. Again does nothing."""
        if self.are_running:
            return
        self._stopping = threading.Event()  # a thread that was late to stop keeps its own, and is not revived
        self._run("mailboat-topology", lambda stopping: self._follow(self._picture.roster_follower, stopping))
        self._run("mailboat-statuses", lambda stopping: self._follow(self._picture.status_follower, stopping))
        if with_log:
            self._run("mailboat-log", lambda stopping: self._follow(self._picture.log_follower, stopping))
            self._run("mailboat-log-past", self._count)

    def stop(self, deadline: Deadline) -> None:
        """End the threads within the deadline; those that do not end are daemons, and do no harm."""
        self._stopping.set()
        with self._lock:
            for follower in self._running:
                follower.interrupt()
        for thread in self._threads:
            thread.join(deadline.remaining_seconds())
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            _LOG.warning("threads that did not end in time: %s", ", ".join(late))
        self._threads = []
        with self._lock:
            self._running.clear()

    def _run(self, name: str, work: Callable[[threading.Event], None]) -> None:
        thread = threading.Thread(target=self._retry, args=(name, work, self._stopping), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _retry(self, name: str, work: Callable[[threading.Event], None], stopping: threading.Event) -> None:
        """Work until told to stop; after a failure from the beginning, where the picture was left."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not stopping.is_set():
            began = self._clock.monotonic()
            try:
                work(stopping)
            except MailboatError as error:
                if self._clock.monotonic() - began > _LONGEST_PAUSE_SECONDS:
                    pause_seconds = _FIRST_PAUSE_SECONDS
                _LOG.warning("%s: %s; next try in %g seconds", name, error, pause_seconds)
                self._clock.wait(stopping, pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _follow(self, follower: Follower, stopping: threading.Event) -> None:
        with self._lock:
            self._running.add(follower)
        while not stopping.is_set():
            if follower.follow(_WAIT_SECONDS):
                self._picture.news.ring()

    def _count(self, stopping: threading.Event) -> None:
        """Count all of the past, and again when the view began anew; forget failures that retention took along."""
        while not stopping.is_set():
            if not self._picture.count_past():
                self._picture.failed.trim(self._picture.view.bounds.earliest_offset)
                self._clock.wait(stopping, _WAIT_SECONDS)
