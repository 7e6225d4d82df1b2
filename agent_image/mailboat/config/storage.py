"""The sections that say where things are kept and for how long: journal, blob store, retention."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Annotated

from mailboat.config.keys import DAY_SECONDS, GIBIBYTE, MEBIBYTE, Section, Setting


class SaslMechanism(enum.StrEnum):
    """How an agent logs in at the brokers."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class ConsumptionPolicy(enum.StrEnum):
    """What moves the head of the package topic when everybody has what it holds."""

    OFF = "off"
    """Nothing: age and size alone decide."""

    DURABLE = "durable"
    """The lowest position of the registered subscribers, and of those that are alive."""


class Secret(Section):
    """A secret, by where it is: a file, or a variable of the environment. Never the secret itself."""

    file: Annotated[str | None, Setting("File that holds the secret; a line end at its end does not count.")] = None
    env: Annotated[str | None, Setting("Variable of the environment that holds it.")] = None


class KafkaTlsConfig(Section):
    """Encryption of the connection to the brokers. All files are PEM."""

    ca_file: Annotated[
        str | None, Setting("Who signed the brokers' certificates; null trusts whom the machine does.")
    ] = None
    certificate_file: Annotated[str | None, Setting("The client's certificate with its chain, for mTLS.")] = None
    key_file: Annotated[str | None, Setting("Its private key.")] = None
    key_password: Annotated[Secret | None, Setting("Password of the private key.")] = None
    is_host_checked: Annotated[bool, Setting("Whether a broker's certificate must name the host asked for.")] = True


class KafkaSaslConfig(Section):
    """Login at the brokers."""

    mechanism: Annotated[SaslMechanism, Setting("How to log in. PLAIN sends the password as it is: use it with TLS.")]
    user: Annotated[str | None, Setting("Who logs in; the client id for OAUTHBEARER.")] = None
    user_from: Annotated[Secret | None, Setting("Who logs in, where the name is kept with the password.")] = None
    password: Annotated[Secret | None, Setting("The password; the client secret for OAUTHBEARER.")] = None
    token_url: Annotated[str | None, Setting("Where tokens are given, for OAUTHBEARER.")] = None
    scope: Annotated[str | None, Setting("What to ask for there; null for what the server gives by default.")] = None


class KafkaConfig(Section):
    """A journal on Apache Kafka."""

    bootstrap_servers: Annotated[tuple[str, ...], Setting("Brokers to begin with, each `host:port`.")]
    tls: Annotated[KafkaTlsConfig | None, Setting("Encryption; null is without.")] = None
    sasl: Annotated[KafkaSaslConfig | None, Setting("Login; null is without.")] = None
    replicas: Annotated[
        int | None,
        Setting("Replicas of topics that are made; null is the brokers' default.", minimum=1, maximum=32_767),
    ] = None
    min_insync_replicas: Annotated[
        int | None,
        Setting("Replicas that an append waits for; null leaves it to the brokers.", minimum=1, maximum=32_767),
    ] = None
    append_seconds: Annotated[
        float, Setting("Time for an append before its outcome counts as unknown.", minimum=0.1)
    ] = 30.0
    request_seconds: Annotated[float, Setting("Time for any other request.", minimum=0.1)] = 10.0


class TopicNamesConfig(Section):
    """Names of single topics, where they are not the prefix and the role."""

    package: Annotated[str | None, Setting("Of packages.")] = None
    status: Annotated[str | None, Setting("Of statuses.")] = None
    discovery: Annotated[str | None, Setting("Of announcements.")] = None
    command: Annotated[str | None, Setting("Of commands.")] = None
    event: Annotated[str | None, Setting("Of distributed events.")] = None


class JournalConfig(Section):
    """The persisted log: the embedded SQLite journal, or Kafka."""

    path: Annotated[str, Setting("File of the embedded journal; relative to the home.")] = "journal.db"
    kafka: Annotated[KafkaConfig | None, Setting("The brokers; null is the embedded journal.")] = None
    topic_prefix: Annotated[str, Setting("Put before the topic names, where several systems share a log.")] = ""
    topics: Annotated[
        TopicNamesConfig, Setting("Names of single topics; the prefix is not put before them. null: prefix and role.")
    ] = field(default_factory=TopicNamesConfig)

    def topic_name(self, role: str) -> str:
        """The name of the topic of a role."""
        own: str | None = getattr(self.topics, role)
        return f"{self.topic_prefix}{role}" if own is None else own


