"""A real API server for the operator's tests: one a process, with our definitions, and namespaces for tests.

There are no nodes and no pods: what is stored, refused, defaulted, watched and collected is real, and nothing runs.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import pytest
import yaml
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator import resources
from support.forked_programs import ForkedProgram, operator
from support.forks import preload
from support.free_ports import free_ports
from support.operator_harbour import JOURNAL, PUBLISHER, Harbour

ROOT = Path(__file__).resolve().parents[2]
KIND = ROOT / "tests" / "kind"
API = "/apis/mailboat.dev/v1alpha1"
RIGHTS_API = "/apis/rbac.authorization.k8s.io/v1"
RIGHTS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
SOME_NAMESPACE = "some-namespace"
LEASE_SECONDS = 30.0
"""Longer than a busy machine stands still: who loses the lease ends, and no one starts it again here."""
PROGRAM = """
import sys, mailboat
sys.modules["kubernetes"] = None  # see support/kopf_alone.py
mailboat.__version__ = sys.argv[1]
from mailboat_operator.main import run
sys.exit(run())
"""


Process = ForkedProgram | subprocess.Popen[bytes]


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and one who may do all.

    Attributes:
        folder: Where its `kubeconfig` and logs are.
        http: Speaks to it.
        process: Runs it.
    """

    folder: Path
    http: httpx2.Client
    process: subprocess.Popen[str]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def kubeconfig(self) -> Path:
        """For any client."""
        return self.folder / "kubeconfig"

    def tell(self, word: str) -> None:
        """`kill` the server, or `start` it again; returns when that is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def ensure_running(self) -> None:
        """Nothing starts it again: what it stored is gone with it."""
        self.ensure_going()
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._is_ready():
            assert self.process.poll() is None, f"the API server ended; {self.folder} has its logs"
            assert time.monotonic() < end, f"the API server is not ready; {self.folder} has its logs"
            time.sleep(0.05)

    def rest(self) -> None:
        """Use no CPU until `ensure_running`."""
        self._signal(signal.SIGSTOP)

    def ensure_going(self) -> None:
        """End the rest."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server and the processes that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def _is_ready(self) -> bool:
        try:
            return bool(self.http.get("/readyz").is_success)
        except httpx2.TransportError:
            return False

    def new_namespace(self) -> str:
        """Make a namespace."""
        name = f"test-{next(self.numbers)}"
        self.http.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
        return name

    def create(self, namespace: str, manifest: dict[str, Any], *, is_strict: bool = True) -> httpx2.Response:
        """Ask for one of our objects to be made; unknown fields are refused, as by kubectl, or pruned."""
        query = {"fieldValidation": "Strict" if is_strict else "Ignore"}
        return self.http.post(f"{API}/namespaces/{namespace}/{plural_of(manifest)}", params=query, json=manifest)

    def replace(self, namespace: str, stored: dict[str, Any], *, part: str = "") -> httpx2.Response:
        """Ask for a stored object to be as given; `part` may be `/status`."""
        name = stored["metadata"]["name"]
        return self.http.put(f"{API}/namespaces/{namespace}/{plural_of(stored)}/{name}{part}", json=stored)

    def check_journal(self, namespace: str, name: str) -> None:
        """Write the status of a Journal whose topics are ready, as the operator does after it asked the brokers."""
        same = {"observedGeneration": 1, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        known = [{"type": "Ready", "status": "True", "reason": "AsSpecified", **same}]
        known += [{"type": item, "status": "False", "reason": "Settled", **same} for item in ("Reconciling", "Stalled")]
        path, headers = (
            f"{API}/namespaces/{namespace}/journals/{name}",
            {"Content-Type": "application/merge-patch+json"},
        )
        change = {"status": {"conditions": known}}
        self.http.patch(f"{path}/status", json=change, headers=headers).raise_for_status()

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl; the caller looks at the exit code."""
        command = [
            kubebox(),
            "kubectl",
            "--kubeconfig",
            str(self.kubeconfig),
            "--cache-dir",
            str(self.folder / "cache"),
        ]
        return subprocess.run([*command, *words], input=given, capture_output=True, text=True, check=False)


@cache
def kubebox() -> str:
    """The program, built once."""
    command = [sys.executable, str(KIND / "builds.py"), "kubebox"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def plural_of(manifest: dict[str, Any]) -> str:
    """How URLs call the kind."""
    return f"{manifest['kind'].lower()}s"


def apply_definitions(http: httpx2.Client) -> None:
    """Store the definitions, and wait until their kinds are served."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        document = yaml.load(path.read_text(), yaml.CSafeLoader)
        answer = http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=document)
        assert answer.status_code == 201, f"{path.name}: {answer.text}"
    end = time.monotonic() + PATIENCE_SECONDS
    plurals = [path.stem for path in (ROOT / "crds").glob("*.yaml")]
    while not all(http.get(f"{API}/{plural}").status_code == 200 for plural in plurals):
        assert time.monotonic() < end, "the kinds are not served"
        time.sleep(0.05)


