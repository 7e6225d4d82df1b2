"""What becomes of JobQueues and JobSchedules: settings in the journal, workers, counts and deletion, decided purely."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import httpx2
import pytest
import typer
from mailboat.api.job_orders import QueueOrder
from mailboat.api.job_views import JobQueueView, JobScheduleView
from mailboat.cli.options import parse_duration_ms
from mailboat.cli.program import build_app
from mailboat.errors import AgentRefusedError, AgentUnreachableError, ClusterRefusedError
from mailboat.model.identifiers import AgentName
from mailboat.model.jobs import QueueDefined, QueueKind, QueueSettings, ScheduleDefined, pool_queue, pool_topic
from mailboat.wire.job_records import decode_job_record, encode_job_record
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.definition.encoder import encode
from mailboat_operator.kinds.job_queue.controller import observe_job_queue
from mailboat_operator.kinds.job_queue.manifests import most_workers, queue_children
from mailboat_operator.kinds.job_queue.plan import JobQueueObservation, plan_job_queue, settings_of
from mailboat_operator.kinds.job_queue.spec import JobQueue, Merge
from mailboat_operator.kinds.job_schedule.controller import observe_job_schedule
from mailboat_operator.kinds.job_schedule.plan import JobScheduleObservation, plan_job_schedule, schedule_of
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.workload_context import SecretFound
from mailboat_operator.plan.actions import (
    RECLAIM_SECONDS,
    Apply,
    Correct,
    Delete,
    Hold,
    Plan,
    RecordEvent,
    RemoveQueue,
    RemoveSchedule,
    SetQueue,
    SetSchedule,
    SuspendQueue,
)
from mailboat_operator.plan.child_manifest import key_of
from mailboat_operator.plan.labels import FINALIZER
from mailboat_operator.systems import Systems
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pod_failures import Pods
from mailboat_operator.workload.pods import AgentImage

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
IMAGE = AgentImage("mailboat:1")
JOURNAL: dict[str, Any] = {
    "apiVersion": "mailboat.dev/v1alpha1",
    "kind": "Journal",
    "metadata": {"name": "main"},
}
KAFKA = {"bootstrapServers": ["kafka:9092"]}
SILENT = AgentUnreachableError("no answer from publisher author")


def stored(manifest: dict[str, Any], *, is_held: bool = False, deleted_seconds_ago: float | None = None) -> Any:
    """The object as the API server would give it, read."""
    metadata = {**manifest["metadata"], "namespace": "shop", "uid": "0-1-2-3", "generation": 1}
    metadata["finalizers"] = [FINALIZER] if is_held else []
    if deleted_seconds_ago is not None:
        metadata["deletionTimestamp"] = (NOW - timedelta(seconds=deleted_seconds_ago)).isoformat()
    return decode({**manifest, "metadata": metadata})


@pytest.fixture
def author(manifest_of: Callable[..., dict[str, Any]]) -> Any:
    return stored(manifest_of("Publisher"))


@pytest.fixture
def queue_of(manifest_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    return lambda change=None, **how: stored(manifest_of("JobQueue", change), **how)


def view(**changes: Any) -> JobQueueView:
    """The queue of the manifest, as the agent shows it."""
    counts = {"queued": 12, "due": 9, "active": 3, "oldest_at": NOW, "oldest_seconds": 5.0, "workers": 2, "given_up": 1}
    limits = {"suspended": False, "max_parallel": 8, "rate": "100/1s", "merge": 256}
    return JobQueueView(
        **{"queue": "cdn", "kind": "parallel", "topics": ("purge.*", "warm.**"), **counts, **limits, **changes}
    )


def seen(author: Any, *queues: JobQueueView, **changes: Any) -> JobQueueObservation:
    token = SecretFound("7", frozenset({"token"}))
    return replace(JobQueueObservation(NOW, IMAGE, author, queues=queues, token=token, has_keda=True), **changes)


def known(queue: Any, author: Any, **status: Any) -> Any:
    """The queue after its settings were written."""
    plan = plan_job_queue(queue, seen(author))
    assert plan.status is not None
    return replace(queue, status=replace(queue.status, applied=plan.status["applied"], **status))


def kinds(plan: Plan) -> list[type]:
    return [type(action) for action in plan.actions if not isinstance(action, Apply)]


def condition(plan: Plan, kind: str = "Ready") -> tuple[str, str]:
    assert plan.status is not None
    found = next(condition for condition in plan.status["conditions"] if condition["type"] == kind)
    return found["status"], found["reason"]


def test_a_new_queue_is_written_into_the_journal(queue_of: Any, author: Any) -> None:
    plan = plan_job_queue(queue_of(), seen(author))
    (wanted,) = (action for action in plan.actions if isinstance(action, SetQueue))
    assert wanted.settings == QueueSettings(
        "cdn", ("purge.*", "warm.**"), QueueKind.PARALLEL, 8, 100, 1_000, 256, 2_000, 20, 500, 300_000, 7 * 86_400_000
    )
    assert plan.again_seconds == 2.0


def test_a_queue_as_it_is_wanted_is_only_counted(queue_of: Any, author: Any) -> None:
    queue = known(queue_of({"workers": None}), author)
    plan = plan_job_queue(queue, seen(author, view(queued=1201)))
    assert kinds(plan) == []
    assert plan.status is not None
    counts = {name: plan.status[name] for name in ("queued", "due", "active", "workers", "givenUp", "oldestAt")}
    expected = {"queued": 1300, "due": 9, "active": 3, "workers": 2, "givenUp": 1, "oldestAt": "2026-11-26T12:00:00Z"}
    assert counts == expected
    assert [condition["type"] for condition in plan.status["conditions"]] == [
        "Ready",
        "Reconciling",
        "Stalled",
        "TopicsDistinct",
    ]


@pytest.mark.parametrize("change", [{"max_parallel": 1}, {"rate": "1/1s"}])
def test_settings_that_another_client_changed_are_reverted(change: dict[str, Any], queue_of: Any, author: Any) -> None:
    queue = known(queue_of({"workers": None}), author)
    assert kinds(plan_job_queue(queue, seen(author, view(**change)))) == [SetQueue, RecordEvent]


@pytest.mark.parametrize(
    ("wanted", "found", "ours", "expected"),
    [(True, False, None, [True]), (True, True, True, []), (False, True, True, [False]), (False, True, None, [])],
    ids=["suspend", "is suspended", "resume", "suspended by a person"],
)
def test_a_queue_is_resumed_only_if_this_object_suspended_it(
    wanted: bool, found: bool, ours: bool | None, expected: list[bool], queue_of: Any, author: Any
) -> None:
    queue = known(queue_of({"workers": None, "suspend": wanted}), author, suspended=ours)
    plan = plan_job_queue(queue, seen(author, view(suspended=found)))
    assert [action.suspended for action in plan.actions if isinstance(action, SuspendQueue)] == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"publisher": None}, "PublisherMissing"),
        ({"owner": ("other", "cdn")}, "QueueTaken"),
        ({"token": None}, "SecretMissing"),
        ({"error": AgentRefusedError("no", error="JobQueueMissing")}, "JobQueueMissing"),
        ({"error": SILENT}, "AgentUnreachable"),
    ],
)
def test_nothing_is_changed_while_something_is_missing(
    change: dict[str, Any], reason: str, queue_of: Any, author: Any
) -> None:
    plan = plan_job_queue(queue_of(), seen(author, **change))
    assert (plan.actions, condition(plan)) == ((), ("False", reason))


def test_overlapping_queues_are_reported_with_the_one_that_gets_the_jobs(queue_of: Any, author: Any) -> None:
    queue = known(queue_of({"workers": None}), author)
    plan = plan_job_queue(queue, seen(author, view(), view(queue="all", topics=("**",))))
    assert condition(plan, "TopicsDistinct") == ("False", "TopicsOverlap")
    assert [action.message for action in plan.actions if isinstance(action, RecordEvent)] == [
        "patterns overlap with those of all; all, the first by name, gets such jobs"
    ]


def test_the_queue_of_a_pool_overlaps_with_no_pattern(queue_of: Any, author: Any) -> None:
    queue = known(queue_of({"topics": ["**"], "workers": None}), author)
    pool = AgentName("web")
    plan = plan_job_queue(queue, seen(author, view(queue=pool_queue(pool), topics=(pool_topic(pool),))))
    assert condition(plan, "TopicsDistinct") == ("True", "NoOverlap")


def children(queue: JobQueue, *, has_keda: bool = True, policy: AgentPolicy | None = None) -> dict[str, Any]:
    assert queue.spec.workers is not None
    made = queue_children(queue, queue.spec.workers, IMAGE, "7", has_keda=has_keda, policy=policy or AgentPolicy())
    return {item["kind"]: item["spec"] for item in made}


def test_workers_are_scaled_from_zero_by_due_and_running_jobs(queue_of: Any) -> None:
    made = children(queue_of())
    assert set(made) == {"Deployment", "ScaledObject", "TriggerAuthentication"}
    scaled = made["ScaledObject"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 2), "8 calls at the same time fill 2 workers"
    asked = [
        (trigger["metadata"]["valueLocation"], trigger["metadata"]["targetValue"]) for trigger in scaled["triggers"]
    ]
    assert asked == [("due", "10"), ("active", "4")]
    assert scaled["triggers"][0]["metadata"]["url"] == "http://author.shop.svc:8080/api/v1/jobs/queues/cdn"
    assert "replicas" not in made["Deployment"]


def test_a_worker_has_longer_to_end_than_its_jobs(queue_of: Any) -> None:
    pod = children(queue_of())["Deployment"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    finish = int(arguments[arguments.index("--shutdown-seconds") + 1])
    assert (finish, pod["terminationGracePeriodSeconds"]) == (600, 620)
    assert pod["shareProcessNamespace"]  # else it would ignore a SIGTERM that comes while it starts
    assert arguments[:2] == ["worker", "run"]
    assert arguments[-4:] == ["--on", "purge.*=./purge.sh", "--import", "warm_jobs"]


def test_without_keda_an_autoscaler_keeps_one_worker(queue_of: Any) -> None:
    made = children(queue_of(), has_keda=False)
    scaler = made["HorizontalPodAutoscaler"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 2)


@pytest.mark.parametrize(
    ("limit", "workers", "expected"),
    [
        (None, {}, 5),
        (21, {}, 5),
        (9, {}, 3),
        (1, {}, 1),
        (4, {"min": 2}, 2),
    ],
)
def test_workers_whose_slots_would_stay_empty_are_not_started(
    limit: int | None, workers: dict[str, Any], expected: int, queue_of: Any
) -> None:
    queue = queue_of({"maxParallel": limit, "workers": workers})
    assert most_workers(queue, queue.spec.workers) == expected
    assert ("ScaledObject" in children(queue)) == (expected > queue.spec.workers.min)


def test_a_fixed_number_of_workers_has_no_autoscaler(queue_of: Any) -> None:
    made = children(queue_of({"workers": {"min": 5}}))
    assert (set(made), made["Deployment"]["replicas"]) == ({"Deployment"}, 5)


def test_workers_may_reach_an_agent_behind_a_network_policy(queue_of: Any) -> None:
    policy = children(queue_of(), policy=AgentPolicy(ingress=[]))["NetworkPolicy"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "author"
    assert policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "cdn"


def test_workers_keep_their_number_when_an_autoscaler_takes_over(queue_of: Any, author: Any) -> None:
    def deployments(plan: Plan) -> list[Any]:
        return [
            action.manifest
            for action in plan.actions
            if isinstance(action, Apply | Correct) and action.manifest["kind"] == "Deployment"
        ]

    (fixed,) = deployments(plan_job_queue(queue_of({"workers": {"min": 5}}), seen(author)))
    children = {key_of(fixed): fixed}
    (scaled,) = deployments(plan_job_queue(known(queue_of(), author), seen(author, view(), children=children)))
    assert (fixed["spec"]["replicas"], scaled["spec"]["replicas"]) == (5, 5)
    grown = {key_of(scaled): {**scaled, "spec": {**scaled["spec"], "replicas": 7}}}
    later = plan_job_queue(known(queue_of(), author), seen(author, view(), children=grown))
    assert deployments(later) == [], "the number is the autoscaler's"


BACK_OFF = {"name": "mailboat", "image": "m:2", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
BROKEN = {"metadata": {"name": "cdn-workers-2"}, "status": {"containerStatuses": [BACK_OFF]}}
QUOTA = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@pytest.mark.parametrize(
    ("conditions", "ready", "expected"),
    [
        ([], 0, ("PodsNotReady", "False", "0 of 2 workers ready")),
        ([QUOTA], 0, ("PodNotCreated", "False", "0 of 2 workers ready; exceeded quota: pods")),
        ([QUOTA], 1, ("AsSpecified", "False", "1 of 2 workers ready")),
        ([LATE], 0, ("ProgressDeadlineExceeded", "True", "0 of 2 workers ready. No progress for 10 minutes")),
        ([LATE], 1, ("AsSpecified", "False", "1 of 2 workers ready")),
    ],
)
def test_workers_that_do_not_start_have_a_cause_and_a_deadline(
    conditions: list[Any], ready: int, expected: tuple[str, str, str], queue_of: Any, author: Any
) -> None:
    made = [action.manifest for action in plan_job_queue(queue_of(), seen(author)).actions if isinstance(action, Apply)]
    deployment = next(item for item in made if item["kind"] == "Deployment")
    deployment["spec"]["replicas"] = 2
    deployment["status"] = {"readyReplicas": ready, "unavailableReplicas": 2 - ready, "conditions": conditions}
    children = {key_of(item): item for item in made}
    plan = plan_job_queue(known(queue_of(), author), seen(author, view(), children=children))
    assert plan.status is not None
    found = {condition["type"]: condition for condition in plan.status["conditions"]}
    assert (found["Ready"]["reason"], found["Stalled"]["status"], found["Ready"]["message"]) == expected


@pytest.mark.parametrize(
    ("status", "pods", "expected"),
    [
        ({"replicas": 2, "updatedReplicas": 1}, (), ("RollingOut", "False")),
        ({"replicas": 2, "updatedReplicas": 1}, (BROKEN,), ("ImagePullFailed", "False")),
        ({"replicas": 2, "updatedReplicas": 1, "conditions": [LATE]}, (), ("ProgressDeadlineExceeded", "True")),
        ({"replicas": 3, "updatedReplicas": 3}, (), ("AsSpecified", "False")),  # an autoscaler's step
    ],
)
def test_workers_are_ready_when_those_of_an_earlier_template_are_replaced(
    status: dict[str, Any], pods: Any, expected: tuple[str, str], queue_of: Any, author: Any
) -> None:
    """The old worker stays until a new one is ready: one that works says nothing of an image that cannot be pulled."""
    queue = known(queue_of(), author)
    made = [action.manifest for action in plan_job_queue(queue, seen(author)).actions if isinstance(action, Apply)]
    deployment = next(item for item in made if item["kind"] == "Deployment")
    deployment["spec"]["replicas"] = 1
    deployment["status"] = {"readyReplicas": 1, **status}
    children = {key_of(item): item for item in made}
    plan = plan_job_queue(queue, seen(author, view(), children=children, pods=Pods(pods)))
    assert plan.status is not None
    found = {condition["type"]: condition for condition in plan.status["conditions"]}
    assert (found["Ready"]["reason"], found["Stalled"]["status"]) == expected


def test_workers_are_not_ready_before_their_change_has_reached_them(queue_of: Any, author: Any) -> None:
    def looked(queue: Any, children: Any) -> tuple[Plan, Any]:
        plan = plan_job_queue(queue, seen(author, view(), children=children))
        made = [action.manifest for action in plan.actions if isinstance(action, Apply)]
        return plan, children | {key_of(item): item for item in made}

    def described(children: Any, generation: int) -> Any:
        key = next(key for key in children if key.kind == "Deployment")
        found = {**children[key], "status": {"readyReplicas": 1, "observedGeneration": 1}}
        found["metadata"] = {**found["metadata"], "generation": generation}
        found["spec"] = {**found["spec"], "replicas": 1}
        return {**children, key: found}

    _, children = looked(known(queue_of(), author), {})
    settled, children = looked(known(queue_of(), author), described(children, 1))
    assert condition(settled) == ("True", "AsSpecified")
    scaled, _ = looked(after(queue_of(), settled), described(children, 2))
    assert scaled.status is None or condition(scaled) == ("True", "AsSpecified"), "of an autoscaler's step"
    changed = queue_of({"workers": {"image": "registry.example/workers:2"}})
    applied_now, children = looked(after(changed, settled), described(children, 1))
    assert condition(applied_now) == ("False", "RollingOut")
    unseen, _ = looked(after(changed, applied_now), described(children, 2))
    assert unseen.status is None or condition(unseen) == ("False", "RollingOut"), "its controller has not seen it"


def after(queue: Any, plan: Plan) -> Any:
    """The queue with the status that a plan wrote."""
    assert plan.status is not None
    manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "JobQueue", "status": dict(plan.status)}
    metadata = {"name": queue.metadata.name, "namespace": "shop", "uid": "0-1-2-3", "generation": 1}
    return decode({**manifest, "metadata": metadata, "spec": encode(queue.spec)})


def test_workers_that_are_no_longer_wanted_are_deleted(queue_of: Any, author: Any) -> None:
    made = [action.manifest for action in plan_job_queue(queue_of(), seen(author)).actions if isinstance(action, Apply)]
    for item in made:
        item["metadata"]["uid"] = "child"
    queue = known(queue_of({"workers": None}), author)
    plan = plan_job_queue(queue, seen(author, view(), children={key_of(item): item for item in made}))
    assert {action.key.kind for action in plan.actions if isinstance(action, Delete)} == {item["kind"] for item in made}


@pytest.mark.parametrize(
    ("policy", "is_held", "change", "expected"),
    [
        ("Retain", True, {}, [Hold]),
        ("Delete", True, {}, [RemoveQueue, Hold, RecordEvent]),
        ("Delete", False, {}, []),
        ("Delete", True, {"owner": ("other", "cdn")}, [Hold, RecordEvent]),
        ("Delete", True, {"publisher": None}, [Hold, RecordEvent]),
        ("Delete", True, {"error": SILENT}, []),
        ("Delete", True, {"error": SILENT, "now": NOW + timedelta(seconds=RECLAIM_SECONDS)}, [Hold, RecordEvent]),
    ],
)
def test_a_deleted_queue_keeps_its_jobs_unless_told_otherwise(
    policy: str, is_held: bool, change: dict[str, Any], expected: list[type], queue_of: Any, author: Any
) -> None:
    queue = queue_of({"reclaimPolicy": policy}, is_held=is_held, deleted_seconds_ago=0)
    assert kinds(plan_job_queue(queue, seen(author, view(), **change))) == expected


def test_the_jobs_of_a_default_queue_outlive_its_object(queue_of: Any, author: Any) -> None:
    queue = queue_of({"reclaimPolicy": "Delete"}, is_held=True, deleted_seconds_ago=0)
    default = replace(queue, metadata=replace(queue.metadata, name="default"))
    assert kinds(plan_job_queue(default, seen(author, view(queue="default")))) == [Hold, RecordEvent]


def test_the_finalizer_is_there_before_anything_that_it_has_to_remove(queue_of: Any, author: Any) -> None:
    assert plan_job_queue(queue_of({"reclaimPolicy": "Delete"}), seen(author)).actions == (Hold(is_held=True),)


@pytest.mark.parametrize(
    "change",
    [
        {"rate": {"starts": 1_000_000, "period": "1d"}, "merge": {"jobs": 256, "within": "24h"}, "history": "99999d"},
        {"retries": {"max": 30_000, "firstPause": "0s", "longestPause": "1ms"}, "maxParallel": 1_000_000},
        {"retries": {"unlimited": True}, "topics": ["**"], "merge": {"jobs": 2, "within": "0s"}},
    ],
)
def test_the_extreme_settings_of_a_queue_are_valid_for_the_journal(change: dict[str, Any], queue_of: Any) -> None:
    settings = settings_of(queue_of(change))
    assert decode_job_record(*encode_job_record(QueueDefined(settings))) == QueueDefined(settings)


class TwoNamespaces:
    """What an observation reads: the same object in another namespace, on a log of its own or the same one."""

    now, image = NOW, IMAGE
    systems = Systems()

    def __init__(self, author: Any, other: Any, prefix: str) -> None:
        self.author, self.other, self.prefix = author, other, prefix

    async def publisher(self, namespace: str, _: str) -> Any:
        return replace(self.author, metadata=replace(self.author.metadata, namespace=namespace))

    async def journal(self, namespace: str, _: str) -> Any:
        prefix = self.prefix if namespace == "other" else "shop-"
        journal = stored({**JOURNAL, "spec": {"kafka": KAFKA, "topics": {"prefix": prefix}}})
        return replace(journal, status=replace(journal.status, cluster_id="one"))

    async def job_queues(self) -> list[Any]:
        return [self.other]

    job_schedules = job_queues

    async def agent_of(self, _: Any) -> Any:
        raise SILENT


@pytest.mark.parametrize(
    ("prefix", "made", "owner"),
    [
        ("shop-", "2026-01-01T00:00:00Z", ("other", "cdn")),
        ("news-", "2026-01-01T00:00:00Z", None),
    ],
    ids=["older", "another log"],
)
def test_the_older_of_two_objects_keeps_a_queue_of_one_log(
    prefix: str, made: str, owner: tuple[str, str] | None, queue_of: Any, author: Any
) -> None:
    ours, theirs = queue_of(deleted_seconds_ago=0), queue_of()
    ours = replace(ours, metadata=replace(ours.metadata, created_at=datetime(2026, 2, 1, tzinfo=UTC)))
    created = datetime.fromisoformat(made)
    theirs = replace(theirs, metadata=replace(theirs.metadata, namespace="other", created_at=created))
    reader = TwoNamespaces(author, theirs, prefix)

    found = asyncio.run(observe_job_queue(cast("Any", reader), ours))
    assert (found.owner, found.error) == (owner, SILENT)


def test_a_deleted_object_leaves_its_queue_to_a_younger_one_that_stays(queue_of: Any, author: Any) -> None:
    ours, theirs = queue_of(deleted_seconds_ago=0), queue_of()
    ours = replace(ours, metadata=replace(ours.metadata, created_at=datetime(2026, 2, 1, tzinfo=UTC)))
    younger = datetime(2026, 3, 1, tzinfo=UTC)
    theirs = replace(theirs, metadata=replace(theirs.metadata, namespace="other", created_at=younger))
    reader = TwoNamespaces(author, theirs, "shop-")
    found = asyncio.run(observe_job_queue(cast("Any", reader), ours))
    assert found.owner == ("other", "cdn"), "its queued jobs would be dropped"


def test_of_two_objects_that_are_deleted_together_none_leaves_its_queue_to_the_other(
    queue_of: Any, author: Any
) -> None:
    ours = queue_of(deleted_seconds_ago=0)
    ours = replace(ours, metadata=replace(ours.metadata, created_at=datetime(2026, 2, 1, tzinfo=UTC)))
    older = datetime(2026, 1, 1, tzinfo=UTC)
    theirs = replace(ours, metadata=replace(ours.metadata, namespace="other", created_at=older))
    found = asyncio.run(observe_job_queue(cast("Any", TwoNamespaces(author, theirs, "shop-")), ours))
    assert found.owner is None


@pytest.mark.parametrize(("made", "owner"), [("2026-01-01", ("other", "nightly")), ("2026-03-01", None)])
def test_the_older_of_two_objects_keeps_a_schedule_of_one_log(
    made: str, owner: tuple[str, str] | None, schedule_of_manifest: Any, author: Any
) -> None:
    ours = schedule_of_manifest()
    ours = replace(ours, metadata=replace(ours.metadata, created_at=datetime(2026, 2, 1, tzinfo=UTC)))
    created = datetime.fromisoformat(made).replace(tzinfo=UTC)
    theirs = replace(ours, metadata=replace(ours.metadata, namespace="other", created_at=created))
    reader = TwoNamespaces(author, theirs, "shop-")
    found = asyncio.run(observe_job_schedule(cast("Any", reader), ours))
    assert (found.owner, found.error) == (owner, SILENT)


# Schedules


def schedule_view(**changes: Any) -> JobScheduleView:
    fields = {"cron": "0 3 * * *", "zone": "Europe/Berlin", "every_seconds": None, "at": None, "missed": "once"}
    return JobScheduleView(
        **{"schedule": "nightly", "topic": "report.build", "key": "", "data": {}, "next_at": NOW, **fields, **changes}
    )


@pytest.fixture
def schedule_of_manifest(manifest_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    return lambda change=None, **how: stored(manifest_of("JobSchedule", change), **{"is_held": True, **how})


def scheduled(author: Any, *views: JobScheduleView, **changes: Any) -> JobScheduleObservation:
    return replace(JobScheduleObservation(NOW, author, views), **changes)


def applied(schedule: Any, author: Any) -> Any:
    plan = plan_job_schedule(schedule, scheduled(author))
    assert plan.status is not None
    return replace(schedule, status=replace(schedule.status, applied=plan.status["applied"]))


def test_a_schedule_is_written_once_and_again_after_a_change(schedule_of_manifest: Any, author: Any) -> None:
    schedule = schedule_of_manifest()
    assert kinds(plan_job_schedule(schedule, scheduled(author))) == [SetSchedule]
    kept = plan_job_schedule(applied(schedule, author), scheduled(author, schedule_view()))
    assert (kinds(kept), condition(kept)) == ([], ("True", "AsSpecified"))
    assert kept.status is not None
    assert kept.status["nextAt"] == "2026-11-26T12:00:00Z"
    changed = replace(schedule_of_manifest({"data": "{}"}), status=applied(schedule, author).status)
    assert kinds(plan_job_schedule(changed, scheduled(author, schedule_view()))) == [SetSchedule]
    drifted = plan_job_schedule(applied(schedule, author), scheduled(author, schedule_view(cron="1 3 * * *")))
    assert kinds(drifted) == [SetSchedule, RecordEvent]


def test_a_single_due_time_that_has_passed_is_not_set_again(schedule_of_manifest: Any, author: Any) -> None:
    once = schedule_of_manifest({"cron": None, "timeZone": None, "at": "2026-11-26T11:00:00Z"})
    plan = plan_job_schedule(applied(once, author), scheduled(author))
    assert plan.actions == ()
    assert plan.status is not None
    assert "it was removed from the journal" in plan.status["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("at", "expected"),
    [("2026-11-26T11:00:00Z", []), ("2026-11-26T11:30:00Z", [SetSchedule]), ("2026-11-27T11:00:00Z", [SetSchedule])],
)
def test_a_single_due_time_that_has_passed_is_not_repeated_for_a_new_payload(
    at: str, expected: list[type], schedule_of_manifest: Any, author: Any
) -> None:
    """Another due time is another job, also one that passed while no operator looked."""
    once = schedule_of_manifest({"cron": None, "timeZone": None, "at": "2026-11-26T11:00:00Z"})
    changed = schedule_of_manifest({"cron": None, "timeZone": None, "at": at, "data": "{}"})
    changed = replace(changed, status=applied(once, author).status)
    for views in ([], [schedule_view(cron="", zone="", next_at=None)]):  # removed; fired
        assert kinds(plan_job_schedule(changed, scheduled(author, *views))) == expected
    waiting = schedule_view(cron="", zone="", next_at=NOW - timedelta(hours=1))
    assert kinds(plan_job_schedule(changed, scheduled(author, waiting))) == [SetSchedule], "it has not fired yet"


def test_a_single_due_time_to_come_that_another_client_removed_is_set_again(
    schedule_of_manifest: Any, author: Any
) -> None:
    once = schedule_of_manifest({"cron": None, "timeZone": None, "at": "2026-11-27T11:00:00Z"})
    assert kinds(plan_job_schedule(applied(once, author), scheduled(author))) == [SetSchedule, RecordEvent]


def test_a_schedule_of_an_older_object_is_left_alone(schedule_of_manifest: Any, author: Any) -> None:
    taken = scheduled(author, schedule_view(cron="1 3 * * *"), owner=("other", "nightly"))
    plan = plan_job_schedule(applied(schedule_of_manifest(), author), taken)
    assert (plan.actions, condition(plan)) == ((), ("False", "ScheduleTaken"))
    deleted = plan_job_schedule(schedule_of_manifest(deleted_seconds_ago=0), taken)
    assert kinds(deleted) == [Hold, RecordEvent]
    (event,) = (action for action in deleted.actions if isinstance(action, RecordEvent))
    assert event.message == "schedule nightly stays in the journal: another JobSchedule keeps it"


def test_a_suspended_schedule_leaves_the_journal(schedule_of_manifest: Any, author: Any) -> None:
    schedule = schedule_of_manifest({"suspend": True})
    plan = plan_job_schedule(schedule, scheduled(author, schedule_view()))
    assert (kinds(plan), condition(plan)) == ([RemoveSchedule], ("Unknown", "Suspended"))


@pytest.mark.parametrize(
    ("views", "change", "expected"),
    [
        ([schedule_view()], {}, [RemoveSchedule, Hold]),
        ([], {}, [Hold]),
        ([], {"publisher": None}, [Hold, RecordEvent]),
        ([], {"error": SILENT}, []),
        ([], {"error": SILENT, "now": NOW + timedelta(seconds=RECLAIM_SECONDS)}, [Hold, RecordEvent]),
    ],
)
def test_a_deleted_schedule_is_removed_from_the_journal(
    views: list[JobScheduleView],
    change: dict[str, Any],
    expected: list[type],
    schedule_of_manifest: Any,
    author: Any,
) -> None:
    schedule = schedule_of_manifest(deleted_seconds_ago=0)
    assert kinds(plan_job_schedule(schedule, scheduled(author, *views, **change))) == expected


def test_a_schedule_without_the_finalizer_is_held_first(schedule_of_manifest: Any, author: Any) -> None:
    plan = plan_job_schedule(schedule_of_manifest(is_held=False), scheduled(author))
    assert plan.actions == (Hold(is_held=True),)


def test_the_largest_payload_of_a_schedule_is_valid_for_the_journal(schedule_of_manifest: Any) -> None:
    schedule = schedule_of(schedule_of_manifest({"data": "x" * 16_384, "key": "k" * 253}))
    record = ScheduleDefined(schedule._replace(next_ms=1))
    assert decode_job_record(*encode_job_record(record)) == record


def test_merging_waits_equally_long_by_default_in_every_interface() -> None:
    assert Merge(jobs=2).within_seconds * 1000 == QueueOrder(merge=2).merge_within_ms == 2_000
    root: Any = typer.main.get_command(build_app())
    (option,) = [each for each in root.commands["jobs"].commands["set-queue"].params if each.name == "merge_within"]
    assert parse_duration_ms(option.default) == 2_000


FORBIDDEN = httpx2.Response(403, request=httpx2.Request("GET", "https://kubernetes.example/"))


@pytest.mark.parametrize(
    ("served", "asked", "found_in"),
    [
        ((), ["*"], ["*"]),
        (("news", "shop"), ["news", "shop"], ["news", "shop"]),
        (("gone", "shop"), ["gone", "shop"], ["shop"]),
    ],
)
def test_objects_of_one_log_are_looked_for_where_the_operator_serves(
    served: tuple[str, ...], asked: list[str], found_in: list[str], manifest_of: Callable[..., dict[str, Any]]
) -> None:
    """An operator with Roles in two namespaces may not list all, and serves both, or the one that is left."""
    listed = list[str]()

    class Cluster:
        async def list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
            listed.append(namespace)
            if namespace == "gone":
                cause = httpx2.HTTPStatusError("forbidden", request=FORBIDDEN.request, response=FORBIDDEN)
                raise ClusterRefusedError("listing JobQueue in gone") from cause
            manifest = manifest_of(kind)
            return [{**manifest, "metadata": {**manifest["metadata"], "namespace": namespace, "uid": namespace}}]

    parts: list[Any] = [Cluster(), None, IMAGE, Systems(namespaces=served), None]
    found = asyncio.run(ClusterReader(*parts).job_queues())
    assert ([queue.metadata.namespace for queue in found], listed) == (found_in, asked)


@pytest.mark.parametrize(("at", "expected"), [("2026-11-26T11:00:00Z", []), ("2026-11-27T11:00:00Z", [SetSchedule])])
def test_a_single_due_time_that_passes_during_a_suspension_is_skipped(
    at: str, expected: list[type], schedule_of_manifest: Any, author: Any
) -> None:
    once = {"cron": None, "timeZone": None, "at": at}
    held = schedule_of_manifest({**once, "suspend": True})
    plan = plan_job_schedule(replace(held, status=replace(held.status, applied="digest")), scheduled(author))
    assert plan.status is not None
    resumed = schedule_of_manifest(once)
    resumed = replace(resumed, status=replace(resumed.status, applied=plan.status["applied"]))
    assert kinds(plan_job_schedule(resumed, scheduled(author))) == expected
