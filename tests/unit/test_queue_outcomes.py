"""What became of one package at one subscriber: every case, and random histories against what really happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.content.port import ReportStarts
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import PackageStatus, ReportStart, StatusMessage
from mailboat.queues.outcomes import Outcome, OutcomeFacts, OutcomeReason, Verdict, decide_outcome
from mailboat.queues.queue_names import QueueName
from mailboat.queues.reports import PackageReports, QueueReports, ReportedReason
from mailboat.subscriber.continuity import plan_report_starts

AUTHOR, OTHER, GOLDEN = map(AgentName, ("author", "other", "golden"))
EDGE = QueueName(SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69"), AgentName("edge"))
FROM_FIRST, FROM_9 = ReportStart(Offset(0), is_first=True), ReportStart(Offset(9), is_first=True)
UNTIL_9 = ReportStart(Offset(0), is_first=True, until=Offset(9))
RESTORED_AT_9 = ReportStart(Offset(9))
PAST, BEFORE = 6, 5
IMPORTED, PENDING, DROPPED, GIVEN_UP = map(
    Verdict, (Outcome.IMPORTED, Outcome.PENDING, Outcome.DROPPED, Outcome.GIVEN_UP)
)
STAGED = Verdict(Outcome.SKIPPED, OutcomeReason.STAGED, GOLDEN)
NOT_FOLLOWED = Verdict(Outcome.SKIPPED, OutcomeReason.NOT_FOLLOWED)


def unknown(reason: OutcomeReason) -> Verdict:
    return Verdict(Outcome.UNKNOWN, reason)


def reported(report: ReportedReason) -> QueueReports:
    return QueueReports(report, GOLDEN, 0, 8)


CONFIRMED, FORGOTTEN = QueueReports(first=0, last=8), QueueReports(are_complete=False)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        # silence of a subscriber that reports what it does not import
        (OutcomeFacts(5, PAST, start=FROM_FIRST), IMPORTED),
        (OutcomeFacts(5, BEFORE, start=FROM_FIRST), PENDING),
        (OutcomeFacts(5, 20, start=FROM_9), Verdict(Outcome.SKIPPED, OutcomeReason.JOINED_LATER)),
        (OutcomeFacts(9, 20, start=FROM_9), IMPORTED),
        (OutcomeFacts(5, 20, start=RESTORED_AT_9), unknown(OutcomeReason.BEFORE_REPORTS)),
        (OutcomeFacts(5, 20, start=RESTORED_AT_9, reports=CONFIRMED), unknown(OutcomeReason.BEFORE_REPORTS)),
        # reports
        (OutcomeFacts(5, PAST, start=FROM_FIRST, reports=reported(ReportedReason.DROPPED)), DROPPED),
        (OutcomeFacts(5, PAST, start=FROM_FIRST, reports=reported(ReportedReason.SKIPPED)), STAGED),
        (OutcomeFacts(5, PAST, start=FROM_FIRST, reports=reported(ReportedReason.GIVEN_UP)), GIVEN_UP),
        (OutcomeFacts(5, BEFORE, start=FROM_FIRST, reports=reported(ReportedReason.GIVEN_UP)), GIVEN_UP),
        (OutcomeFacts(5, BEFORE, start=FROM_FIRST, reports=reported(ReportedReason.DROPPED)), PENDING),
        (OutcomeFacts(5, 20, start=RESTORED_AT_9, reports=reported(ReportedReason.DROPPED)), DROPPED),
        # publishers that are not followed
        (OutcomeFacts(5, PAST, follows=False), NOT_FOLLOWED),
        (OutcomeFacts(5, BEFORE, follows=False), NOT_FOLLOWED),
        # publishers that were followed until the offset 9
        (OutcomeFacts(5, 20, follows=False, start=UNTIL_9), IMPORTED),
        (OutcomeFacts(5, BEFORE, follows=False, start=UNTIL_9), PENDING),
        (OutcomeFacts(9, 20, follows=False, start=UNTIL_9), NOT_FOLLOWED),
        (OutcomeFacts(9, 9, follows=False, start=UNTIL_9), NOT_FOLLOWED),
        (OutcomeFacts(5, 20, follows=False, start=UNTIL_9, reports=reported(ReportedReason.DROPPED)), DROPPED),
        (OutcomeFacts(5, 20, follows=False, start=UNTIL_9, reports=FORGOTTEN), unknown(OutcomeReason.STATUSES_GONE)),
        (OutcomeFacts(5, PAST, follows=False, reports=CONFIRMED), unknown(OutcomeReason.NO_REPORTS)),
        (OutcomeFacts(5, PAST, follows=False, reports=reported(ReportedReason.SKIPPED)), STAGED),
        # a TEST has no content
        (OutcomeFacts(5, PAST, is_test=True), IMPORTED),
        (OutcomeFacts(5, PAST, is_test=True, reports=reported(ReportedReason.DROPPED)), IMPORTED),
        (OutcomeFacts(5, PAST, is_test=True, follows=False), NOT_FOLLOWED),
        (OutcomeFacts(5, BEFORE, is_test=True), PENDING),
        # reports that are lost
        (OutcomeFacts(5, PAST, start=FROM_FIRST, reports=FORGOTTEN), unknown(OutcomeReason.STATUSES_GONE)),
        (
            OutcomeFacts(5, PAST, start=FROM_FIRST, are_statuses_complete=False),
            unknown(OutcomeReason.STATUSES_GONE),
        ),
        (
            OutcomeFacts(
                5, PAST, start=FROM_FIRST, are_statuses_complete=False, reports=reported(ReportedReason.DROPPED)
            ),
            DROPPED,
        ),
        # subscribers that do not say from where on they report
        (OutcomeFacts(5, PAST), unknown(OutcomeReason.NO_REPORTS)),
        (OutcomeFacts(5, PAST, reports=CONFIRMED), unknown(OutcomeReason.NO_REPORTS)),
        (OutcomeFacts(5, PAST, is_editable=True), unknown(OutcomeReason.NO_REPORTS)),
        (OutcomeFacts(5, PAST, is_editable=True, reports=CONFIRMED), IMPORTED),
        (
            OutcomeFacts(5, PAST, is_editable=True, reports=QueueReports(first=6, last=8)),
            unknown(OutcomeReason.NO_REPORTS),
        ),
        (
            OutcomeFacts(5, PAST, is_editable=True, reports=CONFIRMED, are_statuses_complete=False),
            unknown(OutcomeReason.NO_REPORTS),
        ),
    ],
)
def test_every_case_has_one_outcome(facts: OutcomeFacts, verdict: Verdict) -> None:
    assert decide_outcome(facts) == verdict


MEANT: Final = {
    "import": Outcome.IMPORTED,
    "clear": Outcome.DROPPED,
    "golden": Outcome.SKIPPED,
    "give up": Outcome.GIVEN_UP,
    "unfollowed": Outcome.SKIPPED,
}
STATUSES: Final = {
    "import": PackageStatus.IMPORTED,
    "clear": PackageStatus.REMOVED,
    "golden": PackageStatus.REMOVED,
    "give up": PackageStatus.REMOVED_FAILED,
}


@dataclass
class PlayedLife:
    """A subscriber that does what a random history says, and what an observer hears of it."""

    follow: frozenset[AgentName] | None
    is_editable: bool
    truth: dict[int, set[Outcome]] = field(default_factory=dict)
    publishers: list[AgentName] = field(default_factory=list)
    position: Offset | None = None
    starts: ReportStarts = field(default_factory=dict)
    sent: list[tuple[int, StatusMessage]] = field(default_factory=list)

    def take(self, step: object) -> None:
        """One step of a history: a package, a command, a restart, or another set of publishers to follow."""
        match step:
            case (publisher, str(fate)):
                self.meet(AgentName(str(publisher)), fate)
                return
            case "redrive":
                self.redrive()
                return
            case "restore":
                self.restore()
            case bool():
                self.is_editable = step
            case frozenset() | None:
                self.follow = step
        self.run(Offset(len(self.publishers)))

    def run(self, start: Offset) -> None:
        """Begin to read there."""
        self.starts = plan_report_starts(self.starts, self.follow, self.position, start)
        self.position = start

    def follows(self, publisher: AgentName) -> bool:
        return self.follow is None or publisher in self.follow

    def meet(self, publisher: AgentName, fate: str) -> None:
        """The next package of the log."""
        assert self.position is not None
        offset = len(self.publishers)
        self.publishers.append(publisher)
        if not self.follows(publisher):
            fate = "unfollowed"
        elif fate == "clear" and not self.is_editable:
            fate = "import"
        if fate in STATUSES and (fate != "import" or self.is_editable):
            golden = GOLDEN if fate == "golden" else None
            self.send(offset, STATUSES[fate], golden)
        self.truth[offset] = {MEANT[fate]}
        self.position = Offset(offset + 1)

    def redrive(self) -> None:
        """The first package of the error queue is imported after all."""
        for offset, outcomes in self.truth.items():
            if outcomes == {Outcome.GIVEN_UP}:
                self.send(offset, PackageStatus.IMPORTED)
                self.truth[offset] = {Outcome.IMPORTED}
                return

    def restore(self) -> None:
        """A new target made of another's snapshot: what it holds of earlier packages is not its own doing."""
        self.starts = {}
        for offset in self.truth:
            self.truth[offset] = self.truth[offset] - {Outcome.IMPORTED}

    def send(self, offset: int, kind: PackageStatus, golden: AgentName | None = None) -> None:
        message = StatusMessage(
            EDGE.sling_id, EDGE.agent_name, self.publishers[offset], Offset(offset), kind, staged_behind=golden
        )
        self.sent.append((len(self.publishers), message))


