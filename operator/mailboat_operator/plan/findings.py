"""Conditions as kstatus and `kubectl wait` read them.

Every kind has `Ready`, `Reconciling` and `Stalled`: Ready is about the object as it is asked for now; Reconciling holds
while something is on its way; Stalled holds when nothing moves until a person does something. A condition that stays as
it was keeps its transition time, so that a reconciliation without news writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from mailboat.errors import (
    BrokersRefusedError,
    BrokersUnreachableError,
    BucketRefusedError,
    BucketUnreachableError,
    MailboatError,
    PermanentError,
    RetryableError,
    SecretMalformedError,
    SecretMissingError,
)
from mailboat.printable import printable

from mailboat_operator.definition.conditions import Condition, ConditionStatus, Status, condition_of
from mailboat_operator.definition.encoder import encode
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.plan.actions import Action, Hold, Plan, RecordEvent, Severity
from mailboat_operator.plan.child_manifest import Manifest
from mailboat_operator.plan.labels import FINALIZER, PAUSED

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"

CLUSTER_REPLACED: Final = "ClusterReplaced"
CONFLICTS: Final = frozenset({CLUSTER_REPLACED, "TopicExists", "TopicReplaced", "TopicTaken"})
"""Reasons for which the topics are not this Journal's: no agent is started on them."""

SUSPENDED: Final = "Suspended"
TOPICS_NOT_READY: Final = "TopicsNotReady"
FORMER_CHILD_EXISTS: Final = "FormerChildExists"
NAME_TAKEN: Final = "NameTaken"

LONGEST_MESSAGE: Final = 1024

NOT_OBSERVED: Final = frozenset({"ClusterConflict", "ClusterRefused", "ClusterUnavailable", "OperatorDefect"})
"""Reasons of `plan_invalid`: the operator could not reconcile the object, and says nothing of what it is about."""

S = TypeVar("S", bound=Status)

UPSTREAM_ERRORS: Final = (
    BrokersRefusedError,
    BrokersUnreachableError,
    BucketRefusedError,
    BucketUnreachableError,
    SecretMalformedError,
    SecretMissingError,
)
"""What brokers, buckets and the credentials for them may end in: conditions, all of them."""


class Finding(NamedTuple):
    """What holds now, before it is known since when.

    Attributes:
        type: What it is about.
        status: Whether it holds.
        reason: Why, in one word.
        message: Why, in a sentence.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str


def ready(message: str, reason: str = "AsSpecified") -> Sequence[Finding]:
    """Everything is as specified."""
    return _standing(Finding(READY, ConditionStatus.TRUE, reason, message), moving=False, stuck=False)


def under_way(reason: str, message: str) -> Sequence[Finding]:
    """Not yet, but it will be without an action of a person."""
    return _standing(Finding(READY, ConditionStatus.FALSE, reason, message), moving=True, stuck=False)


def stalled(reason: str, message: str) -> Sequence[Finding]:
    """Not, until a person changes something."""
    return _standing(Finding(READY, ConditionStatus.FALSE, reason, message), moving=False, stuck=True)


def is_paused(metadata: Metadata, *, suspend: bool) -> bool:
    """Whether the object is to be left alone, by its spec or by an annotation."""
    return suspend or metadata.annotations.get(PAUSED) == "true"


def suspended(*, suspend: bool, effect: str = "nothing is made, changed or corrected") -> Sequence[Finding]:
    """The object is left alone, by `spec.suspend` or by the annotation."""
    cause = "spec.suspend is true" if suspend else f'the annotation {PAUSED} is "true"'
    message = f"{cause}: {effect}"
    return _standing(Finding(READY, ConditionStatus.UNKNOWN, SUSPENDED, message), moving=False, stuck=False)


def problem_of(error: MailboatError) -> list[Finding]:
    """What to say of one of `UPSTREAM_ERRORS`."""
    needs_person = isinstance(error, PermanentError | SecretMalformedError | SecretMissingError)
    return [*(stalled if needs_person else under_way)(error.name, error.message)]


def pause_of(error: MailboatError | None) -> float | None:
    """In how many seconds to ask again; None leaves it to the workers, also without an error."""
    return error.retry_after_seconds if isinstance(error, RetryableError) else None


def is_ready(conditions: Iterable[Condition]) -> bool:
    """Whether `Ready` holds."""
    found = condition_of(conditions, READY)
    return found is not None and found.holds


def ready_since(before: Iterable[Condition], now: datetime) -> datetime:
    """Since when an object is ready that is ready now."""
    found = condition_of(before, READY)
    return found.last_transition_at if found is not None and found.holds else now


def trouble_reports(findings: Sequence[Finding], before: Sequence[Condition]) -> Iterator[RecordEvent]:
    """A warning for each condition that turned False."""
    known = {condition.type: condition.status for condition in before}
    for finding in findings:
        if finding.status is ConditionStatus.FALSE and known.get(finding.type) is not ConditionStatus.FALSE:
            yield RecordEvent(Severity.WARNING, finding.reason, finding.message)


def stall_report(manifest: Manifest, plan: Plan) -> RecordEvent | None:
    """A warning if an object is `Stalled` for a new reason, unless the plan itself reports it."""
    after, before = _stall(plan.status), _stall(manifest.get("status"))
    told = {action.reason for action in plan.actions if isinstance(action, RecordEvent)}
    if after is None or (before is not None and before.reason == after.reason) or after.reason in told:
        return None
    return RecordEvent(Severity.WARNING, after.reason, after.message)


def _stall(status: object) -> Condition | None:
    found = condition_of(_conditions_of(status) if isinstance(status, Mapping) else (), STALLED)
    return found if found is not None and found.holds else None


def conditions_after(
    before: Sequence[Condition], findings: Iterable[Finding], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions to write.

    Args:
        before: Those that the object has.
        findings: What holds now, in the order to show.
        generation: Of the spec that the findings speak of.
        now: When this is; used for what changed its status only, in whole seconds as Kubernetes keeps times.
    """
    known = {condition.type: condition for condition in before}
    return tuple(_condition(known.get(finding.type), finding, generation, now) for finding in findings)


