"""The records of the configuration: every setting with its default, its range and its explanation."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Annotated

from mailboat.config.receivers import EventsConfig
from mailboat.config.section_keys import GIBIBYTE, KIBIBYTE, MEBIBYTE, Section, Setting
from mailboat.config.storage import BlobsConfig, JournalConfig, RetentionConfig, Secret


class PackageType(enum.StrEnum):
    """The package formats that a publisher can write."""

    TREE = "tree"
    FILEVAULT = "filevault"


class Transfer(enum.StrEnum):
    """How a package travels that is too large for one message."""

    REFERENCE = "reference"
    CHUNKS = "chunks"
    AUTO = "auto"
    INLINE = "inline"


class Undecodable(enum.StrEnum):
    """Treatment of a record on the package topic that can't be decoded as a package message."""

    GIVE_UP = "give-up"
    STOP = "stop"


class Expose(enum.StrEnum):
    """When readers of a subscriber's content see what was imported."""

    PACKAGE = "package"
    BUILD = "build"


class Delivery(enum.StrEnum):
    """Which of the processes that run a subscriber, or of the members of a pool, import a package."""

    BROADCAST = "broadcast"
    """All: each has a target of its own."""

    SHARED = "shared"
    """One: they have one target."""


class Verb(enum.StrEnum):
    """What a token may do."""

    VIEW = "view"
    DISTRIBUTE = "distribute"
    CLEAR = "clear"
    SUBMIT = "submit"
    WORK = "work"
    ADMIN = "admin"


