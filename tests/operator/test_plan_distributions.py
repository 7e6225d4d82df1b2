"""What is decided about a Distribution: whom it waits for, when it is over, when it is looked at again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.api.records import CauseView, DistributionView, FailureView, NotImportedView
from mailboat.testing.examples import examples
from mailboat_operator.kinds.distribution.plan import (
    PoolSize,
    obstacle_of,
    plan_progress,
    plan_refused,
    plan_waiting,
)
from mailboat_operator.kinds.finished import plan_finished
from mailboat_operator.kinds.registry import decode
from mailboat_operator.plan.actions import Delete, RecordEvent
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.workload.fleet import ordinal_of

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
EDGE = PoolSize("edge", 3)


def stored(kind: str, name: str, spec: dict[str, Any], status: Any = None, **metadata: Any) -> Any:
    """An object as the API server would give it, read."""
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1, **metadata}
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec}
    return decode(manifest if status is None else {**manifest, "status": status})


def asked(status: Any = None, ttl: int | None = None, deadline: int | None = None, **metadata: Any) -> Any:
    spec: dict[str, Any] = {"publisherRef": {"name": "author"}, "action": "Add", "paths": [{"path": "/en"}]}
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    if deadline is not None:
        spec["activeDeadlineSeconds"] = deadline
    return stored("Distribution", "release", spec, status, creationTimestamp="2026-11-21T11:00:00Z", **metadata)


def publisher(**spec: Any) -> Any:
    return stored("Publisher", "author", {"journalRef": {"name": "main"}, **spec})


def condition(plan: Any, kind: str = "Distributed") -> tuple[str, str]:
    found = next(condition for condition in plan.status["conditions"] if condition["type"] == kind)
    return found["status"], found["reason"]


def delivered(*, is_new: bool = False, **seen: Any) -> DistributionView:
    """The package `p-1` at offset 7, with a map from subscriber to cause or reason where the API has a list."""
    failed = tuple(FailureView(name, CauseView(*cause)) for name, cause in seen.pop("failed", {}).items())
    for kind in ("skipped", "unknown"):
        seen[kind] = tuple(NotImportedView(name, reason) for name, reason in seen.get(kind, {}).items())
    at = None if is_new else NOW
    return DistributionView("author", "p-1", 7, "ADD", published_at=at, failed=failed, **seen)


def test_members_that_no_one_has_heard_of_yet_are_waited_for() -> None:
    plan = plan_progress(asked(), delivered(), [EDGE], NOW)
    assert plan.status is not None
    assert (plan.status["state"], plan.status["done"], plan.status["offset"]) == ("Published", "0/3", 7)
    assert plan.status["pools"] == [
        {"name": "edge", "done": 0, "members": 3, "waiting": ["edge-0", "edge-1", "edge-2"]}
    ]
    assert condition(plan) == ("False", "Published")
    assert plan.again_seconds == 0.5


def test_a_distribution_with_a_deadline_fails_when_it_is_over() -> None:
    """It was made an hour before `NOW`, and is looked at again when the deadline is over."""
    delivery = delivered(imported=("edge-0",))
    before = plan_progress(asked(deadline=3601), delivery, [EDGE], NOW - timedelta(seconds=0.7))
    assert (condition(before), before.again_seconds) == (("False", "Published"), 0.5)
    late = plan_progress(asked(deadline=3600), delivery, [EDGE], NOW)
    assert condition(late) == ("False", "DeadlineExceeded")
    assert late.status is not None
    assert (late.status["state"], late.status["done"]) == ("Failed", "1/3")
    assert "waiting for edge-1, edge-2" in late.status["conditions"][0]["message"]
    everybody = delivered(imported=("edge-0", "edge-1", "edge-2"))
    assert condition(plan_progress(asked(deadline=3600), everybody, [EDGE], NOW)) == ("True", "Distributed")


def test_a_deadline_holds_while_the_publisher_can_not_be_asked() -> None:
    obstacle = ("AgentUnreachable", "no answer")
    soon = plan_waiting(asked(deadline=3610), obstacle, NOW, 60.0)
    assert (condition(soon), soon.again_seconds) == (("False", "AgentUnreachable"), 10.0)
    assert condition(plan_waiting(asked(deadline=60), obstacle, NOW, None)) == ("False", "DeadlineExceeded")
    paused = asked(deadline=60, annotations={"mailboat.dev/paused": "true"})
    waiting = plan_waiting(paused, obstacle_of(paused, None) or ("", ""), NOW, None)
    assert condition(waiting) == ("False", "Suspended")
    assert waiting.again_seconds is not None
    assert waiting.again_seconds > 0.0


def test_it_is_distributed_once_everyone_has_it() -> None:
    delivery = delivered(imported=("edge-0", "edge-1", "edge-2", "laptop"))
    plan = plan_progress(asked(), delivery, [EDGE], NOW)
    assert plan.status is not None
    assert (plan.status["state"], plan.status["done"]) == ("Distributed", "4/4")
    assert (plan.status["publishedAt"], plan.status["finishedAt"]) == ("2026-11-21T12:00:00Z",) * 2
    assert condition(plan) == ("True", "Distributed")
    assert condition(plan, "Ready") == ("True", "Distributed")
    assert [action.reason for action in plan.actions if isinstance(action, RecordEvent)] == ["Distributed"]
    assert plan.again_seconds == 3600.0


def test_a_member_that_the_pool_has_no_more_is_not_waited_for() -> None:
    delivery = delivered(imported=("edge-0", "edge-1"), waiting=("edge-2", "edge-11"))
    plan = plan_progress(asked(), delivery, [PoolSize("edge", 2)], NOW)
    assert plan.status is not None
    assert (plan.status["state"], plan.status["done"]) == ("Distributed", "2/2")


def test_a_shared_pool_that_is_called_like_a_member_of_another_pool_is_waited_for() -> None:
    delivery = delivered(imported=("edge-0", "edge-1"), waiting=("edge-5",))
    plan = plan_progress(asked(), delivery, [PoolSize("edge", 2), PoolSize("edge-5", 3, is_shared=True)], NOW)
    assert plan.status is not None
    assert (plan.status["state"], plan.status["done"]) == ("Published", "2/3")
    assert plan.status["pools"][1]["waiting"] == ["edge-5"]


def test_who_gave_it_up_is_told_at_once_and_fails_it_when_no_one_is_waited_for() -> None:
    failed = {"edge-1": ("StorageFull", "no space is left")}
    early = plan_progress(asked(), delivered(imported=("edge-0",), waiting=("edge-2",), failed=failed), [EDGE], NOW)
    assert early.status is not None
    assert (early.status["state"], condition(early)) == ("Published", ("False", "GivenUp"))
    again = asked(early.status)
    assert not plan_progress(
        again, delivered(imported=("edge-0",), waiting=("edge-2",), failed=failed), [EDGE], NOW
    ).actions
    late = plan_progress(again, delivered(is_new=True, imported=("edge-0", "edge-2"), failed=failed), [EDGE], NOW)
    assert late.status is not None
    assert (late.status["state"], late.status["done"]) == ("Failed", "2/3")
    assert condition(late, "Stalled") == ("True", "GivenUp")
    assert "edge-1: StorageFull: no space is left" in late.status["conditions"][0]["message"]
    assert late.status["pools"][0]["failed"] == ["edge-1"]


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        ({"removed": ("edge-2",)}, "dropped: edge-2"),
        ({"skipped": {"edge-2": "staged"}}, "skipped (staged): edge-2"),
        ({"skipped": {"edge-2": "not-followed"}}, "skipped (not-followed): edge-2"),
        ({"unknown": {"edge-2": "no-reports"}}, "unknown (no-reports): edge-2"),
    ],
)
def test_a_package_that_a_member_did_not_import_is_not_distributed(passed: dict[str, Any], text: str) -> None:
    delivery = delivered(imported=("edge-0", "edge-1"), **passed)
    plan = plan_progress(asked(), delivery, [EDGE], NOW)
    assert plan.status is not None
    assert (plan.status["state"], plan.status["done"]) == ("Failed", "2/3")
    assert condition(plan) == ("False", "NotImported")
    assert condition(plan, "Stalled") == ("True", "NotImported")
    assert text in plan.status["conditions"][0]["message"]
    assert plan.status["pools"][0]["missed"] == ["edge-2"]


def test_a_stranger_that_does_not_follow_the_publisher_is_not_counted() -> None:
    members = ("edge-0", "edge-1", "edge-2")
    delivery = delivered(imported=members, skipped={"laptop": "not-followed"})
    plan = plan_progress(asked(), delivery, [EDGE], NOW)
    assert plan.status is not None
    assert (plan.status["done"], condition(plan)) == ("3/3", ("True", "Distributed"))


def test_a_look_without_news_writes_nothing() -> None:
    delivery = delivered(imported=("edge-0",), waiting=("edge-1", "edge-2"))
    first = plan_progress(asked(), delivery, [EDGE], NOW)
    later = plan_progress(asked(first.status), delivery, [EDGE], NOW + timedelta(minutes=1))
    assert (later.status, later.actions) == (None, ())


@pytest.mark.parametrize(("seconds", "pause"), [(0, 0.5), (1, 0.5), (10, 2.0), (60, 12.0), (3600, 30.0)])
def test_it_is_looked_at_less_and_less_often(seconds: int, pause: float) -> None:
    delivery = delivered(waiting=("edge-0",))
    first = plan_progress(asked(), delivery, [EDGE], NOW)
    plan = plan_progress(asked(first.status), delivery, [EDGE], NOW + timedelta(seconds=seconds))
    assert plan.again_seconds == pause


@pytest.mark.parametrize(
    ("who", "reason"),
    [(None, "PublisherMissing"), (publisher(suspend=True), "PublisherSuspended"), (publisher(), None)],
)
def test_it_waits_for_its_publisher(who: Any, reason: str | None) -> None:
    obstacle = obstacle_of(asked(), who)
    assert (None if obstacle is None else obstacle[0]) == reason


def test_a_paused_one_waits() -> None:
    paused = asked(annotations={"mailboat.dev/paused": "true"})
    assert obstacle_of(paused, publisher()) is not None


def test_what_it_waits_for_is_said_and_the_wish_of_who_refused_is_kept() -> None:
    plan = plan_waiting(asked(), ("Throttled", "edge-1 lags"), NOW, 45.0)
    assert plan.status is not None
    assert (plan.status["state"], condition(plan)) == ("Pending", ("False", "Throttled"))
    assert condition(plan, "Reconciling") == ("True", "Throttled")
    assert plan.again_seconds == 45.0


def test_a_refused_one_failed() -> None:
    plan = plan_refused(asked(), ("SourceMissing", "there is no /en"), NOW)
    assert plan.status is not None
    assert (plan.status["state"], condition(plan, "Stalled")) == ("Failed", ("True", "SourceMissing"))
    assert plan.status["finishedAt"] == "2026-11-21T12:00:00Z"


def test_a_finished_one_goes_when_its_time_is_over_counted_from_its_end() -> None:
    finished = {"state": "Distributed", "finishedAt": "2026-11-21T11:59:00Z"}
    assert plan_finished(asked(finished, ttl=90), NOW).again_seconds == 30.0
    over = asked(finished, ttl=60)
    expected = (Delete(ChildKey("Distribution", "release"), over.metadata.uid),)
    assert plan_finished(over, NOW).actions == expected
    assert plan_finished(asked(finished, ttl=0), NOW).actions != ()
    assert plan_finished(asked(finished), NOW) == plan_finished(asked(finished), NOW + timedelta(days=9))


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True), st.integers(0, 99_999))
@settings(deadline=None, max_examples=examples(100))
def test_the_name_of_a_member_tells_its_ordinal(pool: str, number: int) -> None:
    assert ordinal_of(f"{pool}-{number}", pool) == number
    assert ordinal_of(f"{pool}-x-{number}", pool) is None
    assert ordinal_of(f"{pool}-0{number}", pool) is None


@given(st.lists(st.sampled_from(range(8)), unique=True), st.integers(0, 8), st.data())
@settings(deadline=None, max_examples=examples(200))
def test_it_finishes_exactly_when_each_member_of_the_pool_has_spoken(
    known: list[int], replicas: int, data: Any
) -> None:
    fates = {number: data.draw(st.sampled_from(["imported", "waiting", "removed", "failed"])) for number in known}
    by = {
        fate: tuple(f"edge-{n}" for n, one in fates.items() if one == fate)
        for fate in ("imported", "waiting", "removed")
    }
    failed = {f"edge-{n}": ("X", "y") for n, one in fates.items() if one == "failed"}
    plan = plan_progress(asked(), delivered(failed=failed, **by), [PoolSize("edge", replicas)], NOW)
    assert plan.status is not None
    has_spoken = all(fates.get(number, "waiting") != "waiting" for number in range(replicas))
    assert ("finishedAt" in plan.status) == has_spoken
    done, total = map(int, plan.status["done"].split("/"))
    assert done <= total
