"""PackageBuilds on a real API server that has both Spark operators' SparkApplications, and no one who runs them."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube.config.kubeconfig import KubeConfig
from mailboat_operator.agent_client import Agents
from mailboat_operator.cluster import Cluster
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.reconciliation import ObjectKey, Reconciler
from mailboat_operator.systems import Systems
from mailboat_operator.workload.pods import AgentImage
from support.operator_harbour import eventually

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kind"))
from builds import SPARK_OPERATOR, SPARK_OPERATOR_MODULE, module_folder  # noqa: E402  # the folder is no package

GROUPS = {"kubeflow": "sparkoperator.k8s.io/v1beta2", "apache": "spark.apache.org/v1"}
OBJECTS = {
    "journals": {
        "kafka": {"bootstrapServers": ["kafka:9092"]},
        "blobs": {"s3": {"bucket": "shop", "credentialsSecretRef": {"name": "keys"}}},
    },
    "publishers": {"journalRef": {"name": "main"}, "source": {"volumeClaim": {"name": "site"}}},
}
NAMES = {"journals": ("Journal", "main"), "publishers": ("Publisher", "author")}
BUILD = {"publisherRef": {"name": "author"}, "roots": ["/"]}


PROGRESS: dict[str, Any] = {
    "build_id": "b",
    "publisher": "author",
    "state": "publishing",
    "published": 7,
    "total": 9,
    "package_bytes": 700,
    "first_offset": 0,
    "last_offset": 6,
    "first_published_at": "2026-01-01T00:00:00Z",
    "last_published_at": "2026-01-01T00:00:01Z",
}


@contextmanager
def agent_that_answers(status: int, document: dict[str, Any]) -> Iterator[str]:
    """The one answer of a publisher's agent that a build asks for."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Yard:
    """A namespace with a publisher and its journal, and the operator's one step in it."""

    def __init__(self, server: Any, namespace: str) -> None:
        self.server, self.namespace = server, namespace
        self.writes: Counter[str] = Counter()
        self.agent_url = "http://127.0.0.1:9"
        for plural, spec in OBJECTS.items():
            kind, name = NAMES[plural]
            self.make(kind, name, spec)
        server.check_journal(namespace, "main")
        for name, entries in {"keys": ("accessKeyId", "secretAccessKey"), "author-token": ("token",)}.items():
            document = {"metadata": {"name": name}, "stringData": dict.fromkeys(entries, "x")}
            server.http.post(f"/api/v1/namespaces/{namespace}/secrets", json=document).raise_for_status()

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.server.create(self.namespace, manifest)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def look(self, name: str) -> int:
        """One step for a build; how many writes it took."""

        async def step() -> None:
            cluster = Cluster(self._count, KubeConfig.from_file(self.server.kubeconfig))
            agents = Agents(lambda *_: self.agent_url)
            systems = Systems(spark_image=AgentImage("spark:test"))
            try:
                reconciler = Reconciler(cluster, agents, AgentImage("mailboat:test"), lambda _: None, systems)
                await reconciler.reconcile(ObjectKey("PackageBuild", self.namespace, name))
            finally:
                await agents.close()
                await cluster.close()

        before = self.writes.total()
        asyncio.run(step())
        return self.writes.total() - before

    def build(self, name: str = "first") -> dict[str, Any]:
        return self._get(f"/apis/mailboat.dev/v1alpha1/namespaces/{self.namespace}/packagebuilds/{name}")

    def builds(self) -> list[str]:
        found = self._get(f"/apis/mailboat.dev/v1alpha1/namespaces/{self.namespace}/packagebuilds")
        return sorted(item["metadata"]["name"] for item in found["items"])

    def applications(self, engine: str) -> list[str]:
        found = self._get(f"/apis/{GROUPS[engine]}/namespaces/{self.namespace}/sparkapplications")
        return sorted(item["metadata"]["name"] for item in found["items"])

    def application(self, engine: str, name: str) -> dict[str, Any]:
        return self._get(f"/apis/{GROUPS[engine]}/namespaces/{self.namespace}/sparkapplications/{name}")

    def tell(self, engine: str, name: str, status: dict[str, Any]) -> None:
        """Say of an application what its operator would."""
        place = f"/apis/{GROUPS[engine]}/namespaces/{self.namespace}/sparkapplications/{name}/status"
        headers = {"Content-Type": "application/merge-patch+json"}
        self.server.http.patch(place, json={"status": status}, headers=headers).raise_for_status()

    def condition(self, kind: str = "Ready", name: str = "first") -> dict[str, Any]:
        return next(condition for condition in self.build(name)["status"]["conditions"] if condition["type"] == kind)

    def _get(self, place: str) -> dict[str, Any]:
        answer = self.server.http.get(place)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def _count(self, verb: str, kind: str) -> None:
        self.writes[f"{verb} {kind}"] += 1


