"""JobSchedule: a job that is added at due times."""

from __future__ import annotations

import enum
import re
from dataclasses import field
from datetime import datetime
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import Status
from mailboat_operator.definition.fields import Field, Rule, unchangeable
from mailboat_operator.definition.forms import CRON, DURATION_OF_SECONDS, JOB_TOPIC, LABEL, TIME_ZONE
from mailboat_operator.definition.kind import AGE, READY, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference

LARGEST_DATA = 16_384
_NAME = re.compile(LABEL.pattern)


class MissedPolicy(enum.StrEnum):
    """Treatment of due times without a live process."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


class JobScheduleSpec(Frozen):
    """Which job, and when."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.cron), has(self.every), has(self.at)].filter(one, one).size() == 1",
            "exactly one of cron, every and at is required",
            ".cron",
            lambda spec: [spec.cron, spec.every_seconds, spec.at].count(None) == 2,
        ),
        Rule(
            "has(self.cron) || self.timeZone == 'Etc/UTC'",
            "timeZone applies to cron only",
            ".timeZone",
            lambda spec: spec.cron is not None or spec.time_zone == "Etc/UTC",
        ),
        unchangeable("publisherRef", "the schedule is in the journal of that Publisher; create another JobSchedule"),
    )

    publisher_ref: Annotated[Reference, Field("Publisher whose agent keeps the schedule in its Journal.")]
    topic: Annotated[str, Field("Topic of the job: it chooses queue and handler.", form=JOB_TOPIC)]
    cron: Annotated[str | None, Field("Due times as a cron expression, such as `0 3 * * *`.", form=CRON)] = None
    time_zone: Annotated[str, Field("Time zone of cron.", form=TIME_ZONE)] = "Etc/UTC"
    every_seconds: Annotated[float | None, Field("Time between two due times.", form=DURATION_OF_SECONDS)] = None
    at: Annotated[datetime | None, Field("The only due time, such as `2027-01-31T08:00:00Z`.")] = None
    missed: Annotated[
        MissedPolicy,
        Field(
            "Due times that no agent or worker saw within 30 seconds. once: add one job for all. skip: none. all: "
            "one for each of the last 100."
        ),
    ] = MissedPolicy.ONCE
    key: Annotated[str | None, Field("Key of the job, for order, fairness and merging.", max_length=253)] = None
    data: Annotated[
        str | None, Field("Payload, usually JSON, of at most 16 KiB. Default: empty.", max_length=LARGEST_DATA)
    ] = None
    suspend: Annotated[bool, Field("Add no jobs. Due times in the meantime are skipped.")] = False


class JobScheduleStatus(Status):
    """Progress of the schedule."""

    next_at: Annotated[datetime | None, Field("Next due time.")] = None
    applied: Annotated[
        str | None, Field("Digest of the schedule that was applied last, with `at`; or `suspended`.", max_length=64)
    ] = None


class JobSchedule(Frozen):
    """A JobSchedule as it is stored."""

    metadata: Metadata
    spec: JobScheduleSpec
    status: JobScheduleStatus = field(default_factory=JobScheduleStatus)


JOB_SCHEDULE = Kind(
    "JobSchedule",
    "jobschedules",
    "mbjs",
    JobSchedule,
    (
        READY,
        REASON,
        PrinterColumn("Topic", ".spec.topic", text="Topic of the job."),
        PrinterColumn("Cron", ".spec.cron", text="Due times."),
        PrinterColumn("Every", ".spec.every", text="Time between two due times."),
        PrinterColumn("Next", ".status.nextAt", text="Next due time."),
        AGE,
    ),
    "A job that is added at due times.",
    rules=(
        Rule(
            f"self.metadata.name.matches('{LABEL.pattern}')",
            f"metadata.name names the schedule in the journal: {LABEL.meaning}",
            ".metadata.name",
            lambda one: _NAME.fullmatch(one.metadata.name) is not None,
        ),
    ),
)
