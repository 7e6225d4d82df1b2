"""A round proves a watch silent only by what a second list still shows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from mailboat.errors import ClusterConflictError, ClusterRefusedError, MailboatError
from mailboat_operator import main
from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.operator_probes import OperatorHealth
from mailboat_operator.reconciliation import ObjectKey, Reconciler
from mailboat_operator.resync import Resync
from mailboat_operator.settings import read_settings
from mailboat_operator.systems import Systems
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.watches import DefinitionGone, Watched
from mailboat_operator.workload.pods import AgentImage

SECONDS = 0.01


def publisher(name: str, version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Publisher", "metadata": metadata, "spec": {}}


class Cluster:
    """Lists what it holds, and calls back before each list."""

    def __init__(self, before_list: Callable[[int], Any]) -> None:
        self.objects, self.lists, self._before_list = list[dict[str, Any]](), 0, before_list
        self.is_decided = asyncio.Event()

    async def list(self, kind: str, _: str) -> list[dict[str, Any]]:
        if kind == "Journal":  # the first kind of each round
            self.lists += 1
            await self._before_list(self.lists)
            if self.lists == 3:  # the second round has begun: the first one is decided
                self.is_decided.set()
        return [object_ for object_ in self.objects if object_["kind"] == kind]


class Asked:
    def ask(self, *_: object, **__: object) -> None:
        pass


def illness_after(change: Callable[[Cluster, Watched], Any]) -> str | None:
    """What the probe says after a round; `change` runs before its second list."""

    async def whole() -> str | None:
        health = OperatorHealth(OperatorMetrics())
        watched = Watched(lambda _: None, TopicClaims())

        async def before_list(number: int) -> None:
            if number == 2:
                await change(cluster, watched)

        cluster = Cluster(before_list)
        cluster.objects = [publisher("c20")]
        resync = Resync(cluster, ["shop"])  # type: ignore[arg-type]  # lists as it does
        running = asyncio.create_task(resync.run(watched, Asked(), health, SECONDS))  # type: ignore[arg-type]
        await cluster.is_decided.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return health.illness

    return asyncio.run(whole())


def test_an_object_that_is_deleted_after_the_list_is_not_a_silent_watch() -> None:
    async def delete(cluster: Cluster, watched: Watched) -> None:
        cluster.objects = []

    assert illness_after(delete) is None


def test_an_object_that_no_watch_reports_is_a_silent_watch(caplog: pytest.LogCaptureFixture) -> None:
    async def nothing(cluster: Cluster, watched: Watched) -> None:
        pass

    assert "Publisher shop/c20" in str(illness_after(nothing))
    reason = "/healthz answers 503 from now on: no watch reported 1 objects, such as Publisher shop/c20"
    told = [record.getMessage() for record in caplog.records if record.name == "mailboat.operator"]
    assert told == [reason], "the log says why the process is restarted"


def test_an_object_that_the_watch_reports_late_is_not_a_silent_watch() -> None:
    async def report(cluster: Cluster, watched: Watched) -> None:
        await watched.object_changed("ADDED", publisher("c20"))

    assert illness_after(report) is None


@pytest.mark.parametrize(
    ("logger", "status", "lines"), [("kopf.reactor", 404, 1), ("kopf.reactor", 500, 0), ("mailboat_operator", 404, 0)]
)
def test_a_definition_that_was_deleted_is_one_line_instead_of_a_trace(
    logger: str, status: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    class WatchError(Exception):
        """As kopf raises it."""

        def __init__(self) -> None:
            super().__init__()
            self.status = status

    error = WatchError()
    text = "Watcher for publishers.v1alpha1.mailboat.dev everywhere has failed: not found"
    cause = (WatchError, error, None)
    record = logging.LogRecord(logger, logging.ERROR, "", 0, text, None, cause)
    assert DefinitionGone().filter(record) is (lines == 0)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == lines
    assert all("publishers.v1alpha1.mailboat.dev" in item and "not found" not in item for item in said)


class KopfError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("not found" if status == 404 else "refused")
        self.status = status


@pytest.mark.parametrize(("statuses", "runs", "ended"), [((404, 404), 3, None), ((403,), 1, KopfError)])
def test_watches_begin_again_where_kopf_ends_over_a_definition_that_went(
    monkeypatch: pytest.MonkeyPatch, statuses: tuple[int, ...], runs: int, ended: type[Exception] | None
) -> None:
    left, started = list(statuses), list[dict[str, Any]]()

    async def run_kopf(**given: Any) -> None:
        started.append(given)
        if left:
            raise KopfError(left.pop(0))

    async def nothing(_: object) -> None:
        pass

    monkeypatch.setattr(main.kopf, "operator", run_kopf)
    monkeypatch.setattr(main, "_WATCH_AGAIN_SECONDS", 0.0)
    settings = read_settings({"MAILBOAT_OPERATOR_AGENT_IMAGE": "m:1"})
    cluster: Any = SimpleNamespace()  # all namespaces are served, so none is asked for
    resync = SimpleNamespace(prime=nothing, catch_up=nothing, open_namespaces=Resync(cluster, ()).open_namespaces)
    parts: Any = (settings, Watched(Asked().ask, TopicClaims()), resync, SimpleNamespace(claims=TopicClaims()))
    with nullcontext() if ended is None else pytest.raises(ended):
        asyncio.run(main._watch(*parts))
    assert (len(started), left) == (runs, [])


class TwoNamespaces:
    """Two namespaces that were named, one of which may go, and our Role with it."""

    def __init__(self) -> None:
        self.gone = set[str]()

    async def list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        if namespace in self.gone:
            raise refusal(403, ClusterRefusedError)
        made = publisher("author")
        return [{**made, "metadata": {**made["metadata"], "namespace": namespace}}] if kind == "Publisher" else []


def test_the_watches_go_on_without_a_namespace_that_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Role goes with it: kopf ends over the 403, and would end again whenever it is started with that namespace."""
    cluster: Any = TwoNamespaces()
    watched, started = Watched(Asked().ask, TopicClaims()), list[list[str]]()

    async def run_kopf(*, namespaces: list[str], **_: Any) -> None:
        started.append([*namespaces])
        for namespace in namespaces:
            for body in await cluster.list("Publisher", namespace):
                await watched.object_changed(None, body)
        if len(started) == 1:
            cluster.gone.add("news")
            raise KopfError(403)

    monkeypatch.setattr(main.kopf, "operator", run_kopf)
    monkeypatch.setattr(main, "_WATCH_AGAIN_SECONDS", 0.0)
    settings = read_settings({"MAILBOAT_OPERATOR_AGENT_IMAGE": "m:1", "MAILBOAT_OPERATOR_NAMESPACES": "news,shop"})
    systems: Any = SimpleNamespace(claims=TopicClaims())
    asyncio.run(main._watch(settings, watched, Resync(cluster, settings.namespaces), systems))
    assert started == [["news", "shop"], ["shop"]]
    assert [key.namespace for key in watched.last_events] == ["shop"]


