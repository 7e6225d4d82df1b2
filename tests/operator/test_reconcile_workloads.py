"""Publishers and pools on a real API server: children, drift, deletion, and what is written for it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import Any

import httpx2
import pytest
from lightkube.config.kubeconfig import KubeConfig
from mailboat.config.decoder import decode_config
from mailboat_operator.agent_client import Agents
from mailboat_operator.cluster import Cluster
from mailboat_operator.reconciliation import ObjectKey, Reconciler
from mailboat_operator.systems import Systems
from mailboat_operator.workload.pods import AgentImage
from support.operator_harbour import eventually

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""What kubectl asks for."""
CANARY = "canary-7f3a9c"
JOURNAL = {"kafka": {"bootstrapServers": ["kafka:9092"]}}
LOGIN = {
    "kafka": {
        "bootstrapServers": ["kafka:9092"],
        "sasl": {"mechanism": "SCRAM-SHA-512", "credentialsSecretRef": {"name": "login"}},
    }
}
PUBLISHER = {"journalRef": {"name": "main"}, "source": {"volumeClaim": {"name": "site"}}}
PROMISED = {"resources": {"requests": {"cpu": "100m"}}}
WEB = {"name": "web", "image": "nginx", "ports": [{"containerPort": 8081}], **PROMISED}
POOL = {
    "journalRef": {"name": "main"},
    "replicas": 3,
    "target": {"generations": {"volume": {"size": "5Gi"}}},
    "template": {"spec": {"containers": [WEB]}},
}


