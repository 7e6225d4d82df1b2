"""The operator's page of all agents: what is merged, asked and served, half of the fleet being silent."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from mailboat.api.records import JournalView, PublisherView, StatusView, SubscriberStatusView
from mailboat.errors import AgentUnreachableError, ClusterUnavailableError
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator import fleet_page, fleet_status
from mailboat_operator.fleet_page import FleetPage
from mailboat_operator.fleet_status import AgentState, FleetStatus, merge_states

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TOKEN = "fleet-token-0123456789"
SILENT = AgentUnreachableError("no answer")
JOURNAL = JournalView("kafka", 0, 10)


def status(publisher: str, *subscribers: str, state: str = "current") -> StatusView:
    members = tuple(SubscriberStatusView(subscriber, state, f"id-{subscriber}", 7, 3) for subscriber in subscribers)
    return StatusView(JOURNAL, (PublisherView(publisher, "idle"), PublisherView("elsewhere")), members)


def test_agents_are_merged_with_namespaces_and_a_shared_subscriber_once() -> None:
    first, second = status("author", "edge-1", "edge-2"), status("news", "edge-2")
    merged = merge_states([AgentState("shop/author", first, NOW), AgentState("shop/news", second, NOW)])
    assert [publisher.name for publisher in merged.publishers] == ["shop/author", "shop/news"]
    assert [subscriber.name for subscriber in merged.subscribers] == ["shop/edge-1", "shop/edge-2"]
    assert [subscriber.agent for subscriber in merged.subscribers] == ["shop/author", "shop/author"]
    assert merged.journal == JOURNAL


def test_silent_agent_keeps_its_last_answer_marked_as_stale() -> None:
    silent = AgentState("shop/author", status("author", "edge-1"), NOW, SILENT)
    other = AgentState("b/news", status("news", "x"), NOW)
    merged = merge_states([silent, AgentState("shop/new", error=SILENT), other])
    assert {publisher.name: publisher.state for publisher in merged.publishers} == {
        "shop/author": "stale",
        "shop/new": "stale",
        "b/news": "idle",
    }
    edge = next(subscriber for subscriber in merged.subscribers if subscriber.name == "shop/edge-1")
    assert (edge.state, edge.lag, edge.error and edge.error.code) == ("stale", 3, "AgentUnreachable")
    assert "at 12:00:00 UTC it was current" in (edge.error.message if edge.error else "")


def test_subscriber_of_a_silent_agent_is_taken_from_one_that_answers() -> None:
    silent = AgentState("shop/a", status("a", "edge-1"), NOW, SILENT)
    merged = merge_states([silent, AgentState("shop/b", status("b", "edge-1", state="retrying"), NOW)])
    assert [(subscriber.state, subscriber.agent) for subscriber in merged.subscribers] == [("retrying", "shop/b")]


def agents(asked: list[str], count: int, silent: int) -> Callable[[], Awaitable[dict[str, Any]]]:
    at_once = 0

    def request(number: int) -> Callable[[], Awaitable[StatusView]]:
        async def ask() -> StatusView:
            nonlocal at_once
            at_once += 1
            assert at_once <= fleet_status.ASKED_AT_ONCE
            asked.append(f"agent-{number}")
            try:
                await asyncio.sleep(3600 if number < silent else 0)
            finally:
                at_once -= 1
            return status(f"agent-{number}", f"edge-{number}")

        return ask

    async def requests() -> dict[str, Any]:
        return {f"shop/agent-{number}": request(number) for number in range(count)}

    return requests


def test_half_of_the_fleet_is_silent_and_the_other_half_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_status, "ANSWER_SECONDS", 0.01)
    asked: list[str] = []
    now = [0.0]
    fleet = FleetStatus(agents(asked, 40, 20), lambda: NOW + timedelta(seconds=now[0]), lambda: now[0])

    async def look_twice() -> StatusView:
        seen = await asyncio.gather(*(fleet.look() for _ in range(5)))
        assert len(asked) == 40, "callers share a round"
        now[0] = fleet_status.FRESH_SECONDS
        await fleet.look()
        return seen[0]

    seen = asyncio.run(look_twice())
    assert sorted(publisher.state or "" for publisher in seen.publishers) == ["idle"] * 20 + ["stale"] * 20
    assert len(asked) == 80


async def client_of(look: Callable[[], Awaitable[StatusView]]) -> TestClient[Any, Any]:
    app = web.Application()
    FleetPage(look, TOKEN).add_to(app.router)
    client = TestClient(TestServer(app))
    await client.start_server()
    return client


def test_page_needs_the_token_for_data_and_has_a_strict_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_page, "MOST_STREAMS", 1)
    asyncio.run(visit())


async def visit() -> None:
    async def look() -> StatusView:
        return status("author", "<script>")

    client = await client_of(look)
    try:
        page = await client.get("/")
        assert (page.status, page.content_type) == (200, "text/html")
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers.getall("X-Content-Type-Options") == ["nosniff"]
        assert page.headers.getall("Cache-Control") == ["no-store"]
        for path in ("/api/v1/caller", "/api/v1/status", "/api/v1/events"):
            for wrong in ({}, {"Authorization": "Bearer fleet-token-012345678X"}, {"Authorization": f"Basic {TOKEN}"}):
                assert (await client.get(path, headers=wrong)).status == 401
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"GET /api/v1/caller HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        right = {"Authorization": f"Bearer {TOKEN}"}
        caller = await (await client.get("/api/v1/caller", headers=right)).json()
        assert (caller["verbs"], caller["scope"]) == (["view"], "fleet")
        assert (await client.post("/api/v1/status", headers=right)).status == 405
        async with client.get("/api/v1/events", headers=right) as stream:
            text = await stream.content.readuntil(b"\n\n")
            assert text.startswith(b"id: fleet-0\nevent: snapshot\n")
            assert b"<script>" in text
            assert (await client.get("/api/v1/events", headers=right)).status == 503
    finally:
        await client.close()


def test_client_that_does_not_read_is_disconnected_and_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_page, "MOST_STREAMS", 1)
    monkeypatch.setattr(fleet_page, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(fleet_page, "_WRITE_SECONDS", 0.3)
    asyncio.run(stop_reading())


async def stop_reading() -> None:
    looks = itertools.count()

    async def look() -> StatusView:
        return status("author", *(f"edge-{next(looks)}" for _ in range(2_000)))  # other ones each time

    client = await client_of(look)
    try:
        head = f"GET /api/v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect((client.host, client.port))
            idle.sendall(head.encode())
            answers = list[int]()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while answers[-1:] != [200] or 503 not in answers:
                    async with client.get("/api/v1/events", headers={"Authorization": f"Bearer {TOKEN}"}) as stream:
                        answers.append(stream.status)
                    await asyncio.sleep(0.02)
    finally:
        await client.close()


def test_a_cluster_that_does_not_answer_is_a_problem_document_for_now() -> None:
    async def ask() -> tuple[int, Any, str | None]:
        async def look() -> StatusView:
            raise ClusterUnavailableError("no answer")

        client = await client_of(look)
        try:
            answer = await client.get("/api/v1/status", headers={"Authorization": f"Bearer {TOKEN}"})
            return answer.status, (await answer.json(content_type=None))["title"], answer.headers.get("Retry-After")
        finally:
            await client.close()

    assert asyncio.run(ask()) == (503, "ClusterUnavailable", "1")
