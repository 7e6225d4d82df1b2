"""What a plan asks to be done, in words that need no client."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from mailboat.frozen import Frozen
from mailboat.model.jobs import QueueSettings, Schedule

from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.plan.child_manifest import ChildKey, Manifest
from mailboat_operator.plan.labels import FINALIZER


class Apply(Frozen):
    """Make a child, or make it as it should be."""

    manifest: Manifest


class Correct(Frozen):
    """Make a child as it should be again after another client changed it, and report how that went.

    Attributes:
        manifest: As it should be.
        difference: The first field that differs.
    """

    manifest: Manifest
    difference: str


class Create(Frozen):
    """Make a child once, and never touch it again: a Secret with a generated value.

    Attributes:
        manifest: All but the data.
        generated: Keys whose values are made at random at this moment.
    """

    manifest: Manifest
    generated: tuple[str, ...]


class Delete(Frozen):
    """Remove an unwanted object: the one that was observed (by uid), no other of its name.

    Attributes:
        key: Which.
        uid: Its own.
    """

    key: ChildKey
    uid: str


class Enlarge(Frozen):
    """Request a larger volume for a claim.

    Attributes:
        claim: As it was listed.
        size: The size to request.
    """

    claim: Manifest
    size: str


class Deregister(Frozen):
    """Deregister a subscriber permanently through the first publisher that answers.

    Attributes:
        member: The subscriber's name.
        publishers: Names of publishers of its journal.
    """

    member: str
    publishers: Sequence[str]


class Severity(enum.StrEnum):
    """What Kubernetes calls the type of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class RecordEvent(Frozen):
    """An Event about the object."""

    severity: Severity
    reason: str
    message: str


class TopicWanted(Frozen):
    """A topic as it should be.

    Attributes:
        name: On the brokers.
        partitions: How many.
        replicas: Of each; None leaves it to the brokers.
        config: The keys that are ours, by Kafka's names.
    """

    name: str
    partitions: int
    replicas: int | None
    config: Mapping[str, str]


class TopicFound(Frozen):
    """A topic as it is.

    Attributes:
        topic_id: Given when it was made, and to no other (KIP-516).
        partitions: How many.
        replicas: Of the first.
        config: All its keys.
    """

    topic_id: str
    partitions: int
    replicas: int
    config: Mapping[str, str | None]


class CreateTopic(Frozen):
    """Make a topic on the brokers."""

    topic: TopicWanted

    @property
    def name(self) -> str:
        """The topic's."""
        return self.topic.name


class Grow(Frozen):
    """Give a topic more partitions."""

    name: str
    partitions: int


class Configure(Frozen):
    """Set keys of a topic's configuration, and leave the others."""

    name: str
    changes: Mapping[str, str]


class DeleteTopic(Frozen):
    """Remove a topic from the brokers, with everything that it holds."""

    name: str


class Hold(Frozen):
    """Put our finalizer on the object, or take it off, so that it can go.

    Attributes:
        is_held: Whether it is to be there.
    """

    is_held: bool


def is_held(metadata: Metadata) -> bool:
    """Whether our finalizer is there."""
    return FINALIZER in metadata.finalizers


RECLAIM_SECONDS: Final = 300.0
"""How long a deletion waits for the brokers: a namespace must not hang in Terminating if they never come back."""


class RequestPackage(Frozen):
    """Send the request of a Distribution to its publisher's agent."""


class SetQueue(Frozen):
    """Write the settings of a queue of jobs into the journal."""

    settings: QueueSettings


class SuspendQueue(Frozen):
    """Let a queue start no jobs, or let it go on.

    Attributes:
        queue: Its name.
        suspended: Whether it is to start none.
    """

    queue: str
    suspended: bool


class RemoveQueue(Frozen):
    """Drop the queued jobs of a queue, and remove it from the journal."""

    queue: str


class SetSchedule(Frozen):
    """Write a schedule of jobs into the journal."""

    schedule: Schedule


class RemoveSchedule(Frozen):
    """Remove a schedule from the journal; jobs that it added stay."""

    schedule: str


JobAction = SetQueue | SuspendQueue | RemoveQueue | SetSchedule | RemoveSchedule
TopicAction = CreateTopic | Grow | Configure | DeleteTopic
Action = (
    Apply
    | Correct
    | Create
    | Delete
    | Enlarge
    | Deregister
    | RecordEvent
    | Hold
    | TopicAction
    | RequestPackage
    | JobAction
)


class Plan(Frozen):
    """What one reconciliation does.

    Attributes:
        actions: In order.
        status: The whole status to be; None leaves it as it is.
        again_seconds: When to reconcile again at the latest, without news; None leaves it to news and the resync.
        figures: For the operator's metrics, by their names.
    """

    actions: tuple[Action, ...]
    status: Mapping[str, Any] | None
    again_seconds: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def preparation(self) -> Hold | None:
        """The finalizer alone, after which the object is planned again at once; None for other plans."""
        is_alone = self.status is None and len(self.actions) == 1 and self.again_seconds == 0.0
        return self.actions[0] if is_alone and isinstance(self.actions[0], Hold) else None