class Bench:
    """A namespace, and the operator's one step in it, with all writes counted."""

    def __init__(self, api_server: Any, namespace: str) -> None:
        self.server, self.namespace = api_server, namespace
        self.writes: Counter[str] = Counter()
        self.reports: list[str] = []

    def make(self, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = self.server.create(self.namespace, manifest)
        assert answer.status_code == 201, answer.text
        if kind == "Journal":
            self.server.check_journal(self.namespace, name)
        return dict(answer.json())

    def secret(self, name: str, **values: str) -> None:
        document = {"metadata": {"name": name}, "stringData": values}
        self.http.post(f"/api/v1/namespaces/{self.namespace}/secrets", json=document).raise_for_status()

    @property
    def http(self) -> httpx2.Client:
        client: httpx2.Client = self.server.http
        return client

    def url(self, kind: str, name: str = "") -> str:
        roots = {
            "StatefulSet": "apis/apps/v1",
            "PodDisruptionBudget": "apis/policy/v1",
            "HorizontalPodAutoscaler": "apis/autoscaling/v2",
        }
        ours = {"Journal", "Publisher", "SubscriberPool"}
        root = "apis/mailboat.dev/v1alpha1" if kind in ours else roots.get(kind, "api/v1")
        return f"/{root}/namespaces/{self.namespace}/{kind.lower()}s" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        answer = self.http.get(self.url(kind, name))
        return None if answer.status_code == 404 else dict(answer.json())

    def found(self, kind: str, name: str) -> dict[str, Any]:
        found = self.get(kind, name)
        assert found is not None, f"there is no {kind} {name}"
        return found

    def patch(self, kind: str, name: str, change: dict[str, Any], part: str = "") -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self.http.patch(self.url(kind, name) + part, json=change, headers=headers).raise_for_status()

    def reconcile(self, kind: str, name: str) -> int:
        """Looks until none is wanted at once; how many writes that took."""

        async def step() -> None:
            cluster, systems = Cluster(self._count, KubeConfig.from_file(self.server.kubeconfig)), Systems()
            try:
                reconciler = Reconciler(cluster, Agents(), AgentImage("mailboat:test"), self.reports.append, systems)
                while (await reconciler.reconcile(ObjectKey(kind, self.namespace, name))).again_seconds == 0:
                    pass
            finally:
                await cluster.close()

        before = self.writes.total()
        asyncio.run(step())
        return self.writes.total() - before

    def condition(self, kind: str, name: str, condition: str = "Ready") -> dict[str, Any]:
        conditions = self.found(kind, name)["status"]["conditions"]
        return next(item for item in conditions if item["type"] == condition)

    def events(self) -> list[dict[str, Any]]:
        """Those of the operator; the cluster's own controllers write some too."""
        found = self.http.get(self.url("Event")).json()["items"]
        return [item for item in found if item["source"].get("component") == "mailboat-operator"]

    def settle(self, kind: str, name: str) -> None:
        """Make the children, and wait until the cluster has made the pods of them and that was seen."""
        self.reconcile(kind, name)
        wanted = self.found("StatefulSet", name)["spec"]["replicas"]
        eventually(lambda: (self.found("StatefulSet", name).get("status") or {}).get("replicas") == wanted)
        self.reconcile(kind, name)

    def _count(self, verb: str, kind: str) -> None:
        self.writes[f"{verb} {kind}"] += 1


@pytest.fixture
def bench(api_server: Any, namespace: str) -> Bench:
    """A namespace with a journal."""
    return Bench(api_server, namespace)


@pytest.fixture
def boat(bench: Bench) -> Bench:
    """The same with a Journal, a Publisher and a SubscriberPool whose children are made."""
    bench.make("Journal", "main", JOURNAL)
    bench.make("Publisher", "author", PUBLISHER)
    bench.make("SubscriberPool", "edge", POOL)
    bench.settle("Publisher", "author")
    bench.settle("SubscriberPool", "edge")
    bench.writes.clear()
    return bench


PUBLISHER_CHILDREN = [
    ("ConfigMap", "author-config"),
    ("Secret", "author-token"),
    ("Service", "author"),
    ("StatefulSet", "author"),
]
POOL_CHILDREN = [
    ("ConfigMap", "edge-config"),
    ("Secret", "edge-token"),
    ("Service", "edge-members"),
    ("Service", "edge"),
    ("PodDisruptionBudget", "edge"),
    ("StatefulSet", "edge"),
]


def test_a_publisher_becomes_its_children_with_one_write_each_and_one_of_its_status(bench: Bench) -> None:
    bench.make("Journal", "main", JOURNAL)
    bench.make("Publisher", "author", PUBLISHER)
    assert bench.reconcile("Publisher", "author") == len(PUBLISHER_CHILDREN) + 1
    owner = bench.found("Publisher", "author")["metadata"]["uid"]
    for kind, name in PUBLISHER_CHILDREN:
        assert bench.found(kind, name)["metadata"]["ownerReferences"][0]["uid"] == owner


def test_a_pool_becomes_its_children_with_one_write_each_and_one_of_its_status(bench: Bench) -> None:
    bench.make("Journal", "main", JOURNAL)
    bench.make("SubscriberPool", "edge", POOL)
    assert bench.reconcile("SubscriberPool", "edge") == len(POOL_CHILDREN) + 1
    for kind, name in POOL_CHILDREN:
        bench.found(kind, name)


def test_a_shared_pool_starts_on_a_claim_that_members_can_share_and_follows_its_scale(bench: Bench) -> None:
    def claim(name: str, mode: str) -> None:
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        document = {"metadata": {"name": name}, "spec": spec}
        bench.http.post(bench.url("PersistentVolumeClaim"), json=document).raise_for_status()

    bench.make("Journal", "main", JOURNAL)
    target = {"files": {"claim": {"name": "content"}}}
    bench.make("SubscriberPool", "web", {**POOL, "delivery": "shared", "target": target})
    claim("own", "ReadWriteOnce")
    bench.reconcile("SubscriberPool", "web")
    assert bench.condition("SubscriberPool", "web", "Ready")["reason"] == "ClaimMissing"
    bench.patch("SubscriberPool", "web", {"spec": {"target": {"files": {"claim": {"name": "own"}}}}})
    bench.reconcile("SubscriberPool", "web")
    assert bench.condition("SubscriberPool", "web", "Ready")["reason"] == "ClaimNotShared"
    claim("content", "ReadWriteMany")
    bench.patch("SubscriberPool", "web", {"spec": {"target": target}})
    bench.reconcile("SubscriberPool", "web")
    made = bench.found("StatefulSet", "web")["spec"]
    assert (made["replicas"], made.get("volumeClaimTemplates")) == (3, None)
    bench.settle("SubscriberPool", "web")
    assert bench.reconcile("SubscriberPool", "web") == 0
    bench.patch("SubscriberPool", "web", {"spec": {"replicas": 1}}, "/scale")
    bench.reconcile("SubscriberPool", "web")
    assert bench.found("StatefulSet", "web")["spec"]["replicas"] == 1
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        bench.patch("SubscriberPool", "web", {"spec": {"delivery": "broadcast"}})


def test_the_configuration_is_one_that_the_agent_reads(boat: Bench) -> None:
    text = boat.found("ConfigMap", "author-config")["data"]["mailboat.yaml"]
    config = decode_config(json.loads(text))
    assert config.agents.publishers[0].name == "author"
    text = boat.found("ConfigMap", "edge-config")["data"]["mailboat.yaml"]
    assert decode_config(json.loads(text)).agents.subscribers[0].target == "generations:content"


@pytest.mark.parametrize(("kind", "name"), [("Publisher", "author"), ("SubscriberPool", "edge")])
def test_a_look_without_news_writes_nothing(boat: Bench, kind: str, name: str) -> None:
    assert boat.reconcile(kind, name) == 0


def test_a_node_can_be_drained_of_a_member_that_is_not_ready(boat: Bench) -> None:
    """The budget's default would refuse it, as the other members are not ready either."""
    boat.patch("Pod", "edge-0", {"status": {"phase": "Running"}}, "/status")  # what is pending can go anyway
    budget = boat.url("PodDisruptionBudget", "edge")
    eventually(lambda: boat.http.get(budget).json()["status"].get("expectedPods") == 3)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "edge-0"}}
    answer = boat.http.post(f"{boat.url('Pod', 'edge-0')}/eviction", json=eviction)
    assert answer.status_code == 201, answer.text


