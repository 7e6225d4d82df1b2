"""PackageBuild: a whole tree cut into packages by Spark, published in order; once, or by a timetable.

What is built, by whom and in which pieces never changes while it is on its way: an attempt goes on where the one before
it stopped, and could not if these differed. A build with a timetable makes one PackageBuild for each time.
"""

from __future__ import annotations

import enum
import re
from dataclasses import field, replace
from datetime import datetime
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen
from mailboat.model.requests import BULK_CONTENT_BYTES, BULK_NODES

from mailboat_operator.definition.conditions import Status
from mailboat_operator.definition.fields import Field, Rule, unchangeable
from mailboat_operator.definition.forms import (
    CANT_BE_CONTENT,
    CONTENT_PATH,
    CPU,
    CRON,
    DURATION,
    IMAGE,
    NAME,
    SIZE,
    TIME_ZONE,
    can_be_content,
    can_be_content_in_cel,
)
from mailboat_operator.definition.kind import AGE, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference
from mailboat_operator.kinds.publisher.spec import Source
from mailboat_operator.workload.placement import Placement
from mailboat_operator.workload.template import TemplateMetadata


class ConcurrencyPolicy(enum.StrEnum):
    """Concurrency policy: treatment of a scheduled time during an earlier run."""

    FORBID = "Forbid"
    REPLACE = "Replace"
    ALLOW = "Allow"


class Timetable(Frozen):
    """When to build, again and again."""

    cron: Annotated[str, Field("Cron expression, such as `30 2 * * MON-FRI`.", form=CRON)]
    time_zone: Annotated[str, Field("Time zone of the cron expression.", form=TIME_ZONE)] = "Etc/UTC"
    concurrency_policy: Annotated[
        ConcurrencyPolicy,
        Field(
            "What a scheduled time does during an earlier run. Forbid: wait for its end. Replace: end it. "
            "Allow: run in parallel."
        ),
    ] = ConcurrencyPolicy.FORBID
    starting_deadline_seconds: Annotated[
        float | None,
        Field(
            "Time after which a scheduled run that could not start counts as missed. Default: until the next one.",
            form=DURATION,
        ),
    ] = None
    successful_history_limit: Annotated[int, Field("Number of complete runs to keep.", minimum=0, maximum=100)] = 3
    failed_history_limit: Annotated[int, Field("Number of failed runs to keep.", minimum=0, maximum=100)] = 1


_ONCE = "the build has been requested; create another PackageBuild"
_MEBIBYTE = 1 << 20
_MAX_SECONDS = 2**31 - 1
_SMALLEST_MEMORY = Rule(
    "!has(self.memory) || quantity(self.memory).compareTo(quantity('512Mi')) >= 0",
    "memory must be at least 512Mi: Spark does not start with less",
    ".memory",
    lambda pod: pod.memory_bytes >= 512 * _MEBIBYTE,
)
_NAME = "^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$"
_SHORT_NAME = 40
"""With a timetable: each run appends its time."""


class SparkOperator(enum.StrEnum):
    """Whose SparkApplication a build becomes."""

    KUBEFLOW = "kubeflow"
    APACHE = "apache"


