"""The keys of packages in a shared pool: what touches the same content is imported in the order of the log."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.jobs import Feed, JobId, NewJob
from mailboat.model.paths import ROOT, NodePath, is_within
from mailboat.model.positions import LogIdentity
from mailboat.pools.package_order import (
    MAX_PATH_BYTES,
    MAX_PATHS,
    MAX_UNFINISHED,
    OpenPackages,
    Package,
    QueuedPackage,
    decode_queued,
    encode_queued,
    plan_feed,
    touched,
)
from mailboat.testing.examples import examples

LOG = LogIdentity("cluster", "topic")
FEED = Feed(AgentName("web"), 1, Offset(0), LOG, "marker")


def package(offset: int, *paths: str) -> Package:
    return Package(Offset(offset), touched([NodePath(path) for path in paths]))


def planned(*packages: Package, unfinished: OpenPackages | None = None) -> list[str]:
    return [job.key for job in plan_feed(FEED, unfinished or OpenPackages(), packages)]


def test_packages_without_common_content_get_keys_of_their_own() -> None:
    assert planned(package(1, "/a"), package(2, "/b"), package(3, "/ab", "/c/d")) == ["1", "2", "3"]


def test_a_package_above_or_below_an_unfinished_one_gets_its_key() -> None:
    assert planned(package(1, "/a/b"), package(2, "/a/b/c"), package(3, "/a"), package(4, "/a/x")) == ["1"] * 4


def test_a_package_that_touches_two_keys_waits_with_all_behind_it() -> None:
    assert planned(package(1, "/a"), package(2, "/b"), package(3, "/a", "/b"), package(4, "/c")) == ["1", "2"]


def test_a_delete_of_an_ancestor_follows_when_one_key_is_left() -> None:
    unfinished = OpenPackages()
    unfinished.add(JobId(1), package(1, "/a/x"), "1")
    unfinished.add(JobId(2), package(2, "/a/y"), "2")
    assert planned(package(3, "/a"), unfinished=unfinished) == []
    unfinished.remove(JobId(1))
    assert planned(package(3, "/a"), package(4, "/b"), unfinished=unfinished) == ["2", "4"]


def test_a_package_without_paths_is_ordered_against_all() -> None:
    assert planned(package(1, "/a"), package(2), package(3, "/b")) == ["1", "1", "1"]
    assert planned(package(1, "/a"), package(2, "/b"), package(3)) == ["1", "2"]


def test_many_paths_become_their_common_ancestor() -> None:
    paths = [NodePath(f"/site/pages/p{number}") for number in range(MAX_PATHS + 1)]
    assert touched(paths) == ("/site/pages",)
    assert touched([*paths, NodePath("/other")]) == (ROOT,)
    assert touched([NodePath(f"/{'x' * 200}/{'y' * 200}-{number}") for number in range(MAX_PATHS)]) == (
        "/" + "x" * 200,
    )
    assert touched([NodePath("/a"), NodePath("/a/b"), NodePath("/ab")]) == ("/a", "/ab")
    assert sum(map(len, touched(paths[:MAX_PATHS]))) <= MAX_PATH_BYTES


def test_a_pool_takes_no_more_packages_than_its_limit() -> None:
    unfinished = OpenPackages()
    for number in range(MAX_UNFINISHED - 2):
        unfinished.add(JobId(number), package(number, f"/p{number}"), str(number))
    jobs = plan_feed(FEED, unfinished, [package(5_000 + number, f"/q{number}") for number in range(5)])
    assert len(jobs) == 2
    assert len(unfinished) == MAX_UNFINISHED - 2, "a plan changes nothing"


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"log": "l", "offset": -1, "paths": ["/a"]}', b'{"log": 1, "offset": 1, "paths": ["/a"]}',
     b'{"log": "l", "target": 1, "offset": 1, "paths": ["/a"]}',
     b'{"log": "l", "offset": 1, "paths": []}', b'{"log": "l", "offset": 1, "paths": ["a/../b"]}', b"[" * 100_000],
)  # fmt: skip
def test_hostile_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(MessageCorruptError):
        decode_queued(payload)


def test_a_payload_names_log_target_offset_and_paths() -> None:
    wanted = package(7, "/ä/b", "/c")
    assert decode_queued(encode_queued(FEED, wanted)) == QueuedPackage(str(LOG), "marker", wanted)


def test_a_payload_of_a_version_that_did_not_name_the_target_is_for_any() -> None:
    assert decode_queued(b'{"log": "l", "offset": 1, "paths": ["/a"]}').target == ""


def overlap(first: Package, second: Package) -> bool:
    return any(is_within(a, b) or is_within(b, a) for a in first.paths for b in second.paths)


names = st.sampled_from("abc")
node_paths = st.lists(names, max_size=3).map(lambda parts: NodePath("/" + "/".join(parts)))


@given(
    st.lists(st.lists(node_paths, max_size=3), max_size=25),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(200))
def test_overlapping_packages_never_run_together_or_out_of_order(
    contents: list[list[NodePath]], chance: random.Random
) -> None:
    """A simulated queue that is keyed runs what it may, in any order that it may, while a pool feeds it."""
    log = [Package(Offset(number), touched(paths)) for number, paths in enumerate(contents)]
    unfinished = OpenPackages()
    queue: list[tuple[JobId, Package, NewJob]] = []
    running: list[tuple[JobId, Package, NewJob]] = []
    done: list[Package] = []
    fed = 0
    while len(done) < len(log):
        for job in plan_feed(FEED, unfinished, log[fed : fed + chance.randint(1, 5)]):
            entry = JobId(fed), log[fed], job
            unfinished.add(JobId(fed), log[fed], job.key)
            queue.append(entry)
            fed += 1
        ready = [
            one for at, one in enumerate(queue) if all(one[2].key != other[2].key for other in (*queue[:at], *running))
        ]
        assert ready or running, "something can always run"
        if ready and (not running or chance.random() < 0.6):
            started = chance.choice(ready)
            assert not any(overlap(started[1], other[1]) for other in running)
            queue.remove(started)
            running.append(started)
        else:
            ended = chance.choice(running)
            running.remove(ended)
            unfinished.remove(ended[0])
            assert all(not overlap(ended[1], other) or other.offset < ended[1].offset for other in done)
            done.append(ended[1])
    assert len(unfinished) == 0
    assert unfinished.keys_of([ROOT]) == set()
