"""One read for all who ask for the same at the same time, and never an answer that is older than its question.

A thousand objects of one Journal would read it a thousand times over. A question during a read waits for the
next one, together with all who ask until that begins; a lone question is asked at once. Used from one event loop by
`observation.sight`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class SharedReads(Generic[K, A]):
    """Reads of one sort, by what is asked for."""

    def __init__(self, read: Callable[[K], Awaitable[A]]) -> None:
        """Read by `read`; what it raises, all waiters of the read get."""
        self._read = read
        self._coming: dict[K, asyncio.Task[A]] = {}
        self._under_way: dict[K, asyncio.Task[A]] = {}

    async def ask(self, key: K) -> A:
        """The answer of a read that begins after this. Raises: what the read does."""
        task = self._coming.get(key)
        if task is None:
            task = self._coming[key] = asyncio.create_task(self._read_after(key, self._under_way.get(key)))
            # asyncio logs an exception that is never retrieved, as when all askers were cancelled
            task.add_done_callback(_heed)
        return await asyncio.shield(task)  # who goes ends it for nobody else

    async def _read_after(self, key: K, before: asyncio.Task[A] | None) -> A:
        if before is not None:
            # `wait` does not raise: a failure of the earlier read does not concern this one
            await asyncio.wait([before])
        # from here on a question starts another read: the answer of this one may be older
        self._under_way[key] = self._coming.pop(key)
        try:
            return await self._read(key)
        finally:
            del self._under_way[key]


def _heed(task: asyncio.Task[A]) -> None:
    """Retrieve a failure that has no waiter any more."""
    if not task.cancelled():
        task.exception()
