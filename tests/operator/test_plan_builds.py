"""What becomes of PackageBuilds: attempts, deadlines, and what their applications look like, decided purely."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.api.records import BuildView
from mailboat_operator.definition.conditions import Condition, ConditionStatus
from mailboat_operator.definition.resource_decoder import decode_as
from mailboat_operator.kinds.finished import LONGEST_SLEEP_SECONDS
from mailboat_operator.kinds.package_build.manifests import SPARK_VERSION
from mailboat_operator.kinds.package_build.plan import plan_build
from mailboat_operator.kinds.package_build.prerequisites import BuildObservation
from mailboat_operator.kinds.package_build.spec import BuildPhase, PackageBuild, PackageBuildStatus, SparkOperator
from mailboat_operator.kinds.registry import KINDS_BY_NAME, decode
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply, Delete, Plan, RecordEvent
from mailboat_operator.plan.child_manifest import key_of
from mailboat_operator.plan.labels import PAUSED
from mailboat_operator.workload.pods import AgentImage

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
UID = "6f1c0de0-0000-4000-8000-000000000001"
BLOBS = {"s3": {"bucket": "shop", "credentialsSecretRef": {"name": "keys"}}}
SECRETS = {"keys": SecretFound("7", frozenset({"accessKeyId", "secretAccessKey"}))}


def progress_of(published: int, total: int) -> BuildView:
    return BuildView("build", "author", "publishing", published, total, 0, 0, 0, 0, 0)


def made(kind: str, name: str, spec: dict[str, Any], uid: str = UID) -> Any:
    """An object as the API server would give it, read."""
    metadata = {"name": name, "namespace": "shop", "uid": uid, "generation": 1}
    metadata["creationTimestamp"] = "2026-11-21T00:00:00Z"
    return decode({"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})


JOURNAL = made("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}, "blobs": BLOBS})
PUBLISHER = made("Publisher", "author", {"journalRef": {"name": "main"}, "source": {"volumeClaim": {"name": "site"}}})


def build(status: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A build, as far as `status` says."""
    one = made("PackageBuild", "first", {"publisherRef": {"name": "author"}, "roots": ["/"], **spec})
    return replace(one, status=replace(PackageBuildStatus(), **(status or {})))


def seen(*children: dict[str, Any], now: datetime = NOW, **changes: Any) -> BuildObservation:
    """Everything is there, and the children that are given."""
    live = {key_of(child): child for child in children}
    context = WorkloadContext(changes.pop("journal", JOURNAL), SECRETS, live, AgentImage("mailboat:1"), now)
    return replace(BuildObservation(context, PUBLISHER, image=AgentImage("spark:1", "Never")), **changes)


def applications(plan: Plan) -> list[dict[str, Any]]:
    """The applications that are asked for."""
    return [
        action.manifest
        for action in plan.actions
        if isinstance(action, Apply) and action.manifest["kind"] == "SparkApplication"
    ]


def condition(plan: Plan, kind: str = "Ready") -> dict[str, Any]:
    assert plan.status is not None
    return next(condition for condition in plan.status["conditions"] if condition["type"] == kind)


def reasons(plan: Plan) -> list[str]:
    """Of the Events."""
    return [action.reason for action in plan.actions if isinstance(action, RecordEvent)]


def after(one: PackageBuild, plan: Plan) -> PackageBuild:
    """The build once the plan's status was written."""
    assert plan.status is not None
    manifest = {
        "apiVersion": "mailboat.dev/v1alpha1",
        "kind": "PackageBuild",
        "metadata": {"name": one.metadata.name},
        "spec": {"publisherRef": {"name": "author"}, "roots": ["/"]},
        "status": dict(plan.status),
    }
    read: Any = decode_as(KINDS_BY_NAME["PackageBuild"], manifest)
    return replace(one, status=read.status)


def told(manifest: dict[str, Any], state: str, *, age: float = 5.0, **more: Any) -> dict[str, Any]:
    """An application of kubeflow's, as its operator tells of it."""
    created = (NOW - timedelta(seconds=age)).isoformat()
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": "uid-application", "creationTimestamp": created},
        "status": {"applicationState": {"state": state, "errorMessage": more.pop("error", "")}, **more},
    }


