"""The command line follows the restore that it began at an agent, and no other one of that target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from mailboat.api.archive import RestoreView
from mailboat.cli.snapshots import followed
from mailboat.clock import moment_of
from mailboat.errors import RestoreInterruptedError
from mailboat.http.routes.blob_store import RestoreDocument
from mailboat.testing.clocks import SkippingClock
from pydantic import TypeAdapter, ValidationError

BEGUN = RestoreView("web", "sqlite:/site.db", "waiting", "blob:old", begun_at=moment_of(1))
RUNNING = replace(BEGUN, state="restoring", phase="fetching", done_bytes=5, total_bytes=9)
DONE = replace(BEGUN, state="done", next_offset=3)


class Agent:
    """Answers with one list of restores after the other."""

    def __init__(self, *answers: RestoreView) -> None:
        self._answers = list(answers)

    def restores(self) -> Sequence[RestoreView]:
        return [RestoreView("other", "sqlite:/other.db"), self._answers.pop(0)]


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
    assert followed(agent.restores, BEGUN, progress, SkippingClock()) == DONE
    assert progress.told == [("fetching", 9), (5,), ("fetching", 9), (4,), ("restoring", 9), (5,)]


@pytest.mark.parametrize(
    "other",
    [
        replace(DONE, begun_at=moment_of(2)),
        replace(DONE, snapshot="blob:new"),
        RestoreView("web", "sqlite:/site.db"),  # the agent restarted
    ],
)
def test_the_outcome_of_another_restore_is_not_its_own(other: RestoreView) -> None:
    with pytest.raises(RestoreInterruptedError, match="or began another restore, while blob:old"):
        followed(Agent(RUNNING, other).restores, BEGUN, Progress(), SkippingClock())


@pytest.mark.parametrize("value", ["yes", 1, "true", None])
def test_an_agent_takes_true_or_false_only_for_replace(value: object) -> None:
    orders = TypeAdapter(RestoreDocument)
    assert orders.validate_python({"target": "sqlite:/site.db", "replace": True}).replace
    with pytest.raises(ValidationError, match="should be a valid boolean"):
        orders.validate_python({"target": "sqlite:/site.db", "replace": value})
