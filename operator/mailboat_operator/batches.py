"""Many small questions asked in one: those that come while the one before is under way go together.

A lone question is asked at once, without a delay for others. Two about one name are never in one batch. Used from one
event loop. Called by `connections`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

from mailboat.errors import MailboatError

Q = TypeVar("Q")
A = TypeVar("A")

_LARGEST: Final = 100


class Batches(Generic[Q, A]):
    """Questions of one sort."""

    def __init__(self, call: Callable[[Mapping[str, Q]], Awaitable[Mapping[str, A | MailboatError]]]) -> None:
        """Ask by `call`, which gets questions by name and gives an answer, or what was wrong, for each name."""
        self._call = call
        self._waiting: list[tuple[str, Q, asyncio.Future[A]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, name: str, question: Q) -> A:
        """The answer. Raises: whatever the call gives or raises instead of one."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, question, future))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        return await future

    async def _ask_all(self) -> None:
        # no await between this check and the end of the task: a later question finds the task done, and starts another
        while self._waiting:
            batch = self._next_batch()
            if not batch:  # all who asked have gone
                continue
            questions = {name: question for name, (question, _) in batch.items()}
            try:
                answers = await self._call(questions)
                found = [(future, answers[name]) for name, (_, future) in batch.items()]
            except Exception as error:  # noqa: BLE001  # whoever asked is told
                for _, future in batch.values():
                    _tell(future, error)
                continue
            for future, answer in found:
                _tell(future, answer)

    def _next_batch(self) -> dict[str, tuple[Q, asyncio.Future[A]]]:
        batch: dict[str, tuple[Q, asyncio.Future[A]]] = {}
        left: list[tuple[str, Q, asyncio.Future[A]]] = []
        for name, question, future in self._waiting:
            if future.done():  # whoever asked has gone
                continue
            if name in batch or len(batch) >= _LARGEST:
                left.append((name, question, future))
            else:
                batch[name] = (question, future)
        self._waiting = left
        return batch


def _tell(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
