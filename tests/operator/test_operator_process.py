"""The operator as a process beside a real API server: it watches, acts, elects a leader, and ends in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
LEASE_SECONDS = 3.0
JOURNAL = {"kafka": {"bootstrapServers": ["kafka:9092"]}}
PUBLISHER = {"journalRef": {"name": "main"}}


class Replicas:
    """Operators of one namespace, as processes."""

    def __init__(self, api_server: Any, namespace: str, folder: Path) -> None:
        self.server, self.namespace, self.folder = api_server, namespace, folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.server.kubeconfig),
            "POD_NAME": name,
            "MAILBOAT_OPERATOR_AGENT_IMAGE": "mailboat:test",
            "MAILBOAT_OPERATOR_NAMESPACES": self.namespace,
            "MAILBOAT_OPERATOR_LEASE_NAMESPACE": self.namespace,
            "MAILBOAT_OPERATOR_LEASE_SECONDS": str(LEASE_SECONDS),
            "MAILBOAT_OPERATOR_RESYNC_SECONDS": "2",
            "MAILBOAT_OPERATOR_PORT": "0",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "mailboat_operator.main"], stdout=log, stderr=log, env=environment
            )
        self.processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def holder(self) -> str:
        url = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/mailboat-operator"
        answer = self.server.http.get(url)
        return "" if answer.status_code == 404 else str(answer.json()["spec"].get("holderIdentity", ""))

    def leads(self, name: str) -> bool:
        return self.holder().startswith(f"{name}_")

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.server.create(self.namespace, manifest)
        assert answer.status_code == 201, answer.text

    def has(self, path: str) -> bool:
        found: httpx.Response = self.server.http.get(path.format(f"namespaces/{self.namespace}"))
        return found.status_code == 200

    def has_workload(self, name: str) -> bool:
        return self.has(f"/apis/apps/v1/{{}}/statefulsets/{name}")

    def wait(self, holds: Callable[[], bool], seconds: float = 60.0) -> float:
        """Until it holds; how long that took."""
        started = time.monotonic()
        while not holds():
            logs = "\n".join(path.read_text()[-3000:] for path in self.folder.glob("*.log"))
            assert time.monotonic() < started + seconds, logs
            time.sleep(0.05)
        return time.monotonic() - started

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def replicas(api_server: Any, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    """Ended after the test, whatever it does."""
    made = Replicas(api_server, namespace, tmp_path)
    yield made
    made.end()


def test_what_is_made_is_looked_after_and_put_right_by_itself(replicas: Replicas) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "early", PUBLISHER)
    replicas.start("one")
    replicas.wait(lambda: replicas.has_workload("early"))
    replicas.make("Publisher", "late", PUBLISHER)
    assert replicas.wait(lambda: replicas.has_workload("late")) < 10
    path = f"/api/v1/namespaces/{replicas.namespace}/services/late"
    replicas.server.http.delete(path).raise_for_status()
    replicas.wait(lambda: replicas.has("/api/v1/{}/services/late"))


def test_an_object_that_waits_for_a_journal_goes_on_when_it_comes(replicas: Replicas) -> None:
    replicas.start("one")
    replicas.make("Publisher", "author", PUBLISHER)
    path = f"/apis/mailboat.dev/v1alpha1/namespaces/{replicas.namespace}/publishers/author"
    replicas.wait(lambda: "JournalMissing" in replicas.server.http.get(path).text)
    replicas.make("Journal", "main", JOURNAL)
    replicas.wait(lambda: replicas.has_workload("author"))


def test_one_object_that_cannot_be_served_holds_up_no_other(replicas: Replicas) -> None:
    replicas.make("Journal", "main", JOURNAL)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/configmaps": "1"}}}
    url = f"/api/v1/namespaces/{replicas.namespace}"
    replicas.wait(lambda: replicas.has("/api/v1/{}/configmaps/kube-root-ca.crt"))
    replicas.server.http.post(f"{url}/resourcequotas", json=quota).raise_for_status()
    counted = f"{url}/resourcequotas/none"
    replicas.wait(lambda: "used" in replicas.server.http.get(counted).json().get("status", {}))
    replicas.make("Publisher", "bad", PUBLISHER)
    replicas.start("one")
    path = f"/apis/mailboat.dev/v1alpha1/namespaces/{replicas.namespace}/publishers/bad"
    replicas.wait(lambda: "ClusterRefused" in replicas.server.http.get(path).text)
    replicas.server.http.delete(counted).raise_for_status()
    replicas.make("Publisher", "good", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("good"))


def test_another_replica_takes_over_from_a_killed_leader_within_the_lease(replicas: Replicas) -> None:
    replicas.make("Journal", "main", JOURNAL)
    first = replicas.start("one")
    replicas.wait(lambda: replicas.leads("one"))
    replicas.start("two")
    replicas.wait(lambda: "waits for the lease" in replicas.log("two"))
    first.send_signal(signal.SIGKILL)
    first.wait()
    replicas.make("Publisher", "author", PUBLISHER)
    assert replicas.wait(lambda: replicas.has_workload("author")) < LEASE_SECONDS + 5
    assert replicas.leads("two")


def test_only_one_of_two_replicas_acts(replicas: Replicas) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.start("one")
    replicas.wait(lambda: replicas.leads("one"))
    replicas.start("two")
    for number in range(5):
        replicas.make("Publisher", f"author-{number}", PUBLISHER)
    replicas.wait(lambda: all(replicas.has_workload(f"author-{number}") for number in range(5)))
    replicas.wait(lambda: "waits for the lease" in replicas.log("two"))
    assert "leads" not in replicas.log("two")


def test_sigterm_gives_the_lease_away_and_ends_with_success(replicas: Replicas) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "author", PUBLISHER)
    process = replicas.start("one")
    replicas.wait(lambda: replicas.has_workload("author"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0, replicas.log("one")
    assert replicas.holder() == ""
    for line in replicas.log("one").splitlines():
        assert json.loads(line)["levelname"] in {"INFO", "WARNING"}, line


def test_without_an_image_for_agents_it_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mailboat_operator.main"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "MAILBOAT_OPERATOR_AGENT_IMAGE is missing" in done.stderr) == (2, True)
