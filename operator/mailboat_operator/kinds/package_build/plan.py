"""What a PackageBuild without a timetable needs: one application at a time, until one of them has done it.

Attempts are counted here, for both Spark operators alike: each is an application of its own, with the same build id, so
it goes on where the one before stopped. An attempt whose pods never run is ended by a deadline of ours: kubeflow's
operator has none, and both operators expect executors of a driver that only publishes. An application is
made once and never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mailboat.api.records import BuildView

from mailboat_operator.definition.conditions import ConditionStatus
from mailboat_operator.kinds.finished import observed, pause_after_finishing, plan_finished
from mailboat_operator.kinds.package_build.manifests import SparkRun, application_name, build_id_of
from mailboat_operator.kinds.package_build.prerequisites import (
    BuildObservation,
    application_key,
    run_of_attempt,
)
from mailboat_operator.kinds.package_build.spark_state import Application, ApplicationState, application_of
from mailboat_operator.kinds.package_build.spec import BuildPhase, PackageBuild, PackageBuildStatus
from mailboat_operator.kinds.package_build.timetable import BuildRuns, plan_timetable
from mailboat_operator.plan.actions import Action, Apply, Plan, RecordEvent, Severity
from mailboat_operator.plan.children import controller_uid, deletion, plan_children
from mailboat_operator.plan.findings import (
    Finding,
    is_paused,
    plan_status,
    ready,
    stalled,
    suspended,
    under_way,
    whole_seconds,
)

COMPLETE: Final = "Complete"
# Progress comes from the publisher's agent, which the watch does not see.
_WATCH_SECONDS: Final = 3.0
_BLOCKED_SECONDS: Final = 15.0
_FIRST_PAUSE_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 300.0


def plan_package_build(build: PackageBuild, seen: BuildObservation | BuildRuns) -> Plan:
    """Decide what to do for a build, with a timetable or without, and what to report of it."""
    if isinstance(seen, BuildObservation):
        return plan_build(build, seen)
    if build.metadata.is_deleted:
        return Plan((), None)
    if build.spec.schedule is None:
        return plan_finished(build, seen.now)
    return plan_timetable(build, seen.runs, seen.now)


def plan_build(build: PackageBuild, seen: BuildObservation) -> Plan:
    """Decide the actions for a build, and its status. Its children are deleted with it."""
    if build.metadata.is_deleted:
        return Plan((), None)
    if build.status.finished_at is not None:
        return plan_finished(build, seen.context.now)
    if build.spec.suspend:
        return _suspended(build, seen)
    # also of a build whose Publisher or Journal is gone: its application may run on
    if _is_over_time(build, seen.context.now) and not is_paused(build.metadata, suspend=False):
        message = f"it was not complete within {build.spec.active_deadline_seconds} s of its first attempt"
        return _failed(build, seen, build.status, ("DeadlineExceeded", message), _removed(build, seen))
    found = run_of_attempt(build, seen)
    return _decided(found, seen) if isinstance(found, SparkRun) else _blocked(build, seen, found)


def _decided(run: SparkRun, seen: BuildObservation) -> Plan:
    build = run.build
    if build.status.retry_at is not None:
        return _retried(run, seen, build.status.retry_at)
    attempt = build.status.attempt or 1
    found = seen.context.children.get(application_key(build, attempt))
    # a suspended build goes on before its application has gone, whose end says nothing of the attempt
    if found is not None and "deletionTimestamp" in found["metadata"]:
        text = f"attempt {attempt}: waiting for the deletion of SparkApplication {application_name(build, attempt)}"
        return _going_on(run, seen, replace(build.status, phase=BuildPhase.STARTING), under_way("Starting", text))
    # the status names an attempt only after its application was requested: a crash in between starts it again, by name
    if found is None or build.status.attempt is None:
        return _started(run, seen, attempt)
    return _followed(run, seen, application_of(build.spec.engine, found))


def _blocked(build: PackageBuild, seen: BuildObservation, findings: Sequence[Finding]) -> Plan:
    status = replace(build.status, phase=build.status.phase or BuildPhase.PENDING)
    return replace(_plan(build, status, findings, seen), again_seconds=_BLOCKED_SECONDS)


def _suspended(build: PackageBuild, seen: BuildObservation) -> Plan:
    # without `started_at`: the time that it is suspended counts for no deadline
    status = replace(build.status, phase=BuildPhase.SUSPENDED, application=None, started_at=None, retry_at=None)
    findings = suspended(suspend=True, effect="its SparkApplication is removed; what is built stays in the bucket")
    return replace(_plan(build, status, findings, seen), actions=tuple(_removed(build, seen)))


def _started(run: SparkRun, seen: BuildObservation, attempt: int) -> Plan:
    """Ask for the application of an attempt, unless it is there already, from before a crash."""
    build, children = run.build, seen.context.children
    status = replace(
        build.status,
        phase=BuildPhase.STARTING,
        build_id=build_id_of(build),
        attempt=attempt,
        retry_at=None,
        application=application_name(build, attempt),
        started_at=build.status.started_at or whole_seconds(seen.context.now),
    )
    plan = _plan(build, status, _waiting(status, f"SparkApplication {status.application} (new)"), seen)
    actions = [
        *plan_children([run.config], children),
        *(_removed(build, seen) if build.status.attempt not in {None, attempt} else ()),
        *(() if application_key(build, attempt) in children else (Apply(replace(run, number=attempt).application),)),
    ]
    return replace(plan, actions=tuple(actions), again_seconds=_WATCH_SECONDS)


def _retried(run: SparkRun, seen: BuildObservation, retry_at: datetime) -> Plan:
    rest = (retry_at - seen.context.now).total_seconds()
    if rest <= 0:
        return _started(run, seen, (run.build.status.attempt or 0) + 1)
    return Plan((), observed(run.build), rest)


def _followed(run: SparkRun, seen: BuildObservation, application: Application) -> Plan:
    """An attempt is under way, or over."""
    build, state = run.build, application.state
    status = _with_progress(build.status, seen.progress)
    if state is ApplicationState.SUCCEEDED:
        return _completed(build, seen, status)
    if state is ApplicationState.FAILED:
        return _attempt_failed(build, seen, status, ("ApplicationFailed", _told(build, application)))
    if _runs(status, state):
        findings = under_way("Running", f"attempt {status.attempt}: {_packages(status)}")
        return _going_on(run, seen, replace(status, phase=BuildPhase.RUNNING), findings)
    waited = (seen.context.now - application.created_at).total_seconds()
    if waited >= build.spec.start_deadline_seconds:
        return _attempt_failed(build, seen, status, ("StartDeadlineExceeded", _not_started(build, application)))
    findings = _waiting(status, _told(build, application))
    return _going_on(run, seen, replace(status, phase=BuildPhase.STARTING), findings)


def _runs(status: PackageBuildStatus, state: ApplicationState) -> bool:
    """Whether executors do, or did, or a driver publishes: what has a package in the journal is built as a whole.

    A driver of such a build that asks for executors builds again, since something else was published of the
    source meanwhile: it has to get them in time as any other.
    """
    is_built = bool(status.packages_done)
    if state is ApplicationState.WAITING and is_built:
        return False
    is_publishing = state is ApplicationState.DRIVING and is_built
    return is_publishing or state is ApplicationState.RUNNING or status.phase is BuildPhase.RUNNING


def _going_on(run: SparkRun, seen: BuildObservation, status: PackageBuildStatus, findings: Sequence[Finding]) -> Plan:
    actions = tuple(plan_children([run.config], seen.context.children))
    plan = _plan(run.build, status, findings, seen)
    return replace(plan, actions=actions, again_seconds=_WATCH_SECONDS)


def _waiting(status: PackageBuildStatus, application: str) -> Sequence[Finding]:
    return under_way("Starting", f"attempt {status.attempt}: waiting for the pods of {application}")


def _completed(build: PackageBuild, seen: BuildObservation, status: PackageBuildStatus) -> Plan:
    """It succeeded; figures that are not those of all packages are not what it came to."""
    text = _success(status, seen)
    if status.packages_done != status.packages_total:
        status = replace(status, packages_done=None, packages_total=None, packages=None)
    status = replace(status, phase=BuildPhase.COMPLETED, finished_at=whole_seconds(seen.context.now))
    return _ended(
        build, _plan(build, status, ready(text, COMPLETE), seen), RecordEvent(Severity.NORMAL, COMPLETE, text)
    )


def _attempt_failed(
    build: PackageBuild, seen: BuildObservation, status: PackageBuildStatus, problem: tuple[str, str]
) -> Plan:
    """The next one begins after a pause, unless this was the last. What never ran goes: nothing else would end it."""
    reason, message = problem
    attempt = status.attempt or 1
    # a failed application is kept for its driver's log; one that never ran would start later
    actions = tuple(_removed(build, seen)) if reason == "StartDeadlineExceeded" else ()
    if attempt > build.spec.retries:
        return _failed(build, seen, status, (reason, f"attempt {attempt}, the last: {message}"), actions)
    pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
    status = replace(
        status, phase=BuildPhase.RETRYING, retry_at=whole_seconds(seen.context.now) + timedelta(seconds=pause)
    )
    text = f"attempt {attempt}: {message}"
    plan = _plan(build, status, under_way(reason, f"{text}; the next one begins in {pause:g} s"), seen)
    return replace(plan, actions=(*actions, RecordEvent(Severity.WARNING, reason, text)), again_seconds=pause)


def _failed(
    build: PackageBuild,
    seen: BuildObservation,
    status: PackageBuildStatus,
    problem: tuple[str, str],
    actions: Iterable[Action],
) -> Plan:
    """It is over; what it built stays, and an application that failed too, for its driver's log."""
    status = replace(status, phase=BuildPhase.FAILED, retry_at=None, finished_at=whole_seconds(seen.context.now))
    plan = replace(_plan(build, status, stalled(*problem), seen), actions=tuple(actions))
    return _ended(build, plan, RecordEvent(Severity.WARNING, *problem))


