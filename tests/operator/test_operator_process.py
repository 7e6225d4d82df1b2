"""The operator as a process beside a real API server: it watches, acts, elects a leader, and ends in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator.lease import LeaseSettings

ROOT = Path(__file__).resolve().parents[2]
LEASE_SECONDS = 6.0
JOURNAL = {"kafka": {"bootstrapServers": ["kafka:9092"]}}
PUBLISHER = {"journalRef": {"name": "main"}}
POOL = {"journalRef": {"name": "main"}, "target": {"generations": {"volume": {"size": "1Gi"}}}}


def test_what_is_made_is_looked_after_and_put_right_by_itself(replicas: Any) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "early", PUBLISHER)
    replicas.start("one", resync_seconds=600)  # no round comes within the time of a wait
    replicas.wait(lambda: replicas.has_workload("early"))
    replicas.make("Publisher", "late", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("late"))
    path = f"/api/v1/namespaces/{replicas.namespace}/services/late"
    replicas.server.http.delete(path).raise_for_status()
    replicas.wait(lambda: replicas.has("/api/v1/{}/services/late"))


def test_an_object_that_waits_for_a_journal_goes_on_when_it_comes(replicas: Any) -> None:
    replicas.start("one")
    replicas.make("Publisher", "author", PUBLISHER)
    path = f"/apis/mailboat.dev/v1alpha1/namespaces/{replicas.namespace}/publishers/author"
    replicas.wait(lambda: "JournalMissing" in replicas.server.http.get(path).text)
    replicas.make("Journal", "main", JOURNAL)
    replicas.wait(lambda: replicas.has_workload("author"))


def test_one_object_that_cannot_be_served_holds_up_no_other(replicas: Any) -> None:
    replicas.make("Journal", "main", JOURNAL)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/configmaps": "1"}}}
    url = f"/api/v1/namespaces/{replicas.namespace}"
    replicas.wait(lambda: replicas.has("/api/v1/{}/configmaps/kube-root-ca.crt"))
    replicas.server.http.post(f"{url}/resourcequotas", json=quota).raise_for_status()
    counted = f"{url}/resourcequotas/none"
    full = {"count/configmaps": "1"}
    replicas.wait(lambda: replicas.server.http.get(counted).json().get("status", {}).get("used") == full)
    replicas.make("Publisher", "bad", PUBLISHER)
    replicas.start("one")
    path = f"/apis/mailboat.dev/v1alpha1/namespaces/{replicas.namespace}/publishers/bad"
    replicas.wait(lambda: "ClusterRefused" in replicas.server.http.get(path).text)
    replicas.server.http.delete(counted).raise_for_status()
    replicas.make("Publisher", "good", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("good"))


def test_another_replica_takes_over_from_a_killed_leader_within_the_lease(replicas: Any) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.server.check_journal(replicas.namespace, "main")  # its brokers are not part of this measurement
    first = replicas.start("one", lease_seconds=LEASE_SECONDS)
    replicas.wait(lambda: replicas.leads("one"))
    replicas.start("two")  # it goes by the duration of the lease that it finds, and does not lose its own
    replicas.wait(lambda: "waits for the lease" in replicas.log("two"))
    first.send_signal(signal.SIGKILL)
    first.wait()
    killed_at = datetime.now(UTC)
    replicas.make("Publisher", "author", PUBLISHER)
    replicas.wait(lambda: replicas.has_workload("author"))
    assert replicas.leads("two")
    # a busy machine delays what comes after the lease; a longer patience, as after a newer version, would add a minute
    taken_after = datetime.fromisoformat(replicas.lease()["acquireTime"]) - killed_at
    assert taken_after.total_seconds() < LEASE_SECONDS + LeaseSettings.patience_seconds


def test_only_one_of_two_replicas_acts(replicas: Any) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.start("one")
    replicas.wait(lambda: replicas.leads("one"))
    replicas.start("two")
    for number in range(5):
        replicas.make("Publisher", f"author-{number}", PUBLISHER)
    replicas.wait(lambda: all(replicas.has_workload(f"author-{number}") for number in range(5)))
    replicas.wait(lambda: "waits for the lease" in replicas.log("two"))
    assert "leads" not in replicas.log("two")


def test_of_two_versions_one_acts_and_neither_undoes_what_the_other_did(replicas: Any) -> None:
    http, looks = replicas.server.http, "mailboat_operator_reconciliations_total"
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "author", PUBLISHER)
    replicas.make("SubscriberPool", "edge", POOL)
    old = replicas.start("old", version="0.0.1", resync_seconds=1)
    waiting = {"Publisher": "author", "SubscriberPool": "edge"}
    replicas.wait(lambda: all(replicas.reason(kind, name) == "PodsNotReady" for kind, name in waiting.items()))
    workloads = f"/apis/apps/v1/namespaces/{replicas.namespace}/statefulsets"
    replicas.wait(lambda: all(item["status"].get("replicas") for item in http.get(workloads).json()["items"]))

    def versions() -> list[str]:
        objects = [http.get(replicas.url(kind, name)).json() for kind, name in waiting.items()]
        made = [str(item["metadata"]["generation"]) for item in http.get(workloads).json()["items"]]
        return made + [object_["metadata"]["resourceVersion"] for object_ in objects]

    def await_looks() -> None:
        looked = replicas.figure("old", looks)
        replicas.wait(lambda: replicas.figure("old", looks) >= looked + 6)

    # the statuses name the unreachable brokers some seconds later, and on a busy machine the pods as well
    replicas.wait(lambda: replicas.reason("Journal", "main") == "BrokersUnreachable")
    before = list[str]()
    while before != versions():
        before = versions()
        await_looks()
    replicas.start("new", version="99.0", resync_seconds=1)
    replicas.wait(lambda: "waits for the lease" in replicas.log("new"))
    await_looks()
    assert (replicas.leads("old"), replicas.figure("new", looks), versions()) == (True, 0, before)
    old.send_signal(signal.SIGTERM)
    replicas.wait(lambda: replicas.figure("new", looks) >= 9)
    assert (replicas.leads("new"), versions()) == (True, before)
    replicas.start("old again", version="0.0.1")
    replicas.wait(lambda: "waits for the lease" in replicas.log("old again"))
    assert "leads" not in replicas.log("old again")


def test_with_the_rights_of_the_cluster_all_namespaces_are_looked_after(clusterwide_replicas: Any) -> None:
    replicas = clusterwide_replicas
    other = replicas.server.new_namespace()
    replicas.start("one")
    replicas.wait(lambda: replicas.leads("one"))
    for namespace in (replicas.namespace, other):
        for kind, name, spec in (("Journal", "main", JOURNAL), ("Publisher", "author", PUBLISHER)):
            manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            assert replicas.server.create(namespace, manifest).status_code == 201
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/author"
        replicas.wait(lambda path=path: replicas.has(path))


def test_a_childs_drift_is_corrected_at_once_and_not_at_the_next_round(replicas: Any) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("SubscriberPool", "edge", POOL)
    replicas.start("one", resync_seconds=600)
    replicas.wait(lambda: replicas.has_workload("edge"))
    root, http = f"namespaces/{replicas.namespace}", replicas.server.http
    drifts = {
        f"/api/v1/{root}/configmaps/edge-config": {"data": {"mailboat.yaml": "{}"}},
        f"/api/v1/{root}/services/edge": {"spec": {"ports": [{"name": "content", "port": 81}]}},
        f"/apis/apps/v1/{root}/statefulsets/edge": {"spec": {"replicas": 7}},
        f"/apis/policy/v1/{root}/poddisruptionbudgets/edge": {"spec": {"maxUnavailable": 2}},
    }
    for path, change in drifts.items():
        part, field = next(iter(change)), next(iter(next(iter(change.values()))))
        before = http.get(path).json()[part][field]
        http.patch(path, json=change, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()
        replicas.wait(lambda p=path, a=part, f=field, b=before: http.get(p).json()[a][f] == b)  # type: ignore[misc]  # the values of this turn
    for path in drifts:
        http.delete(path).raise_for_status()
        replicas.wait(lambda path=path: replicas.has(path))
    assert replicas.figure("one", "mailboat_operator_events_total") >= len(drifts)


def test_sigterm_gives_the_lease_away_and_ends_with_success(replicas: Any) -> None:
    replicas.make("Journal", "main", JOURNAL)
    replicas.make("Publisher", "author", PUBLISHER)
    process = replicas.start("one")
    replicas.wait(lambda: replicas.has_workload("author"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_SECONDS) == 0, replicas.log("one")
    assert replicas.holder() == ""
    for line in replicas.log("one").splitlines():
        document = json.loads(line)
        assert document["level"] in {"info", "warning"}, line
        # as lines of agents begin
        assert [*document][:4] == ["time", "level", "logger", "message"], line
        assert datetime.fromisoformat(document["time"]).utcoffset() == timedelta(), line


def test_the_lease_goes_with_the_account_when_the_operator_is_uninstalled(replicas: Any) -> None:
    http, name = replicas.server.http, replicas.installation.environment()["MAILBOAT_OPERATOR_LEASE_NAME"]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{replicas.namespace}/leases/{name}"
    accounts = f"/api/v1/namespaces/{replicas.namespace}/serviceaccounts"
    before = {"metadata": {"name": name}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    http.post(lease.rpartition("/")[0], json=before).raise_for_status()  # of an operator that owned none
    process = replicas.start("one")
    replicas.wait(lambda: replicas.leads("one"))
    [owner] = http.get(lease).json()["metadata"]["ownerReferences"]
    [account] = [item for item in http.get(accounts).json()["items"] if item["metadata"]["uid"] == owner["uid"]]
    assert (owner["kind"], owner["name"]) == ("ServiceAccount", account["metadata"]["name"])
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_SECONDS) == 0, replicas.log("one")
    http.delete(f"{accounts}/{owner['name']}").raise_for_status()
    replicas.wait(lambda: http.get(lease).status_code == 404)


def test_without_an_image_for_agents_it_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mailboat_operator.main"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, "MAILBOAT_OPERATOR_AGENT_IMAGE is missing" in done.stderr) == (2, True)
