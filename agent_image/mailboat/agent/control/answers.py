"""What subscribers answered to commands: from the results on the status topic. Bounded; the oldest go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from mailboat.model.messages import CommandResult, Message
from mailboat.queues.names import QueueName

MAX_ANSWERS: Final = 10_000


class CommandAnswers:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_answers: int = MAX_ANSWERS) -> None:
        """No answer yet."""
        self._max = max_answers
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, QueueName], CommandResult] = OrderedDict()

    def hear(self, status: Message) -> None:
        """Take in an answer; of several to one command by one subscriber the first counts."""
        if not isinstance(status, CommandResult):
            return
        with self._lock:
            key = (status.command_id, QueueName(status.sub_sling_id, status.sub_agent_name))
            self._answers.setdefault(key, status)
            if len(self._answers) > self._max:
                self._answers.popitem(last=False)

    def clear(self) -> None:
        """Forget all: the status topic is another one."""
        with self._lock:
            self._answers.clear()

    def find(self, command_id: str, queue_name: QueueName) -> CommandResult | None:
        """What the subscriber that a command was for answered; what others say of it counts for nothing."""
        with self._lock:
            return self._answers.get((command_id, queue_name))
