"""An agent's process that starts while its brokers are silent waits for them, and says so."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from mailboat.agent.health import AgentView
from mailboat.agent.process import Startup
from mailboat.config.document import AgentsConfig, PublisherAgentConfig, SubscriberAgentConfig
from mailboat.errors import BlobStoreUnavailableError, JournalUnavailableError, MailboatError, SecretMissingError
from mailboat.testing.clocks import ManualClock, SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS

AGENTS = AgentsConfig((PublisherAgentConfig("author", "/site"),), (SubscriberAgentConfig("edge", "files:edge"),))
SILENT = JournalUnavailableError("no broker answers")


class Process:
    """As much of an agent's process as its start needs."""

    def __init__(self) -> None:
        self.is_stopping = False

    def ask_to_stop(self) -> None:
        self.is_stopping = True


class Attempts:
    """Attempts that fail as the test says, and then succeed."""

    def __init__(self, *failures: MailboatError) -> None:
        self.failures = list(failures)
        self.process: Any = Process()
        self.delays = 0

    def __call__(self) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return self.process

    def note_delay(self) -> None:
        self.delays += 1


def startup(clock: ManualClock) -> Startup:
    return Startup(AGENTS, clock, random.Random(7))


def test_start_is_retried_with_growing_pauses_until_brokers_and_bucket_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, attempts = SkippingClock(), Attempts(*[SILENT] * 3, *[BlobStoreUnavailableError("no bucket")] * 7)
    began = clock.monotonic()
    assert startup(clock).run(attempts, attempts.note_delay) is attempts.process
    whole = 1 + 2 + 4 + 8 + 16 + 5 * 30
    assert whole / 2 <= clock.monotonic() - began <= whole
    assert attempts.delays == 1
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [item.partition("; next try")[0] for item in told] == [
        "the agents can't start: JournalUnavailable: no broker answers",
        "the agents can't start: BlobStoreUnavailable: no bucket",
    ]


def test_start_without_failures_serves_no_probes_meanwhile() -> None:
    attempts = Attempts()
    assert startup(SkippingClock()).run(attempts, attempts.note_delay) is attempts.process
    assert attempts.delays == 0


def test_probes_show_every_agent_as_starting_with_the_error() -> None:
    starting = startup(SkippingClock())
    assert {agent.reason for agent in starting.readiness().agents} == {"starting"}
    attempts = Attempts(SILENT)
    starting.run(attempts, attempts.note_delay)
    assert starting.liveness().alive
    seen = starting.readiness()
    assert not seen.ready
    assert seen.agents == (
        AgentView("author", "publisher", "starting", ready=False, reason="JournalUnavailable"),
        AgentView("edge", "subscriber", "starting", ready=False, reason="JournalUnavailable"),
    )


def test_other_errors_end_the_start() -> None:
    attempts = Attempts(SILENT, SecretMissingError("no password"))
    with pytest.raises(SecretMissingError):
        startup(SkippingClock()).run(attempts, attempts.note_delay)


def test_stop_ends_the_wait_at_once() -> None:
    clock, attempts, ended = ManualClock(), Attempts(*[SILENT] * 9), []
    starting = startup(clock)
    thread = threading.Thread(target=lambda: ended.append(starting.run(attempts, attempts.note_delay)))
    thread.start()
    assert clock.await_waiters()
    starting.ask_to_stop()
    thread.join(PATIENCE_SECONDS)
    assert ended == [None]


def test_stop_during_and_after_the_start_reaches_the_process() -> None:
    early, late = Attempts(), Attempts()
    starting = startup(SkippingClock())

    def stopped_meanwhile() -> Any:
        starting.ask_to_stop()
        return early()

    assert starting.run(stopped_meanwhile, early.note_delay) is early.process
    assert early.process.is_stopping
    starting = startup(SkippingClock())
    starting.run(late, late.note_delay)
    assert not late.process.is_stopping
    starting.ask_to_stop()
    assert late.process.is_stopping
