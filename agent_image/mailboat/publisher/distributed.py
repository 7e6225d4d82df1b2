"""Which packages count as distributed: pure decisions over who is known, how far they are, and what they gave up.

A package waits for the subscribers that were known when it was appended; where none of them is left, for whoever is
known now. It is distributed when all of them, and at least one, are past it. A subscriber that is silent for longer
than it is waited for no longer counts, and the event names it; when it comes back it counts for what is appended from
then on. So neither one that goes nor one that comes makes an event early, late without bound, or twice; the reasons
are in docs/decisions/0010-distributed-events.md. Called by `DistributedNotifier`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Message, Missed, MissedReason, PackageMessage, PackageStatus, StatusMessage
from mailboat.queues.claims import Claims
from mailboat.queues.names import QueueName
from mailboat.queues.removals import RemovedPackages

MAX_MEMBERS: Final = 2_000
MAX_ABSENT: Final = 1_000
MAX_FAILED: Final = 100_000
MAX_MISSED: Final = 1_000
"""How many subscribers one event names at most."""


class Candidate(NamedTuple):
    """A package that has had no event yet; `appended_ms` is the log's time."""

    offset: Offset
    appended_ms: int
    message: PackageMessage


class Distributed(NamedTuple):
    """A package that counts as distributed, and who does not have its content."""

    candidate: Candidate
    missed: tuple[Missed, ...]


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A subscriber as it is remembered over restarts.

    Attributes:
        queue_name: Who.
        since_ms: When it became known; it counts for packages appended from then on.
        left_ms: When it was given up as silent; None while it is waited for.
        next_offset: What it read next when it was last heard; None where that is not known.
    """

    queue_name: QueueName
    since_ms: int
    left_ms: int | None = None
    next_offset: int | None = None


@dataclass(slots=True)
class _Member:
    queue_name: QueueName
    since_ms: int
    heard_seconds: float
    claims: Claims = field(default_factory=Claims)

    def claim(self, next_offset: int, heard_seconds: float) -> None:
        """It says that everything below `next_offset` is done."""
        self.claims = self.claims.and_then(next_offset, heard_seconds)

    def done_to(self, confirmed: int, now_seconds: float) -> int:
        """Everything below is done, and what it has to say about that is known."""
        return self.claims.done_to(confirmed, now_seconds)

    @property
    def claimed(self) -> int:
        return self.claims.claimed


class Audience:
    """Who is waited for. Belongs to one thread; times are those of the monotonic clock, and of the log where `_ms`."""

    def __init__(self, stored: Iterable[StoredMember] = (), now_seconds: float = 0.0) -> None:
        """Go on with those that were known; where they are is believed when they say it again."""
        self._members: dict[QueueName, _Member] = {}
        self._absent: list[StoredMember] = []
        for one in stored:
            if one.left_ms is None:
                self._members[one.queue_name] = _Member(one.queue_name, one.since_ms, now_seconds)
            else:
                self._absent.append(one)

    def knows(self, queue_name: QueueName) -> bool:
        """Whether the subscriber is waited for."""
        return queue_name in self._members

    def hear(self, queue_name: QueueName, next_offset: int | None, heard_ms: int, heard_seconds: float) -> bool:
        """Take in an announcement; True when it is somebody new. None is a position that can't be believed."""
        known = self._members.get(queue_name)
        if known is None and len(self._members) >= MAX_MEMBERS:
            return False  # who is known is not pushed out by invented names
        member = known or _Member(queue_name, heard_ms, heard_seconds)
        self._members[queue_name] = member
        member.heard_seconds = max(member.heard_seconds, heard_seconds)
        member.claim(0 if next_offset is None else next_offset, heard_seconds)
        return known is None

    def leave(self, queue_name: QueueName) -> bool:
        """It takes leave for good: nobody waits for it, and no event names it; whether it was known."""
        return self._members.pop(queue_name, None) is not None

    def drop_silent(self, now_ms: int, now_seconds: float, silent_seconds: float) -> Sequence[QueueName]:
        """No longer wait for those that were silent for longer than that."""
        gone = [one for one in self._members.values() if now_seconds - one.heard_seconds > silent_seconds]
        for one in gone:
            del self._members[one.queue_name]
            over_ms = int(1000 * (now_seconds - one.heard_seconds - silent_seconds))
            self._absent.append(StoredMember(one.queue_name, one.since_ms, now_ms - over_ms, one.claimed))
        del self._absent[:-MAX_ABSENT]
        return [one.queue_name for one in gone]

    @property
    def has_absent(self) -> bool:
        """Whether somebody was given up as silent."""
        return bool(self._absent)

    def forget_absent(self) -> None:
        """No package is left that waited for them."""
        self._absent.clear()

    def horizon(self) -> int:
        """Nobody is past anything from here on."""
        return max((one.claimed for one in self._members.values()), default=0)

    def is_settling(self, now_seconds: float) -> bool:
        """Whether positions were announced that do not count yet."""
        return any(one.claims.is_settling(now_seconds) for one in self._members.values())

    def stored(self) -> list[StoredMember]:
        """What is to be remembered."""
        members = [StoredMember(one.queue_name, one.since_ms, None, one.claimed) for one in self._members.values()]
        return [*members, *self._absent]

    def plan(
        self, candidates: Iterable[Candidate], verdicts: Verdicts, now_seconds: float, limit: int
    ) -> list[Distributed]:
        """The first of the candidates, in order, that are distributed now; at most `limit`."""
        done_to = {
            one.queue_name: (one.since_ms, one.done_to(verdicts.confirmed(one.queue_name), now_seconds))
            for one in self._members.values()
        }
        return plan_distributed(candidates, list(done_to.values()), self._missed_by(verdicts), limit)

    def _missed_by(self, verdicts: Verdicts) -> Callable[[Candidate], tuple[Missed, ...]]:
        def missed(candidate: Candidate) -> tuple[Missed, ...]:
            found = verdicts.missed(candidate.offset)
            named = {one.subscriber for one in found}
            for one in self._absent:
                is_counted = one.since_ms <= candidate.appended_ms <= (one.left_ms or 0)
                is_past = one.next_offset is not None and one.next_offset > candidate.offset
                if is_counted and not is_past and str(one.queue_name) not in named:
                    named.add(str(one.queue_name))
                    found.append(Missed(str(one.queue_name), MissedReason.ABSENT))
            return tuple(sorted(found)[:MAX_MISSED])

        return missed