def test_a_change_of_one_field_is_two_writes(boat: Bench) -> None:
    boat.patch("SubscriberPool", "edge", {"spec": {"replicas": 5}})
    assert boat.reconcile("SubscriberPool", "edge") == 2
    assert boat.found("StatefulSet", "edge")["spec"]["replicas"] == 5


def test_scaling_through_the_subresource_reaches_the_pods(boat: Bench) -> None:
    boat.patch("SubscriberPool", "edge", {"spec": {"replicas": 7}}, "/scale")
    boat.reconcile("SubscriberPool", "edge")
    assert boat.found("StatefulSet", "edge")["spec"]["replicas"] == 7
    selector = boat.found("SubscriberPool", "edge")["status"]["selector"]
    assert "app.kubernetes.io/instance=edge" in selector


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("ConfigMap", "author-config", {"data": {"mailboat.yaml": "{}"}}),
        ("Service", "author", {"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}),
        ("StatefulSet", "author", {"spec": {"replicas": 3}}),
    ],
)
def test_what_another_client_changed_is_put_right_and_an_event_says_so(
    boat: Bench, kind: str, name: str, change: dict[str, Any]
) -> None:
    before = boat.found(kind, name)
    boat.patch(kind, name, change)
    boat.reconcile("Publisher", "author")
    found = boat.found(kind, name)
    assert (found.get("spec"), found.get("data")) == (before.get("spec"), before.get("data"))
    assert [event["reason"] for event in boat.events()] == ["DriftCorrected"]
    assert boat.reports == ["DriftCorrected"]
    assert boat.reconcile("Publisher", "author") == 0


def test_an_event_that_repeats_is_counted_instead_of_written_again(boat: Bench) -> None:
    for _ in range(3):
        boat.patch("StatefulSet", "author", {"spec": {"replicas": 3}})
        boat.reconcile("Publisher", "author")
    [event] = boat.events()
    assert (event["reason"], event["count"]) == ("DriftCorrected", 3)
    assert event["message"] == "StatefulSet author: reverted a change by another client: .spec.replicas"


