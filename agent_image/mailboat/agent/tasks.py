"""One subscriber of an agent's process, in a thread of its own: opened, run, and its end kept as data.

A passing fault while it starts is waited out; a named state ends it and stays visible; a defect is logged with its
trace. Used by `running.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final, Protocol

from mailboat.agent.health import AgentView
from mailboat.clock import Clock
from mailboat.errors import MailboatError, RetryableError
from mailboat.subscriber.subscription import Until

_LOG: Final = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0

DEFECT_EXIT_CODE: Final = 1


class RunnableSubscriber(Protocol):
    """What a task runs: `SubscriberProcess`, as far as it needs it."""

    def run(self, until: Until) -> object:
        """Import until stopped. Raises: MailboatError."""

    def stop(self) -> None:
        """Ask `run` to return."""

    def close(self) -> None:
        """Release the target."""

    def readiness(self) -> tuple[bool, str]:
        """Whether it may serve, and why or why not."""


class SubscriberTask:
    """The thread of one subscriber. `start`, `stop` and `join` from one thread, all else from any."""

    def __init__(self, name: str, open_subscriber: Callable[[], RunnableSubscriber], clock: Clock) -> None:
        """Nothing is opened before `start`; a RetryableError of `open_subscriber` is waited out."""
        self.name = name
        self.exit_code = 0
        self.ended = threading.Event()
        self._open = open_subscriber
        self._clock = clock
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._subscriber: RunnableSubscriber | None = None
        self._reason = "starting"
        self._thread = threading.Thread(target=self._run, name=f"mailboat-subscriber-{name}", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.ident is not None and not self.ended.is_set()

    @property
    def thread_name(self) -> str:
        """The thread's name."""
        return self._thread.name

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the batch at hand, then end."""
        self._stopping.set()
        with self._lock:
            subscriber = self._subscriber
        if subscriber is not None:
            subscriber.stop()

    def join(self, seconds: float) -> bool:
        """Wait for the end; whether it came."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def view(self) -> AgentView:
        """How it is."""
        if self.ended.is_set():
            return AgentView(self.name, "subscriber", "stopped", is_ready=False, reason=self._reason)
        with self._lock:
            subscriber = self._subscriber
        if subscriber is None:
            return AgentView(self.name, "subscriber", "starting", is_ready=False, reason=self._reason)
        is_ready, reason = subscriber.readiness()
        return AgentView(self.name, "subscriber", "running", is_ready, reason)

    def _run(self) -> None:
        try:
            self._run_until_stopped()
            self._reason = "stopped"
        except MailboatError as error:
            self._reason, self.exit_code = error.name, error.exit_code
            _LOG.error("subscriber %s stopped: %s", self.name, error)  # a named state needs no trace
        except Exception:  # noqa: BLE001  # a defect of one subscriber must not take the others along
            self._reason, self.exit_code = "defect", DEFECT_EXIT_CODE
            _LOG.exception("subscriber %s failed", self.name)
        finally:
            self.ended.set()

    def _run_until_stopped(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                self._run_once()
            except RetryableError as error:
                self._reason = error.name
                _LOG.warning("subscriber %s can't start: %s; next try in %g seconds", self.name, error, pause)
                self._clock.wait(self._stopping, pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _run_once(self) -> None:
        with closing(self._open()) as subscriber:
            with self._lock:
                self._subscriber = subscriber
            try:
                if not self._stopping.is_set():
                    subscriber.run(Until.FOREVER)
            finally:
                with self._lock:
                    self._subscriber = None
