"""Publisher: an agent that packages what changed and appends it to a journal."""

from __future__ import annotations

from dataclasses import field, replace
from datetime import datetime
from typing import Annotated, ClassVar, Final

from mailboat.config.document import PackageType, ThrottleConfig, Transfer, Verb
from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import ReclaimPolicy, Status, Suspend
from mailboat_operator.definition.fields import Field, Renamed, Rule, unchangeable
from mailboat_operator.definition.forms import (
    AGENT_NAME,
    CANT_BE_CONTENT,
    DURATION_OR_ZERO,
    NAME,
    PATH_PATTERN,
    can_be_content,
    can_be_content_in_cel,
)
from mailboat_operator.definition.kind import AGE, NAMES_AGENTS, READY, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference
from mailboat_operator.kinds.publisher.event_settings import Events
from mailboat_operator.workload.package_limits import Limits
from mailboat_operator.workload.template import (
    AgentImageName,
    Resources,
    ServiceAccountName,
    Template,
    Volume,
    VolumeClaim,
)

MOST_KNOWN_POOLS: Final = 100
"""Pools that a Publisher's status lists, as of the field."""
_STATE_BYTES = 1 << 30


class Source(Frozen):
    """Where content comes from."""

    volume_claim: Annotated[
        VolumeClaim, Field("A claim, mounted read-only: a folder, a FileVault checkout or a package in it.")
    ]


class Token(Frozen):
    """A bearer token of the HTTP API."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.name != 'operator'",
            "name operator is reserved for the operator's own token",
            ".name",
            lambda token: token.name != "operator",
        ),
        Rule(
            f"!has(self.paths) || self.paths.all(one, {can_be_content_in_cel('one')})",
            f"paths {CANT_BE_CONTENT}",
            ".paths",
            lambda token: all(can_be_content(path) for path in token.paths),
        ),
        Rule(
            "!has(self.paths) || self.paths.all(one, one == '/') || !has(self.verbs)"
            " || self.verbs.all(one, one == 'view' || one == 'distribute')",
            "paths limit the verbs view and distribute only; the others concern all paths",
            ".paths",
            lambda token: set(token.paths) <= {"/"} or set(token.verbs) <= {Verb.VIEW, Verb.DISTRIBUTE},
        ),
    )

    name: Annotated[
        str, Field("Name of the token's owner: the user of its requests, and the caller in the audit log.", form=NAME)
    ]
    secret_ref: Annotated[Reference, Field("Secret with `token`.")]
    verbs: Annotated[
        tuple[Verb, ...],
        Field(
            "Permitted operations. view: read. distribute: publish. clear: drop, redrive, suspend. submit: "
            "add jobs. work: run jobs. admin: all.",
            min_items=1,
            max_items=len(Verb),
            key="",
        ),
    ] = (Verb.VIEW,)
    paths: Annotated[
        tuple[str, ...],
        Field(
            "Path patterns that the token may distribute, each with everything below it. `*` matches any part "
            "of one name.",
            form=PATH_PATTERN,
            min_items=1,
            max_items=32,
            key="",
        ),
    ] = ("/",)


class Http(Frozen):
    """The HTTP API."""

    token_secret_ref: Annotated[
        Reference | None,
        Field("Secret with `token`: bearer token with all rights. Default: the operator creates one."),
    ] = None
    tokens: Annotated[tuple[Token, ...], Field("Tokens of other callers.", max_items=16, key="name")] = ()


class Throttle(ThrottleConfig):
    """Publishing slows down while a clearable subscriber lags: the longest delay is reached at twice the limit."""

    RENAMED: ClassVar = (Renamed("isOff", "enabled", default=False),)
    FIELDS: ClassVar = {
        "enabled": Field("Delay publish requests while subscribers lag; if false, the other fields have no effect."),
        "max_queue_entries": Field(
            "Packages in the longest queue of an editable subscriber at which delays begin.", maximum=10**9
        ),
        "max_delay_seconds": Field(form=DURATION_OR_ZERO),
    }

    enabled: bool = True

    @property
    def config(self) -> ThrottleConfig:
        """As the agent reads it."""
        return self if self.enabled else replace(self, max_queue_entries=None)


class PublisherSpec(Frozen):
    """What to publish, and how."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.filevaultName != '{PackageType.TREE}'",
            f"filevaultName can't be {PackageType.TREE}: subscribers would read the packages as of that format",
            ".filevaultName",
            lambda spec: spec.filevault_name != PackageType.TREE,
        ),
        unchangeable("journalRef", "a publisher's offsets belong to its journal; create another Publisher"),
    )

    journal_ref: Annotated[Reference, Field("The Journal to append to.")]
    source: Annotated[Source | None, Field("Source of Add requests. Default: none; they are rejected.")] = None
    package_type: Annotated[PackageType, Field("Format of the packages.")] = PackageType.TREE
    transfer: Annotated[
        Transfer,
        Field(
            "Transport of packages that are too large for one message. reference: blob store. chunks: pieces "
            "in the journal. auto: reference if the Journal has a bucket, else chunks. inline: rejected, and "
            "every binary travels in its package; for Sling subscribers."
        ),
    ] = Transfer.AUTO
    filevault_name: Annotated[
        str,
        Field(
            "Package type of `filevault` packages in messages; Sling subscribers accept only the name of their "
            "package builder.",
            form=AGENT_NAME,
        ),
    ] = "filevault"
    limits: Annotated[Limits, Field("Limits of one package.")] = field(default_factory=Limits)
    throttle: Annotated[Throttle, Field("Backpressure: delays publish requests.")] = field(default_factory=Throttle)
    events: Annotated[Events, Field("Events that are sent when all subscribers have a package.")] = field(
        default_factory=Events
    )
    http: Annotated[Http, Field("The HTTP API.")] = field(default_factory=Http)
    volume: Annotated[Volume, Field("Claim for the publisher's state.")] = field(
        default_factory=lambda: Volume(_STATE_BYTES)
    )
    volume_retention: Annotated[ReclaimPolicy, Field("Whether that claim is kept or deleted with the Publisher.")] = (
        ReclaimPolicy.RETAIN
    )
    resources: Annotated[Resources, Field("CPU and memory of the agent. Default: requests of 20m and 128Mi.")] = field(
        default_factory=Resources
    )
    template: Annotated[Template, Field("Additional containers, and pod placement.")] = field(default_factory=Template)
    image: AgentImageName = None
    service_account_name: ServiceAccountName = None
    suspend: Suspend = False


