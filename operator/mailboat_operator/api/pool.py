"""SubscriberPool: subscribers of one kind, each of which receives everything, and what serves their content."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from mailboat_operator.api.conditions import CONDITIONS, OBSERVED_GENERATION, SUSPEND, Condition, ReclaimPolicy
from mailboat_operator.api.fields import Field, Renamed, Rule, unchangeable
from mailboat_operator.api.forms import (
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
from mailboat_operator.api.kind import AGE, NAMES_AGENTS, READY, REASON, Column, Kind
from mailboat_operator.api.limits import Limits
from mailboat_operator.api.metadata import Metadata
from mailboat_operator.api.references import Reference
from mailboat_operator.api.workload import Container, Resources, Template, Volume

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
            "exactly one of generations, files and sqlite must be said",
            is_kept=lambda one: [one.generations, one.files, one.sqlite].count(None) == 2,
        ),
    )

    generations: Annotated[
        Store | None, Field("Whole versions of a folder, with a link to the current one: readers see no half of one.")
    ] = None
    files: Annotated[Store | None, Field("A folder, changed in place.")] = None
    sqlite: Annotated[Store | None, Field("A database file, one transaction a batch.")] = None

    @property
    def store(self) -> Store:
        """The one that is said."""
        chosen = self.generations or self.files or self.sqlite
        assert chosen is not None  # noqa: S101  # a rule of the record
        return chosen


@dataclass(frozen=True)
class Retries:
    """What happens to a package that can't be imported."""

    RENAMED: ClassVar = (Renamed("isEndless", "unlimited", default=False),)

    max: Annotated[int, Field("Attempts after the first before it is given up.", minimum=0, maximum=1_000_000)] = 10
    unlimited: Annotated[bool, Field("Retry without a limit; `max` has no effect.")] = False
    first_pause_seconds: Annotated[
        float, Field("Pause after the first failure; it doubles.", form=DURATION_OR_ZERO)
    ] = 1.0
    longest_pause_seconds: Annotated[float, Field("The longest pause between attempts.", form=DURATION)] = 300.0


