"""What the operator saves itself: shared reads, and looks that nothing calls for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from mailboat_operator.cluster_reader import ClusterReader, SharedReads
from mailboat_operator.reconciliation import ObjectKey
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.watches import Watched


class Store:
    """Something slow that changes."""

    def __init__(self) -> None:
        self.value, self.reads, self.may_answer = 0, 0, asyncio.Event()
        self.error: Exception | None = None

    async def read(self, _: str) -> int:
        self.reads += 1
        value = self.value
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return value


def run(test: Callable[[Store, SharedReads[str, int]], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        store = Store()
        await test(store, SharedReads[str, int](store.read))

    asyncio.run(whole())


async def others_turn() -> None:
    """All that can go on goes on."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_asks_while_a_read_is_under_way_shares_the_next_one_and_never_gets_an_older_answer() -> None:
    async def test(store: Store, shared: SharedReads[str, int]) -> None:
        first = asyncio.create_task(shared.ask("main"))
        await others_turn()
        store.value = 7
        others = [asyncio.create_task(shared.ask("main")) for _ in range(100)]
        await asyncio.sleep(0)
        store.may_answer.set()
        assert await first == 0
        assert await asyncio.gather(*others) == [7] * 100
        assert store.reads == 2
        assert await shared.ask("main") == 7
        assert store.reads == 3, "an answer was kept"

    run(test)


def test_who_asks_for_something_else_waits_for_no_one() -> None:
    async def test(store: Store, shared: SharedReads[str, int]) -> None:
        tasks = [asyncio.create_task(shared.ask(name)) for name in ("one", "two")]
        await others_turn()
        store.may_answer.set()
        assert await asyncio.gather(*tasks) == [0, 0]

    run(test)


def test_a_failure_is_told_to_all_who_share_the_read_and_to_no_one_after_them() -> None:
    async def test(store: Store, shared: SharedReads[str, int]) -> None:
        store.error = ValueError("no")
        first, *others = [asyncio.create_task(shared.ask("main")) for _ in range(3)]
        await others_turn()
        store.may_answer.set()
        for task in (first, *others):
            with pytest.raises(ValueError, match="no"):
                await task
        store.error = None
        assert await shared.ask("main") == 0

    run(test)


def test_who_goes_takes_the_answer_away_from_no_one() -> None:
    async def test(store: Store, shared: SharedReads[str, int]) -> None:
        first, second = [asyncio.create_task(shared.ask("main")) for _ in range(2)]
        await others_turn()
        first.cancel()
        await asyncio.wait([first])
        store.may_answer.set()
        assert await second == 0

    run(test)


def test_looks_at_many_pools_share_two_lists_of_the_publishers() -> None:
    lists = list[str]()

    class Cluster:
        async def list(self, kind: str, _: str) -> list[dict[str, Any]]:
            lists.append(kind)
            await others_turn()
            return [
                {
                    "apiVersion": "mailboat.dev/v1alpha1",
                    "kind": kind,
                    "metadata": {"name": name, "namespace": "shop", "uid": name},
                    "spec": {"journalRef": {"name": "main"}, "source": {"volumeClaim": {"name": "site"}}},
                }
                for name in ("b", "a")
            ]

    async def whole() -> None:
        parts: list[Any] = [Cluster(), None, None, None, None]
        reader = ClusterReader(*parts)
        for found in await asyncio.gather(*(reader.publishers("shop") for _ in range(1000))):
            assert [item.metadata.name for item in found] == ["a", "b"]

    asyncio.run(whole())
    assert len(lists) <= 2, lists


