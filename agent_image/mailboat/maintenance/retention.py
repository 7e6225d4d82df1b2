"""The head of the package topic as the configuration wants it: one turn for a command, or turns of a thread in agents.

By consumption; and by age and size, at borders of whole packages, where brokers would cut through those in pieces.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Final

from mailboat.composition.workspace import Workspace
from mailboat.config.document import is_head_kept
from mailboat.config.storage import ConsumptionPolicy
from mailboat.model.messages import TopicRole
from mailboat.retention.task import (
    RetentionFigures,
    RetentionSettings,
    RetentionTask,
    Turn,
    TurnInterruptedError,
    check_bounds,
)
from mailboat.workers import Worker, WorkerOptions

TURN_SECONDS: Final = 60.0


def is_retention_by_consumption(workspace: Workspace) -> bool:
    """Whether the configuration asks for it."""
    return workspace.home.config.retention.consumption.policy is not ConsumptionPolicy.OFF


def is_head_moved(workspace: Workspace) -> bool:
    """Whether an agent has anything to do with the head: by consumption, or at borders where brokers would cut."""
    return is_retention_by_consumption(workspace) or is_head_kept(workspace.home.config)


def retention_keeper(
    workspace: Workspace, figures: RetentionFigures | None = None, *, is_by_consumption: bool = True
) -> RetentionTask:
    """A keeper that the caller closes. Raises: UsageError for bounds that contradict each other."""
    retention = workspace.home.config.retention
    check_bounds(retention)
    if not is_head_kept(workspace.home.config):
        retention = replace(retention, package_seconds=None, package_bytes=None)
    discovery = workspace.topic(TopicRole.DISCOVERY)
    settings = RetentionSettings(workspace.package_topic, discovery, retention, is_by_consumption)
    return RetentionTask(workspace.journal, settings, workspace.clock, figures)


def retention_turn(workspace: Workspace, *, is_applied: bool) -> Turn:
    """One turn. Raises: as `RetentionTask.turn`, and UsageError as `retention_keeper`."""
    with closing(retention_keeper(workspace)) as keeper:
        return keeper.turn(is_applied=is_applied)


def retention_worker(workspace: Workspace, figures: RetentionFigures | None = None) -> Worker:
    """Takes turns now and from now on, once it is started; what they did is counted in `figures`.

    Raises: UsageError for bounds that contradict each other.
    """
    keeper = retention_keeper(workspace, figures, is_by_consumption=is_retention_by_consumption(workspace))
    # This process, and the subscribers with it, may have been away for longer than `subscriber_timeout_seconds`.
    keeper.await_announcements()

    def turn() -> float | None:
        try:
            keeper.turn(is_stopping=lambda: worker.is_stopping)
        except TurnInterruptedError:
            return None
        return TURN_SECONDS

    options = WorkerOptions(
        "retention by consumption",
        first_pause_seconds=TURN_SECONDS,
        longest_pause_seconds=TURN_SECONDS,
        on_end=keeper.close,
        where={"topic": workspace.package_topic},
    )
    worker = Worker("retention", turn, workspace.clock, options)
    return worker
