"""Looking into a journal: what its topics hold, and what a record says.

Nothing here changes anything. Called by `mailboat journal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mailboat.clock import Clock, moment_of
from mailboat.errors import PositionOutOfRangeError
from mailboat.journal.port import Journal, Record, records_of
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    DiscoveryMessage,
    DistributedEvent,
    Message,
    PackageMessage,
    RedriveMessage,
    StatusMessage,
    SuspendMessage,
)
from mailboat.model.pieces import PieceMessage, is_run
from mailboat.model.registrations import RegistryMessage
from mailboat.queues.entries import readable_package
from mailboat.wire.event_documents import RecordedJobEvent, decode_event, decode_job_event
from mailboat.wire.messages import decode_message
from mailboat.wire.protobuf import MAX_NAME_CHARACTERS

if TYPE_CHECKING:
    from mailboat.composition.workspace import Workspace

_LAST_MESSAGES: Final = 20
_WAYS: Final = {"inline": "inline", "reference": "by reference", "pieces": "in pieces", "none": "no package"}
"""How a summary names the transport of a package."""


def recent_publishers(journal: Journal, topic: TopicName) -> Mapping[AgentName, datetime]:
    """Publishers of the last messages on the package topic, and when their newest was appended."""
    bounds = journal.bounds(topic)
    start = Offset(max(bounds.earliest_offset, bounds.next_offset - _LAST_MESSAGES))
    found: dict[AgentName, datetime] = {}
    with suppress(PositionOutOfRangeError):  # retention removed the first of them since the bounds were read
        for record in records_of(journal, topic, start):
            message = readable_package(record)
            if message is None or message.pub_agent_name is None:
                continue
            if len(message.pub_agent_name) <= MAX_NAME_CHARACTERS:
                found[message.pub_agent_name] = moment_of(record.appended_ms)
    return found


class RecentPublishers:
    """The recent publishers of a journal, for processes that ask twice a second. Safe to use from several threads.

    Reading them opens a reader, which on Kafka is a new client, and fetches up to twenty packages.
    """

    def __init__(self, workspace: Workspace, clock: Clock, again_seconds: float = 0.0) -> None:
        """Read nothing yet; while the log grows, at most once in `again_seconds`."""
        self._again_seconds = again_seconds
        self._workspace = workspace
        self._clock = clock
        # One tuple, replaced as a whole: the end of the log, when it was read, and what was found.
        self._read: tuple[int, float, Mapping[AgentName, datetime]] = (-1, float("-inf"), {})

    @property
    def found(self) -> Mapping[AgentName, datetime]:
        """Those that were found last."""
        return self._read[2]

    def read(self, end: int) -> Mapping[AgentName, datetime]:
        """Those of a log that ends there now; seconds old while it grows. Raises: the journal's errors."""
        now = self._clock.monotonic()
        before, read_at, found = self._read
        if before != end and now - read_at >= self._again_seconds:
            self._read = before, now, found  # also where the read fails
            found = recent_publishers(self._workspace.journal, self._workspace.package_topic)
            self._read = end, now, found
        return found


def decode_record(record: Record, *, is_event: bool = False) -> Message | DistributedEvent | RecordedJobEvent:
    """What a record says. Raises: MessageCorruptError."""
    if not is_event:
        return decode_message(record.headers, record.value)
    return decode_job_event(record.headers, record.value) or decode_event(record.headers, record.value)


def summary_of(message: Message | DistributedEvent | RecordedJobEvent) -> str:
    """One line that says what a message is about."""
    match message:
        case PackageMessage() | PieceMessage():
            return _package_summary(message)
        case StatusMessage():
            cause = "" if message.cause is None else f"   {message.cause.code}: {message.cause.message}"
            return f"{message.sub_agent_name}: {message.status} offset {message.offset}{cause}"
        case DiscoveryMessage() | RegistryMessage():
            return _member_summary(message)
        case CommandMessage() | RedriveMessage() | SuspendMessage() | CommandResult():
            return f"{message.sub_agent_name}: {_command_summary(message)}"
        case DistributedEvent():
            return f"distributed {message.package_id} offset {message.offset}"
    return "ping" if not isinstance(message, RecordedJobEvent) else f"{message.type} job {message.job}"


def _package_summary(message: PackageMessage | PieceMessage) -> str:
    if isinstance(message, PieceMessage):
        return f"piece {message.index} of {message.package_id}   {len(message.content)} bytes"
    paths = " ".join(message.paths[:3]) + (f" … {len(message.paths)} paths" if len(message.paths) > 3 else "")
    way = _WAYS[transport_of(message)]
    return f"{message.action} {paths}".rstrip() + f"   {message.package_length_bytes} bytes {way}"


def _member_summary(message: DiscoveryMessage | RegistryMessage) -> str:
    if isinstance(message, RegistryMessage):
        return f"registered: {', '.join(registration.name for registration in message.registrations[:5]) or 'none'}"
    states = ", ".join(f"{state.pub_agent_name} at {state.offset}" for state in message.states)
    return f"{message.sub_agent_name}: {message.state or 'alive'}   {states}".rstrip()


def transport_of(message: PackageMessage) -> str:
    """How the package travels: `inline`, `reference`, `pieces` (in the journal, before the message), or `none`."""
    if message.payload is not None:
        return "inline"
    if message.payload_ref is None:
        return "none"
    return "pieces" if is_run(message.payload_ref) else "reference"


def _command_summary(message: CommandMessage | RedriveMessage | SuspendMessage | CommandResult) -> str:
    if isinstance(message, CommandMessage):
        return f"clear up to offset {message.clear_up_to_offset}"
    if isinstance(message, RedriveMessage):
        return f"redrive offset {message.offset}"
    if isinstance(message, SuspendMessage):
        return str(message.verb)
    told = "" if message.message is None else f"   {message.message}"
    return f"{message.verb} offset {message.offset} {message.state}{told}"
