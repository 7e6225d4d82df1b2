"""Which packages count as distributed: pure decisions over who is known, how far they are, and what they imported.

A package waits for the subscribers that were known when it was appended; where none of them is left, for those that
are known now. It is distributed when all of them, and at least one, are past it. A subscriber that is silent for longer
than it is waited for no longer counts, and the event names it; when it comes back it counts for what is appended from
then on. So neither one that goes nor one that comes makes an event early, late without bound, or twice; the reasons
are in docs/decisions/0010-distributed-events.md. Called by `DistributedNotifier`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Missed, MissedReason, PackageMessage, ReportStart
from mailboat.queues.claims import PositionClaims
from mailboat.queues.outcomes import Outcome, OutcomeFacts, decide_outcome
from mailboat.queues.queue_names import QueueName
from mailboat.queues.reports import PackageReports

MAX_MEMBERS: Final = 2_000
MAX_ABSENT: Final = 1_000
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


class SubscriberFacts(NamedTuple):
    """What a subscriber announces that decides whether silence about a package means an import."""

    is_editable: bool = False
    start: ReportStart | None = None


_NO_FACTS: Final = SubscriberFacts()


@dataclass(frozen=True, slots=True)
class StoredSubscriber:
    """A subscriber as it is remembered over restarts.

    Attributes:
        queue_name: Who.
        since_ms: When it became known; it counts for packages appended from then on.
        left_ms: When it was given up as silent; None while it is waited for.
        next_offset: Its next offset by its last announcement; None where that is not known.
        facts: What else it announced; not remembered over restarts.
    """

    queue_name: QueueName
    since_ms: int
    left_ms: int | None = None
    next_offset: int | None = None
    facts: SubscriberFacts = _NO_FACTS


@dataclass(slots=True)
class _AwaitedSubscriber:
    queue_name: QueueName
    since_ms: int
    heard_seconds: float
    claims: PositionClaims = field(default_factory=PositionClaims)
    facts: SubscriberFacts = _NO_FACTS

    def apply(self, next_offset: int, heard_seconds: float, facts: SubscriberFacts) -> None:
        """It announces that everything below `next_offset` is done."""
        self.heard_seconds = max(self.heard_seconds, heard_seconds)
        self.facts = facts
        self.claims = self.claims.and_then(next_offset, heard_seconds)


class AwaitedSubscribers:
    """The awaited subscribers. Belongs to one thread; times are of the monotonic clock, and of the log where `_ms`."""

    def __init__(self, stored: Iterable[StoredSubscriber] = (), now_seconds: float = 0.0) -> None:
        """Go on with those that were known; where they are is believed when they say it again."""
        self._members: dict[QueueName, _AwaitedSubscriber] = {}
        self._absent: list[StoredSubscriber] = []
        for subscriber in stored:
            if subscriber.left_ms is None:
                self._members[subscriber.queue_name] = _AwaitedSubscriber(
                    subscriber.queue_name, subscriber.since_ms, now_seconds
                )
            else:
                self._absent.append(subscriber)

    def apply(
        self,
        queue_name: QueueName,
        next_offset: int | None,
        heard_ms: int,
        heard_seconds: float,
        facts: SubscriberFacts = _NO_FACTS,
    ) -> bool:
        """Apply an announcement; True for a new subscriber. None is a position that can't be believed."""
        known = self._members.get(queue_name)
        if known is None and len(self._members) >= MAX_MEMBERS:
            return False  # invented names do not displace known subscribers
        member = known or _AwaitedSubscriber(queue_name, heard_ms, heard_seconds)
        self._members[queue_name] = member
        # Where its position is not known it counts all the same, and packages wait for it.
        member.apply(0 if next_offset is None else next_offset, heard_seconds, facts)
        return known is None

    def leave(self, queue_name: QueueName) -> bool:
        """Deregister a subscriber: no event waits for it or names it; whether it was known."""
        return self._members.pop(queue_name, None) is not None

    def drop_silent(self, now_ms: int, now_seconds: float, silent_seconds: float) -> Sequence[QueueName]:
        """No longer wait for those that were silent for longer than that."""
        gone = [member for member in self._members.values() if now_seconds - member.heard_seconds > silent_seconds]
        for member in gone:
            del self._members[member.queue_name]
            # It left when the limit was over, not now: a late turn must not name it for later packages.
            over_ms = int(1000 * (now_seconds - member.heard_seconds - silent_seconds))
            claimed = member.claims.claimed
            self._absent.append(
                StoredSubscriber(member.queue_name, member.since_ms, now_ms - over_ms, claimed, member.facts)
            )
        del self._absent[:-MAX_ABSENT]
        return [member.queue_name for member in gone]

    @property
    def has_absent(self) -> bool:
        """Whether subscribers were given up as silent."""
        return bool(self._absent)

    def forget_absent(self) -> None:
        """No package is left that waited for them."""
        self._absent.clear()

    def horizon(self) -> int:
        """The highest claimed position: no subscriber is past a package from here on."""
        return max((member.claims.claimed for member in self._members.values()), default=0)

    def is_settling(self, now_seconds: float) -> bool:
        """Whether positions were announced that do not count yet."""
        return any(member.claims.is_settling(now_seconds) for member in self._members.values())

    def stored(self) -> list[StoredSubscriber]:
        """What is to be remembered."""
        members = [
            StoredSubscriber(member.queue_name, member.since_ms, None, member.claims.claimed)
            for member in self._members.values()
        ]
        return [*members, *self._absent]

    def plan(
        self, candidates: Iterable[Candidate], known: KnownReports, now_seconds: float, limit: int
    ) -> list[Distributed]:
        """The first of the candidates, in order, that are distributed now; at most `limit`."""
        done_to = [
            (member.since_ms, member.claims.done_to(known.reports.last(known.publisher, name), now_seconds))
            for name, member in self._members.items()
        ]
        return plan_distributed(candidates, done_to, lambda one: self._missed(one, known), limit)

    def _missed(self, candidate: Candidate, known: KnownReports) -> tuple[Missed, ...]:
        """The subscribers that lack or may lack the content; a reason that a subscriber gave itself counts first."""
        # those that were awaited, and silent for too long before they had passed the package
        found: dict[QueueName, MissedReason | None] = {
            past.queue_name: MissedReason.ABSENT
            for past in self._absent
            if _counts(past, candidate) and (past.next_offset is None or past.next_offset <= candidate.offset)
        }
        counted = [member for member in self._members.values() if member.since_ms <= candidate.appended_ms]
        # Of those that were known then none may be left: those that are known now count instead.
        for member in counted or self._members.values():
            found[member.queue_name] = known.missed(member.queue_name, candidate, member.claims.claimed, member.facts)
        for past in self._absent:
            if past.queue_name not in found and _counts(past, candidate):
                found[past.queue_name] = known.missed(past.queue_name, candidate, past.next_offset or 0, past.facts)
        # Last: the report of a subscriber itself overrides what was concluded before.
        for name in known.reports.without(known.publisher, candidate.offset):
            found[name] = known.missed(name, candidate, candidate.offset + 1, _NO_FACTS)
        return tuple(sorted(Missed(str(name), reason) for name, reason in found.items() if reason)[:MAX_MISSED])


