"""Who is looked at when: as many at once as may work, and no one behind those that wait for brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from mailboat.errors import BrokersUnreachableError, ClusterUnavailableError, MailboatError
from mailboat_operator.broker_connections import Connections
from mailboat_operator.brokers import ClusterFound
from mailboat_operator.kinds.journal.spec import Kafka
from mailboat_operator.metrics import OperatorMetrics
from mailboat_operator.reconcile_queue import ReconcileQueue, Slots
from mailboat_operator.reconciliation import ObjectKey, ReconcileOutcome
from mailboat_operator.resources import mapped

COUNT = 3
MOST_UNDER_WAY = 20 * COUNT


class Office:
    """Workers whose looks end when they are let; Topics wait for brokers all the while."""

    def __init__(self) -> None:
        self.slots, self.may_end, self.looked = Slots(COUNT), asyncio.Event(), list[ObjectKey]()
        self.is_ready = True
        self.workers = ReconcileQueue(self, OperatorMetrics(), self.slots)  # type: ignore[arg-type]  # reconciles as it does

    async def reconcile(self, key: ObjectKey) -> ReconcileOutcome:
        self.looked.append(key)
        if key.kind == "Topic":
            async with self.slots.given_back():
                await self.may_end.wait()
        else:
            await self.may_end.wait()
        return ReconcileOutcome(is_ready=self.is_ready)

    def ask(self, kind: str, count: int, *, is_news: bool = True) -> None:
        for number in range(count):
            self.workers.ask(ObjectKey(kind, "shop", f"{kind}-{number}"), is_news=is_news)

    def count(self, kind: str) -> int:
        return sum(item.kind == kind for item in self.looked)


def work(test: Any) -> None:
    async def whole() -> None:
        office = Office()
        running = asyncio.create_task(office.workers.run())
        await test(office)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(whole())


async def others_turn() -> None:
    """All that can go on goes on."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_of_many_that_come_at_once_no_more_are_looked_at_than_may_work() -> None:
    async def test(office: Office) -> None:
        office.ask("Publisher", 100)
        await others_turn()
        assert office.count("Publisher") == COUNT
        office.may_end.set()
        for _ in range(20):
            await others_turn()
        assert office.count("Publisher") == 100

    work(test)


def test_those_that_wait_for_brokers_hold_up_no_one_however_many_they_are() -> None:
    async def test(office: Office) -> None:
        office.ask("Topic", 1000)
        for _ in range(20):
            await others_turn()
        assert office.count("Topic") == MOST_UNDER_WAY
        office.ask("Publisher", 1)
        await others_turn()
        assert office.count("Publisher") == 1

    work(test)


def test_news_go_before_what_is_looked_at_for_its_own_sake_in_either_queue() -> None:
    async def test(office: Office) -> None:
        office.ask("Publisher", COUNT)
        await others_turn()
        office.ask("SubscriberPool", 50, is_news=False)
        office.ask("Journal", 50, is_news=False)
        office.workers.ask(ObjectKey("Publisher", "shop", "new"))
        office.workers.ask(ObjectKey("Topic", "shop", "new"))
        office.may_end.set()
        await others_turn()
        assert {item.name for item in office.looked[COUNT : COUNT + 2]} == {"new"}

    work(test)


def test_pauses_grow_while_an_object_is_pending_until_there_is_news_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(office: Office) -> None:
        pauses, due = list[float](), list[Any]()

        def call_later(pause: float, *call: Any) -> Any:
            if isinstance(call[-1], ObjectKey):  # others limit a look
                pauses.append(pause)
                due.append(call)
            return SimpleNamespace(cancel=lambda: None)

        office.is_ready = False
        office.may_end.set()
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
        office.ask("Publisher", 1)
        for _ in range(7):
            await others_turn()
            function, *arguments = due.pop()
            function(*arguments)
        assert pauses == [15.0] * 4 + [30.0, 60.0, 60.0]
        await others_turn()
        office.ask("Publisher", 1)
        await others_turn()
        assert pauses[-1] == 15.0

    work(test)


