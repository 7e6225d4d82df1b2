"""Why pods do not run: the first cause among a workload's pods and Events, and the deadline for progress.

A cause has a fixed message: the kubelet alternates between two reasons while it backs off, and each change would be a
write of the status. Pure; called by `workload`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import Condition, condition_of
from mailboat_operator.plan.child_manifest import Manifest, condition_in
from mailboat_operator.plan.findings import RECONCILING, STALLED
from mailboat_operator.workload.template import AGENT_CONTAINER

PROGRESS_DEADLINE: Final = timedelta(minutes=10)
STABLE: Final = timedelta(minutes=5)
"""A container that has run for so long since a crash is not crashing: kubelets restart one after 5 minutes at most."""
_CONFIRMATION: Final = timedelta(minutes=1)
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
MISCONFIGURED: Final = "ContainerMisconfigured"

_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "SignatureValidationFailed"}
)
_CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError", "InvalidImageName"})
_START_REASONS: Final = frozenset({"CreateContainerError", "ImageInspectError", "RunContainerError"})
"""The kubelet tries again: a container runtime that is busy or restarted causes them, too."""
_CREATING: Final = frozenset({"ContainerCreating", "PodInitializing"})
_VOLUME_EVENTS: Final = frozenset({"FailedAttachVolume", "FailedMount", "FailedMapVolume"})
_NOT_CREATED: Final = "FailedCreate"
_NOT_MADE: Final = "PodNotCreated"
_OVERCOME: Final = frozenset({"SuccessfulCreate", "Pulling", "Pulled", "Created", "Started"})
"""Events that come after pods are created, and after volumes are mounted."""
_LONGEST_TEXT: Final = 400


class Pods(Frozen):
    """The pods of a workload, and the Events of what has not started.

    Attributes:
        found: The pods, without those that are being deleted, in order of their ordinals.
        events: Those about the subject (see `subject_uid`).
        going: The pods that are being deleted.
    """

    found: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    going: Sequence[Manifest] = ()

    @property
    def ready_names(self) -> Sequence[str]:
        """The names of the pods that are ready."""
        return [pod["metadata"]["name"] for pod in self.found if condition_in(pod, "Ready").get("status") == "True"]


class PodProblem(NamedTuple):
    """Why a pod does not run.

    Attributes:
        reason: In one word.
        message: In a sentence, with the next step.
    """

    reason: str
    message: str


def observed(pods: Iterable[Manifest]) -> Pods:
    """The pods, in order of their ordinals; without Events."""
    # by length first: `pool-10` comes after `pool-9`
    known = sorted(pods, key=lambda one: (len(one["metadata"]["name"]), one["metadata"]["name"]))
    going = [pod for pod in known if "deletionTimestamp" in pod["metadata"]]
    return Pods([pod for pod in known if "deletionTimestamp" not in pod["metadata"]], going=going)


def subject_uid(workload: Manifest, pods: Sequence[Manifest]) -> str | None:
    """The object whose Events say what its status does not; None where statuses say all.

    A pod that quota or admission refuses exists only as an Event of its StatefulSet, a volume that can't be mounted
    only as an Event of its pod.
    """
    creating = next((pod for pod in pods if _is_creating(pod)), None)
    if creating is not None:
        return str(creating["metadata"]["uid"])
    if len(pods) < int(workload["spec"].get("replicas") or 0):
        return str(workload["metadata"]["uid"])
    return None


def trouble_of(pods: Pods, now: datetime) -> PodProblem | None:
    """The first cause found; None where pods run, or where it is too early to know."""
    found = (_pod_trouble(pod, now) for pod in pods.found)
    problems = (*found, *(_stop_trouble(pod, now) for pod in pods.going))
    return next((problem for problem in problems if problem is not None), None) or _event_trouble(pods.events)


def refused_pods(deployment: Manifest) -> PodProblem | None:
    """That quota or admission refuses the pods of a Deployment, which has no Event of that itself."""
    failure = condition_in(deployment, "ReplicaFailure")
    return PodProblem(_NOT_MADE, _shortened(failure.get("message"))) if failure.get("status") == "True" else None


def is_progress_over(pods: Pods, before: Sequence[Condition], now: datetime, *, can_catch_up: bool) -> bool:
    """Whether nothing has progressed for so long that a person has to look.

    Progress is a new pod, a pod whose readiness changed, or the beginning of the roll-out. A member that restores a
    snapshot or catches up progresses too, however long that takes: `CaughtUp`, `Lagging` and `Blocked` describe it.

    Args:
        pods: Of the workload.
        before: Conditions of the object: the moment since when it has been reconciling.
        now: This moment.
        can_catch_up: Whether an agent that runs and is not ready has a backlog to import.
    """
    if can_catch_up and pods.found and all(_is_catching_up(pod, now) for pod in pods.found):
        return False
    moments = [_moment(pod["metadata"].get("creationTimestamp")) for pod in pods.found]
    moments += [_moment(condition_in(pod, "Ready").get("lastTransitionTime")) for pod in pods.found]
    stalled, moving = condition_of(before, STALLED), condition_of(before, RECONCILING)
    # After the deadline Reconciling no longer holds, and this moment would begin the deadline again.
    if stalled is None or not stalled.holds or stalled.reason != DEADLINE_EXCEEDED:
        moments.append(moving.last_transition_at if moving is not None and moving.holds else now)
    newest = max((moment for moment in moments if moment is not None), default=None)
    return newest is None or now - newest >= PROGRESS_DEADLINE


def _pod_trouble(pod: Manifest, now: datetime) -> PodProblem | None:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    scheduled = condition_in(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return PodProblem("PodUnschedulable", f"{name}: no node takes the pod: {_shortened(scheduled.get('message'))}")
    if status.get("phase") == "Failed":
        return PodProblem(
            "PodFailed", f"{name}: {status.get('reason') or 'failed'}: {_shortened(status.get('message'))}"
        )
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found = (_container_trouble(name, container, now) for container in containers if not container.get("ready"))
    return next((trouble for trouble in found if trouble is not None), None)


def _stop_trouble(pod: Manifest, now: datetime) -> PodProblem | None:
    """Of one that is being deleted: its node has to confirm its end, and a new pod waits for that."""
    metadata = pod["metadata"]
    due_at = _moment(metadata["deletionTimestamp"])  # the end of the grace period
    if due_at is None or now - due_at < _CONFIRMATION:
        return None
    name, text = metadata["name"], f"{metadata['name']} should have ended at {due_at:%H:%M:%S} UTC"
    if metadata.get("finalizers"):
        return PodProblem("PodNotStopped", f"{text}; kept by its finalizers {', '.join(metadata['finalizers'])}")
    node = (pod.get("spec") or {}).get("nodeName")
    return PodProblem(
        "PodNotStopped",
        f"{text}, which its node {node} has not confirmed: if that node is off, `kubectl delete pod {name} --force`",
    )


def _container_trouble(pod: str, container: Mapping[str, Any], now: datetime) -> PodProblem | None:
    """Of one that is not ready. A crash stays the cause while the container runs again between two crashes."""
    place = f"{pod}: container {container['name']}"
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason")
    if reason in _IMAGE_REASONS:
        text = f"{place}: image {container.get('image')} can't be pulled; check its name and the pull secrets"
        return PodProblem("ImagePullFailed", f"{text} (`kubectl describe pod {pod}` has the registry's answer)")
    if reason in _CONFIG_REASONS:
        return PodProblem(MISCONFIGURED, f"{place}: {reason}: {_shortened(waiting.get('message'))}")
    if reason in _START_REASONS:
        return PodProblem("ContainerNotStarted", f"{place}: {reason}: {_shortened(waiting.get('message'))}")
    ended = _crash(container, now)
    if ended is None:
        return None
    cause = "" if ended.get("reason") in {None, "Error"} else f", {ended['reason']}"
    text = f"{place} ends with exit code {ended.get('exitCode')}{cause}"
    return PodProblem("ContainerCrashing", f"{text}; see `kubectl logs {pod} -c {container['name']} --previous`")


def _event_trouble(events: Sequence[Manifest]) -> PodProblem | None:
    """The newest failure, unless it was overcome: Events stay for an hour."""
    # of one second the failure counts, as claims are created in the same one as their pod is refused
    found = sorted(events, key=lambda one: (_time_of_event(one), one.get("type") == "Warning"))
    for event in reversed(found):
        if event.get("reason") in _OVERCOME:
            return None
        subject, text = event["involvedObject"]["name"], _shortened(event.get("message"))
        if event.get("reason") == _NOT_CREATED:
            return PodProblem(_NOT_MADE, text)
        if event.get("reason") in _VOLUME_EVENTS:
            return PodProblem("VolumeNotMounted", f"{subject}: {text}")
    return None


def _time_of_event(event: Manifest) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _is_creating(pod: Manifest) -> bool:
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    reasons = [((container.get("state") or {}).get("waiting") or {}).get("reason") for container in containers]
    return any(reason in _CREATING for reason in reasons)


def _crash(container: Mapping[str, Any], now: datetime) -> Mapping[str, Any] | None:
    """How it ended, if it failed and has not run steadily since; `lastState` keeps even a crash of last week."""
    state, last = container.get("state") or {}, container.get("lastState") or {}
    ended: Mapping[str, Any] | None = state.get("terminated") or last.get("terminated")
    started_at = _moment((state.get("running") or {}).get("startedAt"))
    is_steady = started_at is not None and now - started_at >= STABLE
    return None if ended is None or ended.get("exitCode") == 0 or is_steady else ended


def _is_catching_up(pod: Manifest, now: datetime) -> bool:
    """Whether a snapshot is being restored, or the agent runs and the pod waits for no other container."""
    status = pod.get("status") or {}
    if any("running" in (container.get("state") or {}) for container in status.get("initContainerStatuses") or ()):
        return True
    containers = status.get("containerStatuses") or ()
    agents = [container for container in containers if container["name"] == AGENT_CONTAINER]
    others = [container for container in containers if container["name"] != AGENT_CONTAINER]
    has_run = all(agent.get("started") and (agent.get("ready") or _crash(agent, now) is None) for agent in agents)
    return bool(agents) and has_run and all(other.get("ready") for other in others)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _shortened(text: str | None) -> str:
    return (text or "the cluster gives no cause")[:_LONGEST_TEXT]
