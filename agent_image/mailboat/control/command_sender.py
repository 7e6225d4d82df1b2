"""Commands to subscribers: durable when they are sent, and found again with what the subscriber answered."""

from __future__ import annotations

import random
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeGuard

from mailboat.api.records import CommandView
from mailboat.clock import milliseconds_now
from mailboat.composition.workspace import Workspace
from mailboat.control.journal_state import CommandAnswers
from mailboat.errors import CommandMissingError, UsageError
from mailboat.journal.port import NewRecord, records_of
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import (
    CommandMessage,
    CommandState,
    CommandVerb,
    Message,
    RedriveMessage,
    SuspendMessage,
    TopicRole,
)
from mailboat.queues.queue_names import QueueName
from mailboat.wire.messages import encode_message, readable_message

# An older command counts as unknown: the search runs within a request.
MAX_SEARCHED_RECORDS: Final = 20_000
MIN_SUSPENDED_SECONDS: Final = 1.0
MAX_SUSPENDED_SECONDS: Final = 366 * 86_400
MAX_REMEMBERED: Final = 10_000
_SHOWN: Final = 80

Command = CommandMessage | RedriveMessage | SuspendMessage


class CommandSender:
    """Sends commands, and finds their answers. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, answers: CommandAnswers, chance: random.Random | None = None) -> None:
        """Send nothing yet; `answers` is kept up to date by others, `chance` makes the ids."""
        self._workspace = workspace
        self._answers = answers
        self._chance = random.SystemRandom() if chance is None else chance
        self._lock = threading.Lock()
        self._remembered: OrderedDict[tuple[str, str], Command] = OrderedDict()

    def clear(self, publisher: AgentName, queue_name: QueueName, up_to_offset: Offset) -> Command:
        """Command a subscriber to drop one publisher's packages up to an offset, inclusive."""
        sling_id, name, _ = queue_name
        command = CommandMessage(
            sling_id, name, up_to_offset, publisher, self._new_id(), milliseconds_now(self._workspace.clock)
        )
        self._send([command])
        return command

    def redrive(self, wanted: Sequence[tuple[AgentName | None, QueueName, Offset]]) -> list[Command]:
        """Command subscribers to import packages that they gave up; all of it in one append."""
        commands: list[Command] = [
            RedriveMessage(
                queue.sling_id,
                queue.agent_name,
                offset,
                publisher,
                self._new_id(),
                milliseconds_now(self._workspace.clock),
            )
            for publisher, queue, offset in wanted
        ]
        self._send(commands)
        return commands

    def suspend(self, queue_name: QueueName, seconds: float | None) -> Command:
        """Command a subscriber to suspend its imports, for at most so long. Raises: UsageError for a bad duration."""
        if seconds is not None and not MIN_SUSPENDED_SECONDS <= seconds <= MAX_SUSPENDED_SECONDS:
            raise UsageError(f"a suspension lasts 1 second to {MAX_SUSPENDED_SECONDS // 86_400} days, not {seconds} s")
        return self._suspend(queue_name, seconds, suspended=True)

    def resume(self, queue_name: QueueName) -> Command:
        """Command a subscriber to resume its imports."""
        return self._suspend(queue_name, None, suspended=False)

    def _suspend(self, queue_name: QueueName, seconds: float | None, *, suspended: bool) -> Command:
        sling_id, name, _ = queue_name
        # read once: the suspension begins with its command
        now_ms = milliseconds_now(self._workspace.clock)
        until_ms = None if seconds is None else now_ms + int(seconds * 1000)
        command = SuspendMessage(sling_id, name, suspended, until_ms, self._new_id(), now_ms)
        self._send([command])
        return command

    def find(self, publisher: AgentName | None, command_id: str) -> Command:
        """A sent command; reads the topic for one that is not known yet. Raises: CommandMissingError."""
        with self._lock:
            known = self._remembered.get((publisher or "", command_id))
        return self._search(publisher, command_id) if known is None else known

    def _search(self, publisher: AgentName | None, command_id: str) -> Command:
        journal, topic = self._workspace.journal, self._workspace.topic(TopicRole.COMMAND)
        bounds, wanted = journal.bounds(topic), command_id.encode()
        start = Offset(max(bounds.earliest_offset, bounds.next_offset - MAX_SEARCHED_RECORDS))
        with closing(records_of(journal, topic, start)) as records:
            for record in records if wanted else ():
                # the id is looked for in the bytes first: decoding all records of the search takes much longer
                message = readable_message(record.headers, record.value) if wanted in record.value else None
                if _is_command(message, publisher, command_id):
                    self._remember(message)
                    return message
        of_whom = "" if publisher is None else f" of {publisher}"
        raise CommandMissingError(f"no command {command_id[:_SHOWN]!r} to a subscriber{of_whom} is known")

    def view(self, command: Command) -> CommandView:
        """A command, with its answer if there is one."""
        view = CommandView(
            id=command.command_id or "",
            verb=str(_verb_of(command)),
            publisher=command.pub_agent_name or "",
            subscriber=command.sub_agent_name,
            offset=_offset_of(command),
        )
        queue_name = QueueName(command.sub_sling_id, command.sub_agent_name)
        answer = self._answers.find(command.command_id or "", queue_name)
        if answer is None and self._answers.dropped_count:
            dropped = f"{self._answers.dropped_count} answers were dropped to bound the agent's memory"
            return replace(view, message=f"no answer is known; {dropped}, perhaps this one")
        if answer is None:
            return view
        return replace(view, state=str(answer.state), removed=answer.removed, message=answer.message)

    def views_of(self, commands: Sequence[Command]) -> Callable[[], list[CommandView]]:
        """A function that returns the current views of some commands."""
        return lambda: [self.view(command) for command in commands]

    def _send(self, commands: Sequence[Command]) -> None:
        self._workspace.journal.append(
            self._workspace.topic(TopicRole.COMMAND), [_record_of(command) for command in commands]
        )
        # after the append: `find` must not return a command that no subscriber will get
        for command in commands:
            self._remember(command)

    def _remember(self, command: Command) -> None:
        with self._lock:
            self._remembered[command.pub_agent_name or "", command.command_id or ""] = command
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))


def nothing_to_clear(publisher: AgentName, queue_name: QueueName) -> CommandView:
    """The answer where no command is needed."""
    return CommandView(
        "",
        str(CommandVerb.CLEAR),
        publisher,
        queue_name.agent_name,
        -1,
        str(CommandState.DONE),
        0,
        "the queue was empty",
    )


def _record_of(command: Command) -> NewRecord:
    headers, value = encode_message(command)
    return NewRecord(value, headers, f"{command.sub_sling_id}-{command.sub_agent_name}".encode())


def are_answered(commands: Sequence[CommandView]) -> bool:
    """Whether none of them waits for its subscriber any more."""
    return all(command.state != "sent" for command in commands)


def _verb_of(command: Command) -> CommandVerb:
    if isinstance(command, SuspendMessage):
        return command.verb
    return CommandVerb.CLEAR if isinstance(command, CommandMessage) else CommandVerb.REDRIVE


def _offset_of(command: Command) -> int:
    if isinstance(command, SuspendMessage):
        return -1
    return command.clear_up_to_offset if isinstance(command, CommandMessage) else command.offset


def _is_command(message: Message | None, publisher: AgentName | None, command_id: str) -> TypeGuard[Command]:
    return isinstance(message, Command) and message.command_id == command_id and message.pub_agent_name == publisher
