"""JobQueue: a queue of durable jobs in a journal, and the workers that run them."""

from __future__ import annotations

import enum
from dataclasses import field
from datetime import datetime
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen
from mailboat.model.jobs import MAX_BATCH, MAX_LIMIT, MAX_PATTERNS, MAX_RETRIES

from mailboat_operator.definition.conditions import ReclaimPolicy, Status
from mailboat_operator.definition.fields import Field, Rule, unchangeable
from mailboat_operator.definition.forms import (
    DAY,
    DAY_IN_SECONDS,
    DAY_OR_ZERO,
    HISTORY,
    IMAGE,
    JOB_PATTERN,
    PYTHON_MODULE,
    SCALE_DOWN,
)
from mailboat_operator.definition.kind import AGE, NAMES_AGENTS, READY, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference
from mailboat_operator.workload.template import (
    Mount,
    Resources,
    ServiceAccountName,
    Template,
    Variable,
    VariablesSource,
)


class QueueType(enum.StrEnum):
    """In which order jobs start."""

    PARALLEL = "parallel"
    ORDERED = "ordered"
    KEYED = "keyed"
    FAIR = "fair"


class Rate(Frozen):
    """A limit on starts."""

    starts: Annotated[int, Field("Starts within the period.", minimum=1, maximum=MAX_LIMIT)]
    period_seconds: Annotated[float, Field("Length of the period.", form=DAY)] = 1.0


class Merge(Frozen):
    """One call takes several queued jobs of one topic and key."""

    jobs: Annotated[int, Field("Maximum number of jobs per call.", minimum=2, maximum=MAX_BATCH)]
    within_seconds: Annotated[float, Field("Time that the first job of a key waits for others.", form=DAY_OR_ZERO)] = (
        2.0
    )


class JobRetries(Frozen):
    """Retries of jobs that fail, unless the job sets its own."""

    max: Annotated[int, Field("Retries before a job is given up.", minimum=0, maximum=MAX_RETRIES)] = 10
    unlimited: Annotated[bool, Field("Retry without a limit; `max` has no effect.")] = False
    first_pause_seconds: Annotated[
        float, Field("Pause after the first failure; it doubles with each retry.", form=DAY_OR_ZERO)
    ] = 2.0
    longest_pause_seconds: Annotated[float, Field("Maximum pause between retries.", form=DAY)] = 300.0


class JobHandler(Frozen):
    """A command that runs jobs: JSON on standard input, exit code 75 for a retry."""

    topics: Annotated[str, Field("Pattern of the topics that it takes, such as `purge.*`.", form=JOB_PATTERN)]
    command: Annotated[
        str,
        Field(
            "Command line, split into words and run without a shell. It reads the job as JSON; exit code 75 "
            "asks for a retry.",
            max_length=4096,
        ),
    ]