def _ended(build: PackageBuild, plan: Plan, report: RecordEvent) -> Plan:
    return replace(plan, actions=(*plan.actions, report), again_seconds=pause_after_finishing(build))


def _removed(build: PackageBuild, seen: BuildObservation) -> Iterator[Action]:
    """Delete the current application, and its pods with it."""
    key, children = application_key(build, build.status.attempt or 1), seen.context.children
    # one of another owner is left alone, also while the build is blocked by it
    if key in children and controller_uid(children[key]) == build.metadata.uid:
        yield deletion(key, children)


def _plan(build: PackageBuild, status: PackageBuildStatus, findings: Sequence[Finding], seen: BuildObservation) -> Plan:
    """Say of the build what was found; `Complete` is what `kubectl wait` waits for."""
    main = findings[0]
    complete = ConditionStatus.TRUE if main.status is ConditionStatus.TRUE else ConditionStatus.FALSE
    all_findings = [*findings, Finding(COMPLETE, complete, main.reason, main.message)]
    return plan_status(build.metadata, build.status, status, all_findings, seen.context.now)


def _is_over_time(build: PackageBuild, now: datetime) -> bool:
    limit, started_at = build.spec.active_deadline_seconds, build.status.started_at
    return limit is not None and started_at is not None and now >= started_at + timedelta(seconds=limit)


