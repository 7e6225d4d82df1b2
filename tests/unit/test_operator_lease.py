"""How long a replica acts as the leader when the API server answers late, or no longer. Time is virtual."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from mailboat.errors import ClusterConflictError
from mailboat_operator.lease import LeaderLease, LeaseSettings
from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.operator_probes import OperatorHealth

SETTINGS = LeaseSettings("here", "lease", "me", duration_seconds=15.0, renew_seconds=10.0, retry_seconds=2.0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose timers take no time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]  # of the base class
        select: Callable[[float | None], Any] = selector.select

        def skip(timeout: float | None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        selector.select = skip

    def time(self) -> float:
        return self._now


class ApiServer:
    """A lease as it is stored, by an API server that answers so late; None: it does not answer."""

    def __init__(self, *delays: float | None) -> None:
        self._delays = itertools.chain(delays, itertools.repeat(None))
        self._lease: dict[str, Any] | None = None
        self.stored_at: list[float] = []

    async def get(self, *_: str) -> dict[str, Any] | None:
        return self._lease

    async def account(self, _: str) -> None:
        return None

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return await self.replace(manifest)

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        delay = next(self._delays)
        if delay is None:
            await asyncio.Event().wait()
        self._lease = {**manifest, "spec": {**manifest["spec"]}}
        self.stored_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(delay or 0.0)
        return self._lease


def led_until(*delays: float | None) -> tuple[float, float]:
    """When the lease was last stored, and when its holder stopped."""
    server = ApiServer(*delays)

    async def lead() -> float:
        loop = asyncio.get_running_loop()
        lease: Any = LeaderLease(server, SETTINGS, monotonic=loop.time)  # type: ignore[arg-type]  # what it uses of it
        await lease.acquire()
        await lease.hold()
        return loop.time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        ended_at = runner.run(lead())
    return server.stored_at[-1], ended_at


@pytest.mark.parametrize(
    ("delays", "seconds"),
    [((0.0,), 10.0), ((4.0,), 10.0), ((0.0, 0.0, 3.0), 10.0), ((0.0, 4.5, 4.9), 3.5)],
    ids=["silent", "late", "later", "stored without an answer"],
)
def test_a_leader_stops_within_two_thirds_of_a_lease(delays: tuple[float, ...], seconds: float) -> None:
    """From the moment in which the API server stored it: another replica waits for the whole duration."""
    stored_at, ended_at = led_until(*delays)
    assert ended_at - stored_at == pytest.approx(seconds)


def test_a_lease_that_another_took_meanwhile_is_lost_at_once() -> None:
    class Taken(ApiServer):
        async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
            if self.stored_at:
                assert self._lease is not None
                self._lease = {**self._lease, "spec": {**self._lease["spec"], "holderIdentity": "other"}}
                raise ClusterConflictError("taken")
            return await super().replace(manifest)

    async def lead() -> float:
        loop = asyncio.get_running_loop()
        lease: Any = LeaderLease(Taken(0.0), SETTINGS, monotonic=loop.time)  # type: ignore[arg-type]  # what it uses of it
        await lease.acquire()
        await lease.hold()
        return loop.time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(lead()) == pytest.approx(4.0)


@pytest.mark.parametrize(("lease_seconds", "looks_every"), [(3.0, 4.0), (15.0, 4.0), (300.0, 45.0)])
def test_a_replica_is_ready_between_two_looks_at_its_lease(lease_seconds: float, looks_every: float) -> None:
    """A request may take 4 s, and looks are apart by 2/15 of the lease's duration."""
    now = [0.0]
    health = OperatorHealth(OperatorMetrics(), lease_seconds, lambda: now[0])
    assert health.absence is not None
    health.in_touch()
    now[0] += looks_every
    assert health.absence is None
    now[0] += max(lease_seconds, 20.0)
    assert health.absence is not None
