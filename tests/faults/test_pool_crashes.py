"""SIGKILL of a member of a shared pool: each effect happens once, and each package is confirmed once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from mailboat.content.locations import opened_ledger
from mailboat.content.sources.folder import FolderSource
from mailboat.failpoints import Failpoint
from mailboat.jobs.topic import open_job_topic
from mailboat.model.messages import PackageStatus
from mailboat.testing.wait import wait_until
from support import pool_scenario
from support.engines import Engine, digest_of, page_source
from support.forks import end_of, fork, preload, run_child

preload("support.pool_scenario")
_OF_OTHERS = ("publisher-", "bulk-", "events-", "delivery-")
_NEVER = {
    Failpoint.SUBSCRIBER_BATCH_READ,
    Failpoint.SUBSCRIBER_ATTEMPT_STORED,
    Failpoint.SUBSCRIBER_COMMANDS_TAKEN,
    Failpoint.TARGET_HELD_BACK,
    Failpoint.TARGET_GENERATION_BUILT,
    Failpoint.TARGET_GENERATION_FLIPPED,
}
"""Steps that a member of a pool with a `files:` target does not take, or only for commands."""

OF_MEMBERS = [failpoint for failpoint in Failpoint if not failpoint.startswith(_OF_OTHERS) and failpoint not in _NEVER]
COMBINATIONS = [
    (failpoint, count)
    for failpoint in OF_MEMBERS
    for count in (1, 3)
    if count == 1 or failpoint is not Failpoint.POOL_FED  # all packages are put into the queue at once
]


def check_all_is_done(folder: Path, packages: int) -> None:
    paths = pool_scenario.paths(packages)
    with Engine(folder / "home") as engine:
        statuses = engine.statuses()
        assert Counter(status.offset for status in statuses) == dict.fromkeys(range(packages), 1)
        assert {status.status for status in statuses} == {PackageStatus.IMPORTED}
        with closing(open_job_topic(engine.journal)) as topic:
            while not topic.follow():
                pass
            feed = topic.fold.feeds.find(pool_scenario.POOL)
            assert feed is not None
            assert feed.next_offset == packages
            assert not topic.fold.queues[feed.queue].chained(), "the lag of the pool is 0"
            added = [job for job in topic.fold.table.all() if topic.fold.topic(job) == pool_scenario.ADDED_TOPIC]
            assert len(added) == packages, "each import added its job once"
    with opened_ledger(f"files:{folder / 'shared'}") as ledger:
        assert not ledger.given_up()
        position = ledger.position()
        assert position is not None
        assert all(ledger.pool.is_done(offset) for offset in range(position.next_offset, packages))
    assert digest_of(FolderSource(folder / "shared")) == digest_of(page_source(*paths))


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize(("failpoint", "count"), COMBINATIONS)
def test_a_member_killed_at_any_step_loses_no_package_and_repeats_none(
    tmp_path: Path, failpoint: Failpoint, count: int
) -> None:
    pool_scenario.prepare(tmp_path, 6)
    assert run_child(pool_scenario.work, str(tmp_path), failpoint, count) == -signal.SIGKILL
    assert run_child(pool_scenario.work, str(tmp_path)) == 0
    check_all_is_done(tmp_path, 6)


def stopped(folder: Path, failpoint: Failpoint, count: int) -> tuple[ForkServerProcess, int]:
    """A member that stands still where it reaches a failpoint for the n-th time, and its process id."""
    member = fork(pool_scenario.stand_still, str(folder), failpoint, count)
    assert member.pid is not None
    state = Path(f"/proc/{member.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    return member, member.pid


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGCONT, 0)])
def test_pool_waits_for_a_member_that_is_frozen_with_the_target_open(
    tmp_path: Path, number: int, exit_code: int
) -> None:
    """Its lease passes on, but the lock does not: nothing could refuse its writes when it goes on."""
    packages = 60
    pool_scenario.prepare(tmp_path, packages)
    # it has joined, which needs the target, and imports nothing before the first one stands still
    other, other_pid = stopped(tmp_path, Failpoint.POOL_FED, 1)
    frozen, frozen_pid = stopped(tmp_path, Failpoint.SUBSCRIBER_BEFORE_COMMIT, 5)
    os.kill(other_pid, signal.SIGCONT)
    with Engine(tmp_path / "home") as engine, closing(open_job_topic(engine.journal)) as topic:
        imported = len(engine.statuses())

        def is_queued_again() -> bool:
            topic.follow(0.05)
            table = topic.fold.table
            return any(table.tries(job) > 0 for job in table.all() if table.is_queued(job))

        wait_until(is_queued_again)
        assert len(engine.statuses()) == imported < packages
    os.kill(frozen_pid, number)
    assert (end_of(frozen), end_of(other)) == (exit_code, 0)
    check_all_is_done(tmp_path, packages)


def test_j30_a_pool_of_three_loses_a_member_and_imports_300_packages_once_each(tmp_path: Path) -> None:
    packages = 300
    pool_scenario.prepare(tmp_path, packages)
    killed = fork(pool_scenario.work, str(tmp_path), Failpoint.SUBSCRIBER_BEFORE_COMMIT, 20)
    others = [fork(pool_scenario.work, str(tmp_path)) for _ in range(2)]
    assert end_of(killed) == -signal.SIGKILL
    assert [end_of(child) for child in others] == [0, 0]
    check_all_is_done(tmp_path, packages)