class LogFormat(enum.StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


class LimitsConfig(Section):
    """Limits of packages and files. Input beyond a limit is refused before anything is written."""

    max_entries: Annotated[
        int, Setting("Maximum number of nodes per package, and of entries per FileVault zip.", minimum=1)
    ] = 1_000_000
    max_entry_bytes: Annotated[int, Setting("Maximum unpacked size of one binary or archive entry.", minimum=1)] = (
        16 * GIBIBYTE
    )
    max_total_bytes: Annotated[int, Setting("Maximum unpacked size of a package.", minimum=1)] = 64 * GIBIBYTE
    max_ratio: Annotated[float, Setting("Maximum ratio of unpacked to packed size.", minimum=1)] = 200.0
    max_xml_depth: Annotated[
        int, Setting("Maximum nesting of elements in a DocView document.", minimum=1, maximum=1000)
    ] = 110
    refuse_collisions: Annotated[
        bool, Setting("Refuse two names in one folder that differ only in case or Unicode form.")
    ] = False


class ThrottleConfig(Section):
    """Publishing slows down while a clearable subscriber lags: no delay up to the limit, the longest from twice on."""

    max_queue_entries: Annotated[
        int | None,
        Setting(
            "Packages in the longest queue of an editable subscriber at which delays begin. null: never.", minimum=1
        ),
    ] = 1000
    max_delay_seconds: Annotated[
        float, Setting("Maximum delay of one request, reached at twice that backlog.", minimum=0)
    ] = 20.0


class NamespaceConfig(Section):
    """The namespace of one prefix."""

    prefix: Annotated[str, Setting("Prefix, as used in names of nodes and properties.")]
    uri: Annotated[str, Setting("Namespace URI of the prefix.")]


class PublisherConfig(Section):
    """Defaults of every publisher, and of `publish`, `delete`, `invalidate` and `ping`."""

    name: Annotated[str, Setting("Publisher name if `--publisher` is not given.")] = "author"
    package_type: Annotated[PackageType, Setting("Package format.")] = PackageType.TREE
    filevault_name: Annotated[
        str,
        Setting(
            "Package type of `filevault` packages in messages; Sling subscribers accept only the name of their "
            "package builder."
        ),
    ] = "filevault"
    namespaces: Annotated[
        tuple[NamespaceConfig, ...],
        Setting("Namespaces of prefixes, in addition to those of JCR, Sling, AEM and the source."),
    ] = ()
    transfer: Annotated[
        Transfer,
        Setting(
            "Transport of packages that are too large for one message. reference: blob store. chunks: pieces in "
            "the journal. auto: reference if a bucket is configured, else chunks on Kafka. inline: rejected, and "
            "every binary travels in its package; for Sling subscribers."
        ),
    ] = Transfer.REFERENCE
    inline_package_bytes: Annotated[
        int, Setting("Maximum size of a package that travels in the message itself.", minimum=0, maximum=GIBIBYTE)
    ] = 800 * KIBIBYTE
    piece_bytes: Annotated[
        int,
        Setting(
            "Size of one piece of a package in pieces; brokers must accept slightly larger messages.",
            minimum=1024,
            maximum=GIBIBYTE,
        ),
    ] = 800 * KIBIBYTE
    inline_binary_bytes: Annotated[
        int,
        Setting(
            "Maximum size of a binary that travels in the package; larger ones go through the blob store.", minimum=0
        ),
    ] = 64 * KIBIBYTE
    changed_package_bytes: Annotated[
        int,
        Setting(
            "Approximate maximum of content per package of `publish --changed`.",
            minimum=1,
        ),
    ] = 4 * MEBIBYTE
    queue_cache_bytes: Annotated[
        int,
        Setting(
            "Memory for the view of the queues: positions of packages (at most half; 2.25 bytes each) and cached "
            "messages. Beyond it, lengths of queues are upper bounds.",
            minimum=MEBIBYTE,
        ),
    ] = 64 * MEBIBYTE
    throttle: Annotated[ThrottleConfig, Setting("Backpressure: delays publish requests.")] = field(
        default_factory=ThrottleConfig
    )

    @property
    def package_type_name(self) -> str:
        """What messages call the package format."""
        return self.filevault_name if self.package_type is PackageType.FILEVAULT else self.package_type


class StagingConfig(Section):
    """Import a package only after a golden subscriber did: what it could not import never gets here."""

    golden: Annotated[str, Setting("Name of the golden subscriber, which imports first. It must be editable.")]
    timeout_seconds: Annotated[
        float,
        Setting(
            "Time after which its announcement is read again. The wait itself has no limit.",
            minimum=0.1,
        ),
    ] = 60.0


class ReadinessConfig(Section):
    """When a subscriber counts as ready to serve."""

    max_latency_seconds: Annotated[
        float, Setting("A subscriber that imports a package younger than this counts as caught up.", minimum=0)
    ] = 120.0
    force_seconds: Annotated[
        float | None,
        Setting("Time from the start after which the subscriber is ready even if it lags. null: never.", minimum=0),
    ] = None
    idle_seconds: Annotated[
        float, Setting("A subscriber without work for this time counts as caught up.", minimum=0)
    ] = 10.0
    max_lag_seconds: Annotated[
        float | None,
        Setting(
            "Age of the next package beyond which a subscriber that stands still is not ready, until half of it. "
            "null: no limit.",
            minimum=1,
        ),
    ] = None


class PiecesConfig(Section):
    """Limits of pieces that are collected on disk while reading; the rest is read again when needed."""

    max_packages: Annotated[
        int,
        Setting(
            "Maximum number of packages collected at once. Beyond it the oldest pieces are dropped, and read again "
            "when their message arrives.",
            minimum=1,
        ),
    ] = 10
    max_bytes: Annotated[int, Setting("Maximum bytes of all of them, on the disk of the home.", minimum=0)] = (
        512 * MEBIBYTE
    )
    expire_seconds: Annotated[
        float,
        Setting("Time without a new piece after which an incomplete package is dropped.", minimum=1),
    ] = 60.0


class HooksConfig(Section):
    """Commands of the user around an import. Each gets the package as one JSON object on its standard input."""

    before: Annotated[
        tuple[str, ...], Setting("Command run before a package is imported. If it fails, the package fails.")
    ] = ()
    after: Annotated[
        tuple[str, ...],
        Setting("Command run after the commit. A failed call is retried, then set aside until `errors redrive`."),
    ] = ()
    invalidate: Annotated[
        tuple[str, ...],
        Setting("Command run for INVALIDATE, for example a cache purge. If it fails, the package fails."),
    ] = ()
    timeout_seconds: Annotated[float, Setting("Time limit of one command.", minimum=0.1)] = 60.0


class SubscriberConfig(Section):
    """Defaults of every subscriber, and of `subscribe`."""

    max_retries: Annotated[
        int | None,
        Setting(
            "Retries before a package is given up and put into the error queue. null: retry without limit.", minimum=0
        ),
    ] = 10
    first_pause_seconds: Annotated[
        float, Setting("Pause after the first failure; it doubles with each retry.", minimum=0)
    ] = 1.0
    longest_pause_seconds: Annotated[float, Setting("Maximum pause between retries.", minimum=0)] = 300.0
    max_batch_records: Annotated[int, Setting("Maximum number of packages imported in one transaction.", minimum=1)] = (
        100
    )
    max_batch_bytes: Annotated[int, Setting("Maximum bytes of messages read at once.", minimum=1)] = 4 * MEBIBYTE
    package_timeout_seconds: Annotated[
        float | None,
        Setting(
            "Time limit for importing one package; then the attempt counts as failed (ImportTimeout). null: no limit.",
            minimum=0,
        ),
    ] = 3600.0
    shutdown_seconds: Annotated[
        float,
        Setting(
            "Time to finish the current package on SIGTERM. After four fifths of it the package is rolled back.",
            minimum=0,
        ),
    ] = 25.0
    undecodable: Annotated[
        Undecodable,
        Setting(
            "Reaction to a record on the package topic that is not a package message. give-up: put it into "
            "the error queue. stop: stop before it, as MessageUndecodable."
        ),
    ] = Undecodable.GIVE_UP
    expose: Annotated[
        Expose,
        Setting(
            "When readers see imported content. build: a bulk build, and what is published meanwhile, becomes "
            "visible when its last package is imported; requires a `generations:DIR` target."
        ),
    ] = Expose.PACKAGE
    expose_seconds: Annotated[
        float | None,
        Setting(
            "Time without a package of a build after which it is shown incomplete. null: no limit.",
            minimum=0,
        ),
    ] = 3600.0
    filevault_names: Annotated[
        tuple[str, ...],
        Setting("Package types that mean the format `filevault`: the names of Sling's package builders."),
    ] = ("journal_filevault", "journal")
    # the maximum is below what `queues/announced.py` takes for alive: a longer silence is that of a dead subscriber
    announce_seconds: Annotated[
        float, Setting("Interval of announcements without changes.", minimum=0.1, maximum=20)
    ] = 10.0
    pieces: Annotated[PiecesConfig, Setting("Limits for packages in pieces.")] = field(default_factory=PiecesConfig)
    readiness: Annotated[ReadinessConfig, Setting("When the subscriber counts as ready to serve.")] = field(
        default_factory=ReadinessConfig
    )


class PublisherAgentConfig(Section):
    """A publisher that `agent run` runs. Default of each key: the section `publisher`."""

    name: Annotated[str, Setting("Name of the publisher.")]
    source: Annotated[
        str | None,
        Setting("Source of ADD requests: a folder, a checkout, a zip, `sqlite:FILE`. null: ADD is rejected."),
    ] = None


class SubscriberAgentConfig(Section):
    """A subscriber that `agent run` runs. Default of each key: the section `subscriber`."""

    name: Annotated[str, Setting("Name of the subscriber.")]
    target: Annotated[str, Setting("Target of the import: `files:DIR`, `generations:DIR` or `sqlite:FILE`.")]
    follow: Annotated[tuple[str, ...], Setting("Publishers to follow. Default: all.")] = ()
    roots: Annotated[
        tuple[str, ...],
        Setting(
            "Content paths, each with everything below it. A package that would change other content goes to the "
            "error queue. Default: all paths."
        ),
    ] = ()
    editable: Annotated[
        bool,
        Setting(
            "Accepts commands (clear, remove) and confirms every package with a status. Golden subscribers need it."
        ),
    ] = False
    durable: Annotated[
        bool, Setting("With retention by consumption: the journal keeps packages for it while it is away.")
    ] = True
    staging: Annotated[StagingConfig | None, Setting("Wait for a golden subscriber. null: no wait.")] = None
    expose: Annotated[Expose | None, Setting("When readers see imported content. null: as `subscriber.expose`.")] = None
    hooks: Annotated[HooksConfig, Setting("Commands around an import.")] = field(default_factory=HooksConfig)
    delivery: Annotated[
        Delivery,
        Setting(
            "broadcast: this process imports every package. shared: it is a member of a pool; processes with one "
            "`name` and one target share the packages."
        ),
    ] = Delivery.BROADCAST
    slots: Annotated[int, Setting("Packages imported at once, with `delivery: shared`.", minimum=1, maximum=256)] = 4


class AgentsConfig(Section):
    """The agents that `mailboat agent run` runs in one process."""

    publishers: Annotated[tuple[PublisherAgentConfig, ...], Setting("Publishers.")] = ()
    subscribers: Annotated[tuple[SubscriberAgentConfig, ...], Setting("Subscribers.")] = ()


class TokenConfig(Section):
    """A bearer token of the HTTP API."""

    name: Annotated[str, Setting("Name of the token's owner, as written to the audit log.")]
    token: Annotated[Secret, Setting("The token.")]
    verbs: Annotated[
        tuple[Verb, ...],
        Setting(
            "Permitted operations. view: read. distribute: publish. clear: drop, redrive, suspend. submit: "
            "add jobs. work: run jobs. admin: all."
        ),
    ] = (Verb.VIEW,)
    paths: Annotated[
        tuple[str, ...],
        Setting(
            "Path patterns that the token may distribute, each with everything below it. `*` matches any part "
            "of one name."
        ),
    ] = ("/",)


class HttpConfig(Section):
    """The HTTP API of an agent."""

    host: Annotated[str, Setting("Address to listen on. Without tokens it must be a loopback address.")] = "127.0.0.1"
    port: Annotated[int, Setting("Port to listen on. 0: any free port.", minimum=0, maximum=65_535)] = 8080
    tokens: Annotated[
        tuple[TokenConfig, ...],
        Setting("Bearer tokens and their rights. Empty: every process of this machine has all rights."),
    ] = ()
    open_metrics: Annotated[
        bool, Setting("Serve `/metrics`, with names of publishers and subscribers, without a token.")
    ] = False
    max_body_bytes: Annotated[int, Setting("Maximum size of a request body; a larger one gets 413.", minimum=1)] = (
        MEBIBYTE
    )
    requests_per_second: Annotated[
        float,
        Setting(
            "Sustained request rate per token, or per address without one; beyond it 429.",
            minimum=0.1,
        ),
    ] = 50.0
    burst_requests: Annotated[
        int, Setting("Requests that a caller may send at once before that rate applies.", minimum=1)
    ] = 100
    request_seconds: Annotated[
        float, Setting("Time limit for a client to send its request, and to read the answer.", minimum=0.1)
    ] = 30.0
    max_connections: Annotated[
        int,
        Setting(
            "Maximum number of connections; one more displaces an idle one, or gets 503. Probes have 16 more.",
            minimum=1,
            maximum=65_535,
        ),
    ] = 200


class JobRuleConfig(Section):
    """A rule that adds a job for each package that was imported, or distributed, with matching paths."""

    add: Annotated[str, Setting("Topic of the job, such as `purge.cdn`.")]
    imported: Annotated[
        str | None,
        Setting(
            "Path pattern, such as `/content/**`: a package that a subscriber imports below it adds the job, "
            "in the transaction of the import. Give either this or `distributed`."
        ),
    ] = None
    distributed: Annotated[
        str | None,
        Setting(
            "Path pattern: a package below it adds the job when all subscribers of its publisher are past the package."
        ),
    ] = None
    key: Annotated[
        str,
        Setting(
            "Key of the job, for order, fairness and merging. `{publisher}` and `{subscriber}` are replaced "
            "by their names."
        ),
    ] = ""


class JobsConfig(Section):
    """Durable jobs, which workers run."""

    on: Annotated[tuple[JobRuleConfig, ...], Setting("Rules that add jobs.")] = ()


class LogsConfig(Section):
    """Log lines of a process, on standard error."""

    format: Annotated[LogFormat, Setting("Format of log lines.")] = LogFormat.CONSOLE
    level: Annotated[str, Setting("Minimum level: debug, info, warning or error.")] = "info"


class TracingConfig(Section):
    """OpenTelemetry traces; needs the extra `tracing`."""

    otlp_endpoint: Annotated[str | None, Setting("Endpoint for spans (OTLP over HTTP). null: no tracing.")] = None


class Config(Section):
    """The whole document."""

    journal: JournalConfig = field(default_factory=JournalConfig)
    blobs: BlobsConfig = field(default_factory=BlobsConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    publisher: PublisherConfig = field(default_factory=PublisherConfig)
    subscriber: SubscriberConfig = field(default_factory=SubscriberConfig)
    agents: AgentsConfig = field(default_factory=AgentsConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    events: EventsConfig = field(default_factory=EventsConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    logs: LogsConfig = field(default_factory=LogsConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)


def transfer_of(config: Config) -> Transfer:
    """How packages travel that are too large for one message, with `auto` decided."""
    if config.publisher.transfer is not Transfer.AUTO:
        return config.publisher.transfer
    # publishers and subscribers that share no folder share the journal
    is_shared = config.blobs.s3 is None and config.journal.kafka is not None
    return Transfer.CHUNKS if is_shared else Transfer.REFERENCE


def is_head_kept(config: Config) -> bool:
    """Whether agents apply age and size to the package topic, though the log does so: brokers cut through packages."""
    return config.journal.kafka is not None and transfer_of(config) is Transfer.CHUNKS
