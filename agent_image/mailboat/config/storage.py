"""The sections that say where things are kept and for how long: journal, blob store, retention."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Annotated

from mailboat.config.section_keys import DAY_SECONDS, GIBIBYTE, MEBIBYTE, Section, Setting


class SaslMechanism(enum.StrEnum):
    """How an agent logs in at the brokers."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class ConsumptionPolicy(enum.StrEnum):
    """Which subscribers must have a package before retention by consumption removes it."""

    OFF = "off"
    """Nothing: age and size alone decide."""

    DURABLE = "durable"
    """The lowest position of the registered subscribers, and of those that are alive."""


class Secret(Section):
    """A secret, by where it is: a file, or a variable of the environment. Never the secret itself."""

    file: Annotated[str | None, Setting("File that holds the secret; one trailing newline is ignored.")] = None
    env: Annotated[str | None, Setting("Environment variable that holds the secret.")] = None


class KafkaTlsConfig(Section):
    """Encryption of the connection to the brokers. All files are PEM."""

    ca_file: Annotated[
        str | None, Setting("CA bundle for the brokers' certificates. Default: the system trust store.")
    ] = None
    certificate_file: Annotated[str | None, Setting("Client certificate with its chain, for mTLS.")] = None
    key_file: Annotated[str | None, Setting("Private key of the client certificate.")] = None
    key_password: Annotated[Secret | None, Setting("Password of the private key.")] = None
    verify_hostname: Annotated[bool, Setting("Verify that a broker's certificate names its host.")] = True


class KafkaSaslConfig(Section):
    """Login at the brokers."""

    mechanism: Annotated[
        SaslMechanism, Setting("SASL mechanism. PLAIN sends the password unencrypted: use it with TLS.")
    ]
    user: Annotated[str | None, Setting("User name; the client id for OAUTHBEARER.")] = None
    user_from: Annotated[Secret | None, Setting("User name from a secret.")] = None
    password: Annotated[Secret | None, Setting("Password; the client secret for OAUTHBEARER.")] = None
    token_url: Annotated[str | None, Setting("Token endpoint for OAUTHBEARER.")] = None
    scope: Annotated[str | None, Setting("OAuth scope to request. null: the server's default.")] = None


class KafkaConfig(Section):
    """A journal on Apache Kafka."""

    bootstrap_servers: Annotated[tuple[str, ...], Setting("Bootstrap brokers, each `host:port`.")]
    tls: Annotated[KafkaTlsConfig | None, Setting("TLS. null: unencrypted.")] = None
    sasl: Annotated[KafkaSaslConfig | None, Setting("SASL login. null: none.")] = None
    replicas: Annotated[
        int | None,
        Setting("Replicas of created topics. null: the brokers' default.", minimum=1, maximum=32_767),
    ] = None
    min_insync_replicas: Annotated[
        int | None,
        Setting("`min.insync.replicas` of created topics. null: the brokers' default.", minimum=1, maximum=32_767),
    ] = None
    append_seconds: Annotated[
        float,
        Setting(
            "Time limit of an append; then its outcome is unknown (AppendUncertain).",
            minimum=0.1,
        ),
    ] = 30.0
    request_seconds: Annotated[float, Setting("Time limit of any other request.", minimum=0.1)] = 10.0


class TopicNamesConfig(Section):
    """Names of single topics, where they are not the prefix and the role."""

    package: Annotated[str | None, Setting("Topic of packages.")] = None
    status: Annotated[str | None, Setting("Topic of statuses.")] = None
    discovery: Annotated[str | None, Setting("Topic of announcements.")] = None
    command: Annotated[str | None, Setting("Topic of commands.")] = None
    event: Annotated[str | None, Setting("Topic of distributed events.")] = None


class JournalConfig(Section):
    """The persisted log: the embedded SQLite journal, or Kafka."""

    path: Annotated[str, Setting("File of the embedded journal, relative to the home.")] = "journal.db"
    kafka: Annotated[KafkaConfig | None, Setting("Kafka brokers. null: the embedded journal.")] = None
    topic_prefix: Annotated[str, Setting("Prefix of topic names, for several systems on the same brokers.")] = ""
    topics: Annotated[
        TopicNamesConfig, Setting("Names of individual topics, used without the prefix. null: prefix and role.")
    ] = field(default_factory=TopicNamesConfig)

    def topic_name(self, role: str) -> str:
        """The name of the topic of a role."""
        own: str | None = getattr(self.topics, role)
        return f"{self.topic_prefix}{role}" if own is None else own


