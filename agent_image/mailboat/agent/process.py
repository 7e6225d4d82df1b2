"""What `mailboat agent run` runs: the publishers and subscribers of a configuration, as threads of one process.

`Startup` starts them, and retries while brokers or bucket do not answer.

A subscriber that stops in a named state does not take the others along: it is shown as stopped, the process is not
ready, and its exit code shows it in the end. When no agent is left that runs, the process exits. On a stop request,
everything ends within one deadline. The HTTP server stands above and is not known here; it shows `liveness` and
`readiness`.

Liveness is judged by heartbeats. A `Worker` beats between its turns, before its pauses, and whenever a long turn asks
whether to stop. Code below a turn beats when it made progress: a record was read or imported. Reading the clock, or
waiting, does not count: a loop that polls without an end does both. A thread without a beat for long after its pause
was over is stuck: in a call that does not return, in such a loop, or in a lock that is never released. Every worker
that was given this clock is watched from its beginning to its end.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from mailboat.agent.health import AgentView, LivenessView, ReadinessView
from mailboat.agent.observability import Observability
from mailboat.agent.own_subscribers import OwnSubscribers
from mailboat.agent.pool_member import PoolMemberProcess
from mailboat.agent.restores import SnapshotRestores
from mailboat.agent.subscriber_process import SubscriberProcess, subscription_of, unknown_publishers
from mailboat.agent.tasks import RunnableSubscriber, SubscriberTask
from mailboat.clock import Backoff, Clock, Deadline, SystemClock
from mailboat.composition.configured_jobs import job_rules
from mailboat.composition.home import RegisteredSubscriber
from mailboat.composition.workspace import Workspace, topic_roles
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import AgentsConfig, Delivery, SubscriberAgentConfig
from mailboat.control.lag_history import LagHistory
from mailboat.errors import BlobStoreUnavailableError, JournalUnavailableError
from mailboat.maintenance.blob_sweep import sweep
from mailboat.maintenance.retention import is_head_moved, retention_worker
from mailboat.maintenance.schedule import maintenance_worker
from mailboat.workers import Worker, WorkerOptions

if TYPE_CHECKING:
    from mailboat.composition.home import Home
    from mailboat.control.service import ControlService

STALL_SECONDS: Final = 300.0
"""Silence of a thread beyond its own wait that counts as stuck. Importing one large binary is silent for long."""


@dataclass(slots=True)
class _Watched:
    """A worker: its thread, its name, how long it may be silent, and until when it is for its own wait."""

    thread: threading.Thread
    name: str
    stall_seconds: float
    quiet_until: float

    def beat(self, quiet_until: float) -> None:
        """It made progress, and may be silent until then."""
        self.quiet_until = quiet_until


class HeartbeatClock:
    """See `Clock` and `WorkerMonitor`. Notes by worker until when it may be silent."""

    def __init__(self, clock: Clock, stall_seconds: float = STALL_SECONDS) -> None:
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._watched: dict[int, _Watched] = {}

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        return self._clock.wait(event, timeout_seconds)

    def began(self, name: str, stall_seconds: float | None) -> None:
        thread, now = threading.current_thread(), self._clock.monotonic()
        stall = self._stall_seconds if stall_seconds is None else stall_seconds
        self._watched[threading.get_ident()] = _Watched(thread, name, stall, now)

    def beat(self, wait_seconds: float = 0.0) -> None:
        watched = self._watched.get(threading.get_ident())
        if watched is not None:  # its own thread writes it, and `stuck` reads one float of it: no lock is needed
            watched.beat(self._clock.monotonic() + wait_seconds)

    def ended(self) -> None:
        self._watched.pop(threading.get_ident(), None)

    def stuck(self) -> Sequence[str]:
        """Those of the watched that should have moved long ago, or ended as they should not; sorted."""
        now = self._clock.monotonic()
        return sorted(
            watched.name
            # a copy: workers start and end meanwhile, and iterating the dictionary itself would raise RuntimeError
            for watched in list(self._watched.values())
            if watched.quiet_until + watched.stall_seconds < now or not watched.thread.is_alive()
        )


_LOG: Final = logging.getLogger(__name__)
_OPEN_SECONDS: Final = 30.0


class AgentProcess:
    """The agents of one process. A context manager; leaving it stops what still runs and closes what was opened.

    Attributes:
        control: The control service of the publishers; None before `start`, and where there are none.
        own: The subscribers of a process without a publisher; None before `start`, and where there is one.
        history: Lag and throughput of the last hour; None before `start`.
    """

    _stop_by: Deadline | None = None

    def __init__(self, home: Home) -> None:
        """Prepare what the configuration names. Raises: ConfigInvalidError: no agent is named, or two have one name."""
        self.config = home.config
        check_agents(home.config.agents)
        job_rules(home.config)
        self._pulse = HeartbeatClock(SystemClock())
        self.observability = Observability(home, self._pulse)
        self.workspace = Workspace(home, self._pulse, self.observability)
        self.stopping = threading.Event()
        self._changed = threading.Event()
        self._has_started = False
        self.control: ControlService | None = None
        self.own: OwnSubscribers | None = None
        self.history: LagHistory | None = None
        self._tasks = [
            SubscriberTask(subscriber.name, self._opener(subscriber), self._pulse, self._heed_end)
            for subscriber in home.config.agents.subscribers
        ]
        self._own = tuple(zip(self.config.agents.subscribers, self._tasks, strict=True))
        self.restores = SnapshotRestores(self.workspace, self._own)
        self._upkeep = [maintenance_worker(self.workspace, sweep=sweep, figures=self.observability.upkeep)]

    def start(self) -> None:
        """Start every agent. Raises: as opening the journal: nothing can run without it."""
        self.workspace.have_topics(topic_roles(self.config.agents))
        _ = self.workspace.blobs  # opened once, before threads would race for it
        if self.config.agents.publishers:
            self._start_publishers()
        else:
            self._watch_subscribers()
        for task in self._tasks:
            task.worker.start()
        self._has_started = True

    def _start_publishers(self) -> None:
        """The control service, and the journal's upkeep: retention by age, and by consumption."""
        from mailboat.control.service import ControlService

        self.control = ControlService(self.workspace, self.config.agents.publishers)
        # before the threads and the server start: the first answers know what the topics hold by now
        self.control.catch_up()
        self.control.start()
        self.observability.start(self.control, self.workspace)
        if is_head_moved(self.workspace):
            self._upkeep.append(retention_worker(self.workspace, self.observability.retention))
        self.observability.watch_upkeep(self._upkeep[0], self._upkeep[1] if len(self._upkeep) > 1 else None)
        self.observability.watch_jobs(self.control.jobs)
        self._upkeep.append(Worker("jobs", self.control.jobs.attend, self._pulse, WorkerOptions("attending to jobs")))
        self._upkeep.append(self._sampling(LagHistory(self.control.status, self._pulse)))
        for worker in self._upkeep:
            worker.start()

    def _watch_subscribers(self) -> None:
        """What the dashboard of a process without a publisher shows."""
        self.own = OwnSubscribers(self.workspace, self._own, self._pulse)
        worker = self._sampling(LagHistory(self.own.lags, self._pulse))
        self._upkeep.append(worker)
        worker.start()

    def _sampling(self, history: LagHistory) -> Worker:
        """The worker that samples a history, which the dashboard plots."""
        self.history = history
        return Worker("history", history.sample, self._pulse, WorkerOptions("sampling lag and throughput"))

    def await_opened(self) -> Sequence[AgentView]:
        """Wait until every subscriber holds its locks, ended, or has to try again, and return those that ended."""
        deadline = Deadline(self._pulse, _OPEN_SECONDS)
        for task in self._tasks:
            task.await_opened(deadline.remaining_seconds())
        return [task.view() for task in self._tasks if task.is_over]

    @property
    def is_over(self) -> bool:
        """Whether `wait` returns at once: no agent is left that runs, or a stop was requested."""
        return self._changed.is_set()

    def ask_to_stop(self) -> None:
        """Let `wait` return, and the subscribers end. From any thread."""
        self.stopping.set()
        self._changed.set()
        self.restores.stop()  # before the subscribers: a restore starts one again that ended
        # Not only in `stop`, which waits for the last requests: subscribers need none, and have the same time to end.
        for task in self._tasks:
            task.worker.ask_to_stop()

    def wait(self) -> None:
        """Wait for a stop request, or until no agent is left that runs."""
        self._changed.wait()

    def deadline(self) -> Deadline:
        """The time that stopping everything may take, from now on."""
        return Deadline(self._pulse, self.config.subscriber.shutdown_seconds)

    def stop(self, deadline: Deadline) -> int:
        """End all agents within the deadline; again, within the first one. Returns: the process's exit code."""
        is_logged = self._stop_by is None and self._has_started  # `Startup` logs an attempt to start that failed
        self._stop_by = self._stop_by or deadline
        if is_logged:
            running = ", ".join(worker.name for worker in self._workers() if worker.is_running) or "nothing"
            _LOG.info("stopping (deadline %.3g s): %s", self._stop_by.remaining_seconds(), running)
        self.ask_to_stop()
        workers = self._workers()  # until now a restore may have started another one
        # all workers are asked before the first join: they end in parallel, within one deadline
        for worker in workers:
            worker.ask_to_stop()
        # its figures and events read through the control service
        self.observability.stop(self._stop_by)
        if self.control is not None:
            self.control.stop(self._stop_by)
        late = [worker.name for worker in workers if not worker.join(self._stop_by.remaining_seconds())]
        if is_logged and late:
            _LOG.warning("did not end before the deadline: %s; the next start resumes their work", ", ".join(late))
        elif is_logged:
            _LOG.info("stopped cleanly, %.3g s before the deadline", self._stop_by.remaining_seconds())
        return self.exit_code

    def _workers(self) -> Sequence[Worker]:
        return [*(task.worker for task in self._tasks), *self._upkeep]

    @property
    def exit_code(self) -> int:
        """0 unless an agent stopped in a named state or failed; then that of the first one."""
        return next((task.exit_code for task in self._tasks if task.exit_code), 0)

    def liveness(self) -> LivenessView:
        """See `Health`: the workers that should have moved, and did not."""
        stuck = () if self.stopping.is_set() else tuple(self._pulse.stuck())
        return LivenessView(not stuck, stuck)

    def readiness(self) -> ReadinessView:
        """See `Health`: not ready while stopping, so that traffic goes elsewhere."""
        is_open = self.control is not None
        publishers = (
            AgentView(publisher.name, "publisher", "running" if is_open else "starting", is_open)
            for publisher in self.config.agents.publishers
        )
        agents = (*publishers, *(task.view() for task in self._tasks))
        is_ready = not self.stopping.is_set() and all(agent.ready for agent in agents)
        return ReadinessView(is_ready, agents)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # after an earlier `stop` its deadline counts: leaving the context does not extend it
        self.stop(self.deadline())
        if self.control is not None:
            self.control.close()
        if self.own is not None:
            self.own.close()
        # last: the control service and the workers read through the journal and the blob store of the workspace
        self.workspace.__exit__(kind, error, trace)

    def _opener(self, config: SubscriberAgentConfig) -> Callable[[], RunnableSubscriber]:
        """What opens a subscriber: its target, claimed, and remembered for the commands on the home."""
        workspace = self.workspace

        def open_subscriber() -> RunnableSubscriber:
            wanted = subscription_of(workspace.home, config)
            kind = PoolMemberProcess if wanted.delivery is Delivery.SHARED else SubscriberProcess
            process = kind(workspace, wanted, lambda _: None, self.observability)
            try:
                # claimed before it is remembered: the registry must not name a target that refuses this subscriber
                pool = process.claim()
                known = RegisteredSubscriber(
                    wanted.name, wanted.target, wanted.follow, wanted.max_retries, config.expose, pool
                )
                workspace.home.remember_subscriber(known)
                unknown, _ = unknown_publishers(workspace, wanted.follow)
                if unknown:
                    _LOG.warning("%s follows %s: no package of it was found so far", wanted.name, ", ".join(unknown))
            # also KeyboardInterrupt and SystemExit: the target's lock would stay until the process ends
            except BaseException:
                process.close()
                raise
            return process

        return open_subscriber

    def _heed_end(self) -> None:
        """End the process when no agent is left: it would only look as if it worked."""
        if not self.config.agents.publishers and all(task.is_over for task in self._tasks):
            self._changed.set()


