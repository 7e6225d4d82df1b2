"""Queues as views over the log: the states of a queue and its items, and what a person can drop from it."""

from __future__ import annotations

import pytest
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import FailureCause
from mailboat.queues.offsets import QueueSize
from mailboat.queues.queue_names import EntryId
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.queue_state import Capability, ItemState, QueuePosition, QueueState
from mailboat.queues.subscriber_queue import RemovalRefusedError, SubscriberQueue
from support.queue_log import (
    QUEUE,
    TOPIC,
    A,
    B,
    CountingJournal,
    counted_view_of,
    package_record,
    queue_of,
    view_of,
)


@pytest.fixture
def journal() -> CountingJournal:
    return CountingJournal()


class TestStates:
    @pytest.mark.parametrize(
        ("done", "attempts", "expected"),
        [
            (-1, 0, QueueState.RUNNING),
            (-1, 1, QueueState.RUNNING),
            (-1, 2, QueueState.RUNNING),
            (-1, 3, QueueState.BLOCKED),
            (-1, 100, QueueState.BLOCKED),
            (4, 0, QueueState.IDLE),
            (4, 3, QueueState.IDLE),
        ],
    )
    def test_a_queue_is_blocked_from_the_third_failure_on(
        self, journal: CountingJournal, done: int, attempts: int, expected: QueueState
    ) -> None:
        journal.append(TOPIC, [package_record(A)] * 5)
        assert queue_of(journal, counted_view_of(journal), done, attempts=attempts).state() is expected

    def test_only_the_head_has_attempts_and_a_cause(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)] * 5)
        cause = FailureCause("StorageFull", "no space left", "/content/a")
        queue = queue_of(journal, view_of(journal), 1, attempts=2, cause=cause)
        items = queue.page().items
        assert [(item.state, item.attempts) for item in items] == [
            (ItemState.ERROR, 2),
            (ItemState.QUEUED, 0),
            (ItemState.QUEUED, 0),
        ]
        assert [item.cause for item in items] == [cause, None, None]
        assert queue.head() == items[0]
        assert queue.page(3).items == items[1:]
        assert queue.find(items[0].id) == items[0]
        assert queue.find(items[2].id) == items[2]

    def test_a_subscriber_without_failures_has_no_cause(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)])
        cause = FailureCause("StorageFull", "an old one")
        head = queue_of(journal, view_of(journal), cause=cause).head()
        assert head is not None
        assert (head.state, head.cause) == (ItemState.QUEUED, None)

    def test_what_is_not_in_the_queue_is_not_found(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A), package_record(A), package_record(B)])
        queue = queue_of(journal, view_of(journal), 0)
        assert queue.find(EntryId(TOPIC, Offset(1))) is not None
        for strange in (
            EntryId(TOPIC, Offset(0)),
            EntryId(TOPIC, Offset(2)),
            EntryId(TOPIC, Offset(3)),
            EntryId(TOPIC, Offset(2**62)),
            EntryId(TopicName("status"), Offset(1)),
        ):
            assert queue.find(strange) is None

    def test_a_publisher_of_another_process_is_refused(self, journal: CountingJournal) -> None:
        queue = SubscriberQueue(
            QueuePosition(QUEUE, AgentName("stranger"), -1), view_of(journal), PageReader(view_of(journal), journal)
        )
        for call in (queue.size, queue.page, queue.head):
            with pytest.raises(UsageError, match="stranger"):
                call()


