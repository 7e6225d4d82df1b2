"""A real cluster with the project's images in it, and a namespace for each test. `make e2e` runs what is here."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tarfile
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
from mailboat.cli.demo.sample_site import write_site
from mailboat.clock import SystemClock
from mailboat.testing.free_ports import LOOPBACK, free_ports
from mailboat.testing.kafka_broker import BrokerSettings, KafkaBroker
from mailboat.testing.s3_server import S3Server, S3ServerSettings

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = ROOT / "examples" / "kubernetes" / "by-hand" / "agent.yaml"
CLUSTER = ROOT / "tests" / "kind" / "cluster.py"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"

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
    """

    environment: dict[str, str]
    images: dict[str, str]

    @property
    def host_address(self) -> str:
        """Where pods reach servers of this machine."""
        return self.environment["MAILBOAT_HOST_ADDRESS"]

    def run(self, *command: str, content: bytes = b"") -> bytes:
        """What a program prints; a failing one fails the test with its own words."""
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
        """It answers nobody meanwhile, and loses nothing."""
        self.process.pause()
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)


@dataclass(frozen=True)
class Namespace:
    """A namespace in which only pods of the restricted profile are let in."""

    cluster: Cluster
    name: str

    def make_source(self) -> None:
        """A claim `site` for a publisher; what is in `/site` of the pod `filler` is in it."""
        self.apply(SOURCE)
        self.kubectl("wait", "pod/filler", "--for=condition=Ready", "--timeout=120s")

    def fill(self, pod: str, folder: str, source: Path) -> None:
        """Copy what is in a folder of this machine into one of a pod."""
        self.kubectl("exec", "-i", pod, "--", "tar", "-C", folder, "-x", "-m", content=packed(source))

    def content(self, pod: str, folder: str) -> dict[str, bytes]:
        """Path → content of the files of a folder of a pod."""
        return unpacked(self.kubectl("exec", pod, "--", "tar", "-C", folder, "-c", "."))

    def kubectl(self, *arguments: str, content: bytes = b"") -> bytes:
        """What kubectl prints, here."""
        return self.cluster.run("kubectl", "--namespace", self.name, *arguments, content=content)

    def apply(self, text: str) -> None:
        """Apply a manifest with the images that were built."""
        for name, image in self.cluster.images.items():
            text = text.replace(f"image: {name}:latest", f"image: {image}")
        self.kubectl("apply", "-f", "-", content=text.encode())


def packed(folder: Path) -> bytes:
    """What is in a folder, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for one in sorted(folder.iterdir()):  # not the folder itself: a volume has its own mode
            archive.add(one, arcname=one.name)
    return buffer.getvalue()


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Path → content of the files of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = {one.name.removeprefix("./"): opened.extractfile(one) for one in opened}
        return {name: file.read() for name, file in found.items() if file is not None}


def files_of(folder: Path) -> dict[str, bytes]:
    """Path → content of the files of a folder of this machine."""
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


class Author:
    """The example without the operator: one pod with a publisher and a subscriber."""

    def __init__(self, namespace: Namespace, site: Path) -> None:
        """Nothing is there yet; `site` is the folder of the demo's site."""
        self.namespace = namespace
        self._site = site
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
        literals = [f"--from-literal={key}={value}" for key, value in self._secrets.items()]
        options = ["--dry-run=client", "-o", "yaml", *literals]
        secret = self.namespace.kubectl("create", "secret", "generic", "mailboat-token", *options)
        self.namespace.apply(f"{secret.decode()}---\n{self._manifest}")
        self.wait_until_ready()

    def stop(self) -> None:
        """Remove the pod and both volumes."""
        self.namespace.kubectl("delete", "statefulset", "author", "--timeout=60s")
        self.namespace.kubectl("wait", "pod/author-0", "--for=delete", "--timeout=60s")
        self.namespace.kubectl("delete", "pvc", "home-author-0", "source-author-0", "--timeout=60s")

    def kill(self) -> None:
        """End the pod without notice, and wait for the one that takes its place."""
        before = self._pod_id()
        self.namespace.kubectl("delete", "pod", "author-0", "--grace-period=0", "--force")
        self.wait_until_ready()
        assert self._pod_id() != before

    def wait_until_ready(self) -> None:
        self.namespace.kubectl("rollout", "status", "statefulset/author", "--timeout=120s")
        self.namespace.kubectl("wait", "pod/author-0", "--for=condition=Ready", "--timeout=120s")

    def mailboat(self, *arguments: str) -> bytes:
        """What our command line prints, in the pod."""
        options = ("--url", "http://127.0.0.1:8080", "--token-file", "/run/secrets/mailboat/token")
        return self.namespace.kubectl("exec", "author-0", "--", "mailboat", *options, *arguments)

    def fill(self, folder: Path | None = None) -> None:
        """Copy what is in a folder, by default the demo's site, into the pod's source."""
        self.namespace.fill("author-0", "/source", self._site if folder is None else folder)

    def served(self) -> dict[str, bytes]:
        """Path → content of what is in the pod's target."""
        return self.namespace.content("author-0", "/content/current")

    def _pod_id(self) -> bytes:
        return self.namespace.kubectl("get", "pod", "author-0", "-o", "jsonpath={.metadata.uid}")


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster; made if it does not run, and left running: `make cluster-down` removes it."""
    images = _script("images").split()
    script = f"{_script('env')}\nenv -0"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True).stdout
    environment = dict(line.split("=", 1) for line in printed.split("\0") if "=" in line)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"  # where kubectl finds our plugin
    return Cluster({**os.environ, **environment}, {name.split(":")[0]: name for name in images[::2]})


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
def keda(cluster: Cluster) -> None:
    """KEDA, in the cluster as long as that is there."""
    _script("keda")


@pytest.fixture(scope="session")
def metrics_server(cluster: Cluster) -> None:
    """What pods use, told to autoscalers; in the cluster as long as that is there."""
    _script("metrics")


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
    """A namespace of this test; what it holds is gone when the test is over."""
    with new_namespace(cluster, f"test-{zlib.crc32(request.node.name.encode())}") as made:
        yield made


@contextmanager
def new_namespace(cluster: Cluster, name: str) -> Iterator[Namespace]:
    """A namespace as long as the context lasts; one that a killed run left goes first."""
    cluster.run("kubectl", "delete", "namespace", name, "--ignore-not-found", "--timeout=180s")
    cluster.run("kubectl", "create", "namespace", name)
    cluster.run("kubectl", "label", "namespace", name, RESTRICTED)
    yield Namespace(cluster, name)
    cluster.run("kubectl", "delete", "namespace", name, "--timeout=180s")


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of all tests of a module, which tell one story."""
    with new_namespace(cluster, request.module.__name__.rpartition(".")[2].replace("_", "-")) as made:
        yield made


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's site."""
    return write_site(tmp_path_factory.mktemp("demo") / "site")


@pytest.fixture(scope="session")
def site(site_folder: Path) -> dict[str, bytes]:
    """Path → content of the demo's site."""
    return files_of(site_folder)


@pytest.fixture
def author(namespace: Namespace, site_folder: Path) -> Author:
    """The example in a namespace of its own; not started."""
    return Author(namespace, site_folder)


def _script(command: str) -> str:
    done = subprocess.run([sys.executable, str(CLUSTER), command], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
