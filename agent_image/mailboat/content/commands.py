"""What a target keeps of the commands that its subscriber was sent: taken once, answered once.

A command is durable with the position on the command topic behind it. It is open until what it asks for is done; then
the answer becomes durable together with the last of its effects, and waits with the confirmations to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import CommandResult, CommandVerb, Suspension
from mailboat.model.positions import Position


class OpenCommand(Frozen):
    """A command that was taken and is not done yet.

    Attributes:
        sequence: Names it within the target; 0 before it was taken.
        verb: What it asks for.
        offset: The last package to drop (clear), or the one to try again (redrive).
        pub_agent_name: Whose packages; None is anybody's.
        command_id: The sender's name for it; None asks for no answer.
        removed: Packages that it has dropped so far.
    """

    sequence: int
    verb: CommandVerb
    offset: Offset
    pub_agent_name: AgentName | None
    command_id: str | None
    removed: int = 0


class CommandLedger(Protocol):
    """Commands of one target. Each call is one durable step, outside of a batch."""

    def position(self) -> Position | None:
        """Where the command topic was read to; None before anything was read."""

    def suspension(self) -> Suspension | None:
        """The suspension of imports that was taken last; None where a command resumed them, or none came."""

    def take(
        self,
        opened: Sequence[OpenCommand],
        answers: Sequence[CommandResult],
        position: Position,
        suspension: Suspension | None = None,
    ) -> None:
        """Remember new commands, and answers that can be given at once, with the position behind them.

        `suspension` is what holds from then on; None: imports are not suspended. The entry that a redrive names is
        marked to be tried again. An answer whose command id was answered before is only sent again.
        """

    def open_commands(self) -> Sequence[OpenCommand]:
        """The commands that are not done, in the order taken."""

    def answer_to(self, command_id: str) -> CommandResult | None:
        """The answer to a command of that id. The last 1,000 are remembered."""

    def settle(self, command: OpenCommand, answer: CommandResult) -> None:
        """The command is over without any effect on content: send the answer, where one is wanted."""