def test_an_operator_starts_without_a_namespace_that_is_gone_and_not_without_all() -> None:
    cluster: Any = TwoNamespaces()
    resync = Resync(cluster, ["news", "shop"])
    cluster.gone = {"shop"}
    asyncio.run(resync.prime(TopicClaims()))
    assert asyncio.run(resync.open_namespaces()) == ["news"]
    cluster.gone = {"news", "shop"}
    for reading in (resync.prime(TopicClaims()), resync.open_namespaces()):
        with pytest.raises(ClusterRefusedError):
            asyncio.run(reading)


@pytest.mark.parametrize(("served", "outcome"), [(("news", "shop"), True), ((), None)])
def test_an_object_whose_namespace_went_with_the_role_is_gone(served: tuple[str, ...], outcome: bool | None) -> None:
    """Its timers would ask for it forever. Rights in the whole cluster outlast each namespace: they are missing."""

    class Refusing:
        async def get(self, *_: str) -> dict[str, Any]:
            raise refusal(403, ClusterRefusedError)

    parts: list[Any] = [Refusing(), None, AgentImage("m:1"), lambda _: None, Systems(namespaces=served)]
    looking = Reconciler(*parts).reconcile(ObjectKey("Publisher", "news", "author"))
    if outcome is None:
        with pytest.raises(ClusterRefusedError):
            asyncio.run(looking)
    else:
        assert asyncio.run(looking).is_ready is outcome


def test_what_was_deleted_while_nothing_was_watched_is_no_silent_watch_and_claims_nothing() -> None:
    """With its definition a topic's object went; a namesake in another namespace is free to have the topic."""
    asked, claims = list[str](), TopicClaims()
    watched = Watched(lambda key: asked.append(str(key)), claims)

    async def nothing(_: int) -> None:
        pass

    def topic(namespace: str) -> dict[str, Any]:
        spec = {"journalRef": {"name": "main"}, "topicName": "orders"}
        return {**publisher("orders"), "kind": "Topic", "spec": spec} | {
            "metadata": {**publisher("orders")["metadata"], "namespace": namespace}
        }

    async def run() -> None:
        for namespace in ("shop", "news"):
            await watched.object_changed("ADDED", topic(namespace))
        assert claims.beside(topic("news")) == [("shop", "orders")]
        asked.clear()
        cluster = Cluster(nothing)
        cluster.objects = [topic("news")]
        await Resync(cluster, ["*"]).catch_up(watched)  # type: ignore[arg-type]  # lists as it does

    asyncio.run(run())
    assert asked == ["Topic news/orders"]
    assert claims.beside(topic("news")) == []
    assert [key.namespace for key in watched.last_events] == ["news"]


def refusal(code: int, kind: type[MailboatError] = ClusterConflictError) -> MailboatError:
    """A read that the API server refuses."""
    request = httpx2.Request("GET", "https://kubernetes.example/")
    answer = httpx2.Response(code, request=request)
    error = kind("the list")
    error.__cause__ = httpx2.HTTPStatusError("refused", request=request, response=answer)
    return error


@pytest.mark.parametrize(("code", "left"), [(404, []), (410, ["orders"])])
def test_only_a_kind_that_is_gone_has_no_objects(code: int, left: list[str]) -> None:
    """A continue token that has expired is answered with 410: the objects exist, and none is forgotten."""
    watched = Watched(lambda _: None, TopicClaims())

    class Refusing:
        async def list(self, *_: str) -> list[dict[str, Any]]:
            raise refusal(code)

    async def run() -> None:
        await watched.object_changed("ADDED", publisher("orders"))
        await Resync(Refusing(), ["*"]).catch_up(watched)  # type: ignore[arg-type]  # lists as it does

    asyncio.run(run())
    assert [key.name for key in watched.last_events] == left