RUNNING = {"executorState": {"first-1-exec-1": "RUNNING"}}
WAITING = {"executorState": {"first-1-exec-1": "PENDING", "first-1-exec-2": "PENDING"}}
TOO_LATE = 601.0
"""Seconds after which an attempt that does not run is ended."""


def started(**spec: Any) -> tuple[PackageBuild, dict[str, Any]]:
    """A build whose first attempt was asked for, and its application."""
    one = build(**spec)
    plan = plan_build(one, seen())
    (application,) = applications(plan)
    return after(one, plan), application


def test_a_build_becomes_one_application_in_the_name_of_its_first_attempt() -> None:
    plan = plan_build(build(), seen())
    (application,) = applications(plan)
    assert application["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert application["metadata"]["name"] == "first-1"
    assert f"--build-id={UID}" in application["spec"]["arguments"]
    assert plan.status is not None
    assert (plan.status["phase"], plan.status["attempt"]) == ("Starting", 1)
    assert (condition(plan)["status"], condition(plan, "Reconciling")["status"]) == ("False", "True")


def test_the_other_engine_s_application_is_of_its_own_group() -> None:
    (application,) = applications(plan_build(build(engine="apache"), seen()))
    assert application["apiVersion"] == "spark.apache.org/v1"
    assert application["kind"] == "SparkApplication"


def test_an_application_from_before_a_crash_is_not_made_again_and_never_changed() -> None:
    one, application = started()
    changed = replace(one, spec=replace(one.spec, executors=replace(one.spec.executors, instances=9)))
    from_before = plan_build(replace(changed, status=PackageBuildStatus()), seen(application))
    assert [action for action in from_before.actions if isinstance(action, Delete)] == []
    assert applications(from_before) == []
    assert applications(plan_build(changed, seen(told(application, "SUBMITTED")))) == []


def test_a_running_build_tells_how_many_packages_are_in_the_journal() -> None:
    one, application = started()
    plan = plan_build(one, seen(told(application, "RUNNING", **RUNNING), progress=progress_of(12, 40)))
    assert plan.status is not None
    assert (plan.status["phase"], plan.status["packages"]) == ("Running", "12/40")
    assert "12 of 40 packages" in condition(plan)["message"]
    assert plan_build(after(one, plan), seen(told(application, "RUNNING"), progress=progress_of(12, 40))).status is None


def test_a_driver_whose_executors_wait_for_room_is_starting_still() -> None:
    one, application = started()
    plan = plan_build(one, seen(told(application, "RUNNING", **WAITING)))
    assert plan.status is not None
    assert plan.status["phase"] == "Starting"


def driving(engine: SparkOperator, application: dict[str, Any], age: float) -> dict[str, Any]:
    """An application whose driver runs, and nothing else of it."""
    if engine is SparkOperator.KUBEFLOW:
        return told(application, "RUNNING", age=age)
    return {**told(application, "", age=age), "status": {"currentState": {"currentStateSummary": "DriverReady"}}}


@pytest.mark.parametrize("engine", SparkOperator)
@pytest.mark.parametrize("heard", [progress_of(450_000, 900_000), None], ids=["heard", "heard before"])
def test_a_driver_that_only_publishes_runs_without_executors_for_as_long_as_it_takes(
    engine: SparkOperator, heard: BuildView | None
) -> None:
    one, application = started(engine=str(engine))
    half_done = {"packages_done": 450_000, "packages_total": 900_000, "packages": "450000/900000"}
    plan = plan_build(
        replace(one, status=replace(one.status, **half_done)),
        seen(driving(engine, application, TOO_LATE), progress=heard),
    )
    assert plan.status is not None
    assert (plan.status["phase"], condition(plan)["reason"]) == ("Running", "Running")
    assert not [action for action in plan.actions if isinstance(action, Delete)]


@pytest.mark.parametrize("engine", SparkOperator)
def test_a_driver_that_has_published_nothing_and_gets_no_executors_is_ended_in_time(engine: SparkOperator) -> None:
    one, application = started(engine=str(engine))
    assert condition(plan_build(one, seen(driving(engine, application, 599.0))))["reason"] == "Starting"
    plan = plan_build(one, seen(driving(engine, application, TOO_LATE)))
    assert condition(plan)["reason"] == "StartDeadlineExceeded"
    assert [action.key.name for action in plan.actions if isinstance(action, Delete)] == ["first-1"]


def test_unschedulable_executors_end_in_time_also_for_a_resumed_build() -> None:
    one, application = started()
    half_done = progress_of(100, 242)
    ran = after(one, plan_build(one, seen(told(application, "RUNNING"), progress=half_done)))
    assert ran.status.phase is BuildPhase.RUNNING, "the driver looks what became of the build"
    plan = plan_build(ran, seen(told(application, "RUNNING", age=TOO_LATE, **WAITING), progress=half_done))
    assert condition(plan)["reason"] == "StartDeadlineExceeded"


def test_executors_that_are_lost_and_replaced_end_no_attempt_that_ran() -> None:
    one, application = started()
    ran = after(one, plan_build(one, seen(told(application, "RUNNING", **RUNNING), progress=progress_of(1, 9))))
    replaced = {"executorState": {"first-1-exec-1": "FAILED", "first-1-exec-2": "PENDING"}}
    plan = plan_build(ran, seen(told(application, "RUNNING", age=TOO_LATE, **replaced), progress=progress_of(1, 9)))
    assert plan.status is None


def test_the_other_engine_s_operator_ends_no_driver_that_has_no_executors() -> None:
    (application,) = applications(plan_build(build(engine="apache"), seen()))
    limits = application["spec"]["applicationTolerations"]["applicationTimeoutConfig"]
    assert limits["executorStartTimeoutMillis"] == 0, "0 is none; the deadline is ours"
    assert limits["driverStartTimeoutMillis"] == 600_000


def test_a_complete_build_is_ready_and_complete_and_its_application_stays() -> None:
    one, application = started()
    plan = plan_build(one, seen(told(application, "COMPLETED"), progress=progress_of(40, 40)))
    assert (condition(plan)["status"], condition(plan, "Complete")["status"]) == ("True", "True")
    assert reasons(plan) == ["Complete"]
    assert not [action for action in plan.actions if isinstance(action, Delete)]
    assert plan_build(after(one, plan), seen()) == Plan((), None, LONGEST_SLEEP_SECONDS)


def test_a_build_that_was_overtaken_is_complete_as_another_one_and_shows_no_figures_of_its_own() -> None:
    one, application = started()
    half_done = progress_of(100, 242)
    ran = after(one, plan_build(one, seen(told(application, "RUNNING", **RUNNING), progress=half_done)))
    plan = plan_build(ran, seen(told(application, "COMPLETED"), progress=half_done))
    assert plan.status is not None
    assert plan.status["phase"] == "Completed"
    assert not {"packages", "packagesDone", "packagesTotal"} & plan.status.keys()
    message = condition(plan)["message"]
    assert message.startswith("complete as another build: other packages of the source were published after 100 of 242")
    assert condition(plan, "Complete")["status"] == "True"


def test_a_build_whose_end_no_agent_tells_is_complete_without_the_figures_of_an_earlier_look() -> None:
    one, application = started()
    ran = after(one, plan_build(one, seen(told(application, "RUNNING", **RUNNING), progress=progress_of(230, 242))))
    plan = plan_build(ran, seen(told(application, "COMPLETED")))
    assert plan.status is not None
    assert "packages" not in plan.status
    assert "reports no package count" in condition(plan)["message"]


def test_a_build_that_had_nothing_to_publish_is_complete() -> None:
    one, application = started()
    assert condition(plan_build(one, seen(told(application, "COMPLETED"))))["message"] == (
        "complete: no package in the journal"
    )


def test_a_failed_attempt_is_followed_by_another_of_the_same_build_id_after_a_pause() -> None:
    one, application = started(retries=1)
    failed = told(application, "FAILED", error="driver container failed with exit code 1")
    plan = plan_build(one, seen(failed))
    assert (condition(plan)["reason"], plan.again_seconds) == ("ApplicationFailed", 5.0)
    assert "exit code 1" in condition(plan)["message"]
    waiting = after(one, plan)
    early = plan_build(waiting, seen(failed, now=NOW + timedelta(seconds=2)))
    assert (early.actions, early.status) == ((), None)
    changed = replace(waiting, metadata=replace(waiting.metadata, generation=2))
    told_again = plan_build(changed, seen(failed, now=NOW + timedelta(seconds=2)))
    assert (condition(told_again)["reason"], condition(told_again)["observedGeneration"]) == ("ApplicationFailed", 2)
    again = plan_build(waiting, seen(failed, now=NOW + timedelta(seconds=5)))
    (second,) = applications(again)
    assert second["metadata"]["name"] == "first-2"
    assert second["spec"]["arguments"] == application["spec"]["arguments"]
    assert [action.key.name for action in again.actions if isinstance(action, Delete)] == ["first-1"]


def test_the_last_attempt_that_fails_ends_the_build_and_leaves_the_driver_s_log() -> None:
    one, application = started(retries=0)
    plan = plan_build(one, seen(told(application, "FAILED", error="no")))
    assert plan.status is not None
    assert plan.status["phase"] == "Failed"
    assert (condition(plan, "Stalled")["status"], condition(plan, "Complete")["status"]) == ("True", "False")
    assert [type(action) for action in plan.actions] == [RecordEvent]
    assert plan.again_seconds == LONGEST_SLEEP_SECONDS, "nobody looks for anything at what has failed"


def test_pods_that_never_run_end_an_attempt_by_our_own_deadline_and_go() -> None:
    one, application = started(startDeadline="1m", retries=0)
    assert applications(plan_build(one, seen(told(application, "SUBMITTED", age=59)))) == []
    plan = plan_build(one, seen(told(application, "SUBMITTED", age=61)))
    assert condition(plan)["reason"] == "StartDeadlineExceeded"
    assert "can't be pulled" in condition(plan)["message"]
    assert [action.key.name for action in plan.actions if isinstance(action, Delete)] == ["first-1"]


def test_a_build_that_ran_is_held_to_no_start_deadline() -> None:
    one, application = started(startDeadline="1m")
    ran = after(one, plan_build(one, seen(told(application, "RUNNING", **RUNNING))))
    plan = plan_build(ran, seen(told(application, "UNKNOWN", age=600)))
    assert plan.status is None


def test_all_attempts_together_have_a_deadline() -> None:
    one, application = started(activeDeadlineSeconds=60)
    plan = plan_build(one, seen(told(application, "RUNNING", **RUNNING), now=NOW + timedelta(seconds=60)))
    assert condition(plan)["reason"] == "DeadlineExceeded"
    assert [action.key.name for action in plan.actions if isinstance(action, Delete)] == ["first-1"]


def test_suspending_takes_the_pods_and_going_on_begins_where_it_stopped() -> None:
    one, application = started()
    held = replace(one, spec=replace(one.spec, suspend=True))
    plan = plan_build(held, seen(told(application, "RUNNING", **RUNNING)))
    assert [action.key.name for action in plan.actions if isinstance(action, Delete)] == ["first-1"]
    resumed = replace(after(held, plan), spec=one.spec)
    (again,) = applications(plan_build(resumed, seen()))
    assert (again["metadata"]["name"], again["spec"]["arguments"]) == ("first-1", application["spec"]["arguments"])


def test_a_build_that_goes_on_at_once_waits_for_the_application_that_goes() -> None:
    """Apache's operator keeps it for its clean-up; the end of its driver would count as a failed attempt."""
    one, application = started(retries=0)
    going = told(application, "FAILED")
    going["metadata"]["deletionTimestamp"] = NOW.isoformat()
    plan = plan_build(one, seen(going))
    assert (condition(plan)["reason"], applications(plan), reasons(plan)) == ("Starting", [], [])
    assert "waiting for the deletion of SparkApplication first-1" in condition(plan)["message"]
    (again,) = applications(plan_build(after(one, plan), seen()))
    assert again["metadata"]["name"] == "first-1"


def test_a_suspended_build_says_that_its_application_is_removed() -> None:
    one, application = started()
    held = replace(one, spec=replace(one.spec, suspend=True))
    message = condition(plan_build(held, seen(told(application, "RUNNING", **RUNNING))))["message"]
    assert message == "spec.suspend is true: its SparkApplication is removed; what is built stays in the bucket"


def test_a_build_without_figures_does_not_claim_that_the_journal_is_empty() -> None:
    one, application = started()
    message = condition(plan_build(one, seen(told(application, "COMPLETED"), is_asked=False)))["message"]
    assert message.startswith("complete, as reported by its driver; the publisher's agent reports no package count")


def test_a_variable_in_a_path_reaches_the_builder_as_it_is() -> None:
    (application,) = applications(plan_build(build(roots=["/$(SPARK_USER)/x"]), seen()))
    assert "/$$(SPARK_USER)/x" in application["spec"]["arguments"]


@pytest.mark.parametrize("engine", ["kubeflow", "apache"])
def test_pull_secrets_reach_driver_and_executors(engine: str) -> None:
    (application,) = applications(plan_build(build(engine=engine, imagePullSecrets=[{"name": "registry"}]), seen()))
    spec = application["spec"]
    pods = (
        [spec["driver"]["template"], spec["executor"]["template"]]
        if engine == "kubeflow"
        else [spec[part]["podTemplateSpec"] for part in ("driverSpec", "executorSpec")]
    )
    assert [pod["spec"]["imagePullSecrets"] for pod in pods] == [[{"name": "registry"}]] * 2


def test_what_finished_goes_when_its_time_is_over() -> None:
    one = build({"finished_at": NOW}, ttlSecondsAfterFinished=60)
    assert plan_build(one, seen(now=NOW + timedelta(seconds=20))).again_seconds == 40
    (action,) = plan_build(one, seen(now=NOW + timedelta(seconds=60))).actions
    assert isinstance(action, Delete)
    assert action.key == ("PackageBuild", "first")


def test_a_change_of_what_finished_is_observed_and_a_paused_one_stays() -> None:
    """Argo CD and Flux wait for the generation of the spec, also of a time to live that is changed later."""
    one, application = started(ttlSecondsAfterFinished=60)
    plan = plan_build(one, seen(told(application, "COMPLETED")))
    finished = after(one, plan)
    assert plan_build(finished, seen()).status is None
    changed = replace(finished, metadata=replace(finished.metadata, generation=2))
    status = plan_build(changed, seen()).status
    assert status is not None
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {status["observedGeneration"], 2}
    paused = replace(finished, metadata=replace(finished.metadata, annotations={PAUSED: "true"}))
    assert plan_build(paused, seen(now=NOW + timedelta(days=1))).actions == ()


def test_a_child_of_another_owner_is_left_alone() -> None:
    _, application = started()
    foreign = {**application, "metadata": {**application["metadata"], "ownerReferences": []}}
    plan = plan_build(build(), seen(foreign))
    assert (condition(plan)["reason"], plan.actions) == ("NameTaken", ())


NO_SOURCE = made("Publisher", "author", {"journalRef": {"name": "main"}}, "u-2")
NO_BLOBS = made("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}}, "u-3")
OBSTACLES = {
    "PublisherMissing": {"publisher": None},
    "JournalMissing": {"journal": None},
    "BucketMissing": {"journal": NO_BLOBS},
    "SourceMissing": {"publisher": NO_SOURCE},
    "ImageMissing": {"image": None},
    "EngineMissing": {"is_served": False},
}


@pytest.mark.parametrize(("reason", "changes"), OBSTACLES.items(), ids=OBSTACLES)
def test_what_is_missing_is_named_and_nothing_is_asked_for(reason: str, changes: dict[str, Any]) -> None:
    plan = plan_build(build(), seen(**changes))
    assert (condition(plan)["reason"], plan.actions, plan.again_seconds) == (reason, (), 15.0)
    assert plan.status is not None
    assert plan.status["phase"] == "Pending"


@pytest.mark.parametrize("engine", SparkOperator)
def test_a_missing_spark_operator_says_where_to_get_it(engine: SparkOperator) -> None:
    message = condition(plan_build(build(engine=str(engine)), seen(is_served=False)))["message"]
    assert "install that Spark operator (https://" in message


def test_a_build_s_own_source_and_image_go_before_the_usual_ones() -> None:
    own = build(source={"volumeClaim": {"name": "mine", "folder": "live"}}, image="mine:2")
    (application,) = applications(plan_build(own, seen(publisher=NO_SOURCE)))
    assert application["spec"]["image"] == "mine:2"
    volumes = {volume["name"]: volume for volume in application["spec"]["executor"]["template"]["spec"]["volumes"]}
    assert volumes["source"]["persistentVolumeClaim"] == {"claimName": "mine", "readOnly": True}


def test_each_source_has_a_place_of_its_own_so_that_a_build_removes_nothing_of_another_one() -> None:
    sources = [{"name": "a"}, {"name": "b"}, {"name": "a", "folder": "b"}, {"name": "a", "folder": "c/site.zip"}]
    places = []
    for source in sources:
        (application,) = applications(plan_build(build(source={"volumeClaim": source}), seen()))
        spec = application["spec"]
        for role in ("driver", "executor"):
            (container,) = spec[role]["template"]["spec"]["containers"]
            (mount,) = [volume_mount for volume_mount in container["volumeMounts"] if volume_mount["name"] == "source"]
            assert mount["mountPath"] == spec["arguments"][2]
            assert mount.get("subPath") == source.get("folder")
        places.append(spec["arguments"][2])
    assert places == ["/source/a", "/source/b", "/source/a/b", "/source/a/c/site.zip"]


@pytest.mark.parametrize("engine", SparkOperator)
def test_applications_are_rendered_as_they_were(engine: SparkOperator, request: pytest.FixtureRequest) -> None:
    plan = plan_build(build(engine=str(engine), executors={"cores": 2, "cpuRequest": "500m"}), seen())
    text = yaml.safe_dump_all(
        [*(action.manifest for action in plan.actions if isinstance(action, Apply)), {"status": plan.status}],
        sort_keys=True,
    )
    file = Path(__file__).parent / "golden" / f"build-{engine}.yaml"
    if request.config.getoption("--update-golden"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("engine", SparkOperator)
def test_every_pod_is_a_restricted_one_and_only_the_driver_has_a_token(engine: SparkOperator) -> None:
    (application,) = applications(plan_build(build(engine=str(engine)), seen()))
    spec = application["spec"]
    templates = (
        [spec[role]["template"] for role in ("driver", "executor")]
        if engine is SparkOperator.KUBEFLOW
        else [spec[f"{role}Spec"]["podTemplateSpec"] for role in ("driver", "executor")]
    )
    for template in templates:
        (container,) = template["spec"]["containers"]
        security = container["securityContext"]
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [template["spec"]["automountServiceAccountToken"] for template in templates] == [True, False]


def test_the_version_that_is_named_is_the_one_that_is_locked() -> None:
    assert f"pyspark=={SPARK_VERSION} " in (ROOT / "requirements" / "spark.txt").read_text()


def test_conditions_keep_their_time_while_nothing_changes() -> None:
    one, application = started()
    plan = plan_build(one, seen(told(application, "SUBMITTED", age=5)))
    later = plan_build(after(one, plan), seen(told(application, "SUBMITTED"), now=NOW + timedelta(seconds=9)))
    assert later.status is None
    kept = after(one, plan).status.conditions
    assert {type(entry) for entry in kept} == {Condition}
    assert ConditionStatus.TRUE in {entry.status for entry in kept}


@pytest.mark.parametrize("changes", OBSTACLES.values(), ids=OBSTACLES)
def test_a_deadline_holds_also_for_a_build_that_something_is_missing_for(changes: dict[str, Any]) -> None:
    one, application = started(activeDeadlineSeconds=60)
    over = {"now": NOW + timedelta(seconds=60), **changes}
    plan = plan_build(one, seen(told(application, "RUNNING", **RUNNING), **over))
    assert condition(plan)["reason"] == "DeadlineExceeded"
    assert [action.key.name for action in plan.actions if isinstance(action, Delete)] == ["first-1"]
    held = replace(one, metadata=replace(one.metadata, annotations={PAUSED: "true"}))
    assert plan_build(held, seen(told(application, "RUNNING", **RUNNING), **over)).actions == ()


@pytest.mark.parametrize("spec", [{"suspend": True}, {"activeDeadlineSeconds": 60}])
def test_an_application_of_another_owner_is_never_deleted(spec: dict[str, Any]) -> None:
    _, application = started()
    foreign = told({**application, "metadata": {**application["metadata"], "ownerReferences": []}}, "RUNNING")
    one = build({"attempt": 1, "started_at": NOW}, **spec)
    plan = plan_build(one, seen(foreign, now=NOW + timedelta(seconds=60)))
    assert [action for action in plan.actions if isinstance(action, Delete)] == []
