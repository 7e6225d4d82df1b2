"""The known subscribers: a pure fold of announcements.

A subscriber is alive for 30 seconds after its last announcement, by the reader's clock. It is remembered for an hour,
so that `status` can show that it went silent, and then removed. Both the number and the bytes are bounded, so invented
subscribers cost no more than the bounds; the longest silent is dropped first, and counted. Announced offsets may go
backwards and are believed: a target may have been restored.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.model.identifiers import natural_key
from mailboat.model.messages import DiscoveryMessage, HookCalls
from mailboat.queues.announced import ALIVE_SECONDS
from mailboat.queues.claims import PositionClaims
from mailboat.queues.queue_names import QueueName

WINDOW_MS: Final = 60_000
_FINEST_MS: Final = 2_000
"""Announcements that come faster count as one, so a window holds at most some 30 of them."""


class _Sample(NamedTuple):
    heard_ms: int
    last_done: int


class Rate:
    """The speed of one subscriber. Not safe for several threads."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        """Start without samples."""
        self._samples: deque[_Sample] = deque()

    def apply(self, heard_ms: int, last_done: int) -> None:
        """Apply an announced position."""
        samples = self._samples
        if len(samples) > 1 and heard_ms - samples[-2].heard_ms < _FINEST_MS:
            # Replaced, not left out: the newest position always counts.
            samples.pop()
        samples.append(_Sample(heard_ms, last_done))
        while samples[0].heard_ms < heard_ms - WINDOW_MS:
            samples.popleft()

    def is_known_at(self, last_done: int, since_ms: int) -> bool:
        """Whether the last position is that one, and was applied after that time."""
        return (
            bool(self._samples) and self._samples[-1].last_done == last_done and self._samples[-1].heard_ms > since_ms
        )

    def per_second(self) -> float | None:
        """Packages a second between the first and the last of the window; None where unknown or nothing moved."""
        if not self._samples:
            return None
        first, last = self._samples[0], self._samples[-1]
        if last.heard_ms <= first.heard_ms or last.last_done <= first.last_done:
            return None
        return (last.last_done - first.last_done) * 1000 / (last.heard_ms - first.heard_ms)


REMEMBERED_SECONDS: Final = 3600.0
MAX_SUBSCRIBERS: Final = 2_000
MAX_BYTES: Final = 32 * 1024**2
"""Of all announcements: a hundred subscribers of a hundred publishers each come to 4 MiB."""

_SUBSCRIBER_BYTES: Final = 2_500  # measured: the objects without their texts
_LISTED_BYTES: Final = 400  # of a publisher's state, or of a failed call


@dataclass(frozen=True, slots=True)
class KnownSubscriber:
    """A subscriber as it last announced itself.

    Attributes:
        queue_name: Who.
        announcement: What it said.
        heard_ms: When, milliseconds since 1970 UTC, by the clock of the reader; never in the future.
        rate_per_second: Packages a second during the last minute; None where unknown or nothing moved.
        claims: The positions that it announced, with the times in seconds by the same clock.
    """

    queue_name: QueueName
    announcement: DiscoveryMessage
    heard_ms: int
    rate_per_second: float | None = None
    claims: PositionClaims = field(default_factory=PositionClaims)

    def is_alive(self, now_ms: int, alive_seconds: float = ALIVE_SECONDS) -> bool:
        """Whether the last announcement is young enough at `now_ms`."""
        return now_ms - self.heard_ms <= alive_seconds * 1000


class Topology:
    """The known subscribers; evicts the one silent for longest. Not safe for several threads."""

    def __init__(self, max_subscribers: int = MAX_SUBSCRIBERS, max_bytes: int = MAX_BYTES) -> None:
        """Know of no subscriber yet."""
        self.dropped_count = 0
        self._max = max_subscribers
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[QueueName, KnownSubscriber] = OrderedDict()
        self._rates: dict[QueueName, Rate] = {}

    def apply(self, announcement: DiscoveryMessage, heard_ms: int) -> None:
        """Apply an announcement; the newest of an agent counts, whatever its offsets."""
        key = QueueName(announcement.sub_sling_id, announcement.sub_agent_name)
        rate = self._rates.setdefault(key, Rate())
        per_second = None
        # A subscriber that starts has not read its position: as 0, all that it imported before would be of this minute.
        if announcement.reads_next is not None:
            rate.apply(heard_ms, announcement.reads_next - 1)
            per_second = rate.per_second()
        before = self._known.get(key)
        claims = PositionClaims() if before is None else before.claims
        claims = claims.and_then(announcement.reads_next or 0, heard_ms / 1000)
        self._known[key] = KnownSubscriber(key, announcement, heard_ms, per_second, claims)
        self._known.move_to_end(key)
        self._bytes += _cost(announcement) - (0 if before is None else _cost(before.announcement))
        # The longest silent: each announcement moves its subscriber to the end.
        while len(self._known) > self._max or self._bytes > self._max_bytes:
            self._forget(next(iter(self._known)))
            self.dropped_count += 1

    def leave(self, key: QueueName) -> None:
        """Remove a subscriber that left permanently."""
        if key in self._known:
            self._forget(key)

    def remove_expired(self, now_ms: int, remembered_seconds: float = REMEMBERED_SECONDS) -> Sequence[KnownSubscriber]:
        """Forget those silent for longer than that, and return them."""
        gone = []
        for subscriber in self._known.values():  # the longest silent come first
            if subscriber.is_alive(now_ms, remembered_seconds):
                break
            gone.append(subscriber)
        for expired in gone:
            self._forget(expired.queue_name)
        return gone

    def subscribers(self) -> Sequence[KnownSubscriber]:
        """All that are known, alive or not, by name."""
        return sorted(self._known.values(), key=lambda one: (natural_key(one.queue_name.agent_name), one.queue_name))

    def _forget(self, key: QueueName) -> None:
        self._bytes -= _cost(self._known.pop(key).announcement)
        del self._rates[key]


def _cost(announcement: DiscoveryMessage) -> int:
    calls = announcement.after_calls or HookCalls()
    states = (*announcement.states, *announcement.former)
    texts: list[str | None] = [announcement.sub_sling_id, announcement.sub_agent_name, announcement.state]
    texts += [announcement.target, announcement.ready_reason, *(state.pub_agent_name for state in states)]
    for cause in (announcement.cause, calls.cause, *(call.cause for call in calls.failed)):
        texts += [] if cause is None else [cause.code, cause.message, cause.path, cause.trace_excerpt]
    listed_bytes = _LISTED_BYTES * (len(states) + len(calls.failed))
    return _SUBSCRIBER_BYTES + listed_bytes + sum(sys.getsizeof(text) for text in texts if text)
