"""Who matters for retention: durable subscribers, registered by their announcements, and the others while alive.

A fold over the discovery topic: announcements, tombstones of those that took leave, and the registry that the last
truncating agent carried forward, so that a subscriber that was away longer than announcements are kept is still known.
A registration ends when its subscriber takes leave, says that it is durable no more, or was silent for too long; the
last is told, as that subscriber may lose packages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import DiscoveryMessage
from mailboat.model.positions import Bounds, LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.retention.plan import Holder

ALIVE_SECONDS: Final = 30.0
MAX_REGISTRATIONS: Final = 10_000
REGISTRY_KEY: Final = b"registry"


class _Key(NamedTuple):
    sling_id: SlingId
    name: AgentName


class _Entry(NamedTuple):
    registration: Registration
    is_durable: bool


class Registry:
    """The registrations for one package topic, for one thread."""

    def __init__(self, identity: LogIdentity, max_registrations: int = MAX_REGISTRATIONS) -> None:
        """Know nobody."""
        self.forgotten = 0
        self._identity = identity
        self._max = max_registrations
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()

    def hear(self, announcement: DiscoveryMessage, heard_ms: int, bounds: Bounds) -> None:
        """Take in an announcement; the newest counts, also when its position went back.

        One that has read nothing yet is kept everything that the log holds at that moment.
        """
        key = _Key(announcement.sub_sling_id, announcement.sub_agent_name)
        if not announcement.states:
            self._entries.pop(key, None)  # it took leave for good
            return
        if announcement.log_identity not in {None, self._identity}:
            return  # it stands in another log, and has to come to terms with that first
        next_offset = _next_offset(announcement)
        if next_offset is None:
            known = self._entries.get(key)
            next_offset = bounds.earliest_offset if known is None else known.registration.next_offset
        self._put(_Entry(Registration(*key, next_offset, heard_ms), announcement.is_durable))

    def hear_leave(self, key: bytes) -> None:
        """Take in a tombstone: `<sling id>-<agent name>` took leave."""
        for known in [one for one in self._entries if f"{one.sling_id}-{one.name}".encode() == key]:
            del self._entries[known]

    def hear_registry(self, message: RegistryMessage) -> None:
        """Take in what another agent carried forward; what was heard since counts for more."""
        if message.identity != self._identity:
            return
        for one in message.registrations:
            known = self._entries.get(_Key(one.sling_id, one.name))
            if known is None or known.registration.heard_ms < one.heard_ms:
                self._put(_Entry(one, is_durable=True))

    def message(self) -> RegistryMessage:
        """What is to be carried forward."""
        return RegistryMessage(
            self._identity, tuple(one.registration for one in self._entries.values() if one.is_durable)
        )

    def expire(self, now_ms: int, timeout_seconds: float | None) -> Sequence[Registration]:
        """End the registrations of those silent for too long, and return the durable ones among them."""
        gone = []
        for key, (registration, is_durable) in list(self._entries.items()):
            limit = timeout_seconds if is_durable else ALIVE_SECONDS
            if limit is not None and now_ms - registration.heard_ms > limit * 1000:
                del self._entries[key]
                if is_durable:
                    gone.append(registration)
        return gone

    def holders(self) -> list[Holder]:
        """Those that matter, and what they read next."""
        return [Holder(one.name, one.next_offset) for one, _ in self._entries.values()]

    def registrations(self) -> list[tuple[Registration, bool]]:
        """All that are known, and whether they are durable, by name."""
        return sorted(self._entries.values(), key=lambda one: (one[0].name, one[0].sling_id))

    def _put(self, entry: _Entry) -> None:
        """Keep it; beyond the bound the longest silent that are not durable go first."""
        key = _Key(entry.registration.sling_id, entry.registration.name)
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > self._max:
            victim = next(
                (one for one, known in self._entries.items() if not known.is_durable), next(iter(self._entries))
            )
            del self._entries[victim]
            self.forgotten += 1


def _next_offset(announcement: DiscoveryMessage) -> Offset | None:
    """What it reads next; agents of the original's line tell the last one done, for each publisher."""
    if announcement.next_offset is not None:
        return announcement.next_offset
    done = min(one.offset for one in announcement.states)
    return Offset(done + 1) if done >= 0 else None
