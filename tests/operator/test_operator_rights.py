"""The operator's rights: what the chart gives, against what the API server saw the operator ask for."""

from __future__ import annotations

import json
import uuid
from typing import Any

AUTHOR = {"publisherRef": {"name": "author"}}
POOL = {"journalRef": {"name": "main"}, "target": {"generations": {"volume": {"size": "1Gi"}}}}
Right = tuple[str, str, str]
"""Group, resource and verb."""
OURS, ALL = "mailboat.dev", "get list watch create patch delete"


def each(group: str, resource: str, verbs: str) -> set[Right]:
    return {(group, resource, verb) for verb in verbs.split()}


SPARK = ("spark.apache.org", "sparkoperator.k8s.io")
REPEATS = each("", "events", "patch")
ELSEWHERE = {
    "needed by children that block their owner's deletion, where an admission plugin looks at that": {
        (OURS, f"{plural}/finalizers", "update")
        for plural in ("journals", "publishers", "subscriberpools", "packagebuilds", "jobqueues")
    },
    "KEDA is not installed here": each("keda.sh", "scaledobjects", "create patch delete")
    | each("keda.sh", "triggerauthentications", "get create patch delete"),
    "Spark's operators are not installed here": {
        right for group in SPARK for right in each(group, "sparkapplications", ALL)
    },
    "no build is made here": each(OURS, "packagebuilds", "get create patch delete")
    | each(OURS, "packagebuilds/status", "patch"),
    "an Event repeats here only where a write failed": REPEATS,
    "the operator's setting is not turned off here": each("networking.k8s.io", "networkpolicies", "delete"),
    "needs a publisher that answers": each(OURS, "distributions", "delete")
    | each("apps", "deployments", "create patch delete"),
}
"""Rights that are used elsewhere."""
EVERYBODYS = each("authentication.k8s.io", "selfsubjectreviews", "create")
"""Rights that the cluster gives to everyone: to ask who one is."""
RENEWAL = ("coordination.k8s.io", "leases", "update")


def rights_of(rules: list[dict[str, Any]]) -> set[Right]:
    """Each right for itself."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(replicas: Any) -> set[Right]:
    """What the operator was allowed; an apply that made something needed two rights."""
    found: set[Right] = set()
    for line in (replicas.server.folder / "requests.log").read_text().splitlines():
        said = json.loads(line)
        is_ours = said["user"]["username"].startswith(f"system:serviceaccount:{replicas.namespace}:")
        if not is_ours or "objectRef" not in said:  # what is asked of no resource is which there are
            continue
        place = said["objectRef"]
        parts = [place["resource"], *([place["subresource"]] if "subresource" in place else [])]
        code = said["responseStatus"]["code"]
        for verb in {said["verb"], *(["create"] if code == 201 else [])}:
            found.add((place.get("apiGroup", ""), "/".join(parts), verb))
    return found


def test_the_operator_has_the_rights_that_it_uses_and_no_others(lone_replicas: Any, kafka_broker: Any) -> None:
    replicas, http = lone_replicas, lone_replicas.server.http
    topics = {"prefix": f"rights-{uuid.uuid4().hex[:8]}-", "reclaimPolicy": "Delete"}
    peers = '[{"podSelector": {}}]'
    replicas.start("one", resync_seconds=5, agent_ingress=peers)
    replicas.make(
        "Journal", "main", {"kafka": {"bootstrapServers": [kafka_broker.bootstrap_servers]}, "topics": topics}
    )
    replicas.wait(lambda: replicas.reason("Journal", "main") == "AsSpecified")
    unknown = {"template": {"spec": {"priorityClassName": "unknown"}}}  # no pod: the operator reads the Events
    replicas.make("Publisher", "author", {"journalRef": {"name": "main"}, **unknown})
    promised = {"resources": {"requests": {"cpu": "100m"}}}
    replicas.make("SubscriberPool", "edge", {**POOL, **promised, "autoscaling": {"maxReplicas": 3, "cpuPercent": 50}})
    replicas.make("Distribution", "release", {**AUTHOR, "action": "Test"})
    replicas.make("JobQueue", "cdn", {**AUTHOR, "topics": ["purge.*"], "reclaimPolicy": "Delete"})
    replicas.make("JobSchedule", "nightly", {**AUTHOR, "topic": "purge.all", "every": "1h"})
    scaler = "/apis/autoscaling/v2/{}/horizontalpodautoscalers/edge"
    replicas.wait(lambda: replicas.has_workload("author") and replicas.has(scaler))
    for kind, name in (("Distribution", "release"), ("JobQueue", "cdn"), ("JobSchedule", "nightly")):
        replicas.wait(lambda kind=kind, name=name: replicas.reason(kind, name) != "")
    headers = {"Content-Type": "application/merge-patch+json"}
    http.patch(replicas.url("SubscriberPool", "edge"), json={"spec": {"autoscaling": None}}, headers=headers)
    replicas.wait(lambda: not replicas.has(scaler))
    larger = {"spec": {"target": {"generations": {"volume": {"size": "2Gi"}}}}}
    http.patch(replicas.url("SubscriberPool", "edge"), json=larger, headers=headers).raise_for_status()
    replicas.wait(lambda: "VolumesResized" in http.get(replicas.url("SubscriberPool", "edge")).text)
    http.delete(replicas.url("Journal", "main")).raise_for_status()
    replicas.wait(lambda: http.get(replicas.url("Journal", "main")).status_code == 404)
    replicas.wait(replicas.is_lease_renewed)
    replicas.wait(lambda: asked(replicas) >= {RENEWAL, ("", "events", "list")})  # reads the whole log
    given = rights_of([rule for role in replicas.installation.roles() for rule in role["rules"]])
    used = asked(replicas) - EVERYBODYS
    assert used <= given
    assert (given - used) | REPEATS == set().union(*ELSEWHERE.values())


def test_a_publisher_that_gets_a_token_of_the_users_needs_no_right_to_delete_ours(replicas: Any) -> None:
    http, secrets = replicas.server.http, f"/api/v1/namespaces/{replicas.namespace}/secrets"
    replicas.start("one", resync_seconds=5)
    replicas.make("Journal", "main", {"kafka": {"bootstrapServers": ["127.0.0.1:1"]}})
    replicas.make("Publisher", "author", {"journalRef": {"name": "main"}})
    replicas.wait(lambda: replicas.reason("Publisher", "author") == "PodsNotReady")
    http.post(secrets, json={"metadata": {"name": "mine"}, "stringData": {"token": "s3cret"}}).raise_for_status()
    change = {"spec": {"http": {"tokenSecretRef": {"name": "mine"}}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    http.patch(replicas.url("Publisher", "author"), json=change, headers=headers).raise_for_status()
    replicas.wait(lambda: http.get(replicas.url("Publisher", "author")).json()["status"]["observedGeneration"] == 2)
    assert replicas.reason("Publisher", "author") == "PodsNotReady"
    assert http.get(f"{secrets}/author-token").status_code == 200
