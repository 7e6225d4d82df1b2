"""The dashboard at `/` of the operator: the page of the agents, with the status of all agents of the served namespaces.

It only reads: each subscriber and publisher leads to the page of its agent, where the agent's own token decides what a
visitor may do. It answers a request with the token alone: no cookie is used, so no other page can make requests in a
visitor's name. At most a few event streams are served, and each ends after some minutes.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec
from aiohttp import web
from mailboat.api.dashboard_files import DASHBOARD_PATHS, dashboard_answer
from mailboat.api.problems import problem_of
from mailboat.api.records import CallerView, StatusView
from mailboat.api.stream_events import HEARTBEAT, MEDIA_TYPE, EventType, encode_end, encode_event
from mailboat.errors import MailboatError

Look = Callable[[], Awaitable[StatusView]]

SHORTEST_TOKEN: Final = 16
# Each open page holds a connection of the operator.
MOST_STREAMS: Final = 20
_LOOK_SECONDS: Final = 5.0
_LOOKS: Final = 120
"""A stream ends after ten minutes; the page connects again, and shows its token again."""
_WRITE_SECONDS: Final = 20.0
"""A client that does not read for so long is disconnected."""
_PREFIX: Final = "/api/v1"


@dataclass(frozen=True, slots=True)
class FleetCallerView(CallerView):
    """The visitor, and where the agents' own pages are."""

    agent_url: str | None = None


class FleetPage:
    """The routes of the page."""

    def __init__(self, look: Look, token: str, agent_url: str | None = None) -> None:
        """Serve nothing yet.

        Args:
            look: Returns the status of all agents.
            token: What a visitor logs in with.
            agent_url: Where browsers find the page of an agent, with `{namespace}` and `{publisher}`.
        """
        self._look = look
        self._agent_url = agent_url
        self._token = token.encode()
        self._streams = 0

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes of the page and of its API."""
        for path in DASHBOARD_PATHS:
            router.add_get(path, self._file)
        router.add_get(f"{_PREFIX}/caller", self._caller)
        router.add_get(f"{_PREFIX}/status", self._status)
        router.add_get(f"{_PREFIX}/events", self._events)

    async def _file(self, request: web.Request) -> web.Response:
        body, headers, kind = dashboard_answer(request.path, request.headers.get("Accept-Encoding", ""))
        return web.Response(body=body, headers=headers, content_type=kind)

    async def _caller(self, request: web.Request) -> web.Response:
        self._check(request)
        return _json(FleetCallerView("fleet", ("view",), scope="fleet", agent_url=self._agent_url))

    async def _status(self, request: web.Request) -> web.Response:
        self._check(request)
        try:
            return _json(await self._look())
        except MailboatError as error:
            problem = problem_of(error)
            return _json(problem.document(), problem.status, problem.headers)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        if self._streams >= MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text='{"title": "TooManyStreams"}', content_type="application/json")
        self._streams += 1
        try:
            answer = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"})
            await answer.prepare(request)
            async with asyncio.timeout(None) as patience:
                await self._send_changes(answer, patience)
            return answer
        finally:
            self._streams -= 1

    async def _send_changes(self, answer: web.StreamResponse, patience: asyncio.Timeout) -> None:
        loop, before = asyncio.get_running_loop(), b""
        for number in range(_LOOKS):
            patience.reschedule(None)
            frame = await self._frame(number)
            # the id differs in each: only the rest shows whether anything changed
            data = frame.partition(b"\n")[2]
            patience.reschedule(loop.time() + _WRITE_SECONDS)
            await answer.write(HEARTBEAT if data == before else frame)
            before = data
            patience.reschedule(None)
            await asyncio.sleep(_LOOK_SECONDS)
        await answer.write(encode_end("renew"))

    async def _frame(self, number: int) -> bytes:
        try:
            known = {"gap": False, "status": await self._look(), "problem": None}
        except MailboatError as error:
            known = {"gap": False, "status": None, "problem": problem_of(error).document()}
        return encode_event(f"fleet-{number}", EventType.SNAPSHOT, known)

    def _check(self, request: web.Request) -> None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        # headers are decoded with `surrogateescape`: bytes that are no text would make `encode` raise
        if kind != "Bearer" or not hmac.compare_digest(token.encode(errors="surrogateescape"), self._token):
            challenge = {"WWW-Authenticate": "Bearer"}
            text = '{"title": "Unauthorized"}'
            raise web.HTTPUnauthorized(text=text, content_type="application/json", headers=challenge)


def _json(record: object, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(record),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **headers},
    )
