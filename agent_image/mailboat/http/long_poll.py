"""Waits for an outcome without holding a thread: polls with growing pauses until it is settled.

A hundred callers that wait a minute each cost a look now and then, so they can't keep others from being served. Called
by the routes that take `wait`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool

from mailboat.clock import Clock

T = TypeVar("T")
# From 10 ms, which most answers need, to 250 ms: a long wait costs four looks a second.
_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.25


class WaitingPorts(Protocol):
    """What a wait needs of the process."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def stopping(self) -> threading.Event:
        """Set when waiting calls should answer with what they know."""


class Wait(NamedTuple):
    """How long a caller waits, and whether its connection is gone."""

    seconds: float
    is_gone: Callable[[], Awaitable[bool]]


async def settled(ports: WaitingPorts, look: Callable[[], T], is_settled: Callable[[T], bool], wait: Wait) -> T:
    """What `look` gives once it is settled, at the timeout, or when agent or caller go. Raises: as `look`."""
    ends = ports.clock.monotonic() + wait.seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        seen = await run_in_threadpool(look)
        left = ends - ports.clock.monotonic()
        if is_settled(seen) or left <= 0.0 or ports.stopping.is_set():
            return seen
        await asyncio.sleep(min(pause, left))
        # the limit of connections bounds the waits only if none outlives its connection
        if await wait.is_gone():
            return seen
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