def definitions() -> list[dict[str, Any]]:
    """SparkApplications of both groups."""
    folder = module_folder(SPARK_OPERATOR, SPARK_OPERATOR_MODULE) / "config" / "crd" / "bases"
    kubeflow = yaml.load((folder / "sparkoperator.k8s.io_sparkapplications.yaml").read_text(), yaml.CSafeLoader)
    apache = yaml.load((HERE / "spark-apache-definition.yaml").read_text(), yaml.CSafeLoader)
    template = spec_of(kubeflow)["driver"]["properties"]["template"]
    for role in ("driverSpec", "executorSpec"):
        spec_of(apache)[role]["properties"]["podTemplateSpec"] = template
    return [kubeflow, apache]


def spec_of(definition: dict[str, Any]) -> Any:
    (version,) = definition["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


@pytest.fixture(scope="session")
def spark_server(api_server: Any) -> Any:
    """The API server with both."""
    place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for definition in definitions():
        assert api_server.http.post(place, json=definition).status_code == 201
    places = [f"/apis/{group}/sparkapplications" for group in GROUPS.values()]
    eventually(lambda: all(api_server.http.get(place).status_code == 200 for place in places))
    return api_server


@pytest.fixture
def yard(spark_server: Any) -> Yard:
    """A yard of one test."""
    return Yard(spark_server, spark_server.new_namespace())


OUTCOMES = {
    "kubeflow": {
        "failed": {"applicationState": {"state": "FAILED", "errorMessage": "exit code 3"}, "driverInfo": {}},
        "running": {"applicationState": {"state": "RUNNING"}, "executorState": {"e-1": "RUNNING"}, "driverInfo": {}},
        "complete": {"applicationState": {"state": "COMPLETED"}, "driverInfo": {}},
    },
    "apache": {
        "failed": {"currentState": {"currentStateSummary": "Failed", "message": "exit code 3"}},
        "running": {"currentState": {"currentStateSummary": "RunningHealthy"}},
        "complete": {
            "currentState": {"currentStateSummary": "ResourceReleased"},
            "stateTransitionHistory": {
                "0": {"currentStateSummary": "Submitted"},
                "1": {"currentStateSummary": "Succeeded"},
                "2": {"currentStateSummary": "ResourceReleased"},
            },
        },
    },
}


@pytest.mark.parametrize("engine", GROUPS)
def test_spark_application_passes_the_engines_own_definition(yard: Yard, engine: str) -> None:
    yard.make("PackageBuild", "first", {**BUILD, "engine": engine})
    assert yard.look("first") == 3  # configuration, application, status
    assert yard.look("first") == 0
    found = yard.application(engine, "first-1")
    place = f"/apis/{GROUPS[engine]}/namespaces/{yard.namespace}/sparkapplications"
    strict = {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "strict"}}
    answer = yard.server.http.post(place, params={"fieldValidation": "Strict", "dryRun": "All"}, json=strict)
    assert answer.status_code == 201, answer.text
    misspelt = {**strict, "spec": {**strict["spec"], "sparkConfig": {}}}
    assert yard.server.http.post(place, params={"fieldValidation": "Strict"}, json=misspelt).status_code == 400
    other = next(group for group in GROUPS if group != engine)
    assert yard.applications(other) == []


