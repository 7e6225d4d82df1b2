"""SubscriberPool: subscribers of one kind, each of which receives everything, and what serves their content."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from mailboat_operator.definition.conditions import CONDITIONS, OBSERVED_GENERATION, SUSPEND, Condition, ReclaimPolicy
from mailboat_operator.definition.fields import Field, Renamed, Rule, unchangeable
from mailboat_operator.definition.forms import (
    AGENT_NAME,
    CANT_BE_CONTENT,
    CONTENT_PATH,
    DRAIN,
    DURATION,
    DURATION_OF_SECONDS,
    DURATION_OR_ZERO,
    IMAGE,
    LABEL,
    LABEL_KEY,
    NAME,
    SCALE_DOWN,
    SIZE,
    VARIABLE,
    can_be_content,
    can_be_content_in_cel,
)
from mailboat_operator.definition.kind import AGE, NAMES_AGENTS, READY, REASON, Column, Kind
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.definition.references import Reference
from mailboat_operator.workload.limits import Limits
from mailboat_operator.workload.template import Container, Resources, Template, Volume

MAX_REPLICAS = 1000


class Delivery(enum.StrEnum):
    """Who of a pool receives a package."""

    BROADCAST = "broadcast"
    SHARED = "shared"


class Expose(enum.StrEnum):
    """When readers of a member's content see what was imported."""

    PACKAGE = "package"
    BUILD = "build"


@dataclass(frozen=True)
class Store:
    """A store of content on a claim of each member."""

    volume: Annotated[Volume, Field("The claim of each member.")]


@dataclass(frozen=True)
class Target:
    """Where members import into: exactly one of these."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.generations), has(self.files), has(self.sqlite)].filter(one, one).size() == 1",
            "exactly one of generations, files and sqlite is required",
            is_kept=lambda one: [one.generations, one.files, one.sqlite].count(None) == 2,
        ),
    )

    generations: Annotated[
        Store | None,
        Field("Complete versions of a folder, with a link to the current one: readers never see a partial import."),
    ] = None
    files: Annotated[Store | None, Field("A folder, changed in place.")] = None
    sqlite: Annotated[Store | None, Field("SQLite file, one transaction per batch.")] = None

    @property
    def store(self) -> Store:
        """The one that is said."""
        chosen = self.generations or self.files or self.sqlite
        assert chosen is not None  # noqa: S101  # a rule of the record
        return chosen


@dataclass(frozen=True)
class Retries:
    """Retries of a package that can't be imported."""

    RENAMED: ClassVar = (Renamed("isEndless", "unlimited", default=False),)

    max: Annotated[int, Field("Retries before a package is given up.", minimum=0, maximum=1_000_000)] = 10
    unlimited: Annotated[bool, Field("Retry without a limit; `max` has no effect.")] = False
    first_pause_seconds: Annotated[
        float, Field("Pause after the first failure; it doubles with each retry.", form=DURATION_OR_ZERO)
    ] = 1.0
    longest_pause_seconds: Annotated[float, Field("Maximum pause between retries.", form=DURATION)] = 300.0


@dataclass(frozen=True)
class Staging:
    """Import a package only after another pool did: what it could not import never gets here."""

    wait_for: Annotated[Reference, Field("SubscriberPool that imports first. It must be editable.")]
    timeout_seconds: Annotated[
        float,
        Field(
            "Time to wait for its confirmation of a package before its announcement is read again.",
            form=DURATION_OF_SECONDS,
        ),
    ] = 60.0


@dataclass(frozen=True)
class Seed:
    """Begin near the journal's end. A member whose claim is empty restores the snapshot, if it fits the journal."""

    snapshot: Annotated[
        str,
        Field("Name of a snapshot in the Journal's bucket: `mailboat content snapshot … blob:NAME`.", form=AGENT_NAME),
    ]


@dataclass(frozen=True)
class Readiness:
    """When a member has caught up, and may be sent traffic."""

    max_latency_seconds: Annotated[
        float, Field("Importing a package younger than this proves that the subscriber has caught up.", form=DURATION)
    ] = 120.0
    idle_seconds: Annotated[
        float, Field("Time without work that proves that the subscriber has caught up.", form=DURATION)
    ] = 10.0
    force_seconds: Annotated[
        float | None,
        Field("Time after which the subscriber is ready even if it lags. Default: never.", form=DURATION),
    ] = None
    max_lag_seconds: Annotated[
        float | None,
        Field(
            "Age of the oldest pending package beyond which the subscriber is not ready. Default: no limit.",
            form=DURATION_OF_SECONDS,
        ),
    ] = None


