"""A namespace of an API server, the operator's one step in it, and agents on this machine."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from lightkube.config.kubeconfig import KubeConfig
from mailboat.errors import ClusterUnavailableError
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator.agent_client import Agents
from mailboat_operator.cluster import Cluster
from mailboat_operator.reconciliation import ObjectKey, ReconcileOutcome, Reconciler
from mailboat_operator.workload.pods import AgentImage
from support.forked_programs import ForkedProgram, start_mailboat

API = "apis/mailboat.dev/v1alpha1"
JOURNAL = {"kafka": {"bootstrapServers": ["kafka:9092"]}}
PUBLISHER = {"journalRef": {"name": "main"}, "source": {"volumeClaim": {"name": "site"}}}
NOWHERE = "http://127.0.0.1:9"


class Harbour:
    """A namespace, the operator's one step in it, and agents on this machine."""

    def __init__(self, api_server: Any, namespace: str, folder: Path) -> None:
        self.server, self.namespace, self.folder = api_server, namespace, folder
        self.url = NOWHERE
        self.writes: Counter[str] = Counter()
        self.failing: str | None = None
        self._processes: dict[str, ForkedProgram] = {}

    @property
    def http(self) -> httpx2.Client:
        client: httpx2.Client = self.server.http
        return client

    def path(self, kind: str, name: str = "", root: str = API) -> str:
        return f"/{root}/namespaces/{self.namespace}/{kind.lower()}s" + (f"/{name}" if name else "")

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> str:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.server.create(self.namespace, manifest)
        assert answer.status_code == 201, answer.text
        if kind == "Journal":
            self.server.check_journal(self.namespace, name)
        return str(answer.json()["metadata"]["uid"])

    def distribute(self, name: str, action: str = "Add", *paths: str, **spec: Any) -> str:
        depth = {"deep": True} if action == "Add" else {}
        said = {"paths": [{"path": path, **depth} for path in paths]} if paths else {}
        return self.make("Distribution", name, {"publisherRef": {"name": "author"}, "action": action, **said, **spec})

    def status(self, kind: str, name: str) -> dict[str, Any]:
        answer = self.http.get(self.path(kind, name))
        answer.raise_for_status()
        return dict(answer.json().get("status") or {})

    def condition(self, kind: str, name: str, condition: str = "Ready") -> tuple[str, str]:
        found = next(item for item in self.status(kind, name)["conditions"] if item["type"] == condition)
        return found["status"], found["reason"]

    def patch(self, url: str, change: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self.http.patch(url, json=change, headers=headers).raise_for_status()

    def reconcile(self, kind: str, name: str) -> ReconcileOutcome:
        async def step() -> ReconcileOutcome:
            cluster = Cluster(self._count, KubeConfig.from_file(self.server.kubeconfig))
            agents = Agents(lambda _name, _namespace: self.url)
            try:
                reconciler = Reconciler(cluster, agents, AgentImage("mailboat:test"), lambda _: None)
                return await reconciler.reconcile(ObjectKey(kind, self.namespace, name))
            finally:
                await agents.close()
                await cluster.close()

        return asyncio.run(step())

    def _count(self, verb: str, kind: str) -> None:
        if verb == self.failing:
            raise ClusterUnavailableError("the operator dies here")
        self.writes[f"{verb} {kind}"] += 1

    def follow(self, name: str, state: str) -> dict[str, Any]:
        """Look at a Distribution until it has come so far."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.reconcile("Distribution", name)
            found = self.status("Distribution", name)
            if found["state"] == state:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.05)

    @property
    def token(self) -> str:
        secret = self.http.get(self.path("secret", "author-token", "api/v1")).json()
        return base64.b64decode(secret["data"]["token"]).decode()

    def run_agent(self, name: str, agents: dict[str, Any], **document: Any) -> str:
        """Start an agent on the journal of this folder; where its API is."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        whole = {
            "journal": {"path": "../journal.db"},
            "blobs": {"path": "../blobs"},
            "http": {"port": 0},
            "subscriber": {"announce_seconds": 0.2, "max_retries": 0},
            "agents": agents,
            **document,
        }
        (home / "agent.yaml").write_text(json.dumps(whole))
        process = start_mailboat(["agent", "run", "--config", home / "agent.yaml", "-o", "json"], home / "errors")
        self._processes[name] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (home / "errors").read_text()
        return str(json.loads(line)["url"])

    def run_author(self) -> None:
        """The publisher's agent, with the token that the operator made."""
        site = self.folder / "site"
        (site / "en").mkdir(parents=True, exist_ok=True)
        (site / "en" / "index.html").write_text("<h1>hello</h1>")
        (self.folder / "token").write_text(self.token)
        tokens = [{"name": "operator", "token": {"file": str(self.folder / "token")}, "verbs": ["admin"]}]
        self.url = self.run_agent(
            "author",
            {"publishers": [{"name": "author", "source": str(site)}]},
            http={"port": 0, "tokens": tokens, "requests_per_second": 1000, "burst_requests": 1000},
        )

    def run_member(self, name: str, **more: Any) -> None:
        self.run_agent(name, {"subscribers": [{"name": name, "target": "files:content", "editable": True, **more}]})

    def stop(self, name: str) -> None:
        """End a member, and wait until the publisher has heard its farewell."""
        process = self._processes.pop(name)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
        eventually(lambda: [item["state"] for item in self.ask("subscribers") if item["name"] == name] == ["stopped"])

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def ask(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.url}/api/v1/{path}"
        # plain HTTP: loads no certificates
        answer = httpx2.get(url, headers=headers, trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
        answer.raise_for_status()
        return answer.json()

    def know(self, *names: str) -> None:
        """Wait until the publisher knows exactly these subscribers."""
        eventually(lambda: sorted(item["name"] for item in self.ask("subscribers")) == sorted(names))

    def status_of_pods(self) -> int:
        """How many pods the pool's workload has."""
        return int(self.http.get(self.path("statefulset", "edge", "apis/apps/v1")).json()["status"]["replicas"])

    def let_pods_be_ready(self, name: str, count: int) -> None:
        """As the kubelet would; there is none here."""
        for number in range(count):
            pod = self.path("pod", f"{name}-{number}", "api/v1")
            eventually(lambda pod=pod: self.http.get(pod).status_code == 200)  # type: ignore[misc]  # one pod each
            now = "2026-01-01T00:00:00Z"
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
            self.patch(f"{pod}/status", {"status": {"phase": "Running", "conditions": conditions}})
        workload = self.path("statefulset", name, "apis/apps/v1")
        eventually(lambda: self.http.get(workload).json()["status"].get("readyReplicas") == count)


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
