"""What the log holds, message by message: the part of an agent's API that looks instead of acting.

`JournalArchive` reads the journal of a workspace. Nothing here changes anything. Called by the HTTP API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mailboat.api.records import Moment
from mailboat.clock import moment_of
from mailboat.composition.workspace import Workspace
from mailboat.errors import DistributionMissingError, TopicMissingError
from mailboat.journal.port import Record
from mailboat.model.identifiers import Offset
from mailboat.model.messages import PackageMessage, TopicRole
from mailboat.model.pieces import is_run
from mailboat.operations.inspection import decode_record, records_of


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic of the journal.

    Attributes:
        role: What it is for: package, status, discovery, command or event.
        name: Its name in the journal.
        earliest_offset: The oldest record there is.
        next_offset: What the next one will get.
    """

    role: str
    name: str
    earliest_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class BinaryView:
    """A large binary that a package refers to.

    Attributes:
        digest: Its SHA-256 in hexadecimal, which is its name in the blob store.
        length_bytes: Its size.
    """

    digest: str
    length_bytes: int


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message on the package topic, without the package itself.

    Attributes:
        offset: Its place.
        appended_at: When the log took it.
        package_id: The package.
        action: ADD, DELETE, INVALIDATE or TEST.
        publisher: The publisher agent; None in messages of the original that have none.
        publisher_instance: The instance that it runs in.
        paths: The request's paths.
        deep_paths: Those of them that mean their whole subtree.
        package_type: The format of the package.
        package_bytes: Its size.
        transport: How it travels: `inline`, `reference`, `pieces` (in the journal, before the message), or `none`.
        payload_ref: Where it is, when it is not inline.
        package_digest: SHA-256 of its bytes, in hexadecimal.
        tree_digest: Digest of its content, in hexadecimal; equal for equal content in any format.
        request_id: The caller's id.
        user_id: Who asked.
        created_at: When the request was made.
        binaries: The large binaries that it refers to.
    """

    offset: int
    appended_at: Moment
    package_id: str
    action: str
    publisher: str | None
    publisher_instance: str
    paths: tuple[str, ...]
    deep_paths: tuple[str, ...]
    package_type: str
    package_bytes: int
    transport: str
    payload_ref: str | None = None
    package_digest: str | None = None
    tree_digest: str | None = None
    request_id: str | None = None
    user_id: str | None = None
    created_at: Moment | None = None
    binaries: tuple[BinaryView, ...] = ()


class LogArchive(Protocol):
    """What may be asked about the log. Safe to call from several threads."""

    def topics(self) -> Sequence[TopicView]:
        """The topics of the configuration that exist. Raises: JournalUnavailableError."""
        ...

    def message(self, offset: int) -> MessageView:
        """The message at an offset of the package topic.

        Raises:
            DistributionMissingError: There is none: retention removed it, or it was never written.
            MessageCorruptError: What is there is no message that can be understood.
        """
        ...


class JournalArchive:
    """See `LogArchive`: over the journal of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        """Read nothing yet."""
        self._workspace = workspace

    def topics(self) -> Sequence[TopicView]:
        """See `LogArchive`."""
        found = []
        for role in TopicRole:
            name = self._workspace.topic(role)
            try:
                bounds = self._workspace.journal.bounds(name)
            except TopicMissingError:
                continue
            found.append(TopicView(role.value, name, bounds.earliest_offset, bounds.next_offset))
        return found

    def message(self, offset: int) -> MessageView:
        """See `LogArchive`."""
        journal, topic = self._workspace.journal, self._workspace.package_topic
        bounds = journal.bounds(topic)
        if bounds.earliest_offset <= offset < bounds.next_offset:
            record = next(iter(records_of(journal, topic, Offset(offset))), None)
            if record is not None and record.offset == offset:
                message = decode_record(record)
                if isinstance(message, PackageMessage):
                    return message_view(record, message)
        raise DistributionMissingError(
            f"the package topic has no package at offset {offset}; it holds {bounds.earliest_offset} up to "
            f"{bounds.next_offset}, without that one",
            topic=topic,
            offset=offset,
        )


def message_view(record: Record, message: PackageMessage) -> MessageView:
    """A message as a document."""
    return MessageView(
        offset=record.offset,
        appended_at=moment_of(record.appended_ms),
        package_id=message.package_id,
        action=message.action.value,
        publisher=message.pub_agent_name,
        publisher_instance=message.pub_sling_id,
        paths=message.paths,
        deep_paths=message.deep_paths,
        package_type=message.package_type,
        package_bytes=message.package_length_bytes,
        transport=_transport(message),
        payload_ref=message.payload_ref,
        package_digest=_hexadecimal(message.package_digest),
        tree_digest=_hexadecimal(message.tree_digest),
        request_id=message.request_id,
        user_id=message.user_id,
        created_at=None if message.created_ms is None else moment_of(message.created_ms),
        binaries=tuple(BinaryView(one.digest.hex(), one.length_bytes) for one in message.binaries),
    )


def _transport(message: PackageMessage) -> str:
    if message.payload is not None:
        return "inline"
    if message.payload_ref is None:
        return "none"
    return "pieces" if is_run(message.payload_ref) else "reference"


def _hexadecimal(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
