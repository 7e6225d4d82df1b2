"""A real cluster with the project's images in it, and a namespace for each test. `make e2e` runs what is here."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from cluster_client import ClusterClient, NamespaceClient, files_of, has_condition
from mailboat.cli.demo.sample_site import write_site
from mailboat.clock import SystemClock
from support.free_ports import LOOPBACK, free_ports
from support.kafka_broker import BrokerSettings, KafkaBroker
from support.s3_server import S3Server, S3ServerSettings

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = ROOT / "examples" / "kubernetes" / "by-hand" / "agent.yaml"
CLUSTER = ROOT / "tests" / "kind" / "cluster.py"
OPERATOR_IMAGES = {"image": "mailboat-operator", "agentImage": "mailboat"}
"""Value of the chart → image."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

SOURCE = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: site}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: filler}
spec:
  terminationGracePeriodSeconds: 0
  securityContext:
    {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: filler
      image: mailboat:latest
      command: [sleep, infinity]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: site, mountPath: /site}]
  volumes: [{name: site, persistentVolumeClaim: {claimName: site}}]
"""
"""The claim `site`, and a pod `filler` through which it is filled."""


@dataclass(frozen=True)
class Cluster:
    """The cluster: what its clients need, and what its images are called.

    Attributes:
        environment: Of kubectl and helm.
        images: Name without tag → name with it.
        client: The API.
        lock: Held by the process whose tests need the custom resource definitions as they are.
    """

    environment: dict[str, str]
    images: dict[str, str]
    client: ClusterClient
    lock: Path

    @property
    def host_address(self) -> str:
        """Where pods reach servers of this machine."""
        return self.environment["MAILBOAT_HOST_ADDRESS"]

    @property
    def objects(self) -> NamespaceClient:
        """The objects that are in no namespace."""
        return self.client.namespace("")

    @contextmanager
    def definitions(self, *, are_shared: bool = False) -> Iterator[None]:
        """Hold the custom resource definitions, which the tests of another process change, too.

        Those that need the present ones share them.
        """
        with self.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH if are_shared else fcntl.LOCK_EX)
            yield

    def run(self, *command: str, content: bytes = b"") -> bytes:
        """What helm, kubectl or its plugin prints; a failing one fails the test with its own words."""
        done = subprocess.run(command, env=self.environment, input=content, capture_output=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}:\n{done.stdout.decode()}{done.stderr.decode()}"
        return done.stdout


@dataclass(frozen=True)
class Broker:
    """A Kafka broker on this machine, and where pods reach it."""

    process: KafkaBroker
    address: str

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It answers no one meanwhile, and loses nothing."""
        self.process.pause()
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)


@dataclass(frozen=True)
class Namespace(NamespaceClient):
    """A namespace in which only pods of the restricted profile are admitted."""

    cluster: Cluster

    def make_source(self) -> None:
        """A claim `site` for a publisher; what is in `/site` of the pod `filler` is in it."""
        self.apply_text(SOURCE)
        self.wait_for("Ready", "Pod/filler")

    def make_secret(self, name: str, values: Mapping[str, str]) -> None:
        """A Secret with the values."""
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": dict(values)})

    def apply_text(self, text: str) -> None:
        """Apply the manifests of a YAML file with the images that were built."""
        for name, image in self.cluster.images.items():
            text = re.sub(rf"image: {name}:(latest|0\.1\.0)$", f"image: {image}", text, flags=re.MULTILINE)
        super().apply_text(text)

    @contextmanager
    def operator(self, *settings: str) -> Iterator[None]:
        """The chart with an operator of this namespace alone, and the present definitions, which are not changed."""
        name = f"mailboat-{self.name}"
        tags = {key: self.cluster.images[image].rpartition(":")[2] for key, image in OPERATOR_IMAGES.items()}
        place = f"namespaces={{{self.name}}}"
        options = [*(f"{key}.tag={tag}" for key, tag in tags.items()), place, "crds.install=false", *settings]
        release = (name, str(ROOT / "helm" / "mailboat"), "--namespace", self.name, "--timeout=120s", "--wait")
        with self.cluster.definitions(are_shared=True):
            self.cluster.objects.apply(*(yaml.safe_load(file.read_text()) for file in (ROOT / "crds").glob("*.yaml")))
            self.cluster.run("helm", "upgrade", "--install", *release, *(w for one in options for w in ("--set", one)))
            yield
            self.cluster.run("helm", "uninstall", name, "--namespace", self.name, "--wait")

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints, here; for tests of what kubectl's users see."""
        return self.cluster.run("kubectl", "--namespace", self.name, *arguments).decode()


