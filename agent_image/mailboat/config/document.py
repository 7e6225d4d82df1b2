"""The records of the configuration: every setting with its default, its range and its explanation."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Annotated

from mailboat.config.keys import GIBIBYTE, KIBIBYTE, MEBIBYTE, Section, Setting
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
    """What a subscriber does about a record on the package topic that is no package message."""

    GIVE_UP = "give-up"
    STOP = "stop"


class Expose(enum.StrEnum):
    """When readers of a subscriber's content see what was imported."""

    PACKAGE = "package"
    BUILD = "build"


class Verb(enum.StrEnum):
    """What a token may do."""

    VIEW = "view"
    DISTRIBUTE = "distribute"
    CLEAR = "clear"
    ADMIN = "admin"


class LogFormat(enum.StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


class LimitsConfig(Section):
    """What is taken from others. Input beyond a limit is refused before anything is written."""

    max_entries: Annotated[int, Setting("Nodes or archive entries of one package.", minimum=1)] = 1_000_000
    max_entry_bytes: Annotated[int, Setting("One binary or archive entry, unpacked.", minimum=1)] = 16 * GIBIBYTE
    max_total_bytes: Annotated[int, Setting("All of a package, unpacked.", minimum=1)] = 64 * GIBIBYTE
    max_ratio: Annotated[float, Setting("Unpacked ÷ packed size.", minimum=1)] = 200.0
    max_xml_depth: Annotated[int, Setting("Nested elements of a DocView document.", minimum=1, maximum=1000)] = 110
    are_collisions_refused: Annotated[
        bool, Setting("Refuse two names in one folder that differ in case or Unicode form only.")
    ] = True


class ThrottleConfig(Section):
    """Publishing slows down while a clearable subscriber lags: no delay up to the limit, the longest from twice on."""

    max_queue_entries: Annotated[
        int | None, Setting("Backlog of the slowest clearable subscriber where delays begin; null: never.", minimum=1)
    ] = 1000
    max_delay_seconds: Annotated[float, Setting("The longest delay of one request.", minimum=0)] = 20.0


class NamespaceConfig(Section):
    """The namespace of one prefix."""

    prefix: Annotated[str, Setting("Prefix, as in names of nodes and properties.")]
    uri: Annotated[str, Setting("Namespace that the prefix stands for.")]


class PublisherConfig(Section):
    """Defaults of every publisher, and of `publish`, `delete`, `invalidate` and `ping`."""

    name: Annotated[str, Setting("Name of the publisher when `--publisher` is not given.")] = "author"
    package_type: Annotated[PackageType, Setting("Format of the packages.")] = PackageType.TREE
    filevault_name: Annotated[
        str,
        Setting(
            "What messages call the format `filevault`. A subscriber of Sling takes only what is called as its package "
            "builder is."
        ),
    ] = "filevault"
    namespaces: Annotated[
        tuple[NamespaceConfig, ...],
        Setting(
            "Namespaces of prefixes in packages of the format `filevault`, beyond those of JCR, Sling and AEM and of a "
            "FileVault source. A prefix without a namespace is refused."
        ),
    ] = ()
    transfer: Annotated[
        Transfer,
        Setting(
            "How packages travel that are too large for a message: through the blob store, or in chunks through the "
            "journal; auto: by reference where a bucket is configured, else in chunks on Kafka; inline: not at all, "
            "they are refused, and every binary travels in its package: for subscribers of Sling."
        ),
    ] = Transfer.REFERENCE
    inline_package_bytes: Annotated[
        int, Setting("Packages up to this size travel in the message.", minimum=0, maximum=GIBIBYTE)
    ] = 800 * KIBIBYTE
    piece_bytes: Annotated[
        int,
        Setting(
            "Size of one piece of a package in chunks; the brokers must take a little more.",
            minimum=1024,
            maximum=GIBIBYTE,
        ),
    ] = 800 * KIBIBYTE
    inline_binary_bytes: Annotated[
        int, Setting("Binaries up to this size travel in the package, larger ones through the blob store.", minimum=0)
    ] = 64 * KIBIBYTE
    changed_package_bytes: Annotated[
        int, Setting("Content that one package of `publish --changed` carries at most, about.", minimum=1)
    ] = 4 * MEBIBYTE
    queue_cache_bytes: Annotated[
        int,
        Setting(
            "Memory for the picture of the queues: half of it at most for the places of packages, 2.25 bytes each, the "
            "rest for what was read of them.",
            minimum=MEBIBYTE,
        ),
    ] = 64 * MEBIBYTE
    throttle: Annotated[ThrottleConfig, Setting("When publishing slows down.")] = field(default_factory=ThrottleConfig)


class StagingConfig(Section):
    """Import a package only after a golden subscriber did: what it could not import never gets here."""

    golden: Annotated[str, Setting("Name of the subscriber that goes first. It must be editable.")]
    timeout_seconds: Annotated[
        float, Setting("One wait for its word on a package; then its announcement is looked up again.", minimum=0.1)
    ] = 60.0


class ReadinessConfig(Section):
    """When a subscriber counts as ready to serve."""

    max_latency_seconds: Annotated[
        float, Setting("A package this young when imported shows that the subscriber has caught up.", minimum=0)
    ] = 120.0
    force_seconds: Annotated[
        float | None,
        Setting("Ready after so long even when it lags, rather than serve nothing; null: never.", minimum=0),
    ] = None
    idle_seconds: Annotated[float, Setting("No work for so long shows that it has caught up.", minimum=0)] = 10.0
    max_lag_seconds: Annotated[
        float | None,
        Setting("Not ready any more when the oldest package not imported is this old; null: never.", minimum=1),
    ] = None


class PiecesConfig(Section):
    """How much of packages in chunks is collected on disk while it goes by; the rest is read again when needed."""

    max_packages: Annotated[int, Setting("Packages at once.", minimum=1)] = 10
    max_bytes: Annotated[
        int, Setting("Bytes of all of them, in the folder for temporary files; a pod's has 1 GiB.", minimum=0)
    ] = 512 * MEBIBYTE
    expire_seconds: Annotated[
        float, Setting("A package is dropped when no piece of it came for so long: its publisher died.", minimum=1)
    ] = 60.0


class HooksConfig(Section):
    """Commands of the user around an import. Each gets the package as one JSON object on its standard input."""

    before: Annotated[
        tuple[str, ...], Setting("Run before a package is imported; if it fails, so does the package.")
    ] = ()
    after: Annotated[tuple[str, ...], Setting("Run after the commit; a failure is logged and counted.")] = ()
    invalidate: Annotated[
        tuple[str, ...], Setting("Run for INVALIDATE, such as a cache's purge; if it fails, so does the package.")
    ] = ()
    timeout_seconds: Annotated[float, Setting("Time for one command.", minimum=0.1)] = 60.0


class SubscriberConfig(Section):
    """Defaults of every subscriber, and of `subscribe`."""

    max_retries: Annotated[
        int | None, Setting("Attempts after the first before a package is given up; null tries for ever.", minimum=0)
    ] = 10
    first_pause_seconds: Annotated[float, Setting("Pause after the first failure; it doubles.", minimum=0)] = 1.0
    longest_pause_seconds: Annotated[float, Setting("The longest pause between attempts.", minimum=0)] = 300.0
    max_batch_records: Annotated[int, Setting("Packages imported in one transaction at most.", minimum=1)] = 100
    max_batch_bytes: Annotated[int, Setting("Bytes of messages read at once at most.", minimum=1)] = 4 * MEBIBYTE
    package_timeout_seconds: Annotated[
        float | None, Setting("Time that importing one package may take; null sets no limit.", minimum=0)
    ] = 3600.0
    shutdown_seconds: Annotated[
        float, Setting("Time for the package at hand when the process is told to stop.", minimum=0)
    ] = 25.0
    undecodable: Annotated[
        Undecodable,
        Setting("What happens to a record on the package topic that is no package message: give up on it, or stop."),
    ] = Undecodable.GIVE_UP
    expose: Annotated[
        Expose,
        Setting(
            "When readers see what was imported. build: a bulk build, and what was published while it came, as one "
            "when its last package is imported; takes a target `generations:DIR`."
        ),
    ] = Expose.PACKAGE
    expose_seconds: Annotated[
        float | None,
        Setting(
            "With expose: build, a build of which the log brings nothing for so long is waited for no more, and shown "
            "as far as it came; null: waits for ever.",
            minimum=0,
        ),
    ] = 3600.0
    filevault_names: Annotated[
        tuple[str, ...],
        Setting("What messages of others may call the format `filevault`: the names of Sling's package builders."),
    ] = ("journal_filevault", "journal")
    announce_seconds: Annotated[float, Setting("Pause between announcements when nothing happens.", minimum=0.1)] = 10.0
    pieces: Annotated[PiecesConfig, Setting("What is collected of packages in chunks.")] = field(
        default_factory=PiecesConfig
    )
    readiness: Annotated[ReadinessConfig, Setting("When it counts as ready to serve.")] = field(
        default_factory=ReadinessConfig
    )


class PublisherAgentConfig(Section):
    """A publisher that `agent run` runs. What is not said here, `publisher` says."""

    name: Annotated[str, Setting("Its name.")]
    source: Annotated[
        str | None,
        Setting("What its ADD requests read: a folder, a checkout, a zip, `sqlite:FILE`; null: ADD is refused."),
    ] = None


class SubscriberAgentConfig(Section):
    """A subscriber that `agent run` runs. What is not said here, `subscriber` says."""

    name: Annotated[str, Setting("Its name.")]
    target: Annotated[str, Setting("Where it imports into: `files:DIR`, `generations:DIR` or `sqlite:FILE`.")]
    follow: Annotated[tuple[str, ...], Setting("The publishers that it follows; none named: all.")] = ()
    roots: Annotated[
        tuple[str, ...],
        Setting(
            "Content paths, each with all below it. A package that would change anything outside is refused as a whole "
            "and goes to the error queue. Default: all paths."
        ),
    ] = ()
    is_editable: Annotated[bool, Setting("Takes clear commands, and confirms every package.")] = False
    is_durable: Annotated[
        bool, Setting("Holds packages back, where retention is by consumption, also while it is away.")
    ] = True
    staging: Annotated[StagingConfig | None, Setting("Wait for a golden subscriber; null: for nobody.")] = None
    expose: Annotated[
        Expose | None, Setting("When readers see what was imported; null: as `subscriber.expose` says.")
    ] = None
    hooks: Annotated[HooksConfig, Setting("Commands around an import.")] = field(default_factory=HooksConfig)


class AgentsConfig(Section):
    """The agents that `mailboat agent run` runs in one process."""

    publishers: Annotated[tuple[PublisherAgentConfig, ...], Setting("Publishers.")] = ()
    subscribers: Annotated[tuple[SubscriberAgentConfig, ...], Setting("Subscribers.")] = ()


class TokenConfig(Section):
    """A bearer token of the HTTP API."""

    name: Annotated[str, Setting("Whose it is: what audit lines say.")]
    token: Annotated[Secret, Setting("The token.")]
    verbs: Annotated[tuple[Verb, ...], Setting("What it may do.")] = (Verb.VIEW,)
    paths: Annotated[
        tuple[str, ...],
        Setting("Path patterns that it may distribute; each covers all paths below it. `*`: any part of one name."),
    ] = ("/",)


class HttpConfig(Section):
    """The HTTP API of an agent."""

    host: Annotated[str, Setting("Address to listen at. Without tokens it must be a loopback address.")] = "127.0.0.1"
    port: Annotated[int, Setting("Port to listen at; 0 takes a free one.", minimum=0, maximum=65_535)] = 8080
    tokens: Annotated[
        tuple[TokenConfig, ...], Setting("Who may do what; none: everybody on this machine may do all.")
    ] = ()
    open_metrics: Annotated[
        bool, Setting("Serve `/metrics` without a token; it shows names of publishers and subscribers, and no content.")
    ] = False
    max_body_bytes: Annotated[int, Setting("The largest body that is read.", minimum=1)] = MEBIBYTE
    requests_per_second: Annotated[float, Setting("Requests of one caller, lasting.", minimum=0.1)] = 50.0
    burst_requests: Annotated[int, Setting("Requests of one caller at once.", minimum=1)] = 100
    request_seconds: Annotated[float, Setting("Time for a client to send its request.", minimum=0.1)] = 30.0
    max_connections: Annotated[int, Setting("Connections at once; more are refused.", minimum=1, maximum=65_535)] = 200


class WebhookConfig(Section):
    """Where distributed events are posted, as CloudEvents 1.0."""

    url: Annotated[str, Setting("Where to post.")]
    token: Annotated[Secret | None, Setting("Bearer token to send.")] = None
    timeout_seconds: Annotated[float, Setting("Time for one post.", minimum=0.1)] = 10.0


class EventsConfig(Section):
    """What publishers tell when a package has arrived everywhere."""

    silent_seconds: Annotated[
        float,
        Setting(
            "So long an event waits for a subscriber that says nothing; then it is raised and names it.", minimum=1
        ),
    ] = 300.0
    webhook: Annotated[WebhookConfig | None, Setting("Where to post events too; null: nowhere.")] = None


class LogsConfig(Section):
    """What a process logs, to standard error."""

    format: Annotated[LogFormat, Setting("How lines look.")] = LogFormat.CONSOLE
    level: Annotated[str, Setting("The least that is logged: debug, info, warning or error.")] = "info"


class TracingConfig(Section):
    """OpenTelemetry traces; needs the extra `tracing`."""

    otlp_endpoint: Annotated[str | None, Setting("Where spans go (OTLP over HTTP); null: nowhere.")] = None


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
    logs: LogsConfig = field(default_factory=LogsConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