@pytest.mark.parametrize("engine", GROUPS)
def test_a_build_is_followed_through_a_failure_to_its_end(
    yard: Yard, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = yard.make("PackageBuild", "first", {**BUILD, "engine": engine, "retries": 1})["metadata"]["uid"]
    yard.look("first")
    yard.tell(engine, "first-1", OUTCOMES[engine]["failed"])
    yard.look("first")
    assert yard.build()["status"]["phase"] == "Retrying"
    assert "exit code 3" in yard.condition()["message"]

    monkeypatch.setattr(ClusterReader, "now", property(lambda _: datetime.now(UTC) + timedelta(minutes=1)))
    yard.look("first")
    assert yard.applications(engine) == ["first-2"]
    monkeypatch.undo()
    yard.tell(engine, "first-2", OUTCOMES[engine]["running"])
    missing = {"title": "BuildMissing", "detail": "the log has no package of it", "decision": "final"}
    with agent_that_answers(404, missing) as yard.agent_url:
        yard.look("first")
    assert yard.build()["status"]["phase"] == "Running"
    assert "no package in the journal" in yard.condition()["message"]
    with agent_that_answers(200, PROGRESS) as yard.agent_url:
        yard.look("first")
    shown = yard.server.kubectl("get", "mbbuild", "--namespace", yard.namespace).stdout.split("\n")
    assert shown[0].split() == ["NAME", "PHASE", "REASON", "PACKAGES", "ATTEMPT", "AGE"]
    assert shown[1].split()[:5] == ["first", "Running", yard.condition()["reason"], "7/9", "2"]

    yard.tell(engine, "first-2", OUTCOMES[engine]["complete"])
    yard.look("first")
    status = yard.build()["status"]
    assert (status["phase"], status["attempt"], status["buildId"]) == ("Completed", 2, uid)
    waited = ("wait", "mbbuild/first", "--for=condition=Complete", "--timeout=120s", "--namespace", yard.namespace)
    assert yard.server.kubectl(*waited).returncode == 0
    assert yard.look("first") == 0


def test_without_the_engine_s_operator_the_condition_says_what_to_install(cleared_api_server: Any) -> None:
    yard = Yard(cleared_api_server, cleared_api_server.new_namespace())
    yard.make("PackageBuild", "first", BUILD)
    assert yard.look("first") == 2  # Event, status
    assert (yard.condition()["reason"], yard.condition("Stalled")["status"]) == ("EngineMissing", "True")
    assert "install that Spark operator" in yard.condition()["message"]
    assert yard.look("first") == 0


def test_a_time_of_a_schedule_becomes_one_build_whatever_crashes_between(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.make("PackageBuild", "often", {**BUILD, "schedule": {"cron": "* * * * *"}})
    later = datetime.now(UTC) + timedelta(minutes=5)
    monkeypatch.setattr(ClusterReader, "now", property(lambda _: later))
    monkeypatch.setattr(Cluster, "write_status", _crash)
    with pytest.raises(ConnectionResetError):
        yard.look("often")
    monkeypatch.undo()
    monkeypatch.setattr(ClusterReader, "now", property(lambda _: later))
    yard.look("often")
    run = f"often-{int(later.timestamp()) // 60}"
    assert yard.builds() == ["often", run]
    assert yard.build("often")["status"]["active"] == [run]
    yard.look(run)
    assert yard.applications("kubeflow") == [f"{run}-1"]

    place = f"/apis/mailboat.dev/v1alpha1/namespaces/{yard.namespace}/packagebuilds/often"
    yard.server.http.delete(place).raise_for_status()
    eventually(lambda: yard.builds() == [] and yard.applications("kubeflow") == [])


async def _crash(*_: object) -> None:
    raise ConnectionResetError("the operator was killed here")
