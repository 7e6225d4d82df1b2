"""Starts the agents' process, and retries while its brokers or its bucket do not answer.

Its supervisor would restart a process that ended instead with growing pauses, as it can't distinguish outages from
defects. Each attempt has a process object of its own: one that started half has readers and threads that nothing else
refers to. Until an attempt succeeds probes see: alive, not ready, and why.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mailboat.agent.health import AgentView, LivenessView, ReadinessView
from mailboat.clock import Backoff, Clock
from mailboat.errors import BlobStoreUnavailableError, JournalUnavailableError

if TYPE_CHECKING:
    from mailboat.agent.process import AgentProcess
    from mailboat.config.document import AgentsConfig

_LOG: Final = logging.getLogger(__name__)
_BACKOFF: Final = Backoff(1.0, 30.0)
_AWAITED: Final = (JournalUnavailableError, BlobStoreUnavailableError)


class Startup:
    """The health of a process that has not started yet, and the loop that starts it."""

    def __init__(self, agents: AgentsConfig, clock: Clock, jitter: random.Random) -> None:
        """Start nothing yet.

        Args:
            agents: Those that probes are shown as starting.
            clock: Time.
            jitter: Shortens each pause by up to a half, so that the members of a pool do not retry all at once.
        """
        publishers = [(publisher.name, "publisher") for publisher in agents.publishers]
        self._agents = (*publishers, *((subscriber.name, "subscriber") for subscriber in agents.subscribers))
        self._clock = clock
        self._jitter = jitter
        self._stopping = threading.Event()
        self._process: AgentProcess | None = None
        self._reason = "starting"

    def run(self, attempt: Callable[[], AgentProcess], when_delayed: Callable[[], None]) -> AgentProcess | None:
        """Attempt until it succeeds; None if asked to stop first.

        Args:
            attempt: Starts a process, or leaves nothing behind.
            when_delayed: Called once, before the first pause.

        Raises: as `attempt`, but for brokers and a bucket that do not answer.
        """
        failures, logged = 0, ""
        while not self._stopping.is_set():
            try:
                self._process = attempt()
            except _AWAITED as error:
                if not failures:
                    when_delayed()
                pause = _BACKOFF.pause(failures + 1, self._jitter)
                # an outage is one warning, not one for each attempt
                level = logging.DEBUG if str(error) == logged else logging.WARNING
                _LOG.log(level, "the agents can't start: %s; next try in %.3g seconds", error, pause)
                self._reason, logged, failures = error.name, str(error), failures + 1
                self._clock.wait(self._stopping, pause)
                continue
            if failures:
                _LOG.info("the agents start: what failed before answers")
            if self._stopping.is_set():  # the signal came while the process was not known here
                self._process.ask_to_stop()
            return self._process
        return None

    def ask_to_stop(self) -> None:
        """End the wait, or let the process end. From any thread."""
        # before `_process` is read; `run` writes `_process`, then reads the event: one of both asks the process to stop
        self._stopping.set()
        if self._process is not None:
            self._process.ask_to_stop()

    def liveness(self) -> LivenessView:
        """Alive: a restart would not make the brokers answer."""
        return LivenessView(alive=True)

    def readiness(self) -> ReadinessView:
        """Not ready: every agent is starting, with the error that the last attempt ended with."""
        agents = (AgentView(name, kind, "starting", ready=False, reason=self._reason) for name, kind in self._agents)
        return ReadinessView(ready=False, agents=tuple(agents))
