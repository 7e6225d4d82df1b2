"""When a PackageBuild with a timetable begins a run, and which runs it keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat_operator.kinds.package_build.spec import BuildPhase, PackageBuildStatus
from mailboat_operator.kinds.package_build.timetable import plan_timetable, run_of
from mailboat_operator.kinds.registry import decode
from mailboat_operator.plan.actions import Apply, Delete, Plan, RecordEvent
from mailboat_operator.plan.labels import PAUSED

UID = "6f1c0de0-0000-4000-8000-000000000001"
NIGHTLY = {"cron": "30 2 * * *", "timeZone": "Europe/Zurich"}
NIGHT = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
"""When it is 02:30 in Zurich."""


def build(status: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A build as the API server would give it, as far as `status` says."""
    manifest = {
        "apiVersion": "mailboat.dev/v1alpha1",
        "kind": "PackageBuild",
        "metadata": {
            "name": "first",
            "namespace": "shop",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": "2026-11-21T00:00:00Z",
        },
        "spec": {"publisherRef": {"name": "author"}, "roots": ["/"], **spec},
    }
    return replace(decode(manifest), status=replace(PackageBuildStatus(), **(status or {})))


def nightly(status: dict[str, Any] | None = None, **schedule: Any) -> Any:
    return build(status, schedule={**NIGHTLY, **schedule})


def run(time: datetime, phase: BuildPhase | None = None) -> Any:
    """A run of the timetable."""
    is_over = phase in {BuildPhase.COMPLETED, BuildPhase.FAILED}
    status = {"phase": phase, "finished_at": time if is_over else None}
    one = build(status)
    name = f"first-{int(time.timestamp()) // 60}"
    found = run_of(one, replace(one, metadata=replace(one.metadata, name=name)))
    assert found is not None
    return found


def runs_of(plan: Plan) -> list[str]:
    """Names of the runs that begin."""
    return [action.manifest["metadata"]["name"] for action in plan.actions if isinstance(action, Apply)]


def condition(plan: Plan, kind: str = "Ready") -> dict[str, Any]:
    assert plan.status is not None
    return next(condition for condition in plan.status["conditions"] if condition["type"] == kind)


def removed(plan: Plan) -> list[str]:
    return [action.key.name for action in plan.actions if isinstance(action, Delete)]


def test_a_time_becomes_one_run_that_is_called_by_its_minute() -> None:
    plan = plan_timetable(nightly(), [], NIGHT)
    assert runs_of(plan) == [f"first-{int(NIGHT.timestamp()) // 60}"]
    (manifest,) = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    assert "schedule" not in manifest["spec"]
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == UID
    assert plan.status is not None
    assert plan.status["lastScheduleTime"] == "2026-11-21T01:30:00Z"
    assert plan.status["nextScheduleTime"] == "2026-11-22T01:30:00Z"


def test_nothing_begins_before_its_time_nor_for_a_time_before_the_build_was_made() -> None:
    before = plan_timetable(nightly(), [], NIGHT - timedelta(seconds=10))
    assert runs_of(plan_timetable(nightly(), [], NIGHT - timedelta(microseconds=1))) == []
    assert (runs_of(before), before.again_seconds) == ([], 10.0)


@pytest.mark.parametrize("status", [{}, {"last_schedule_at": NIGHT}])
def test_an_operator_that_starts_again_runs_nothing_twice(status: dict[str, Any]) -> None:
    later = NIGHT + timedelta(minutes=5)
    assert runs_of(plan_timetable(nightly(status), [run(NIGHT)], later)) == []
    assert runs_of(plan_timetable(nightly({"last_schedule_at": NIGHT}), [], later)) == []


def test_of_times_that_passed_unseen_the_last_one_becomes_a_run() -> None:
    plan = plan_timetable(nightly({"last_schedule_at": NIGHT}), [], NIGHT + timedelta(days=3, hours=2))
    assert runs_of(plan) == [f"first-{int((NIGHT + timedelta(days=3)).timestamp()) // 60}"]


def test_a_time_beyond_its_starting_deadline_is_missed_and_told_once() -> None:
    one, later = nightly(startingDeadline="1h"), NIGHT + timedelta(hours=2)
    plan = plan_timetable(one, [], later)
    assert (runs_of(plan), [action.reason for action in plan.actions if isinstance(action, RecordEvent)]) == (
        [],
        ["ScheduleMissed"],
    )
    assert plan_timetable(replace(one, status=replace(one.status, last_missed_at=NIGHT)), [], later).actions == ()


def test_a_time_waits_for_an_earlier_run_unless_told_otherwise() -> None:
    active = run(NIGHT - timedelta(days=1), BuildPhase.RUNNING)
    waiting = plan_timetable(nightly(), [active], NIGHT)
    assert (runs_of(waiting), condition(waiting)["reason"], condition(waiting)["status"]) == ([], "Waiting", "True")
    beside = plan_timetable(nightly(concurrencyPolicy="Allow"), [active], NIGHT)
    assert (len(runs_of(beside)), removed(beside)) == (1, [])
    instead = plan_timetable(nightly(concurrencyPolicy="Replace"), [active], NIGHT)
    assert (len(runs_of(instead)), removed(instead)) == (1, [active.name])


