"""SubscriberPool: subscribers of one kind, or members that share the work of one, and what serves their content."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Annotated, ClassVar

from mailboat.config.document import Delivery, Expose, PiecesConfig, ReadinessConfig
from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import ReclaimPolicy, Status, Suspend
from mailboat_operator.definition.fields import Field, Renamed, Rule, unchangeable
from mailboat_operator.definition.forms import (
    AGENT_NAME,
    AGENT_SIZE,
    CANT_BE_CONTENT,
    CONTENT_PATH,
    DAY_IN_SECONDS,
    DRAIN,
    DURATION,
    DURATION_OF_SECONDS,
    DURATION_OR_ZERO,
    LABEL,
    LABEL_KEY,
    SCALE_DOWN,
    VARIABLE,
    can_be_content,
    can_be_content_in_cel,
)
from mailboat_operator.definition.kind import AGE, NAMES_AGENTS, READY, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference
from mailboat_operator.workload.package_limits import Limits
from mailboat_operator.workload.template import (
    AgentImageName,
    Container,
    Resources,
    ServiceAccountName,
    Template,
    Volume,
    VolumeClaim,
)

MAX_REPLICAS = 1000


def _has_one_place(name: str, target: Target) -> bool:
    store: Store | None = getattr(target, name)
    return store is None or (store.volume is None) != (store.claim is None)


class Store(Frozen):
    """A store of content: on a claim of each member, or on one that all members mount."""

    volume: Annotated[Volume | None, Field("Claim that is created for each member (delivery broadcast).")] = None
    claim: Annotated[
        VolumeClaim | None,
        Field("Existing claim that all members mount (delivery shared): its access mode must be ReadWriteMany."),
    ] = None


class Target(Frozen):
    """Where members import into: exactly one of these."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.generations), has(self.files), has(self.sqlite)].filter(one, one).size() == 1",
            "exactly one of generations, files and sqlite is required",
            is_kept=lambda one: [one.generations, one.files, one.sqlite].count(None) == 2,
        ),
        *(
            Rule(
                f"!has(self.{name}) || has(self.{name}.volume) != has(self.{name}.claim)",
                "exactly one of volume and claim is required",
                f".{name}",
                partial(_has_one_place, name),
            )
            for name in ("generations", "files", "sqlite")
        ),
    )

    generations: Annotated[
        Store | None,
        Field("Complete versions of a folder, with a link to the current one: readers never see a partial import."),
    ] = None
    files: Annotated[Store | None, Field("A folder, changed in place: readers may see part of an import.")] = None
    sqlite: Annotated[Store | None, Field("SQLite file, one transaction per batch.")] = None

    @property
    def store(self) -> Store:
        """The one that the target names."""
        chosen = self.generations or self.files or self.sqlite
        assert chosen is not None  # noqa: S101  # a rule of the record
        return chosen


class Retries(Frozen):
    """Retries of a package that can't be imported."""

    # Not the section's `max_retries`, where null means without limit: the API server replaces a null by the default.
    RENAMED: ClassVar = (Renamed("isEndless", "unlimited", default=False),)

    max: Annotated[
        int, Field("Retries before a package is given up and put into the error queue.", minimum=0, maximum=1_000_000)
    ] = 10
    unlimited: Annotated[bool, Field("Retry without a limit; `max` has no effect.")] = False
    first_pause_seconds: Annotated[
        float, Field("Pause after the first failure; it doubles with each retry.", form=DURATION_OR_ZERO)
    ] = 1.0
    longest_pause_seconds: Annotated[float, Field("Maximum pause between retries.", form=DURATION)] = 300.0


class Staging(Frozen):
    """Import a package only after another pool did: what it could not import never gets here."""

    # Not the section: it names a subscriber, and which member of a pool that is, is decided by `golden_member`.
    wait_for: Annotated[Reference, Field("SubscriberPool that imports first. It must be editable.")]
    timeout_seconds: Annotated[
        float,
        Field(
            "Time after which its announcement is read again. The wait itself has no limit.",
            form=DURATION_OF_SECONDS,
        ),
    ] = 60.0


