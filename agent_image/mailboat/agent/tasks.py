"""One subscriber of an agent's process, as a worker: opened, run, and its end kept as data.

A passing fault while it starts is waited out; a named state ends it and stays visible; a defect is logged with its
trace. Work on a target that its subscriber must not hold meanwhile is done by the same thread, between two runs.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple, Protocol

from mailboat.agent.health import AgentView
from mailboat.agent.subscriber_process import SubscriberBusyError
from mailboat.clock import Clock, Deadline
from mailboat.errors import MailboatError, RetryableError, TargetBusyError
from mailboat.model.messages import DiscoveryMessage, FailureCause
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Until
from mailboat.workers import Worker, WorkerOptions

_LOG: Final = logging.getLogger(__name__)
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LOCK_SECONDS: Final = 5.0
"""How long a lock may be held by another process before its subscriber stops."""
_LOCK_PAUSE_SECONDS: Final = 0.2
_JOIN_SECONDS: Final = 5.0
"""How long the thread of a subscriber that has ended may take to report that."""

DEFECT_EXIT_CODE: Final = 1


class _Phase(enum.Enum):
    """How far a task is. It goes on from RUNNING to OVER, and begins again for an interlude."""

    RUNNING = enum.auto()
    """Its thread opens the subscriber, runs it, or waits for another attempt."""
    ENDING = enum.auto()
    """Its thread takes no further turn, and closes what is open."""
    OVER = enum.auto()
    """All is closed, and the end is about to be reported or was."""


class TaskEnd(NamedTuple):
    """The end of a subscriber by an error.

    Attributes:
        reason: The word for it, in its view.
        exit_code: Of the process, unless another subscriber gives one.
    """

    reason: str
    exit_code: int


def decide_end(error: Exception) -> TaskEnd | None:
    """How an error of `run` or of opening ends a subscriber; None: it pauses, and is opened again."""
    if isinstance(error, RetryableError):
        return None
    if isinstance(error, MailboatError):
        return TaskEnd(error.name, error.exit_code)
    return TaskEnd("defect", DEFECT_EXIT_CODE)


class RunnableSubscriber(Protocol):
    """What a task runs: `SubscriberProcess`, as far as it needs it."""

    def run(self, until: Until) -> object:
        """Import until stopped. Raises: MailboatError."""

    def stop(self) -> None:
        """Ask `run` to return."""

    def close(self) -> None:
        """Release the target."""

    def statistics(self) -> SubscriberStatistics:
        """The figures of this moment, from any thread."""

    def present(self) -> DiscoveryMessage:
        """What it would announce now. Reads no storage; from any thread."""


class TaskReport(NamedTuple):
    """The state of a task and its subscriber.

    Attributes:
        message: What the subscriber would announce now; its last words once it ended; None if it never opened.
        is_running: Whether it is open now.
        is_over: Whether it has ended.
        cause: Why it ended, or could not open.
    """

    message: DiscoveryMessage | None
    is_running: bool
    is_over: bool
    cause: FailureCause | None


Interlude = Callable[[Callable[[], bool]], None]
"""Work between two runs of a subscriber; its argument says whether the process stops. It does not raise."""


class SubscriberTask:
    """The worker of one subscriber, and its outcome."""

    def __init__(
        self,
        name: str,
        open_subscriber: Callable[[], RunnableSubscriber],
        clock: Clock,
        when_ended: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is opened before the worker starts; a RetryableError of `open_subscriber` is waited out."""
        self.name = name
        self.exit_code = 0
        self._open = open_subscriber
        self._when_ended = when_ended
        self._lock = threading.Lock()
        self._subscriber: RunnableSubscriber | None = None
        self._last_message: DiscoveryMessage | None = None
        self._cause: FailureCause | None = None
        self._reason = "starting"
        self._phase = _Phase.RUNNING
        # events, as threads wait for them
        self._is_decided = threading.Event()
        self._is_stopping = threading.Event()
        self._interlude: Interlude | None = None
        self._clock = clock
        self._options = WorkerOptions(
            f"starting the subscriber {name}",
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
            interrupt=self._interrupt,
            on_end=self._close_session,
            on_failure=self._note_failure,
            where={"subscriber": name},
        )
        self.worker = self._new_worker()

    @property
    def is_over(self) -> bool:
        return self._phase is _Phase.OVER

    def await_opened(self, seconds: float) -> None:
        """Wait until it holds its locks, ended, has to try again, or is to stop; not longer than that."""
        self._clock.wait(self._is_decided, seconds)

    def run_between(self, interlude: Interlude) -> None:
        """Let the subscriber end its batch and close its target, do this in its thread, and start the subscriber again.

        Also a subscriber that ended in a named state starts again. Not while the process stops: its workers are joined.

        Raises: TargetBusyError while an earlier interlude is not over.
        """
        with self._lock:
            if self._interlude is not None:
                raise TargetBusyError(
                    f"a restore into the target of {self.name} is under way", next_step="wait until it has ended"
                )
            # Before the subscriber is stopped: its thread must find it between the two runs.
            self._interlude = interlude
            subscriber = self._subscriber
            if self._phase is not _Phase.RUNNING and not self._is_stopping.is_set():
                # its thread has nothing left to do but to report the end, which must not follow the new start
                self.worker.join(_JOIN_SECONDS)
                self._phase = _Phase.RUNNING
                self.worker = self._new_worker()
                self.worker.start()
        if subscriber is not None:
            subscriber.stop()
        # Not `wake`: a subscriber that could not be opened pauses for up to half a minute.
        self.worker.retry()

    def view(self) -> AgentView:
        if self.is_over:
            return AgentView(self.name, "subscriber", "stopped", ready=False, reason=self._reason)
        with self._lock:
            subscriber = self._subscriber
        if subscriber is None:
            return AgentView(self.name, "subscriber", "starting", ready=False, reason=self._reason)
        statistics = subscriber.statistics()
        return AgentView(self.name, "subscriber", "running", statistics.is_ready, statistics.ready_reason)

    def report(self) -> TaskReport:
        with self._lock:
            subscriber, last = self._subscriber, self._last_message
        # outside of the lock: a subscriber that closes meanwhile still answers, as it reads no storage
        message = last if subscriber is None else subscriber.present()
        return TaskReport(message, subscriber is not None, self.is_over, self._cause)

    def _new_worker(self) -> Worker:
        return Worker(f"subscriber-{self.name}", self._turn, self._clock, self._options)

    def _turn(self) -> float | None:
        self._do_interlude()
        try:
            self._run_once()
            self._reason = "stopped"
        except Exception as error:  # a defect of one subscriber must not take the others along
            end = decide_end(error)
            if end is None:
                raise  # the worker pauses, and takes another turn
            self._reason, self.exit_code = end
            self._cause = _cause_of(error)
            if isinstance(error, MailboatError):
                _LOG.error("subscriber %s stopped: %s", self.name, error)  # a named state needs no trace
            else:
                _LOG.exception("subscriber %s failed", self.name)
        with self._lock:
            # under the lock: an interlude is either seen here, or finds that this thread takes no turn any more
            is_last = self._interlude is None or self._is_stopping.is_set()
            if is_last:
                self._phase = _Phase.ENDING
        return None if is_last else 0.0

    def _do_interlude(self) -> None:
        interlude = self._interlude
        if interlude is None or self._is_stopping.is_set():
            return
        self._reason = "restoring"
        interlude(lambda: self.worker.is_stopping)
        with self._lock:
            self._interlude = None

    def _run_once(self) -> None:
        with closing(self._open_when_free()) as subscriber:
            with self._lock:
                self._subscriber = subscriber
                is_awaited = self._interlude is not None
            self._cause, self.exit_code = None, 0
            self._is_decided.set()
            try:
                # a stop that came while the target was opened found no subscriber to stop: see `_interrupt`
                if not (self.worker.is_stopping or is_awaited):
                    subscriber.run(Until.FOREVER)
            finally:
                with self._lock:
                    # cleared before `closing` releases the target: `view` must not ask a closed subscriber
                    self._subscriber = None
                    # under the same lock: `report` has the subscriber or its last message, never neither
                    self._last_message = subscriber.present()

    def _open_when_free(self) -> RunnableSubscriber:
        """Open the subscriber, waiting a few seconds for locks. Raises: MailboatError."""
        deadline = Deadline(self._clock, _LOCK_SECONDS)
        while True:
            try:
                return self._open()
            except (SubscriberBusyError, TargetBusyError):
                # the process of a pod that was deleted by force may end after its successor's start
                if deadline.is_over() or self._clock.wait(self._is_stopping, _LOCK_PAUSE_SECONDS):
                    raise

    def _interrupt(self) -> None:
        """Let it finish the current batch, then end."""
        # Before the subscriber is looked up: one that is being opened now sees the flag before it runs.
        self._is_stopping.set()
        self._is_decided.set()
        with self._lock:
            subscriber = self._subscriber
        if subscriber is not None:
            subscriber.stop()

    def _note_failure(self, error: Exception) -> None:
        self._reason = getattr(error, "name", "defect")
        self._cause = _cause_of(error)
        self._is_decided.set()

    def _close_session(self) -> None:
        if not self.exit_code:
            self._reason = "stopped"
        # Before the callback, which may ask whether all tasks are over. Without the lock: `run_between` holds it while
        # it waits for this thread.
        self._phase = _Phase.OVER
        self._is_decided.set()
        if self._when_ended is not None:
            self._when_ended()


def _cause_of(error: Exception) -> FailureCause:
    """An error as people see it; the message of a defect may hold anything, and stays in the log."""
    if isinstance(error, MailboatError):
        return FailureCause(error.name, error.message)
    return FailureCause("AgentDefect", f"internal error ({type(error).__name__}); the agent's log has the trace")