def play(
    steps: Sequence[object],
    follow: frozenset[AgentName] | None,
    is_editable: bool = False,
    heard_from: int = 0,
    max_ranges: int = 1000,
) -> Iterator[tuple[Outcome, set[Outcome]]]:
    """The outcome of each package, and what happened."""
    life = PlayedLife(follow, is_editable)
    life.run(Offset(0))
    for step in steps:
        life.take(step)
    reports = PackageReports(max_ranges=max_ranges)
    for at, message in life.sent:
        if at >= heard_from:
            reports.apply(message)
    for offset, publisher in enumerate(life.publishers):
        facts = OutcomeFacts(
            offset=offset,
            done_to=len(life.publishers),
            follows=life.follows(publisher),
            is_editable=life.is_editable,
            start=life.starts.get(publisher, life.starts.get(None)),
            reports=reports.find(publisher, EDGE, offset),
            are_statuses_complete=offset >= heard_from,
        )
        yield decide_outcome(facts).outcome, life.truth[offset]


STEPS = st.one_of(
    st.tuples(st.sampled_from([AUTHOR, OTHER]), st.sampled_from(["import", "clear", "golden", "give up"])),
    st.sampled_from(["redrive", "restart", "restore", True, False]),
    st.sampled_from([frozenset({AUTHOR}), frozenset({OTHER}), frozenset({AUTHOR, OTHER}), None]),
)


