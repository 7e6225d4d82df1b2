"""Reads a request's body first, with limits of size and time.

The request's head may promise anything.

A body in chunks has no length in the head, so it is counted as it comes. Called by `gate.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, Final

from starlette.types import Message, Receive, Scope

from mailboat.json_decoder import parse_value

_DRAIN_SECONDS: Final = 1.0
"""How long what is too much is read and thrown away, so that its sender sees the answer and not a broken connection."""

_SHOWN_NAME: Final = 40


class BodyTooLargeError(Exception):
    """A signal to the gate: the body is larger than the limit."""


class ClientGoneError(Exception):
    """A signal to the gate: the client disconnected in the middle of its request."""


def promised_bytes(scope: Scope) -> int | None:
    """The length that the head promises; None if absent."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return None


def has_body(scope: Scope) -> bool:
    """Whether the head announces a body."""
    is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    return is_chunked or bool(promised_bytes(scope))


async def read_body(scope: Scope, receive: Receive, max_bytes: int, max_seconds: float) -> bytes:
    """The whole body.

    Raises:
        BodyTooLargeError: It is larger than `max_bytes`; a bit more of it was read and thrown away.
        ClientGoneError: The client disconnected.
        TimeoutError: It was not received within `max_seconds`.
    """
    if not has_body(scope):
        return b""
    async with asyncio.timeout(max_seconds):
        body = bytearray()
        is_more = True
        is_too_large = (promised_bytes(scope) or 0) > max_bytes
        while is_more and not is_too_large:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
            is_too_large = len(body) > max_bytes
    if is_too_large:
        await _drain(receive, is_more=is_more)
        raise BodyTooLargeError
    return bytes(body)


def is_json(content_type: str) -> bool:
    """Whether a header `Content-Type` announces JSON."""
    return "json" in content_type.partition(";")[0].lower()


def json_fault(body: bytes) -> str | None:
    """Why a body is not JSON that every reader reads alike (RFC 8259, RFC 7493); None when it is.

    Refused are other encodings than UTF-8, an object with the same member twice (one reader takes the first, another
    the last), lone surrogates, NaN and infinities.
    """
    try:
        text = body.decode("utf-8-sig")
        document = parse_value(text, _members)
        # The parser accepts lone surrogates; only encoding refuses them.
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8: byte {error.start} is wrong"
    except UnicodeEncodeError:
        return "it has half of a character, a lone surrogate"
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    return None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"it has the member {name[:_SHOWN_NAME]!r} twice")
    return found


async def _drain(receive: Receive, *, is_more: bool) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while is_more:
                message = await receive()
                is_more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError:
        return


class Replay:
    """A `receive` that gives a body that was read before, then what the connection says."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        """Nothing given yet."""
        self._message: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._receive = receive

    async def __call__(self) -> Message:
        """The next message."""
        if self._message is not None:
            message, self._message = self._message, None
            return message
        return await self._receive()
