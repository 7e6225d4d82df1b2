"""How the brokers of the section `journal.kafka` are reached: TLS files and logins, with secrets read now.

Needs no client library. `journals.py` imports it for a home on Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import expanded_path
from mailboat.config.storage import KafkaConfig, KafkaSaslConfig, KafkaTlsConfig, SaslMechanism
from mailboat.errors import UsageError
from mailboat.journal.kafka_settings import KafkaSettings

_SECTION: Final = "journal.kafka"


def kafka_settings(kafka: KafkaConfig, folder: Path) -> KafkaSettings:
    """The adapter's settings; secrets are read now. `folder` is the home, which relative files belong to.

    Raises: UsageError, SecretMissingError.
    """
    if not kafka.bootstrap_servers:
        raise UsageError("`journal.kafka.bootstrap_servers` names no broker", key="journal.kafka.bootstrap_servers")
    tls, key_password = (None, None) if kafka.tls is None else _tls(kafka.tls, folder)
    sasl, password = (None, None) if kafka.sasl is None else _login(kafka.sasl, folder)
    return KafkaSettings(replace(kafka, tls=tls, sasl=sasl), password, key_password)


def _tls(tls: KafkaTlsConfig, folder: Path) -> tuple[KafkaTlsConfig, str | None]:
    """The section with absolute files, and the password of the key."""
    if (tls.certificate_file is None) is not (tls.key_file is None):
        raise UsageError(
            "`journal.kafka.tls` has a certificate without its key, or a key without its certificate",
            key="journal.kafka.tls",
        )
    files: dict[str, Any] = {
        key: str(_file(folder / expanded_path(file), key))
        for key, file in (
            ("ca_file", tls.ca_file),
            ("certificate_file", tls.certificate_file),
            ("key_file", tls.key_file),
        )
        if file is not None
    }
    password = (
        None if tls.key_password is None else read_secret(tls.key_password, f"{_SECTION}.tls.key_password", folder)
    )
    return replace(tls, **files), password


def _file(file: Path, key: str) -> Path:
    if not file.is_file():
        raise UsageError(f"there is no file {file}", key=f"journal.kafka.tls.{key}")
    return file


def _login(sasl: KafkaSaslConfig, folder: Path) -> tuple[KafkaSaslConfig, str]:
    """The section with the user's name, and the password."""
    user = sasl.user
    if sasl.user_from is not None:
        user = read_secret(sasl.user_from, f"{_SECTION}.sasl.user_from", folder)
    if user is None or sasl.password is None:
        raise UsageError("`journal.kafka.sasl` needs `user` and `password`", key="journal.kafka.sasl")
    password = read_secret(sasl.password, f"{_SECTION}.sasl.password", folder)
    if sasl.mechanism is SaslMechanism.OAUTHBEARER and sasl.token_url is None:
        raise UsageError("OAUTHBEARER needs `token_url`", key="journal.kafka.sasl.token_url")
    return replace(sasl, user=user), password
