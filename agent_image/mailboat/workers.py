"""A thread that does one thing again and again until it is stopped: the one kind of background thread there is.

A worker has a name, runs turns, and survives failures: an exception of a turn is logged once, and the turn is repeated
after a growing pause. So an unreachable journal, or a defect, never ends a thread. A clock that monitors threads
(`WorkerMonitor`) is notified when a worker begins and ends, so that the liveness probe covers every worker.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from typing import Final, Protocol, TypeVar, runtime_checkable

from mailboat.clock import Backoff, Clock
from mailboat.errors import MailboatError
from mailboat.frozen import Frozen

_LOG: Final = logging.getLogger(__name__)
_PREFIX: Final = "mailboat-"
# a server may ask for a pause of days
_LONGEST_WISH_SECONDS: Final = 3600.0
_LEASE_SECONDS: Final = 2.0


@runtime_checkable
class WorkerMonitor(Protocol):
    """A clock that monitors the progress of threads."""

    def began(self, name: str, stall_seconds: float | None) -> None:
        """The calling thread is to be watched from now on; silent for longer than that it is stuck (None: as usual)."""

    def beat(self, wait_seconds: float = 0.0) -> None:
        """The calling thread makes progress, and may be silent for `wait_seconds` more."""

    def ended(self) -> None:
        """The calling thread ends as it should."""


def heartbeat(clock: Clock) -> Callable[[float], None]:
    """Return what code below a turn calls after progress, with the seconds for which it may be silent now."""
    return clock.beat if isinstance(clock, WorkerMonitor) else _unwatched


def _unwatched(wait_seconds: float) -> None:
    """Do nothing: the clock watches no threads."""
    del wait_seconds


class WorkerOptions(Frozen):
    """How a worker is treated.

    Attributes:
        purpose: What it does, for the log: "<purpose> failed: …".
        first_pause_seconds: After the first failure; the pause doubles with each further one in a row.
        longest_pause_seconds: And grows up to this. A longer requested pause is honoured, up to an hour.
        jitter: Makes a pause between a half and the whole of it; None leaves it whole.
        interrupt: Called by who stops it, to end a wait inside a turn.
        on_end: Called in the thread after the last turn.
        on_failure: Called in the thread with each failure.
        stall_seconds: Silent for longer than that, it is stuck; None is what the clock takes for that.
        where: Fields of its lines in the log.
    """

    purpose: str
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 60.0
    jitter: random.Random | None = None
    interrupt: Callable[[], None] | None = None
    on_end: Callable[[], None] | None = None
    on_failure: Callable[[Exception], None] | None = None
    stall_seconds: float | None = None
    where: Mapping[str, object] = field(default_factory=dict)


class Worker:
    """Takes turns between `start` and `stop`. It can be started once; to be used from any thread but where said."""

    def __init__(self, name: str, turn: Callable[[], float | None], clock: Clock, options: WorkerOptions) -> None:
        """Nothing is done before `start`.

        Args:
            name: Of the thread, behind `mailboat-`.
            turn: One step of the work, in the thread. It gives the seconds until the next one, or None: it is done.
            clock: Time, and liveness: a long turn asks `is_stopping`, or calls its `heartbeat`, when it made progress.
            options: Pauses, callbacks and log fields.
        """
        self._turn = turn
        self._clock = clock
        self._watch = clock if isinstance(clock, WorkerMonitor) else None
        self._beat = heartbeat(clock)
        self._options = options
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._pause_over = threading.Event()
        self._ended = threading.Event()
        self._failures = 0
        self._failures_in_row = 0
        self._logged = ""
        # A daemon: a turn that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"{_PREFIX}{name}", daemon=True)

    @property
    def name(self) -> str:
        """The thread's name."""
        return self._thread.name

    @property
    def failures(self) -> int:
        """Turns that failed."""
        return self._failures

    @property
    def is_started(self) -> bool:
        """Whether it was started."""
        # not `is_alive`: a thread that has ended was started, too
        return self._thread.ident is not None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self.is_started and not self._ended.is_set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop. A long turn asks for it, which also counts as progress."""
        self._beat(0.0)
        return self._stopping.is_set()

    def start(self) -> None:
        """Take the first turn now."""
        self._thread.start()

    def begin(self) -> None:
        """Start, unless it was started or stopped before. From one thread."""
        if not self.is_started and not self._stopping.is_set():
            self.start()

    def wake(self) -> None:
        """Run the next turn now, or right after the current one; a pause after a failure is kept."""
        self._woken.set()

    def retry(self) -> None:
        """Run the next turn now, also in a pause after a failure."""
        self._pause_over.set()
        self._woken.set()

    def rest(self, seconds: float) -> bool:
        """Wait inside a turn; only a stop ends it, and then it is True."""
        self._beat(seconds)
        return self._clock.wait(self._stopping, seconds)

    def succeeded(self) -> None:
        """Inside a long turn: what failed before works, so the next failure is the first one."""
        if self._failures_in_row:
            _LOG.info("%s works again", self._options.purpose, extra=dict(self._options.where))
        self._failures_in_row, self._logged = 0, ""

    def ask_to_stop(self) -> None:
        """Take no turn any more. Does not wait; again it does nothing new."""
        # before the wake-up: the thread that it wakes reads this
        self._stopping.set()
        self._pause_over.set()
        self._woken.set()
        if self._options.interrupt is not None:
            self._options.interrupt()

    def join(self, seconds: float) -> bool:
        """Wait for the end, at most so long; whether it came, or nothing was ever begun."""
        if self.is_started:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self, seconds: float) -> bool:
        """Ask it to stop and wait for the end, at most so long; whether it came. One that is late is a daemon."""
        self.ask_to_stop()
        return self.join(seconds)

    # ---------------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        watch = self._watch
        if watch is not None:
            watch.began(self.name, self._options.stall_seconds)
        try:
            self._take_turns()
            if self._options.on_end is not None:
                self._guarded(self._options.on_end)
        finally:
            # after `on_end`: until then the worker counts as running
            self._ended.set()
            if watch is not None:
                watch.ended()

    def _take_turns(self) -> None:
        is_done = False
        while not is_done and not self.is_stopping:
            # before the turn: a wake-up during it is for the next one
            self._woken.clear()
            self._pause_over.clear()
            is_done = self._guarded(self._take_turn)

    def _take_turn(self) -> bool:
        pause = self._turn()
        self.succeeded()
        if pause is None:
            return True
        # A stop right before `clear` in `_take_turns` has lost its wake-up: only the flag still says so.
        if pause > 0 and not self._stopping.is_set():
            self._beat(pause)
            # on the wake-up, which a stop gives as well
            self._clock.wait(self._woken, pause)
        return False

    def _guarded(self, work: Callable[[], bool | None]) -> bool:
        """Run a turn; return whether the work is done. Logs a failure and pauses."""
        try:
            return bool(work())
        except Exception as error:  # noqa: BLE001  # a defect must not end the thread either
            self._failures += 1
            if self._options.on_failure is not None:
                self._options.on_failure(error)
            pause = self._pause_after(error)
            self._failures_in_row += 1
            self._log_failure(error, pause)
            # Only a stop or `retry` ends this pause: a wake-up would bring the same failure again at once.
            # The flag is asked first: a stop right before the last `clear` has lost its wake-up.
            if not self._stopping.is_set():
                self._beat(pause)
                self._clock.wait(self._pause_over, pause)
            return False

    def _pause_after(self, error: Exception) -> float:
        options = self._options
        backoff = Backoff(options.first_pause_seconds, options.longest_pause_seconds)
        pause = backoff.pause(self._failures_in_row + 1, options.jitter)
        wished = getattr(error, "retry_after_seconds", None)
        return pause if wished is None else max(pause, min(wished, _LONGEST_WISH_SECONDS))

    def _log_failure(self, error: Exception, pause: float) -> None:
        """A failure that comes again and again is one line, until another one comes."""
        # By its text: an outage that lasts gives the same one with each retry.
        is_news, self._logged = str(error) != self._logged, str(error)
        is_known = isinstance(error, MailboatError | OSError)
        level = (logging.WARNING if is_known else logging.ERROR) if is_news else logging.DEBUG
        _LOG.log(
            level,
            self._options.purpose.replace("%", "%%")
            + " failed%s: %s; next try in %.3g seconds",  # each purpose is a kind
            "" if is_known else " by a defect",
            error if is_known else repr(error),
            pause,
            exc_info=None if is_known else error,
            extra=dict(self._options.where),
        )


class _Waiting(Protocol):
    """What waits inside a turn."""

    def interrupt(self) -> None:
        """End the current or the next wait. From any thread."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