def remove_definitions(http: httpx2.Client) -> None:
    """Delete the definitions, and wait until their kinds are gone."""
    root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    urls = [f"{root}/{path.stem}.mailboat.dev" for path in (ROOT / "crds").glob("*.yaml")]
    for url in urls:
        http.delete(url)
    end = time.monotonic() + PATIENCE_SECONDS
    while not all(http.get(url).status_code == 404 for url in urls):
        assert time.monotonic() < end, "the definitions are not deleted"
        time.sleep(0.05)


def remove_objects(http: httpx2.Client) -> None:
    """Delete all objects of our kinds. No operator is left to take its finalizer off."""
    headers = {"Content-Type": "application/merge-patch+json"}
    for plural in [path.stem for path in (ROOT / "crds").glob("*.yaml")]:
        for item in http.get(f"{API}/{plural}").raise_for_status().json()["items"]:
            url = f"{API}/namespaces/{item['metadata']['namespace']}/{plural}/{item['metadata']['name']}"
            http.patch(url, json={"metadata": {"finalizers": None}}, headers=headers)
            http.delete(url)  # 404 where the finalizer was all that kept it


@pytest.fixture(autouse=True)
def _no_lease_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look in this process keeps no lease, so a request may wait for an API server that is busy."""
    monkeypatch.setattr(resources, "REQUEST_SECONDS", PATIENCE_SECONDS)


@contextmanager
def run_api_server(folder: Path) -> Iterator[ApiServer]:
    """A server that stores nothing of ours yet. It ends when its standard input does, so never after us."""
    environment = {**os.environ, "PYTHONPATH": str(KIND.parent)}  # for `support`
    command = [sys.executable, str(KIND / "api_server.py"), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n", "the API server did not start: see above"
        known = json.loads((folder / "kubeconfig").read_text())
        url, token = known["clusters"][0]["cluster"]["server"], known["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(
            base_url=url, headers=headers, verify=False, timeout=PATIENCE_SECONDS, trust_env=False
        ) as http:
            server = ApiServer(folder, http, process)
            yield server
            server.ensure_going()
        process.stdin.close()
        process.wait(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server of this process's tests, with our definitions."""
    with run_api_server(tmp_path_factory.mktemp("api-server")) as server:
        apply_definitions(server.http)
        yield server


