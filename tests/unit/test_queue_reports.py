"""What subscribers reported about packages that they did not import, folded from the status topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import PackageStatus, PingMessage, StatusMessage
from mailboat.queues.queue_names import QueueName
from mailboat.queues.reports import PackageReports, QueueReports, ReportedReason

AUTHOR, OTHER, GOLDEN = map(AgentName, ("author", "other", "golden"))
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
EDGE, WEST = QueueName(SLING_ID, AgentName("edge")), QueueName(SLING_ID, AgentName("west"))
REMOVED, IMPORTED, FAILED = PackageStatus.REMOVED, PackageStatus.IMPORTED, PackageStatus.REMOVED_FAILED


def status(
    offset: int, kind: PackageStatus = REMOVED, name: QueueName = EDGE, golden: AgentName | None = None
) -> StatusMessage:
    return StatusMessage(name.sling_id, name.agent_name, AUTHOR, Offset(offset), kind, staged_behind=golden)


def hear_all(reports: PackageReports, *statuses: tuple[int, PackageStatus], golden: AgentName | None = None) -> None:
    for offset, kind in statuses:
        reports.apply(status(offset, kind, golden=golden))


def offsets_in(
    reports: PackageReports,
    end: int,
    report: ReportedReason = ReportedReason.DROPPED,
    name: QueueName = EDGE,
    publisher: AgentName = AUTHOR,
) -> list[int]:
    return [number for number in range(end) if reports.find(publisher, name, number).report is report]


def test_each_status_is_told_by_its_kind() -> None:
    reports = PackageReports()
    hear_all(reports, (1, IMPORTED), (2, REMOVED), (4, REMOVED), (5, IMPORTED), (7, FAILED), (8, REMOVED))
    assert offsets_in(reports, 10) == [2, 4, 8]
    assert offsets_in(reports, 10, ReportedReason.GIVEN_UP) == [7]
    assert reports.find(AUTHOR, EDGE, 4) == QueueReports(ReportedReason.DROPPED, None, 1, 8)


def test_skipped_packages_name_the_golden_subscriber_and_nothing_between_them() -> None:
    reports = PackageReports()
    hear_all(reports, (2, REMOVED), (4, REMOVED), golden=GOLDEN)
    assert offsets_in(reports, 6, ReportedReason.SKIPPED) == [2, 4]
    assert reports.find(AUTHOR, EDGE, 4).golden == GOLDEN


def test_reports_belong_to_one_subscriber_and_one_publisher() -> None:
    reports = PackageReports()
    hear_all(reports, (2, REMOVED))
    assert offsets_in(reports, 5, name=WEST) == offsets_in(reports, 5, publisher=OTHER) == []
    assert list(reports.without(AUTHOR, 2)) == [EDGE]
    assert list(reports.without(OTHER, 2)) == list(reports.without(AUTHOR, 3)) == []


def test_publishers_that_are_not_wanted_are_not_kept() -> None:
    reports = PackageReports(lambda one: one == OTHER)
    hear_all(reports, (2, REMOVED))
    assert offsets_in(reports, 5) == []


def test_the_newest_status_of_a_package_counts() -> None:
    reports = PackageReports()
    hear_all(reports, *((offset, REMOVED) for offset in range(10)), (4, IMPORTED), (7, FAILED), (4, IMPORTED))
    assert offsets_in(reports, 10) == [0, 1, 2, 3, 5, 6, 8, 9]
    hear_all(reports, (7, IMPORTED), (4, REMOVED))
    assert offsets_in(reports, 10) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert offsets_in(reports, 10, ReportedReason.GIVEN_UP) == []


def test_a_repeated_history_changes_nothing() -> None:
    reports = PackageReports()
    history = ((1, REMOVED), (2, IMPORTED), (3, REMOVED), (4, IMPORTED))
    hear_all(reports, *history, *history)
    assert offsets_in(reports, 6) == [1, 3]
    assert reports.range_count == 2


def test_a_clear_of_many_packages_costs_one_range() -> None:
    reports = PackageReports(max_ranges=1)
    hear_all(reports, *((offset, REMOVED) for offset in range(3000)))
    assert (len(offsets_in(reports, 4000)), reports.range_count) == (3000, 1)


def test_no_range_holds_packages_without_a_status() -> None:
    """A subscriber that was not editable for a while sends no status about what it imports."""
    reports = PackageReports()
    hear_all(reports, (0, REMOVED), (3, REMOVED), (4, REMOVED))
    assert offsets_in(reports, 6) == [0, 3, 4]


def test_forgotten_ranges_are_never_taken_for_imported() -> None:
    reports = PackageReports(max_ranges=10)
    for offset in range(0, 100, 2):
        hear_all(reports, (offset, REMOVED), (offset + 1, IMPORTED))
    known = offsets_in(reports, 100)
    assert known == list(range(known[0], 100, 2))
    assert reports.range_count == len(known) <= 10
    assert not reports.find(AUTHOR, EDGE, known[0] - 2).are_complete
    assert all(reports.find(AUTHOR, EDGE, number).are_complete for number in range(known[0], 100))
    assert reports.find(AUTHOR, WEST, 0).are_complete


def test_the_subscriber_with_most_ranges_is_forgotten_first() -> None:
    reports = PackageReports(max_ranges=10)
    reports.apply(status(5, name=WEST))
    for offset in range(0, 100, 2):
        hear_all(reports, (offset, REMOVED), (offset + 1, IMPORTED))
    assert offsets_in(reports, 100, name=WEST) == [5]


def test_forgotten_subscribers_have_no_complete_reports() -> None:
    reports = PackageReports(max_queues=2)
    assert reports.find(AUTHOR, EDGE, 0).are_complete
    for number in range(3):
        reports.apply(status(7, name=QueueName(SLING_ID, AgentName(f"s{number}"))))
    assert not reports.find(AUTHOR, EDGE, 0).are_complete
    reports.apply(status(9))
    assert [reports.find(AUTHOR, EDGE, item).are_complete for item in (8, 9)] == [False, True]
    assert reports.last(AUTHOR, QueueName(SLING_ID, AgentName("s0"))) == -1
    assert reports.last(AUTHOR, EDGE) == 9


def test_trimmed_packages_cost_nothing() -> None:
    reports = PackageReports()
    for offset in range(0, 100, 2):
        hear_all(reports, (offset, FAILED), (offset + 1, IMPORTED))
    reports.trim(90)
    assert (offsets_in(reports, 100, ReportedReason.GIVEN_UP), reports.range_count) == ([90, 92, 94, 96, 98], 5)


def test_trimmed_packages_are_never_taken_for_imported() -> None:
    reports = PackageReports()
    hear_all(reports, (2, FAILED), (9, IMPORTED))
    reports.trim(5)
    assert [reports.find(AUTHOR, EDGE, item).are_complete for item in (2, 4, 5)] == [False, False, True]


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from([REMOVED, IMPORTED, FAILED])), max_size=30))
def test_answers_change_at_edges_only(statuses: list[tuple[int, PackageStatus]]) -> None:
    reports = PackageReports(max_ranges=4)
    hear_all(reports, *statuses)
    edges = reports.edges(AUTHOR, EDGE, 3, 17)
    for offset in range(4, 18):
        before, at = (reports.find(AUTHOR, EDGE, item) for item in (offset - 1, offset))
        assert offset in edges or before == at


def test_other_messages_mean_nothing_and_clear_forgets_all() -> None:
    reports = PackageReports()
    reports.apply(PingMessage())
    hear_all(reports, (2, REMOVED))
    reports.clear()
    assert (offsets_in(reports, 5), reports.range_count) == ([], 0)


@given(st.lists(st.sampled_from([REMOVED, IMPORTED, FAILED]), max_size=40))
def test_any_history_of_an_editable_subscriber_is_kept_exactly(kinds: list[PackageStatus]) -> None:
    reports = PackageReports()
    hear_all(reports, *enumerate(kinds))
    assert offsets_in(reports, len(kinds)) == [place for place, kind in enumerate(kinds) if kind is REMOVED]
    assert offsets_in(reports, len(kinds), ReportedReason.GIVEN_UP) == [
        n for n, kind in enumerate(kinds) if kind is FAILED
    ]


STATUSES = st.tuples(st.integers(0, 12), st.sampled_from([REMOVED, IMPORTED, FAILED]), st.sampled_from([None, GOLDEN]))


@given(st.lists(STATUSES, max_size=40))
def test_the_last_status_of_each_package_counts_in_any_order(
    said: list[tuple[int, PackageStatus, AgentName | None]],
) -> None:
    reports, last = PackageReports(), dict[int, ReportedReason | None]()
    for offset, kind, golden in said:
        reports.apply(status(offset, kind, golden=golden))
        removed = ReportedReason.DROPPED if golden is None else ReportedReason.SKIPPED
        last[offset] = {REMOVED: removed, FAILED: ReportedReason.GIVEN_UP, IMPORTED: None}[kind]
    assert {item: reports.find(AUTHOR, EDGE, item).report for item in last} == last
    queue = reports._queues.get((AUTHOR, EDGE))
    if queue is not None:
        assert reports.range_count == len(queue.firsts) == len(queue.lasts) == len(queue.reports)
        assert all(first <= last for first, last in zip(queue.firsts, queue.lasts, strict=True))
        assert all(last < first for last, first in zip(queue.lasts, list(queue.firsts)[1:], strict=False))
