"""What a record of the discovery topic says, and how far it is trusted: one rule for all readers of the topic.

Anyone may write to it. So an announcement is short, its names are names, and a position counts only where it can be:
in the log that the reader has, and not beyond its end. An invalid record is skipped, never an error. Used by the
roster of subscribers, by distributed events, by staged subscribers, and by retention.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mailboat.errors import UntrustedInputError, UsageError
from mailboat.journal.port import Journal, Record
from mailboat.model.identifiers import SLING_ID_LENGTH, AgentName, Offset, SlingId, TopicName, parse_agent_name
from mailboat.model.messages import DiscoveryMessage
from mailboat.model.positions import LogIdentity
from mailboat.queues.queue_names import QueueName
from mailboat.wire.messages import decode_message

ALIVE_SECONDS: Final = 30.0
"""A subscriber is alive for so long after its last announcement."""

MAX_ANNOUNCEMENT_BYTES: Final = 64 * 1024
"""More than a hundred publishers with the longest names, a target and a whole cause come to in four-byte characters."""

RETAINED_ANNOUNCEMENTS: Final = 2_000
"""How far back the topic is read for who is alive: a hundred subscribers announce as much in three minutes."""


class Announced(NamedTuple):
    """An announcement with where and when the log took it.

    Attributes:
        queue_name: Who.
        offset: The record's.
        appended_ms: The log's time of it.
        message: What it says; None when the subscriber deregisters.
    """

    queue_name: QueueName
    offset: Offset
    appended_ms: int
    message: DiscoveryMessage | None

    def follows(self, publisher: AgentName | None) -> bool:
        """Whether the subscriber imports what this publisher publishes."""
        return self.message is not None and self.message.follows(publisher)

    def claimed_for(self, publisher: AgentName) -> int:
        """What it says to read next of a publisher that it follows; 0 when it has read nothing."""
        return 0 if self.message is None else self.message.reads_next_of(publisher)


class KnownLog:
    """The log of packages as a reader of announcements has it: its valid positions. For one thread."""

    def __init__(self, journal: Journal, topic: TopicName) -> None:
        """Read identity and end of the log. Raises: the journal's errors."""
        self._journal = journal
        self._topic = topic
        self.identity: LogIdentity = journal.identity(topic)
        self._next_offset = journal.bounds(topic).next_offset

    def believed(self, announced: Announced, claim: int | None) -> Offset | None:
        """A position that was announced; None where it is missing, or can't be. Raises: the journal's errors."""
        message = announced.message
        if claim is None or message is None or message.log_identity not in {None, self.identity}:
            return None
        # The end is read again only for a claim beyond it: most announcements cost no request.
        if claim > self._next_offset:
            self._next_offset = self._journal.bounds(self._topic).next_offset
        return Offset(claim) if claim <= self._next_offset else None


def read_announcement(record: Record) -> Announced | None:
    """What a record of the discovery topic says; None for another record, too long a one, or an invalid name.

    A tombstone is the leave of the agent that its key names.
    """
    if not record.value:
        return _leave_of(record)
    # Before it is decoded, which costs a multiple of its size.
    if len(record.value) > MAX_ANNOUNCEMENT_BYTES:
        return None
    try:
        message = decode_message(record.headers, record.value)
        if not isinstance(message, DiscoveryMessage):
            return None
        name = parse_agent_name(message.sub_agent_name)
    except (UntrustedInputError, UsageError):
        return None
    if not _is_sling_id(message.sub_sling_id):
        return None
    key = QueueName(message.sub_sling_id, name)
    return Announced(key, record.offset, record.appended_ms, None if message.takes_leave else message)


def _leave_of(record: Record) -> Announced | None:
    try:
        # A tombstone has no value: its key alone says who left.
        key = (record.key or b"").decode()
        sling_id, name = SlingId(key[:SLING_ID_LENGTH]), parse_agent_name(key[SLING_ID_LENGTH + 1 :])
    except (UnicodeDecodeError, UsageError):
        return None
    if not _is_sling_id(sling_id) or key[SLING_ID_LENGTH] != "-":
        return None
    return Announced(QueueName(sling_id, name), record.offset, record.appended_ms, None)


def _is_sling_id(sling_id: SlingId) -> bool:
    return len(sling_id) == SLING_ID_LENGTH and sling_id.isprintable()
