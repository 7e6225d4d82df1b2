"""When the operator looks at an object again: never before the time that the API named."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from mailboat.errors import ClusterUnavailableError
from mailboat_operator.reconcile_queue import ReconcileQueue, Slots
from mailboat_operator.reconciliation import ObjectKey, ReconcileOutcome

KEY = ObjectKey("Publisher", "shop", "author")


class Refusing:
    """Refuses the first look with a time to wait, then finds all well."""

    def __init__(self) -> None:
        self.looks: list[float] = []

    async def reconcile(self, _: ObjectKey) -> ReconcileOutcome:
        self.looks.append(asyncio.get_running_loop().time())
        if len(self.looks) == 1:
            raise ClusterUnavailableError("too many requests", retry_after_seconds=0.7)
        return ReconcileOutcome(is_ready=True)


class Silent:
    """Measures nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_news_do_not_bring_a_look_forward_that_the_api_put_off() -> None:
    async def scenario() -> list[float]:
        reconciler = Refusing()
        workers = ReconcileQueue(reconciler, Silent(), Slots(2))  # type: ignore[arg-type]
        running = asyncio.create_task(workers.run())
        workers.ask(KEY)
        while len(reconciler.looks) < 2:
            workers.ask(KEY)
            await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return reconciler.looks

    first, second, *_ = asyncio.run(scenario())
    assert second - first >= 0.7
