"""The operator while the Kubernetes API misbehaves: silent watches, refusals that pass, and an API that is away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from mailboat.testing.wait import PATIENCE_SECONDS

JOURNAL = {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}}
PUBLISHER = {"journalRef": {"name": "main"}}
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests"}
Fault = Callable[[str, str, bool], int | None]
"""From method, path, and whether it is a watch: the status to answer instead; None lets it through."""


class Proxy:
    """Between operators and the API: lets everything through, unless told otherwise."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.fault: Fault = lambda *_: None
        self.are_watches_silent = False
        self.times: list[tuple[float, str, int]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE_SECONDS)

    async def _start(self) -> str:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False, limit=0), auto_decompress=False)
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") == "true"
        code = self.fault(request.method, request.path, is_watch)
        self.times.append((time.monotonic(), f"{request.method} {request.path}", code or 0))
        if code is not None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": REASONS[code]}
            if code == 410:  # said within the stream
                event = {"type": "ERROR", "object": {**status, "message": "as the test wants it"}}
                return web.Response(text=json.dumps(event) + "\n", content_type="application/json")
            headers = {"Retry-After": "1"} if code == 429 else {}
            return web.json_response({**status, "message": "as the test wants it"}, status=code, headers=headers)
        headers = {name: value for name, value in request.headers.items() if name not in {"Host", "Content-Length"}}
        body = await request.read()
        async with self._session.request(
            request.method, self._server + request.path_qs, headers=headers, data=body or None
        ) as found:
            answer = web.StreamResponse(status=found.status, headers={"Content-Type": found.headers["Content-Type"]})
            await answer.prepare(request)
            async for chunk in found.content.iter_any():
                if not (is_watch and self.are_watches_silent):
                    await answer.write(chunk)
            return answer

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self._session.close()  # cuts what is open: who let it go first would wait for the server's farewell
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._runner.cleanup()
        for _ in range(10):  # connections that were let go are closed in the loop's next turns
            await asyncio.sleep(0.01)


@pytest.fixture
def proxy(api_server: Any) -> Iterator[Proxy]:
    """A proxy before the API server."""
    made = Proxy(json.loads(api_server.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    yield made
    made.stop()


REFUSED = ("/publishers", "/configmaps", "/services")
"""An object and some children: the pause doubles with each refusal of one object, so all would take a minute."""


def once_each(code: int, method: str) -> Fault:
    """The first request of each path of `REFUSED` is answered so."""
    seen: set[str] = set()

    def fault(asked: str, path: str, is_watch: bool) -> int | None:
        if asked != method or is_watch or path in seen or not any(kind in path for kind in REFUSED):
            return None
        seen.add(path)
        return code

    return fault


@pytest.mark.parametrize(("code", "method"), [(409, "PATCH"), (429, "PATCH"), (429, "GET")])
def test_what_is_refused_for_the_moment_is_done_later(proxy: Proxy, replicas: Any, code: int, method: str) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "author", PUBLISHER)
    proxy.fault = once_each(code, method)
    replicas.start("one", proxy.url)
    replicas.wait(lambda: replicas.reason("Publisher", "author") == "PodsNotReady")
    refused = [item for item in proxy.times if item[2] == code]
    assert refused
    if code == 429:
        first, path, _ = next(item for item in refused if "publishers" in item[1] or "configmaps" in item[1])
        again = next(moment for moment, other, answered in proxy.times if other == path and moment > first)
        assert again - first >= 0.95, "asked again before the time that the API named"


def test_a_watch_that_is_too_old_begins_again(proxy: Proxy, replicas: Any) -> None:
    gone: list[str] = []

    def fault(_: str, path: str, is_watch: bool) -> int | None:
        if not is_watch or gone.count(path) >= 2:
            return None
        gone.append(path)
        return 410

    proxy.fault = fault
    replicas.start("one", proxy.url)
    replicas.wait(lambda: len(gone) >= 10)
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "author", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("author"))


def is_ill(probe: Any, kind: str) -> bool:
    """Whether a probe of an operator says that a watch of this kind is silent."""
    return probe.status_code == 503 and kind in probe.text


