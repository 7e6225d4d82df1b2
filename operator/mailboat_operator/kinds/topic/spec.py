"""Topic: one topic of a journal. A Journal makes six; others can be declared, too."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import ReclaimPolicy, Status, Suspend
from mailboat_operator.definition.fields import Field, Rule, unchangeable
from mailboat_operator.definition.forms import RETENTION, SIZE, TOPIC_CONFIG_KEY, TOPIC_NAME
from mailboat_operator.definition.kind import AGE, READY, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference


class JournalRole(enum.StrEnum):
    """What a topic of a journal holds: the roles of packages (`TopicRole`), and jobs."""

    PACKAGE = "package"
    STATUS = "status"
    DISCOVERY = "discovery"
    COMMAND = "command"
    EVENT = "event"
    JOB = "job"


class TopicRetention(Frozen):
    """How long a topic keeps messages. What is absent stays as it is on the brokers."""

    time_seconds: Annotated[float | None, Field("Maximum age of messages.", form=RETENTION)] = None
    size_bytes: Annotated[int | None, Field("Maximum size; the oldest messages are removed.", form=SIZE)] = None


_RETENTION_KEYS = frozenset({"retention.ms", "retention.bytes"})


class TopicSpec(Frozen):
    """One topic."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.role) != has(self.topicName)",
            "exactly one of role and topicName is required",
            ".topicName",
            lambda spec: (spec.role is None) != (spec.topic_name is None),
        ),
        Rule(
            "!has(self.role) || self.partitions == 1",
            "partitions must be 1 with role: a journal has one order",
            ".partitions",
            lambda spec: spec.role is None or spec.partitions == 1,
        ),
        Rule(
            "!has(self.config) || !('retention.ms' in self.config || 'retention.bytes' in self.config)",
            "config can't contain retention.ms or retention.bytes; use retention",
            ".config",
            lambda spec: not _RETENTION_KEYS & spec.config.keys(),
        ),
        Rule(
            "!has(self.role) || !has(self.config) || !('cleanup.policy' in self.config)",
            "config can't contain cleanup.policy with role: compaction would remove records of the journal",
            ".config",
            lambda spec: spec.role is None or "cleanup.policy" not in spec.config,
        ),
        Rule(
            "!has(self.role) || self.role != 'job' || !has(self.retention) ||"
            " (!has(self.retention.time) && !has(self.retention.size))",
            "retention can't be set with role job: a queued job must not expire",
            ".retention",
            lambda spec: (
                spec.role is not JournalRole.JOB
                or (spec.retention.time_seconds is None and spec.retention.size_bytes is None)
            ),
        ),
        unchangeable("topicName", "create another Topic; the messages stay in the topic of the old name"),
        unchangeable("role", "create another Topic"),
        unchangeable("journalRef", "create another Topic"),
        Rule(
            "self.partitions >= oldSelf.partitions",
            "partitions can never be fewer than before: Kafka would lose messages",
            ".partitions",
        ),
    )

    journal_ref: Annotated[Reference, Field("Journal with the brokers of the topic.")]
    role: Annotated[
        JournalRole | None, Field("Role in the journal; the topic has the name that the Journal configures.")
    ] = None
    topic_name: Annotated[
        str | None, Field("Name of the topic on the brokers, for a topic without a role.", form=TOPIC_NAME)
    ] = None
    partitions: Annotated[int, Field("Partitions; more can be added later.", minimum=1, maximum=10_000)] = 1
    replicas: Annotated[
        int | None, Field("Replicas of each partition. Default: the brokers' setting.", minimum=1, maximum=15)
    ] = None
    retention: Annotated[TopicRetention, Field("How long messages are kept.")] = field(default_factory=TopicRetention)
    config: Annotated[
        Mapping[str, str],
        Field(
            "Other topic configuration, by Kafka's names; no other is reconciled.",
            form=TOPIC_CONFIG_KEY,
            max_items=50,
        ),
    ] = field(default_factory=dict)
    reclaim_policy: Annotated[
        ReclaimPolicy, Field("Whether the topic and its messages are kept or deleted when this object is deleted.")
    ] = ReclaimPolicy.RETAIN
    suspend: Suspend = False


class TopicStatus(Status):
    """What was found."""

    topic_name: Annotated[str | None, Field("Name of the topic on the brokers.")] = None
    topic_id: Annotated[str | None, Field("Topic id on the brokers; a new id means that the topic was recreated.")] = (
        None
    )
    partitions: Annotated[int | None, Field("Number of partitions.", minimum=0)] = None
    replicas: Annotated[int | None, Field("Replicas of each partition.", minimum=0)] = None
    missing_since: Annotated[datetime | None, Field("Since when the topic is not on the brokers.")] = None


class Topic(Frozen):
    """A Topic as it is stored."""

    metadata: Metadata
    spec: TopicSpec
    status: TopicStatus = field(default_factory=TopicStatus)


TOPIC = Kind(
    "Topic",
    "topics",
    "mbt",
    Topic,
    (
        READY,
        REASON,
        PrinterColumn("Topic", ".status.topicName", text="Name of the topic on the brokers."),
        PrinterColumn("Partitions", ".status.partitions", "integer", "Number of partitions."),
        PrinterColumn("Replicas", ".status.replicas", "integer", "Replicas of each partition."),
        AGE,
    ),
    "One topic of a journal.",
)