class S3Config(Section):
    """A bucket of an S3 server. Without keys, the usual chain finds credentials: environment, files, instance role."""

    bucket: Annotated[str, Setting("Bucket name; the bucket must exist.")]
    prefix: Annotated[str, Setting("Prefix of all keys, for a shared bucket.")] = ""
    endpoint_url: Annotated[str | None, Setting("Endpoint of an S3-compatible server. Default: AWS.")] = None
    region: Annotated[str | None, Setting("Region. null: as found by the credentials chain.")] = None
    path_style: Annotated[bool, Setting("Path-style requests, as many S3-compatible servers require.")] = False
    access_key_id: Annotated[Secret | None, Setting("Access key id. null: the credentials chain.")] = None
    secret_access_key: Annotated[Secret | None, Setting("Secret access key.")] = None
    ca_file: Annotated[str | None, Setting("CA bundle for the server's certificate, PEM.")] = None
    multipart_bytes: Annotated[
        int,
        Setting(
            "Part size of large uploads; a few parts are in memory at a time.",
            minimum=5 * MEBIBYTE,
            maximum=5 * GIBIBYTE,
        ),
    ] = 8 * MEBIBYTE
    max_attempts: Annotated[
        int, Setting("Attempts per request that fails temporarily, with growing pauses.", minimum=1)
    ] = 5

    @property
    def description(self) -> str:
        """For people, without secrets."""
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return place if self.endpoint_url is None else f"{place} on {self.endpoint_url}"


class BlobsConfig(Section):
    """Where large binaries and large packages are kept, by content hash: a folder, or a bucket."""

    path: Annotated[str, Setting("Folder of the blobs, relative to the home.")] = "blobs"
    s3: Annotated[S3Config | None, Setting("S3 bucket. null: the folder.")] = None
    grace_seconds: Annotated[
        float,
        Setting(
            "Minimum age of unreferenced blobs that a sweep removes: longer than any publication.",
            # A blob is stored before the message that refers to it: a sweep in between would remove it.
            minimum=3600,
        ),
    ] = DAY_SECONDS
    sweep_seconds: Annotated[
        float | None,
        Setting("Interval of automatic sweeps by agents. null: only `blobs sweep`.", minimum=60),
    ] = DAY_SECONDS


class ConsumptionConfig(Section):
    """Retention by consumption: removes packages that all registered subscribers have imported."""

    policy: Annotated[
        ConsumptionPolicy,
        Setting(
            "Subscribers that hold packages back. off: none. durable: the registered ones, and others while "
            "they are alive."
        ),
    ] = ConsumptionPolicy.OFF
    min_seconds: Annotated[float, Setting("Minimum age of packages that consumption removes.", minimum=0)] = 3600.0
    max_seconds: Annotated[
        float | None,
        Setting("Age at which packages are removed even if they were not consumed. null: never.", minimum=0),
    ] = None
    min_bytes: Annotated[int, Setting("Size of the newest packages that always stay.", minimum=0)] = 0
    max_bytes: Annotated[
        int | None,
        Setting(
            "Size beyond which the oldest packages are removed even if they were not consumed. null: no limit.",
            minimum=0,
        ),
    ] = None
    subscriber_timeout_seconds: Annotated[
        float | None,
        Setting("Silence after which a registered subscriber is deregistered, with a warning. null: never.", minimum=0),
    ] = 7 * DAY_SECONDS


class TopicRetentionConfig(Section):
    """How long one topic keeps its messages, where that differs from the others."""

    seconds: Annotated[float | None, Setting("Maximum age of messages. null: no limit.", minimum=1)] = 7 * DAY_SECONDS
    bytes: Annotated[
        int | None, Setting("Maximum size; the oldest messages are removed. null: no limit.", minimum=1)
    ] = None


class RetentionConfig(Section):
    """How long the journal keeps messages. A subscriber that stays away longer stops as JournalTrimmed."""

    package_seconds: Annotated[float | None, Setting("Maximum age of packages. null: no limit.", minimum=1)] = (
        7 * DAY_SECONDS
    )
    status_seconds: Annotated[
        float | None, Setting("Maximum age of statuses, commands, announcements and events. null: no limit.", minimum=1)
    ] = 7 * DAY_SECONDS
    package_bytes: Annotated[
        int | None,
        Setting("Maximum size of the package topic; the oldest packages are removed. null: no limit.", minimum=1),
    ] = None
    consumption: Annotated[
        ConsumptionConfig,
        Setting("Retention by consumption: removal of packages that all durable subscribers have imported."),
    ] = field(default_factory=ConsumptionConfig)
    status: Annotated[TopicRetentionConfig | None, Setting("Retention of statuses. null: `status_seconds`.")] = None
    discovery: Annotated[
        TopicRetentionConfig | None,
        Setting("Retention of announcements, at least two hours. null: `status_seconds`, at most 64 MiB."),
    ] = None
    command: Annotated[TopicRetentionConfig | None, Setting("Retention of commands. null: `status_seconds`.")] = None
    event: Annotated[
        TopicRetentionConfig | None, Setting("Retention of distributed events. null: `status_seconds`.")
    ] = None
