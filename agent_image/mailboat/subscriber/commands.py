"""Commands to a subscriber: which are taken, what a clear covers, the answers, and the thread that reads them.

    clear of a package that the log does not hold yet    refused: such a package does not exist
    clear, and this subscriber is not editable           refused
    clear of what is done already                        done, nothing to drop
    any other clear                                      open until the position is behind it; packages of the named
                                                         publisher up to it are dropped, also those that come later
    redrive of an imported package with a pending hook   done: the hook `after` is called again
    redrive of what is not in the error queue            refused
    any other redrive                                    open until the package is imported or failed again
    suspend                                              done: nothing is imported before a resume, or its time
    resume                                               done, also where nothing is suspended
    a command whose id was answered                      the same answer again
    a command whose id is open                           nothing: its answer will come
    a command that was open when the target was restored refused at the next start: the content before is gone
    a clear without an id that an open one covers        nothing: the open one has the same effect
    anything else while 1,000 commands are open          refused: every package is compared with all of them

A command becomes durable together with the position behind it, between two batches; what it has dropped, and its
answer, together with the content. `CommandHandler` belongs to the subscriber's thread, except for `has_new_clear`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mailboat.clock import Clock, milliseconds_now
from mailboat.content.port import Batch, OpenCommand
from mailboat.errors import JournalReplacedError, PositionOutOfRangeError, StopError, UntrustedInputError
from mailboat.failpoints import Failpoint
from mailboat.frozen import Frozen
from mailboat.journal.port import Edge, Journal, JournalReader, ReadLimits, RecordBatch
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    RedriveMessage,
    SuspendMessage,
    Suspension,
)
from mailboat.model.positions import Position
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings
from mailboat.wire.messages import decode_message
from mailboat.workers import Worker, WorkerOptions, heartbeat

MOST_OPEN: Final = 1000
"""So many commands may be open; more are refused."""

MOST_UNTAKEN: Final = 1000
"""So many commands are held in memory; reading goes on when the subscriber has taken them."""

_RESTORED: Final = "the target was restored before the command was done: send it again if it is still wanted"
_REFUSED: Final = CommandState.REFUSED
_DONE: Final = CommandState.DONE
_READ: Final = ReadLimits(max_records=1000)
_WAIT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 10.0
_LOG: Final = logging.getLogger(__name__)

Command = CommandMessage | RedriveMessage | SuspendMessage


# ---------------------------------------------------------------------------------------------------------- decisions


class SubscriberSuspendedError(StopError):
    """Imports are suspended, so `--until caught-up` cannot end. `mailboat subscribers resume` resumes them."""


class CommandFacts(Frozen):
    """What a decision about a command depends on.

    Attributes:
        is_editable: Whether the subscriber takes clears.
        follow: The publishers that it follows; None is all.
        next_offset: Everything below it is done.
        log_next_offset: Where the log ends.
        given_up: The offsets in the error queue.
    """

    is_editable: bool
    follow: Collection[AgentName] | None
    next_offset: Offset
    log_next_offset: Offset
    given_up: Collection[Offset]


class Reply(Frozen):
    """How a command that is over at once is answered."""

    state: CommandState
    message: str


def decide_command(command: Command, facts: CommandFacts) -> Reply | None:
    """Decide about a new command: its reply if it is over at once, None if it stays open."""
    if isinstance(command, CommandMessage):
        return _decide_clear(command, facts)
    if isinstance(command, SuspendMessage):
        return Reply(_DONE, "imports are suspended" if command.suspended else "imports resume")
    if command.offset not in facts.given_up:
        return Reply(_REFUSED, f"no error-queue entry and no failed hook call at offset {command.offset}")
    return None


def _decide_clear(command: CommandMessage, facts: CommandFacts) -> Reply | None:
    offset, publisher = command.clear_up_to_offset, command.pub_agent_name
    if not facts.is_editable:
        return Reply(_REFUSED, f"{command.sub_agent_name} is not editable, so it takes no clear commands")
    if publisher is not None and facts.follow is not None and publisher not in facts.follow:
        return Reply(_REFUSED, f"{command.sub_agent_name} does not follow {publisher}")
    if offset >= facts.log_next_offset:
        return Reply(_REFUSED, f"the offset {offset} is beyond the log, which ends at {facts.log_next_offset}")
    if offset < facts.next_offset:
        return Reply(_DONE, f"everything up to the offset {offset} was done before")
    return None


def unexpired(suspension: Suspension | None, clock: Clock) -> Suspension | None:
    """The suspension, unless its time has passed."""
    return None if suspension is None or suspension.is_over(milliseconds_now(clock)) else suspension


def _covering(commands: Iterable[OpenCommand], offset: Offset, publisher: AgentName | None) -> OpenCommand | None:
    """The first clear that drops a package at the offset; one that names no publisher drops those of all."""
    for command in commands:
        is_clear = command.verb is CommandVerb.CLEAR
        if is_clear and offset <= command.offset and command.pub_agent_name in {None, publisher}:
            return command
    return None


def _is_needless(command: Command, opened: Iterable[OpenCommand]) -> bool:
    """Whether it is a clear that wants no answer, and another one that is open does all that it asks for."""
    return (
        isinstance(command, CommandMessage)
        and command.command_id is None
        and _covering(opened, command.clear_up_to_offset, command.pub_agent_name) is not None
    )


def _opened(command: Command, next_offset: Offset) -> OpenCommand:
    """The command as the target keeps it; `next_offset` is what the subscriber reads next."""
    if isinstance(command, SuspendMessage):
        return OpenCommand(0, command.verb, next_offset, None, command.command_id)
    is_clear = isinstance(command, CommandMessage)
    verb = CommandVerb.CLEAR if is_clear else CommandVerb.REDRIVE
    offset = command.clear_up_to_offset if isinstance(command, CommandMessage) else command.offset
    return OpenCommand(0, verb, offset, command.pub_agent_name, command.command_id)


# -------------------------------------------------------------------------------------------------------- the handler


class CommandHandler:
    """The commands of one subscriber."""

    def __init__(
        self, settings: SubscriberSettings, ports: SubscriberPorts, on_received: Callable[[], None] | None = None
    ) -> None:
        """Nothing is read yet. `on_received` is called in the listener's thread when there is a command to take."""
        self._settings = settings
        self._ports = ports
        self._ledger = ports.target.ledger.commands
        self._listener: CommandListener | None = None
        if settings.command_topic is not None:
            self._listener = CommandListener(settings, settings.command_topic, ports.journal, ports.clock, on_received)
        self._open: list[OpenCommand] = []
        self._suspension: Suspension | None = None
        self._dropped: Counter[int] = Counter()

    def claim_position(self) -> None:
        """Store where a new target's commands begin: what was sent before it was there is not meant for it.

        Call it before the subscriber is announced. Raises: the journal's and the target's errors.
        """
        topic = self._settings.command_topic
        if topic is None or self._ledger.position() is not None:
            return
        # Only where the target has no position: a restart goes on behind what was taken.
        identity = self._ports.journal.identity(topic)
        self._ledger.take([], [], Position(identity, self._ports.journal.bounds(topic).next_offset))

    def listen(self) -> None:
        """Read what was sent while the listener was down, and listen. Again it does nothing. Raises: as above."""
        self._load()
        if self._listener is None:
            return
        # Before the thread starts: a clear that was sent meanwhile must cover the first package already.
        if self._listener.untaken() is None:
            self._catch_up(self._listener)
        # Also after a failure of an earlier call to catch up: `take` reads on from there.
        self._listener.start()

    def load(self, *, is_read: bool) -> None:
        """Read the open commands and, on request, sent ones, without listening. Raises: as above."""
        self._load()
        if is_read and self._listener is not None:
            self._catch_up(self._listener)

    def _load(self) -> None:
        """Read what the target keeps, after what a restore made void is answered."""
        for command in self._ledger.open_commands():
            if command.is_void:
                self._ledger.settle(command, self._answer(command, Reply(_REFUSED, _RESTORED)))
        self._open = list(self._ledger.open_commands())
        self._suspension = self._ledger.suspension()

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def _catch_up(self, listener: CommandListener) -> None:
        self.claim_position()
        position = self._ledger.position()
        if position is None:
            raise ValueError("the position was just stored")
        listener.catch_up(position)

    def suspension(self) -> Suspension | None:
        """The suspension of imports that holds now."""
        return unexpired(self._suspension, self._ports.clock)

    def has_new_clear(self, offset: Offset, publisher: AgentName | None) -> bool:
        """Whether a clear that was read, and not yet stored, drops a package. From any thread."""
        return self._listener is not None and self._listener.has_clear(offset, publisher)

    def take(self, position: Position, retry_hook: Callable[[Offset], bool]) -> bool:
        """Make the commands that arrived durable; return whether there were any.

        `retry_hook` makes the call of the hook `after` for one package again, if it is still to be made.

        Raises: the journal's and the target's errors.
        """
        listener, has_taken, is_complete = self._listener, False, False
        if listener is None or listener.untaken() is None:
            return False
        while not is_complete:
            # Usually true at once. After a start with more commands than fit into memory, the rest is read here: a
            # clear among them must cover the first package.
            is_complete = listener.read_on()
            received = listener.untaken()
            if received is not None and received[0]:
                self._store(*received, position, retry_hook)
                # Only after they are stored: after a failure the next call takes the same commands.
                listener.drop(len(received[0]))
                self._ports.failpoints.reach(Failpoint.SUBSCRIBER_COMMANDS_TAKEN)
                self._open = list(self._ledger.open_commands())
                has_taken = True
        return has_taken

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    # --------------------------------------------------------------------------------------------------------- clears

    def covering(self, offset: Offset, publisher: AgentName | None) -> OpenCommand | None:
        """The clear that drops a package; None when it is to be imported."""
        return _covering(self._open, offset, publisher)

    def begin(self) -> None:
        """A batch begins: nothing is dropped in it yet."""
        self._dropped.clear()

    def count_dropped(self, command: OpenCommand) -> None:
        self._dropped[command.sequence] += 1

    def settle(self, batch: Batch, position: Position) -> bool:
        """Add the effects of clears up to the position to the batch; True if there is an answer."""
        is_answered = False
        for command in self._open:
            # The count is stored with the batch: after a rollback the same packages are dropped and counted again.
            removed = command.removed + self._dropped[command.sequence]
            is_over = command.verb is CommandVerb.CLEAR and command.offset < position.next_offset
            if is_over or removed != command.removed:
                noted = replace(command, removed=removed)
                batch.note_command(noted, self._cleared(noted) if is_over else None)
            is_answered = is_answered or is_over
        return is_answered

    def committed(self) -> None:
        if self._open:
            self._open = list(self._ledger.open_commands())
        self._dropped.clear()

    def settle_due(self, position: Position) -> bool:
        """Answer the clears that the position is behind though no batch was committed; whether there were any."""
        due = [
            command
            for command in self._open
            if command.verb is CommandVerb.CLEAR and command.offset < position.next_offset
        ]
        for command in due:
            self._ledger.settle(command, self._cleared(command))
        if due:
            self._open = list(self._ledger.open_commands())
        return bool(due)

    def refuse_open(self, message: str) -> None:
        """The log is not the one that the open commands were meant for."""
        for command in self._ledger.open_commands():
            self._ledger.settle(command, self._answer(command, Reply(_REFUSED, message)))
        self._open = list(self._ledger.open_commands())

    # -------------------------------------------------------------------------------------------------------- redrives

    def settle_redrives(self) -> bool:
        """Answer the redrives that are over, by what the error queue says; whether there were any."""
        redrives = [command for command in self._open if command.verb is CommandVerb.REDRIVE]
        if not redrives:
            return False
        target = self._ports.target.ledger
        waiting = {redrive.offset for redrive in target.redrives()}
        over = [redrive for redrive in redrives if redrive.offset not in waiting]
        # Read for their causes, and only where a package failed again.
        is_failed = not target.given_up_offsets.isdisjoint(redrive.offset for redrive in over)
        failed = {entry.offset: entry for entry in target.given_up()} if is_failed else {}
        for redrive in over:
            entry = failed.get(redrive.offset)
            if entry is None:
                answer = self._answer(replace(redrive, removed=1), Reply(_DONE, "the package was imported"))
            else:
                answer = self._answer(redrive, Reply(_REFUSED, f"{entry.cause.code}: {entry.cause.message}"))
            self._ledger.settle(redrive, answer)
        self._open = list(self._ledger.open_commands())
        return bool(over)

    # --------------------------------------------------------------------------------------------------------- answers

    def _store(
        self,
        commands: Sequence[Command],
        behind: Position,
        position: Position,
        retry_hook: Callable[[Offset], bool],
    ) -> None:
        settings = self._settings
        facts = CommandFacts(
            settings.is_editable,
            settings.follow,
            position.next_offset,
            self._ports.journal.bounds(settings.package_topic).next_offset,
            self._ports.target.ledger.given_up_offsets,
        )
        suspension = self._suspension
        opened: list[OpenCommand] = []
        answers: list[CommandResult] = []
        before = self._ledger.open_commands()
        # commands of Sling have no id: none of them is a repetition
        known = {command.command_id for command in before} - {None}
        for command in commands:
            if command.command_id in known:
                continue
            answer = self._known_answer(command, answers)
            # a repeated command must not undo the resume that came after it
            if answer is None and isinstance(command, SuspendMessage):
                since_ms = milliseconds_now(self._ports.clock)
                suspension = Suspension(since_ms, command.until_ms) if command.suspended else None
            answer = answer or self._decided(command, facts, retry_hook)
            if answer is None and _is_needless(command, (*before, *opened)):
                continue
            if answer is None and len(before) + len(opened) >= MOST_OPEN:
                answer = self._refused(command, facts, f"{MOST_OPEN:,} commands are open already")
            if answer is None:
                opened.append(_opened(command, position.next_offset))
                known |= {command.command_id} - {None}
            elif command.command_id is not None:
                answers.append(answer)
        # One transaction: after a crash these commands are read again, or none of them is.
        self._ledger.take(opened, answers, behind, suspension)
        self._suspension = suspension

    def _known_answer(self, command: Command, answers: Sequence[CommandResult]) -> CommandResult | None:
        if command.command_id is None:
            return None
        # Answers of this batch are not in the target yet.
        same = (answer for answer in answers if answer.command_id == command.command_id)
        return next(same, None) or self._ledger.answer_to(command.command_id)

    def _decided(
        self, command: Command, facts: CommandFacts, retry_hook: Callable[[Offset], bool]
    ) -> CommandResult | None:
        reply = decide_command(command, facts)
        if reply is None:
            return None
        if isinstance(command, RedriveMessage) and retry_hook(command.offset):
            reply = Reply(_DONE, "the hook `after` is called again")
        if reply.state is _REFUSED:
            return self._refused(command, facts, reply.message)
        return self._answer(_opened(command, facts.next_offset), reply)

    def _refused(self, command: Command, facts: CommandFacts, message: str) -> CommandResult:
        _LOG.warning("a command is refused: %s", message)
        return self._answer(_opened(command, facts.next_offset), Reply(_REFUSED, message))

    def _cleared(self, command: OpenCommand) -> CommandResult:
        told = "1 package was dropped" if command.removed == 1 else f"{command.removed} packages were dropped"
        return self._answer(command, Reply(_DONE, told))

    def _answer(self, command: OpenCommand, reply: Reply) -> CommandResult:
        return CommandResult(
            command.command_id or "",
            self._settings.sling_id,
            self._settings.name,
            command.verb,
            command.offset,
            reply.state,
            command.pub_agent_name,
            command.removed,
            reply.message,
            milliseconds_now(self._ports.clock),
        )