class Seed(Frozen):
    """Begin near the journal's end. A member whose claim is empty restores the snapshot, if it fits the journal."""

    snapshot: Annotated[
        str,
        Field("Name of a snapshot in the Journal's bucket: `mailboat content snapshot … blob:NAME`.", form=AGENT_NAME),
    ]


class Readiness(ReadinessConfig):
    """When a member has caught up, and may be sent traffic."""

    FIELDS: ClassVar = {
        "max_latency_seconds": Field(
            "A member that imports a package younger than this counts as caught up.", form=DURATION
        ),
        "force_seconds": Field(
            "Time from the start after which the member is ready even if it lags. Default: never.", form=DURATION
        ),
        "idle_seconds": Field("A member without work for this time counts as caught up.", form=DURATION),
        "max_lag_seconds": Field(
            "Age of the next package beyond which a member that stands still is not ready, until half of it. "
            "Default: no limit.",
            form=DURATION_OF_SECONDS,
        ),
    }


class Pieces(PiecesConfig):
    """Limits for packages in pieces that members collect while reading; the rest is read again when needed."""

    FIELDS: ClassVar = {
        "max_packages": Field(maximum=1000),
        "max_bytes": Field("Maximum size of all of them, on the member's volume.", form=AGENT_SIZE, name="maxSize"),
        "expire_seconds": Field(form=DURATION_OF_SECONDS, name="expireAfter"),
    }


class ExternalMetric(Frozen):
    """A metric of the cluster's external metrics API."""

    name: Annotated[str, Field("Its name.", max_length=253)]
    target_average_value: Annotated[int, Field("Target value per member.", minimum=1, maximum=10**12)]
    match_labels: Annotated[
        Mapping[str, str], Field("Labels of the series.", form=LABEL_KEY, max_length=63, max_items=16)
    ] = field(default_factory=dict)


class Trigger(Frozen):
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


class Autoscaling(Frozen):
    """As many members as are needed. More of them lower the lag only with delivery shared."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas must not be more than maxReplicas",
            ".minReplicas",
            lambda one: one.min_replicas <= one.max_replicas,
        ),
        Rule(
            "[has(self.cpuPercent), has(self.requestsPerSecond), has(self.lagPerMember), has(self.external), "
            "has(self.trigger)].filter(one, one).size() == 1",
            "exactly one of cpuPercent, requestsPerSecond, lagPerMember, external and trigger is required",
            is_kept=lambda one: (
                [one.cpu_percent, one.requests_per_second, one.lag_per_member, one.external, one.trigger].count(None)
                == 4
            ),
        ),
    )

    max_replicas: Annotated[int, Field("Maximum number of members.", minimum=1, maximum=MAX_REPLICAS)]
    min_replicas: Annotated[int, Field("Minimum number of members.", minimum=1, maximum=MAX_REPLICAS)] = 1
    cpu_percent: Annotated[
        int | None,
        Field(
            "Target CPU use, in percent of the containers' requests; needs the metrics server.", minimum=1, maximum=1000
        ),
    ] = None
    requests_per_second: Annotated[
        int | None,
        Field(
            "Target for `http_requests_per_second` of each member's pod, from the custom metrics API.",
            minimum=1,
            maximum=1_000_000,
        ),
    ] = None
    lag_per_member: Annotated[
        int | None,
        Field(
            "Pending packages (with KEDA: records) per member; more start another one (delivery shared).",
            minimum=1,
            maximum=1_000_000,
        ),
    ] = None
    external: Annotated[ExternalMetric | None, Field("Another metric, of the external metrics API.")] = None
    trigger: Annotated[Trigger | None, Field("KEDA trigger; KEDA must be installed.")] = None
    scale_down_after_seconds: Annotated[
        float, Field("Time of lower demand until members are removed.", form=SCALE_DOWN)
    ] = 300.0


class VolumeRetention(Frozen):
    """Whether members' claims are kept or deleted."""

    when_deleted: Annotated[ReclaimPolicy, Field("When the pool is deleted.")] = ReclaimPolicy.RETAIN
    when_scaled: Annotated[
        ReclaimPolicy,
        Field("When the number of members shrinks. A member that returns continues at the position on its kept claim."),
    ] = ReclaimPolicy.RETAIN