class BuildPhase(enum.StrEnum):
    """How far a build got."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    STARTING = "Starting"
    RUNNING = "Running"
    RETRYING = "Retrying"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"


def _unchangeable(name: str) -> Rule:
    """A field stays as it was, unless it is the pattern of runs to come."""
    rule = unchangeable(name, _ONCE)
    return replace(rule, expression=f"has(self.schedule) || ({rule.expression})")


class Budget(Frozen):
    """How large one package may become; a single larger node travels alone."""

    size_bytes: Annotated[int, Field("Bytes of properties and binaries per package.", form=SIZE)] = BULK_CONTENT_BYTES
    nodes: Annotated[int, Field("Nodes per package.", minimum=1, maximum=1_000_000)] = BULK_NODES


class Driver(Frozen):
    """The driver, which splits the tree and publishes."""

    RULES: ClassVar[tuple[Rule, ...]] = (_SMALLEST_MEMORY,)

    cores: Annotated[int, Field("Number of threads.", minimum=1, maximum=64)] = 1
    cpu_request: Annotated[str | None, Field("CPU request. Default: one for each core.", form=CPU)] = None
    memory_bytes: Annotated[int, Field("Memory of the Java process; Python's share comes on top.", form=SIZE)] = (
        1024 * _MEBIBYTE
    )


class Executors(Frozen):
    """The executors."""

    RULES: ClassVar[tuple[Rule, ...]] = (_SMALLEST_MEMORY,)

    instances: Annotated[int, Field("Number of executors.", minimum=1, maximum=1000)] = 2
    cores: Annotated[int, Field("Packages that each executor builds in parallel.", minimum=1, maximum=64)] = 1
    cpu_request: Annotated[str | None, Field("CPU request of each. Default: one for each core.", form=CPU)] = None
    memory_bytes: Annotated[int, Field("Memory of each Java process; Python's share comes on top.", form=SIZE)] = (
        1024 * _MEBIBYTE
    )


class BuildTemplate(Frozen):
    """What the pods of a build carry, run as, and where."""

    metadata: Annotated[TemplateMetadata, Field("Labels and annotations of the pods.")] = field(
        default_factory=TemplateMetadata
    )
    spec: Annotated[Placement, Field("Security context and placement of the pods.")] = field(default_factory=Placement)


class PackageBuildSpec(Frozen):
    """What to build, how, and when."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.roots.all(one, {can_be_content_in_cel('one')})",
            f"roots {CANT_BE_CONTENT}",
            ".roots",
            lambda spec: all(can_be_content(root) for root in spec.roots),
        ),
        Rule(
            "!has(self.schedule) || !has(self.ttlSecondsAfterFinished)",
            "ttlSecondsAfterFinished applies to builds without a schedule; set the history limits instead",
            ".ttlSecondsAfterFinished",
            lambda spec: spec.schedule is None or spec.ttl_seconds_after_finished is None,
        ),
        Rule(
            "has(self.schedule) == has(oldSelf.schedule)",
            "schedule can't be added or removed; create another PackageBuild",
            ".schedule",
        ),
        *map(_unchangeable, ("publisherRef", "roots", "source", "budget", "engine")),
    )

    publisher_ref: Annotated[Reference, Field("Publisher that publishes the build to its Journal.")]
    roots: Annotated[
        tuple[str, ...],
        Field("Content paths to build, each with everything below it.", form=CONTENT_PATH, min_items=1, key=""),
    ]
    source: Annotated[
        Source | None,
        Field("Source volume, read by all pods: a claim that many nodes can mount. Default: the Publisher's."),
    ] = None
    budget: Annotated[Budget, Field("Maximum size of one package.")] = field(default_factory=Budget)
    executors: Annotated[Executors, Field("The executors.")] = field(default_factory=Executors)
    driver: Annotated[Driver, Field("The driver, which splits the tree and publishes.")] = field(default_factory=Driver)
    engine: Annotated[SparkOperator, Field("Spark operator that runs it.")] = SparkOperator.KUBEFLOW
    image: Annotated[str | None, Field("Image of all its pods. Default: the operator's setting.", form=IMAGE)] = None
    image_pull_secrets: Annotated[
        tuple[Reference, ...], Field("Image pull secrets, in addition to the template's.", max_items=8)
    ] = ()
    template: Annotated[BuildTemplate, Field("Labels, security context and placement of driver and executors.")] = (
        field(default_factory=BuildTemplate)
    )
    service_account_name: Annotated[
        str, Field("Service account with which the driver creates executors.", form=NAME)
    ] = "mailboat-spark"
    schedule: Annotated[Timetable | None, Field("Schedule of repeated builds. Default: one build, now.")] = None
    suspend: Annotated[
        bool,
        Field("Remove the pods and keep built packages. With a schedule: begin no new build."),
    ] = False
    retries: Annotated[
        int,
        Field(
            "Attempts after the first; each resumes the previous one.",
            minimum=0,
            maximum=20,
        ),
    ] = 3
    allow_unreadable: Annotated[
        bool,
        Field(
            "Complete a build without its unreadable paths, which the driver's log names. Default: fail once the "
            "others are published."
        ),
    ] = False
    start_deadline_seconds: Annotated[
        float,
        Field("Time limit for the pods of an attempt to start.", form=DURATION),
    ] = 600.0
    active_deadline_seconds: Annotated[
        int | None,
        Field("Time limit of all attempts together. Default: no limit.", minimum=1, maximum=_MAX_SECONDS),
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None,
        Field("Time after the end at which the object is deleted. Default: never.", minimum=0, maximum=_MAX_SECONDS),
    ] = None