@pytest.fixture(scope="session")
def spare_api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Another one, whose objects and kinds are those of one test at a time: see `cleared_api_server`."""
    with run_api_server(tmp_path_factory.mktemp("spare-api-server")) as server:
        apply_definitions(server.http)
        yield server


@pytest.fixture
def cleared_api_server(spare_api_server: ApiServer) -> Iterator[ApiServer]:
    """The spare server, where other tests left no object of ours and brought no kinds."""
    yield spare_api_server
    remove_objects(spare_api_server.http)


@pytest.fixture
def empty_api_server(cleared_api_server: ApiServer) -> Iterator[ApiServer]:
    """The spare server without our definitions. A server of its own would cost 8 CPU seconds."""
    remove_definitions(cleared_api_server.http)
    yield cleared_api_server
    remove_definitions(cleared_api_server.http)  # with their objects: no operator gave them finalizers
    apply_definitions(cleared_api_server.http)


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A namespace for one test."""
    return api_server.new_namespace()


@pytest.fixture(scope="session")
def helm() -> str:
    """The program, built once."""
    command = [sys.executable, str(KIND / "builds.py"), "helm"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@cache
def rendered_chart(helm: str, *, is_clusterwide: bool) -> str:
    """What an installation into `SOME_NAMESPACE` applies. Helm takes 0.3 CPU seconds."""
    command = [helm, "template", "mailboat", str(ROOT / "helm" / "mailboat"), "--namespace", SOME_NAMESPACE]
    command += [] if is_clusterwide else ["--set", f"namespaces={{{SOME_NAMESPACE}}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Installation:
    """The chart's service account, roles and settings, in one namespace; nothing of it runs by itself."""

    def __init__(self, api_server: ApiServer, helm: str, namespace: str, *, is_clusterwide: bool) -> None:
        self.server, self.namespace, self.is_clusterwide = api_server, namespace, is_clusterwide
        text = rendered_chart(helm, is_clusterwide=is_clusterwide).replace(SOME_NAMESPACE, namespace)
        self._documents = [item for item in yaml.load_all(text, yaml.CSafeLoader) if item]
        for kind, root in (("ServiceAccount", "/api/v1"), *((kind, RIGHTS_API) for kind in RIGHTS)):
            for item in self._of(kind):
                place = "" if kind.startswith("Cluster") else f"/namespaces/{namespace}"
                api_server.http.post(f"{root}{place}/{kind.lower()}s", json=item).raise_for_status()

    def environment(self) -> dict[str, str]:
        """What the chart tells the operator."""
        [container] = self._of("Deployment")[0]["spec"]["template"]["spec"]["containers"]
        return {item["name"]: str(item["value"]) for item in container["env"] if "value" in item}

    def roles(self) -> list[dict[str, Any]]:
        """What its account may do."""
        return [*self._of("Role"), *self._of("ClusterRole")]

    def remove_rights(self) -> None:
        """Those of the whole cluster, which outlive the namespace."""
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            for item in self._of(kind):
                self.server.http.delete(f"{RIGHTS_API}/{kind.lower()}s/{item['metadata']['name']}").raise_for_status()

    def kubeconfig(self, path: Path, server: str | None = None) -> Path:
        """A kubeconfig with the account's rights and no others, written to `path`; `server` may be another URL."""
        [account] = self._of("ServiceAccount")
        url = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account['metadata']['name']}/token"
        token = self.server.http.post(url, json={"spec": {}}).raise_for_status().json()["status"]["token"]
        self._await_rights(token)
        document = json.loads(self.server.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": token}
        document["contexts"][0]["context"]["namespace"] = self.namespace
        if server is not None:
            document["clusters"][0]["cluster"] = {"server": server}
        path.write_text(json.dumps(document))
        return path

    def _await_rights(self, token: str) -> None:
        """The API server takes a moment to know of new roles."""
        place = "" if self.is_clusterwide else f"/namespaces/{self.namespace}"
        lease = self.environment()["MAILBOAT_OPERATOR_LEASE_NAME"]
        urls = (
            f"{API}{place}/publishers",
            f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{lease}",
        )
        headers, end = {"Authorization": f"Bearer {token}"}, time.monotonic() + PATIENCE_SECONDS
        while any(self.server.http.get(url, headers=headers).status_code == 403 for url in urls):
            assert time.monotonic() < end, "the account has no rights"
            time.sleep(0.05)

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [
            document
            for document in self._documents
            if document["kind"] == kind and "helm.sh/hook" not in annotations_of(document)
        ]


def annotations_of(document: dict[str, Any]) -> dict[str, str]:
    """Its annotations."""
    return document["metadata"].get("annotations") or {}


class Replicas:
    """Operators as processes, with the rights that the chart gives, and no others."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self.server, self.namespace, self.folder = installation.server, installation.namespace, folder
        self.installation = installation
        # here, as only the workers that run these tests need it, while all collect them
        preload("support.kopf_alone", "mailboat_operator.main")
        self.processes: list[Process] = []
        self.ports: dict[str, int] = {}
        self.is_api_new = False
        """Whether the API server was started again meanwhile: it serves before it knows of any roles."""

    def start(
        self,
        name: str,
        server: str | None = None,
        version: str | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
        constants: Mapping[str, float] = MappingProxyType({}),
        **settings: object,
    ) -> Process:
        """Start one; `server` may be another URL of the API, `names` has addresses of Services, `constants` of modules.

        With a `version` of the operator it is a new Python, otherwise a fork of one that has loaded it.
        """
        (self.ports[name],) = free_ports(1)
        environment = {
            **os.environ,
            **self.installation.environment(),
            "KUBECONFIG": str(self._kubeconfig(name, server)),
            "POD_NAME": name,
            "MAILBOAT_OPERATOR_LEASE_SECONDS": str(LEASE_SECONDS),
            "MAILBOAT_OPERATOR_RESYNC_SECONDS": "120",
            "MAILBOAT_OPERATOR_PORT": str(self.ports[name]),
            **{f"MAILBOAT_OPERATOR_{key.upper()}": str(value) for key, value in settings.items()},
        }
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            if version is None:
                number = file.fileno()
                process: Process = ForkedProgram(
                    operator, dict(names), dict(constants), output=number, errors=number, environment=environment
                )
            else:
                command = [sys.executable, "-W", "error", "-c", PROGRAM, version]
                process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        self.processes.append(process)
        return process

    def _kubeconfig(self, name: str, server: str | None) -> Path:
        """Made once, so that a replica can be started while the API is away."""
        path = self.folder / "kubeconfig" if server is None else self.folder / f"{name}.kubeconfig"
        return path if path.exists() else self.installation.kubeconfig(path, server)

    def log(self, name: str) -> str:
        """What it said."""
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        """The ends of all their logs."""
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("*.log"))

    def probe(self, name: str, path: str) -> httpx2.Response:
        """What it answers the kubelet."""
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        # plain HTTP: loads no certificates
        return httpx2.get(url, trust_env=False, timeout=PATIENCE_SECONDS, verify=False)

    def figure(self, name: str, metric: str) -> float:
        """The sum of a metric over its labels, unless they are named with it."""
        lines = self.probe(name, "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{metric} ", f"{metric}{{")))

    def lease(self) -> dict[str, Any]:
        """The spec of the Lease, empty before there is one."""
        name = self.installation.environment()["MAILBOAT_OPERATOR_LEASE_NAME"]
        answer = self.server.http.get(f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}")
        return {} if answer.status_code == 404 else dict(answer.json()["spec"])

    def holder(self) -> str:
        """Who has the lease."""
        return str(self.lease().get("holderIdentity", ""))

    def is_lease_renewed(self) -> bool:
        """Whether the leader renewed it at least once."""
        spec = self.lease()
        return bool(spec.get("holderIdentity")) and spec["renewTime"] > spec["acquireTime"]

    def leads(self, name: str) -> bool:
        """Whether it does."""
        return self.holder().startswith(f"{name}_")

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """Make one of our objects."""
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.server.create(self.namespace, manifest)
        assert answer.status_code == 201, answer.text

    def url(self, kind: str, name: str = "") -> str:
        """Of one of our objects."""
        return f"{API}/namespaces/{self.namespace}/{kind.lower()}s" + (f"/{name}" if name else "")

    def reason(self, kind: str, name: str) -> str:
        """Why an object is ready or not; empty while nothing is said."""
        found = self.server.http.get(self.url(kind, name)).json()
        conditions = (found.get("status") or {}).get("conditions") or [{"reason": ""}]
        return str(conditions[0]["reason"])

    def has(self, path: str) -> bool:
        """Whether there is such an object; `{}` stands for the namespace."""
        found: httpx2.Response = self.server.http.get(path.format(f"namespaces/{self.namespace}"))
        return found.status_code == 200

    def has_workload(self, name: str) -> bool:
        """Whether there is a StatefulSet."""
        return self.has(f"/apis/apps/v1/{{}}/statefulsets/{name}")

    def wait(self, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> float:
        """Until it holds; how long that took."""
        started = time.monotonic()
        while not holds():
            assert time.monotonic() < started + seconds, self.logs()
            time.sleep(0.05)
        return time.monotonic() - started

    def end(self) -> None:
        """Kill them all; none was ever refused a right."""
        for process in self.processes:
            process.kill()
            process.wait()
        said = "".join(path.read_text() for path in self.folder.glob("*.log"))
        assert self.is_api_new or "forbidden: User" not in said


@pytest.fixture
def replicas(api_server: ApiServer, helm: str, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    """Operators of one namespace. Ended after the test, whatever it does."""
    made = Replicas(Installation(api_server, helm, namespace, is_clusterwide=False), tmp_path)
    yield made
    made.end()


@pytest.fixture
def lone_replicas(cleared_api_server: ApiServer, helm: str, tmp_path: Path) -> Iterator[Replicas]:
    """The same on the spare server: it has no kinds that other tests brought, and may be killed."""
    namespace = cleared_api_server.new_namespace()
    made = Replicas(Installation(cleared_api_server, helm, namespace, is_clusterwide=False), tmp_path)
    yield made
    made.end()


@pytest.fixture
def clusterwide_replicas(cleared_api_server: ApiServer, helm: str, tmp_path: Path) -> Iterator[Replicas]:
    """Operators of all namespaces, on the spare server: what other tests left is none of theirs."""
    namespace = cleared_api_server.new_namespace()
    installation = Installation(cleared_api_server, helm, namespace, is_clusterwide=True)
    made = Replicas(installation, tmp_path)
    yield made
    try:
        made.end()
    finally:
        installation.remove_rights()


def merged(document: Any, change: Any) -> Any:
    """A document after a change: mappings are merged, null removes, all else replaces."""
    if not isinstance(document, dict) or not isinstance(change, dict):
        return change
    made = {**document, **{name: merged(document.get(name), value) for name, value in change.items()}}
    return {name: value for name, value in made.items() if value is not None}


@pytest.fixture(scope="session")
def manifest_of() -> Callable[..., dict[str, Any]]:
    """Makes a manifest: the accepted one of a kind, after changes to its spec and its name."""
    known = {
        item["kind"]: item
        for item in yaml.load_all((Path(__file__).parent / "accepted.yaml").read_text(), yaml.CSafeLoader)
    }

    def make(kind: str, change: Any = None, name: str | None = None) -> dict[str, Any]:
        made: dict[str, Any] = merged(known[kind], {} if change is None else {"spec": change})
        return merged(made, {} if name is None else {"metadata": {"name": name}})  # type: ignore[no-any-return]

    return make


@pytest.fixture
def harbour(api_server: Any, namespace: str, tmp_path: Path) -> Iterator[Harbour]:
    """A namespace with a journal and a publisher whose token is made, and whose agent does not run yet."""
    made = Harbour(api_server, namespace, tmp_path)
    made.make("Journal", "main", JOURNAL)
    made.make("Publisher", "author", PUBLISHER)
    made.reconcile("Publisher", "author")
    yield made
    made.close()