def check_agents(agents: AgentsConfig) -> None:
    """Refuse what can't be run. Raises: ConfigInvalidError."""
    for kind, names in (
        ("publishers", [publisher.name for publisher in agents.publishers]),
        ("subscribers", [subscriber.name for subscriber in agents.subscribers]),
    ):
        for name in names:
            if names.count(name) > 1:
                raise ConfigInvalidError(f"agents.{kind} names {name} twice", key=f"agents.{kind}")
    if not agents.publishers and not agents.subscribers:
        raise ConfigInvalidError(
            "the configuration names no agents", next_step="name some under agents.publishers or agents.subscribers"
        )


_BACKOFF: Final = Backoff(1.0, 30.0)
_AWAITED: Final = (JournalUnavailableError, BlobStoreUnavailableError)


class Startup:
    """The health of a process that has not started yet, and the loop that starts it.

    Its supervisor would restart a process that ended instead with growing pauses, as it can't distinguish outages from
    defects. Each attempt has a process object of its own: one that started half has readers and threads that nothing
    else refers to. Until an attempt succeeds probes see: alive, not ready, and why.
    """

    def __init__(self, agents: AgentsConfig, clock: Clock, jitter: random.Random) -> None:
        """Show `agents` to probes as starting.

        `jitter` shortens each pause by up to a half, so that the members of a pool do not retry all at once.
        """
        publishers = [(publisher.name, "publisher") for publisher in agents.publishers]
        self._agents = (*publishers, *((subscriber.name, "subscriber") for subscriber in agents.subscribers))
        self._clock = clock
        self._jitter = jitter
        self._stopping = threading.Event()
        self._process: AgentProcess | None = None
        self._reason = "starting"

    def run(self, attempt: Callable[[], AgentProcess], when_delayed: Callable[[], None]) -> AgentProcess | None:
        """Attempt until it succeeds; None if asked to stop first. A failed attempt leaves nothing behind.

        `when_delayed` is called once, before the first pause. Raises: as `attempt`, but for brokers and a bucket that
        do not answer.
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