def test_what_another_client_added_stays(boat: Bench) -> None:
    boat.patch("Service", "edge", {"metadata": {"annotations": {"example.com/note": "mine"}}})
    assert boat.reconcile("SubscriberPool", "edge") == 0


def test_a_child_that_was_deleted_comes_back(boat: Bench) -> None:
    boat.http.delete(boat.url("Service", "edge")).raise_for_status()
    boat.reconcile("SubscriberPool", "edge")
    boat.found("Service", "edge")


def test_the_token_is_made_once(boat: Bench) -> None:
    before = boat.found("Secret", "author-token")["data"]
    boat.patch("Publisher", "author", {"spec": {"packageType": "filevault"}})
    boat.reconcile("Publisher", "author")
    assert boat.found("Secret", "author-token")["data"] == before


def test_a_child_of_another_owner_is_left_alone(bench: Bench) -> None:
    bench.make("Journal", "main", JOURNAL)
    bench.make("Publisher", "author", PUBLISHER)
    theirs = {"metadata": {"name": "author-config"}, "data": {"theirs": "yes"}}
    bench.http.post(bench.url("ConfigMap"), json=theirs).raise_for_status()
    assert bench.reconcile("Publisher", "author") == 2, "the status and an Event"
    assert bench.found("ConfigMap", "author-config")["data"] == {"theirs": "yes"}
    assert bench.condition("Publisher", "author")["reason"] == "NameTaken"
    assert bench.condition("Publisher", "author", "Stalled")["status"] == "True"
    table = bench.http.get(bench.url("Publisher", "author"), headers={"Accept": TABLE}).json()
    row = dict(
        zip(
            (column_definition["name"] for column_definition in table["columnDefinitions"]),
            table["rows"][0]["cells"],
            strict=True,
        )
    )
    text = "ConfigMap author-config exists and belongs to another owner; it is not changed. Use another name"
    assert (row["Ready"], row["Reason"], row["Message"]) == ("False", "NameTaken", text)


def test_a_publisher_waits_for_its_journal(bench: Bench) -> None:
    bench.make("Publisher", "author", PUBLISHER)
    bench.reconcile("Publisher", "author")
    assert bench.condition("Publisher", "author", "Stalled")["reason"] == "JournalMissing"
    assert bench.get("StatefulSet", "author") is None
    bench.make("Journal", "main", JOURNAL)
    bench.reconcile("Publisher", "author")
    assert bench.condition("Publisher", "author")["reason"] == "PodsNotReady"


