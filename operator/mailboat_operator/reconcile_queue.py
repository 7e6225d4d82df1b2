"""Which objects to reconcile, and when: each at most once at a time, several at once, failed ones after a pause.

An object that fails, hangs or is refused delays no other one, nor does one that waits for brokers, a bucket or an
agent: it works not, and is not counted. Those that need brokers have a queue of their own, so that however many of them
wait, the others go on. News go before the periodic resync. A wish for an object that is queued already
is merged with it; a wish for one that is being reconciled is kept for after. Where the API names a time to wait,
no wish comes before it. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mailboat.errors import ClusterUnavailableError, MailboatError, OperatorDefectError, RetryableError

from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.reconciliation import ObjectKey, ReconcileOutcome, Reconciler

_LOG: Final = logging.getLogger("mailboat.operator")
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 60.0
_PENDING_SECONDS: Final = 15.0
"""What an object waits for may be nothing that is watched, such as a Secret."""
_EVENLY: Final = 4
"""How often a pending object is looked through before the pauses grow: the first minute."""
_LONGEST_PENDING_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 60.0
_TOLD_AFTER: Final = 5
"""A passing failure is written into the status if it came so often in a row: about 8 seconds."""
_UNDER_WAY_EACH: Final = 20
"""Looks under way of each queue, for each that may work: the others wait for brokers, in batches, or for agents."""
_ON_BROKERS: Final = frozenset({"Journal", "Topic"})


class Slots:
    """How many looks work."""

    def __init__(self, count: int) -> None:
        """`count` may at once; a look that goes on after it waited is one more for a moment."""
        self.count = count
        self.freed = asyncio.Event()
        self._working = 0

    @property
    def is_free(self) -> bool:
        """Whether one more may begin."""
        return self._working < self.count

    def take(self) -> None:
        """For one look."""
        self._working += 1

    def give(self) -> None:
        """The look has ended."""
        self._working -= 1
        self.freed.set()

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """While a look waits for others' servers, another may work; it goes on at once when they answer."""
        self.give()
        try:
            yield
        finally:
            self.take()


class _Queue:
    """Objects that are queued, and how many of them are being reconciled."""

    def __init__(self, most: int) -> None:
        self._news: dict[ObjectKey, None] = {}
        self._rounds: dict[ObjectKey, None] = {}
        self._most = most
        self.under_way = 0

    def __len__(self) -> int:
        return len(self._news) + len(self._rounds)

    def put(self, key: ObjectKey, *, is_news: bool) -> None:
        if is_news:
            self._rounds.pop(key, None)
            self._news[key] = None
        elif key not in self._news:
            self._rounds[key] = None

    def next(self, *, is_news: bool) -> ObjectKey | None:
        """The first of its sort, which is under way from now on; None if absent, or enough are."""
        waiting = self._news if is_news else self._rounds
        if not waiting or self.under_way >= self._most:
            return None
        key = next(iter(waiting))
        del waiting[key]
        self.under_way += 1
        return key

    def end(self) -> None:
        """One of those under way has ended."""
        self.under_way -= 1


