"""How the brokers of the section `journal.kafka` are reached: TLS files and logins, with secrets read now.

Needs no client library. `journals.py` imports it for a home on Kafka.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import expanded_path
from mailboat.config.storage import KafkaConfig, SaslMechanism
from mailboat.errors import UsageError
from mailboat.journal.kafka_settings import (
    KafkaSecurity,
    KafkaSettings,
    KafkaTls,
    PasswordLogin,
    PasswordMechanism,
    TokenLogin,
)

_SECTION: Final = "journal.kafka"


def kafka_settings(kafka: KafkaConfig, folder: Path) -> KafkaSettings:
    """The adapter's settings; secrets are read now. `folder` is the home, which relative files belong to.

    Raises: UsageError, SecretMissingError.
    """
    if not kafka.bootstrap_servers:
        raise UsageError("`journal.kafka.bootstrap_servers` names no broker", key="journal.kafka.bootstrap_servers")
    return KafkaSettings(
        bootstrap_servers=",".join(kafka.bootstrap_servers),
        security=KafkaSecurity(tls=_tls(kafka, folder), login=_login(kafka, folder)),
        replication_factor=kafka.replicas,
        min_insync_replicas=kafka.min_insync_replicas,
        append_seconds=kafka.append_seconds,
        request_seconds=kafka.request_seconds,
    )


def _tls(kafka: KafkaConfig, folder: Path) -> KafkaTls | None:
    tls = kafka.tls
    if tls is None:
        return None
    if (tls.certificate_file is None) is not (tls.key_file is None):
        raise UsageError(
            "`journal.kafka.tls` has a certificate without its key, or a key without its certificate",
            key="journal.kafka.tls",
        )
    ca_file, certificate_file, key_file = (
        None if file is None else _file(folder / expanded_path(file), key)
        for key, file in (
            ("ca_file", tls.ca_file),
            ("certificate_file", tls.certificate_file),
            ("key_file", tls.key_file),
        )
    )
    password = (
        None if tls.key_password is None else read_secret(tls.key_password, f"{_SECTION}.tls.key_password", folder)
    )
    return KafkaTls(ca_file, certificate_file, key_file, password, tls.verify_hostname)


def _file(file: Path, key: str) -> Path:
    if not file.is_file():
        raise UsageError(f"there is no file {file}", key=f"journal.kafka.tls.{key}")
    return file


def _login(kafka: KafkaConfig, folder: Path) -> PasswordLogin | TokenLogin | None:
    sasl = kafka.sasl
    if sasl is None:
        return None
    user = sasl.user
    if sasl.user_from is not None:
        user = read_secret(sasl.user_from, f"{_SECTION}.sasl.user_from", folder)
    if user is None or sasl.password is None:
        raise UsageError("`journal.kafka.sasl` needs `user` and `password`", key="journal.kafka.sasl")
    password = read_secret(sasl.password, f"{_SECTION}.sasl.password", folder)
    if sasl.mechanism is not SaslMechanism.OAUTHBEARER:
        return PasswordLogin(PasswordMechanism(sasl.mechanism), user, password)
    if sasl.token_url is None:
        raise UsageError("OAUTHBEARER needs `token_url`", key="journal.kafka.sasl.token_url")
    return TokenLogin(sasl.token_url, user, password, sasl.scope)
