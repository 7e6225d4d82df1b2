"""The status of all agents as one: asked at most every few seconds, a few at a time, each for a limited time.

An agent that does not answer costs the others nothing. Its last answer is kept for an hour, with the state `stale`.
Agents are asked only while a page is open. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Final

from mailboat.api.records import CauseView, JournalView, PublisherView, StatusView, SubscriberStatusView
from mailboat.errors import AgentUnreachableError, MailboatError
from mailboat.frozen import Frozen

ASKED_AT_ONCE: Final = 8
ANSWER_SECONDS: Final = 4.0
FRESH_SECONDS: Final = 5.0
STALE: Final = "stale"
_KEPT: Final = timedelta(hours=1)
_MOST_SUBSCRIBERS: Final = 5_000


class AgentState(Frozen):
    """What is known of one agent.

    Attributes:
        name: `NAMESPACE/PUBLISHER`.
        status: Its last answer; None if absent.
        heard_at: When it came.
        error: Why the last request failed; None when it did not.
    """

    name: str
    status: StatusView | None = None
    heard_at: datetime | None = None
    error: MailboatError | None = None


@dataclass(frozen=True, slots=True)
class FleetSubscriberView(SubscriberStatusView):
    """A subscriber of the fleet, with the agent that reported it: commands to it are given there."""

    agent: str = ""


_REPORTED: Final = tuple(each.name for each in fields(SubscriberStatusView) if each.name != "name")


def merge_states(states: Sequence[AgentState]) -> StatusView:
    """One status of all agents; publishers and subscribers carry the namespace in their names."""
    publishers: list[PublisherView] = []
    subscribers: dict[tuple[str, str, str | None], FleetSubscriberView] = {}
    journals: dict[str, JournalView] = {}
    # agents that answered first: a subscriber that several know, as they share a journal, is taken from one of them
    for state in sorted(states, key=lambda one: (one.error is not None, one.name)):
        namespace, _, publisher = state.name.partition("/")
        known = (
            None if state.status is None else next((p for p in state.status.publishers if p.name == publisher), None)
        )
        queues = STALE if state.error is not None else None if known is None else known.state
        view = PublisherView(state.name) if known is None else replace(known, name=state.name)
        publishers.append(replace(view, state=queues))
        if state.status is not None:
            journals.setdefault(f"{namespace} {state.status.journal.description}", state.status.journal)
            for subscriber in state.status.subscribers:
                if (key := (namespace, subscriber.name, subscriber.sling_id)) not in subscribers:
                    subscribers[key] = _marked(subscriber, namespace, state)
    found = list(subscribers.values())
    return StatusView(
        journal=_joined(list(journals.values())),
        publishers=tuple(sorted(publishers, key=lambda one: one.name)),
        subscribers=tuple(found[:_MOST_SUBSCRIBERS]),
        dropped_subscribers=max(0, len(found) - _MOST_SUBSCRIBERS),
    )


def _marked(reported: SubscriberStatusView, namespace: str, state: AgentState) -> FleetSubscriberView:
    """A subscriber as its agent reported it; if that is silent, with the reason and the age of what is shown."""
    known = {name: getattr(reported, name) for name in _REPORTED}
    one = FleetSubscriberView(f"{namespace}/{reported.name}", **known, agent=state.name)
    if state.error is None:
        return one
    since = "" if state.heard_at is None else f"; at {state.heard_at:%H:%M:%S} UTC it was {one.state}"
    cause = CauseView(state.error.name, f"the agent {state.name} does not answer{since}")
    return replace(one, state=STALE, error=cause, rate_per_second=None, eta_seconds=None)


def _joined(journals: Sequence[JournalView]) -> JournalView:
    if len(journals) == 1:
        return journals[0]
    sizes = [journal.size_bytes for journal in journals]
    size = None if not sizes or None in sizes else sum(size or 0 for size in sizes)
    return JournalView(f"{len(journals)} journals", 0, sum(journal.next_offset for journal in journals), size)


AskAgent = Callable[[], Awaitable[StatusView]]


@dataclass(slots=True)
class FleetStatus:
    """The status of all agents.

    Attributes:
        agents: Returns a request for each agent by `NAMESPACE/PUBLISHER`.
        now: The time.
        monotonic: A clock that is never set.
    """

    agents: Callable[[], Awaitable[dict[str, AskAgent]]]
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    _states: dict[str, AgentState] = field(default_factory=dict)
    _asked_at: float = float("-inf")
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self) -> StatusView:
        """The present status; several callers share one round of requests. Raises: the cluster's errors."""
        async with self._asking:
            if self.monotonic() - self._asked_at >= FRESH_SECONDS:
                await self._ask_all(await self.agents())
                self._asked_at = self.monotonic()
            return merge_states(list(self._states.values()))

    async def _ask_all(self, agents: dict[str, AskAgent]) -> None:
        places = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(name: str, request: AskAgent) -> AgentState:
            async with places:
                return await self._ask(name, request)

        found = await asyncio.gather(*(ask(name, request) for name, request in agents.items()))
        self._states = {agent.name: agent for agent in found}

    async def _ask(self, name: str, request: AskAgent) -> AgentState:
        now, before = self.now(), self._states.get(name, AgentState(name))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return AgentState(name, await request(), now)
        except TimeoutError:
            error: MailboatError = AgentUnreachableError(f"no answer within {ANSWER_SECONDS:g} seconds")
        except MailboatError as raised:
            error = raised
        if before.heard_at is not None and now - before.heard_at > _KEPT:
            before = AgentState(name)
        return replace(before, error=error)
