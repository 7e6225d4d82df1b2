"""Which objects to look at, and when: each at most once at a time, several at once, failed ones again after a pause.

An object that fails, hangs or is refused delays no other one. A wish for an object that is waiting already is no second
one; a wish for one that is being looked at now is kept for after. Used from one event loop. Called by `handlers`.
"""

from __future__ import annotations

import asyncio
import logging
import time
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


class Workers:
    """The objects to look at, and those who do."""

    def __init__(self, reconciler: Reconciler, metrics: OperatorMetrics, count: int) -> None:
        """Nobody works before `run`."""
        self._reconciler = reconciler
        self._metrics = metrics
        self._count = count
        self._queue: asyncio.Queue[ObjectKey] = asyncio.Queue()
        self._waiting: set[ObjectKey] = set()
        self._running: set[ObjectKey] = set()
        self._again: set[ObjectKey] = set()
        self._failures: dict[ObjectKey, int] = {}
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}

    def ask(self, key: ObjectKey) -> None:
        """Have an object looked at soon."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)

    async def run(self) -> None:
        """Work until cancelled; what is being looked at then is given up between two requests."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._count):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._waiting.discard(key)
            self._running.add(key)
            try:
                pause = await self._look(key)
            finally:
                self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.ask(key)
            elif pause is not None:
                self._timers[key] = asyncio.get_running_loop().call_later(pause, self.ask, key)

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
        pause: float = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(count - 1, 10), _LONGEST_PAUSE_SECONDS)
        return max(wished or 0.0, pause)

    async def _refuse(self, key: ObjectKey, error: PermanentError) -> None:
        try:
            await self._reconciler.refuse(key, error)
        except MailboatError as second:
            _LOG.warning("%s: its status could not be written: %s", key, second)


def _name_of(error: Exception) -> str:
    return error.name if isinstance(error, MailboatError) else type(error).__name__