@dataclass(frozen=True)
class Pieces:
    """Limits for packages in chunks that members collect while reading; the rest is read again when needed."""

    max_packages: Annotated[int, Field("Maximum number of packages collected at once.", minimum=1, maximum=1000)] = 10
    max_size_bytes: Annotated[
        int, Field("Maximum size of all of them; a pod has 1Gi for temporary files.", form=SIZE)
    ] = 512 * 1024**2
    expire_after_seconds: Annotated[
        float, Field("Time without a new piece after which an incomplete package is dropped.", form=DURATION_OF_SECONDS)
    ] = 60.0


@dataclass(frozen=True)
class ExternalMetric:
    """A metric of the cluster's external metrics API."""

    name: Annotated[str, Field("Its name.", max_length=253)]
    target_average_value: Annotated[int, Field("Target value per member.", minimum=1, maximum=10**12)]
    match_labels: Annotated[
        Mapping[str, str], Field("Labels of the series.", form=LABEL_KEY, max_length=63, max_items=16)
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class Trigger:
    """A demand that KEDA measures, in KEDA's own words."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.type.matches('^(apache-)?kafka$')",
            "type can't be kafka: lag must not trigger scaling, as each new member only adds its own backlog",
            ".type",
            lambda one: one.type not in {"kafka", "apache-kafka"},
        ),
    )

    type: Annotated[str, Field("Kind of the trigger, such as `prometheus` or `cron`.", form=LABEL)]
    metadata: Annotated[
        Mapping[str, str],
        Field("Settings of the trigger, as KEDA defines them.", form=VARIABLE, max_length=1024, max_items=32),
    ] = field(default_factory=dict)
    authentication_ref: Annotated[
        Reference | None, Field("A TriggerAuthentication of the same namespace. Default: none is needed.")
    ] = None


@dataclass(frozen=True)
class Autoscaling:
    """As many members as are needed to serve. More of them never lower the lag: each has the whole backlog to do."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas must not be more than maxReplicas",
            ".minReplicas",
            lambda one: one.min_replicas <= one.max_replicas,
        ),
        Rule(
            "[has(self.cpuPercent), has(self.requestsPerSecond), has(self.external), has(self.trigger)]"
            ".filter(one, one).size() == 1",
            "exactly one of cpuPercent, requestsPerSecond, external and trigger is required",
            is_kept=lambda one: [one.cpu_percent, one.requests_per_second, one.external, one.trigger].count(None) == 3,
        ),
    )

    max_replicas: Annotated[int, Field("Maximum number of members.", minimum=1, maximum=MAX_REPLICAS)]
    min_replicas: Annotated[int, Field("Minimum number of members.", minimum=1, maximum=MAX_REPLICAS)] = 1
    cpu_percent: Annotated[int | None, Field("Target CPU use, in percent of the request.", minimum=1, maximum=1000)] = (
        None
    )
    requests_per_second: Annotated[
        int | None, Field("Target requests per second of each member.", minimum=1, maximum=1_000_000)
    ] = None
    external: Annotated[ExternalMetric | None, Field("Another metric.")] = None
    trigger: Annotated[Trigger | None, Field("KEDA trigger; KEDA must be installed.")] = None
    scale_down_after_seconds: Annotated[
        float, Field("Time of lower demand before members are removed.", form=SCALE_DOWN)
    ] = 300.0


@dataclass(frozen=True)
class VolumeRetention:
    """Whether members' claims are kept or deleted."""

    when_deleted: Annotated[ReclaimPolicy, Field("When the pool is deleted.")] = ReclaimPolicy.RETAIN
    when_scaled: Annotated[
        ReclaimPolicy, Field("When the number of members shrinks; a kept claim is used again at its position.")
    ] = ReclaimPolicy.RETAIN


