"""The operator's process: `python -m mailboat_operator.main`.

It waits for the lease, acts as long as it holds it, and ends when it is lost: a new process begins with nothing
believed. SIGTERM ends it in order, and gives the lease away at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import kopf
from mailboat import __version__
from mailboat.api.records import StatusView
from mailboat.clock import SystemClock
from mailboat.config.document import LogFormat, LogsConfig
from mailboat.errors import MailboatError
from mailboat.telemetry.logs import configure_logs

from mailboat_operator.agent_client import Agents
from mailboat_operator.broker_connections import Connections
from mailboat_operator.cluster import Cluster, RequestBudget, list_served
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.fleet_page import FleetPage
from mailboat_operator.fleet_status import AskAgent, FleetStatus
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.lease import LeaderLease, LeaseSettings
from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.operator_probes import OperatorHealth, Probes
from mailboat_operator.reconcile_queue import ReconcileQueue, Slots
from mailboat_operator.reconciliation import Reconciler
from mailboat_operator.resync import Resync
from mailboat_operator.settings import OperatorSettings, read_settings
from mailboat_operator.systems import Systems
from mailboat_operator.watches import DefinitionGone, Watched, kopf_settings, registry_of
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pods import AgentImage

_LOG: Final = logging.getLogger("mailboat.operator")
_WATCH_AGAIN_SECONDS: Final = 1.0
_LOST_EXIT_CODE: Final = 1


async def operate(settings: OperatorSettings, stopping: asyncio.Event) -> int:
    """Run until `stopping` or the lease's loss; return the exit code. Raises: UsageError: no cluster."""
    metrics = OperatorMetrics()
    health = OperatorHealth(metrics, settings.lease_seconds)
    cluster = Cluster(metrics.wrote)  # of the lease alone: it waits for no budget
    agents = Agents()
    page = _page(settings, cluster, agents)
    probes = Probes(metrics, health, settings.port, page)
    lease = LeaderLease(cluster, _lease_settings(settings, cluster), health.in_touch)
    await probes.start()
    try:
        if await _first(lease.acquire(), stopping) is None:
            return 0
        metrics.leads()
        is_lost = await _first(_lead(settings, metrics, health, lease), stopping)
        return _LOST_EXIT_CODE if is_lost else 0
    finally:
        # after all parts have ended: the next leader must not meet a write of this process
        await lease.release()
        await probes.stop()
        await agents.close()
        await cluster.close()


def _page(settings: OperatorSettings, cluster: Cluster, agents: Agents) -> FleetPage | None:
    """The dashboard, on every replica: it needs no lease, as it only reads."""
    if settings.dashboard_token is None:
        return None

    image = AgentImage(settings.agent_image, settings.pull_policy)
    reader = ClusterReader(cluster, agents, image, Systems(), _now)

    async def ask(publisher: Publisher) -> StatusView:
        return await agents.fleet(await reader.agent_of(publisher))

    async def requests() -> dict[str, AskAgent]:
        found = await list_served(reader.publishers, settings.namespaces or ("*",))
        return {
            f"{publisher.metadata.namespace}/{publisher.metadata.name}": partial(ask, publisher) for publisher in found
        }

    look = FleetStatus(requests, _now).look
    return FleetPage(look, settings.dashboard_token, settings.agent_url)


def _now() -> datetime:
    return datetime.now(UTC)


async def _lead(
    settings: OperatorSettings, metrics: OperatorMetrics, health: OperatorHealth, lease: LeaderLease
) -> bool:
    """Act until the lease is lost, or kopf, which has signal handlers of its own, is stopped; whether it is lost.

    Raises: whatever ended a part of us that should never end.
    """
    image, slots = AgentImage(settings.agent_image, settings.pull_policy), Slots(settings.workers)
    agents = Agents(waiting=slots.given_back)
    cluster = Cluster(metrics.wrote, budget=RequestBudget(settings.requests_per_second))
    spark = None if settings.spark_image is None else AgentImage(settings.spark_image, settings.spark_pull_policy)
    policy = AgentPolicy(settings.open_metrics, settings.agent_ingress)
    connections = Connections(slots.given_back, answer_seconds=settings.broker_seconds)
    systems = Systems(
        connections, spark_image=spark, waiting=slots.given_back, policy=policy, namespaces=settings.namespaces
    )
    workers = ReconcileQueue(Reconciler(cluster, agents, image, metrics.reported, systems), metrics, slots)
    watched = Watched(workers.ask, systems.claims)
    resync = Resync(cluster, settings.namespaces)
    parts = (
        lease.hold(),
        workers.run(),
        resync.run(watched, workers, health, settings.resync_seconds),
        _watch(settings, watched, resync, systems),
    )
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return tasks[0] in done
    finally:
        for task in tasks:
            task.cancel()
        # until the parts have ended they use the clients that are closed below
        await asyncio.gather(*tasks, return_exceptions=True)
        await agents.close()
        await cluster.close()


async def _watch(settings: OperatorSettings, watched: Watched, resync: Resync, systems: Systems) -> None:
    """Start the watches once all claims are known: no object is reconciled before."""
    await resync.prime(systems.claims)
    is_clusterwide, namespaces = not settings.namespaces, await resync.open_namespaces()
    while True:
        systems.claims.hide(set(settings.namespaces).difference(namespaces))
        try:
            await kopf.operator(
                registry=registry_of(watched),
                settings=kopf_settings(is_clusterwide=is_clusterwide, inactivity_seconds=settings.watch_seconds),
                clusterwide=is_clusterwide,
                namespaces=namespaces,
            )
        except Exception as error:
            # kopf ends if a watch is answered with 404 before kopf has noticed that the definition was deleted, and
            # with 403 after one of several namespaces was deleted, with our Role in it
            before, namespaces = namespaces, await resync.open_namespaces()
            if getattr(error, "status", None) != HTTPStatus.NOT_FOUND and namespaces == before:
                raise
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)
            await resync.catch_up(watched)
        else:
            return


async def _first(work: Coroutine[Any, Any, bool], stopping: asyncio.Event) -> bool | None:
    """Work until that is done or we are to stop; what it gave, None when it is not done."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for waited in (task, stop):
            waited.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)


def _lease_settings(settings: OperatorSettings, cluster: Cluster) -> LeaseSettings:
    return LeaseSettings(
        namespace=cluster.namespace if settings.lease_namespace is None else settings.lease_namespace,
        name=settings.lease_name,
        identity=settings.identity,
        duration_seconds=settings.lease_seconds,
        # in the proportions of client-go's defaults: 15, 10 and 2 seconds
        renew_seconds=settings.lease_seconds * 2 / 3,
        retry_seconds=settings.lease_seconds / 7.5,
        version=__version__,
    )


async def _main(settings: OperatorSettings) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return await operate(settings, stopping)


def run() -> int:
    """Read the settings and operate; the exit code."""
    try:
        settings = read_settings()
    except MailboatError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    logs = LogsConfig(LogFormat.JSON, settings.log_level.lower())
    configure_logs(logs, None, SystemClock()).addFilter(DefinitionGone())
    try:
        return asyncio.run(_main(settings))
    except MailboatError as error:
        _LOG.error("%s", error)  # the message is complete: the trace would add nothing
        return 1


if __name__ == "__main__":
    sys.exit(run())
