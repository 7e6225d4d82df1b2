"""The only caller of publisher agents: everybody on a journal, requests to publish, and what became of them.

What an agent answers is checked like any input: short of what is expected, or larger than it can be, it counts as no
answer. The token goes into the request and nowhere else. Used from one event loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
from mailboat.errors import AgentRefusedError, AgentUnansweringError, MailboatError

from mailboat_operator.api.conditions import REASON
from mailboat_operator.buckets import reason_of
from mailboat_operator.manifests.configuration import HTTP_PORT
from mailboat_operator.plan.build_ground import BuildProgress
from mailboat_operator.plan.distribution import Delivery
from mailboat_operator.plan.fleet import Fleet, Member

T = TypeVar("T")
_CONNECT_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 15.0
_PACKAGING_SECONDS: Final = 50.0
"""A package of a large tree is made before the answer; one that takes longer is found by the same request later."""
_LARGEST_ANSWER: Final = 16 << 20
_LONGEST_TEXT: Final = 512
_SUCCESS: Final = range(200, 300)
_REFUSED: Final = frozenset({400, 409, 413, 422})
"""The same again would be refused again; what else is no success may pass: a token that rolls, a pod that starts."""


Waiting = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """Where a publisher's agent is, and how to be let in.

    Attributes:
        namespace: Of the Publisher.
        publisher: Its name, which is its agent's and its Service's.
        token: The bearer token.
    """

    namespace: str
    publisher: str
    token: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"{self.namespace}/{self.publisher}"


def service_url(namespace: str, publisher: str) -> str:
    """The URL of a publisher's Service."""
    return f"http://{publisher}.{namespace}.svc:{HTTP_PORT}"


class Agents:
    """The agents of all publishers."""

    def __init__(self, url_of: Callable[[str, str], str] = service_url, waiting: Waiting = nullcontext) -> None:
        """Connect to nobody yet.

        Args:
            url_of: Gives an agent's URL from namespace and publisher.
            waiting: Entered while somebody waits for an agent.
        """
        self._url_of = url_of
        self._waiting = waiting
        timeout = httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        self._client = httpx2.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False)

    async def fleet(self, address: AgentAddress) -> Fleet:
        """Everybody on the publisher's journal. Raises: AgentUnansweringError, AgentRefusedError."""
        return _understood(await self._ask(address, "GET", "status"), _fleet_of)

    async def distribute(self, address: AgentAddress, order: Mapping[str, Any]) -> Delivery:
        """Publish a request; one that was published before under its id is found. Raises: see `fleet`."""
        path = f"publishers/{address.publisher}/distributions"
        timeout = httpx2.Timeout(_PACKAGING_SECONDS, connect=_CONNECT_SECONDS)
        return _understood(await self._ask(address, "POST", path, json=dict(order), timeout=timeout), _delivery_of)

    async def delivery(self, address: AgentAddress, package_id: str) -> Delivery:
        """What became of a package. Raises: see `fleet`."""
        path = f"publishers/{address.publisher}/distributions/{quote(package_id, safe='')}"
        return _understood(await self._ask(address, "GET", path), _delivery_of)

    async def build(self, address: AgentAddress, build_id: str) -> BuildProgress | None:
        """What the log has of a bulk build; None while it has none of its packages. Raises: see `fleet`."""
        try:
            return _understood(await self._ask(address, "GET", f"builds/{quote(build_id, safe='')}"), _build_of)
        except AgentUnansweringError as error:
            if error.where.get("error") != "BuildMissing":
                raise
            return None

    async def forget(self, address: AgentAddress, subscriber: str) -> None:
        """Take a subscriber off the books that is gone for good; an unknown one is no error. Raises: see `fleet`."""
        try:
            await self._ask(address, "DELETE", f"subscribers/{quote(subscriber, safe='')}")
        except AgentUnansweringError as error:
            if error.where.get("error") != "AgentMissing":
                raise

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    async def _ask(self, address: AgentAddress, method: str, path: str, **content: Any) -> Any:
        url = f"{self._url_of(address.namespace, address.publisher)}/api/v1/{path}"
        headers = {"Authorization": f"Bearer {address.token}"}
        try:
            async with self._waiting(), self._client.stream(method, url, headers=headers, **content) as answer:
                body = await _bounded(answer)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise AgentUnansweringError(f"no answer from publisher {address.publisher}: {reason_of(error)}") from error
        document = _json_of(body)
        if answer.status_code in _SUCCESS:
            return document
        raise _error_of(answer.status_code, document, address.publisher)