class PackageBuildStatus(Status):
    """Progress of the build."""

    phase: Annotated[BuildPhase | None, Field("Progress of the build.")] = None
    build_id: Annotated[str | None, Field("Names the build in the journal; the same for all attempts.")] = None
    packages_done: Annotated[int | None, Field("Published packages.", minimum=0)] = None
    packages_total: Annotated[int | None, Field("Number of packages.", minimum=0)] = None
    packages: Annotated[str | None, Field("Published packages of all: `12/40`.", max_length=32)] = None
    attempt: Annotated[int | None, Field("Number of the current attempt, from 1.", minimum=1)] = None
    retry_at: Annotated[datetime | None, Field("Time of the next attempt.")] = None
    application: Annotated[str | None, Field("Name of the current SparkApplication.")] = None
    started_at: Annotated[datetime | None, Field("Start of the first attempt.")] = None
    finished_at: Annotated[datetime | None, Field("Time when it completed or failed permanently.")] = None
    last_schedule_at: Annotated[
        datetime | None, Field("Last scheduled time that started a run.", name="lastScheduleTime")
    ] = None
    last_missed_at: Annotated[datetime | None, Field("Last scheduled time that was missed.", name="lastMissedTime")] = (
        None
    )
    next_schedule_at: Annotated[datetime | None, Field("Next scheduled time.", name="nextScheduleTime")] = None
    active: Annotated[tuple[str, ...], Field("PackageBuilds of the schedule that are running.")] = ()


class PackageBuild(Frozen):
    """A PackageBuild as it is stored."""

    metadata: Metadata
    spec: PackageBuildSpec
    status: PackageBuildStatus = field(default_factory=PackageBuildStatus)


PACKAGE_BUILD = Kind(
    "PackageBuild",
    "packagebuilds",
    "mbbuild",
    PackageBuild,
    (
        PrinterColumn("Phase", ".status.phase", text="Progress of the build."),
        REASON,
        PrinterColumn("Packages", ".status.packages", text="Published packages of all."),
        PrinterColumn("Attempt", ".status.attempt", "integer", "The current attempt."),
        PrinterColumn("Schedule", ".spec.schedule.cron", text="When it is built again.", is_wide=True),
        PrinterColumn("Next", ".status.nextScheduleTime", text="Next scheduled time.", is_wide=True),
        AGE,
    ),
    "A whole tree, published as many packages that Spark builds.",
    rules=(
        Rule(
            f"self.metadata.name.matches('{_NAME}')",
            "metadata.name names pods and Services: at most 50 lower case letters, digits or '-', a letter first",
            ".metadata.name",
            lambda one: re.fullmatch(_NAME, one.metadata.name) is not None,
        ),
        Rule(
            f"!has(self.spec.schedule) || self.metadata.name.size() <= {_SHORT_NAME}",
            f"metadata.name has at most {_SHORT_NAME} characters with a schedule: each run appends its time",
            ".metadata.name",
            lambda one: one.spec.schedule is None or len(one.metadata.name) <= _SHORT_NAME,
        ),
    ),
)
