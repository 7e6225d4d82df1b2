"""What the cluster asks of the operator itself: `/healthz`, `/readyz`, `/metrics`.

A replica that waits for the lease is ready: it is there to take over. Alive is whoever answers, as all work is done by
the event loop that answers; that no watch is silent is kopf's own care.
"""

from __future__ import annotations

from aiohttp import web

from mailboat_operator.metrics import OperatorMetrics


class Probes:
    """The server of the probes."""

    def __init__(self, metrics: OperatorMetrics, port: int) -> None:
        """Listen to nobody yet; port 0 takes a free one."""
        self._metrics = metrics
        self._port = port
        app = web.Application()
        app.router.add_get("/healthz", self._well)
        app.router.add_get("/readyz", self._well)
        app.router.add_get("/metrics", self._figures)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _well(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _figures(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})
