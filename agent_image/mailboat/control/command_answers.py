"""Answers of subscribers to commands, from the status topic: bounded in bytes, the oldest are dropped first."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import Final

from mailboat.model.messages import CommandResult, Message
from mailboat.queues.names import QueueName

MAX_BYTES: Final = 4 * 1024**2
_ANSWER_BYTES: Final = 1_000  # measured: the objects without their texts


class CommandAnswers:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """No answer yet."""
        self.dropped_count = 0
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, QueueName], CommandResult] = OrderedDict()

    def hear(self, status: Message) -> None:
        """Take in an answer; of several to one command by one subscriber the first counts."""
        if not isinstance(status, CommandResult):
            return
        with self._lock:
            key = (status.command_id, QueueName(status.sub_sling_id, status.sub_agent_name))
            if key in self._answers:
                return
            self._answers[key] = status
            self._bytes += _cost(status)
            while self._bytes > self._max_bytes:
                self._bytes -= _cost(self._answers.popitem(last=False)[1])
                self.dropped_count += 1

    def clear(self) -> None:
        """Forget all: the status topic is another one."""
        with self._lock:
            self._answers.clear()
            self._bytes = 0

    def find(self, command_id: str, queue_name: QueueName) -> CommandResult | None:
        """What the subscriber that a command was for answered; what others say of it counts for nothing."""
        with self._lock:
            return self._answers.get((command_id, queue_name))


def _cost(answer: CommandResult) -> int:
    texts = (answer.command_id, answer.sub_sling_id, answer.sub_agent_name, answer.pub_agent_name, answer.message)
    return _ANSWER_BYTES + sum(map(sys.getsizeof, texts))
