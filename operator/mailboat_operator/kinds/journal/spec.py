"""Journal: brokers, blob store and the defaults of its topics. It becomes checked connections and six Topics."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, ClassVar, Final

from mailboat.config.storage import (
    ConsumptionConfig,
    ConsumptionPolicy,
    KafkaConfig,
    KafkaSaslConfig,
    KafkaTlsConfig,
    S3Config,
    SaslMechanism,
    TopicNamesConfig,
)
from mailboat.frozen import Frozen
from mailboat.model.messages import TopicRole

from mailboat_operator.definition.conditions import ReclaimPolicy, Status, Suspend
from mailboat_operator.definition.fields import Field, Renamed, Rule, unchangeable
from mailboat_operator.definition.forms import (
    AGENT_SIZE,
    BROKER,
    BUCKET,
    DURATION,
    DURATION_OF_SECONDS,
    DURATION_OR_ZERO,
    KEY_PREFIX,
    TOPIC_NAME,
    TOPIC_PREFIX,
    URL,
)
from mailboat_operator.definition.kind import AGE, READY, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference
from mailboat_operator.kinds.topic.spec import JournalRole


class KafkaTls(KafkaTlsConfig):
    """Encryption of the connections to the brokers."""

    RENAMED: ClassVar = (Renamed("isHostChecked", "verifyHostname", default=True),)
    FIELDS: ClassVar = {
        "ca_secret_ref": Field(
            "Secret with `ca.crt`: CA bundle for the brokers' certificates. Default: the image's trust store."
        ),
        "certificate_secret_ref": Field("Secret with `tls.crt` and `tls.key`: the client's certificate, for mTLS."),
        "verify_hostname": Field(),
    }

    ca_secret_ref: Reference | None = None
    certificate_secret_ref: Reference | None = None


class KafkaSasl(KafkaSaslConfig):
    """Login at the brokers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.tokenUrl) == (self.mechanism == 'OAUTHBEARER')",
            "tokenUrl is required with mechanism OAUTHBEARER, and not allowed with others",
            ".tokenUrl",
            lambda sasl: (sasl.token_url is not None) == (sasl.mechanism == SaslMechanism.OAUTHBEARER),
        ),
        Rule(
            "!has(self.scope) || self.mechanism == 'OAUTHBEARER'",
            "scope is allowed with mechanism OAUTHBEARER only",
            ".scope",
            lambda sasl: sasl.scope is None or sasl.mechanism == SaslMechanism.OAUTHBEARER,
        ),
    )
    FIELDS: ClassVar = {
        "mechanism": Field(),
        "credentials_secret_ref": Field(
            "Secret with `username` and `password`; client id and client secret for OAUTHBEARER."
        ),
        "token_url": Field(form=URL),
        "scope": Field("OAuth scope to request, for OAUTHBEARER.", max_length=256),
    }

    # by name only: it is required, and the section's fields before it have defaults
    credentials_secret_ref: Reference = field(kw_only=True)


class Kafka(KafkaConfig):
    """The brokers."""

    FIELDS: ClassVar = {
        "bootstrap_servers": Field(form=BROKER, min_items=1, max_items=20),
        "tls": Field("Encryption. Default: none."),
        "sasl": Field("Login. Default: none."),
    }

    tls: KafkaTls | None = None
    sasl: KafkaSasl | None = None


class S3(S3Config):
    """A bucket."""

    RENAMED: ClassVar = (Renamed("isPathStyle", "pathStyle", default=False),)
    FIELDS: ClassVar = {
        "bucket": Field("The bucket; it must exist.", form=BUCKET),
        "prefix": Field(form=KEY_PREFIX),
        "endpoint_url": Field(form=URL),
        "region": Field("Region. Default: as found in the pod's environment.", max_length=63),
        "path_style": Field(),
        "credentials_secret_ref": Field(
            "Secret with `accessKeyId` and `secretAccessKey`. Default: the pod's own identity."
        ),
        "ca_secret_ref": Field("Secret with `ca.crt`: CA bundle for the server's certificate."),
    }

    credentials_secret_ref: Reference | None = None
    ca_secret_ref: Reference | None = None


class Blobs(Frozen):
    """Where large binaries and large packages are kept."""

    s3: Annotated[S3, Field("A bucket of an S3 server.")]


class JournalTopicNames(TopicNamesConfig):
    """Names of single topics, where they are not the prefix and the role."""

    FIELDS: ClassVar = dict.fromkeys(map(str, TopicRole), Field(form=TOPIC_NAME))


def _name_in_cel(role: TopicRole) -> str:
    """A topic's name, as `JournalTopics.name_of` makes it, for a rule over a `topics` with `names`."""
    default = f"(has(self.prefix) ? self.prefix : '') + '{role}'"
    return f"(has(self.names.{role}) ? self.names.{role} : {default})"


_JOB_NAME_IN_CEL: Final = "(has(self.prefix) ? self.prefix : '') + 'job'"
_NAMES_IN_CEL: Final = f"[{', '.join([*map(_name_in_cel, TopicRole), _JOB_NAME_IN_CEL])}]"


_LEAST_STATUS_SECONDS: Final = 7200
"""With consumption: agents refuse less (`check_bounds`), as the registry of durable subscribers would be removed."""


def _duration_in_cel(holder: str) -> str:
    """Whole seconds of a duration in CEL, which has no days; a concatenated text would exceed the cost limit."""
    days = f"int({holder}.substring(0, {holder}.size() - 1)) * 86400"
    return f"({holder}.endsWith('d') ? {days} : duration({holder}).getSeconds())"