class KnownPool(Frozen):
    """A pool on the publisher's journal."""

    name: Annotated[str, Field("Name of the SubscriberPool.")]
    members: Annotated[int, Field("Highest number of members so far.", minimum=0)]
    shared: Annotated[bool, Field("Whether its members are one subscriber.")] = False


class PublisherStatus(Status):
    """How publishing goes."""

    next_offset: Annotated[int | None, Field("Offset of the next package.", minimum=0)] = None
    subscribers: Annotated[int | None, Field("Subscribers that follow it.", minimum=0)] = None
    max_lag: Annotated[
        int | None, Field("Packages that the slowest of them is behind, rounded up to two digits.", minimum=0)
    ] = None
    last_published_at: Annotated[datetime | None, Field("When the last package was appended.")] = None
    url: Annotated[str | None, Field("URL of its HTTP API, within the cluster.")] = None
    pools: Annotated[
        tuple[KnownPool, ...],
        Field(
            "Pools on its journal; a deleted pool stays listed until its members are deregistered.",
            max_items=MOST_KNOWN_POOLS,
            key="name",
        ),
    ] = ()


class Publisher(Frozen):
    """A Publisher as it is stored."""

    metadata: Metadata
    spec: PublisherSpec
    status: PublisherStatus = field(default_factory=PublisherStatus)


PUBLISHER = Kind(
    "Publisher",
    "publishers",
    "mbpub",
    Publisher,
    (
        READY,
        REASON,
        PrinterColumn("Next", ".status.nextOffset", "integer", "Offset of the next package."),
        PrinterColumn("Subscribers", ".status.subscribers", "integer", "Subscribers that follow it."),
        PrinterColumn("Max Lag", ".status.maxLag", "integer", "Packages that the slowest of them is behind."),
        PrinterColumn(
            "Last Published", ".status.lastPublishedAt", "date", "How long ago the last package was appended."
        ),
        AGE,
    ),
    "An agent that packages what changed and appends it to a journal.",
    rules=(NAMES_AGENTS,),
)
