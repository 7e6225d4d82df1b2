"""Whether a position fits the log: a pure decision, so that no subscriber ever jumps over a gap in silence.

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
head is beyond that can't be told from one that was trimmed, so it is taken for such.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Final

from mailboat.errors import (
    FollowWidenedError,
    JournalIncompleteError,
    JournalReplacedError,
    JournalShorterError,
    JournalTrimmedError,
    PositionOutOfRangeError,
)
from mailboat.model.identifiers import AgentName
from mailboat.model.positions import Bounds, LogIdentity, Position

_NAMED: Final = 5
_PUBLISHER_TEXTS: Final = MappingProxyType({"": "publishers without a name", "*": "more publishers"})


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
        identity: The log at hand.
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
    is_within = bounds.earliest_offset <= stands_at <= bounds.next_offset
    if is_within and refusal is None:
        return position
    if is_gap_accepted:
        return head
    if is_within and refusal is not None:
        raise _diverged(name, refusal) from refusal
    raise _trimmed(name, stands_at, bounds) if stands_at < bounds.earliest_offset else _shorter(name, stands_at, bounds)


ANY_PUBLISHER: Final = "*"
"""Stands for all publishers beyond `MAX_PASSED_OVER` whose packages were passed over."""

MAX_PASSED_OVER: Final = 1000
"""Names that are kept of publishers that are not followed: anybody can publish under any number of names."""


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
    missed = sorted(one for one in passed_over if follow is None or one in follow or one == ANY_PUBLISHER)
    if missed and not is_gap_accepted:
        named = ", ".join(_PUBLISHER_TEXTS.get(one, one) for one in missed[:_NAMED]) + (", …" * (len(missed) > _NAMED))
        raise FollowWidenedError(
            f"{name} follows {named} now, and did not when packages of it were in the journal: the target lacks them",
            next_step="follow the publishers that were followed before, give the subscriber a new target, or publish"
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
        f"{name} stands where the journal lost records and was written again: {refusal.message}",
        next_step="publish the lost requests again, then replay what the journal holds with --accept-gap",
        **refusal.where,
    )


def _incomplete(name: AgentName, bounds: Bounds) -> JournalIncompleteError:
    gone = bounds.earliest_offset
    return JournalIncompleteError(
        f"{name} is new, the journal begins at {gone}:"
        f" {gone} {'message is' if gone == 1 else 'messages are'} gone, which it would lack",
        next_step="publish the whole tree anew (mailboat publish --source SOURCE /), then start with --accept-gap",
        subscriber=name,
        earliest=gone,
    )


def _replaced(name: AgentName, position: Position, identity: LogIdentity) -> JournalReplacedError:
    return JournalReplacedError(
        f"{name} stands at {position.next_offset} of the journal {position.identity}, this is the journal {identity}",
        next_step="point the subscriber at the journal that it knows, or give it a new target",
        subscriber=name,
        position=position.next_offset,
    )


def _trimmed(name: AgentName, stands_at: int, bounds: Bounds) -> JournalTrimmedError:
    gone = bounds.earliest_offset - stands_at
    return JournalTrimmedError(
        f"{name} stands at {stands_at}, the journal begins at {bounds.earliest_offset}:"
        f" {gone} {'message is' if gone == 1 else 'messages are'} gone",
        next_step="subscribe on a target restored from a newer snapshot (`mailboat content restore`), or go on with"
        " --accept-gap (content may differ from the source)",
        subscriber=name,
        position=stands_at,
        earliest=bounds.earliest_offset,
    )


def _shorter(name: AgentName, stands_at: int, bounds: Bounds) -> JournalShorterError:
    return JournalShorterError(
        f"{name} stands at {stands_at}, the journal ends at {bounds.next_offset}: it lost what was imported already",
        next_step="publish the lost requests again, then replay what the journal holds with --accept-gap",
        subscriber=name,
        position=stands_at,
        next=bounds.next_offset,
    )
