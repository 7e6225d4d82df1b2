"""What the cluster asks of the operator itself: `/healthz`, `/readyz`, `/metrics`.

Alive is who answers, as all work is done by the event loop that answers, and whose watches reported everything that a
list found. Ready is who was in touch with the API a moment ago; a replica that waits for the lease is, too: it is there
to take over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from mailboat_operator.fleet_page import FleetPage
from mailboat_operator.metrics import OperatorMetrics

# After the end of a lease: a leader that lost touch has stopped acting before it counts as not ready.
_AFTER_LEASE_SECONDS: Final = 5.0
_SHORTEST_PATIENCE_SECONDS: Final = 20.0


class OperatorHealth:
    """What is known of the process's health."""

    def __init__(
        self, metrics: OperatorMetrics, lease_seconds: float = 15.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Alive, and not ready before `in_touch`, which comes several times in the duration of a lease."""
        self._metrics = metrics
        self._patience_seconds = max(lease_seconds + _AFTER_LEASE_SECONDS, _SHORTEST_PATIENCE_SECONDS)
        self._monotonic = monotonic
        self._in_touch_at: float | None = None
        self._illness: str | None = None

    def in_touch(self) -> None:
        """The API answered."""
        self._in_touch_at = self._monotonic()

    def report_silent(self, silent: Sequence[object]) -> None:
        """No watch reported these objects, each by its name; empty when watches flow."""
        self._metrics.silent(len(silent))
        self._illness = f"watches are silent: no event for {silent[0]}" if silent else None

    @property
    def illness(self) -> str | None:
        """Why the process should be restarted; None when it should not."""
        return self._illness

    @property
    def absence(self) -> str | None:
        """Why the process can't act, nor take over; None when it can."""
        if self._in_touch_at is None or self._monotonic() - self._in_touch_at > self._patience_seconds:
            return "the Kubernetes API does not answer"
        return None


class Probes:
    """The server of the probes."""

    def __init__(
        self, metrics: OperatorMetrics, health: OperatorHealth, port: int, page: FleetPage | None = None
    ) -> None:
        """Do not listen yet; port 0 takes a free one. `page` is served at `/`."""
        self._metrics = metrics
        self._health = health
        self._port = port
        app = web.Application()
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._figures)
        if page is not None:
            page.add_to(app.router)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _alive(self, _: web.Request) -> web.Response:
        return _answer(self._health.illness)

    async def _ready(self, _: web.Request) -> web.Response:
        return _answer(self._health.absence)

    async def _figures(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _answer(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(text=f"{problem}\n", status=503)
