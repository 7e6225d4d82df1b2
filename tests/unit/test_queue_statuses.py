"""What statuses say beside failures: what left a queue without being imported, and answers to commands."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.agent.control.answers import CommandAnswers
from mailboat.agent.control.news import News
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import CommandResult, CommandState, CommandVerb, PackageStatus, PingMessage, StatusMessage
from mailboat.queues.names import QueueName
from mailboat.queues.removals import MAX_QUEUES, RemovedPackages
from mailboat.testing.clocks import ManualClock
from mailboat.testing.patience import PATIENCE_SECONDS

AUTHOR, OTHER = AgentName("author"), AgentName("other")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
EDGE, WEST = QueueName(SLING_ID, AgentName("edge")), QueueName(SLING_ID, AgentName("west"))
REMOVED, IMPORTED, FAILED = PackageStatus.REMOVED, PackageStatus.IMPORTED, PackageStatus.REMOVED_FAILED


def status(offset: int, kind: PackageStatus = REMOVED, name: QueueName = EDGE) -> StatusMessage:
    return StatusMessage(name.sling_id, name.agent_name, AUTHOR, Offset(offset), kind)


def hear_all(removed: RemovedPackages, *statuses: tuple[int, PackageStatus]) -> None:
    for offset, kind in statuses:
        removed.hear(status(offset, kind))


def offsets_in(removed: RemovedPackages, end: int, name: QueueName = EDGE, publisher: AgentName = AUTHOR) -> list[int]:
    return [one for one in range(end) if removed.is_removed(publisher, name, Offset(one))]


class TestRemovals:
    def test_what_was_cleared_is_told_from_what_was_imported(self) -> None:
        removed = RemovedPackages()
        hear_all(removed, (1, IMPORTED), (2, REMOVED), (4, REMOVED), (5, IMPORTED), (7, FAILED), (8, REMOVED))
        assert set(offsets_in(removed, 10)) - {3} == {2, 4, 8}  # 3 is another's: an editable subscriber tells all

    def test_a_subscribers_removals_are_its_own_and_of_one_publisher(self) -> None:
        removed = RemovedPackages()
        hear_all(removed, (2, REMOVED))
        assert offsets_in(removed, 5, WEST) == offsets_in(removed, 5, publisher=OTHER) == []

    def test_a_status_that_is_told_twice_changes_nothing(self) -> None:
        removed = RemovedPackages()
        history = ((1, REMOVED), (2, IMPORTED), (3, REMOVED), (4, IMPORTED))
        hear_all(removed, *history, *history)
        assert offsets_in(removed, 6) == [1, 3]

    def test_the_clear_of_many_packages_costs_one_range(self) -> None:
        removed = RemovedPackages(max_ranges=1)
        hear_all(removed, *((offset, REMOVED) for offset in range(1000)))
        assert offsets_in(removed, 2000) == list(range(1000))

    def test_the_number_of_ranges_is_bounded(self) -> None:
        removed = RemovedPackages(max_ranges=10)
        for offset in range(0, 100, 2):
            hear_all(removed, (offset, REMOVED), (offset + 1, IMPORTED))
        assert offsets_in(removed, 100) == list(range(80, 100, 2))
        removed.hear(status(5, name=WEST))
        assert offsets_in(removed, 100, WEST) == [5]

    def test_the_number_of_subscribers_is_bounded(self) -> None:
        removed = RemovedPackages()
        for number in range(MAX_QUEUES + 5):
            removed.hear(status(1, name=QueueName(SLING_ID, AgentName(f"edge-{number}"))))
        assert len(removed._queues) == MAX_QUEUES

    def test_what_is_no_status_means_nothing(self) -> None:
        removed = RemovedPackages()
        removed.hear(PingMessage())
        hear_all(removed, (2, REMOVED))
        removed.clear()
        assert offsets_in(removed, 5) == []

    @given(st.lists(st.sampled_from([REMOVED, IMPORTED, FAILED]), max_size=40))
    def test_any_history_of_an_editable_subscriber_is_told_exactly(self, kinds: list[PackageStatus]) -> None:
        removed = RemovedPackages()
        hear_all(removed, *enumerate(kinds))
        assert offsets_in(removed, len(kinds)) == [place for place, kind in enumerate(kinds) if kind is REMOVED]


class TestAnswers:
    ANSWER = CommandResult(
        "c1", SLING_ID, AgentName("edge"), CommandVerb.CLEAR, Offset(4), CommandState.DONE, AUTHOR, 3
    )

    def test_an_answer_is_found_by_command_and_subscriber(self) -> None:
        answers = CommandAnswers()
        answers.hear(self.ANSWER)
        assert answers.find("c1", EDGE) == self.ANSWER
        assert answers.find("c2", EDGE) is None

    def test_what_another_says_of_a_command_counts_for_nothing(self) -> None:
        answers = CommandAnswers()
        answers.hear(replace(self.ANSWER, sub_agent_name=AgentName("west"), state=CommandState.REFUSED))
        answers.hear(PingMessage())
        assert answers.find("c1", EDGE) is None

    def test_the_first_answer_counts(self) -> None:
        answers = CommandAnswers()
        answers.hear(self.ANSWER)
        answers.hear(replace(self.ANSWER, removed=99))
        assert answers.find("c1", EDGE) == self.ANSWER

    def test_their_number_is_bounded_and_a_new_topic_begins_anew(self) -> None:
        answers = CommandAnswers(max_bytes=5_000)
        for number in range(5):
            answers.hear(replace(self.ANSWER, command_id=f"c{number}"))
        assert [number for number in range(5) if answers.find(f"c{number}", EDGE)] == [2, 3, 4]
        assert answers.dropped_count == 2
        answers.clear()
        assert answers.find("c4", EDGE) is None

    def test_long_answers_count_by_their_bytes(self) -> None:
        answers = CommandAnswers(max_bytes=20_000)
        for number in range(100):
            answers.hear(replace(self.ANSWER, command_id=f"c{number}", message="m" * 1_000))
        assert sum(answers.find(f"c{number}", EDGE) is not None for number in range(100)) == 8
        assert answers.dropped_count == 92


class TestNews:
    def test_what_is_there_already_is_not_waited_for(self) -> None:
        assert News(ManualClock()).wait_until(lambda: 7, lambda found: found == 7, 100.0) == 7

    def test_when_the_time_is_over_what_there_is_is_told(self) -> None:
        assert News(ManualClock()).wait_until(lambda: 7, lambda found: found == 8, 0.0) == 7

    @pytest.mark.parametrize("waiters", [1, 5])
    def test_all_who_wait_are_woken_and_look_again(self, waiters: int) -> None:
        clock = ManualClock()
        news, value, found = News(clock), [0], []

        def wait() -> None:
            found.append(news.wait_until(lambda: value[0], lambda seen: seen == 2, 1000.0))

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(waiters)]
        for one in threads:
            one.start()
        assert clock.await_waiters(waiters)
        news.ring()  # in vain
        value[0] = 2
        news.ring()
        for one in threads:
            one.join(PATIENCE_SECONDS)
        assert found == [2] * waiters
