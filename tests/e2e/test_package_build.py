"""A whole tree through kubeflow's Spark operator: a PackageBuild becomes a driver and executors, which publish it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
import yaml
from cluster_client import Manifest, eventually, files_of, has_condition, name_of
from kubernetes.client import AuthenticationV1TokenRequest, V1TokenRequestSpec
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge
from mailboat.model.identifiers import TopicName
from mailboat.model.messages import BulkPart
from mailboat.testing.journal_harness import once_available, read_to_end
from mailboat.wire.package_messages import decode_package
from support.s3_server import ADMIN

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"
CONTENT = "/var/lib/mailboat/content/current"
ACCOUNT = "spark-operator"
TOPICS = "builds-"
DEFINITION = "CustomResourceDefinition"
MANY = 600
MORE_THAN_A_DRIVER_BUILDS = 201
"""Fewer small packages a driver builds itself, without executors."""
MINUTE = 60
pytestmark = pytest.mark.timeout(1200)

TREE = files_of(ROOT / "docs")
SMALL = {"memory": "512Mi", "cpuRequest": "50m"}


class SparkParts(NamedTuple):
    """What `cluster.py spark` gives.

    Attributes:
        image: Of driver and executors; the cluster has it.
        program: Kubeflow's operator.
        definitions: The folder of its definitions.
    """

    image: str
    program: str
    definitions: str


@pytest.fixture(scope="module")
def spark(script: Callable[[str], str]) -> SparkParts:
    """The image of the project's Dockerfile, and kubeflow's operator of its module."""
    return SparkParts(*script("spark").split())


@pytest.fixture(scope="module")
def spark_operator(
    cluster: Any, shared_namespace: Any, spark: SparkParts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Kubeflow's operator, looking after the namespace from beside the cluster. It submits by the Spark of our lock."""
    definitions = [yaml.safe_load(file.read_text()) for file in Path(spark.definitions).glob("*.yaml")]
    everything = cluster.objects
    everything.apply(*(definition for definition in definitions if definition["kind"] == DEFINITION))
    everything.wait_for("Established", *(f"{DEFINITION}/{name_of(definition)}" for definition in definitions))
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": shared_namespace.name}
    rights = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"name": f"{ACCOUNT}-{shared_namespace.name}"}
    shared_namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}})
    everything.delete("ClusterRoleBinding", binding["name"])
    api = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    everything.apply({**api, "metadata": binding, "roleRef": rights, "subjects": [subject]})
    folder = tmp_path_factory.mktemp("spark-operator")
    environment = {**cluster.environment, **_place_of(cluster, shared_namespace, folder / "kubeconfig")}
    options = ["--zap-log-level=info", "--enable-ui-service=false", "--health-probe-bind-address=0"]
    command = [spark.program, "controller", "start", f"--kubeconfig={environment['KUBECONFIG']}", *options]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, f"--namespaces={shared_namespace.name}"], env=environment, stdout=log, stderr=log
        ) as process,
    ):
        _await_work(process, folder / "log")
        yield
        process.kill()  # asked to end, it gives its own controllers 30 s
    everything.delete("ClusterRoleBinding", binding["name"])


def _await_work(process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + 60
    while b"Starting workers" not in log.read_bytes():
        assert process.poll() is None, f"kubeflow's operator ended: {log.read_text()}"
        assert time.monotonic() < ends, f"kubeflow's operator does not work: {log.read_text()}"
        time.sleep(0.05)


def _place_of(cluster: Any, namespace: Any, file: Path) -> dict[str, str]:
    """What Spark's client needs to reach the cluster: it takes tokens, and no keys of elliptic curves."""
    config = yaml.safe_load(Path(cluster.client.kubeconfig).read_text())
    asked = AuthenticationV1TokenRequest(spec=V1TokenRequestSpec(audiences=[], expiration_seconds=7200))
    granted = cluster.client.core.create_namespaced_service_account_token(ACCOUNT, namespace.name, asked)
    config["users"] = [{"name": user["name"], "user": {"token": granted.status.token}} for user in config["users"]]
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config))
    host, _, port = config["clusters"][0]["cluster"]["server"].removeprefix("https://").partition(":")
    return {
        "KUBECONFIG": str(file),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PATH": os.environ["PATH"],
    }


