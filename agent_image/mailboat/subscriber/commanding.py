"""Commands to a subscriber: what to do about each, what a clear covers, and the answers.

    clear of a package that the log does not hold yet    refused: nobody can mean what is not there
    clear, and this subscriber is not editable           refused
    clear of what was done before                        done, nothing to drop
    any other clear                                      open until the position is behind it; packages of the named
                                                         publisher up to it are dropped, also those that come later
    redrive of an imported package with a pending hook   done: the hook `after` is called again
    redrive of what is not in the error queue            refused
    any other redrive                                    open until the package is imported or failed again
    a command whose id was answered                      the same answer again
    a command whose id is open                           nothing: its answer will come
    a clear without an id that an open one covers        nothing: the open one does it
    anything else while 1,000 commands are open          refused: each package looks at all of them

A command becomes durable with the position behind it, between two batches; what it has dropped, and its answer, with
the content. `CommandDesk` belongs to the subscriber's thread, but for `is_cleared_meanwhile`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from mailboat.content.commands import OpenCommand
from mailboat.content.port import Batch, GivenUp
from mailboat.failpoints import Failpoint
from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import CommandMessage, CommandResult, CommandState, CommandVerb, RedriveMessage
from mailboat.model.positions import Position
from mailboat.subscriber.guarding import ImportGuard
from mailboat.subscriber.listening import Addressee, Command, CommandListener, Heard
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings

MOST_OPEN: Final = 1000
"""So many commands may be open; what comes beyond is refused."""

_REFUSED: Final = CommandState.REFUSED
_DONE: Final = CommandState.DONE
_LOG: Final = logging.getLogger(__name__)


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


class Verdict(Frozen):
    """How a command ends at once."""

    state: CommandState
    message: str


def decide_command(command: Command, facts: CommandFacts) -> Verdict | None:
    """What a new command comes to: a verdict when it is over at once, None when it is open."""
    if isinstance(command, CommandMessage):
        return _decide_clear(command, facts)
    if command.offset not in facts.given_up:
        return Verdict(_REFUSED, f"no error-queue entry and no failed hook call at offset {command.offset}")
    return None


def _decide_clear(command: CommandMessage, facts: CommandFacts) -> Verdict | None:
    offset, publisher = command.clear_up_to_offset, command.pub_agent_name
    if not facts.is_editable:
        return Verdict(_REFUSED, f"{command.sub_agent_name} is not editable, so it takes no clear commands")
    if publisher is not None and facts.follow is not None and publisher not in facts.follow:
        return Verdict(_REFUSED, f"{command.sub_agent_name} does not follow {publisher}")
    if offset >= facts.log_next_offset:
        return Verdict(_REFUSED, f"the offset {offset} is beyond the log, which ends at {facts.log_next_offset}")
    if offset < facts.next_offset:
        return Verdict(_DONE, f"everything up to the offset {offset} was done before")
    return None


class CommandDesk:
    """The commands of one subscriber."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts, guard: ImportGuard) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self._ports = ports
        self._ledger = ports.target.ledger.commands
        self._listener: CommandListener | None = None
        if settings.command_topic is not None:
            addressee = Addressee(settings.sling_id, settings.name, settings.command_topic)
            self._listener = CommandListener(addressee, ports.journal, ports.clock, guard.wake)
        self._open: list[OpenCommand] = []
        self._dropped: Counter[int] = Counter()

    def claim_position(self) -> None:
        """Store where a new target's commands begin: what was sent before it was there is not meant for it.

        Call it before anybody can hear of the subscriber. Raises: the journal's and the target's errors.
        """
        topic = self._settings.command_topic
        if topic is None or self._ledger.position() is not None:
            return
        identity = self._ports.journal.identity(topic)
        self._ledger.take([], [], Position(identity, self._ports.journal.bounds(topic).next_offset))

    def listen(self) -> None:
        """Read what was sent while nobody listened, and listen. Again it does nothing. Raises: as above."""
        self._open = list(self._ledger.open_commands())
        if self._listener is None or self._listener.untaken() is not None:
            return
        self.claim_position()
        position = self._ledger.position()
        if position is None:
            raise ValueError("the position was just stored")
        self._listener.catch_up(position)
        self._listener.start()

    def is_cleared_meanwhile(self, offset: Offset, publisher: AgentName | None) -> bool:
        """Whether a clear that was heard, and not taken yet, drops the package at hand. From any thread."""
        return self._listener is not None and self._listener.has_clear(offset, publisher)

    def take(self, position: Position, retry_hook: Callable[[Offset], bool]) -> bool:
        """Make what was heard durable; whether there was anything.

        `retry_hook` makes the call of the hook `after` for one package again, if it is still to be made.

        Raises: the journal's and the target's errors.
        """
        heard = None if self._listener is None else self._listener.untaken()
        if self._listener is None or heard is None or not heard.commands:
            return False
        self._store(heard, position, retry_hook)
        self._listener.drop(len(heard.commands))
        self._ports.failpoints.reach(Failpoint.SUBSCRIBER_COMMANDS_TAKEN)
        self._open = list(self._ledger.open_commands())
        return True

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.close()

    # --------------------------------------------------------------------------------------------------------- clears

    def covering(self, offset: Offset, publisher: AgentName | None) -> OpenCommand | None:
        """The clear that drops a package; None when it is to be imported."""
        for one in self._open:
            is_clear = one.verb is CommandVerb.CLEAR
            if is_clear and offset <= one.offset and one.pub_agent_name in {None, publisher}:
                return one
        return None

    def begin(self) -> None:
        """A batch begins: nothing is dropped in it yet."""
        self._dropped.clear()

    def count_dropped(self, command: OpenCommand) -> None:
        """A package is dropped in the batch at hand."""
        self._dropped[command.sequence] += 1

    def settle(self, batch: Batch, position: Position) -> bool:
        """Add to the batch what clears have done when it is committed at the position; whether there is an answer."""
        is_answered = False
        for one in self._open:
            removed = one.removed + self._dropped[one.sequence]
            is_over = one.verb is CommandVerb.CLEAR and one.offset < position.next_offset
            if is_over or removed != one.removed:
                noted = replace(one, removed=removed)
                batch.note_command(noted, self._cleared(noted) if is_over else None)
            is_answered = is_answered or is_over
        return is_answered

    def committed(self) -> None:
        """The batch is committed."""
        if self._open:
            self._open = list(self._ledger.open_commands())
        self._dropped.clear()

    def settle_due(self, position: Position) -> bool:
        """Answer the clears that the position is behind though no batch was committed; whether there were any."""
        due = [one for one in self._open if one.verb is CommandVerb.CLEAR and one.offset < position.next_offset]
        for one in due:
            self._ledger.settle(one, self._cleared(one))
        if due:
            self._open = list(self._ledger.open_commands())
        return bool(due)

    def refuse_clears(self, message: str) -> None:
        """The log is not the one that the clears were meant for."""
        for one in self._ledger.open_commands():
            if one.verb is CommandVerb.CLEAR:
                self._ledger.settle(one, self._answer(one, Verdict(_REFUSED, message)))
        self._open = list(self._ledger.open_commands())

    # -------------------------------------------------------------------------------------------------------- redrives

    def settle_redrives(self) -> bool:
        """Answer the redrives that are over, by what the error queue says; whether there were any."""
        redrives = [one for one in self._open if one.verb is CommandVerb.REDRIVE]
        if not redrives:
            return False
        failed = {one.offset: one for one in self._ports.target.ledger.given_up()}
        waiting = {one.offset for one in self._ports.target.ledger.redrives()}
        over = [one for one in redrives if one.offset not in waiting]
        for one in over:
            self._ledger.settle(one, self._redriven(one, failed.get(one.offset)))
        self._open = list(self._ledger.open_commands())
        return bool(over)

    def _redriven(self, command: OpenCommand, entry: GivenUp | None) -> CommandResult:
        if entry is not None:
            return self._answer(command, Verdict(_REFUSED, f"{entry.cause.code}: {entry.cause.message}"))
        return self._answer(replace(command, removed=1), Verdict(_DONE, "the package was imported"))

    # --------------------------------------------------------------------------------------------------------- answers

    def _store(self, heard: Heard, position: Position, retry_hook: Callable[[Offset], bool]) -> None:
        facts = self._facts(position)
        opened: list[OpenCommand] = []
        answers: list[CommandResult] = []
        before = self._ledger.open_commands()
        known = {one.command_id for one in before} - {None}
        for command in heard.commands:
            if command.command_id in known:
                continue
            answer = self._known_answer(command, answers) or self._decided(command, facts, retry_hook)
            if answer is None and _is_needless(command, (*before, *opened)):
                continue
            if answer is None and len(before) + len(opened) >= MOST_OPEN:
                answer = self._refused(command, f"{MOST_OPEN:,} commands are open already")
            if answer is None:
                opened.append(_opened(command))
                known |= {command.command_id} - {None}
            elif command.command_id is not None:
                answers.append(answer)
        self._ledger.take(opened, answers, heard.position)

    def _known_answer(self, command: Command, answers: Sequence[CommandResult]) -> CommandResult | None:
        if command.command_id is None:
            return None
        same = (one for one in answers if one.command_id == command.command_id)
        return next(same, None) or self._ledger.answer_to(command.command_id)

    def _decided(
        self, command: Command, facts: CommandFacts, retry_hook: Callable[[Offset], bool]
    ) -> CommandResult | None:
        verdict = decide_command(command, facts)
        if verdict is None:
            return None
        if isinstance(command, RedriveMessage) and retry_hook(command.offset):
            verdict = Verdict(_DONE, "the hook `after` is called again")
        if verdict.state is _REFUSED:
            return self._refused(command, verdict.message)
        return self._answer(_opened(command), verdict)

    def _refused(self, command: Command, message: str) -> CommandResult:
        _LOG.warning("a command is refused: %s", message)
        return self._answer(_opened(command), Verdict(_REFUSED, message))

    def _facts(self, position: Position) -> CommandFacts:
        settings = self._settings
        return CommandFacts(
            settings.is_editable,
            settings.follow,
            position.next_offset,
            self._ports.journal.bounds(settings.package_topic).next_offset,
            {one.offset for one in self._ports.target.ledger.given_up()},
        )

    def _cleared(self, command: OpenCommand) -> CommandResult:
        told = "1 package was dropped" if command.removed == 1 else f"{command.removed} packages were dropped"
        return self._answer(command, Verdict(_DONE, told))

    def _answer(self, command: OpenCommand, verdict: Verdict) -> CommandResult:
        return CommandResult(
            command.command_id or "",
            self._settings.sling_id,
            self._settings.name,
            command.verb,
            command.offset,
            verdict.state,
            command.pub_agent_name,
            command.removed,
            verdict.message,
            int(self._ports.clock.now().timestamp() * 1000),
        )


def _is_needless(command: Command, opened: Sequence[OpenCommand]) -> bool:
    """Whether it is a clear that wants no answer, and another one that is open does all that it asks for."""
    return (
        isinstance(command, CommandMessage)
        and command.command_id is None
        and any(
            one.verb is CommandVerb.CLEAR
            and command.clear_up_to_offset <= one.offset
            and one.pub_agent_name in {None, command.pub_agent_name}
            for one in opened
        )
    )


def _opened(command: Command) -> OpenCommand:
    is_clear = isinstance(command, CommandMessage)
    verb = CommandVerb.CLEAR if is_clear else CommandVerb.REDRIVE
    offset = command.clear_up_to_offset if isinstance(command, CommandMessage) else command.offset
    return OpenCommand(0, verb, offset, command.pub_agent_name, command.command_id)
