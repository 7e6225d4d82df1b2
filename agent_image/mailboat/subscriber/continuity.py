"""Where a run begins: whether the stored position fits the log, and from where on the run reports what it passes.

Both are pure decisions at each start, which `plan_start` makes for one target. `decide_start` is there so that no
subscriber skips a gap without an error:

    no position yet                     start at the first package; where the log no longer holds it,
                                        JournalIncomplete; with the gap accepted, start at the head
    another log                         JournalReplaced
    below the log's head                JournalTrimmed; with the gap accepted, go on at the head
    beyond the log's end                JournalShorter; with the gap accepted, replay what the log holds
    other records before it than those  the same
    that were done
    anything else                       go on there; also a target restored from an older copy, which replays

After a lost tail the offsets from the old end on are given again, to other packages. So accepting that gap replays from
the head instead of guessing where to go on: importing a package again changes nothing. Offsets start at 0; a log whose
head is beyond that cannot be distinguished from a trimmed one, so it counts as trimmed.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Final, NamedTuple

from mailboat.content.port import Ledger, ReportStarts
from mailboat.errors import (
    FollowWidenedError,
    JournalIncompleteError,
    JournalReplacedError,
    JournalShorterError,
    JournalTrimmedError,
    PositionOutOfRangeError,
)
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import ReportStart
from mailboat.model.positions import Bounds, LogIdentity, Position
from mailboat.subscriber.subscriber_settings import SubscriberSettings

_NAMED: Final = 5
_PUBLISHER_TEXTS: Final = MappingProxyType({"": "publishers without a name", "*": "more publishers"})


class RunStart(NamedTuple):
    """Where a run begins.

    Attributes:
        position: Where it reads on.
        stored: The position that the target holds; None in a new target.
        accepted: Publishers whose missing packages are to be forgotten, as a person accepted the gap.
        report_starts: From where on it reports what it passes.
        is_new: The target holds something else: `Ledger.reset_position` comes before the first read.
    """

    position: Position
    stored: Position | None
    accepted: Collection[str]
    report_starts: ReportStarts
    is_new: bool

    @property
    def is_replayed(self) -> bool:
        """Whether packages that were done come again."""
        return self.stored is not None and self.position.next_offset < self.stored.next_offset


def plan_start(
    settings: SubscriberSettings,
    ledger: Ledger,
    identity: LogIdentity,
    bounds: Bounds,
    *,
    is_gap_accepted: bool,
    refusal: PositionOutOfRangeError | None = None,
) -> RunStart:
    """Where a run on a target begins. Raises: as `decide_start` and `check_following`."""
    name, follow, stored, known = settings.name, settings.follow, ledger.position(), ledger.report_starts
    start = decide_start(name, stored, identity, bounds, is_gap_accepted=is_gap_accepted, refusal=refusal)
    accepted = check_following(name, ledger.passed_over, follow, is_gap_accepted=is_gap_accepted)
    reports = plan_report_starts(known, follow, None if stored is None else stored.next_offset, start.next_offset)
    return RunStart(start, stored, accepted, reports, start != stored or bool(accepted) or reports != known)


def decide_start(
    name: AgentName,
    position: Position | None,
    identity: LogIdentity,
    bounds: Bounds,
    *,
    is_gap_accepted: bool,
    refusal: PositionOutOfRangeError | None = None,
) -> Position:
    """Where a subscriber starts to read.

    Args:
        name: The subscriber, for messages.
        position: What the target says; None in a new target.
        identity: The current log.
        bounds: What it holds.
        is_gap_accepted: A person decided to go on over a gap (`--accept-gap`).
        refusal: What the log said when it was asked to read from the position; None before it was asked.

    Raises:
        JournalIncompleteError, JournalReplacedError, JournalTrimmedError, JournalShorterError: The ways out are in the
            message.
    """
    head = Position(identity, bounds.earliest_offset)
    if position is None:
        if bounds.earliest_offset > 0 and not is_gap_accepted:
            raise _incomplete(name, bounds)
        return head
    if position.identity != identity:
        raise _replaced(name, position, identity)
    stands_at = position.next_offset
    # The end counts as within: a subscriber that is caught up is exactly there.
    is_within = bounds.earliest_offset <= stands_at <= bounds.next_offset
    if is_within and refusal is None:
        return position
    # The oldest record, not the end: repeated packages lead to the same content, skipped ones do not.
    if is_gap_accepted:
        return head
    # Within the bounds, but the reader found another record before the position than the one that was imported.
    if is_within and refusal is not None:
        raise _diverged(name, refusal) from refusal
    raise _trimmed(name, stands_at, bounds) if stands_at < bounds.earliest_offset else _shorter(name, stands_at, bounds)


ANY_PUBLISHER: Final = "*"
"""Stands for all publishers beyond `MAX_PASSED_OVER` whose packages were skipped."""

MAX_PASSED_OVER: Final = 1000
"""Names that are kept of publishers that are not followed: any program can publish under any number of names."""


def check_following(
    name: AgentName, passed_over: Collection[str], follow: Collection[AgentName] | None, *, is_gap_accepted: bool
) -> Collection[str]:
    """Whether a subscriber follows a publisher now that it did not follow when packages of it came.

    Args:
        name: The subscriber, for messages.
        passed_over: The publishers whose packages the target lacks for that reason.
        follow: The publishers followed now; None is all.
        is_gap_accepted: A person decided to go on over a gap (`--accept-gap`).

    Returns:
        What of `passed_over` is to be forgotten, as a person accepted the gap.

    Raises:
        FollowWidenedError: The gap was not accepted.
    """
    missed = sorted(
        # Beyond the limit no names were kept: any publisher may be among those.
        publisher
        for publisher in passed_over
        if follow is None or publisher in follow or publisher == ANY_PUBLISHER
    )
    if missed and not is_gap_accepted:
        named = ", ".join(_PUBLISHER_TEXTS.get(missing, missing) for missing in missed[:_NAMED]) + (
            ", …" * (len(missed) > _NAMED)
        )
        raise FollowWidenedError(
            f"{name} follows {named} now, and did not when packages of it were in the journal: the target lacks them",
            next_step="follow the publishers that were followed before, use a new target, or publish"
            " the whole tree of that publisher again and start with --accept-gap",
            subscriber=name,
            publishers=named,
        )
    return missed


def _diverged(name: AgentName, refusal: PositionOutOfRangeError) -> JournalShorterError:
    """The state of a subscriber whose position lies within the bounds and is refused all the same.

    The log lost its tail and has grown again, so that other records stand where this subscriber was (KIP-320).
    """
    return JournalShorterError(
        f"{name} is at an offset where the journal lost records and has new ones: {refusal.message}",
        next_step="publish the lost requests again, then replay what the journal holds with --accept-gap",
        **refusal.where,
    )


def _incomplete(name: AgentName, bounds: Bounds) -> JournalIncompleteError:
    gone = bounds.earliest_offset
    return JournalIncompleteError(
        f"{name} is new, and the journal starts at offset {gone}: "
        f"{gone} earlier {'message was' if gone == 1 else 'messages were'} removed",
        next_step="publish the whole tree again (mailboat publish --source SOURCE /), then start with --accept-gap",
        subscriber=name,
        earliest=gone,
    )


def _replaced(name: AgentName, position: Position, identity: LogIdentity) -> JournalReplacedError:
    return JournalReplacedError(
        f"{name} is at offset {position.next_offset} of the journal "
        f"{position.identity}, this is the journal {identity}",
        next_step="use the subscriber's former journal, or a new target",
        subscriber=name,
        position=position.next_offset,
    )


def _trimmed(name: AgentName, stands_at: int, bounds: Bounds) -> JournalTrimmedError:
    gone = bounds.earliest_offset - stands_at
    return JournalTrimmedError(
        f"{name} is at offset {stands_at}, the journal begins at {bounds.earliest_offset}:"
        f" {gone} {'message is' if gone == 1 else 'messages are'} gone",
        next_step="subscribe on a target restored from a newer snapshot (`mailboat content restore`), or go on with"
        " --accept-gap (content may differ from the source)",
        subscriber=name,
        position=stands_at,
        earliest=bounds.earliest_offset,
    )


def _shorter(name: AgentName, stands_at: int, bounds: Bounds) -> JournalShorterError:
    return JournalShorterError(
        f"{name} is at offset {stands_at}, the journal ends at {bounds.next_offset}: it lost what was imported already",
        next_step="publish the lost requests again, then replay what the journal holds with --accept-gap",
        subscriber=name,
        position=stands_at,
        next=bounds.next_offset,
    )


def plan_report_starts(
    stored: ReportStarts, follow: Collection[AgentName] | None, position: Offset | None, start: Offset
) -> ReportStarts:
    """Offsets by publisher from which this run reports packages that it passes without an import.

    A subscriber sends a status for every package that it passes and does not import, so silence about a package means
    that it was imported. That holds from an offset on, which is stored for each publisher in the target and announced:

        a new target                                   from its first package on; it imported none before
        a target restored from a snapshot, or written  from its position on; earlier packages are not known
        by a version that kept no such offset
        a publisher that is followed for the first time  from the position on; it imported none before
        a publisher that is followed again             from the position on; earlier packages are not known
        a gap in the log that was accepted             from behind the gap on; earlier packages are not known
        a replay of the log                            from where the replay begins, if that is earlier
        a publisher that is not followed any more      as before, until the position

    With this, packages of a publisher that is no longer followed keep their outcome.

    Args:
        stored: Those of the run before; empty where none were kept.
        follow: The publishers that are followed now; None is all.
        position: What the target holds; None in a new target.
        start: Where this run begins to read.
    """
    named: Collection[AgentName | None] = {None} if follow is None else follow
    if position is None:
        return dict.fromkeys(named, ReportStart(start, is_first=True))
    if not stored:  # the target may hold packages of any publisher, those that are not followed now included
        return {None: ReportStart(start, until=start), **dict.fromkeys(named, ReportStart(start))}
    known = {name: _moved(one, position, start) for name, one in stored.items()}
    followed = {*named, *(known if follow is None else ())}
    starts: dict[AgentName | None, ReportStart | None] = {name: _ended(one, start) for name, one in known.items()}
    for name in followed:
        if name in known or None in known:
            # None stands for all publishers, of which this is one.
            one = known.get(name, known.get(None))
            starts[name] = ReportStart(start) if one is None or one.until is not None else one
        else:
            starts[name] = ReportStart(start, is_first=True)
    return starts


def _moved(one: ReportStart | None, position: Offset, start: Offset) -> ReportStart | None:
    if one is None or (one.until is None and start > position):
        # Over an accepted gap nothing is known of what it held; earlier versions stored None.
        return None if one is None else ReportStart(start)
    if start >= one.offset and (one.until is None or start >= one.until):
        return one
    return ReportStart(min(one.offset, start), one.is_first, None if one.until is None else min(one.until, start))


def _ended(one: ReportStart | None, start: Offset) -> ReportStart:
    """Of a publisher that is not followed now. Earlier versions stored None: then nothing is known before `start`."""
    if one is None:
        return ReportStart(start, until=start)
    return one if one.until is not None else ReportStart(one.offset, one.is_first, start)