def test_a_suspended_timetable_begins_nothing() -> None:
    one = nightly({"next_schedule_at": NIGHT})
    paused = replace(one, metadata=replace(one.metadata, annotations={PAUSED: "true"}))
    for left_alone in (replace(one, spec=replace(one.spec, suspend=True)), paused):
        plan = plan_timetable(left_alone, [], NIGHT)
        assert (plan.actions, condition(plan)["status"]) == ((), "Unknown")
        assert plan.status is not None
        assert (plan.status["phase"], plan.status.get("nextScheduleTime")) == ("Suspended", None)


def test_finished_runs_beyond_the_limits_go_the_oldest_first() -> None:
    days = [NIGHT - timedelta(days=number) for number in range(1, 7)]
    runs = [run(day, BuildPhase.COMPLETED) for day in days[:4]] + [run(day, BuildPhase.FAILED) for day in days[4:]]
    plan = plan_timetable(
        nightly({"last_schedule_at": NIGHT}, successfulHistoryLimit=3, failedHistoryLimit=0), runs, NIGHT
    )
    assert removed(plan) == [runs[3].name, runs[5].name, runs[4].name]


@pytest.mark.parametrize(
    "schedule", [{"cron": "0 0 30 2 *"}, {"timeZone": "Europe/Nowhere"}, {"cron": "30-20 1 * * *"}]
)
def test_a_timetable_that_never_comes_stalls(schedule: dict[str, str]) -> None:
    plan = plan_timetable(nightly({"next_schedule_at": NIGHT}, **schedule), [], NIGHT)
    assert plan.status is not None
    assert "nextScheduleTime" not in plan.status
    assert (condition(plan)["reason"], condition(plan, "Stalled")["status"]) == ("ScheduleImpossible", "True")


@pytest.mark.parametrize("zone", ["Europe", "Nowhere/Land"])
def test_a_zone_that_does_not_exist_is_named_without_a_file_of_the_operator(zone: str) -> None:
    plan = plan_timetable(nightly(timeZone=zone), [], NIGHT)
    assert condition(plan)["reason"] == "ScheduleImpossible"
    assert "/usr" not in condition(plan)["message"]
    assert "site-packages" not in condition(plan)["message"]


@given(minutes=st.integers(min_value=0, max_value=3 * 24 * 60))
def test_looking_at_any_moment_and_again_makes_each_run_once(minutes: int) -> None:
    one, now = nightly({"last_schedule_at": NIGHT}), NIGHT + timedelta(minutes=minutes)
    begun = runs_of(plan_timetable(one, [], now))
    known = [run(datetime.fromtimestamp(int(name.rsplit("-", 1)[1]) * 60, UTC)) for name in begun]
    assert len(begun) == (1 if minutes >= 24 * 60 else 0)
    assert runs_of(plan_timetable(one, known, now)) == []


def test_a_night_with_no_half_past_two_still_has_its_run() -> None:
    spring = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
    one = replace(nightly(), metadata=replace(nightly().metadata, created_at=spring - timedelta(hours=20)))
    assert len(runs_of(plan_timetable(one, [], spring))) == 1


def autumn_build(last: datetime, cron: str) -> Any:
    one = nightly({"last_schedule_at": last}, cron=cron)
    return replace(one, metadata=replace(one.metadata, created_at=datetime(2026, 10, 1, tzinfo=UTC)))


def test_each_hour_of_a_night_that_repeats_one_has_its_run() -> None:
    begun = set()
    for minutes in range(6 * 60):
        now = datetime(2026, 10, 24, 23, 0, 30, tzinfo=UTC) + timedelta(minutes=minutes)
        before = now.replace(minute=0, second=0) - timedelta(hours=1)
        plan = plan_timetable(autumn_build(before, "0 * * * *"), [], now)
        begun.update(runs_of(plan))
        assert plan.again_seconds is not None
        assert plan.again_seconds > 1.0, "the next time has passed"
    assert len(begun) == 6


def test_in_the_second_pass_of_a_repeated_hour_the_next_nightly_run_is_of_the_next_night() -> None:
    now = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    plan = plan_timetable(autumn_build(datetime(2026, 10, 24, 0, 30, tzinfo=UTC), "30 2 * * *"), [], now)
    assert plan.status is not None
    assert (len(runs_of(plan)), plan.status["nextScheduleTime"]) == (1, "2026-10-26T01:30:00Z")


def test_a_build_of_another_name_is_no_run() -> None:
    one = build()
    for name in ("first-by-hand", "other-29395710", "first-", "first-99999999999"):
        assert run_of(one, replace(one, metadata=replace(one.metadata, name=name))) is None