class Consumption(ConsumptionConfig):
    """Retention by consumption: removes packages that all registered subscribers have imported."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.max) || {_duration_in_cel('self.min')} <= {_duration_in_cel('self.max')}",
            "min must not be longer than max",
            ".min",
            lambda one: one.max_seconds is None or int(one.min_seconds) <= int(one.max_seconds),
        ),
    )
    FIELDS: ClassVar = {
        "policy": Field(
            'Subscribers that hold packages back: the registered ones, or none ("off", in quotes in YAML).'
        ),
        "min_seconds": Field(form=DURATION_OR_ZERO),
        "max_seconds": Field(
            "Age at which packages are removed even if they were not consumed. Default: never.", form=DURATION
        ),
    }

    policy: ConsumptionPolicy = ConsumptionPolicy.DURABLE


class JournalRetention(Frozen):
    """How long a journal keeps messages. A subscriber that stays away longer stops as JournalTrimmed."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.consumption) || (has(self.consumption.policy) && self.consumption.policy == 'off')"
            f" || !has(self.statusTime) || {_duration_in_cel('self.statusTime')} >= {_LEAST_STATUS_SECONDS}",
            "consumption requires a statusTime of at least two hours",
            ".statusTime",
            lambda one: (
                one.consumption is None
                or one.consumption.policy is ConsumptionPolicy.OFF
                or one.status_time_seconds >= _LEAST_STATUS_SECONDS
            ),
        ),
    )

    # Not the section, whose `consumption` is never absent, and `off` without a policy; here that is `durable`.
    time_seconds: Annotated[float, Field("Maximum age of packages.", form=DURATION_OF_SECONDS)] = 7 * 86_400.0
    status_time_seconds: Annotated[
        float, Field("Maximum age of statuses, commands, announcements and events.", form=DURATION_OF_SECONDS)
    ] = 7 * 86_400.0
    size_bytes: Annotated[
        int | None,
        Field(
            "Maximum size of the package topic; the oldest packages are removed. Default: no limit.", form=AGENT_SIZE
        ),
    ] = None
    consumption: Annotated[
        Consumption | None,
        Field("Removal of packages that all registered subscribers have imported. Default: none."),
    ] = None


class JournalTopics(Frozen):
    """The topics of the five roles of packages, and of jobs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minInsyncReplicas) || (has(self.replicas) && self.minInsyncReplicas <= self.replicas)",
            "minInsyncReplicas requires replicas, and must not exceed it",
            ".minInsyncReplicas",
            lambda topics: (
                topics.min_insync_replicas is None
                or (topics.replicas is not None and topics.min_insync_replicas <= topics.replicas)
            ),
        ),
        Rule(
            f"!has(self.names) || {_NAMES_IN_CEL}.all(one, {_NAMES_IN_CEL}.exists_one(other, one == other))",
            "two roles share a topic name; each topic needs its own name",
            ".names",
            lambda topics: len({topics.name_of(role) for role in JournalRole}) == len(JournalRole),
        ),
        unchangeable("prefix", "messages would stay in the topics of the old name"),
        unchangeable("names", "messages would stay in the topics of the old name"),
        unchangeable("manage", "create another Journal"),
    )

    manage: Annotated[
        bool,
        Field("Create and reconcile the topics. false: another Journal, or the brokers' administrator, does."),
    ] = True
    prefix: Annotated[
        str | None, Field("Prefix of topic names, for several systems on the same brokers.", form=TOPIC_PREFIX)
    ] = None
    names: Annotated[JournalTopicNames | None, Field("Names of single topics; the prefix is not put before them.")] = (
        None
    )
    replicas: Annotated[
        int | None, Field("Replicas of each topic. Default: the brokers' setting.", minimum=1, maximum=15)
    ] = None
    min_insync_replicas: Annotated[
        int | None,
        Field(
            "Replicas that an append waits for, `min.insync.replicas` of each topic. Default: the brokers' setting.",
            minimum=1,
            maximum=15,
        ),
    ] = None
    retention: Annotated[JournalRetention, Field("How long messages are kept.")] = field(
        default_factory=JournalRetention
    )
    reclaim_policy: Annotated[
        ReclaimPolicy, Field("Whether the topics and their messages are kept or deleted when the Journal is deleted.")
    ] = ReclaimPolicy.RETAIN

    def name_of(self, role: TopicRole | JournalRole) -> str:
        """Return the name of the topic of a role, on the brokers."""
        own: str | None = getattr(self.names, role, None)
        return f"{self.prefix or ''}{role}" if own is None else own


class JournalSpec(Frozen):
    """Where messages go."""

    kafka: Annotated[Kafka, Field("The brokers.")]
    blobs: Annotated[
        Blobs | None,
        Field("Blob store for large binaries and packages. Default: none; they travel in pieces through the journal."),
    ] = None
    topics: Annotated[JournalTopics, Field("The topics.")] = field(default_factory=JournalTopics)
    suspend: Suspend = False


class JournalStatus(Status):
    """What was found."""

    cluster_id: Annotated[str | None, Field("Cluster id of the brokers.")] = None
    brokers: Annotated[int | None, Field("Number of brokers.", minimum=0)] = None
    topics_ready: Annotated[
        str | None, Field("Topics with the declared configuration, out of all: `6/6`.", max_length=16)
    ] = None


class Journal(Frozen):
    """A Journal as it is stored."""

    metadata: Metadata
    spec: JournalSpec
    status: JournalStatus = field(default_factory=JournalStatus)


JOURNAL = Kind(
    "Journal",
    "journals",
    "mbj",
    Journal,
    (
        READY,
        REASON,
        PrinterColumn("Topics", ".status.topicsReady", text="Topics with the declared configuration, out of all."),
        PrinterColumn("Brokers", ".status.brokers", "integer", "Number of brokers."),
        AGE,
    ),
    "Brokers, a blob store and the topics of a journal.",
)
