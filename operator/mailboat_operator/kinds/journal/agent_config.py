"""What the agents of a Journal are configured with, and the Secrets that they mount for it.

Operator and agent are of one version and share `mailboat.config`: a key that the agent does not know can't be written
here. The records of the spec are sections of the configuration; only what they refer to is filled in here. Credentials
are files of mounted Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mailboat.config.document import (
    Config,
    HttpConfig,
    LogFormat,
    LogsConfig,
    PublisherConfig,
    TokenConfig,
    Transfer,
    Verb,
)
from mailboat.config.storage import (
    BlobsConfig,
    ConsumptionConfig,
    JournalConfig,
    KafkaConfig,
    RetentionConfig,
    S3Config,
    Secret,
    TopicNamesConfig,
)

from mailboat_operator.kinds.journal.spec import S3, JournalSpec
from mailboat_operator.plan.labels import TOKEN_KEY
from mailboat_operator.workload.mounts import HTTP_PORT, SecretMount, mounted_file, mounted_secret, secret_mount


def journal_mounts(spec: JournalSpec) -> tuple[SecretMount, ...]:
    """The Secrets that an agent needs for its journal and blob store."""
    tls, sasl = spec.kafka.tls, spec.kafka.sasl
    s3 = None if spec.blobs is None else spec.blobs.s3
    wanted = (
        secret_mount("kafka-ca", None if tls is None else tls.ca_secret_ref, "ca.crt"),
        secret_mount("kafka-certificate", None if tls is None else tls.certificate_secret_ref, "tls.crt", "tls.key"),
        secret_mount("kafka-login", None if sasl is None else sasl.credentials_secret_ref, "username", "password"),
        secret_mount("s3-keys", None if s3 is None else s3.credentials_secret_ref, "accessKeyId", "secretAccessKey"),
        secret_mount("s3-ca", None if s3 is None else s3.ca_secret_ref, "ca.crt"),
    )
    return tuple(mount for mount in wanted if mount is not None)


def topics_config(spec: JournalSpec) -> Config:
    """Configuration that the topics of a journal are made for: that of a Publisher that names no transfer."""
    return replace(_journal_config(spec), publisher=PublisherConfig(transfer=Transfer.AUTO))


def _journal_config(spec: JournalSpec) -> Config:
    """Configuration of all that use a journal: where the log and the blobs are, how long messages are kept."""
    mounts = {mount.folder: mount for mount in journal_mounts(spec)}
    retention = spec.topics.retention
    return Config(
        journal=JournalConfig(
            kafka=_kafka(spec, mounts),
            topic_prefix="" if spec.topics.prefix is None else spec.topics.prefix,
            topics=spec.topics.names or TopicNamesConfig(),
        ),
        blobs=BlobsConfig() if spec.blobs is None else BlobsConfig(s3=_s3(spec.blobs.s3, mounts)),
        retention=RetentionConfig(
            package_seconds=retention.time_seconds,
            status_seconds=retention.status_time_seconds,
            package_bytes=retention.size_bytes,
            consumption=retention.consumption or ConsumptionConfig(),
        ),
    )


def agent_config(spec: JournalSpec, token: SecretMount) -> Config:
    """Configuration of all agents of a journal: that of the journal, who may call, how to log."""
    return replace(
        _journal_config(spec),
        http=HttpConfig(
            host="0.0.0.0",  # noqa: S104  # the pod's own address; callers need the token
            port=HTTP_PORT,
            tokens=(TokenConfig("operator", Secret(file=token.file(TOKEN_KEY)), (Verb.ADMIN,)),),
        ),
        logs=LogsConfig(format=LogFormat.JSON),
    )


def _kafka(spec: JournalSpec, mounts: Mapping[str, SecretMount]) -> KafkaConfig:
    tls, sasl = spec.kafka.tls, spec.kafka.sasl
    if tls is not None:
        certificate = mounts.get("kafka-certificate")
        tls = replace(
            tls,
            ca_file=mounted_file(mounts.get("kafka-ca"), "ca.crt"),
            certificate_file=mounted_file(certificate, "tls.crt"),
            key_file=mounted_file(certificate, "tls.key"),
        )
    if sasl is not None:
        login = mounts["kafka-login"]
        sasl = replace(
            sasl, user_from=Secret(file=login.file("username")), password=Secret(file=login.file("password"))
        )
    topics = spec.topics
    return replace(
        spec.kafka, tls=tls, sasl=sasl, replicas=topics.replicas, min_insync_replicas=topics.min_insync_replicas
    )


def _s3(s3: S3, mounts: Mapping[str, SecretMount]) -> S3Config:
    keys = mounts.get("s3-keys")
    return replace(
        s3,
        access_key_id=mounted_secret(keys, "accessKeyId"),
        secret_access_key=mounted_secret(keys, "secretAccessKey"),
        ca_file=mounted_file(mounts.get("s3-ca"), "ca.crt"),
    )
