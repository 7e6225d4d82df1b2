"""Why pods do not run, as conditions of Publishers and SubscriberPools, and the deadline for progress."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.workload_context import WorkloadContext
from mailboat_operator.plan.child_manifest import ChildKey
from mailboat_operator.plan.findings import READY, STALLED
from mailboat_operator.workload.pod_failures import Pods, observed, subject_uid, trouble_of
from mailboat_operator.workload.pods import AgentImage

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
POOL = {"journalRef": {"name": "main"}, "replicas": 2, "target": {"files": {"volume": {"size": "5Gi"}}}}
RUNS = {"name": "mailboat", "started": True, "ready": False, "state": {"running": {}}}
READY_AGENT = {**RUNS, "ready": True}
CRASHED = {"exitCode": 2, "reason": "Error"}


def stored(kind: str, name: str, spec: dict[str, Any], status: Any = None) -> Any:
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec}
    return decode(manifest if status is None else {**manifest, "status": status})


JOURNAL = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}})


def pod(number: int = 0, *containers: dict[str, Any], age: float = 0.0, **status: Any) -> dict[str, Any]:
    made = (NOW - timedelta(minutes=age)).isoformat()
    metadata = {"name": f"edge-{number}", "uid": f"uid-edge-{number}", "creationTimestamp": made}
    return {"metadata": metadata, "status": {"containerStatuses": list(containers), **status}}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": "web", "image": "nginx:nope", "ready": False, "state": state, **more}


def event(reason: str, message: str, time: str = "2026-11-21T11:59:00Z") -> dict[str, Any]:
    subject = {"name": "edge-0"}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": subject, "lastTimestamp": time}


def workload(name: str = "edge", replicas: int = 2) -> dict[ChildKey, Any]:
    metadata = {"uid": f"uid-{name}", "ownerReferences": [{"uid": f"uid-{name}", "controller": True}]}
    status = {"replicas": replicas, "readyReplicas": 0, "observedGeneration": 1}
    return {ChildKey("StatefulSet", name): {"metadata": metadata, "spec": {"replicas": replicas}, "status": status}}


def said(plan: Any) -> tuple[str, bool, str]:
    """Reason, whether it is stalled, and the message."""
    found = {condition["type"]: condition for condition in plan.status["conditions"]}
    return found[READY]["reason"], found[STALLED]["status"] == "True", found[READY]["message"]


def planned(*pods: dict[str, Any], at: datetime = NOW, before: Any = None, events: Any = ()) -> Any:
    context = WorkloadContext(JOURNAL, {}, workload(), AgentImage("mailboat:1"), at)
    context = replace(context, pods=replace(observed(pods), events=events))
    return plan_pool(stored("SubscriberPool", "edge", POOL, before), context)


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": 'persistentvolumeclaim "site" not found'}
TROUBLE = [
    (pod(0, conditions=[UNSCHEDULABLE]), "PodUnschedulable", 'edge-0: no node takes the pod: persistentvolumeclaim "s'),
    (
        pod(0, waiting("ErrImagePull", "x")),
        "ImagePullFailed",
        "edge-0: container web: image nginx:nope can't be pulled",
    ),
    (
        pod(0, waiting("CreateContainerError", "context deadline exceeded")),
        "ContainerNotStarted",
        "edge-0: container web: CreateContainerError: context deadline exceeded",
    ),
    (pod(0, waiting("CrashLoopBackOff", lastState={"terminated": CRASHED})), "ContainerCrashing", "exit code 2; see `"),
    (
        pod(0, {**RUNS, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
        "ContainerCrashing",
        "exit code 137, OOMKilled; see `kubectl logs edge-0 -c mailboat --previous`",
    ),
    (pod(0, phase="Failed", reason="Evicted", message="low on memory"), "PodFailed", "edge-0: Evicted: low on memory"),
]


@pytest.mark.parametrize(("seen", "reason", "text"), TROUBLE)
def test_the_cause_of_a_pod_that_does_not_run_is_in_the_condition(seen: Any, reason: str, text: str) -> None:
    found, is_stalled, message = said(planned(seen, pod(1, READY_AGENT)))
    assert (found, is_stalled) == (reason, False)
    assert message.startswith("0 of 2 members ready; ")
    assert text in message


def test_a_container_that_can_not_be_created_is_stalled_at_once() -> None:
    text = "container has runAsNonRoot and image will run as root"
    reason, is_stalled, message = said(planned(pod(0, waiting("CreateContainerConfigError", text))))
    assert (reason, is_stalled) == ("ContainerMisconfigured", True)
    assert message.endswith(f"edge-0: container web: CreateContainerConfigError: {text}")


def test_the_two_reasons_of_an_image_that_can_not_be_pulled_have_one_message() -> None:
    first = said(planned(pod(0, waiting("ErrImagePull", "not found"))))
    assert said(planned(pod(0, waiting("ImagePullBackOff", "Back-off pulling image")))) == first


@pytest.mark.parametrize(
    ("seen", "reason", "text"),
    [
        (event("FailedCreate", "exceeded quota: compute"), "PodNotCreated", "exceeded quota: compute"),
        (event("FailedMount", 'configmap "web" not found'), "VolumeNotMounted", 'edge-0: configmap "web" not found'),
    ],
)
def test_an_event_says_why_a_pod_was_not_created_or_not_started(seen: Any, reason: str, text: str) -> None:
    found = said(planned(events=[event("Unhealthy", "old", "2026-11-21T11:00:00Z"), seen]))
    assert found == (reason, False, f"0 of 2 members ready; {text}")


@pytest.mark.parametrize(
    ("failure", "success"),
    [("FailedCreate", "SuccessfulCreate"), ("FailedMount", "Pulling"), ("FailedMount", "Pulled")],
)
def test_a_failure_that_was_overcome_is_no_cause(failure: str, success: str) -> None:
    """As when pods are rolled half an hour after a quota was raised."""
    old, later = event(failure, "no", "2026-11-21T11:30:00Z"), event(success, "ok", "2026-11-21T11:31:00Z")
    assert said(planned(events=[{**later, "type": "Normal"}, old]))[0] == "PodsNotReady"
    at_once = {**event(success, "ok", "2026-11-21T11:30:00Z"), "type": "Normal"}
    assert said(planned(events=[old, at_once]))[2] != "0 of 2 members ready"


def test_events_are_asked_for_of_the_object_that_has_not_started() -> None:
    [stateful_set] = workload().values()
    assert subject_uid(stateful_set, []) == "uid-edge"
    assert subject_uid(stateful_set, [pod(0), pod(1, waiting("ContainerCreating"))]) == "uid-edge-1"
    assert subject_uid(stateful_set, [pod(0), pod(1)]) is None


def test_without_progress_for_ten_minutes_a_pool_is_stalled_with_the_cause() -> None:
    broken = (pod(0, waiting("ImagePullBackOff")), pod(1, waiting("ImagePullBackOff")))
    first = planned(*broken).status
    early = planned(*broken, at=NOW + timedelta(minutes=9), before=first)
    assert early.status is None
    late = planned(*broken, at=NOW + timedelta(minutes=10), before=first)
    reason, is_stalled, message = said(late)
    assert (reason, is_stalled) == ("ProgressDeadlineExceeded", True)
    assert message.startswith("0 of 2 members ready; edge-0: container web: image nginx:nope can't be pulled")
    assert message.endswith(". No progress for 10 minutes")
    assert planned(*broken, at=NOW + timedelta(minutes=20), before=late.status).status is None


def test_a_new_pod_begins_the_deadline_again() -> None:
    old = pod(0, waiting("ImagePullBackOff"), age=60)
    first = planned(old).status
    stalled = planned(old, at=NOW + timedelta(minutes=11), before=first).status
    fresh = pod(0, waiting("ImagePullBackOff"), age=-15)
    assert said(planned(fresh, at=NOW + timedelta(minutes=16), before=stalled))[:2] == ("ImagePullFailed", False)


def test_a_pod_whose_readiness_changed_is_progress() -> None:
    broken = pod(1, waiting("ImagePullBackOff"), age=60)
    first = planned(broken).status
    turned = {"type": "Ready", "status": "True", "lastTransitionTime": (NOW + timedelta(minutes=12)).isoformat()}
    ready = pod(0, READY_AGENT, conditions=[turned], age=60)
    assert planned(ready, broken, at=NOW + timedelta(minutes=15), before=first).status is None
    assert said(planned(broken, at=NOW + timedelta(minutes=15), before=first))[1]


@pytest.mark.parametrize(
    "member",
    [pod(0, RUNS, age=600), pod(0, waiting("PodInitializing"), initContainerStatuses=[{**RUNS, "name": "seed"}])],
)
def test_a_member_that_catches_up_or_restores_a_snapshot_has_no_deadline(member: Any) -> None:
    first = planned(member).status
    assert planned(member, at=NOW + timedelta(hours=5), before=first).status is None


def test_a_crash_of_long_ago_is_no_cause_and_no_deadline() -> None:
    """`lastState` keeps the last crash as long as the pod exists; the member catches up."""
    started = {"running": {"startedAt": (NOW - timedelta(minutes=1)).isoformat()}}
    member = pod(0, {**RUNS, "state": started, "lastState": {"terminated": CRASHED}}, age=600)
    first = planned(member)
    assert said(first)[0] == "ContainerCrashing"
    later = planned(member, at=NOW + timedelta(minutes=10), before=first.status)
    assert said(later) == ("PodsNotReady", False, "0 of 2 members ready")


def test_a_publisher_whose_agent_runs_and_is_not_ready_has_the_deadline() -> None:
    spec = {"journalRef": {"name": "main"}}
    context = WorkloadContext(
        JOURNAL, {}, workload("author", 1), AgentImage("mailboat:1"), NOW, pods=Pods([pod(0, RUNS)])
    )
    first = plan_publisher(stored("Publisher", "author", spec), context)
    assert said(first)[:2] == ("PodsNotReady", False)
    later = replace(context, now=NOW + timedelta(minutes=10))
    assert said(plan_publisher(stored("Publisher", "author", spec, first.status), later))[:2] == (
        "ProgressDeadlineExceeded",
        True,
    )


def test_agents_that_wait_for_silent_brokers_are_reported_with_the_journal() -> None:
    """Their processes run, and are not ready: nothing of it is in the pods' statuses."""
    now = NOW.isoformat()
    condition = {"type": READY, "status": "False", "reason": "BrokersUnreachable", "message": "at 7"}
    status = {"conditions": [{**condition, "lastTransitionTime": now, "observedGeneration": 1}]}
    journal = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}}, status)
    context = WorkloadContext(journal, {}, workload(), AgentImage("mailboat:1"), NOW, pods=Pods([pod(0, RUNS)]))
    pool = stored("SubscriberPool", "edge", POOL)
    text = "0 of 2 members ready; waiting for Journal main: BrokersUnreachable"
    assert said(plan_pool(pool, context)) == ("PodsNotReady", False, text)
    crashing = pod(0, {**RUNS, "lastState": {"terminated": CRASHED}})
    reason, _, message = said(plan_pool(pool, replace(context, pods=Pods([crashing]))))
    assert (reason, "Journal" in message) == ("ContainerCrashing", False)