@given(
    st.lists(STEPS, max_size=40),
    st.sampled_from([frozenset({AUTHOR}), frozenset({OTHER}), None]),
    st.booleans(),
    st.integers(0, 40),
    st.sampled_from([2, 5, 1000]),
)
def test_every_outcome_of_any_history_is_what_happened(
    steps: list[object], follow: frozenset[AgentName] | None, is_editable: bool, heard_from: int, max_ranges: int
) -> None:
    for outcome, happened in play(steps, follow, is_editable, heard_from, max_ranges):
        assert outcome is Outcome.UNKNOWN or happened == {outcome}


def test_packages_imported_from_the_error_queue_of_a_restored_target_are_not_skipped() -> None:
    """The publisher was followed before the restore, so that it is followed for the first time can't be known."""
    steps = [(OTHER, "give up"), frozenset({AUTHOR}), "restore", "redrive", frozenset({OTHER})]
    assert list(play(steps, frozenset({OTHER}))) == [(Outcome.UNKNOWN, {Outcome.IMPORTED})]


def test_imports_of_a_subscriber_that_is_not_editable_are_not_dropped() -> None:
    steps = [(AUTHOR, "clear"), False, (AUTHOR, "import"), (AUTHOR, "import"), True, (AUTHOR, "clear")]
    outcomes = [outcome for outcome, _ in play(steps, None, is_editable=True)]
    assert outcomes == [Outcome.DROPPED, Outcome.IMPORTED, Outcome.IMPORTED, Outcome.DROPPED]
