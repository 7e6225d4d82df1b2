"""Which journal a home has, and how its topics are kept: what the configuration's `journal` and `retention` come to.

`open_journal` alone imports the adapters; all other code has the port. A home on Kafka keeps the rest of
its state as any other: identity, what publishers remember, who subscribes. Called by the composition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mailboat.clock import Clock
from mailboat.composition.kafka_login import kafka_settings
from mailboat.composition.places import check_folder_place
from mailboat.config.storage import KafkaConfig, RetentionConfig, TopicRetentionConfig
from mailboat.errors import JournalMissingError, UsageError
from mailboat.journal.port import TopicSettings
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.messages import TopicRole

if TYPE_CHECKING:
    from mailboat.composition.home import Home
    from mailboat.journal.port import Journal

_SMALL_MESSAGE_BYTES: Final = 256 * 1024  # of statuses, commands and announcements, which hold no content
_LARGE_MESSAGE_BYTES: Final = 1_000_000
_ANNOUNCEMENTS_BYTES: Final = 64 * 1024 * 1024  # only the newest of each subscriber counts
_SLACK_SECONDS: Final = 3600.0  # no publisher takes longer from a package's first piece to its message
_SLACK_SHARE: Final = 4  # a package larger than that share of all that is kept would be cut by the brokers


class ClientMissingError(UsageError):
    """The configuration names a system whose client library is not installed. The message says what to install."""


def open_journal(home: Home, clock: Clock) -> Journal:
    """The journal of a home: its SQLite file, or Kafka where the configuration names brokers.

    Raises:
        JournalMissingError, JournalCorruptError, JournalTooNewError: Of the file.
        ClientMissingError: The extra `kafka` is not installed.
        ConfigInvalidError, SecretMissingError: A login can't be put together.
    """
    kafka = home.config.journal.kafka
    return _open_file(home, clock) if kafka is None else _open_kafka(home, kafka, clock)


def make_journal(home: Home, clock: Clock) -> None:
    """Make the file of an embedded journal, unless it is there; on Kafka there is nothing to make but topics."""
    if home.config.journal.kafka is None:
        check_folder_place(home.journal_path.parent)
        SqliteJournal.create(home.journal_path, clock).close()


def topic_settings(role: TopicRole, retention: RetentionConfig, *, is_head_kept: bool = False) -> TopicSettings:
    """How a topic is kept, as fits what it carries.

    Args:
        role: Of the topic.
        retention: What the configuration says.
        is_head_kept: Whether agents move the head of the package topic to borders of whole packages, so that a log
            that removes by itself has to come after them.
    """
    kept = topic_retention(role, retention)
    return TopicSettings(
        retention_seconds=_later(kept.seconds) if is_head_kept and role is TopicRole.PACKAGE else kept.seconds,
        retention_bytes=_larger(kept.bytes) if is_head_kept and role is TopicRole.PACKAGE else kept.bytes,
        max_message_bytes=_LARGE_MESSAGE_BYTES
        if role in {TopicRole.PACKAGE, TopicRole.EVENT}
        else _SMALL_MESSAGE_BYTES,
    )


def topic_retention(role: TopicRole, retention: RetentionConfig) -> TopicRetentionConfig:
    """How long a topic keeps its messages."""
    own = {
        TopicRole.PACKAGE: TopicRetentionConfig(retention.package_seconds, retention.package_bytes),
        TopicRole.STATUS: retention.status,
        TopicRole.DISCOVERY: retention.discovery,
        TopicRole.COMMAND: retention.command,
        TopicRole.EVENT: retention.event,
    }[role]
    if own is not None:
        return own
    return TopicRetentionConfig(retention.status_seconds, _ANNOUNCEMENTS_BYTES if role is TopicRole.DISCOVERY else None)


def _later(seconds: float | None) -> float | None:
    return None if seconds is None else seconds + _SLACK_SECONDS


def _larger(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else size_bytes + size_bytes // _SLACK_SHARE


def _open_file(home: Home, clock: Clock) -> Journal:

    try:
        return SqliteJournal(home.journal_path, clock)
    except JournalMissingError as error:
        if not home.is_made:
            error.advise(f"mailboat --home {home.path} init")
            raise
        error.advise(f"put the journal back, or, when it is lost:\nmailboat --home {home.path} init --new-journal")
        raise


def _open_kafka(home: Home, kafka: KafkaConfig, clock: Clock) -> Journal:
    try:
        from mailboat.journal.kafka import KafkaJournal
    except ImportError as error:
        raise ClientMissingError(
            "the configuration names Kafka brokers, but the client library confluent-kafka is not installed",
            next_step='pip install "mailboat[kafka]"',
        ) from error
    return KafkaJournal(kafka_settings(kafka, home.path), clock)
