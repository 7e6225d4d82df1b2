"""What keeps JobQueues and JobSchedules from their Publisher's agent, which alone can change their records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.kinds.job_queue.spec import JobQueue
from mailboat_operator.kinds.job_schedule.spec import JobSchedule
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import RECLAIM_SECONDS
from mailboat_operator.plan.findings import Finding, is_paused, stalled, under_way
from mailboat_operator.workload.fleet import reason_of

AgentError = AgentUnreachableError | AgentRefusedError


def agent_problem(name: str, publisher: Publisher | None, error: AgentError | None) -> Sequence[Finding] | None:
    """Why the agent of the Publisher of that name can't be asked, or did not answer as hoped; None if it did."""
    if publisher is None:
        return stalled("PublisherMissing", f"no valid Publisher {name}")
    if error is None:
        return None
    reason = reason_of(str(error.where.get("error", error.name)))
    say = stalled if isinstance(error, AgentRefusedError) else under_way
    return say(reason, f"Publisher {name}: {error.message}")


def awaited_error(
    resource: JobQueue | JobSchedule, publisher: Publisher | None, error: AgentError | None, now: datetime
) -> AgentError | None:
    """The agent's error that a deletion waits out, for `RECLAIM_SECONDS` at most; None where it does not wait."""
    # An agent ends with its Publisher: to wait for one that is being deleted would only hold up its namespace.
    if publisher is None or publisher.metadata.is_deleted:
        return None
    asked_at = resource.metadata.deleted_at or now
    return error if now < asked_at + timedelta(seconds=RECLAIM_SECONDS) else None


def reason_to_keep(
    resource: JobQueue | JobSchedule, publisher: Publisher | None, error: AgentError | None
) -> str | None:
    """Why the record of a deleted object stays in the journal, after nothing is waited for; None if it goes."""
    if publisher is None:
        return f"no valid Publisher {resource.spec.publisher_ref.name}"
    if is_paused(resource.metadata, suspend=False):
        return "this object is paused"
    return None if error is None else error.message
