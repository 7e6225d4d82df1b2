"""From which package on a subscriber reports what it passes without an import: a pure decision at each start.

A subscriber sends a status for every package that it passes and does not import, so silence about a package means that
it was imported. That holds from an offset on, which is kept for each publisher in the target and announced:

    a new target                                   from its first package on; it imported none before
    a target restored from a snapshot, or written  from its position on; earlier packages are not known
    by a version that kept no such offset
    a publisher that is followed for the first time  from the position on; it imported none before
    a publisher that is followed again             from the position on; earlier packages are not known
    a gap in the log that was accepted             from behind the gap on; earlier packages are not known
    a replay of the log                            from where the replay begins, if that is earlier
    a publisher that is not followed any more      as before, until the position

With this, packages of a publisher that is no longer followed keep what became of them.
"""

from __future__ import annotations

from collections.abc import Collection

from mailboat.content.port import ReportStarts
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import ReportStart


def plan_report_starts(
    stored: ReportStarts, follow: Collection[AgentName] | None, position: Offset | None, start: Offset
) -> ReportStarts:
    """The report starts of the run that begins.

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
            one = known.get(name, known.get(None))
            starts[name] = ReportStart(start) if one is None or one.until is not None else one
        else:
            starts[name] = ReportStart(start, is_first=True)
    return starts


def _moved(one: ReportStart | None, position: Offset, start: Offset) -> ReportStart | None:
    if one is None or (one.until is None and start > position):
        return None if one is None else ReportStart(start)
    if start >= one.offset and (one.until is None or start >= one.until):
        return one
    return ReportStart(min(one.offset, start), one.is_first, None if one.until is None else min(one.until, start))


def _ended(one: ReportStart | None, start: Offset) -> ReportStart:
    """Of a publisher that is not followed now. Earlier versions stored None: then nothing is known before `start`."""
    if one is None:
        return ReportStart(start, until=start)
    return one if one.until is not None else ReportStart(one.offset, one.is_first, start)
