"""`PublishTurns`: which callers get the threads that publish, and how many wait."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import ThrottledError
from mailboat.http.publish_turns import (
    MAX_PUBLISHING,
    MAX_WAITING,
    MAX_WAITING_OF_ONE,
    QUANTUM,
    FairQueue,
    PublishTurns,
)


class Publishing:
    """Requests that hold a thread until the test ends them."""

    def __init__(self) -> None:
        self.turns = PublishTurns()
        self.begun: list[str] = []
        self._ends: list[asyncio.Event] = []

    async def send(self, user_id: str, count: int = 1) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._publish(user_id)) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    async def _publish(self, user_id: str) -> None:
        async with self.turns.turn(user_id):
            self.begun.append(user_id)
            self._ends.append(end := asyncio.Event())
            await end.wait()

    async def end_one(self) -> None:
        self._ends.pop(0).set()
        for _ in range(5):
            await asyncio.sleep(0)


def test_a_burst_of_one_caller_delays_another_by_one_turn() -> None:
    async def scenario() -> list[str]:
        publishing = Publishing()
        await publishing.send("burst", MAX_PUBLISHING + MAX_WAITING_OF_ONE)
        await publishing.send("ann")
        for _ in range(QUANTUM + 1):
            await publishing.end_one()
        return publishing.begun[MAX_PUBLISHING:]

    assert asyncio.run(scenario())[-1] == "ann"


def test_a_line_that_is_full_refuses_its_own_caller_only() -> None:
    async def scenario() -> None:
        publishing = Publishing()
        await publishing.send("burst", MAX_PUBLISHING + MAX_WAITING_OF_ONE)
        [more] = await publishing.send("burst")
        with pytest.raises(ThrottledError, match="100 requests of burst wait already, and 100 in all"):
            await more
        [hers] = await publishing.send("ann")
        assert not hers.done()

    asyncio.run(scenario())


def test_many_callers_together_wait_in_a_bounded_number() -> None:
    async def scenario() -> None:
        publishing = Publishing()
        await publishing.send("first", MAX_PUBLISHING)
        for number in range(MAX_WAITING):
            await publishing.send(f"user-{number}")
        [more] = await publishing.send("ann")
        with pytest.raises(ThrottledError, match="1000 in all"):
            await more

    asyncio.run(scenario())


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_request_that_is_cancelled_loses_no_thread(is_granted: bool) -> None:
    async def scenario() -> None:
        publishing = Publishing()
        await publishing.send("ann", MAX_PUBLISHING)
        [gone] = await publishing.send("bob")
        if is_granted:
            publishing._ends.pop(0).set()
            await asyncio.sleep(0)  # the thread is passed on, and the request has not run yet
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await publishing.send("eve")
        if not is_granted:
            await publishing.end_one()
        assert publishing.begun[-1] == "eve"

    asyncio.run(scenario())


def test_callers_take_turns_and_each_keeps_its_order() -> None:
    turns: FairQueue[str] = FairQueue(quantum=2)
    for number in range(6):
        turns.put("ann", f"a{number}")
    for number in range(2):
        turns.put("bob", f"b{number}")
    assert [turns.take() for _ in range(8)] == ["a0", "a1", "b0", "b1", "a2", "a3", "a4", "a5"]
    assert len(turns) == 0


def test_a_burst_of_one_caller_delays_the_others_by_its_turn_only() -> None:
    turns: FairQueue[str] = FairQueue()
    for number in range(500):
        turns.put("burst", f"x{number}")
    turns.put("ann", "hers")
    assert [turns.take() for _ in range(QUANTUM + 1)].index("hers") == QUANTUM


def test_what_costs_more_than_a_turn_is_saved_up_for() -> None:
    turns: FairQueue[str] = FairQueue(quantum=10)
    turns.put("heavy", "large", cost=25)
    for number in range(40):
        turns.put("light", f"l{number}")
    assert [turns.take() for _ in range(41)].index("large") == 20


def test_who_has_nothing_in_line_saves_nothing() -> None:
    turns: FairQueue[str] = FairQueue(quantum=10)
    turns.put("ann", "first")
    turns.take()
    turns.put("ann", "large", cost=11)
    turns.put("bob", "small")
    assert [turns.take(), turns.take()] == ["small", "large"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 600)), max_size=60),
    st.integers(1, 20),
)
def test_everything_comes_out_once_and_each_callers_in_its_order(puts: list[tuple[str, int]], quantum: int) -> None:
    turns: FairQueue[tuple[str, int]] = FairQueue(quantum)
    for place, (caller, cost) in enumerate(puts):
        turns.put(caller, (caller, place), cost)
    taken: list[tuple[str, int]] = []
    while (item := turns.take()) is not None:
        taken.append(item)
    assert len(turns) == 0
    assert sorted(place for _, place in taken) == list(range(len(puts)))
    for caller in "abc":
        places = [place for name, place in taken if name == caller]
        assert places == sorted(places)
    assert turns.line_length("a") == 0
