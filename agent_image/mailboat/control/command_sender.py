"""Commands to subscribers: durable when they are sent, and found again with what the subscriber answered.

Used by the control service, and for the subscribers of an agent without a publisher.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeGuard

from mailboat.api.orders import MAX_SUSPENDED_SECONDS, MIN_SUSPENDED_SECONDS
from mailboat.api.records import CommandView
from mailboat.clock import milliseconds_now
from mailboat.composition.workspace import Workspace
from mailboat.control.journal_state import CommandAnswers
from mailboat.control.queue_service import GivenUpPlace, package_at
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
from mailboat.queues.queue_names import QueueName, parse_entry_id
from mailboat.queues.subscriber_queue import ClearPlan, SubscriberQueue
from mailboat.wire.messages import encode_message, readable_message

# An older command counts as unknown: the search runs within a request.
MAX_SEARCHED_RECORDS: Final = 20_000
MAX_REMEMBERED: Final = 10_000
MAX_REDRIVEN: Final = 1_000
_SHOWN: Final = 80

Command = CommandMessage | RedriveMessage | SuspendMessage


class CommandSender:
    """Sends commands, and finds their answers. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, answers: CommandAnswers) -> None:
        """Send nothing yet; `answers` is kept up to date by others."""
        self._workspace = workspace
        self._answers = answers
        self._chance = random.SystemRandom()
        self._lock = threading.Lock()
        self._remembered: OrderedDict[str, Command] = OrderedDict()

    def clear(self, queue: SubscriberQueue, max_items: int | None) -> CommandView:
        """Command a subscriber to drop the first packages of a queue, or all that it holds now.

        Raises: UsageError; as `SubscriberQueue.plan_clear`.
        """
        if max_items is not None and max_items < 1:
            raise UsageError(f"a clear drops at least one package, not {max_items}")
        return self._clear(queue, queue.plan_clear(max_items))

    def remove(self, queue: SubscriberQueue, item_ids: Sequence[str]) -> CommandView:
        """Command a subscriber to drop these items, and all before the last of them.

        Raises: UsageError, also for a malformed id; as `SubscriberQueue.plan_remove`.
        """
        if not item_ids:
            raise UsageError("a removal names at least one item")
        return self._clear(queue, queue.plan_remove([parse_entry_id(item_id) for item_id in item_ids]))

    def _clear(self, queue: SubscriberQueue, plan: ClearPlan | None) -> CommandView:
        publisher, (sling_id, name, _) = queue.standing.publisher, queue.queue_name
        if plan is None:
            verb, done = str(CommandVerb.CLEAR), str(CommandState.DONE)
            return CommandView("", verb, publisher, name, -1, done, 0, "the queue was empty")
        now_ms = milliseconds_now(self._workspace.clock)
        command = CommandMessage(sling_id, name, plan.up_to_offset, publisher, self._new_id(), now_ms)
        return self._send([command])[0]

    def redrive(self, subscriber: str, places: Iterable[GivenUpPlace], offsets: Sequence[int]) -> list[CommandView]:
        """Command a subscriber to import packages that it gave up, of `places`; all of it in one append.

        Where several instances of that name gave a package up, each gets a command.

        Raises: UsageError for an offset where none of them gave up anything.
        """
        if not 0 < len(offsets) <= MAX_REDRIVEN:
            raise UsageError(f"1 to {MAX_REDRIVEN} packages can be redriven at once, not {len(offsets)}")
        known = defaultdict[int, dict[QueueName, GivenUpPlace]](dict)
        for place in places:
            known[place.offset][place.queue_name] = place
        for offset in offsets:
            if offset not in known:
                raise UsageError(
                    f"{subscriber} has no error-queue entry and no failed hook call at offset {offset}",
                    next_step=f"mailboat errors ls {subscriber}",
                )
        # an offset that was named twice is one command
        chosen = [place for offset in dict.fromkeys(offsets) for place in known[offset].values()]
        if len(chosen) > MAX_REMEMBERED:
            raise UsageError(
                f"{len(chosen)} commands are too many at once, the limit is {MAX_REMEMBERED}",
                next_step="name fewer packages, or one instance of the subscriber",
            )
        return self._send(
            [
                RedriveMessage(
                    place.queue_name.sling_id,
                    place.queue_name.agent_name,
                    place.offset,
                    self._publisher_of(place),
                    self._new_id(),
                    milliseconds_now(self._workspace.clock),
                )
                for place in chosen
            ]
        )

    def _publisher_of(self, place: GivenUpPlace) -> AgentName | None:
        """The publisher of a failed package; None if neither target nor log names it."""
        if place.publisher is not None or place.call is None:
            return place.publisher  # an entry of the error queue without one cannot be decoded
        message = package_at(self._workspace, place.offset)
        return None if message is None else message.pub_agent_name

    def suspend(self, queue_name: QueueName, seconds: float | None) -> CommandView:
        """Command a subscriber to suspend its imports, for at most so long. Raises: UsageError for a bad duration."""
        if seconds is not None and not MIN_SUSPENDED_SECONDS <= seconds <= MAX_SUSPENDED_SECONDS:
            raise UsageError(
                f"a suspension lasts 1 second to {MAX_SUSPENDED_SECONDS // 86_400} days, not {seconds:g} s"
            )
        return self._suspend(queue_name, seconds, suspended=True)

    def resume(self, queue_name: QueueName) -> CommandView:
        """Command a subscriber to resume its imports."""
        return self._suspend(queue_name, None, suspended=False)

    def _suspend(self, queue_name: QueueName, seconds: float | None, *, suspended: bool) -> CommandView:
        sling_id, name, _ = queue_name
        # read once: the suspension begins with its command
        now_ms = milliseconds_now(self._workspace.clock)
        until_ms = None if seconds is None else now_ms + int(seconds * 1000)
        return self._send([SuspendMessage(sling_id, name, suspended, until_ms, self._new_id(), now_ms)])[0]

    def find(self, publisher: str | None, command_id: str) -> CommandView:
        """A sent command of a publisher; None: of any. Reads the topic for an unknown one.

        Raises: CommandMissingError.
        """
        with self._lock:
            known = self._remembered.get(command_id)
        return self._view(known if _is_command(known, publisher, command_id) else self._search(publisher, command_id))

    def current(self, sent: Sequence[CommandView]) -> list[CommandView]:
        """The same commands with the answers that are known by now."""
        # without an id no command was sent: the queue was empty
        return [self.find(view.publisher or None, view.id) if view.id else view for view in sent]

    def _search(self, publisher: str | None, command_id: str) -> Command:
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

    def _view(self, command: Command) -> CommandView:
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

    def _send(self, commands: Sequence[Command]) -> list[CommandView]:
        self._workspace.journal.append(
            self._workspace.topic(TopicRole.COMMAND), [_record_of(command) for command in commands]
        )
        # after the append: `find` must not return a command that no subscriber will get
        for command in commands:
            self._remember(command)
        return [self._view(command) for command in commands]

    def _remember(self, command: Command) -> None:
        with self._lock:
            self._remembered[command.command_id or ""] = command
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))


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


def _is_command(message: Message | None, publisher: str | None, command_id: str) -> TypeGuard[Command]:
    return (
        isinstance(message, Command)
        and message.command_id == command_id
        and publisher in {None, message.pub_agent_name}
    )
