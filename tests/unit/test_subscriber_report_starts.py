"""From which package on a subscriber reports what it passes without an import."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mailboat.content.port import ReportStarts
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import ReportStart
from mailboat.subscriber.continuity import plan_report_starts

AUTHOR, OTHER = AgentName("author"), AgentName("other")


def first(offset: int) -> ReportStart:
    return ReportStart(Offset(offset), is_first=True)


def later(offset: int) -> ReportStart:
    return ReportStart(Offset(offset))


def ended(one: ReportStart, until: int) -> ReportStart:
    return replace(one, until=Offset(until))


@pytest.mark.parametrize(
    ("stored", "follow", "position", "start", "planned"),
    [
        ({}, None, None, 0, {None: first(0)}),
        ({}, {AUTHOR}, None, 7, {AUTHOR: first(7)}),
        ({}, None, 9, 9, {None: later(9)}),  # of a snapshot, or of an earlier version
        ({}, {AUTHOR}, 9, 9, {AUTHOR: later(9), None: ended(later(9), 9)}),
        (
            {AUTHOR: later(9), None: None},  # None of earlier versions: not followed since an offset that no one knows
            {OTHER},
            20,
            20,
            {AUTHOR: ended(later(9), 20), OTHER: later(20), None: ended(later(20), 20)},
        ),
        ({AUTHOR: first(0)}, {AUTHOR}, 9, 9, {AUTHOR: first(0)}),
        ({AUTHOR: first(0)}, {AUTHOR, OTHER}, 9, 9, {AUTHOR: first(0), OTHER: first(9)}),
        ({AUTHOR: first(0)}, {OTHER}, 9, 9, {AUTHOR: ended(first(0), 9), OTHER: first(9)}),
        (
            {AUTHOR: ended(first(0), 9), OTHER: first(9)},
            {AUTHOR},
            20,
            20,
            {AUTHOR: later(20), OTHER: ended(first(9), 20)},
        ),
        ({AUTHOR: first(0)}, None, 9, 9, {AUTHOR: first(0), None: first(9)}),
        ({None: first(0)}, {AUTHOR}, 9, 9, {AUTHOR: first(0), None: ended(first(0), 9)}),
        (
            {AUTHOR: first(0), None: ended(first(0), 9)},
            {OTHER},
            20,
            20,
            {AUTHOR: ended(first(0), 20), OTHER: later(20), None: ended(first(0), 9)},
        ),
        ({AUTHOR: ended(first(0), 9)}, {OTHER}, 20, 25, {AUTHOR: ended(first(0), 9), OTHER: first(25)}),
        ({AUTHOR: ended(later(5), 9)}, {OTHER}, 20, 7, {AUTHOR: ended(later(5), 7), OTHER: first(7)}),
        ({AUTHOR: ended(later(5), 9)}, {OTHER}, 20, 2, {AUTHOR: ended(later(2), 2), OTHER: first(2)}),
        ({AUTHOR: first(0)}, {AUTHOR}, 9, 15, {AUTHOR: later(15)}),  # a gap was accepted
        ({AUTHOR: later(5)}, {AUTHOR}, 9, 2, {AUTHOR: later(2)}),  # a replay
        ({AUTHOR: later(5)}, {AUTHOR}, 9, 7, {AUTHOR: later(5)}),
    ],
)
def test_reports_begin_where_the_target_knows_what_it_imported(
    stored: ReportStarts, follow: set[AgentName] | None, position: int | None, start: int, planned: ReportStarts
) -> None:
    at = None if position is None else Offset(position)
    assert plan_report_starts(stored, follow, at, Offset(start)) == planned
