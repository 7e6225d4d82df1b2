"""The subscribers that matter for retention: durable ones, registered by announcements, and others while alive.

A fold over the discovery topic: announcements, deregistrations, and the registry that the last truncating agent carried
forward, so that a subscriber that was away longer than announcements are kept is still known. A registration ends when
its subscriber deregisters, announces that it is not durable, or was silent for too long; the last is logged, as that
subscriber may lose packages.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final, NamedTuple

from mailboat.model.identifiers import Offset
from mailboat.model.positions import Bounds, LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.queues.announced import ALIVE_SECONDS, Announced
from mailboat.queues.queue_names import QueueName
from mailboat.retention.head_plan import Holder

MAX_REGISTRATIONS: Final = 10_000
REGISTRY_KEY: Final = b"registry"

PART_REGISTRATIONS: Final = 500
"""In one message: with the longest names still far below the record limit of a discovery topic."""

_LOG: Final = logging.getLogger(__name__)


class _Entry(NamedTuple):
    registration: Registration
    is_durable: bool
    is_carried: bool = False  # known from a registry alone


class Registry:
    """The registrations for one package topic, for one thread."""

    def __init__(self, identity: LogIdentity, max_registrations: int = MAX_REGISTRATIONS) -> None:
        """No registrations yet."""
        self.refused = 0
        self._identity = identity
        self._max = max_registrations
        self._entries: dict[QueueName, _Entry] = {}
        self._deregistered: OrderedDict[QueueName, int] = OrderedDict()
        self._as_of = 0

    def apply(self, announced: Announced, bounds: Bounds) -> None:
        """Apply an announcement; the newest counts, also when its position went back.

        One that has read nothing yet is kept everything that the log holds at that moment. A position beyond the end
        is not believed: no subscriber can have read that far, so what was known before counts.

        Args:
            announced: What it says, and where it stands in the discovery topic.
            bounds: Of the package topic.
        """
        key, announcement = announced.queue_name, announced.message
        if announcement is None:
            self._deregister(key, announced.offset)
            return
        if announcement.log_identity not in {None, self._identity}:
            return  # its position is in another log: it stops there first, as JournalReplaced
        next_offset = announcement.reads_next
        if next_offset is None or next_offset > bounds.next_offset:
            known = self._entries.get(key)
            next_offset = bounds.earliest_offset if known is None else known.registration.next_offset
        self._deregistered.pop(key, None)
        self._put(
            _Entry(
                Registration(key.sling_id, key.agent_name, next_offset, announced.appended_ms), announcement.is_durable
            )
        )

    def hear_registry(self, message: RegistryMessage) -> None:
        """Merge what another agent carried forward; announcements received since win.

        A subscriber that deregistered after the registry was made is not in it. A newer registry replaces an older one.
        """
        if message.identity != self._identity:
            return
        # the parts of one registry have one `as_of`: the first part of a newer one drops what the older one carried
        if message.as_of > self._as_of:
            self._as_of = message.as_of
            self._entries = {key: one for key, one in self._entries.items() if not one.is_carried}
        for registration in message.registrations:
            key = QueueName(registration.sling_id, registration.name)
            known = self._entries.get(key)
            # the deregistration was appended after the registry was made, so it wins
            if self._deregistered.get(key, -1) >= message.as_of:
                continue
            if known is None or known.registration.heard_ms < registration.heard_ms:
                self._put(_Entry(registration, is_durable=True, is_carried=True))

    def read_again(self) -> None:
        """Prepare for all of the discovery topic, which may be another one: what it no longer holds stays known."""
        # Both are offsets of the topic that was read.
        self._as_of = 0
        self._deregistered.clear()

    def messages(self, as_of: Offset) -> list[RegistryMessage]:
        """What is to be carried forward, made of all of the discovery topic before `as_of`: one message or more."""
        durable = [entry.registration for entry in self._entries.values() if entry.is_durable]
        return [
            RegistryMessage(self._identity, as_of, tuple(durable[start : start + PART_REGISTRATIONS]))
            for start in range(0, max(1, len(durable)), PART_REGISTRATIONS)
        ]

    def durable(self) -> frozenset[QueueName]:
        """The registered subscribers."""
        return frozenset(key for key, one in self._entries.items() if one.is_durable)

    def expire(self, now_ms: int, timeout_seconds: float | None, *, are_all_heard: bool = True) -> list[Registration]:
        """End the registrations of those silent for too long, and return the durable ones among them.

        Args:
            now_ms: The time.
            timeout_seconds: For the durable; None: never.
            are_all_heard: Whether live subscribers had time to announce themselves; if not, silence is ignored.
        """
        gone = []
        for key, (registration, is_durable, _) in list(self._entries.items()):
            limit = timeout_seconds if is_durable else ALIVE_SECONDS if are_all_heard else None
            if limit is not None and now_ms - registration.heard_ms > limit * 1000:
                del self._entries[key]
                if is_durable:
                    gone.append(registration)
        return gone

    def holders(self) -> list[Holder]:
        """Those that matter, and what they read next."""
        return [Holder(entry.registration.name, entry.registration.next_offset) for entry in self._entries.values()]

    def registrations(self) -> list[tuple[Registration, bool]]:
        """All that are known, and whether they are durable, by name."""
        found = [(entry.registration, entry.is_durable) for entry in self._entries.values()]
        return sorted(found, key=lambda one: (one[0].name, one[0].sling_id))

    def _deregister(self, key: QueueName, offset: Offset) -> None:
        self._entries.pop(key, None)
        self._deregistered[key] = offset
        if len(self._deregistered) > self._max:
            self._deregistered.popitem(last=False)

    def _put(self, entry: _Entry) -> None:
        """Keep it; when there are too many, who is known stays and who is new is refused."""
        key = QueueName(entry.registration.sling_id, entry.registration.name)
        if key not in self._entries and len(self._entries) >= self._max:
            if not self.refused:
                _LOG.warning(
                    "%d subscribers are known already; packages are not kept for more: %s", self._max, key.agent_name
                )
            self.refused += 1
            return
        self._entries[key] = entry
