"""A real API server for the operator's tests: one a process, with our definitions, and namespaces for tests.

There are no nodes and no pods: what is stored, refused, defaulted, watched and collected is real, and nothing runs.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KIND = ROOT / "tests" / "kind"
API = "/apis/mailboat.dev/v1alpha1"
READY_SECONDS = 60.0


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and one who may do all.

    Attributes:
        folder: Where its `kubeconfig` and logs are.
        http: Speaks to it.
    """

    folder: Path
    http: httpx.Client
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def kubeconfig(self) -> Path:
        """For any client."""
        return self.folder / "kubeconfig"

    def new_namespace(self) -> str:
        """Make a namespace."""
        name = f"test-{next(self.numbers)}"
        self.http.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
        return name

    def create(self, namespace: str, manifest: dict[str, Any], *, is_strict: bool = True) -> httpx.Response:
        """Ask for one of our objects to be made; unknown fields are refused, as by kubectl, or pruned."""
        query = {"fieldValidation": "Strict" if is_strict else "Ignore"}
        return self.http.post(f"{API}/namespaces/{namespace}/{plural_of(manifest)}", params=query, json=manifest)

    def replace(self, namespace: str, stored: dict[str, Any], *, part: str = "") -> httpx.Response:
        """Ask for a stored object to be as given; `part` may be `/status`."""
        name = stored["metadata"]["name"]
        return self.http.put(f"{API}/namespaces/{namespace}/{plural_of(stored)}/{name}{part}", json=stored)

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl; the caller looks at the exit code."""
        program = subprocess.run(
            [sys.executable, str(KIND / "builds.py"), "kubebox"], capture_output=True, text=True, check=True
        ).stdout.strip()
        command = [program, "kubectl", "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.folder / "cache")]
        return subprocess.run([*command, *words], input=given, capture_output=True, text=True, check=False)


def plural_of(manifest: dict[str, Any]) -> str:
    """How URLs call the kind."""
    return f"{manifest['kind'].lower()}s"


def apply_definitions(http: httpx.Client) -> None:
    """Store the definitions, and wait until their kinds are served."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        answer = http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=document)
        assert answer.status_code == 201, f"{path.name}: {answer.text}"
    end = time.monotonic() + READY_SECONDS
    plurals = [path.stem for path in (ROOT / "crds").glob("*.yaml")]
    while not all(http.get(f"{API}/{plural}").status_code == 200 for plural in plurals):
        assert time.monotonic() < end, "the kinds are not served"
        time.sleep(0.05)


@contextmanager
def run_api_server(folder: Path) -> Iterator[ApiServer]:
    """A server that stores nothing of ours yet. It ends when its standard input does, so never after us."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
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
        with httpx.Client(base_url=url, headers=headers, verify=False, timeout=30, trust_env=False) as http:
            yield ApiServer(folder, http)
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server of this process's tests, with our definitions."""
    with run_api_server(tmp_path_factory.mktemp("api-server")) as server:
        apply_definitions(server.http)
        yield server


@pytest.fixture
def empty_api_server(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server of one test, without our definitions."""
    with run_api_server(tmp_path / "api-server") as server:
        yield server


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A namespace for one test."""
    return api_server.new_namespace()


def merged(document: Any, change: Any) -> Any:
    """A document after a change: mappings are merged, null removes, all else replaces."""
    if not isinstance(document, dict) or not isinstance(change, dict):
        return change
    made = {**document, **{name: merged(document.get(name), value) for name, value in change.items()}}
    return {name: value for name, value in made.items() if value is not None}


@pytest.fixture(scope="session")
def manifest_of() -> Callable[..., dict[str, Any]]:
    """Makes a manifest: the accepted one of a kind, after changes to its spec and its name."""
    known = {one["kind"]: one for one in yaml.safe_load_all((Path(__file__).parent / "accepted.yaml").read_text())}

    def make(kind: str, change: Any = None, name: str | None = None) -> dict[str, Any]:
        made: dict[str, Any] = merged(known[kind], {} if change is None else {"spec": change})
        return merged(made, {} if name is None else {"metadata": {"name": name}})  # type: ignore[no-any-return]

    return make
