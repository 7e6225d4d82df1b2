"""The outcome of one package at one subscriber: exactly one, by one pure decision.

A subscriber that is past a package has imported it only if that is known: it announces from which package on it reports
everything that it did not import, it reported nothing about this one, and no report was lost. Everything else has a
name of its own, and `UNKNOWN` says why it cannot be known. Used by the control service, through it by the command line,
HTTP and the operator, and by distributed events.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from mailboat.model.identifiers import AgentName
from mailboat.model.messages import ReportStart
from mailboat.queues.reports import QueueReports, ReportedReason


class Outcome(enum.StrEnum):
    """The outcome of a package at a subscriber."""

    IMPORTED = "imported"
    SKIPPED = "skipped"
    DROPPED = "dropped"
    GIVEN_UP = "given-up"
    PENDING = "pending"
    UNKNOWN = "unknown"


class OutcomeReason(enum.StrEnum):
    """Why a package was skipped, or why nothing is known of it."""

    STAGED = "staged"
    """Skipped: its golden subscriber did not import the package."""

    NOT_FOLLOWED = "not-followed"
    """Skipped: it did not follow the publisher then, and does not now."""

    JOINED_LATER = "joined-later"
    """Skipped: it follows the publisher since a later package only."""

    BEFORE_REPORTS = "before-reports"
    """Unknown: the package is older than its reports, as after a restore, an accepted gap or an update."""

    STATUSES_GONE = "statuses-gone"
    """Unknown: statuses of that time are not read, or retention has removed them."""

    NO_REPORTS = "no-reports"
    """Unknown: it does not report what it skips, as agents of Apache Sling and of earlier versions do not."""


class Verdict(NamedTuple):
    """An outcome and, of a package that was skipped or is unknown, why.

    Attributes:
        golden: The subscriber that it is staged behind, where that is the reason.
    """

    outcome: Outcome
    reason: OutcomeReason | None = None
    golden: AgentName | None = None


class OutcomeFacts(NamedTuple):
    """What the decision depends on.

    Attributes:
        offset: The package's.
        done_to: The subscriber is past everything below, and all that it reports about that was read.
        is_test: The package is a TEST, which has no content.
        follows: It follows the publisher now.
        is_editable: It confirms every package.
        start: From where on it reports what it does not import; None of one that does not say.
        reports: What it reported.
        are_statuses_complete: All statuses since the package was appended were read.
    """

    offset: int
    done_to: int
    is_test: bool = False
    follows: bool = True
    is_editable: bool = False
    start: ReportStart | None = None
    reports: QueueReports = QueueReports()
    are_statuses_complete: bool = True


_IMPORTED: Final = Verdict(Outcome.IMPORTED)
_STAGED: Final = OutcomeReason.STAGED
_NOT_FOLLOWED: Final = Verdict(Outcome.SKIPPED, OutcomeReason.NOT_FOLLOWED)


def decide_outcome(facts: OutcomeFacts) -> Verdict:
    """Decide on the outcome of the package at the subscriber."""
    report, is_past = facts.reports.report, facts.offset < facts.done_to
    # Also before it is known to be past it: the status may be read before the announcement of its position.
    if report is ReportedReason.GIVEN_UP:
        return Verdict(Outcome.GIVEN_UP)
    if is_past and report is not None and not facts.is_test:
        is_dropped = report is ReportedReason.DROPPED
        return Verdict(Outcome.DROPPED) if is_dropped else Verdict(Outcome.SKIPPED, _STAGED, facts.reports.golden)
    # Before the position: a package of a publisher that it does not follow is never pending.
    if not facts.follows and not _was_followed(facts):
        return _NOT_FOLLOWED
    if not is_past:
        return Verdict(Outcome.PENDING)
    return _IMPORTED if facts.is_test else _decide_silence(facts)


def _was_followed(facts: OutcomeFacts) -> bool:
    """The publisher was followed when the package came; one that does not say so may have sent statuses about it."""
    if facts.start is None:
        return 0 <= facts.reports.first <= facts.offset <= facts.reports.last
    return facts.start.until is not None and facts.offset < facts.start.until


def _decide_silence(facts: OutcomeFacts) -> Verdict:
    """It is past the package and reported nothing about it."""
    are_complete = facts.are_statuses_complete and facts.reports.are_complete
    if facts.start is None:
        is_confirmed = facts.follows and facts.is_editable and facts.reports.first <= facts.offset <= facts.reports.last
        return _IMPORTED if is_confirmed and are_complete else Verdict(Outcome.UNKNOWN, OutcomeReason.NO_REPORTS)
    if facts.offset < facts.start.offset:
        if facts.start.is_first:
            return Verdict(Outcome.SKIPPED, OutcomeReason.JOINED_LATER)
        return Verdict(Outcome.UNKNOWN, OutcomeReason.BEFORE_REPORTS)
    return _IMPORTED if are_complete else Verdict(Outcome.UNKNOWN, OutcomeReason.STATUSES_GONE)