class TestPlans:
    @pytest.fixture
    def queue(self, journal: CountingJournal) -> SubscriberQueue:
        """The packages 2, 4, 6, 8 of A wait; those of B lie between."""
        journal.append(TOPIC, [package_record(A), package_record(B)] * 5)
        return queue_of(journal, counted_view_of(journal), 0, is_editable=True)

    def test_a_clear_of_some_ends_with_the_last_of_them(self, queue: SubscriberQueue) -> None:
        plan = queue.plan_clear(3)
        assert plan is not None
        assert (plan.up_to_offset, plan.size) == (6, QueueSize(3, is_exact=True))

    @pytest.mark.parametrize("max_entries", [None, 4, 5, 1000])
    def test_a_clear_of_all_ends_with_the_last_package(self, queue: SubscriberQueue, max_entries: int | None) -> None:
        plan = queue.plan_clear(max_entries)
        assert plan is not None
        assert (plan.up_to_offset, plan.size.count) == (8, 4)

    def test_a_clear_of_nothing_is_no_plan(self, queue: SubscriberQueue, journal: CountingJournal) -> None:
        assert queue.plan_clear(0) is None
        assert queue.plan_clear(-5) is None
        empty = queue_of(journal, counted_view_of(journal), 8, is_editable=True)
        assert empty.plan_clear() is None
        assert empty.plan_clear(3) is None

    def test_a_clear_while_the_past_is_not_counted_walks_to_its_end(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A), package_record(B)] * 2000)
        queue = queue_of(journal, view_of(journal), 0, is_editable=True)
        plan = queue.plan_clear(1500)
        assert plan is not None
        assert plan.up_to_offset == 3000
        assert not plan.size.is_exact
        everything = queue.plan_clear()
        assert everything is not None
        assert everything.up_to_offset == 3999

    def test_the_head_can_be_removed_alone(self, queue: SubscriberQueue) -> None:
        plan = queue.plan_remove([EntryId(TOPIC, Offset(2))])
        assert plan is not None
        assert (plan.up_to_offset, plan.size.count) == (2, 1)

    def test_another_entry_can_not_be_removed_alone(self, queue: SubscriberQueue) -> None:
        with pytest.raises(RemovalRefusedError, match="package-0@4") as refused:
            queue.plan_remove([EntryId(TOPIC, Offset(4))])
        assert refused.value.next_step == f"name those before it too: mailboat queues show {queue.name}"

    def test_entry_that_is_named_twice_is_one_entry(self, queue: SubscriberQueue) -> None:
        with pytest.raises(RemovalRefusedError, match="is not the first entry"):
            queue.plan_remove([EntryId(TOPIC, Offset(4))] * 2)

    def test_a_set_is_removed_with_all_before_its_last(self, queue: SubscriberQueue) -> None:
        plan = queue.plan_remove([EntryId(TOPIC, Offset(6)), EntryId(TOPIC, Offset(4))])
        assert plan is not None
        assert (plan.up_to_offset, plan.size.count) == (6, 3)

    @pytest.mark.parametrize("offsets", [(2, 999), (2, 3), (0,), (0, 4), (2**62,)])
    def test_what_is_not_in_the_queue_any_more_is_named_and_nothing_is_removed(
        self, queue: SubscriberQueue, offsets: tuple[int, ...]
    ) -> None:
        with pytest.raises(RemovalRefusedError, match="is not in"):
            queue.plan_remove([EntryId(TOPIC, Offset(offset)) for offset in offsets])

    def test_a_removal_of_nothing_is_no_plan(self, queue: SubscriberQueue) -> None:
        assert queue.plan_remove([]) is None

    def test_a_removal_names_a_bounded_number_of_entries(self, queue: SubscriberQueue) -> None:
        with pytest.raises(RemovalRefusedError, match="10000"):
            queue.plan_remove([EntryId(TOPIC, Offset(2))] * 10_001)

    def test_without_an_editable_subscriber_nothing_can_be_removed(self, journal: CountingJournal) -> None:
        journal.append(TOPIC, [package_record(A)])
        queue = queue_of(journal, view_of(journal))
        assert queue.capabilities == frozenset()
        for call in (queue.plan_clear, lambda: queue.plan_remove([EntryId(TOPIC, Offset(0))])):
            with pytest.raises(match="edge"):
                call()

    def test_an_editable_subscribers_queue_says_so(self, queue: SubscriberQueue) -> None:
        assert queue.capabilities == {Capability.CLEARABLE, Capability.REMOVABLE}
