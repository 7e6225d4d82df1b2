"""Chains of jobs by key in linked rows, against lists."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.jobs.chains import Chains
from mailboat.jobs.table import JobTable, NewRow
from mailboat.model.jobs import JobId, JobState

KEYS = (1, 3, 1 | 1 << 40, 3 | 1 << 40)
"""Two pairs of the same lowest bits."""


class ChainsAndLists:
    """Random changes of chains, and the lists that they stand for."""

    def __init__(self, random: Random, *, by_key: bool, by_topic: bool) -> None:
        self.random = random
        self.table = JobTable()
        self.chains = Chains(self.table)
        self.chains.begin(by_key=by_key, by_topic=by_topic)
        self.by = by_key, by_topic
        self.lists: dict[tuple[int, int], list[JobId]] = defaultdict(list)
        self.jobs: list[JobId] = []
        self.next = 0

    def list_of(self, job: JobId) -> list[JobId]:
        by_key, by_topic = self.by
        return self.lists[self.table.key(job) if by_key else 0, self.table.topic(job) if by_topic else 0]

    def step(self) -> None:
        choice = self.random.random()
        job = self.random.choice(self.jobs) if self.jobs else None
        if job is None or choice < 0.45:
            job = JobId(self.next)
            self.next += self.random.randint(1, 3)
            key, topic = self.random.choice(KEYS), self.random.randint(0, 1)
            self.table.add(NewRow(job, topic, 0, 0, key, 0, 0, 0, 1_000, keep=False))
            self.jobs.append(job)
        elif choice < 0.6:
            if not self.chains.has(job):
                self.chains.append(job)
                self.list_of(job).append(job)
        elif choice < 0.7:
            self.table.set_state(job, self.random.choice((JobState.ACTIVE, JobState.SUCCEEDED, JobState.QUEUED)))
            self.advance(job)
        elif choice < 0.9:
            # As the fold does: a job that ends is no longer the first one when it is forgotten.
            self.table.set_state(job, JobState.SUCCEEDED)
            self.advance(job)
            if job in (chain := self.list_of(job)):
                chain.remove(job)
            self.table.forget(job)
            self.jobs.remove(job)
        else:
            assert dict(self.table.columns())["ids"], "rows of forgotten jobs are removed"

    def advance(self, job: JobId) -> None:
        chain = self.list_of(job)
        while chain and self.table.state(chain[0]) is not JobState.QUEUED:
            chain.pop(0)
        assert self.chains.advance(job, active_stay=False) == (chain[0] if chain else None)

    def check(self) -> None:
        chains = sorted(chain for chain in self.lists.values() if chain)
        assert list(self.chains.firsts()) == [chain[0] for chain in chains]
        assert len(self.chains) == len(chains)
        for job in self.jobs:
            chain = self.list_of(job)
            assert (self.chains.first(job), self.chains.has(job)) == (chain[0] if chain else None, job in chain)
            assert [each for each in self.chains.of(job) if self.table.row(each) >= 0] == chain
        waiting = [job for chain in chains for job in chain if self.table.is_queued(job)]
        assert list(self.chains.waiting(active_stay=False)) == waiting


@given(seed=st.integers(0, 1 << 32))
@pytest.mark.parametrize(("by_key", "by_topic"), [(True, False), (True, True), (False, False)])
def test_chains_are_the_lists_of_each_key(by_key: bool, by_topic: bool, seed: int) -> None:
    history = ChainsAndLists(Random(seed), by_key=by_key, by_topic=by_topic)
    for _ in range(80):
        history.step()
        history.check()


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 2)), max_size=20), st.data())
@pytest.mark.parametrize(("by_key", "by_topic"), [(True, False), (True, True), (False, False)])
def test_many_rows_at_once_make_the_chains_of_one_after_another(
    by_key: bool, by_topic: bool, jobs: list[tuple[int, int]], data: st.DataObject
) -> None:
    table = JobTable()
    for number, (key, topic) in enumerate(jobs):
        table.add(NewRow(JobId(number), topic, 0, 0, key, 0, 0, 0, 1_000, keep=False))
    # As a hostile checkpoint has them: a job twice, and keys that are not one after another.
    rows = data.draw(st.lists(st.integers(0, len(jobs) - 1), max_size=30)) if jobs else []
    chains, found = Chains(table), []
    for add in (chains.fill, lambda rows: [chains.append_row(row) for row in rows if table.link(row) < 0]):
        chains.begin(by_key=by_key, by_topic=by_topic)
        add(rows)
        found.append((len(chains), [list(chains.of(first)) for first in chains.firsts()]))
    assert found[0] == found[1]
    chains.begin(by_key=by_key, by_topic=by_topic)
    firsts = [row for row, is_first in enumerate(chains.fill(rows)) if is_first]
    assert [JobId(row) for row in firsts] == list(chains.firsts())


def test_an_index_of_many_keys_finds_each_and_shrinks_again() -> None:
    table = JobTable()
    chains = Chains(table)
    for number in range(5_000):
        table.add(NewRow(JobId(number), 0, 0, 0, number << 40 | 1, 0, 0, 0, 1_000, keep=False))
        chains.append(JobId(number))
    largest = chains.size_bytes()
    assert [chains.first(JobId(number)) for number in range(5_000)] == list(range(5_000))
    for number in range(4_999):
        table.set_state(JobId(number), JobState.SUCCEEDED)
        chains.advance(JobId(number), active_stay=True)
        table.forget(JobId(number))
    for number in range(5_000, 8_000):
        table.add(NewRow(JobId(number), 0, 0, 0, 2 * number + 1, 0, 0, 0, 1_000, keep=False))
        chains.append(JobId(number))
        table.set_state(JobId(number), JobState.SUCCEEDED)
        chains.advance(JobId(number), active_stay=True)
        table.forget(JobId(number))
    assert chains.size_bytes() < largest
    assert list(chains.firsts()) == [4_999]


def test_few_chains_among_many_rows_of_other_queues_are_in_the_order_of_ids() -> None:
    table = JobTable()
    chains = Chains(table)
    for number in range(70_000):
        table.add(NewRow(JobId(number), 0, 0, 0, 2 * (number % 3) + 1, 0, 0, 0, 1_000, keep=False))
    for number in (69_999, 1, 50_000, 4):  # keys 0, 1, 2 and 1 again
        chains.append(JobId(number))
    assert list(chains.firsts()) == [1, 50_000, 69_999]
    assert list(chains.waiting(active_stay=True)) == [1, 4, 50_000, 69_999]