def test_no_agent_starts_before_its_journal_has_looked_for_its_topics(bench: Bench) -> None:
    """Applied together, a Publisher would else publish into the log of another Journal until the conflict is known."""
    bench.make("Journal", "main", JOURNAL)
    bench.make("Publisher", "author", PUBLISHER)
    bench.make("SubscriberPool", "edge", POOL)
    objects = [("Publisher", "author"), ("SubscriberPool", "edge")]
    moment = {"observedGeneration": 1, "message": "0 of 5", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    waiting = {"type": "Ready", "status": "False", "reason": "TopicsNotReady", **moment}
    making = [waiting, {"type": "Stalled", "status": "False", "reason": "NotStalled", **moment}]
    former = [{**waiting, "reason": "FormerChildExists"}, making[1]]
    foreign = [{**waiting, "reason": "NameTaken"}, {**making[1], "status": "True", "reason": "NameTaken"}]
    taken = [waiting, {"type": "Stalled", "status": "True", "reason": "TopicTaken", **moment}]
    found: list[tuple[list[dict[str, Any]], str]]
    found = [*((unchecked, "JournalNotChecked") for unchecked in ([], making, former, foreign)), (taken, "TopicTaken")]
    for conditions, reason in found:
        bench.patch("Journal", "main", {"status": {"conditions": conditions}}, "/status")
        for kind, name in objects:
            bench.reconcile(kind, name)
            assert (bench.condition(kind, name)["reason"], bench.get("StatefulSet", name)) == (reason, None)
    bench.server.check_journal(bench.namespace, "main")
    for kind, name in objects:
        bench.reconcile(kind, name)
        assert bench.get("StatefulSet", name) is not None
    bench.patch("Journal", "main", {"status": {"conditions": making}}, "/status")
    for kind, name in objects:
        bench.reconcile(kind, name)
        assert bench.condition(kind, name)["reason"] == "PodsNotReady", "agents that run stay"


def test_no_agent_moves_to_other_brokers_before_its_journal_has_asked_them(boat: Bench) -> None:
    """They may be another cluster, which the Journal refuses."""
    boat.patch("Journal", "main", {"status": {"observedGeneration": 1}}, "/status")
    boat.patch("Journal", "main", {"spec": {"kafka": {"bootstrapServers": ["other:9092"]}}})
    for kind, name in (("Publisher", "author"), ("SubscriberPool", "edge")):
        boat.reconcile(kind, name)
        assert boat.condition(kind, name)["reason"] == "JournalNotChecked"
        assert "other:9092" not in boat.found("ConfigMap", f"{name}-config")["data"]["mailboat.yaml"]
    boat.patch("Journal", "main", {"status": {"observedGeneration": 2}}, "/status")
    for kind, name in (("Publisher", "author"), ("SubscriberPool", "edge")):
        boat.reconcile(kind, name)
        assert "other:9092" in boat.found("ConfigMap", f"{name}-config")["data"]["mailboat.yaml"]


def test_the_cause_of_a_pod_that_does_not_start_is_in_the_condition(boat: Bench) -> None:
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    container = {"name": "mailboat", "image": "mailboat:test", "imageID": "", "ready": False, "restartCount": 0}
    boat.patch("Pod", "author-0", {"status": {"containerStatuses": [{**container, "state": state}]}}, "/status")
    boat.reconcile("Publisher", "author")
    found = boat.condition("Publisher", "author")
    assert found["reason"] == "ImagePullFailed"
    assert found["message"].startswith(
        "0 of 1 publisher ready; author-0: container mailboat: image mailboat:test can't be pulled"
    )


def test_a_pod_that_admission_refuses_is_explained_by_the_event_of_its_workload(bench: Bench) -> None:
    bench.make("Journal", "main", JOURNAL)
    template = {"spec": {"priorityClassName": "nothing-like-it"}}
    bench.make("Publisher", "author", {**PUBLISHER, "template": template})

    def is_said() -> bool:
        bench.reconcile("Publisher", "author")
        return bool(bench.condition("Publisher", "author")["reason"] == "PodNotCreated")

    eventually(is_said)
    assert "no PriorityClass with name nothing-like-it was found" in bench.condition("Publisher", "author")["message"]


def test_a_missing_or_malformed_secret_is_named(bench: Bench) -> None:
    bench.make("Journal", "main", LOGIN)
    bench.make("Publisher", "author", PUBLISHER)
    bench.reconcile("Publisher", "author")
    assert "Secret login" in bench.condition("Publisher", "author")["message"]
    bench.secret("login", username="alice")
    bench.reconcile("Publisher", "author")
    assert bench.condition("Publisher", "author")["message"] == "missing: entry password of Secret login"


def test_a_rotated_secret_rolls_the_pods(bench: Bench) -> None:
    bench.make("Journal", "main", LOGIN)
    bench.secret("login", username="alice", password="before")
    bench.make("Publisher", "author", PUBLISHER)
    bench.reconcile("Publisher", "author")
    before = bench.found("StatefulSet", "author")["spec"]["template"]["metadata"]["annotations"]
    bench.patch("Secret", "login", {"stringData": {"password": "after"}})
    bench.reconcile("Publisher", "author")
    assert bench.found("StatefulSet", "author")["spec"]["template"]["metadata"]["annotations"] != before


def test_no_secret_appears_in_what_is_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bench.make("Journal", "main", LOGIN)
    bench.secret("login", username=f"{CANARY}-user", password=CANARY)
    bench.make("Publisher", "author", PUBLISHER)
    bench.make("SubscriberPool", "edge", POOL)
    for kind, name in [("Publisher", "author"), ("SubscriberPool", "edge")]:
        bench.reconcile(kind, name)
        bench.patch("ConfigMap", f"{name}-config", {"data": {"mailboat.yaml": "{}"}})
        bench.reconcile(kind, name)
    written = [bench.get(kind, name) for kind, name in PUBLISHER_CHILDREN + POOL_CHILDREN]
    written += [bench.found("Publisher", "author"), bench.found("SubscriberPool", "edge"), *bench.events()]
    assert len(bench.events()) == 2
    token = bench.found("Secret", "author-token")["data"]["token"]
    texts = [json.dumps(item) for item in written if item is not None and item.get("kind") != "Secret"] + [caplog.text]
    assert not [text for text in texts if CANARY in text or token in text]


def test_no_credential_of_any_secret_field_is_rendered_reported_or_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tls = {"caSecretRef": {"name": "authority"}, "certificateSecretRef": {"name": "client"}}
    keys = {"credentialsSecretRef": {"name": "keys"}, "caSecretRef": {"name": "authority"}}
    s3 = {"bucket": "mailboat", "endpointUrl": "https://s3.example", **keys}
    bench.make("Journal", "main", {"kafka": {**LOGIN["kafka"], "tls": tls}, "blobs": {"s3": s3}})
    caller = {"name": "news", "secretRef": {"name": "caller"}}
    hook = {"name": "crm", "url": "https://hooks.example/", "tokenSecretRef": {"name": "hook"}}
    http = {"tokenSecretRef": {"name": "admin"}, "tokens": [caller]}
    bench.make("Publisher", "author", {**PUBLISHER, "http": http, "events": {"webhooks": [hook]}})
    bench.make("SubscriberPool", "edge", POOL)
    entries = {
        "login": ("username", "password"),
        "authority": ("ca.crt",),
        "client": ("tls.crt", "tls.key"),
        "keys": ("accessKeyId", "secretAccessKey"),
        **dict.fromkeys(("caller", "hook", "admin"), ("token",)),
    }
    for name, found in entries.items():
        bench.secret(name, **{key: f"{CANARY}-{key}\n{CANARY}" for key in found})
    for kind, name in [("Publisher", "author"), ("SubscriberPool", "edge")]:
        bench.reconcile(kind, name)
        assert bench.condition(kind, name)["reason"] != "SecretMissing"
    written = [bench.get(kind, name) for kind, name in PUBLISHER_CHILDREN + POOL_CHILDREN if kind != "Secret"]
    written += [bench.found("Publisher", "author"), bench.found("SubscriberPool", "edge"), *bench.events()]
    assert all(written)
    assert CANARY not in json.dumps(written) + caplog.text


def test_a_suspended_publisher_is_left_as_it_is(boat: Bench) -> None:
    boat.patch("Publisher", "author", {"spec": {"suspend": True}})
    assert boat.reconcile("Publisher", "author") == 1
    assert boat.condition("Publisher", "author")["reason"] == "Suspended"
    boat.patch("StatefulSet", "author", {"spec": {"replicas": 0}})
    assert boat.reconcile("Publisher", "author") == 0


def test_pause_annotations_do_the_same(boat: Bench) -> None:
    boat.patch("SubscriberPool", "edge", {"metadata": {"annotations": {"mailboat.dev/paused": "true"}}})
    boat.reconcile("SubscriberPool", "edge")
    condition = boat.condition("SubscriberPool", "edge")
    assert condition["reason"] == "Suspended"
    assert condition["message"].startswith('the annotation mailboat.dev/paused is "true":')


def test_a_deleted_pool_takes_its_children_along_and_nothing_hangs(boat: Bench) -> None:
    claim = {
        "metadata": {"name": "content-edge-0", "labels": {"app.kubernetes.io/instance": "edge"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    boat.http.post(boat.url("PersistentVolumeClaim"), json=claim)
    boat.http.delete(boat.url("SubscriberPool", "edge")).raise_for_status()
    eventually(lambda: all(boat.get(kind, name) is None for kind, name in POOL_CHILDREN))
    assert boat.get("SubscriberPool", "edge") is None
    assert "deletionTimestamp" not in boat.found("PersistentVolumeClaim", "content-edge-0")["metadata"]
    assert boat.reconcile("SubscriberPool", "edge") == 0


def test_a_larger_size_enlarges_the_claims_if_their_class_allows_it(bench: Bench) -> None:
    """The API server decides; what it refuses is in the condition, with its own words."""
    bench.make("Journal", "main", JOURNAL)
    for name, is_growing in (("growing", True), ("fixed", False)):
        storage = {"metadata": {"name": f"{bench.namespace}-{name}"}, "provisioner": "example.com/none"}
        made = bench.http.post(
            "/apis/storage.k8s.io/v1/storageclasses", json={**storage, "allowVolumeExpansion": is_growing}
        )
        made.raise_for_status()
        volume = {"size": "5Gi", "storageClassName": f"{bench.namespace}-{name}"}
        bench.make("SubscriberPool", name, {**POOL, "replicas": 1, "target": {"files": {"volume": volume}}})
        bench.settle("SubscriberPool", name)
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "5Gi"}}}
        bench.patch("PersistentVolumeClaim", f"content-{name}-0", bound, "/status")
        bench.patch("SubscriberPool", name, {"spec": {"target": {"files": {"volume": {"size": "8Gi"}}}}})
        bench.reconcile("SubscriberPool", name)

    def requested(name: str) -> str:
        return str(
            bench.found("PersistentVolumeClaim", f"content-{name}-0")["spec"]["resources"]["requests"]["storage"]
        )

    found = bench.condition("SubscriberPool", "growing", "VolumesResized")
    assert (found["status"], found["reason"], requested("growing")) == ("Unknown", "Resizing", "8Gi")
    bench.patch("PersistentVolumeClaim", "content-growing-0", {"status": {"capacity": {"storage": "8Gi"}}}, "/status")
    assert bench.reconcile("SubscriberPool", "growing") == 1, "one write of the status, and none of the workload"
    assert bench.condition("SubscriberPool", "growing", "VolumesResized")["reason"] == "Resized"
    assert bench.reconcile("SubscriberPool", "growing") == 0
    refused = bench.condition("SubscriberPool", "fixed", "VolumesResized")
    assert (refused["status"], refused["reason"], requested("fixed")) == ("False", "ResizeRefused", "5Gi")
    assert "the storageclass that provisions the pvc must support resize" in refused["message"]
    assert [event["reason"] for event in bench.events()] == ["ResizeRefused"]
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        bench.patch("SubscriberPool", "growing", {"spec": {"target": {"files": {"volume": {"size": "7Gi"}}}}})


def test_an_autoscaler_comes_and_goes_with_its_section(boat: Bench) -> None:
    boat.patch("SubscriberPool", "edge", {"spec": {**PROMISED, "autoscaling": {"maxReplicas": 9, "cpuPercent": 70}}})
    boat.reconcile("SubscriberPool", "edge")
    assert boat.found("HorizontalPodAutoscaler", "edge")["spec"]["scaleTargetRef"]["kind"] == "SubscriberPool"
    boat.patch("SubscriberPool", "edge", {"spec": {"autoscaling": None}})
    boat.reconcile("SubscriberPool", "edge")
    assert boat.get("HorizontalPodAutoscaler", "edge") is None


def test_pools_that_wait_for_each_other_are_told_so(bench: Bench) -> None:
    bench.make("Journal", "main", JOURNAL)
    for name, other in [("one", "two"), ("two", "one")]:
        bench.make("SubscriberPool", name, {**POOL, "editable": True, "staging": {"waitFor": {"name": other}}})
    bench.reconcile("SubscriberPool", "one")
    assert bench.condition("SubscriberPool", "one")["reason"] == "StagingCycle"
    assert bench.get("StatefulSet", "one") is None


def test_a_transition_time_stays_while_the_status_does(boat: Bench) -> None:
    before = boat.condition("Publisher", "author")
    boat.patch("Publisher", "author", {"spec": {"packageType": "filevault"}})
    boat.reconcile("Publisher", "author")
    after = boat.condition("Publisher", "author")
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    assert after["observedGeneration"] == before["observedGeneration"] + 1
