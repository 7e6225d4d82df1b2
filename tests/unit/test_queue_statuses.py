"""Answers to commands on the status topic, and waits that a notifier ends."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from mailboat.control.journal_state import ChangeNotifier, CommandAnswers
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import CommandResult, CommandState, CommandVerb, PingMessage
from mailboat.queues.queue_names import QueueName
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS

AUTHOR = AgentName("author")
SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
EDGE = QueueName(SLING_ID, AgentName("edge"))


class TestAnswers:
    ANSWER = CommandResult(
        "c1", SLING_ID, AgentName("edge"), CommandVerb.CLEAR, Offset(4), CommandState.DONE, AUTHOR, 3
    )

    def test_an_answer_is_found_by_command_and_subscriber(self) -> None:
        answers = CommandAnswers()
        answers.apply(self.ANSWER)
        assert answers.find("c1", EDGE) == self.ANSWER
        assert answers.find("c2", EDGE) is None

    def test_what_another_says_of_a_command_counts_for_nothing(self) -> None:
        answers = CommandAnswers()
        answers.apply(replace(self.ANSWER, sub_agent_name=AgentName("west"), state=CommandState.REFUSED))
        answers.apply(PingMessage())
        assert answers.find("c1", EDGE) is None

    def test_the_first_answer_counts(self) -> None:
        answers = CommandAnswers()
        answers.apply(self.ANSWER)
        answers.apply(replace(self.ANSWER, removed=99))
        assert answers.find("c1", EDGE) == self.ANSWER

    def test_their_number_is_bounded_and_a_new_topic_begins_again(self) -> None:
        answers = CommandAnswers(max_bytes=4_500)
        for number in range(5):
            answers.apply(replace(self.ANSWER, command_id=f"c{number}"))
        assert [number for number in range(5) if answers.find(f"c{number}", EDGE)] == [2, 3, 4]
        assert answers.dropped_count == 2
        answers.clear()
        assert answers.find("c4", EDGE) is None

    def test_long_answers_count_by_their_bytes(self) -> None:
        answers = CommandAnswers(max_bytes=20_000)
        for number in range(100):
            answers.apply(replace(self.ANSWER, command_id=f"c{number}", message="m" * 1_000))
        assert sum(answers.find(f"c{number}", EDGE) is not None for number in range(100)) == 8
        assert answers.dropped_count == 92


class TestChangeNotifier:
    def test_what_is_there_already_is_not_waited_for(self) -> None:
        assert ChangeNotifier(ManualClock()).wait_until(lambda: 7, lambda found: found == 7, 100.0) == 7

    def test_when_the_time_is_over_what_there_is_is_told(self) -> None:
        assert ChangeNotifier(ManualClock()).wait_until(lambda: 7, lambda found: found == 8, 0.0) == 7

    @pytest.mark.parametrize("waiters", [1, 5])
    def test_all_who_wait_are_woken_and_look_again(self, waiters: int) -> None:
        clock = ManualClock()
        notifier, value, found = ChangeNotifier(clock), [0], []

        def wait() -> None:
            found.append(notifier.wait_until(lambda: value[0], lambda seen: seen == 2, 1000.0))

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(waiters)]
        for thread in threads:
            thread.start()
        assert clock.await_waiters(waiters)
        notifier.notify_all()  # the value is unchanged
        value[0] = 2
        notifier.notify_all()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert found == [2] * waiters