@pytest.fixture(scope="module")
def harbour(cluster: Any, shared_namespace: Any, spark_operator: None, kafka: str, s3: str) -> Iterator[Any]:
    """The quickstart with one subscriber, a filled source, and an operator for this namespace alone."""
    keys = {"accessKeyId": ADMIN.access_key_id, "secretAccessKey": ADMIN.secret_access_key}
    with shared_namespace.operator(f"builds.namespaces={{{shared_namespace.name}}}"):
        shared_namespace.make_source()
        shared_namespace.write_files("filler", "/site", TREE)
        shared_namespace.make_secret("mailboat-s3", keys)
        shared_namespace.apply_text(quickstart(kafka, s3))
        shared_namespace.wait_for("Ready", "Publisher/author", "SubscriberPool/edge", seconds=240)
        shared_namespace.apply(lost_build(), timetable())  # what they wait for passes while the first build runs
        yield shared_namespace


def quickstart(kafka: str, s3: str) -> str:
    """The example with the servers of this test."""
    journal, publisher, pool, *_ = yaml.safe_load_all((EXAMPLES / "quickstart" / "mailboat.yaml").read_text())
    journal["spec"]["kafka"]["bootstrapServers"] = [kafka]
    journal["spec"]["topics"] = {"prefix": TOPICS}
    journal["spec"]["blobs"]["s3"] |= {"endpointUrl": s3, "prefix": "builds/"}
    pool["spec"]["replicas"] = 1
    return yaml.safe_dump_all([journal, publisher, pool])


def example(image: str, **changes: Any) -> Manifest:
    """The first build of the example, with pods that a small machine has room for, and many small packages."""
    build: Manifest = next(yaml.safe_load_all((EXAMPLES / "package-build.yaml").read_text()))
    build["spec"] |= {"executors": {"instances": 2, **SMALL}, "driver": SMALL, "budget": {"size": "64Ki"}}
    build["metadata"]["name"] = changes.pop("name", "first")
    build["spec"] |= {"image": image, **changes}
    if "schedule" in changes:
        del build["spec"]["ttlSecondsAfterFinished"]  # runs of a timetable go by its history limits
    return build


def lost_build() -> Manifest:
    """A build whose image no registry has."""
    return example("missing/image:none", name="lost", startDeadline="10s", retries=0)


def timetable() -> Manifest:
    """A build each minute, whose pods never start."""
    schedule = {"cron": "* * * * *", "concurrencyPolicy": "Forbid", "failedHistoryLimit": 0}
    return example("missing/image:none", name="minutely", schedule=schedule, startDeadline="1h", retries=0)


def test_driver_and_two_executors_bring_a_whole_tree_to_the_subscriber(harbour: Any, spark: SparkParts) -> None:
    pages = {f"pages/{number:03}.txt": b"page %d" % number for number in range(MORE_THAN_A_DRIVER_BUILDS)}
    harbour.write_files("filler", "/site", pages)
    harbour.apply(example(spark.image, budget={"nodes": 1}))
    harbour.wait_for("Complete", "PackageBuild/first", seconds=900)

    status = harbour.get("PackageBuild", "first")["status"]
    assert (status["phase"], status["attempt"]) == ("Completed", 1)
    assert status["packagesDone"] == status["packagesTotal"] > len(pages)
    application = harbour.get("SparkApplication", "first-1")
    assert application["status"]["applicationState"]["state"] == "COMPLETED"
    assert len([pod for pod in placed_pods(harbour) if pod.startswith("first-1-") and "-exec-" in pod]) == 2

    tree = {**TREE, **pages}
    eventually(lambda: harbour.read_files("edge-0", CONTENT) == tree, "the subscriber does not hold the tree")


def test_pods_whose_image_is_missing_are_given_up_by_the_build_s_own_deadline(harbour: Any) -> None:
    given_up = harbour.wait("PackageBuild", "lost", lambda found: has_condition(found, "Stalled"))
    assert reason_of(given_up) == "StartDeadlineExceeded"
    harbour.wait_gone("Pod/lost-1-driver")