class Brokers:
    """Of a Journal: silent until they are let answer."""

    def __init__(self, *_: object) -> None:
        self.asked, self.answers = 0, asyncio.Queue[bool]()

    async def cluster(self) -> ClusterFound:
        self.asked += 1
        if await self.answers.get():
            return ClusterFound("one", 3)
        raise BrokersUnreachableError("nobody answers")

    async def topics(self, names: Any) -> Any:
        return dict.fromkeys(names)

    async def act(self, actions: Any) -> Any:
        return dict.fromkeys(actions)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_brokers_that_failed_are_tried_by_one_and_the_others_are_told_so_at_once() -> None:
    async def test() -> None:
        brokers, now = Brokers(), [100.0]
        made = {"connect": lambda *_: brokers, "monotonic": lambda: now[0], "answer_seconds": 3.0}
        connections = Connections(**made)  # type: ignore[arg-type]  # a stand-in
        connection = connections.to("shop", "main", Kafka(bootstrap_servers=("kafka:9092",)), {})
        brokers.answers.put_nowait(False)
        with pytest.raises(BrokersUnreachableError) as first:
            await connection.cluster()
        assert first.value.retry_after_seconds == 2.0
        now[0] += 2.5
        trial = asyncio.create_task(connection.cluster())
        await others_turn()
        for _ in range(5):
            with pytest.raises(BrokersUnreachableError, match="nobody answers") as told:
                await connection.topic("orders")
            assert told.value.retry_after_seconds == 3.0, "the time limit of the request that tries them"
        assert brokers.asked == 2
        brokers.answers.put_nowait(True)
        assert (await trial).brokers == 3
        assert await connection.topic("orders") is None, "who answers is asked by all again"

    run(test())


class FailingOffice:
    """Workers whose every reconciliation raises; what is written into statuses."""

    def __init__(self, error: Exception) -> None:
        self.error, self.refused, self.count, self.metrics = error, list[MailboatError](), 0, OperatorMetrics()
        self.workers = ReconcileQueue(self, self.metrics, Slots(COUNT))  # type: ignore[arg-type]  # reconciles as it does

    async def reconcile(self, _: ObjectKey) -> ReconcileOutcome:
        self.count += 1
        raise self.error

    async def refuse(self, _: ObjectKey, error: MailboatError) -> None:
        self.refused.append(error)


def fail(error: Exception, times: int) -> FailingOffice:
    async def whole() -> FailingOffice:
        office = FailingOffice(error)
        office.metrics.figures("SubscriberPool", "shop", "edge", {"pool_lag_packages": 7.0})
        running = asyncio.create_task(office.workers.run())
        for _ in range(times):
            office.workers.ask(ObjectKey("SubscriberPool", "shop", "edge"))
            await others_turn()
        assert office.count == times
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return office

    return asyncio.run(whole())


def test_an_unexpected_error_becomes_a_condition_that_does_not_quote_it() -> None:
    office = fail(ValueError("Illegal header value b'Bearer CANARY'"), 1)
    assert [error.name for error in office.refused] == ["OperatorDefect"]
    assert "ValueError" in office.refused[0].message
    assert "CANARY" not in office.refused[0].message


def test_a_reconciliation_that_takes_too_long_is_no_defect() -> None:
    assert fail(TimeoutError(), 4).refused == []
    (error,) = fail(TimeoutError(), 5).refused
    assert (error.name, "60 s" in error.message) == ("ClusterUnavailable", True)


@pytest.mark.parametrize(("header", "pause"), [("7", 7.0), ("86400", 60.0), ("soon", None)])
def test_no_pause_that_an_api_server_asks_for_is_longer_than_a_minute(header: str, pause: float | None) -> None:
    request = httpx2.Request("GET", "https://kubernetes.example/")
    answer = httpx2.Response(503, headers={"Retry-After": header}, request=request)
    error: Any = mapped(httpx2.HTTPStatusError("overloaded", request=request, response=answer), "reading")
    assert (error.name, error.retry_after_seconds) == ("ClusterUnavailable", pause)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('failed to create typed patch object (shop/cdn): duplicate entries for key [name="A"]', "ClusterRefused"),
        ("etcdserver: leader changed", "ClusterUnavailable"),
    ],
)
def test_an_object_that_the_api_server_can_not_merge_needs_a_person(text: str, name: str) -> None:
    request = httpx2.Request("PATCH", "https://kubernetes.example/")
    answer = httpx2.Response(500, request=request)
    assert mapped(httpx2.HTTPStatusError(text, request=request, response=answer), "applying").name == name


def test_the_lag_of_a_pool_that_cannot_be_reconciled_is_unknown() -> None:
    sample = b'pool_lag_packages{name="edge",namespace="shop"} 7.0'
    error = ClusterUnavailableError("etcdserver: leader changed")
    assert [sample in fail(error, times).metrics.text() for times in (4, 5)] == [True, False]


def test_a_passing_failure_that_keeps_coming_becomes_a_condition() -> None:
    error = ClusterUnavailableError("etcdserver: leader changed")
    assert fail(error, 4).refused == []
    assert fail(error, 5).refused == [error]
