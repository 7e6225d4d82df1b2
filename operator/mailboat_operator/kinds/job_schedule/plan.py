"""What a JobSchedule needs: its schedule in the journal, through its Publisher's agent.

Agents and workers fire schedules as long as these are in the journal, so a deleted or suspended object removes its
schedule: the finalizer is there before the schedule is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from mailboat.api.job_views import JobScheduleView
from mailboat.errors import AgentRefusedError, AgentUnreachableError
from mailboat.frozen import Frozen
from mailboat.model.jobs import MissedFirings, NewJob, Schedule

from mailboat_operator.kinds.agent_obstacles import agent_problem, awaited_error, reason_to_keep
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import (
    Action,
    Hold,
    Plan,
    RecordEvent,
    RemoveSchedule,
    SetSchedule,
    Severity,
    is_held,
)
from mailboat_operator.plan.child_manifest import digest_of
from mailboat_operator.plan.findings import (
    Finding,
    is_paused,
    pause_of,
    plan_status,
    ready,
    stalled,
    suspended,
    under_way,
)

FOLLOW_SECONDS: Final = 30.0
"""How often a schedule is observed for its next due time."""

_SUSPENDED: Final = "suspended"
"""In the status instead of a digest: nothing is applied, and a single due time that passes is skipped."""

_SOON_SECONDS: Final = 2.0
_MILLISECONDS: Final = 1000


class JobScheduleObservation(Frozen):
    """What was observed around a JobSchedule.

    Attributes:
        now: The time of the observation.
        publisher: Its Publisher; None if absent, or not decodable.
        schedules: All schedules of the log; None if the agent was not asked, or gave no answer.
        error: The agent's error instead of an answer.
        owner: The other JobSchedule, by namespace and name, that keeps the schedule of this name in the same log.
    """

    now: datetime
    publisher: Publisher | None = None
    schedules: Sequence[JobScheduleView] | None = None
    error: AgentUnreachableError | AgentRefusedError | None = None
    owner: tuple[str, str] | None = None


def schedule_of(schedule: JobSchedule) -> Schedule:
    """The schedule as the journal keeps it."""
    spec = schedule.spec
    return Schedule(
        name=schedule.metadata.name,
        job=NewJob(spec.topic, (spec.data or "").encode(), key=spec.key or ""),
        cron=spec.cron or "",
        zone=spec.time_zone,
        every_ms=0 if spec.every_seconds is None else round(spec.every_seconds * _MILLISECONDS),
        at_ms=0 if spec.at is None else round(spec.at.timestamp() * _MILLISECONDS),
        missed=MissedFirings[spec.missed.upper()],
    )


def plan_job_schedule(schedule: JobSchedule, seen: JobScheduleObservation) -> Plan:
    """Decide what to do for a JobSchedule, and what to report of it."""
    metadata, spec = schedule.metadata, schedule.spec
    if metadata.is_deleted:
        return _plan_deleted(schedule, seen) if is_held(metadata) else Plan((), None)
    if is_paused(metadata, suspend=False):
        return _plan(schedule, seen, (), suspended(suspend=False))
    # before the schedule is written: an object that is deleted in between would leave it behind
    if not is_held(metadata):
        return Plan((Hold(is_held=True),), None, again_seconds=0.0)
    problem = agent_problem(spec.publisher_ref.name, seen.publisher, seen.error)
    if seen.owner is not None:
        namespace, other = seen.owner
        text = f"schedule {other} of this journal belongs to the JobSchedule of namespace {namespace}, which is older"
        problem = stalled("ScheduleTaken", text)
    if problem is not None:
        return replace(_plan(schedule, seen, (), problem), again_seconds=pause_of(seen.error) or FOLLOW_SECONDS)
    view = _view(schedule, seen)
    if spec.suspend:
        actions = () if view is None else (RemoveSchedule(metadata.name),)
        plan = _plan(schedule, seen, actions, suspended(suspend=True, effect="no jobs are added"), _SUSPENDED)
        return replace(plan, again_seconds=FOLLOW_SECONDS)
    mark = _mark_of(schedule)
    changes = tuple(_changes(schedule, view, mark, seen.now))
    is_there = view is not None or changes
    text = "the schedule is in the journal" if is_there else "its time has passed, and it was removed from the journal"
    plan = _plan(schedule, seen, changes, ready(text), mark)
    return replace(plan, again_seconds=_SOON_SECONDS if changes else FOLLOW_SECONDS)


def _mark_of(schedule: JobSchedule) -> str:
    """What the status keeps of the schedule that was applied: a digest, and the single due time."""
    digest, at = digest_of([repr(schedule_of(schedule))]), schedule.spec.at
    return digest if at is None else f"{digest}-{round(at.timestamp())}"


def _changes(schedule: JobSchedule, view: JobScheduleView | None, mark: str, now: datetime) -> Sequence[Action]:
    wanted, before = schedule_of(schedule), schedule.status.applied or ""
    digest, _, at = mark.partition("-")
    applied_digest, _, applied_at = before.partition("-")
    is_applied = applied_digest == digest
    if is_applied and view is not None and _shown(wanted) == _seen(view):
        return ()
    # A single due time that has passed fired, perhaps before the schedule was removed, by an agent or by a suspension:
    # set again, it would fire twice. A change of the payload, or of what the digest is made of, makes no new due time.
    is_idle = view is None or view.next_at is None
    is_over = is_idle and schedule.spec.at is not None and schedule.spec.at <= now
    if is_over and (is_applied or applied_at == at or before == _SUSPENDED):
        return ()
    if not is_applied:
        return (SetSchedule(wanted),)
    message = f"schedule {wanted.name}: reverted a change by another client"
    return (SetSchedule(wanted), RecordEvent(Severity.WARNING, "DriftCorrected", message))


def _shown(schedule: Schedule) -> tuple[object, ...]:
    """What the agent shows of a schedule: without its payload and its single due time."""
    every_seconds = schedule.every_ms / _MILLISECONDS if schedule.every_ms else None
    zone = schedule.zone if schedule.cron else ""
    return schedule.job.topic, schedule.job.key, schedule.cron, zone, every_seconds, schedule.missed.name.lower()


def _seen(view: JobScheduleView) -> tuple[object, ...]:
    return view.topic, view.key, view.cron, view.zone if view.cron else "", view.every_seconds, view.missed


def _plan_deleted(schedule: JobSchedule, seen: JobScheduleObservation) -> Plan:
    """Remove the schedule, unless that is impossible; no deletion waits longer than the limit."""
    name, error = schedule.metadata.name, awaited_error(schedule, seen.publisher, seen.error, seen.now)
    if error is not None and seen.owner is None:
        findings = under_way("AgentUnreachable", error.message)
        return replace(_plan(schedule, seen, (), findings), again_seconds=_SOON_SECONDS)
    reason = reason_to_keep(schedule, seen.publisher, seen.error)
    reason = None if reason is None else f"{reason}; `mailboat jobs unschedule {name}` removes it"
    reason = "another JobSchedule keeps it" if seen.owner is not None else reason
    if reason is not None:
        text = f"schedule {name} stays in the journal: {reason}"
        return Plan((Hold(is_held=False), RecordEvent(Severity.WARNING, "ScheduleRetained", text)), None)
    # the record before the finalizer: after a crash in between the object is still there, and finds its schedule gone
    removal = () if _view(schedule, seen) is None else (RemoveSchedule(name),)
    return Plan((*removal, Hold(is_held=False)), None)


def _view(schedule: JobSchedule, seen: JobScheduleObservation) -> JobScheduleView | None:
    return next((view for view in seen.schedules or () if view.schedule == schedule.metadata.name), None)


def _plan(
    schedule: JobSchedule,
    seen: JobScheduleObservation,
    actions: Sequence[Action],
    findings: Sequence[Finding],
    applied: str | None = None,
) -> Plan:
    """The plan with its status; `applied` is the mark of what its actions leave in the journal, or `_SUSPENDED`."""
    before, view = schedule.status, _view(schedule, seen)
    status = replace(
        before, next_at=before.next_at if seen.schedules is None else None if view is None else view.next_at
    )
    if applied is not None:
        status = replace(status, applied=applied, next_at=None if applied == _SUSPENDED else status.next_at)
    return plan_status(schedule.metadata, before, status, findings, seen.now, actions)
