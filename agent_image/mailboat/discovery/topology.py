"""Who is there: a pure fold of announcements into the known subscribers.

A subscriber is alive for 30 seconds after its last announcement, by the reader's clock; expired ones are removed, and
the number is bounded, so that a thousand invented subscribers cost no more than the bound. Announced offsets may go
backwards and are believed: a target may have been restored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, SlingId
from mailboat.model.messages import DiscoveryMessage

ALIVE_SECONDS: Final = 30.0
MAX_SUBSCRIBERS: Final = 10_000


class AgentKey(NamedTuple):
    """A subscriber agent: the instance and the agent's name."""

    sling_id: SlingId
    name: AgentName


@dataclass(frozen=True, slots=True)
class KnownSubscriber:
    """A subscriber as it last announced itself; `heard_ms` is the time of the announcement's record in the log."""

    key: AgentKey
    announcement: DiscoveryMessage
    heard_ms: int

    def is_alive(self, now_ms: int, alive_seconds: float = ALIVE_SECONDS) -> bool:
        """Whether the last announcement is young enough at `now_ms`."""
        return now_ms - self.heard_ms <= alive_seconds * 1000


class Topology:
    """The subscribers heard of, the longest silent first out. Not safe for several threads."""

    def __init__(self, max_subscribers: int = MAX_SUBSCRIBERS) -> None:
        """Know nobody yet."""
        self._max = max_subscribers
        self._known: OrderedDict[AgentKey, KnownSubscriber] = OrderedDict()

    def hear(self, announcement: DiscoveryMessage, heard_ms: int) -> None:
        """Take in an announcement; the newest of an agent counts, whatever offsets it tells."""
        key = AgentKey(announcement.sub_sling_id, announcement.sub_agent_name)
        self._known[key] = KnownSubscriber(key, announcement, heard_ms)
        self._known.move_to_end(key)
        while len(self._known) > self._max:
            self._known.popitem(last=False)

    def remove_expired(self, now_ms: int, alive_seconds: float = ALIVE_SECONDS) -> Sequence[KnownSubscriber]:
        """Forget those silent for too long, and return them."""
        gone = [one for one in self._known.values() if not one.is_alive(now_ms, alive_seconds)]
        for one in gone:
            del self._known[one.key]
        return gone

    def subscribers(self) -> Sequence[KnownSubscriber]:
        """All that are known, alive or not, by name."""
        return sorted(self._known.values(), key=lambda one: (one.key.name, one.key.sling_id))