def test_a_driver_that_is_killed_while_it_publishes_is_followed_by_one_that_goes_on(
    harbour: Any, spark: SparkParts, broker: Any
) -> None:
    pages = {f"many/{number:03}.txt": b"page %d" % number for number in range(MANY)}
    harbour.write_files("filler", "/site", pages)
    small = {"roots": ["/many"], "budget": {"nodes": 1}, "executors": {"instances": 1, **SMALL}}
    with closing(PackageLog(broker.address)) as log:
        before = log.end()
        harbour.apply(example(spark.image, name="killed", **small))
        eventually(lambda: log.end() > before, "nothing is published", seconds=400)  # other tests have the cores, too
        with broker.paused():  # so that it does not come to its end meanwhile
            harbour.delete("Pod", "killed-1-driver", grace_seconds=0)
            harbour.wait_gone("Pod/killed-1-driver")
        build_id = harbour.get("PackageBuild", "killed")["status"]["buildId"]
        assert 0 < len(log.parts(build_id)) < MANY

        harbour.wait_for("Complete", "PackageBuild/killed", seconds=300)
        parts = log.parts(build_id)
    status = harbour.get("PackageBuild", "killed")["status"]
    assert status["attempt"] > 1
    assert status["packagesDone"] == status["packagesTotal"] == len(parts) > MANY
    assert [(part.sequence, part.total) for part in parts] == [(number, len(parts)) for number in range(len(parts))]
    eventually(lambda: pages.items() <= harbour.read_files("edge-0", CONTENT).items(), "a page does not arrive")


def test_a_timetable_begins_a_build_at_its_minute_and_the_next_one_when_that_is_over(harbour: Any) -> None:
    def of_timetable() -> Manifest:
        found: Manifest = harbour.get("PackageBuild", "minutely")
        return found

    applied = seconds_of(of_timetable())

    eventually(lambda: bool(runs_of(harbour)), "no build began")
    (first,) = runs_of(harbour)
    minute = minute_of(first)
    assert 0 < minute * MINUTE - applied <= MINUTE
    assert 0 <= seconds_of(harbour.get("PackageBuild", first)) - minute * MINUTE < MINUTE / 2
    harbour.wait("PackageBuild", first, lambda found: found.get("status", {}).get("phase") == "Starting")

    eventually(lambda: reason_of(of_timetable()) == "Waiting", "the next build does not wait for the first one")
    assert runs_of(harbour) == [first]

    harbour.patch("PackageBuild", first, {"spec": {"startDeadline": "1s"}})
    eventually(lambda: first not in runs_of(harbour), "a failed build more than the limit is kept")
    eventually(lambda: bool(runs_of(harbour)), "the next build did not begin")
    (second,) = runs_of(harbour)
    assert minute_of(second) > minute
    harbour.delete("PackageBuild", "minutely", cascade="Foreground")
    harbour.wait_gone("PackageBuild/minutely")
    assert runs_of(harbour) == []


class PackageLog:
    """The package topic. Close it."""

    def __init__(self, address: str) -> None:
        """Nothing is read yet."""
        self._journal = KafkaJournal(KafkaSettings(KafkaConfig((address,))), SystemClock())
        self._topic = TopicName(f"{TOPICS}package")

    def close(self) -> None:
        """Leave the broker."""
        self._journal.close()

    def end(self) -> int:
        """Where the next record comes to stand."""
        return once_available(lambda: self._journal.bounds(self._topic)).next_offset

    def parts(self, build_id: str) -> list[BulkPart]:
        """The packages of a build, in their order in the log."""
        records = once_available(lambda: read_to_end(self._journal.reader(self._topic, Edge.EARLIEST)))
        messages = [decode_package(record.value) for record in records if dict(record.headers)["type"] == b"2"]
        return [message.bulk for message in messages if message.bulk is not None and message.bulk.build_id == build_id]


def placed_pods(namespace: Any) -> set[str]:
    """Names of all pods that the node got, those too that are gone."""
    events = namespace.client.core.list_namespaced_event(namespace.name, field_selector="reason=Scheduled").items
    return {event.involved_object.name for event in events}


def runs_of(namespace: Any) -> list[str]:
    """The builds that the timetable made."""
    return [
        name_of(item)
        for item in namespace.list("PackageBuild")
        if any(owner["name"] == "minutely" for owner in item["metadata"].get("ownerReferences", ()))
    ]


def minute_of(run: str) -> int:
    """The time that a run is of, as its name says it."""
    return int(run.removeprefix("minutely-"))


def seconds_of(found: Manifest) -> float:
    """When an object was made."""
    return datetime.fromisoformat(found["metadata"]["creationTimestamp"]).timestamp()


def reason_of(found: Manifest) -> str:
    """What an object says of itself."""
    return str(found["status"]["conditions"][0]["reason"])
