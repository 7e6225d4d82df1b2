"""Which journal a home has: what the configuration's `journal` comes to.

`open_journal` alone imports the adapters; all other code has the port. A home on Kafka keeps the rest of
its state as any other: identity, what publishers remember, who subscribes. Called by the composition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailboat.clock import Clock
from mailboat.composition.environment import pip_command
from mailboat.composition.home import home_command
from mailboat.composition.kafka_login import kafka_settings
from mailboat.composition.places import check_folder_place
from mailboat.config.storage import KafkaConfig
from mailboat.errors import JournalMissingError, UsageError
from mailboat.journal.sqlite import SqliteJournal

if TYPE_CHECKING:
    from mailboat.composition.home import Home
    from mailboat.journal.port import Journal


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


def _open_file(home: Home, clock: Clock) -> Journal:
    try:
        return SqliteJournal(home.journal_path, clock)
    except JournalMissingError as error:
        if not home.is_made:
            error.advise(home_command(home.path, "init"))
            raise
        lost = home_command(home.path, "init --new-journal")
        error.advise(f"put the journal back, or, when it is lost:\n{lost}")
        raise


def _open_kafka(home: Home, kafka: KafkaConfig, clock: Clock) -> Journal:
    try:
        from mailboat.journal.kafka import KafkaJournal
    except ImportError as error:
        raise ClientMissingError(
            "the configuration names Kafka brokers, but the client library confluent-kafka is not installed",
            next_step=pip_command("mailboat[kafka]"),
        ) from error
    return KafkaJournal(kafka_settings(kafka, home.path), clock)