class Workers(Frozen):
    """Pods that run the jobs of the queue, as many as are due."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.min <= self.max",
            "min must not exceed max",
            ".min",
            lambda one: one.min <= one.max,
        ),
        Rule(
            "((has(self.handlers) && size(self.handlers) > 0) || (has(self.modules) && size(self.modules) > 0))"
            " != (has(self.command) && size(self.command) > 0)",
            "handlers or modules are required, or a command instead of both",
            ".handlers",
            lambda one: bool(one.handlers or one.modules) != bool(one.command),
        ),
    )

    token_secret_ref: Annotated[
        Reference,
        Field("Secret with `token`: a token of the Publisher (`spec.http.tokens`) with the verbs work and view."),
    ]
    image: Annotated[
        str | None, Field("Image with `mailboat` and the handlers. Default: the image of agents.", form=IMAGE)
    ] = None
    handlers: Annotated[
        tuple[JobHandler, ...], Field("Commands by topics; the first that matches runs.", max_items=20, key="topics")
    ] = ()
    modules: Annotated[
        tuple[str, ...],
        Field("Python modules of the image with job handlers.", form=PYTHON_MODULE, max_items=20, key=""),
    ] = ()
    command: Annotated[
        tuple[str, ...],
        Field(
            "Command instead of `mailboat worker run`, for a worker in another language. `MAILBOAT_URL` and "
            "`MAILBOAT_TOKEN` are set.",
            max_items=50,
        ),
    ] = ()
    min: Annotated[int, Field("Minimum number of workers; 0 needs KEDA.", minimum=0, maximum=1000)] = 0
    max: Annotated[
        int,
        Field(
            "Maximum number of workers; `maxParallel` ÷ `slots` limits it.",
            minimum=1,
            maximum=1000,
        ),
    ] = 1
    slots: Annotated[int, Field("Jobs that one worker runs in parallel.", minimum=1, maximum=1000)] = 4
    backlog_per_worker: Annotated[
        int,
        Field(
            "Due calls per worker: more start another one. With `rate`: up to `rate` ÷ `max`.",
            minimum=1,
            maximum=1_000_000,
        ),
    ] = 10
    scale_down_after_seconds: Annotated[
        float, Field("Time of lower demand until workers are removed.", form=SCALE_DOWN)
    ] = 60.0
    finish_seconds: Annotated[
        float,
        Field(
            "Time for a removed worker to finish its jobs.",
            form=DAY_IN_SECONDS,
        ),
    ] = 600.0
    env: Annotated[tuple[Variable, ...], Field("Environment variables of the workers.", max_items=50, key="name")] = ()
    env_from: Annotated[
        tuple[VariablesSource, ...], Field("Secrets and ConfigMaps whose entries are variables.", max_items=8)
    ] = ()
    resources: Annotated[Resources, Field("CPU and memory of a worker. Default: requests of 20m and 128Mi.")] = field(
        default_factory=Resources
    )
    volume_mounts: Annotated[tuple[Mount, ...], Field("Mounts of the template's volumes.", max_items=20)] = ()
    template: Annotated[Template, Field("Additional containers and volumes, and pod placement.")] = field(
        default_factory=Template
    )
    service_account_name: ServiceAccountName = None


class JobQueueSpec(Frozen):
    """Which jobs the queue takes, how they start, and where they run."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.merge) || self.type == 'parallel'",
            "merge requires type parallel: the other types have an order of single jobs",
            ".merge",
            lambda spec: spec.merge is None or spec.type is QueueType.PARALLEL,
        ),
        unchangeable("publisherRef", "its jobs are in the journal of that Publisher; create another JobQueue"),
    )

    publisher_ref: Annotated[
        Reference, Field("Publisher whose agent keeps the queue in its Journal, and serves the workers.")
    ]
    topics: Annotated[
        tuple[str, ...],
        Field(
            "Patterns of job topics. `*` matches one name, a last `**` one or more.",
            form=JOB_PATTERN,
            min_items=1,
            max_items=MAX_PATTERNS,
            key="",
        ),
    ]
    type: Annotated[
        QueueType,
        Field(
            "Order of the jobs. parallel: any. ordered: one at a time. keyed: one at a time per key. fair: "
            "keys take turns."
        ),
    ] = QueueType.PARALLEL
    max_parallel: Annotated[
        int | None, Field("Calls at the same time, over all workers. Default: no limit.", minimum=1, maximum=MAX_LIMIT)
    ] = None
    parallel_percent: Annotated[
        int | None,
        Field(
            "Calls at the same time, as a share of the slots of all workers. Default: no limit.", minimum=1, maximum=100
        ),
    ] = None
    rate: Annotated[Rate | None, Field("Maximum rate of starts, over all workers. Default: no limit.")] = None
    merge: Annotated[
        Merge | None, Field("Merge jobs of one topic and key into one call. Default: each job is a call.")
    ] = None
    retries: Annotated[JobRetries, Field("Retries of jobs that fail.")] = field(default_factory=JobRetries)
    history_seconds: Annotated[
        float, Field("Time that ended jobs stay in the list, for `jobs show` and `jobs retry`.", form=HISTORY)
    ] = 172_800.0
    workers: Annotated[
        Workers | None, Field("Workers that the operator runs for it. Default: none; other workers take its jobs.")
    ] = None
    reclaim_policy: Annotated[
        ReclaimPolicy,
        Field("Whether the queue and its queued jobs are kept or dropped when this object is deleted."),
    ] = ReclaimPolicy.RETAIN
    suspend: Annotated[bool, Field("Start no job of the queue; running ones go on.")] = False


class JobQueueStatus(Status):
    """Counts of the queue, and its workers."""

    queued: Annotated[
        int | None, Field("Jobs that wait, also those due later, rounded up to two digits.", minimum=0)
    ] = None
    due: Annotated[
        int | None, Field("Calls that order and rate let start now, rounded up to two digits.", minimum=0)
    ] = None
    active: Annotated[int | None, Field("Calls that run.", minimum=0)] = None
    oldest_at: Annotated[datetime | None, Field("When the job that waits longest became due.")] = None
    workers: Annotated[int | None, Field("Live workers that take a topic of the queue.", minimum=0)] = None
    given_up: Annotated[int | None, Field("Jobs in the history that used up their retries.", minimum=0)] = None
    applied: Annotated[str | None, Field("Digest of the settings that were applied last.", max_length=64)] = None
    suspended: Annotated[bool | None, Field("Whether this object suspended the queue.")] = None


class JobQueue(Frozen):
    """A JobQueue as it is stored."""

    metadata: Metadata
    spec: JobQueueSpec
    status: JobQueueStatus = field(default_factory=JobQueueStatus)


JOB_QUEUE = Kind(
    "JobQueue",
    "jobqueues",
    "mbq",
    JobQueue,
    (
        READY,
        REASON,
        PrinterColumn("Queued", ".status.queued", "integer", "Jobs that wait."),
        PrinterColumn("Active", ".status.active", "integer", "Calls that run."),
        PrinterColumn("Oldest", ".status.oldestAt", "date", "How long the oldest due job waits."),
        PrinterColumn("Workers", ".status.workers", "integer", "Live workers."),
        PrinterColumn("Given-Up", ".status.givenUp", "integer", "Jobs that used up their retries."),
        PrinterColumn("Due", ".status.due", "integer", "Calls that could start now.", is_wide=True),
        AGE,
    ),
    "A queue of durable jobs in a journal, and the workers that run them.",
    rules=(NAMES_AGENTS,),
)