class ServiceType(enum.StrEnum):
    """How the serving Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


@dataclass(frozen=True)
class Service:
    """Service of the members that have caught up."""

    type: Annotated[ServiceType, Field("Type of the Service.")] = ServiceType.CLUSTER_IP
    port: Annotated[int, Field("Its port.", minimum=1, maximum=65_535)] = 80
    annotations: Annotated[
        Mapping[str, str], Field("Annotations, such as those of a cloud's load balancer.", form=LABEL_KEY, max_items=32)
    ] = field(default_factory=dict)


def _promises_cpu_in_cel(holder: str) -> str:
    """The rule below in CEL; a limit alone promises as much."""
    resources = f"{holder}.resources"
    said = [f"(has({resources}.{part}) && has({resources}.{part}.cpu))" for part in ("requests", "limits")]
    return f"has({resources}) && ({' || '.join(said)})"


def _promises_cpu(holder: Container | SubscriberPoolSpec) -> bool:
    said = (holder.resources.requests, holder.resources.limits)
    return any(one is not None and one.cpu is not None for one in said)


@dataclass(frozen=True)
class SubscriberPoolSpec:
    """Who subscribes to what, and what serves it."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.delivery != 'shared'",
            "delivery shared is not implemented; use broadcast, with which every member receives every package",
            ".delivery",
            lambda spec: spec.delivery is not Delivery.SHARED,
        ),
        Rule(
            "!has(self.seed) || !has(self.staging)",
            "seed and staging are mutually exclusive: a snapshot may contain packages "
            "that the golden pool has not imported",
            ".seed",
            lambda spec: spec.seed is None or spec.staging is None,
        ),
        Rule(
            "self.expose != 'build' || has(self.target.generations)",
            "expose build requires the target generations: the others show every package when it is imported",
            ".expose",
            lambda spec: spec.expose is not Expose.BUILD or spec.target.generations is not None,
        ),
        Rule(
            f"!has(self.autoscaling) || !has(self.autoscaling.cpuPercent) || ({_promises_cpu_in_cel('self')} && "
            "(!has(self.template) || !has(self.template.spec) || !has(self.template.spec.containers) || "
            f"self.template.spec.containers.all(one, {_promises_cpu_in_cel('one')})))",
            "cpuPercent is of what containers are promised: say resources.requests.cpu of the agent, and of each "
            "container of the template",
            ".autoscaling.cpuPercent",
            lambda spec: (
                spec.autoscaling is None
                or spec.autoscaling.cpu_percent is None
                or all(map(_promises_cpu, (spec, *spec.template.spec.containers)))
            ),
        ),
        Rule(
            f"!has(self.roots) || self.roots.all(one, {can_be_content_in_cel('one')})",
            f"roots {CANT_BE_CONTENT}",
            ".roots",
            lambda spec: all(map(can_be_content, spec.roots)),
        ),
        unchangeable("journalRef", "positions belong to their journal; create another SubscriberPool"),
        Rule(
            " && ".join(
                f"has(self.target.{one}) == has(oldSelf.target.{one})" for one in ("generations", "files", "sqlite")
            ),
            "target can't be changed: the content of members can't be converted; create another SubscriberPool",
            ".target",
        ),
    )

    journal_ref: Annotated[Reference, Field("The Journal to read.")]
    target: Annotated[Target, Field("Target of the import.")]
    publishers: Annotated[tuple[str, ...], Field("Publishers to follow. Default: all.", form=AGENT_NAME, key="")] = ()
    roots: Annotated[
        tuple[str, ...],
        Field(
            "Content paths, each with all below it. A package that would change content outside is rejected as a whole "
            "and goes to the error queue. Default: all paths.",
            form=CONTENT_PATH,
            key="",
        ),
    ] = ()
    replicas: Annotated[
        int, Field("Number of members; ignored with an autoscaler.", minimum=0, maximum=MAX_REPLICAS)
    ] = 1
    delivery: Annotated[
        Delivery, Field("Delivery to every member (broadcast); `shared` is reserved, and rejected.")
    ] = Delivery.BROADCAST
    retries: Annotated[Retries, Field("Retries of a package that can't be imported.")] = field(default_factory=Retries)
    editable: Annotated[bool, Field("Members accept commands (clear, remove) and confirm every package.")] = False
    staging: Annotated[Staging | None, Field("Wait for a golden pool. Default: no wait.")] = None
    expose: Annotated[
        Expose,
        Field(
            "When readers see imported content. build: a bulk build, and what is published meanwhile, becomes visible "
            "when its last package is imported."
        ),
    ] = Expose.PACKAGE
    readiness: Annotated[Readiness, Field("When a member counts as ready to serve.")] = field(default_factory=Readiness)
    template: Annotated[
        Template, Field("Additional containers, which see the content read-only in `/content`; and pod placement.")
    ] = field(default_factory=Template)
    service: Annotated[Service, Field("Service of the members that have caught up.")] = field(default_factory=Service)
    resources: Annotated[Resources, Field("CPU and memory of each agent. Default: requests of 20m and 128Mi.")] = field(
        default_factory=Resources
    )
    autoscaling: Annotated[Autoscaling | None, Field("Autoscaling. Default: manual.")] = None
    seed: Annotated[Seed | None, Field("Start of new members. Default: the journal's beginning.")] = None
    drain_seconds: Annotated[
        float,
        Field("Delay between removing a pod from the Service and stopping the template's containers.", form=DRAIN),
    ] = 5.0
    limits: Annotated[Limits, Field("Limits of one package.")] = field(default_factory=Limits)
    pieces: Annotated[Pieces, Field("Limits for packages in chunks.")] = field(default_factory=Pieces)
    lagging_from: Annotated[
        int,
        Field(
            "Lag of a serving member at which the condition Lagging becomes true, until it is half of that.",
            minimum=1,
            maximum=10**9,
        ),
    ] = 100
    volume_retention: Annotated[VolumeRetention, Field("Whether members' claims are kept or deleted.")] = field(
        default_factory=VolumeRetention
    )
    image: Annotated[
        str | None,
        Field("Image of the agent, of the operator's version. Default: the operator's setting.", form=IMAGE),
    ] = None
    service_account_name: Annotated[
        str | None,
        Field(
            "Existing service account, for the cloud identity of the pods; no token of the Kubernetes API is mounted. "
            "Default: the namespace's default account.",
            form=NAME,
        ),
    ] = None
    suspend: Annotated[bool, SUSPEND] = False