class ReconcileQueue:
    """The work queue, and its workers."""

    def __init__(self, reconciler: Reconciler, metrics: OperatorMetrics, slots: Slots) -> None:
        """Nothing is reconciled before `run`."""
        self._reconciler = reconciler
        self._metrics = metrics
        self._slots = slots
        most = slots.count * _UNDER_WAY_EACH
        self._queues = {True: _Queue(most), False: _Queue(most)}
        """By whether a kind needs brokers."""
        self._running: set[ObjectKey] = set()
        self._again: set[ObjectKey] = set()
        self._failures: dict[ObjectKey, int] = {}
        self._pending: dict[ObjectKey, int] = {}
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._held: set[ObjectKey] = set()

    def ask(self, key: ObjectKey, *, is_news: bool = True) -> None:
        """Queue an object; without news it comes after all objects with news."""
        if is_news:
            # News may be what it waited for: its pauses begin again at the shortest.
            self._pending.pop(key, None)
        # the last error named a time to wait: no news of the object ends that
        if key in self._held:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._running:
            # Never two reconciliations of one object at the same time: the second follows the first.
            self._again.add(key)
        else:
            self._queue_of(key).put(key, is_news=is_news)
            self._slots.freed.set()

    async def run(self) -> None:
        """Work until cancelled; running reconciliations are then given up between two requests."""
        async with asyncio.TaskGroup() as group:
            while True:
                # Cleared before the look: what is queued meanwhile sets it again.
                self._slots.freed.clear()
                while (key := self._next()) is not None:
                    group.create_task(self._work(key))
                await self._slots.freed.wait()

    def _next(self) -> ObjectKey | None:
        """The next object, of the queue with fewer under way; its slot is taken before anything else happens."""
        # fewer under way first: objects that wait for silent brokers must not delay all others
        queues = sorted(self._queues.values(), key=lambda queue: queue.under_way)
        for is_news in (True, False) if self._slots.is_free else ():
            for queue in queues:
                key = queue.next(is_news=is_news)
                if key is not None:
                    self._slots.take()
                    self._running.add(key)
                    self._count()
                    return key
        return None

    def _queue_of(self, key: ObjectKey) -> _Queue:
        return self._queues[key.kind in _ON_BROKERS]

    def _count(self) -> None:
        queues = self._queues.values()
        self._metrics.queued(sum(map(len, queues)), sum(queue.under_way for queue in queues))

    async def _work(self, key: ObjectKey) -> None:
        try:
            pause = await self._look(key)
        finally:
            self._running.discard(key)
            self._queue_of(key).end()
            self._slots.give()
            self._count()
        # only now: `ask` for a key in `_running` would note the wish again and queue nothing
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
        """Reconcile one object; in how many seconds again, None when nothing calls for it."""
        started = time.monotonic()
        try:
            outcome = await self._reconcile(key)
            self._metrics.figures(key.kind, key.namespace, key.name, outcome.figures)
        except Exception as error:  # noqa: BLE001  # whatever it is, the other objects go on
            name = error.name if isinstance(error, MailboatError) else type(error).__name__
            self._metrics.looked(key.kind, name, time.monotonic() - started)
            return await self._failed(key, error)
        self._metrics.looked(key.kind, "ready" if outcome.is_ready else "pending", time.monotonic() - started)
        self._failures.pop(key, None)
        if outcome.again_seconds is not None or outcome.is_ready:
            self._pending.pop(key, None)
            return outcome.again_seconds
        count = self._pending[key] = self._pending.get(key, 0) + 1
        return float(min(_PENDING_SECONDS * 2.0 ** min(max(count - _EVENLY, 0), 10), _LONGEST_PENDING_SECONDS))

    async def _reconcile(self, key: ObjectKey) -> ReconcileOutcome:
        try:
            # a reconciliation that hangs would keep its slot
            return await asyncio.wait_for(self._reconciler.reconcile(key), _LOOK_SECONDS)
        except TimeoutError as error:  # no defect: each of its requests has a limit, and there are many
            text = f"not reconciled within {_LOOK_SECONDS:g} s: the Kubernetes API or an agent answers slowly"
            raise ClusterUnavailableError(text) from error

    async def _failed(self, key: ObjectKey, error: Exception) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if isinstance(error, MailboatError):
            _LOG.warning("%s: %s", key, error)
        else:
            _LOG.error("%s: a defect", key, exc_info=error)
        if count >= _TOLD_AFTER or not isinstance(error, RetryableError):
            self._metrics.figures(key.kind, key.namespace, key.name, {})  # the last ones would mislead autoscalers
            # of a defect the class and not the text, which may quote what the operator sent
            text = f"internal error {type(error).__name__} in the operator; its log has the trace"
            await self._refuse(key, error if isinstance(error, MailboatError) else OperatorDefectError(text))
        wished = error.retry_after_seconds if isinstance(error, RetryableError) else None
        if wished is not None:
            # until `_ask_later` runs
            self._held.add(key)
        pause: float = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(count - 1, 10), _LONGEST_PAUSE_SECONDS)
        return max(wished or 0.0, pause)

    async def _refuse(self, key: ObjectKey, error: MailboatError) -> None:
        try:
            await asyncio.wait_for(self._reconciler.refuse(key, error), _LOOK_SECONDS)
        except Exception as second:  # noqa: BLE001  # an object without a status must not end the other ones' work
            _LOG.warning("%s: its status could not be written: %s", key, second)
