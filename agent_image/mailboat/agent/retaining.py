"""Retention by consumption as the configuration wants it: one turn for a command, or turns from a thread in agents."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import Final

from mailboat.agent.composition import Workspace
from mailboat.clock import Deadline
from mailboat.config.storage import ConsumptionPolicy
from mailboat.errors import MailboatError, UsageError
from mailboat.model.messages import TopicRole
from mailboat.retention.keeping import RetentionKeeper, RetentionSettings, Turn, TurnBrokenOffError
from mailboat.retention.plan import ConsumptionBounds

TURN_SECONDS: Final = 60.0

_LOG: Final = logging.getLogger(__name__)


def is_retention_by_consumption(workspace: Workspace) -> bool:
    """Whether the configuration asks for it."""
    return workspace.home.config.retention.consumption.policy is not ConsumptionPolicy.OFF


def retention_keeper(workspace: Workspace) -> RetentionKeeper:
    """A keeper that the caller closes. Raises: UsageError for bounds that contradict each other."""
    config = workspace.home.config.retention.consumption
    if config.max_seconds is not None and config.max_seconds < config.min_seconds:
        raise UsageError("retention.consumption.max_seconds is below min_seconds", key="retention.consumption")
    if config.max_bytes is not None and config.max_bytes < config.min_bytes:
        raise UsageError("retention.consumption.max_bytes is below min_bytes", key="retention.consumption")
    settings = RetentionSettings(
        workspace.package_topic,
        workspace.topic(TopicRole.DISCOVERY),
        ConsumptionBounds(config.min_seconds, config.min_bytes, config.max_seconds, config.max_bytes),
        config.subscriber_timeout_seconds,
    )
    return RetentionKeeper(workspace.journal, settings, workspace.clock)


def retention_turn(workspace: Workspace, *, is_applied: bool) -> Turn:
    """One turn. Raises: as `RetentionKeeper.turn`, and UsageError as `retention_keeper`."""
    with closing(retention_keeper(workspace)) as keeper:
        return keeper.turn(is_applied=is_applied)


class RetentionTask:
    """Takes turns from a thread of its own until stopped. A failing journal is no reason to stop, nor a defect."""

    def __init__(self, workspace: Workspace) -> None:
        """Nothing is done before `start`. Raises: UsageError for bounds that contradict each other."""
        self._clock = workspace.clock
        self._keeper = retention_keeper(workspace)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Take a turn now and from now on."""
        self._thread.start()

    def stop(self, deadline: Deadline) -> None:
        """End the thread within the deadline, in the midst of a turn where one is at hand. Again it only waits."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(deadline.remaining_seconds())

    def _run(self) -> None:
        with closing(self._keeper):
            while True:
                try:
                    self._keeper.turn(is_stopping=self._stopping.is_set)
                except TurnBrokenOffError:
                    return
                except MailboatError as error:
                    _LOG.warning("retention by consumption was not applied: %s", error)
                except Exception:  # noqa: BLE001  # a defect must not end the thread for good
                    _LOG.exception("retention by consumption failed by a defect; it is tried again")
                if self._clock.wait(self._stopping, TURN_SECONDS):
                    return
