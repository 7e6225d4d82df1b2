"""Which publish request is next: callers take turns for the threads that publish.

Each caller waits in a line of its own, so one that sends hundreds of requests at once delays itself. Requests that have
a thread are published together by `PublishBatcher`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from mailboat.errors import ThrottledError

MAX_PUBLISHING: Final = 30
"""Threads that publish or plan at once, of 40 that the framework has. They may wait for minutes, behind a request that
publishes what changed; the others answer reads meanwhile."""
MAX_WAITING: Final = 1_000
MAX_WAITING_OF_ONE: Final = 100
"""A tenth of all: one caller cannot fill the lines for the others."""
QUANTUM: Final = 8
"""What a turn is worth, in paths."""

_T = TypeVar("_T")


class PublishTurns:
    """The threads for publishing, and who waits for one. Used from the server's event loop only."""

    def __init__(self) -> None:
        self._free = MAX_PUBLISHING
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def turn(self, user_id: str | None, cost: int = 1) -> AsyncIterator[None]:
        """Hold one of the threads, in the turn of the user; requests that name none share a line.

        Raises:
            ThrottledError: Too many requests wait, of this caller or of all.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(user_id or "anonymous", cost)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, caller: str, cost: int) -> None:
        of_caller, of_all = self._waiting.line_length(caller), len(self._waiting)
        if of_caller >= MAX_WAITING_OF_ONE or of_all >= MAX_WAITING:
            raise ThrottledError(
                f"{of_caller} requests of {caller} wait already, and {of_all} in all", retry_after_seconds=1.0
            )
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(caller, granted, cost)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it was granted in the same tick
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while (granted := self._waiting.take()) is not None:
            if not granted.done():  # done if its request was cancelled
                granted.set_result(None)
                return
        self._free += 1


class _Waiting(NamedTuple, Generic[_T]):
    cost: int
    item: _T


class FairQueue(Generic[_T]):
    """Fair queue over callers: deficit round robin (Shreedhar and Varghese, 1995).

    Each caller has a line of its own and takes turns with the others; a turn is worth a quantum, and what a request
    costs more is saved up for over several turns. So a burst, or a request with hundreds of paths, delays its own
    caller.
    """

    def __init__(self, quantum: int = QUANTUM) -> None:
        self._quantum = quantum
        self._lines: OrderedDict[str, deque[_Waiting[_T]]] = OrderedDict()
        self._savings: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def line_length(self, caller: str) -> int:
        """How many requests of a caller wait."""
        return len(self._lines.get(caller, ()))

    def put(self, caller: str, item: _T, cost: int = 1) -> None:
        """Add to the end of the caller's line."""
        self._lines.setdefault(caller, deque()).append(_Waiting(max(1, cost), item))
        self._savings.setdefault(caller, self._quantum)
        self._count += 1

    def take(self) -> _T | None:
        """The next item; None if no one waits."""
        while self._lines:
            caller, line = next(iter(self._lines.items()))
            if line[0].cost > self._savings[caller]:
                self._savings[caller] += self._quantum
                self._lines.move_to_end(caller)
                continue
            self._savings[caller] -= line[0].cost
            taken = line.popleft().item
            if not line:
                # With the line its savings go: an idle caller must not save up for a burst.
                del self._lines[caller], self._savings[caller]
            self._count -= 1
            return taken
        return None
