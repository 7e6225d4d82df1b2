"""Questions that come while one is under way are asked together, and each asker gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from mailboat.errors import BrokersRefusedError, BrokersUnreachableError, JournalUnavailableError, MailboatError
from mailboat_operator.broker_connections import Batches, BrokerConnection
from mailboat_operator.brokers import ClusterFound


class Line:
    """Answers each question with its double; holds back the answers until it is opened."""

    def __init__(self) -> None:
        self.calls: list[dict[str, int]] = []
        self.opened = asyncio.Event()
        self.refused: dict[str, MailboatError] = {}

    async def call(self, questions: Mapping[str, int]) -> Mapping[str, int | MailboatError]:
        self.calls.append(dict(questions))
        await self.opened.wait()
        return {name: self.refused.get(name, 2 * question) for name, question in questions.items()}


async def _asked(batches: Batches[int, int], *questions: tuple[str, int]) -> list[asyncio.Task[int]]:
    """Each question in a task, after all of them wait."""
    tasks = [asyncio.create_task(batches.ask(name, question)) for name, question in questions]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def test_questions_during_a_call_are_asked_in_one() -> None:
    async def run() -> None:
        line = Line()
        batches = Batches(line.call)
        first = await _asked(batches, ("a", 1))
        later = await _asked(batches, ("b", 2), ("c", 3))
        line.opened.set()
        assert await asyncio.gather(*first, *later) == [2, 4, 6]
        assert line.calls == [{"a": 1}, {"b": 2, "c": 3}]

    asyncio.run(run())


def test_two_questions_about_one_name_are_asked_one_after_the_other() -> None:
    async def run() -> None:
        line = Line()
        tasks = await _asked(Batches(line.call), ("a", 1), ("a", 2))
        line.opened.set()
        assert await asyncio.gather(*tasks) == [2, 4]
        assert line.calls == [{"a": 1}, {"a": 2}]

    asyncio.run(run())


def test_a_refusal_reaches_its_asker_only() -> None:
    async def run() -> None:
        line = Line()
        line.refused["a"] = JournalUnavailableError("refused")
        tasks = await _asked(Batches(line.call), ("a", 1), ("b", 2))
        line.opened.set()
        with pytest.raises(JournalUnavailableError, match="refused"):
            await tasks[0]
        assert await tasks[1] == 4

    asyncio.run(run())


def test_a_failed_call_reaches_each_asker_and_later_questions_are_asked() -> None:
    async def run() -> None:
        failures = [OSError("no route")]

        async def call(questions: Mapping[str, int]) -> Mapping[str, int]:
            await asyncio.sleep(0)
            if failures:
                raise failures.pop()
            return questions

        batches = Batches(call)
        answers = await asyncio.gather(*await _asked(batches, ("a", 1), ("b", 2)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["no route", "no route"]
        assert await batches.ask("a", 3) == 3

    asyncio.run(run())


def test_nothing_is_asked_for_askers_that_have_gone() -> None:
    async def run() -> None:
        line = Line()
        batches = Batches(line.call)
        first = await _asked(batches, ("a", 1))
        gone = await _asked(batches, ("b", 2), ("c", 3))
        for task in gone:
            task.cancel()
        line.opened.set()
        await asyncio.gather(*first, *gone, return_exceptions=True)
        assert await batches.ask("d", 4) == 8
        assert line.calls == [{"a": 1}, {"d": 4}]

    asyncio.run(run())


def test_brokers_that_refuse_are_reached_again() -> None:
    """Else all questions but one would be told of the failure before, as long as that one is under way."""
    moment = [0.0]

    class Brokers:
        error: MailboatError = BrokersUnreachableError("connection refused")
        topics = act = None

        async def cluster(self) -> ClusterFound:
            raise self.error

    async def run() -> list[type]:
        brokers: Any = Brokers()
        connection = BrokerConnection(brokers, nullcontext, lambda: moment[0], 8.0)
        with pytest.raises(BrokersUnreachableError):
            await connection.cluster()
        brokers.error, moment[0] = BrokersRefusedError("not authorized"), 60.0
        with pytest.raises(BrokersRefusedError):
            await connection.cluster()
        answers = await asyncio.gather(connection.cluster(), connection.cluster(), return_exceptions=True)
        return [type(answer) for answer in answers]

    assert asyncio.run(run()) == [BrokersRefusedError, BrokersRefusedError]