async def _bounded(answer: httpx2.Response) -> bytes:
    found = bytearray()
    async for piece in answer.aiter_bytes():
        found += piece
        if len(found) > _LARGEST_ANSWER:
            raise AgentUnansweringError(f"an answer of more than {_LARGEST_ANSWER} bytes is no answer of an agent")
    return bytes(found)


def _json_of(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _error_of(status: int, document: object, publisher: str) -> MailboatError:
    """The error in the agent's own words, where it has any: its name is what `mailboat explain` explains."""
    said = document if isinstance(document, Mapping) else {}
    name = _reason_of(said.get("title"), f"Status{status}")
    text = str(said.get("detail") or f"publisher {publisher} answered with status {status}")[:_LONGEST_TEXT]
    if status in _REFUSED and said.get("decision") != "passing":
        return AgentRefusedError(text, error=name)
    seconds = said.get("retry_after_seconds")
    wish = float(seconds) if isinstance(seconds, int | float) else None
    return AgentUnansweringError(text, error=name, retry_after_seconds=wish)


def _reason_of(title: object, otherwise: str) -> str:
    """What a condition can say as its reason."""
    if isinstance(title, str) and len(title) <= REASON.max_length and re.fullmatch(REASON.pattern, title):
        return title
    return otherwise


def _understood(document: Any, read: Callable[[Any], T]) -> T:
    try:
        return read(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise AgentUnansweringError(f"the answer is no document of an agent: {type(error).__name__}") from error


def _fleet_of(document: Any) -> Fleet:
    published = {
        _text(one["name"]): _time(one["last_published_ms"])
        for one in document["publishers"]
        if one.get("last_published_ms") is not None
    }
    members = tuple(map(_member_of, document["subscribers"]))
    return Fleet(_whole(document["journal"]["next_offset"]), published, members)


def _member_of(one: Any) -> Member:
    error, lag, is_ready = one.get("error"), one.get("lag"), one.get("is_ready")
    return Member(
        name=_text(one["name"]),
        state=_text(one["state"]),
        lag=None if lag is None else _whole(lag),
        attempts=_whole(one.get("attempts") or 0),
        is_ready=is_ready if isinstance(is_ready, bool) else None,
        follow=_texts(one.get("follow") or ()),
        problem=None if error is None else _problem_of(error),
    )


def _delivery_of(document: Any) -> Delivery:
    published_ms = document.get("published_ms")
    return Delivery(
        package_id=_text(document["package_id"]),
        offset=_whole(document["offset"]),
        published_at=None if published_ms is None else _time(published_ms),
        imported=_texts(document["imported"]),
        waiting=_texts(document["waiting"]),
        removed=_texts(document["removed"]),
        failed={_text(one["subscriber"]): _problem_of(one["cause"]) for one in document["failed"]},
        skipped=_reasons_of(document.get("skipped", ())),
        unknown=_reasons_of(document.get("unknown", ())),
    )


def _build_of(document: Any) -> BuildProgress:
    return BuildProgress(_whole(document["published"]), _whole(document["total"]))


def _problem_of(cause: Any) -> tuple[str, str]:
    return _reason_of(cause["code"], "Unknown"), _text(cause["message"])


def _reasons_of(members: Sequence[Any]) -> dict[str, str]:
    return {_text(one["subscriber"]): _text(one["reason"]) for one in members}


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value[:_LONGEST_TEXT]


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("no number")
    return value


def _time(milliseconds: object) -> datetime:
    return datetime.fromtimestamp(_whole(milliseconds) / 1000, UTC)