class S3Config(Section):
    """A bucket of an S3 server. Without keys, the usual chain finds credentials: environment, files, instance role."""

    bucket: Annotated[str, Setting("The bucket; it must exist.")]
    prefix: Annotated[str, Setting("Put before the keys, where others use the bucket too.")] = ""
    endpoint_url: Annotated[str | None, Setting("Another server than AWS.")] = None
    region: Annotated[str | None, Setting("The region; null is what the chain finds.")] = None
    is_path_style: Annotated[
        bool, Setting("Bucket in the path instead of the host name, as other servers want it.")
    ] = False
    access_key_id: Annotated[Secret | None, Setting("Access key id; null asks the chain.")] = None
    secret_access_key: Annotated[Secret | None, Setting("Its secret.")] = None
    ca_file: Annotated[str | None, Setting("Who signed the server's certificate, PEM.")] = None
    multipart_bytes: Annotated[
        int,
        Setting(
            "Size of the parts of large uploads; a handful are in memory at a time.",
            minimum=5 * MEBIBYTE,
            maximum=5 * GIBIBYTE,
        ),
    ] = 8 * MEBIBYTE
    max_attempts: Annotated[int, Setting("Attempts of one request before it counts as failed.", minimum=1)] = 5


class BlobsConfig(Section):
    """Where large binaries and large packages are kept, by content hash: a folder, or a bucket."""

    path: Annotated[str, Setting("Folder of the blobs; relative to the home.")] = "blobs"
    s3: Annotated[S3Config | None, Setting("The bucket; null is the folder.")] = None
    grace_seconds: Annotated[
        float, Setting("Unreferenced blobs younger than this are never swept: they may be on their way in.", minimum=0)
    ] = DAY_SECONDS
    sweep_seconds: Annotated[
        float | None,
        Setting("How often agents sweep blobs that no message names; null leaves it to `blobs sweep`.", minimum=60),
    ] = DAY_SECONDS


class ConsumptionConfig(Section):
    """Retention by consumption: packages go once everybody who matters has them."""

    policy: Annotated[ConsumptionPolicy, Setting("Who holds packages back.")] = ConsumptionPolicy.OFF
    min_seconds: Annotated[float, Setting("Packages younger than this stay in any case.", minimum=0)] = 3600.0
    max_seconds: Annotated[
        float | None, Setting("Packages older than this go in any case; null: never.", minimum=0)
    ] = None
    min_bytes: Annotated[int, Setting("So much stays in any case.", minimum=0)] = 0
    max_bytes: Annotated[
        int | None, Setting("What is beyond this size goes in any case; null: no limit.", minimum=0)
    ] = None
    subscriber_timeout_seconds: Annotated[
        float | None,
        Setting("A registered subscriber that was silent for so long is dropped, loudly; null: never.", minimum=0),
    ] = 7 * DAY_SECONDS


class TopicRetentionConfig(Section):
    """How long one topic keeps its messages, where that differs from the others."""

    seconds: Annotated[float | None, Setting("Age at which messages may go; null keeps them for ever.", minimum=1)] = (
        7 * DAY_SECONDS
    )
    bytes: Annotated[int | None, Setting("Size beyond which the oldest go; null: no limit.", minimum=1)] = None


class RetentionConfig(Section):
    """How long the journal keeps messages. A subscriber that stays away longer stops as JournalTrimmed."""

    package_seconds: Annotated[
        float | None, Setting("Age at which packages may go; null keeps them for ever.", minimum=1)
    ] = 7 * DAY_SECONDS
    status_seconds: Annotated[
        float | None, Setting("Age at which statuses, commands, announcements and events may go.", minimum=1)
    ] = 7 * DAY_SECONDS
    package_bytes: Annotated[
        int | None, Setting("Size beyond which the oldest packages go; null: no limit.", minimum=1)
    ] = None
    consumption: Annotated[ConsumptionConfig, Setting("Packages go once everybody who matters has them.")] = field(
        default_factory=ConsumptionConfig
    )
    status: Annotated[TopicRetentionConfig | None, Setting("Of statuses; null: as `status_seconds` says.")] = None
    discovery: Annotated[
        TopicRetentionConfig | None,
        Setting("Of announcements; null: as `status_seconds` says, 64 MiB at most. Not below two hours."),
    ] = None
    command: Annotated[TopicRetentionConfig | None, Setting("Of commands; null: as `status_seconds` says.")] = None
    event: Annotated[TopicRetentionConfig | None, Setting("Of distributed events; null: as `status_seconds` says.")] = (
        None
    )