def plan_status(
    metadata: Metadata, before: S, status: S, findings: Iterable[Finding], now: datetime, actions: Iterable[Action] = ()
) -> Plan:
    """The actions, and the status with what was found; None where it is as before."""
    status = replace(
        status,
        observed_generation=metadata.generation,
        conditions=conditions_after(before.conditions, findings, metadata.generation, now),
    )
    # no write without a change: each one is an event of the watch, and costs every watcher of the kind
    return Plan(tuple(actions), None if status == before else encode(status))


def _condition(before: Condition | None, found: Finding, generation: int, now: datetime) -> Condition:
    is_same = before is not None and before.status == found.status
    since = before.last_transition_at if before is not None and is_same else whole_seconds(now)
    # with a control character the decoder would take none of the conditions, and each look would write them again
    message = printable(found.message)[:LONGEST_MESSAGE]
    return Condition(found.type, found.status, found.reason, message, generation, since)


def whole_seconds(moment: datetime) -> datetime:
    """A time as `encode` writes it: with fractions it would differ from what is read back, and be written again."""
    return moment.replace(microsecond=0)


def _standing(main: Finding, *, moving: bool, stuck: bool) -> Sequence[Finding]:
    return [
        main,
        Finding(
            RECONCILING, _truth(holds=moving), main.reason if moving else "Settled", main.message if moving else ""
        ),
        Finding(STALLED, _truth(holds=stuck), main.reason if stuck else "NotStalled", main.message if stuck else ""),
    ]


def _truth(*, holds: bool) -> ConditionStatus:
    return ConditionStatus.TRUE if holds else ConditionStatus.FALSE


def plan_invalid(manifest: Manifest, error: MailboatError, now: datetime) -> Plan:
    """Write the error into the object's status, and leave everything else of it and its children as it is."""
    status = manifest.get("status")
    status = status if isinstance(status, dict) else {}
    generation = int(manifest["metadata"].get("generation") or 0)
    before = _conditions_of(status)
    say = under_way if isinstance(error, RetryableError) else stalled
    findings = say(error.name, error.message)
    # the others stay as they were, with the generation that they speak of: nothing was observed
    told = {finding.type for finding in findings}
    others = [condition for condition in before if condition.type not in told]
    conditions = (*conditions_after(before, findings, generation, now), *others)
    if conditions == before and status.get("observedGeneration") == generation:
        return Plan((), None)
    return Plan(
        (), {**status, "observedGeneration": generation, "conditions": [encode(condition) for condition in conditions]}
    )


def plan_undecodable(manifest: Manifest, error: MailboatError, now: datetime) -> Plan:
    """Write the error into the status; release an object that is being deleted, and keep its topic.

    An object becomes invalid without a change of its own if an upgrade or a rollback brings stricter definitions.
    """
    metadata = manifest["metadata"]
    if metadata.get("deletionTimestamp") is None:
        return plan_invalid(manifest, error, now)
    if FINALIZER not in (metadata.get("finalizers") or ()):
        return Plan((), None)
    reports: tuple[RecordEvent, ...] = ()
    if manifest["kind"] == "Topic":
        name = (manifest.get("status") or {}).get("topicName") or "of this object"
        reports = (RecordEvent(Severity.WARNING, "TopicRetained", f"topic {name} is kept: {error.message}"),)
    return Plan((Hold(is_held=False), *reports), None)


def _conditions_of(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    try:
        return tuple(
            Condition(
                condition["type"],
                ConditionStatus(condition["status"]),
                condition["reason"],
                condition["message"],
                condition["observedGeneration"],
                datetime.fromisoformat(condition["lastTransitionTime"]),
            )
            for condition in status.get("conditions", ())
        )
    # another version or another client wrote it: none of its conditions can be kept
    except (KeyError, TypeError, ValueError):
        return ()
