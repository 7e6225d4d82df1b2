"""The command line follows the restore that it began at an agent, and no other one of that target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from mailboat.api.archive import RestoreView
from mailboat.api.orders import RestoreOrder
from mailboat.cli.snapshots import followed
from mailboat.clock import moment_of
from mailboat.errors import AgentUnreachableError, RestoreInterruptedError, UsageError
from mailboat.testing.clocks import SkippingClock
from pydantic import TypeAdapter, ValidationError

BEGUN = RestoreView("web", "sqlite:/site.db", "waiting", "blob:old", begun_at=moment_of(1))
RUNNING = replace(BEGUN, state="restoring", phase="fetching", done_bytes=5, total_bytes=9)
DONE = replace(BEGUN, state="done", next_offset=3)
UNREAD = RestoreView("web", "sqlite:/site.db", "unknown", error="TargetCorrupt", message="it is damaged")
URL = "http://agent:8080"


class Agent:
    """Answers with one list of restores after the other."""

    def __init__(self, *answers: RestoreView | Exception) -> None:
        self._answers = list(answers)

    def restores(self) -> Sequence[RestoreView]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [RestoreView("other", "sqlite:/other.db"), answer]


class Progress:
    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def begin(self, phase: str, total_bytes: int | None = None) -> None:
        self.told.append((phase, total_bytes))

    def advance(self, count: int) -> None:
        self.told.append((count,))


def test_the_restore_that_was_begun_is_followed_to_its_end() -> None:
    progress = Progress()
    agent = Agent(BEGUN, RUNNING, replace(RUNNING, done_bytes=9), replace(RUNNING, phase="restoring"), DONE)
    assert followed(agent.restores, BEGUN, progress, SkippingClock(), URL) == DONE
    assert progress.told == [("fetching", 9), (5,), ("fetching", 9), (4,), ("restoring", 9), (5,)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(DONE, begun_at=moment_of(2)), "another restore into sqlite:/site.db began after that of blob:old"),
        (replace(DONE, begun_at=moment_of(0)), "the agent ended before blob:old was restored: sqlite:/site.db is as"),
        (RestoreView("web", "sqlite:/site.db"), "the agent ended before blob:old was restored: sqlite:/site.db is as"),
        (UNREAD, "whether blob:old was restored into sqlite:/site.db is not known: TargetCorrupt: it is damaged"),
        (RestoreView("new", "sqlite:/new.db"), "has no subscriber of sqlite:/site.db any more; whether blob:old was"),
    ],
)
def test_the_outcome_of_another_restore_is_not_its_own(other: RestoreView, reason: str) -> None:
    with pytest.raises(RestoreInterruptedError, match=reason):
        followed(Agent(RUNNING, other).restores, BEGUN, Progress(), SkippingClock(), URL)


def test_an_agent_that_restarts_meanwhile_is_asked_again() -> None:
    away = AgentUnreachableError("no answer")
    agent = Agent(RUNNING, *[away] * 100, RUNNING, *[away] * 100, DONE)
    assert followed(agent.restores, BEGUN, Progress(), SkippingClock(), URL) == DONE


def test_an_agent_that_stays_away_leaves_the_outcome_open() -> None:
    agent = Agent(RUNNING, *[AgentUnreachableError("no answer")] * 200)
    with pytest.raises(AgentUnreachableError, match="whether blob:old was restored into sqlite:/site") as end:
        followed(agent.restores, BEGUN, Progress(), SkippingClock(), URL)
    assert end.value.next_step == f"once the agent runs again: mailboat --url {URL} content restores"


def test_a_refusal_ends_the_wait_at_once() -> None:
    with pytest.raises(UsageError, match="no such token"):
        followed(Agent(UsageError("no such token")).restores, BEGUN, Progress(), SkippingClock(), URL)


@pytest.mark.parametrize("value", ["yes", 1, "true", None])
def test_an_agent_takes_true_or_false_only_for_replace(value: object) -> None:
    orders = TypeAdapter(RestoreOrder)
    assert orders.validate_python({"target": "sqlite:/site.db", "replace": True}).replace
    with pytest.raises(ValidationError, match="should be a valid boolean"):
        orders.validate_python({"target": "sqlite:/site.db", "replace": value})
