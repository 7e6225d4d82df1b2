"""Hears commands: a thread that reads the command topic and keeps what is for this subscriber until it is taken.

Nothing is durable here, and nothing needs to be: a command stays in the log, and the position behind it is stored when
it was taken. What is for others is passed over by a look at its bytes. Called by `CommandDesk`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from mailboat.clock import Clock
from mailboat.errors import JournalReplacedError, PositionOutOfRangeError, UntrustedInputError
from mailboat.journal.port import Edge, Journal, JournalReader, ReadLimits, RecordBatch
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import CommandMessage, RedriveMessage
from mailboat.model.positions import Position
from mailboat.wire.messages import decode_message
from mailboat.workers import Care, Worker, heartbeat

Command = CommandMessage | RedriveMessage

MOST_UNTAKEN: Final = 1000
"""So many commands are held; reading goes on when they were taken."""

_LIMITS: Final = ReadLimits(max_records=1000)
_WAIT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 10.0
_LOG: Final = logging.getLogger(__name__)


class Addressee(NamedTuple):
    """Whom commands must name, and where they come from."""

    sling_id: SlingId
    name: AgentName
    topic: TopicName


class Heard(NamedTuple):
    """Commands in their order, and the position behind them."""

    commands: Sequence[Command]
    position: Position


class CommandListener:
    """Listens from a thread of its own until it is closed."""

    def __init__(self, addressee: Addressee, journal: Journal, clock: Clock, when_heard: Callable[[], None]) -> None:
        """Nothing is read before `catch_up`. `when_heard` is called in the thread."""
        self._addressee = addressee
        self._mark = addressee.name.encode()
        self._journal = journal
        self._when_heard = when_heard
        self._lock = threading.Lock()
        self._beat = heartbeat(clock)
        self._untaken: list[Command] = []
        self._position: Position | None = None
        self._reader: JournalReader | None = None
        care = Care(
            f"hearing commands for {addressee.name}",
            longest_pause_seconds=_PAUSE_SECONDS,
            interrupt=self._interrupt,
            where={"subscriber": addressee.name, "topic": addressee.topic},
        )
        self._worker = Worker(f"commands-{addressee.name}", self._turn, clock, care)

    def catch_up(self, position: Position) -> None:
        """Read from the position what is there now, before anything is imported. Raises: the journal's errors."""
        is_known = position.identity == self._journal.identity(self._addressee.topic)
        self._open(position if is_known else Edge.EARLIEST)
        while not self._read(0.0).is_at_end:
            pass

    def start(self) -> None:
        """Listen from now on."""
        self._worker.start()

    def untaken(self) -> Heard | None:
        """What was heard and not taken; None before the topic was opened."""
        with self._lock:
            return None if self._position is None else Heard(tuple(self._untaken), self._position)

    def drop(self, count: int) -> None:
        """So many of the first commands were taken."""
        with self._lock:
            del self._untaken[:count]
        self._worker.wake()

    def has_clear(self, offset: Offset, publisher: AgentName | None) -> bool:
        """Whether a clear that was not taken yet drops that package."""
        with self._lock:
            return any(
                isinstance(one, CommandMessage)
                and offset <= one.clear_up_to_offset
                and one.pub_agent_name in {None, publisher}
                for one in self._untaken
            )

    def close(self) -> None:
        """End the thread."""
        self._worker.stop(_STOP_SECONDS)
        if self._reader is not None:
            self._reader.close()

    # ---------------------------------------------------------------------------------------------------- the thread

    def _turn(self) -> float:
        if self._is_full():
            return _PAUSE_SECONDS
        if self._read(_WAIT_SECONDS).records and self._untaken:
            self._when_heard()
        return 0.0

    def _interrupt(self) -> None:
        if self._reader is not None:
            self._reader.interrupt()

    def _is_full(self) -> bool:
        with self._lock:
            return len(self._untaken) >= MOST_UNTAKEN

    def _open(self, start: Position | Edge) -> None:
        topic = self._addressee.topic
        identity = self._journal.identity(topic)
        reader = self._journal.reader(topic, start)  # until there is one, the old one is asked
        if self._reader is not None:
            self._reader.close()
        self._reader = reader
        with self._lock:
            self._position = Position(identity, reader.next_offset)

    def _read(self, wait_seconds: float) -> RecordBatch:
        if self._reader is None or self._position is None:
            raise ValueError("the listener was not opened")
        try:
            batch = self._reader.read(_LIMITS, wait_seconds)
        except (PositionOutOfRangeError, JournalReplacedError) as error:
            _LOG.warning("the command topic does not fit what was read of it, so it is read anew: %s", error)
            self._open(Edge.EARLIEST)
            return RecordBatch((), self._reader.next_offset, is_at_end=False)
        found = list(self._ours(batch))
        if batch.records:
            self._beat(0.0)
        with self._lock:
            self._untaken += found
            self._position = Position(self._position.identity, batch.next_offset)
        return batch

    def _ours(self, batch: RecordBatch) -> Iterator[Command]:
        for record in batch.records:
            if self._mark not in record.value:
                continue
            try:
                message = decode_message(record.headers, record.value)
            except UntrustedInputError as error:
                _LOG.warning("the command at %d can't be understood: %s", record.offset, error)
                continue
            if (
                isinstance(message, CommandMessage | RedriveMessage)
                and message.sub_sling_id == self._addressee.sling_id
                and message.sub_agent_name == self._addressee.name
            ):
                yield message