def test_pods_that_are_being_deleted_or_that_wait_for_nothing_are_no_trouble() -> None:
    going = pod(0, waiting("ImagePullBackOff"))
    going["metadata"]["deletionTimestamp"] = "2026-11-21T11:59:01Z"
    assert trouble_of(observed([going, pod(1, waiting("ContainerCreating")), pod(10), pod(2, RUNS)]), NOW) is None
    assert [item["metadata"]["name"] for item in observed([going, pod(10), pod(2)]).found] == ["edge-2", "edge-10"]


def test_a_pod_whose_node_does_not_confirm_its_end_is_named() -> None:
    """A node that is off: the StatefulSet makes no other pod of that name."""
    lost = pod(1)
    lost["metadata"]["deletionTimestamp"] = "2026-11-21T11:58:30Z"
    lost["spec"] = {"nodeName": "node-7"}
    reason, is_stalled, message = said(planned(pod(0, READY_AGENT), lost))
    assert (reason, is_stalled) == ("PodNotStopped", False)
    text = "edge-1 should have ended at 11:58:30 UTC, which its node node-7 has not confirmed: if that node is off, "
    assert message == f"0 of 2 members ready; {text}`kubectl delete pod edge-1 --force`"
    lost["metadata"]["finalizers"] = ["example.com/audit"]
    assert said(planned(lost))[2].endswith(
        "edge-1 should have ended at 11:58:30 UTC; kept by its finalizers example.com/audit"
    )


@pytest.mark.parametrize("missing", ["not created", "on a node that is off"])
def test_a_missing_member_has_the_deadline_while_others_run(missing: str) -> None:
    lost = pod(1)
    lost["metadata"]["deletionTimestamp"] = "2026-11-21T11:58:30Z"
    pods = (pod(0, READY_AGENT, age=60), *([lost] if missing != "not created" else []))
    events = [] if lost in pods else [event("FailedCreate", "exceeded quota: compute")]
    first = planned(*pods, events=events)
    assert said(first)[1] is False
    later = planned(*pods, events=events, at=NOW + timedelta(minutes=10), before=first.status)
    assert said(later)[:2] == ("ProgressDeadlineExceeded", True)