class ServiceType(enum.StrEnum):
    """How the serving Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class Service(Frozen):
    """Service of the members that have caught up."""

    type: Annotated[ServiceType, Field("Type of the Service.")] = ServiceType.CLUSTER_IP
    port: Annotated[int, Field("Its port.", minimum=1, maximum=65_535)] = 80
    annotations: Annotated[
        Mapping[str, str], Field("Annotations, such as those of a cloud's load balancer.", form=LABEL_KEY, max_items=32)
    ] = field(default_factory=dict)


def _promises_cpu_in_cel(holder: str) -> str:
    """The rule below in CEL; a limit alone promises as much."""
    resources = f"{holder}.resources"
    parts = [f"(has({resources}.{part}) && has({resources}.{part}.cpu))" for part in ("requests", "limits")]
    return f"has({resources}) && ({' || '.join(parts)})"


def _promises_cpu(holder: Container | SubscriberPoolSpec) -> bool:
    amounts = (holder.resources.requests, holder.resources.limits)
    return any(amount is not None and amount.cpu is not None for amount in amounts)


class SubscriberPoolSpec(Frozen):
    """Members, the publishers that they follow, and the pods that serve the content."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.delivery == 'shared') == ((has(self.target.files) && has(self.target.files.claim)) || "
            "(has(self.target.sqlite) && has(self.target.sqlite.claim)))"
            " && !(has(self.target.generations) && has(self.target.generations.claim))",
            "delivery shared requires files or sqlite with a claim, which all members mount; broadcast requires a "
            "volume of each member",
            ".target",
            lambda spec: (
                (spec.target.store.claim is not None) == spec.is_shared
                and not (spec.is_shared and spec.target.generations is not None)
            ),
        ),
        Rule(
            "self.delivery != 'shared' || (!has(self.staging) && !has(self.seed))",
            "staging and seed require delivery broadcast: members of a shared pool wait for no other pool, and restore "
            "no snapshot",
            ".delivery",
            lambda spec: not spec.is_shared or (spec.staging is None and spec.seed is None),
        ),
        Rule(
            "self.delivery == 'shared' || !has(self.autoscaling) || !has(self.autoscaling.lagPerMember)",
            "lagPerMember requires delivery shared: with broadcast each new member adds its own backlog",
            ".autoscaling.lagPerMember",
            lambda spec: spec.is_shared or spec.autoscaling is None or spec.autoscaling.lag_per_member is None,
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
            "cpuPercent requires resources.requests.cpu of the agent and of each container of the template",
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
        unchangeable("delivery", "the content of members can't be converted; create another SubscriberPool"),
        Rule(
            " && ".join(
                f"has(self.target.{kind}) == has(oldSelf.target.{kind})" for kind in ("generations", "files", "sqlite")
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
            "Content paths, each with everything below it. A package that would change other content goes to the "
            "error queue. Default: all paths.",
            form=CONTENT_PATH,
            key="",
        ),
    ] = ()
    replicas: Annotated[
        int, Field("Number of members; ignored with an autoscaler.", minimum=0, maximum=MAX_REPLICAS)
    ] = 1
    delivery: Annotated[
        Delivery,
        Field(
            "With broadcast, every member imports every package into its own target; with shared, they share one "
            "target, and one of them imports each package."
        ),
    ] = Delivery.BROADCAST
    slots: Annotated[
        int, Field("Packages that a member imports at the same time (delivery shared).", minimum=1, maximum=256)
    ] = 4
    finish_seconds: Annotated[
        float,
        Field(
            "Time in which a removed member finishes its packages (delivery shared). Then another member imports them.",
            form=DAY_IN_SECONDS,
        ),
    ] = 600.0
    retries: Annotated[Retries, Field("Retries of a package that can't be imported.")] = field(default_factory=Retries)
    editable: Annotated[
        bool, Field("Members accept commands (clear, remove) and confirm every package. A golden pool needs it.")
    ] = False
    staging: Annotated[Staging | None, Field("Wait for a golden pool. Default: no wait.")] = None
    expose: Annotated[
        Expose,
        Field(
            "When readers see imported content. build: a bulk build, and what is published meanwhile, becomes "
            "visible when its last package is imported."
        ),
    ] = Expose.PACKAGE
    readiness: Annotated[Readiness, Field("When a member counts as ready to serve.")] = field(default_factory=Readiness)
    template: Annotated[
        Template, Field("Additional containers, with the content in `/content`, and pod placement.")
    ] = field(default_factory=Template)
    service: Annotated[Service, Field("Service of the members that have caught up.")] = field(default_factory=Service)
    resources: Annotated[Resources, Field("CPU and memory of each agent. Default: requests of 20m and 128Mi.")] = field(
        default_factory=Resources
    )
    autoscaling: Annotated[Autoscaling | None, Field("Autoscaling. Default: manual.")] = None
    seed: Annotated[
        Seed | None, Field("Start new members from a snapshot. Default: they read the journal from its beginning.")
    ] = None
    drain_seconds: Annotated[
        float,
        Field(
            "Time from a pod's removal from the Service to the stop of the template's containers.",
            form=DRAIN,
        ),
    ] = 5.0
    limits: Annotated[Limits, Field("Limits of one package.")] = field(default_factory=Limits)
    pieces: Annotated[Pieces, Field("Limits for packages in pieces.")] = field(default_factory=Pieces)
    lagging_from: Annotated[
        int,
        Field(
            "Lag of a serving member, in packages, at which the condition Lagging becomes true.",
            minimum=1,
            maximum=10**9,
        ),
    ] = 100
    volume_retention: Annotated[VolumeRetention, Field("Whether members' claims are kept or deleted.")] = field(
        default_factory=VolumeRetention
    )
    image: AgentImageName = None
    service_account_name: ServiceAccountName = None
    suspend: Suspend = False

    @property
    def is_shared(self) -> bool:
        """Whether the members share one target, and are one subscriber."""
        return self.delivery is Delivery.SHARED


class SubscriberPoolStatus(Status):
    """How the members are."""

    replicas: Annotated[int | None, Field("Current number of members.", minimum=0)] = None
    ready_replicas: Annotated[int | None, Field("Members that are ready.", minimum=0)] = None
    caught_up_replicas: Annotated[int | None, Field("Members that have caught up.", minimum=0)] = None
    selector: Annotated[str | None, Field("Label selector of the members' pods, for autoscalers.", max_length=4096)] = (
        None
    )
    max_lag: Annotated[
        int | None,
        Field(
            "Packages that the slowest member is behind, or that no member of a shared pool has imported, rounded up "
            "to two digits.",
            minimum=0,
        ),
    ] = None
    blocked: Annotated[int | None, Field("Members blocked by a package that they can't import.", minimum=0)] = None
    last_error: Annotated[str | None, Field("Cause of the first blocked member.")] = None
    most_replicas: Annotated[
        int | None, Field("Highest number of members so far; higher names belong to other objects.", minimum=0)
    ] = None


class SubscriberPool(Frozen):
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
        PrinterColumn("Desired", ".spec.replicas", "integer", "Desired number of members."),
        PrinterColumn("Caught Up", ".status.caughtUpReplicas", "integer", "Members that have caught up."),
        PrinterColumn("Max Lag", ".status.maxLag", "integer", "Packages that the slowest member is behind."),
        PrinterColumn("Blocked", ".status.blocked", "integer", "Members blocked by a package that they can't import."),
        PrinterColumn("Delivery", ".spec.delivery", "string", "Which members import a package.", is_wide=True),
        AGE,
    ),
    "Subscribers that each receive everything, or share the work, and what serves their content.",
    is_scaled=True,
    rules=(NAMES_AGENTS, WAITS_FOR_ANOTHER),
)
