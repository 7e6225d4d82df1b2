"""Which objects to look at, and when: each at most once at a time, several at once, failed ones again after a pause.

An object that fails, hangs or is refused delays no other one, nor does one that waits for brokers: it works not, and is
not counted. News go before what is looked at for its own sake. A wish for an object that is waiting already is no
second one; a wish for one that is being looked at now is kept for after. Where the API names a time to wait, nobody's
wish comes before it. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from mailboat.errors import MailboatError, PermanentError, RetryableError

from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.reconciliation import ObjectKey, Reconciler

_LOG: Final = logging.getLogger("mailboat.operator")
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 60.0
_PENDING_SECONDS: Final = 15.0
"""What an object waits for may be nothing that is watched, such as a Secret."""
_LOOK_SECONDS: Final = 60.0
_WAITING_EACH: Final = 20
"""Looks under way for each that may work: the others wait for brokers, in batches."""


class Slots:
    """How many looks are under way, and how many of them work."""

    def __init__(self, count: int) -> None:
        """`count` may work at once, and twenty times as many be under way."""
        self._count = count
        self._working = 0
        self._under_way = 0
        self._freed = asyncio.Event()

    @property
    def under_way(self) -> int:
        """Looks that have begun and not ended."""
        return self._under_way

    async def free(self) -> None:
        """Wait until one more may begin."""
        while self._working >= self._count or self._under_way >= self._count * _WAITING_EACH:
            self._freed.clear()
            await self._freed.wait()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """For one look."""
        self._working, self._under_way = self._working + 1, self._under_way + 1
        try:
            yield
        finally:
            self._working, self._under_way = self._working - 1, self._under_way - 1
            self._freed.set()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """While a look waits for brokers, another may work; it goes on at once when they answer."""
        self._working -= 1
        self._freed.set()
        try:
            yield
        finally:
            self._working += 1


class Workers:
    """The objects to look at, and those who do."""

    def __init__(self, reconciler: Reconciler, metrics: OperatorMetrics, slots: Slots) -> None:
        """Nobody works before `run`."""
        self._reconciler = reconciler
        self._metrics = metrics
        self._slots = slots
        self._news: dict[ObjectKey, None] = {}
        self._rounds: dict[ObjectKey, None] = {}
        self._asked = asyncio.Event()
        self._running: set[ObjectKey] = set()
        self._again: set[ObjectKey] = set()
        self._failures: dict[ObjectKey, int] = {}
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._held: set[ObjectKey] = set()

    def ask(self, key: ObjectKey, *, is_news: bool = True) -> None:
        """Have an object looked at soon; what is no news comes after all that is."""
        if key in self._held:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._running:
            self._again.add(key)
        elif is_news:
            self._rounds.pop(key, None)
            self._news[key] = None
        elif key not in self._news:
            self._rounds[key] = None
        self._asked.set()

    def forget(self, key: ObjectKey) -> None:
        """An object is gone; what is under way for it ends by itself."""
        self._failures.pop(key, None)
        self._held.discard(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def run(self) -> None:
        """Work until cancelled; what is being looked at then is given up between two requests."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._slots.free()
                group.create_task(self._work(await self._next()))

    async def _next(self) -> ObjectKey:
        while not self._news and not self._rounds:
            self._asked.clear()
            await self._asked.wait()
        queue = self._news or self._rounds
        key = next(iter(queue))
        del queue[key]
        self._running.add(key)
        self._metrics.queued(len(self._news) + len(self._rounds), self._slots.under_way + 1)
        return key

    async def _work(self, key: ObjectKey) -> None:
        try:
            with self._slots.taken():
                pause = await self._look(key)
        finally:
            self._running.discard(key)
            self._metrics.queued(len(self._news) + len(self._rounds), self._slots.under_way)
        is_wanted = key in self._again
        self._again.discard(key)
        if is_wanted and key not in self._held:
            self.ask(key)
        elif pause is not None:
            self._timers[key] = asyncio.get_running_loop().call_later(pause, self._ask_later, key)

    def _ask_later(self, key: ObjectKey) -> None:
        self._held.discard(key)
        self.ask(key, is_news=False)

    async def _look(self, key: ObjectKey) -> float | None:
        """Look at one object; in how many seconds again, None when nothing calls for it."""
        started = time.monotonic()
        try:
            outcome = await asyncio.wait_for(self._reconciler.reconcile(key), _LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001  # whatever it is, the other objects go on
            self._metrics.looked(key.kind, _name_of(error), time.monotonic() - started)
            return await self._failed(key, error)
        self._metrics.looked(key.kind, "ready" if outcome.is_ready else "pending", time.monotonic() - started)
        self._failures.pop(key, None)
        self._metrics.figures(key.kind, key.namespace, key.name, outcome.figures)
        if outcome.again_seconds is not None:
            return outcome.again_seconds
        return None if outcome.is_ready else _PENDING_SECONDS

    async def _failed(self, key: ObjectKey, error: Exception) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if isinstance(error, MailboatError):
            _LOG.warning("%s: %s", key, error)
        else:
            _LOG.error("%s: a defect", key, exc_info=error)
        if isinstance(error, PermanentError):
            await self._refuse(key, error)
        wished = error.retry_after_seconds if isinstance(error, RetryableError) else None
        if wished is not None:
            self._held.add(key)
        pause: float = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(count - 1, 10), _LONGEST_PAUSE_SECONDS)
        return max(wished or 0.0, pause)

    async def _refuse(self, key: ObjectKey, error: PermanentError) -> None:
        try:
            await self._reconciler.refuse(key, error)
        except MailboatError as second:
            _LOG.warning("%s: its status could not be written: %s", key, second)


def _name_of(error: Exception) -> str:
    return error.name if isinstance(error, MailboatError) else type(error).__name__
