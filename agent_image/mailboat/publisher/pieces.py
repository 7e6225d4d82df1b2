"""Cutting packages into pieces, and appending them before the message that names them.

The pieces are durable when `append_pieces` returns, so the message can promise them. They are cut of the package as it
is; a journal that compresses does so piece by piece. A publisher that dies leaves pieces that nobody asks for:
they cost a place in the log until retention removes them, and a repeated request cuts anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import BinaryIO, Final

from mailboat.errors import AppendUncertainError, JournalUnavailableError, SourceChangedError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.pieces import PieceMessage, PieceRun
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.pieces import encode_piece

OVERHEAD_BYTES: Final = 512
"""What a record needs beside a piece's content: names of at most 63 + 36 + 80 bytes, tags, lengths, headers."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PieceSettings:
    """How is cut.

    Attributes:
        piece_bytes: Content of one piece at most; with its overhead it must fit what the journal takes.
        append_bytes: Content that is appended in one step, about: what is in memory at once.
        max_attempts: How often an append whose outcome is unknown is made again.
    """

    piece_bytes: int = 800 * 1024
    append_bytes: int = 4 * 1024 * 1024
    max_attempts: int = 3


class PieceAppender:
    """Appends the pieces of one publisher's packages."""

    def __init__(self, journal: Journal, topic: TopicName, settings: PieceSettings, failpoints: Failpoints) -> None:
        """Nothing is appended yet."""
        self._journal = journal
        self._topic = topic
        self._settings = settings
        self._reach = failpoints.reach

    def append_pieces(
        self, package: BinaryIO, length_bytes: int, sender: tuple[SlingId, AgentName], package_id: PackageId
    ) -> PieceRun:
        """Cut the package from where the stream stands, and append all pieces in order.

        Args:
            package: The package's bytes.
            length_bytes: How many there are.
            sender: The publisher's instance and agent.
            package_id: Of this attempt alone: pieces of two attempts must never meet under one id.

        Raises:
            JournalUnavailableError, StorageFullError: Try again with another package id.
            SourceChangedError: The stream did not hold `length_bytes`.
        """
        index, taken = 0, 0
        first = last = Offset(0)
        while taken < length_bytes:
            contents = self._read(package, length_bytes - taken)
            messages = [PieceMessage(*sender, package_id, index + at, one) for at, one in enumerate(contents)]
            offsets = self._append([NewRecord(encode_piece(one), PIECE_HEADERS) for one in messages])
            if index == 0:
                first = offsets[0]
            last = offsets[-1]
            index += len(contents)
            taken += sum(map(len, contents))
            self._reach(Failpoint.PUBLISHER_PIECES_APPENDED)
        return PieceRun(first, last, index, length_bytes)

    def _read(self, package: BinaryIO, left: int) -> list[bytes]:
        contents: list[bytes] = []
        total = 0
        while total < min(left, self._settings.append_bytes):
            content = package.read(min(self._settings.piece_bytes, left - total))
            if not content:
                raise SourceChangedError("the package ended before its length while it was cut into pieces")
            contents.append(content)
            total += len(content)
        return contents

    def _append(self, records: list[NewRecord]) -> list[Offset]:
        """Append once more where the outcome is unknown: readers take the first of equal pieces."""
        for attempt in range(1, self._settings.max_attempts + 1):
            try:
                return list(self._journal.append(self._topic, records))
            except AppendUncertainError as error:
                if attempt == self._settings.max_attempts:
                    raise
                _LOG.warning("pieces are appended again, as the journal did not answer: %s", error)
        raise JournalUnavailableError("no attempt was made", topic=self._topic)