@dataclass(frozen=True)
class SubscriberPoolStatus:
    """How the members are."""

    observed_generation: Annotated[int | None, OBSERVED_GENERATION] = None
    conditions: Annotated[tuple[Condition, ...], CONDITIONS] = ()
    replicas: Annotated[int | None, Field("Current number of members.", minimum=0)] = None
    ready_replicas: Annotated[int | None, Field("Members that are ready.", minimum=0)] = None
    caught_up_replicas: Annotated[int | None, Field("Members that have caught up.", minimum=0)] = None
    selector: Annotated[str | None, Field("Label selector of the members' pods, for autoscalers.", max_length=4096)] = (
        None
    )
    max_lag: Annotated[
        int | None, Field("Packages that the slowest member is behind, rounded up to two digits.", minimum=0)
    ] = None
    blocked: Annotated[int | None, Field("Members blocked by a package that they can't import.", minimum=0)] = None
    last_error: Annotated[str | None, Field("Cause of the first blocked member.")] = None
    most_replicas: Annotated[
        int | None, Field("Highest number of members so far; higher names belong to other objects.", minimum=0)
    ] = None


@dataclass(frozen=True)
class SubscriberPool:
    """A SubscriberPool as it is stored."""

    metadata: Metadata
    spec: SubscriberPoolSpec
    status: SubscriberPoolStatus = field(default_factory=SubscriberPoolStatus)


WAITS_FOR_ANOTHER = Rule(
    "!has(self.spec.staging) || self.spec.staging.waitFor.name != self.metadata.name",
    "staging.waitFor can't be the pool itself",
    ".spec.staging.waitFor.name",
    lambda one: one.spec.staging is None or one.spec.staging.wait_for.name != one.metadata.name,
)

POOL = Kind(
    "SubscriberPool",
    "subscriberpools",
    "mbpool",
    SubscriberPool,
    (
        READY,
        REASON,
        Column("Desired", ".spec.replicas", "integer", "Desired number of members."),
        Column("Caught Up", ".status.caughtUpReplicas", "integer", "Members that have caught up."),
        Column("Max Lag", ".status.maxLag", "integer", "Packages that the slowest member is behind."),
        Column("Blocked", ".status.blocked", "integer", "Members blocked by a package that they can't import."),
        AGE,
    ),
    "Subscribers that each receive everything, and what serves their content.",
    is_scaled=True,
    rules=(NAMES_AGENTS, WAITS_FOR_ANOTHER),
)
