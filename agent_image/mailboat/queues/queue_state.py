"""Where a subscriber stands for one publisher, and what that makes of its queue: pure decisions.

A queue is idle when it is empty, blocked when its first package failed as often as `is_blocking` says, else running;
error queues are passive. Routes for programs of Sling write these words in upper case, as Sling does.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import FailureCause, is_blocking
from mailboat.queues.queue_names import QueueName


class QueueState(enum.StrEnum):
    """State of a queue, and of an agent over all its queues."""

    IDLE = "idle"
    RUNNING = "running"
    BLOCKED = "blocked"
    PASSIVE = "passive"


class ItemState(enum.StrEnum):
    """State of an item in a queue."""

    QUEUED = "queued"
    ERROR = "error"


class Capability(enum.StrEnum):
    """What may be done to a queue."""

    CLEARABLE = "clearable"
    REMOVABLE = "removable"


class QueuePosition(Frozen):
    """Where a subscriber stands, as it announced.

    Attributes:
        queue_name: The subscriber agent.
        publisher: The publisher that it follows.
        last_done_offset: The last package processed; -1 without one.
        attempts: How often the package after it has failed.
        is_editable: Takes clear commands.
        max_retries: Attempts after the first; None is without end, and then nothing is ever given up.
        cause: Why the last attempt failed.
    """

    queue_name: QueueName
    publisher: AgentName
    last_done_offset: int
    attempts: int = 0
    is_editable: bool = False
    max_retries: int | None = None
    cause: FailureCause | None = None

    @property
    def has_error_queue(self) -> bool:
        """Whether packages can be given up."""
        return self.max_retries is not None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What may be done to the queue."""
        return frozenset(Capability) if self.is_editable else frozenset()


def decide_item_state(attempts: int) -> ItemState:
    """An item that was tried and is still there has failed."""
    return ItemState.ERROR if attempts > 0 else ItemState.QUEUED


def decide_queue_state(count: int, head_failures: int) -> QueueState:
    """The state of a queue with so many packages, of which the first failed so often."""
    if not count:
        return QueueState.IDLE
    return QueueState.BLOCKED if is_blocking(head_failures) else QueueState.RUNNING


def decide_agent_state(queues: Iterable[QueueState]) -> QueueState:
    """The state of an agent over its subscribers' queues."""
    states = set(queues)
    if QueueState.BLOCKED in states:
        return QueueState.BLOCKED
    return QueueState.RUNNING if QueueState.RUNNING in states else QueueState.IDLE