# ------------------------------------------------------------------------------------------------------- the listener


class CommandListener:
    """Reads the command topic in its own thread, and keeps commands to this subscriber until taken.

    Nothing here is durable, and nothing needs to be: a command stays in the log, and the position behind it is stored
    when it is taken. Records for other subscribers are skipped by a search for the name in their bytes.
    """

    def __init__(
        self,
        settings: SubscriberSettings,
        topic: TopicName,
        journal: Journal,
        clock: Clock,
        on_received: Callable[[], None] | None,
    ) -> None:
        """Nothing is read before `catch_up`. `on_received` is called in the thread."""
        self._settings = settings
        self._topic = topic
        self._mark = settings.name.encode()
        self._journal = journal
        self._on_received = on_received
        self._lock = threading.Lock()
        self._beat = heartbeat(clock)
        self._untaken: list[Command] = []
        self._position: Position | None = None
        self._reader: JournalReader | None = None
        self._is_caught_up = False
        self._is_listening = False
        options = WorkerOptions(
            f"hearing commands for {settings.name}",
            longest_pause_seconds=_PAUSE_SECONDS,
            interrupt=self._interrupt,
            where={"subscriber": settings.name, "topic": topic},
        )
        self._worker = Worker(f"commands-{settings.name}", self._turn, clock, options)

    def catch_up(self, position: Position) -> None:
        """Read from the position to the current end, as far as memory allows; `read_on` reads the rest.

        Raises: the journal's errors.
        """
        # In another log the offset of the position means nothing.
        is_known = position.identity == self._journal.identity(self._topic)
        self._open(position if is_known else Edge.EARLIEST)
        self.read_on()

    def read_on(self) -> bool:
        """Whether the end was reached since `catch_up`; False: the list is full. Raises: as the journal."""
        while not self._is_caught_up:
            if self._is_full():
                return False
            self._is_caught_up = self._read(0.0).is_at_end
            self._start_thread()
        return True

    def start(self) -> None:
        """Listen from now on, or once `read_on` has reached the end. Again it does nothing."""
        self._is_listening = True
        self._start_thread()

    def untaken(self) -> tuple[Sequence[Command], Position] | None:
        """Commands that were read and not taken, and the position behind them; None before the topic was opened."""
        with self._lock:
            return None if self._position is None else (tuple(self._untaken), self._position)

    def drop(self, count: int) -> None:
        """So many of the first commands were taken."""
        with self._lock:
            # The listener only appends, so the first ones are still those that were taken.
            del self._untaken[:count]
        # it pauses while the list is full
        self._worker.wake()

    def has_clear(self, offset: Offset, publisher: AgentName | None) -> bool:
        """Whether a clear that was not taken yet drops that package."""
        with self._lock:
            return any(
                isinstance(command, CommandMessage)
                and offset <= command.clear_up_to_offset
                and command.pub_agent_name in {None, publisher}
                for command in self._untaken
            )

    def close(self) -> None:
        # The thread ends first: it uses the reader.
        self._worker.stop(_STOP_SECONDS)
        if self._reader is not None:
            self._reader.close()

    # ---------------------------------------------------------------------------------------------------- the thread

    def _turn(self) -> float:
        # Backpressure: the topic keeps what is not read yet.
        if self._is_full():
            return _PAUSE_SECONDS
        if self._read(_WAIT_SECONDS).records and self._untaken and self._on_received is not None:
            self._on_received()
        return 0.0

    def _interrupt(self) -> None:
        if self._reader is not None:
            self._reader.interrupt()

    def _is_full(self) -> bool:
        with self._lock:
            return len(self._untaken) >= MOST_UNTAKEN

    def _start_thread(self) -> None:
        # not before the end was reached: until then the reader belongs to the subscriber's thread
        if self._is_listening and self._is_caught_up:
            self._worker.begin()

    def _open(self, start: Position | Edge) -> None:
        topic = self._topic
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
            batch = self._reader.read(_READ, wait_seconds)
        except (PositionOutOfRangeError, JournalReplacedError) as error:
            _LOG.warning(
                "the command topic does not match the records read before, and is read again from the start: %s", error
            )
            self._open(Edge.EARLIEST)
            return RecordBatch((), self._reader.next_offset, is_at_end=False)
        found = list(self._ours(batch))
        if batch.records:
            self._beat(0.0)
        with self._lock:
            # Both change under one lock: `take` stores these commands together with the position behind them.
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
                isinstance(message, Command)
                and message.sub_sling_id == self._settings.sling_id
                and message.sub_agent_name == self._settings.name
            ):
                yield message