@dataclass(frozen=True)
class Staging:
    """Import a package only after another pool did: what it could not import never gets here."""

    wait_for: Annotated[Reference, Field("The SubscriberPool that goes first. It must be editable.")]
    timeout_seconds: Annotated[
        float,
        Field(
            "One wait for its word on a package; then its announcement is looked up again.", form=DURATION_OF_SECONDS
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
        float, Field("A package this young when imported shows that it has caught up.", form=DURATION)
    ] = 120.0
    idle_seconds: Annotated[float, Field("No work for so long shows it too.", form=DURATION)] = 10.0
    force_seconds: Annotated[
        float | None,
        Field("Ready after so long even when it lags, rather than serve nothing. Default: never.", form=DURATION),
    ] = None
    max_lag_seconds: Annotated[
        float | None,
        Field(
            "Not ready any more when the oldest package not imported is this old. Default: never.",
            form=DURATION_OF_SECONDS,
        ),
    ] = None


@dataclass(frozen=True)
class Pieces:
    """How much of packages in chunks members collect while it goes by; the rest is read again when it is needed."""

    max_packages: Annotated[int, Field("Packages at once.", minimum=1, maximum=1000)] = 10
    max_size_bytes: Annotated[int, Field("All of them; a pod has 1Gi for temporary files.", form=SIZE)] = 512 * 1024**2
    expire_after_seconds: Annotated[
        float, Field("A package is dropped when no piece of it came for so long.", form=DURATION_OF_SECONDS)
    ] = 60.0


@dataclass(frozen=True)
class ExternalMetric:
    """A metric of the cluster's external metrics API."""

    name: Annotated[str, Field("Its name.", max_length=253)]
    target_average_value: Annotated[int, Field("What each member should have of it.", minimum=1, maximum=10**12)]
    match_labels: Annotated[
        Mapping[str, str], Field("Labels of the series.", form=LABEL_KEY, max_length=63, max_items=16)
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class Trigger:
    """A demand that KEDA measures, in KEDA's own words."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.type.matches('^(apache-)?kafka$')",
            "type can't be kafka: lag never calls for members, as each new one only adds its own backlog",
            ".type",
            lambda one: one.type not in {"kafka", "apache-kafka"},
        ),
    )

    type: Annotated[str, Field("Kind of the trigger, such as `prometheus` or `cron`.", form=LABEL)]
    metadata: Annotated[
        Mapping[str, str], Field("What KEDA has to know for it.", form=VARIABLE, max_length=1024, max_items=32)
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
            "exactly one of cpuPercent, requestsPerSecond, external and trigger must be said",
            is_kept=lambda one: [one.cpu_percent, one.requests_per_second, one.external, one.trigger].count(None) == 3,
        ),
    )

    max_replicas: Annotated[int, Field("The most members.", minimum=1, maximum=MAX_REPLICAS)]
    min_replicas: Annotated[int, Field("The fewest members.", minimum=1, maximum=MAX_REPLICAS)] = 1
    cpu_percent: Annotated[
        int | None, Field("CPU that members should use, of what they are promised.", minimum=1, maximum=1000)
    ] = None
    requests_per_second: Annotated[
        int | None, Field("Requests per second that each member should serve.", minimum=1, maximum=1_000_000)
    ] = None
    external: Annotated[ExternalMetric | None, Field("Another metric.")] = None
    trigger: Annotated[Trigger | None, Field("A trigger of KEDA's, which must be installed.")] = None
    scale_down_after_seconds: Annotated[
        float, Field("Demand must be lower for so long before members go.", form=SCALE_DOWN)
    ] = 300.0


@dataclass(frozen=True)
class VolumeRetention:
    """What becomes of members' claims."""

    when_deleted: Annotated[ReclaimPolicy, Field("When the pool is deleted.")] = ReclaimPolicy.RETAIN
    when_scaled: Annotated[ReclaimPolicy, Field("When there are fewer members; a kept one goes on where it stood.")] = (
        ReclaimPolicy.RETAIN
    )


class ServiceType(enum.StrEnum):
    """How the serving Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


@dataclass(frozen=True)
class Service:
    """The Service that leads to members which have caught up."""

    type: Annotated[ServiceType, Field("How it is reached.")] = ServiceType.CLUSTER_IP
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
            "delivery shared is not there yet: say broadcast, with which every member receives every package",
            ".delivery",
            lambda spec: spec.delivery is not Delivery.SHARED,
        ),
        Rule(
            "!has(self.seed) || !has(self.staging)",
            "seed and staging can't both be said: a snapshot may hold what the golden pool has not imported",
            ".seed",
            lambda spec: spec.seed is None or spec.staging is None,
        ),
        Rule(
            "self.expose != 'build' || has(self.target.generations)",
            "expose build takes a target generations: the others show every package when it is imported",
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
        unchangeable("journalRef", "positions belong to their journal; make another SubscriberPool"),
        Rule(
            " && ".join(
                f"has(self.target.{one}) == has(oldSelf.target.{one})" for one in ("generations", "files", "sqlite")
            ),
            "target can't be changed: what members hold can't be converted; make another SubscriberPool",
            ".target",
        ),
    )

    journal_ref: Annotated[Reference, Field("The Journal to read.")]
    target: Annotated[Target, Field("Where members import into.")]
    publishers: Annotated[
        tuple[str, ...], Field("The publishers that members follow; none named: all.", form=AGENT_NAME, key="")
    ] = ()
    roots: Annotated[
        tuple[str, ...],
        Field(
            "Content paths, each with all below it. A package that would change anything outside is refused as a whole "
            "and goes to the error queue. Default: all paths.",
            form=CONTENT_PATH,
            key="",
        ),
    ] = ()
    replicas: Annotated[
        int, Field("Members. An autoscaler, where there is one, decides instead.", minimum=0, maximum=MAX_REPLICAS)
    ] = 1
    delivery: Annotated[
        Delivery, Field("Who receives a package: every member; `shared` is for later, and refused.")
    ] = Delivery.BROADCAST
    retries: Annotated[Retries, Field("What happens to a package that can't be imported.")] = field(
        default_factory=Retries
    )
    editable: Annotated[bool, Field("Members take clear commands, and confirm every package.")] = False
    staging: Annotated[Staging | None, Field("Wait for another pool. Default: no wait.")] = None
    expose: Annotated[
        Expose,
        Field(
            "When readers see what was imported. build: a bulk build, and what was published while it came, as one "
            "when its last package is imported."
        ),
    ] = Expose.PACKAGE
    readiness: Annotated[Readiness, Field("When a member may be sent traffic.")] = field(default_factory=Readiness)
    template: Annotated[
        Template, Field("What serves the content, which it finds read-only in `/content`, and where pods may run.")
    ] = field(default_factory=Template)
    service: Annotated[Service, Field("The Service that leads to members which have caught up.")] = field(
        default_factory=Service
    )
    resources: Annotated[Resources, Field("CPU and memory of each agent. Default: requests of 20m and 128Mi.")] = field(
        default_factory=Resources
    )
    autoscaling: Annotated[Autoscaling | None, Field("Scale on demand. Default: by hand.")] = None
    seed: Annotated[Seed | None, Field("Where new members begin. Default: at the journal's beginning.")] = None
    drain_seconds: Annotated[
        float,
        Field(
            "Containers of the template are told to stop so long after a pod was taken out of the Service.", form=DRAIN
        ),
    ] = 5.0
    limits: Annotated[Limits, Field("What is taken of one package.")] = field(default_factory=Limits)
    pieces: Annotated[Pieces, Field("What is collected of packages in chunks.")] = field(default_factory=Pieces)
    lagging_from: Annotated[
        int,
        Field(
            "Packages that a member which serves may be behind; from there on the condition Lagging holds, until it is "
            "half of that.",
            minimum=1,
            maximum=10**9,
        ),
    ] = 100
    volume_retention: Annotated[VolumeRetention, Field("What becomes of members' claims.")] = field(
        default_factory=VolumeRetention
    )
    image: Annotated[
        str | None,
        Field("The image of its agent, of the operator's version. Default: the operator's setting.", form=IMAGE),
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
    replicas: Annotated[int | None, Field("Members that there are.", minimum=0)] = None
    ready_replicas: Annotated[int | None, Field("Members that may be sent traffic.", minimum=0)] = None
    caught_up_replicas: Annotated[int | None, Field("Members that have caught up.", minimum=0)] = None
    selector: Annotated[str | None, Field("Label selector of the members' pods, for autoscalers.", max_length=4096)] = (
        None
    )
    max_lag: Annotated[
        int | None, Field("Packages that the slowest member is behind, rounded up to two digits.", minimum=0)
    ] = None
    blocked: Annotated[int | None, Field("Members that stand at a package they can't import.", minimum=0)] = None
    last_error: Annotated[str | None, Field("What keeps the first of them.")] = None
    most_replicas: Annotated[
        int | None, Field("The most members that there ever were: names beyond are somebody else's.", minimum=0)
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
        Column("Desired", ".spec.replicas", "integer", "Members that there should be."),
        Column("Caught Up", ".status.caughtUpReplicas", "integer", "Members that have caught up."),
        Column("Max Lag", ".status.maxLag", "integer", "Packages that the slowest member is behind."),
        Column("Blocked", ".status.blocked", "integer", "Members that stand at a package they can't import."),
        AGE,
    ),
    "Subscribers that each receive everything, and what serves their content.",
    is_scaled=True,
    rules=(NAMES_AGENTS, WAITS_FOR_ANOTHER),
)