class Author:
    """The example without the operator: one pod with a publisher and a subscriber."""

    def __init__(self, namespace: Namespace) -> None:
        """Nothing is there yet."""
        self.namespace = namespace
        self._manifest = BY_HAND.read_text()
        self._secrets = {"token": "a-token-of-this-test-alone"}

    def configure(self, sections: str, secrets: Mapping[str, str]) -> None:
        """Add sections to the configuration, and values to the secret that it is mounted with."""
        start = "  mailboat.yaml: |\n"
        added = textwrap.indent(textwrap.dedent(sections).strip(), " " * 4)
        self._manifest = self._manifest.replace(start, f"{start}{added}\n")
        self._secrets |= secrets

    def start(self) -> None:
        """Apply everything, and wait until the pod is ready."""
        self.namespace.make_secret("mailboat-token", self._secrets)
        self.namespace.apply_text(self._manifest)
        self.wait_until_ready()

    def stop(self) -> None:
        """Remove the pod and both volumes."""
        self.namespace.delete("StatefulSet", "author")
        self.namespace.wait_gone("StatefulSet/author", "Pod/author-0")
        self.namespace.delete("PersistentVolumeClaim", "home-author-0", "source-author-0")
        self.namespace.wait_gone("PersistentVolumeClaim/home-author-0", "PersistentVolumeClaim/source-author-0")

    def kill(self) -> None:
        """End the pod without notice, and wait for the one that takes its place."""
        before = self.namespace.get("Pod", "author-0")["metadata"]["uid"]
        self.namespace.delete("Pod", "author-0", grace_seconds=0)
        self.namespace.wait(
            "Pod", "author-0", lambda found: has_condition(found, "Ready") and found["metadata"]["uid"] != before
        )

    def wait_until_ready(self) -> None:
        self.namespace.wait_for("Ready", "Pod/author-0")

    def mailboat(self, *arguments: str) -> bytes:
        """What our command line prints, in the pod."""
        options = ("--url", "http://127.0.0.1:8080", "--token-file", "/run/secrets/mailboat/token")
        return self.namespace.run("author-0", "mailboat", *options, *arguments)

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Write files into the pod's source."""
        self.namespace.write_files("author-0", "/source", files)

    def served(self) -> dict[str, bytes]:
        """Path → content of what is in the pod's target."""
        return self.namespace.read_files("author-0", "/content/current")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster; made if it does not run, and left running: `make cluster-down` removes it."""
    images = _script("images").split()
    script = f"{_script('env')}\nenv -0"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True).stdout
    environment = dict(line.split("=", 1) for line in printed.split("\0") if "=" in line)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"  # where kubectl finds our plugin
    with closing(ClusterClient(environment["KUBECONFIG"], tmp_path_factory.mktemp("client"))) as client:
        names = {name.split(":")[0]: name for name in images[::2]}
        lock = tmp_path_factory.getbasetemp().parent / "definitions.lock"  # one folder for all workers of a run
        yield Cluster({**os.environ, **environment}, names, client, lock)


@pytest.fixture(scope="session")
def broker(cluster: Cluster, s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that pods reach.

    It starts after the bucket's server, which takes no port that is in use at any address.
    """
    client, controller, pods = free_ports(3)
    address = f"{cluster.host_address}:{pods}"
    listeners = {"CLIENT": f"{LOOPBACK}:{client}", "CONTROLLER": f"{LOOPBACK}:{controller}", "PODS": address}
    properties = {
        "listeners": ",".join(f"{name}://{place}" for name, place in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
    }
    settings = BrokerSettings(tmp_path_factory.mktemp("kafka"), properties=properties)
    with KafkaBroker(settings, SystemClock(), (client, controller)) as process:
        yield Broker(process, address)


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> str:
    """The broker's address."""
    return broker.address


@pytest.fixture(scope="session")
def s3(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket's endpoint that pods reach; the server itself listens on the loopback address only."""
    server = S3Server(S3ServerSettings(tmp_path_factory.mktemp("s3")), SystemClock())
    with server, socket.create_server((cluster.host_address, server.port)) as listening:
        threading.Thread(target=accept_for, args=(listening, server.port), daemon=True).start()
        yield f"http://{cluster.host_address}:{server.port}"


@dataclass
class Demand:
    """How much is asked of a pool, told by an HTTP server on this machine as `{"demand": …}`.

    Attributes:
        url: Where KEDA reads it.
        value: What it says.
    """

    url: str
    value: int = 0


@pytest.fixture(scope="session")
def demand(cluster: Cluster) -> Iterator[Demand]:
    """A demand of zero."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"demand": told.value}).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((cluster.host_address, 0), Handler) as server:
        told = Demand(f"http://{cluster.host_address}:{server.server_port}/")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield told
        server.shutdown()


@pytest.fixture(scope="session")
def keda_begun(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """The installation of KEDA, which goes on while tests run that need none."""
    with subprocess.Popen([sys.executable, str(CLUSTER), "keda"]) as installing:
        yield installing


@pytest.fixture(scope="session")
def keda(keda_begun: subprocess.Popen[bytes]) -> None:
    """KEDA, in the cluster as long as that is there."""
    assert keda_begun.wait(timeout=500) == 0


@pytest.fixture(scope="session")
def metrics_server_begun(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """The installation of the metrics server, which goes on while tests run that need none."""
    with subprocess.Popen([sys.executable, str(CLUSTER), "metrics"]) as installing:
        yield installing


@pytest.fixture(scope="session")
def metrics_server(metrics_server_begun: subprocess.Popen[bytes]) -> None:
    """What pods use, told to autoscalers; in the cluster as long as that is there."""
    assert metrics_server_begun.wait(timeout=500) == 0


@pytest.fixture(scope="session")
def script() -> Callable[[str], str]:
    """Runs a command of `tests/kind/cluster.py`, and gives what it prints."""
    return _script


def accept_for(listening: socket.socket, port: int) -> None:
    """Connect each caller with a port of the loopback address, until the socket is closed."""
    with suppress(OSError):
        while True:
            caller, _ = listening.accept()
            server = socket.create_connection((LOOPBACK, port))
            for source, sink in ((caller, server), (server, caller)):
                threading.Thread(target=pour, args=(source, sink), daemon=True).start()


def pour(source: socket.socket, sink: socket.socket) -> None:
    with closing(sink), suppress(OSError):
        while piece := source.recv(65_536):
            sink.sendall(piece)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of this test; it is deleted when the test is over."""
    with new_namespace(cluster, f"test-{zlib.crc32(request.node.name.encode())}") as made:
        yield made


@contextmanager
def new_namespace(cluster: Cluster, name: str) -> Iterator[Namespace]:
    """A namespace as long as the context lasts; one that a killed run left goes first."""
    cluster.objects.delete("Namespace", name)
    cluster.objects.wait_gone(f"Namespace/{name}")
    cluster.objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}})
    yield Namespace(cluster.client, name, cluster)
    cluster.objects.delete("Namespace", name)  # gone some seconds later, while other tests run


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of all tests of a module, which tell one story."""
    with new_namespace(cluster, request.module.__name__.rpartition(".")[2].replace("_", "-")) as made:
        yield made


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Path → content of the demo's site."""
    return files_of(write_site(tmp_path_factory.mktemp("demo") / "site"))


@pytest.fixture
def author(namespace: Namespace) -> Author:
    """The example in a namespace of its own; not started."""
    return Author(namespace)


def _script(command: str) -> str:
    done = subprocess.run([sys.executable, str(CLUSTER), command], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
