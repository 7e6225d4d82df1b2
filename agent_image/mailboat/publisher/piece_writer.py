"""Cutting packages into pieces while they are written, and appending those before the message that names them.

A package is written once, into this stream: what does not fit a message goes to the journal meanwhile, one step after
the other, by another thread; nothing is put on disk. All pieces are durable when `finish` returns, so the message can
promise them. A publisher that dies or gives up leaves pieces that no message names: they take space in the log until
retention removes them, and a repeated request cuts the package again.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from mailboat.errors import AppendUncertainError, JournalUnavailableError, LimitExceededError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.pieces import PieceMessage, PieceRun
from mailboat.model.positions import LogIdentity
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import encode_piece

OVERHEAD_BYTES: Final = 512
"""Size of a record without a piece's content: names of at most 63 + 36 + 80 bytes, tags, lengths, headers."""

_LOG: Final = logging.getLogger(__name__)


_MAX_ATTEMPTS: Final = 3  # of an append whose outcome is unknown


class PieceAppender:
    """Appends the pieces of one package, in order, and keeps their offsets."""

    def __init__(
        self, journal: Journal, topic: TopicName, sling_id: SlingId, agent_name: AgentName, package_id: PackageId
    ) -> None:
        """Nothing is appended yet. No two attempts have one package id: their pieces must never meet."""
        self._journal = journal
        self._topic = topic
        self._sender = sling_id, agent_name, package_id
        self._identity: LogIdentity | None = None
        self._first = self._last = Offset(0)
        self._count = 0
        self._length_bytes = 0

    @property
    def run(self) -> PieceRun:
        return PieceRun(self._first, self._last, self._count, self._length_bytes)

    def append(self, contents: Sequence[bytes]) -> None:
        """Append the next pieces. Raises: JournalUnavailableError, StorageFullError."""
        if self._identity is None:
            self._identity = self._journal.identity(self._topic)
        messages = [PieceMessage(*self._sender, self._count + at, one) for at, one in enumerate(contents)]
        offsets = self._append([NewRecord(encode_piece(message), PIECE_HEADERS) for message in messages])
        # After a repeated append these are the offsets of the repetition, and the message names them.
        self._first = offsets[0] if self._count == 0 else self._first
        self._last = offsets[-1]
        self._count += len(contents)
        self._length_bytes += sum(map(len, contents))

    def check_kept(self) -> None:
        """See that the topic still holds what was appended, before a message promises it.

        Raises: JournalUnavailableError: The topic was created again, or its head has moved past the first piece.
        """
        if self._count == 0:
            return
        bounds = self._journal.bounds(self._topic)
        # Asked last: the bounds were those of this topic then.
        if self._journal.identity(self._topic) != self._identity or bounds.earliest_offset > self._first:
            raise JournalUnavailableError(
                f"topic {self._topic} lost pieces of package {self._sender[2]} while it was published",
                next_step="publish again with the same request id",
                topic=self._topic,
                offset=self._first,
            )

    def _append(self, records: list[NewRecord]) -> Sequence[Offset]:
        """Append again where the outcome is unknown: readers take the first of equal pieces."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return self._journal.append(self._topic, records)
            except AppendUncertainError as error:
                if attempt == _MAX_ATTEMPTS:
                    raise
                _LOG.warning("pieces are appended again, as the journal did not answer: %s", error)
        raise JournalUnavailableError("no attempt was made", topic=self._topic)


class PieceWriter(io.RawIOBase):
    """A stream to write one package into. Belongs to one thread; closing it ends the other one.

    What was written is in memory until there is enough for a step, so what is small is never cut: `content` has it.
    """

    def __init__(
        self,
        appender: PieceAppender,
        piece_bytes: int,
        append_bytes: int,
        failpoints: Failpoints,
        max_bytes: int | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin with nothing.

        Args:
            appender: Takes the pieces.
            piece_bytes: Content of one piece at most; with its overhead it must fit what the journal takes.
            append_bytes: Content that is appended in one step, about; some three times that is in memory at once.
            failpoints: Where tests make it fail.
            max_bytes: Of a package; more is refused when it comes to that.
            check: Called before the first piece of a package that is not complete yet. What it raises ends the package.
        """
        super().__init__()
        self._appender = appender
        self._piece_bytes = piece_bytes
        self._append_bytes = append_bytes
        self._reach = failpoints.reach
        self._max_bytes = max_bytes
        self._check = check
        self._contents: list[bytes] = []
        self._rest: list[memoryview] = []  # of the next piece, as it was written
        self._rest_bytes = 0
        self._waiting_bytes = 0
        self._written_bytes = 0
        # One thread: pieces are appended in order while the next ones are cut.
        self._thread = ThreadPoolExecutor(1, "pieces")
        self._step: Future[None] | None = None
        self._has_begun = False

    @property
    def content(self) -> bytes | None:
        """The whole package, where none of it was appended yet; None afterwards."""
        return None if self._has_begun else b"".join([*self._contents, *self._rest])

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        """Take some more. Raises: LimitExceededError; as `PieceAppender.append`, for what was written before."""
        kept = data if isinstance(data, bytes) else bytes(data)  # type: ignore[call-overload]  # ReadableBuffer
        view = memoryview(kept)
        self._written_bytes += len(view)
        if self._max_bytes is not None and self._written_bytes > self._max_bytes:
            raise LimitExceededError(
                f"the package has more than {self._max_bytes} bytes, which is the limit",
                next_step="publish in several requests, or with --changed, which splits the content",
                limit=self._max_bytes,
            )
        self._cut(view)
        if self._waiting_bytes > self._append_bytes:
            if not self._has_begun:
                # Before the first piece: what is in the log can't be taken back when the package is refused later.
                self._check()
            self._begin_step()
        return len(view)

    def finish(self) -> PieceRun:
        """Append what is left, and wait until all is durable. Raises: as `write`."""
        if self._rest:
            self._end_piece()
        if self._contents:
            self._begin_step()
        self._end_step()
        self._appender.check_kept()
        return self._appender.run

    def close(self) -> None:
        """End the thread, after the step that is going on."""
        self._thread.shutdown()
        super().close()

    def _cut(self, view: memoryview) -> None:
        size = self._piece_bytes
        at = 0
        while at < len(view):
            part = view[at : at + size - self._rest_bytes]
            self._rest.append(part)
            self._rest_bytes += len(part)
            at += len(part)
            if self._rest_bytes == size:
                self._end_piece()
        self._waiting_bytes += len(view)

    def _end_piece(self) -> None:
        self._contents.append(b"".join(self._rest))
        self._rest.clear()
        self._rest_bytes = 0

    def _begin_step(self) -> None:
        """Give what is whole to the other thread, once that has done what it was given before."""
        self._end_step()
        # The step before has ended: pieces keep their order, and memory stays bounded.
        contents, self._contents = self._contents, []
        # The begun piece stays: only the last one of a package may be shorter than `piece_bytes`.
        self._waiting_bytes = self._rest_bytes
        if contents:
            self._step, self._has_begun = self._thread.submit(self._appender.append, contents), True

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.result()
            self._reach(Failpoint.PUBLISHER_PIECES_APPENDED)