def plan_distributed(
    candidates: Iterable[Candidate],
    members: Sequence[tuple[int, int]],
    missed: Callable[[Candidate], tuple[Missed, ...]],
    limit: int,
) -> list[Distributed]:
    """The decision itself. Each of `members` is known since a time, and done with everything below an offset."""
    found: list[Distributed] = []
    lowest = min((done_to for _, done_to in members), default=0)
    for candidate in candidates:
        if len(found) == limit:
            break
        if candidate.offset >= lowest:
            counted = [done for since, done in members if since <= candidate.appended_ms]
            if candidate.offset >= min(counted or [lowest]):
                break
        found.append(Distributed(candidate, missed(candidate)))
    return found


class Verdicts:
    """A fold over the status topic: what subscribers do not have of one publisher's packages. See `StatusListener`.

    Anyone may write to that topic, so it is bounded in sum: of too many subscribers the one not heard of for longest
    is forgotten, of too many failures those of the subscriber with most.
    """

    def __init__(self, publisher: AgentName) -> None:
        """Know of nothing yet."""
        self._publisher = publisher
        self._removed = RemovedPackages()
        self._last_removed: dict[QueueName, int] = {}
        self._failed: dict[QueueName, set[int]] = {}
        self._failed_count = 0
        self._confirmed: OrderedDict[QueueName, int] = OrderedDict()
        self._below = 0

    def hear(self, status: Message) -> None:
        """Take in a status; all else is ignored."""
        if not isinstance(status, StatusMessage) or status.pub_agent_name != self._publisher:
            return
        queue = QueueName(status.sub_sling_id, status.sub_agent_name)
        self._confirmed[queue] = max(self._confirmed.get(queue, -1), status.offset)
        self._confirmed.move_to_end(queue)
        if len(self._confirmed) > 2 * MAX_MEMBERS:
            self._forget(next(iter(self._confirmed)))
        self._removed.hear(status)
        if status.status is PackageStatus.REMOVED:
            self._last_removed[queue] = max(self._last_removed.get(queue, -1), status.offset)
        elif status.status is PackageStatus.IMPORTED:
            if status.offset in self._failed.get(queue, ()):
                self._set_failed(queue, self._failed[queue] - {status.offset})
        elif status.offset >= self._below:
            self._add_failed(queue, status.offset)

    def clear(self) -> None:
        """Forget all."""
        self._removed.clear()
        self._last_removed.clear()
        self._failed.clear()
        self._failed_count = 0
        self._confirmed.clear()

    def forget_below(self, offset: int) -> None:
        """Packages below have had their event."""
        self._below = offset
        for queue, offsets in list(self._failed.items()):
            self._set_failed(queue, {one for one in offsets if one >= offset})
        for queue in [queue for queue, last in self._last_removed.items() if last < offset]:
            del self._last_removed[queue]

    def confirmed(self, queue_name: QueueName) -> int:
        """The highest offset that a subscriber has said anything about; -1 when none."""
        return self._confirmed.get(queue_name, -1)

    def missed(self, offset: Offset) -> list[Missed]:
        """Who does not have the package because it was given up, or cleared out of the queue."""
        found = [Missed(str(one), MissedReason.FAILED) for one, offsets in self._failed.items() if offset in offsets]
        cleared = [one for one in self._last_removed if self._removed.is_removed(self._publisher, one, offset)]
        return [*found, *(Missed(str(one), MissedReason.REMOVED) for one in cleared)]

    def _add_failed(self, queue: QueueName, offset: int) -> None:
        offsets = self._failed.setdefault(queue, set())
        self._failed_count += offset not in offsets
        offsets.add(offset)
        if self._failed_count > MAX_FAILED:
            self._set_failed(max(self._failed, key=lambda one: len(self._failed[one])), set())

    def _set_failed(self, queue: QueueName, offsets: set[int]) -> None:
        self._failed_count += len(offsets) - len(self._failed.pop(queue, ()))
        if offsets:
            self._failed[queue] = offsets

    def _forget(self, queue: QueueName) -> None:
        del self._confirmed[queue]
        self._last_removed.pop(queue, None)
        self._set_failed(queue, set())