_W = TypeVar("_W", bound=_Waiting)


class LeasedWorker(Worker):
    """A worker that works only while its process has a lease.

    The others try for it every two seconds, so one takes over when that process ends in whatever way.
    """

    def __init__(
        self,
        name: str,
        lease: Callable[[], AbstractContextManager[bool]],
        work: Callable[[], None],
        clock: Clock,
        options: WorkerOptions,
    ) -> None:
        """Nothing is done before `start`.

        Args:
            name: Of the thread, behind `mailboat-`.
            lease: Entered for each turn; whether this process has the lease meanwhile.
            work: Called while it has. It goes on until `is_stopping`, or raises, and waits only `using` something.
            clock: As of `Worker`.
            options: As of `Worker`; `interrupt` is not used.
        """
        self._lease = lease
        self._work = work
        self._waiting: _Waiting | None = None
        super().__init__(name, self._turn_with_lease, clock, replace(options, interrupt=self._interrupt))

    @contextmanager
    def using(self, waiting: _W) -> Iterator[_W]:
        """Inside `work`: a stop interrupts this, and it is closed at the end."""
        self._waiting = waiting
        try:
            yield waiting
        finally:
            self._waiting = None
            waiting.close()

    def _turn_with_lease(self) -> float:
        # Tried again in each turn: the kernel frees the lease of a process that dies, and nothing reports it.
        with self._lease() as is_ours:
            if is_ours:
                self._work()
        return _LEASE_SECONDS

    def _interrupt(self) -> None:
        # A local: the thread clears the attribute meanwhile.
        waiting = self._waiting
        if waiting is not None:
            waiting.interrupt()
