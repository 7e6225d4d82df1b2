"""What a PackageBuild with a timetable needs: a PackageBuild for each time, and the removal of old ones.

A run is named by its owner and its minute, so one time never becomes two runs, however often it is planned. Of missed
times only the last one counts. Source: CronJob's rules, which people know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from mailboat.cron import times_after, times_until
from mailboat.errors import UsageError
from mailboat.frozen import Frozen

from mailboat_operator.definition.encoder import encode
from mailboat_operator.kinds.package_build.manifests import owner_of_build
from mailboat_operator.kinds.package_build.spec import (
    BuildPhase,
    ConcurrencyPolicy,
    PackageBuild,
    PackageBuildStatus,
    Timetable,
)
from mailboat_operator.plan.actions import Action, Apply, Delete, Plan, RecordEvent, Severity
from mailboat_operator.plan.child_manifest import ChildKey, Manifest
from mailboat_operator.plan.findings import Finding, is_paused, plan_status, ready, stalled, suspended

_MINUTE: Final = 60
_SHORTEST_SECONDS: Final = 0.5
_LONGEST_SLEEP_SECONDS: Final = 3600.0
_ACTIVE_SECONDS: Final = 15.0


class Run(Frozen):
    """A build that a timetable made.

    Attributes:
        name: Of the PackageBuild.
        uid: Its own.
        scheduled_at: The time that it is of.
        phase: State of the request.
        is_finished: Whether it is over.
    """

    name: str
    uid: str
    scheduled_at: datetime
    phase: BuildPhase | None
    is_finished: bool


class BuildRuns(Frozen):
    """The runs of a build that has no application: it has a timetable, is finished or being deleted.

    Attributes:
        now: The time of the observation.
        runs: Builds of the timetable.
    """

    now: datetime
    runs: Sequence[Run] = ()


class Times(Frozen):
    """What the timetable says around now.

    Attributes:
        due: The last time that passed and became nothing yet; None for none.
        next: The next one to come.
    """

    due: datetime | None
    next: datetime


def run_of(owner: PackageBuild, build: PackageBuild) -> Run | None:
    """A build as a run of the owner's timetable; None for other names."""
    minutes = build.metadata.name.removeprefix(f"{owner.metadata.name}-")
    # Nine digits of minutes end in the year 3871; ten would be beyond what datetime holds.
    if not minutes.isdecimal() or len(minutes) > 9:
        return None
    scheduled_at = datetime.fromtimestamp(int(minutes) * _MINUTE, UTC)
    metadata, status = build.metadata, build.status
    return Run(metadata.name, metadata.uid, scheduled_at, status.phase, status.finished_at is not None)


def plan_timetable(build: PackageBuild, runs: Sequence[Run], now: datetime) -> Plan:
    """Decide what to do for a build with a timetable; `runs` are those that it owns."""
    if build.metadata.is_deleted or build.spec.schedule is None:
        return Plan((), None)
    if is_paused(build.metadata, suspend=build.spec.suspend):
        return _plan(build, _unscheduled(build), runs, suspended(suspend=build.spec.suspend), now)
    try:
        times = times_around(build, build.spec.schedule, runs, now)
    except UsageError as error:
        message = f"schedule {build.spec.schedule.cron} in {build.spec.schedule.time_zone} never comes: {error.message}"
        return _plan(build, _unscheduled(build), runs, stalled("ScheduleImpossible", message), now)
    actions, status, findings = _decided(build, build.spec.schedule, runs, times, now)
    plan = _plan(build, replace(status, next_schedule_at=times.next), runs, findings, now)
    pause = min(max((times.next - now).total_seconds(), _SHORTEST_SECONDS), _LONGEST_SLEEP_SECONDS)
    active = [run for run in runs if not run.is_finished]
    again = min(pause, _ACTIVE_SECONDS) if active or actions else pause
    return replace(plan, actions=(*actions, *_outdated(build.spec.schedule, runs)), again_seconds=again)