class Told:
    """The watches, and whom they have looked at."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.watched = Watched(lambda key: self.asked.append(f"{key.kind} {key.name}"), TopicClaims())
        self.versions: Iterator[int] = iter(range(1, 1000))

    def hear(self, kind: str, name: str, change: str | None = None, **spec: Any) -> list[str]:
        """Whom to look at after this news."""
        self.asked.clear()
        metadata = {"name": name, "namespace": "site", "uid": name, "resourceVersion": str(next(self.versions))}
        if spec.pop("is_going", False):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if spec.pop("is_owned", False):
            metadata["ownerReferences"] = [{"kind": "Journal", "name": "main", "controller": True}]  # type: ignore[assignment]  # the one list
        status = spec.pop("status", {})
        body = {
            "apiVersion": "mailboat.dev/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }
        asyncio.run(self.watched.object_changed(change, body))
        return sorted(self.asked)


JOURNAL = {"kafka": {"bootstrapServers": ["kafka:9092"]}}
TOPIC = {"journalRef": {"name": "main"}, "reclaimPolicy": "Delete"}


def test_journal_is_reconciled_for_its_first_and_last_topic_only() -> None:
    told = Told()
    told.hear("Journal", "main", **JOURNAL)
    assert told.hear("Topic", "one", topicName="one", **TOPIC) == ["Journal main", "Topic one"]
    assert told.hear("Topic", "two", topicName="two", **TOPIC) == ["Topic two"]
    assert told.hear("Topic", "one", "DELETED", topicName="one", **TOPIC) == []
    assert told.hear("Topic", "two", "DELETED", topicName="two", **TOPIC) == ["Journal main"]


def test_a_journal_that_is_being_deleted_hears_of_each_topic_that_went() -> None:
    told = Told()
    told.hear("Journal", "main", is_going=True, **JOURNAL)
    for name in ("one", "two"):
        told.hear("Topic", name, topicName=name, **TOPIC)
    assert told.hear("Topic", "one", "DELETED", topicName="one", **TOPIC) == ["Journal main"]


def test_a_journal_hears_of_its_own_topic_that_was_deleted() -> None:
    told = Told()
    told.hear("Journal", "main", **JOURNAL)
    spec = {"journalRef": {"name": "main"}, "topicName": "one"}
    told.hear("Topic", "one", is_owned=True, **spec)
    assert told.hear("Topic", "one", "DELETED", is_owned=True, **spec) == ["Journal main"]


def test_a_new_status_is_no_reason_to_look_again() -> None:
    told = Told()
    told.hear("Topic", "one", topicName="one", **TOPIC)
    assert told.hear("Topic", "one", topicName="one", **TOPIC) == []
    assert ObjectKey("Topic", "site", "one") in told.watched.last_events


def test_dependents_are_reconciled_for_a_new_journal_status_not_message() -> None:
    def status(reason: str, message: str = "") -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": "False", "reason": reason, "message": message}]
        return {"observedGeneration": 1, "conditions": conditions}

    told = Told()
    for kind, name in (("Journal", "main"), ("Publisher", "author"), ("SubscriberPool", "edge"), ("Topic", "one")):
        told.hear(kind, name, **(TOPIC if kind == "Topic" else {}))
    assert told.hear("Journal", "main", status=status("TopicsNotReady")) == ["Publisher author", "SubscriberPool edge"]
    assert told.hear("Journal", "main", status=status("TopicsNotReady", "3 of 6")) == []
    assert told.hear("Journal", "main", status=status("AsSpecified")) == ["Publisher author", "SubscriberPool edge"]


def test_publishers_hear_of_pools_that_come_and_go_and_of_no_change_between() -> None:
    told = Told()
    told.hear("Publisher", "author", journalRef={"name": "main"})
    assert told.hear("SubscriberPool", "edge") == ["Publisher author", "SubscriberPool edge"]
    assert told.hear("SubscriberPool", "edge", is_going=True) == ["SubscriberPool edge"]
    assert told.hear("SubscriberPool", "edge", "DELETED") == ["Publisher author"]


def test_topics_that_come_and_go_leave_nothing_in_memory() -> None:
    claims = TopicClaims()
    for number in range(10):
        metadata = {"name": f"t{number}", "namespace": f"ci-{number}", "uid": str(number), "resourceVersion": "1"}
        spec = {**TOPIC, "topicName": f"orders-{number}"}
        body = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Topic", "metadata": metadata, "spec": spec}
        claims.saw(body)
        claims.saw(body, is_gone=True)
    assert [index for index in vars(claims).values() if index] == []
