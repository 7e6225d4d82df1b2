"""Which builds are open, and what that means for batches: the decisions of `subscriber/admission.py`."""

from __future__ import annotations

import pytest
from mailboat.content.port import OpenBuild
from mailboat.model.identifiers import AgentName, BuildId
from mailboat.model.messages import BulkPart
from mailboat.subscriber.admission import NO_BUILDS, BuildKey, OpenBuilds, plan_open_builds, plan_quiet_builds

AUTHOR, OTHER = AgentName("author"), AgentName("other")
ONE = BuildId("one")


def part(sequence: int, total: int = 4, build_id: BuildId = ONE) -> BulkPart:
    return BulkPart(build_id, sequence, total)


def open_of(publisher: AgentName, done: int, last_ms: int = 0, build_id: BuildId = ONE) -> OpenBuilds:
    return {BuildKey(publisher, build_id): OpenBuild(publisher, build_id, done, 4, last_ms)}


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_any_package_but_the_last_opens_a_build(sequence: int) -> None:
    assert plan_open_builds(NO_BUILDS, AUTHOR, part(sequence), 5) == open_of(AUTHOR, sequence + 1, 5)


def test_the_last_package_closes_its_build_and_no_other() -> None:
    both = {**open_of(AUTHOR, 1), **open_of(OTHER, 2)}
    assert plan_open_builds(both, AUTHOR, part(3), 5) == open_of(OTHER, 2)


def test_a_build_whose_last_package_comes_first_is_not_opened() -> None:
    assert plan_open_builds(NO_BUILDS, AUTHOR, part(3), 5) == NO_BUILDS
    assert plan_open_builds(NO_BUILDS, AUTHOR, part(0, 1), 5) == NO_BUILDS


def test_a_build_is_quiet_when_its_last_package_is_old_enough() -> None:
    builds = {**open_of(AUTHOR, 1, 1_000), **open_of(OTHER, 1, 1_001)}
    assert plan_quiet_builds(builds, 61_000, 60.0) == open_of(AUTHOR, 1, 1_000)


def test_without_a_time_no_build_is_ever_quiet() -> None:
    assert plan_quiet_builds(open_of(AUTHOR, 1), 10**15, None) == NO_BUILDS