def _unscheduled(build: PackageBuild) -> PackageBuildStatus:
    """Without the next time, at which nothing will begin."""
    return replace(build.status, next_schedule_at=None)


def times_around(build: PackageBuild, schedule: Timetable, runs: Sequence[Run], now: datetime) -> Times:
    """The times that matter now.

    Raises:
        UsageError: the expression or the zone is not valid, or no time comes.
    """
    upcoming = next(times_after(schedule.cron, schedule.time_zone, now), None)
    last = next(times_until(schedule.cron, schedule.time_zone, now), None)
    if upcoming is None or last is None:
        raise UsageError("no such day exists")
    known = [build.metadata.created_at, build.status.last_schedule_at, build.status.last_missed_at]
    # Runs count, too: after a crash between a run and the status, its time must not begin another one.
    known += [run.scheduled_at for run in runs]
    done = max((due for due in known if due is not None), default=last)
    return Times(last if last > done else None, upcoming)


def _decided(
    build: PackageBuild, schedule: Timetable, runs: Sequence[Run], times: Times, now: datetime
) -> tuple[list[Action], PackageBuildStatus, Sequence[Finding]]:
    active, status = [run for run in runs if not run.is_finished], build.status
    waiting = ready(f"the next build begins at {times.next:%Y-%m-%d %H:%M} UTC", "Scheduled")
    if times.due is None:
        return [], status, waiting
    limit = schedule.starting_deadline_seconds
    if limit is not None and (now - times.due).total_seconds() > limit:
        text = f"the build of {times.due:%Y-%m-%d %H:%M} UTC could not begin within its starting deadline"
        missed = replace(status, last_missed_at=times.due)
        return [RecordEvent(Severity.WARNING, "ScheduleMissed", text)], missed, waiting
    if active and schedule.concurrency_policy is ConcurrencyPolicy.FORBID:
        text = f"the build of {times.due:%Y-%m-%d %H:%M} UTC waits for the end of {active[0].name}"
        return [], status, ready(text, "Waiting")
    replaced = active if schedule.concurrency_policy is ConcurrencyPolicy.REPLACE else []
    made = _run_manifest(build, times.due)
    actions: list[Action] = [_deletion(run) for run in replaced]
    actions += [
        Apply(made),
        RecordEvent(Severity.NORMAL, "RunBegan", f"created PackageBuild {made['metadata']['name']}"),
    ]
    return actions, replace(status, last_schedule_at=times.due), waiting


def _run_manifest(build: PackageBuild, time: datetime) -> Manifest:
    # Named by its minute: applied again after a crash, it is the same build.
    spec = replace(build.spec, schedule=None, suspend=False)
    return owner_of_build(build).child("PackageBuild", str(int(time.timestamp()) // _MINUTE), {"spec": encode(spec)})


def _deletion(run: Run) -> Delete:
    return Delete(ChildKey("PackageBuild", run.name), run.uid)


def _outdated(schedule: Timetable, runs: Sequence[Run]) -> Iterator[Action]:
    """Runs beyond the limits, the oldest first."""
    finished = sorted((run for run in runs if run.is_finished), key=lambda one: one.scheduled_at)
    complete = [run for run in finished if run.phase is BuildPhase.COMPLETED]
    failed = [run for run in finished if run.phase is not BuildPhase.COMPLETED]
    for kept, limit in ((complete, schedule.successful_history_limit), (failed, schedule.failed_history_limit)):
        for run in kept[: len(kept) - limit] if len(kept) > limit else ():
            yield _deletion(run)


def _plan(
    build: PackageBuild, status: PackageBuildStatus, runs: Sequence[Run], findings: Sequence[Finding], now: datetime
) -> Plan:
    status = replace(
        status,
        phase=BuildPhase.SUSPENDED if is_paused(build.metadata, suspend=build.spec.suspend) else BuildPhase.SCHEDULED,
        active=tuple(run.name for run in runs if not run.is_finished)[:100],
    )
    return plan_status(build.metadata, build.status, status, findings, now)
