"""A whole tree through kubeflow's Spark operator: a PackageBuild becomes a driver and executors, which publish it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
import yaml
from mailboat.testing.s3_server import ADMIN

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
EXAMPLES = ROOT / "examples" / "kubernetes"
TREE = ROOT / "docs"
CONTENT = "/var/lib/mailboat/content/current"
ACCOUNT = "spark-operator"
pytestmark = pytest.mark.timeout(1200)

SMALL = {"memory": "512Mi", "cpuRequest": "100m"}


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
    cluster.run("kubectl", "apply", "--server-side", "-f", spark.definitions)
    cluster.run("kubectl", "wait", "--for=condition=Established", "--timeout=60s", "-f", spark.definitions)
    name = f"{ACCOUNT}-{shared_namespace.name}"
    shared_namespace.kubectl("create", "serviceaccount", ACCOUNT)
    cluster.run("kubectl", "delete", "clusterrolebinding", name, "--ignore-not-found")
    binding = ("--clusterrole=cluster-admin", f"--serviceaccount={shared_namespace.name}:{ACCOUNT}")
    cluster.run("kubectl", "create", "clusterrolebinding", name, *binding)
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
        process.terminate()
        process.wait(timeout=30)
    cluster.run("kubectl", "delete", "clusterrolebinding", name)


def _await_work(process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + 60
    while b"Starting workers" not in log.read_bytes():
        assert process.poll() is None, f"kubeflow's operator ended: {log.read_text()}"
        assert time.monotonic() < ends, f"kubeflow's operator does not work: {log.read_text()}"
        time.sleep(0.05)


def _place_of(cluster: Any, namespace: Any, file: Path) -> dict[str, str]:
    """What Spark's client needs to reach the cluster: it takes tokens, and no keys of elliptic curves."""
    config = json.loads(cluster.run("kubectl", "config", "view", "--raw", "-o", "json"))
    token = namespace.kubectl("create", "token", ACCOUNT, "--duration=2h").decode()
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
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
    images = {name: image.rpartition(":")[2] for name, image in cluster.images.items()}
    tags = {"image": images["mailboat-operator"], "agentImage": images["mailboat"]}
    settings = [f"{name}.tag={tag}" for name, tag in tags.items()]
    place = f"{{{shared_namespace.name}}}"
    settings += [f"namespaces={place}", f"builds.namespaces={place}", "crds.install=false"]
    cluster.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    release = ("mailboat-builds", str(CHART), "--namespace", shared_namespace.name, "--timeout=120s", "--wait")
    cluster.run("helm", "upgrade", "--install", *release, *(word for one in settings for word in ("--set", one)))
    shared_namespace.make_source()
    shared_namespace.fill("filler", "/site", TREE)
    keys = (f"accessKeyId={ADMIN.access_key_id}", f"secretAccessKey={ADMIN.secret_access_key}")
    literals = [f"--from-literal={one}" for one in keys]
    shared_namespace.kubectl("create", "secret", "generic", "mailboat-s3", *literals)
    shared_namespace.apply(quickstart(kafka, s3))
    for one in ("publisher/author", "subscriberpool/edge"):
        shared_namespace.kubectl("wait", one, "--for=condition=Ready", "--timeout=240s")
    yield shared_namespace
    cluster.run("helm", "uninstall", "mailboat-builds", "--namespace", shared_namespace.name, "--wait")


def quickstart(kafka: str, s3: str) -> str:
    """The example with the servers of this test."""
    journal, publisher, pool, *_ = yaml.safe_load_all((EXAMPLES / "quickstart" / "mailboat.yaml").read_text())
    journal["spec"]["kafka"]["bootstrapServers"] = [kafka]
    journal["spec"]["topics"] = {"prefix": "builds-"}
    journal["spec"]["blobs"]["s3"] |= {"endpointUrl": s3, "prefix": "builds/"}
    pool["spec"]["replicas"] = 1
    return yaml.safe_dump_all([journal, publisher, pool])


def example(image: str, **changes: Any) -> str:
    """The first build of the example, with pods that a small machine has room for, and many small packages."""
    build = next(yaml.safe_load_all((EXAMPLES / "package-build.yaml").read_text()))
    build["spec"] |= {"executors": {"instances": 2, **SMALL}, "driver": SMALL, "budget": {"size": "64Ki"}}
    build["metadata"]["name"] = changes.pop("name", "first")
    build["spec"] |= {"image": image, **changes}
    return yaml.safe_dump(build)


def test_driver_and_two_executors_bring_a_whole_tree_to_the_subscriber(harbour: Any, spark: SparkParts) -> None:
    harbour.apply(example(spark.image))
    harbour.kubectl("wait", "packagebuild/first", "--for=condition=Complete", "--timeout=900s")

    status = json.loads(harbour.kubectl("get", "packagebuild/first", "-o", "json"))["status"]
    assert (status["phase"], status["attempt"]) == ("Completed", 1)
    assert status["packagesDone"] == status["packagesTotal"] > 5
    application = json.loads(harbour.kubectl("get", "sparkapplications.sparkoperator.k8s.io/first-1", "-o", "json"))
    assert application["status"]["applicationState"]["state"] == "COMPLETED"
    assert len(application["status"]["executorState"]) == 2

    tree = {path.relative_to(TREE).as_posix(): path.read_bytes() for path in TREE.rglob("*") if path.is_file()}
    eventually(lambda: harbour.content("edge-0", CONTENT) == tree)


def test_pods_whose_image_nobody_has_are_given_up_by_the_build_s_own_deadline(harbour: Any) -> None:
    harbour.apply(example("nobody/has:this", name="lost", startDeadline="10s", retries=0))
    harbour.kubectl("wait", "packagebuild/lost", "--for=condition=Stalled", "--timeout=180s")
    status = json.loads(harbour.kubectl("get", "packagebuild/lost", "-o", "json"))["status"]
    assert status["conditions"][0]["reason"] == "StartDeadlineExceeded"
    harbour.kubectl("wait", "pod/lost-1-driver", "--for=delete", "--timeout=120s")


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for the subscriber, which imports what it is told of."""
    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end, "the subscriber does not hold the tree"
        time.sleep(0.05)
