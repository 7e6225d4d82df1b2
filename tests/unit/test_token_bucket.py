"""`TokenBucket`, and the operator's `RequestBudget` that waits for it."""

from __future__ import annotations

import asyncio

import pytest
from mailboat.token_bucket import TokenBucket
from mailboat_operator.cluster import RequestBudget


def test_a_bucket_begins_full_and_refills_up_to_its_burst() -> None:
    bucket = TokenBucket(2.0, 3)
    assert [bucket.take(100.0) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.0, 0.5, 1.0])
    assert bucket.delay_seconds(101.0) == pytest.approx(0.5)
    assert [bucket.take(1000.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.0, 0.5])


def test_asking_for_the_delay_takes_no_token() -> None:
    bucket = TokenBucket(1.0, 1)
    assert [bucket.delay_seconds(5.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(5.0) == 0.0
    assert bucket.delay_seconds(5.0) == pytest.approx(1.0)


@pytest.mark.parametrize(("per_second", "free"), [(40.0, 10), (1.0, 1)])
def test_the_operators_budget_lets_a_quarter_of_a_second_pass_at_once(
    per_second: float, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    async def take_all() -> None:
        budget = RequestBudget(per_second, lambda: 7.0)
        for _ in range(free + 2):
            await budget.take()

    monkeypatch.setattr(asyncio, "sleep", note)
    asyncio.run(take_all())
    assert pauses == pytest.approx([1 / per_second, 2 / per_second])


def test_a_budget_without_a_rate_sets_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(seconds: float) -> None:
        raise AssertionError(seconds)

    async def take_all() -> None:
        budget = RequestBudget(None)
        for _ in range(100):
            await budget.take()

    monkeypatch.setattr(asyncio, "sleep", fail)
    asyncio.run(take_all())