def test_a_silent_watch_is_noticed_by_the_rounds_and_the_process_counts_as_ill(proxy: Proxy, replicas: Any) -> None:
    replicas.start("one", proxy.url, resync_seconds=2, watch_seconds=600, broker_seconds=1)
    replicas.wait(lambda: replicas.leads("one"))
    replicas.make("Journal", "main", JOURNAL)
    replicas.wait(lambda: replicas.reason("Journal", "main") != "")
    # watches may begin after the first round
    replicas.wait(lambda: replicas.probe("one", "/healthz").status_code == 200)
    proxy.are_watches_silent = True
    replicas.make("Distribution", "release", {"publisherRef": {"name": "author"}, "action": "Test"})
    replicas.wait(lambda: is_ill(replicas.probe("one", "/healthz"), "Distribution"))
    replicas.wait(lambda: replicas.reason("Distribution", "release") != "")  # looked at all the same
    assert replicas.figure("one", "mailboat_operator_silent_objects") >= 1


def test_a_silent_watch_is_begun_again(proxy: Proxy, replicas: Any) -> None:
    replicas.start("one", proxy.url, resync_seconds=600, watch_seconds=3, broker_seconds=1)
    replicas.wait(lambda: replicas.leads("one"))
    replicas.make("Journal", "main", JOURNAL)
    replicas.wait(lambda: replicas.reason("Journal", "main") != "")
    proxy.are_watches_silent = True
    replicas.make("Publisher", "author", PUBLISHER)
    before = len(proxy.times)
    replicas.wait(lambda: sum(path.endswith("/publishers") for _, path, _ in proxy.times[before:]) >= 1)
    proxy.are_watches_silent = False
    replicas.wait(lambda: replicas.has_workload("author"))
    replicas.wait(lambda: replicas.probe("one", "/healthz").status_code == 200)


def test_an_api_that_is_away_is_waited_for_and_work_goes_on(lone_replicas: Any) -> None:
    replicas = lone_replicas
    replicas.make("Journal", "main", JOURNAL)
    process = replicas.start("one", lease_seconds=9)
    replicas.wait(lambda: replicas.leads("one"))
    replicas.server.tell("kill")
    try:
        code = process.wait(timeout=PATIENCE_SECONDS)
        waiting = replicas.start("two")
        replicas.wait(lambda: "could not be read" in replicas.log("two"))
        assert replicas.probe("two", "/readyz").status_code == 503
        assert (code, waiting.poll()) == (1, None), "who lost the lease ends, and who waits for it stays"
    finally:
        replicas.is_api_new = True
        replicas.server.tell("start")
    replicas.make("Publisher", "author", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("author"))
    replicas.wait(lambda: replicas.probe("two", "/readyz").status_code == 200)


def test_a_namespace_that_goes_in_the_middle_takes_everything_along(clusterwide_replicas: Any) -> None:
    replicas, http = clusterwide_replicas, clusterwide_replicas.server.http
    other = replicas.server.new_namespace()
    replicas.start("one", broker_seconds=1)
    replicas.wait(lambda: replicas.leads("one"))
    base = {"apiVersion": "mailboat.dev/v1alpha1"}
    reclaimed = {"topics": {"reclaimPolicy": "Delete"}, **JOURNAL}
    replicas.server.create(other, {**base, "kind": "Journal", "metadata": {"name": "main"}, "spec": reclaimed})
    for number in range(10):
        metadata = {"name": f"author-{number}"}
        replicas.server.create(other, {**base, "kind": "Publisher", "metadata": metadata, "spec": PUBLISHER})
    replicas.wait(lambda: replicas.has(f"/apis/apps/v1/namespaces/{other}/statefulsets/author-0"))
    http.delete(f"/api/v1/namespaces/{other}").raise_for_status()
    replicas.wait(lambda: http.get(f"/api/v1/namespaces/{other}").status_code == 404)
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "author", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("author"))


def test_a_definition_that_went_and_came_again_is_served_again(clusterwide_replicas: Any) -> None:
    replicas, http = clusterwide_replicas, clusterwide_replicas.server.http
    replicas.start("one", resync_seconds=2)
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "early", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("early"))
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = http.get(f"{url}/publishers.mailboat.dev").json()
    http.delete(f"{url}/publishers.mailboat.dev").raise_for_status()
    replicas.wait(lambda: http.get(f"{url}/publishers.mailboat.dev").status_code == 404)
    metadata = {"name": "publishers.mailboat.dev"}
    http.post(url, json={**definition, "metadata": metadata, "status": None}).raise_for_status()
    late = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Publisher", "metadata": {"name": "late"}, "spec": PUBLISHER}
    # for a moment the server may go by the definition that went
    replicas.wait(lambda: replicas.server.create(replicas.namespace, late).status_code == 201)
    replicas.wait(lambda: replicas.has_workload("late"))
    assert "Traceback" not in replicas.log("one")