def _with_progress(status: PackageBuildStatus, progress: BuildView | None) -> PackageBuildStatus:
    if progress is None:
        return status
    text = f"{progress.published}/{progress.total}"
    return replace(status, packages_done=progress.published, packages_total=progress.total, packages=text)


def _packages(status: PackageBuildStatus) -> str:
    if status.packages is None:
        return "no package in the journal"
    return f"{status.packages_done} of {status.packages_total} packages in the journal"


def _success(status: PackageBuildStatus, seen: BuildObservation) -> str:
    """What a build came to whose driver succeeded; the tree of one that was overtaken is that of another build."""
    if status.packages_done == status.packages_total and (seen.is_asked or status.packages_done is not None):
        return f"complete: {_packages(status)}"
    progress = seen.progress
    if progress is None:
        return "complete, as reported by its driver; the publisher's agent reports no package count"
    return (
        f"complete as another build: other packages of the source were published after {progress.published} of "
        f"{progress.total} packages of this one; `mailboat bulk status` lists both"
    )


def _told(build: PackageBuild, application: Application) -> str:
    message = f": {application.message}" if application.message else ""
    return f"SparkApplication {build.status.application} ({application.word or 'new'}){message}"


def _not_started(build: PackageBuild, application: Application) -> str:
    return (
        f"the pods of {_told(build, application)} did not run within {build.spec.start_deadline_seconds:g} s: an image "
        "that can't be pulled, no room on any node, an account or a claim that is missing; "
        "see `kubectl get events`"
    )