def _counts(one: StoredSubscriber, candidate: Candidate) -> bool:
    return one.since_ms <= candidate.appended_ms <= (one.left_ms or 0)


class KnownReports(NamedTuple):
    """What subscribers reported about one publisher's packages, as far as statuses were read.

    Attributes:
        publisher: Whose packages.
        reports: The reports.
        are_complete_since: Whether all statuses appended after a time were read.
    """

    publisher: AgentName
    reports: PackageReports
    are_complete_since: Callable[[int], bool]

    def missed(
        self, queue_name: QueueName, candidate: Candidate, done_to: int, facts: SubscriberFacts
    ) -> MissedReason | None:
        """Why a subscriber that is past a package may not have its content; None when it imported it."""
        verdict = decide_outcome(
            OutcomeFacts(
                offset=candidate.offset,
                done_to=done_to,
                is_editable=facts.is_editable,
                start=facts.start,
                reports=self.reports.find(self.publisher, queue_name, candidate.offset),
                are_statuses_complete=self.are_complete_since(candidate.appended_ms),
            )
        )
        return _REASONS.get(verdict.outcome)


_REASONS: Final = {
    Outcome.GIVEN_UP: MissedReason.FAILED,
    Outcome.DROPPED: MissedReason.REMOVED,
    Outcome.SKIPPED: MissedReason.SKIPPED,
    Outcome.UNKNOWN: MissedReason.UNKNOWN,
}


def plan_distributed(
    candidates: Iterable[Candidate],
    members: Sequence[tuple[int, int]],
    missed: Callable[[Candidate], tuple[Missed, ...]],
    limit: int,
) -> list[Distributed]:
    """Decide which packages are distributed. A member is known since a time, and done below an offset."""
    found: list[Distributed] = []
    lowest = min((done_to for _, done_to in members), default=0)
    for candidate in candidates:
        if len(found) == limit:
            break
        # Below the lowest position all members are done.
        if candidate.offset >= lowest:
            counted = [done for since, done in members if since <= candidate.appended_ms]
            # Events keep the order of the log: the first package that waits holds back all behind it.
            if candidate.offset >= min(counted or [lowest]):
                break
        found.append(Distributed(candidate, missed(candidate)))
    return found
