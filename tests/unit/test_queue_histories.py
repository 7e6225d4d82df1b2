"""Queues as views over the log: any history gives the same as a plain list."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mailboat.journal.port import ReadLimits
from mailboat.model.identifiers import Offset
from mailboat.model.messages import Action
from mailboat.queues.log_follower import LogFollower, count_past
from mailboat.queues.queue_pages import PageLimits, PageReader
from mailboat.queues.queue_state import QueuePosition
from mailboat.queues.subscriber_queue import SubscriberQueue
from mailboat.testing.examples import examples
from support.queue_log import (
    GARBAGE,
    QUEUE,
    TOPIC,
    A,
    B,
    CountingJournal,
    offsets_of,
    package_record,
    view_of,
)


class TestAgainstAPlainList:
    @settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_history_gives_the_same_as_a_plain_list(self, data: st.DataObject) -> None:
        """Appends, retention, following, counting and looking in any order, with little room for details."""
        journal = CountingJournal()
        kinds = {"a": package_record(A), "b": package_record(B), "t": package_record(A, Action.TEST), "?": GARBAGE}
        stretches = st.builds(
            lambda kinds, times: list(kinds * times), st.text("abt?", min_size=1, max_size=5), st.integers(1, 80)
        )
        log: list[str] = data.draw(stretches, "already there")
        journal.append(TOPIC, [kinds[kind] for kind in log])
        view = view_of(journal, data.draw(st.sampled_from([0, 3000, 10**6]), "budget"))
        limits = PageLimits(
            data.draw(st.sampled_from([1, 50, 5000]), "walk"), ReadLimits(data.draw(st.sampled_from([1, 7, 256])))
        )
        pages, follower, known = PageReader(view, journal, limits), LogFollower(view, journal), len(log)

        def append() -> None:
            more = data.draw(stretches, "more")
            journal.append(TOPIC, [kinds[kind] for kind in more])
            log.extend(more)

        def trim() -> None:
            before = data.draw(st.integers(0, len(log)), "before")
            journal.truncate(TOPIC, Offset(before))
            view.trim(journal.bounds(TOPIC).earliest_offset)

        def follow() -> None:
            nonlocal known
            while follower.follow(0.0):
                pass
            known = len(log)

        def look() -> None:
            publisher = data.draw(st.sampled_from([A, B]), "publisher")
            done = data.draw(st.integers(-1, len(log) + 2), "done")
            at_once = data.draw(st.integers(1, 40), "at once")
            earliest = journal.bounds(TOPIC).earliest_offset
            expected = [n for n in range(max(earliest, done + 1), known) if log[n] == str(publisher)]
            queue = SubscriberQueue(QueuePosition(QUEUE, publisher, done, is_editable=True), view, pages)
            assert offsets_of(queue, at_once) == expected
            size = queue.size()
            assert size.count == len(expected) if size.is_exact else size.count >= len(expected)
            first = queue.plan_clear(at_once)
            assert (None if first is None else first.up_to_offset) == (expected[:at_once] or [None])[-1]

        steps = [append, trim, follow, lambda: count_past(view, journal, data.draw(st.integers(1, 100), "step"))]
        for step in data.draw(st.lists(st.sampled_from(steps), min_size=2, max_size=10), "steps"):
            step()
            look()
        follow()
        look()
        while count_past(view, journal, 64):
            pass
        look()
        assert journal.readers_open == 1
