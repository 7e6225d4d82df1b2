"""Distributions, and what publishers and pools tell of themselves, with a real API server and real agents.

The agents run on this machine; where a publisher's Service would lead is passed to the operator's client of agents.
"""

from __future__ import annotations

import asyncio
import base64
import http.server
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from mailboat.errors import AgentUnreachableError, ClusterConflictError, ClusterUnavailableError
from mailboat_operator.agent_client import AgentAddress, Agents
from mailboat_operator.cluster import Cluster
from support.operator_harbour import PUBLISHER, Harbour, eventually

POOL = {"journalRef": {"name": "main"}, "replicas": 2, "target": {"files": {"volume": {"size": "5Gi"}}}}
PROMISED = {"resources": {"requests": {"cpu": "100m"}}}


def test_a_distribution_goes_its_whole_way(harbour: Harbour) -> None:
    harbour.make("SubscriberPool", "edge", POOL)
    harbour.distribute("release", "Add", "/en")
    assert harbour.reconcile("Distribution", "release").again_seconds is not None
    assert harbour.condition("Distribution", "release", "Distributed") == ("False", "AgentUnreachable")
    assert harbour.status("Distribution", "release")["state"] == "Pending"
    harbour.run_author()
    found = harbour.follow("release", "Published")
    assert found["done"] == "0/2"
    assert found["packageId"].startswith("dstrpck-")
    harbour.run_member("edge-0")
    harbour.run_member("edge-1")
    found = harbour.follow("release", "Distributed")
    assert (found["done"], found["pools"]) == ("2/2", [{"name": "edge", "done": 2, "members": 2}])
    assert (harbour.folder / "edge-1" / "content" / "en" / "index.html").exists()
    waited = harbour.server.kubectl(
        "-n", harbour.namespace, "wait", "mbdist/release", "--for=condition=Distributed", "--timeout=120s"
    )
    assert waited.returncode == 0, waited.stderr


def test_an_operator_that_dies_between_request_and_status_publishes_once(harbour: Harbour) -> None:
    harbour.run_author()
    harbour.make("SubscriberPool", "edge", POOL)
    uid = harbour.distribute("release", "Add", "/en")
    harbour.failing = "status"
    for _ in range(3):
        with suppress(ClusterUnavailableError):
            harbour.reconcile("Distribution", "release")
    assert harbour.status("Distribution", "release") == {}
    harbour.failing = None
    harbour.reconcile("Distribution", "release")
    assert harbour.ask("status")["journal"]["next_offset"] == 1
    assert harbour.ask(f"publishers/author/distributions/{uid}")["offset"] == 0
    assert harbour.status("Distribution", "release")["offset"] == 0


@pytest.mark.parametrize(
    ("action", "paths"), [("Add", ["/en"]), ("Delete", ["/en"]), ("Invalidate", ["/en"]), ("Test", [])]
)
def test_each_kind_of_request_is_published(harbour: Harbour, action: str, paths: list[str]) -> None:
    harbour.run_author()
    uid = harbour.distribute("release", action, *paths)
    found = harbour.follow("release", "Distributed")
    assert found["done"] == "0/0"
    seen = harbour.ask(f"publishers/author/distributions/{uid}")
    assert (seen["action"], seen["paths"]) == (action.upper(), paths)


def test_what_the_publisher_refuses_has_failed(harbour: Harbour) -> None:
    harbour.run_author()
    harbour.distribute("release", "Add", "/nowhere")
    found = harbour.follow("release", "Failed")
    status, reason = harbour.condition("Distribution", "release", "Stalled")
    assert (status, reason) == ("True", "SourceMissing")
    assert "finishedAt" in found
    assert "packageId" not in found


def test_what_a_member_gave_up_has_failed_and_names_it(harbour: Harbour) -> None:
    harbour.run_author()
    harbour.make("SubscriberPool", "edge", POOL)
    harbour.run_member("edge-0")
    harbour.run_member("edge-1", hooks={"before": ["false"]})
    harbour.distribute("release", "Add", "/en")
    found = harbour.follow("release", "Failed")
    assert (found["done"], found["pools"][0]["failed"]) == ("1/2", ["edge-1"])
    assert harbour.condition("Distribution", "release", "Distributed") == ("False", "GivenUp")


def test_a_finished_one_goes_after_its_time(harbour: Harbour) -> None:
    harbour.run_author()
    harbour.distribute("release", "Test", ttlSecondsAfterFinished=0)
    harbour.distribute("kept", "Test", ttlSecondsAfterFinished=3600)
    for name in ("release", "kept"):
        harbour.follow(name, "Distributed")
        harbour.reconcile("Distribution", name)
    assert harbour.http.get(harbour.path("Distribution", "release")).status_code == 404
    assert harbour.http.get(harbour.path("Distribution", "kept")).status_code == 200
    assert (harbour.reconcile("Distribution", "kept").again_seconds or 0) > 3000


def test_one_that_was_made_again_under_its_name_does_not_go_in_place_of_the_one_that_finished(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.run_author()
    harbour.distribute("release", "Test", ttlSecondsAfterFinished=0)
    harbour.follow("release", "Distributed")
    delete = Cluster.delete

    async def delete_late(cluster: Cluster, *arguments: Any) -> None:
        harbour.http.delete(harbour.path("Distribution", "release")).raise_for_status()
        harbour.distribute("release", "Test")
        await delete(cluster, *arguments)

    monkeypatch.setattr(Cluster, "delete", delete_late)
    with pytest.raises(ClusterConflictError, match="release"):
        harbour.reconcile("Distribution", "release")
    monkeypatch.undo()
    harbour.follow("release", "Distributed")


def test_it_waits_for_a_publisher_that_is_missing_or_suspended(harbour: Harbour) -> None:
    harbour.run_author()
    harbour.make("Distribution", "lost", {"publisherRef": {"name": "nobody"}, "action": "Test"})
    harbour.reconcile("Distribution", "lost")
    assert harbour.condition("Distribution", "lost") == ("False", "PublisherMissing")
    harbour.patch(harbour.path("Publisher", "author"), {"spec": {"suspend": True}})
    harbour.distribute("release", "Test")
    harbour.reconcile("Distribution", "release")
    assert harbour.condition("Distribution", "release") == ("False", "PublisherSuspended")
    assert harbour.ask("status")["journal"]["next_offset"] == 0
    harbour.patch(harbour.path("Publisher", "author"), {"spec": {"suspend": False}})
    harbour.follow("release", "Distributed")


def test_a_token_that_is_not_known_yet_is_waited_for(harbour: Harbour) -> None:
    harbour.run_author()
    other = base64.b64encode(b"another-token").decode()
    harbour.patch(harbour.path("secret", "author-token", "api/v1"), {"data": {"token": other}})
    harbour.distribute("release", "Test")
    harbour.reconcile("Distribution", "release")
    status = harbour.status("Distribution", "release")
    assert (status["state"], harbour.condition("Distribution", "release")[1]) == ("Pending", "Unauthorized")
    harbour.http.delete(harbour.path("secret", "author-token", "api/v1")).raise_for_status()
    harbour.reconcile("Distribution", "release")
    assert harbour.condition("Distribution", "release")[1] == "SecretMissing"


def test_publisher_and_pool_tell_what_their_agents_announce(harbour: Harbour) -> None:
    harbour.make("SubscriberPool", "edge", POOL)
    harbour.reconcile("SubscriberPool", "edge")
    harbour.run_author()
    harbour.run_member("edge-0")
    harbour.run_member("edge-1")
    harbour.know("edge-0", "edge-1")
    harbour.distribute("release", "Add", "/en")
    harbour.follow("release", "Distributed")
    eventually(lambda: all(item["ready"] and item["lag"] == 0 for item in harbour.ask("subscribers")))
    harbour.let_pods_be_ready("author", 1)
    harbour.let_pods_be_ready("edge", 2)
    assert 2.0 <= harbour.reconcile("Publisher", "author").again_seconds <= 30.0
    told = harbour.status("Publisher", "author")
    assert (told["nextOffset"], told["subscribers"], told["maxLag"]) == (1, 2, 0)
    assert "lastPublishedAt" in told
    harbour.reconcile("SubscriberPool", "edge")
    told = harbour.status("SubscriberPool", "edge")
    assert (told["caughtUpReplicas"], told["maxLag"], told["blocked"]) == (2, 0, 0)
    assert harbour.condition("SubscriberPool", "edge", "Lagging") == ("False", "Following")
    harbour.writes.clear()
    harbour.reconcile("Publisher", "author")
    harbour.reconcile("SubscriberPool", "edge")
    assert not harbour.writes
    table = harbour.server.kubectl("-n", harbour.namespace, "get", "mbpub,mbpool,mbdist").stdout
    assert "LAST PUBLISHED" in table
    assert "CAUGHT UP" in table


def test_a_member_that_was_scaled_away_is_waited_for_no_more(harbour: Harbour) -> None:
    harbour.make("SubscriberPool", "edge", POOL)
    harbour.reconcile("SubscriberPool", "edge")
    harbour.run_author()
    harbour.run_member("edge-0")
    harbour.run_member("edge-1")
    harbour.know("edge-0", "edge-1")
    harbour.let_pods_be_ready("author", 1)
    harbour.reconcile("Publisher", "author")
    harbour.patch(harbour.path("SubscriberPool", "edge"), {"spec": {"replicas": 1}})
    harbour.reconcile("SubscriberPool", "edge")
    workload = harbour.path("statefulset", "edge", "apis/apps/v1")
    eventually(lambda: harbour.http.get(workload).json()["status"]["replicas"] == 1)
    harbour.stop("edge-1")
    harbour.reconcile("SubscriberPool", "edge")
    harbour.know("edge-0")
    harbour.distribute("release", "Add", "/en")
    assert harbour.follow("release", "Distributed")["done"] == "1/1"


def test_members_of_a_deleted_pool_are_waited_for_no_more(harbour: Harbour) -> None:
    harbour.make("SubscriberPool", "edge", POOL)
    harbour.make("SubscriberPool", "golden", {**POOL, "replicas": 1})
    harbour.reconcile("SubscriberPool", "edge")
    harbour.run_author()
    for name in ("edge-0", "edge-1", "edge-7", "golden-0"):
        harbour.run_member(name)
    harbour.know("edge-0", "edge-1", "edge-7", "golden-0")
    harbour.let_pods_be_ready("author", 1)
    harbour.reconcile("Publisher", "author")
    assert harbour.status("Publisher", "author")["pools"] == [
        {"name": "edge", "members": 2, "shared": False},
        {"name": "golden", "members": 1, "shared": False},
    ]
    harbour.http.delete(harbour.path("SubscriberPool", "edge")).raise_for_status()
    eventually(lambda: harbour.http.get(harbour.path("SubscriberPool", "edge")).status_code == 404)
    harbour.stop("edge-0")
    assert harbour.reconcile("Publisher", "author").again_seconds == 5.0
    harbour.know("edge-0", "edge-1", "edge-7", "golden-0")  # edge-1 runs still
    harbour.stop("edge-1")
    harbour.stop("edge-7")  # never a member of the pool
    harbour.reconcile("Publisher", "author")
    harbour.know("edge-7", "golden-0")
    harbour.reconcile("Publisher", "author")
    assert harbour.status("Publisher", "author")["pools"] == [{"name": "golden", "members": 1, "shared": False}]


def replicas_asked(harbour: Harbour) -> int:
    return int(harbour.http.get(harbour.path("statefulset", "edge", "apis/apps/v1")).json()["spec"]["replicas"])


def test_a_pool_shrinks_one_member_after_the_other(harbour: Harbour) -> None:
    harbour.make("SubscriberPool", "edge", {**POOL, "replicas": 4})
    harbour.reconcile("SubscriberPool", "edge")
    harbour.let_pods_be_ready("edge", 4)
    harbour.reconcile("SubscriberPool", "edge")
    harbour.patch(harbour.path("SubscriberPool", "edge") + "/scale", {"spec": {"replicas": 2}})
    seen = []
    while replicas_asked(harbour) > 2:
        harbour.writes.clear()
        harbour.reconcile("SubscriberPool", "edge")
        seen.append(replicas_asked(harbour))
        if seen[-1] > 2:
            assert harbour.condition("SubscriberPool", "edge") == ("False", "ScalingDown")
        eventually(lambda: harbour.status_of_pods() == seen[-1])
    assert seen == [3, 2]
    harbour.reconcile("SubscriberPool", "edge")
    assert harbour.condition("SubscriberPool", "edge") == ("True", "AsSpecified")
    harbour.writes.clear()
    harbour.reconcile("SubscriberPool", "edge")
    assert not harbour.writes


def test_a_pool_of_too_few_that_serve_does_not_shrink_yet(harbour: Harbour) -> None:
    harbour.make("SubscriberPool", "edge", {**POOL, "replicas": 3})
    harbour.reconcile("SubscriberPool", "edge")
    harbour.let_pods_be_ready("edge", 2)
    harbour.patch(harbour.path("SubscriberPool", "edge"), {"spec": {"replicas": 2}})
    harbour.reconcile("SubscriberPool", "edge")
    assert (replicas_asked(harbour), harbour.condition("SubscriberPool", "edge")[1]) == (3, "ScaleDownWaits")
    harbour.let_pods_be_ready("edge", 3)
    harbour.reconcile("SubscriberPool", "edge")
    assert replicas_asked(harbour) == 2


SCALED_OBJECTS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh",
        "names": {"kind": "ScaledObject", "plural": "scaledobjects"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
def keda(harbour: Harbour) -> Iterator[Callable[[], None]]:
    """Installs KEDA's definition; it is gone when the test ends."""
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

    def install() -> None:
        harbour.http.post(url, json=SCALED_OBJECTS).raise_for_status()
        served = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"
        eventually(lambda: harbour.http.get(served).status_code == 200)

    yield install
    harbour.http.delete(f"{url}/scaledobjects.keda.sh")
    eventually(lambda: harbour.http.get(f"{url}/scaledobjects.keda.sh").status_code == 404)


def test_keda_takes_over_when_it_is_there(harbour: Harbour, keda: Callable[[], None]) -> None:
    harbour.make("SubscriberPool", "edge", {**POOL, **PROMISED, "autoscaling": {"maxReplicas": 9, "cpuPercent": 70}})
    harbour.reconcile("SubscriberPool", "edge")
    autoscaler = harbour.path("horizontalpodautoscaler", "edge", "apis/autoscaling/v2")
    scaled = harbour.path("scaledobject", "edge", "apis/keda.sh/v1alpha1")
    assert (harbour.http.get(autoscaler).status_code, harbour.http.get(scaled).status_code) == (200, 404)
    keda()
    harbour.reconcile("SubscriberPool", "edge")
    assert (harbour.http.get(autoscaler).status_code, harbour.http.get(scaled).status_code) == (404, 200)
    harbour.patch(harbour.path("SubscriberPool", "edge"), {"spec": {"autoscaling": None}})
    harbour.reconcile("SubscriberPool", "edge")
    assert harbour.http.get(scaled).status_code == 404


def test_the_token_appears_nowhere(harbour: Harbour, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    harbour.distribute("release", "Test")
    harbour.reconcile("Distribution", "release")
    harbour.run_author()
    harbour.follow("release", "Distributed")
    token = harbour.token
    events = harbour.http.get(harbour.path("event", root="api/v1")).text
    stored = harbour.http.get(harbour.path("Distribution", "release")).text
    assert "Distributed" in events
    assert not [text for text in (events, stored, caplog.text) if token in text]
    assert token not in repr(AgentAddress("shop", "author", token))


STRANGE = {
    "no JSON": (200, "text/html", b"<html>"),
    "another document": (200, "application/json", b"[1, 2]"),
    "a number as a name": (200, "application/json", b'{"journal": {"next_offset": 1}, "publishers": [{"name": 7}]}'),
    "a negative offset": (
        200,
        "application/json",
        b'{"journal": {"next_offset": -1}, "publishers": [], "subscribers": []}',
    ),
    "a time beyond time": (
        200,
        "application/json",
        b'{"journal": {"next_offset": 1}, "publishers": [{"name": "a", "last_published_at": "9999-12-31T23:59:59-23:00"}]}',  # noqa: E501
    ),
    "more than it can be": (200, "application/json", b"[" + b"1," * (9 << 20)),
    "a page of a proxy": (502, "text/html", b"bad gateway"),
    "a redirect": (302, "text/plain", b""),
    "a reason that no condition takes": (
        503,
        "application/json",
        b'{"title": "no reason!", "retry_after_seconds": "x"}',
    ),
}


def unanswered(status: int, media_type: str, body: bytes) -> AgentUnreachableError:
    """The error that an agent's answer becomes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "http://169.254.169.254/")
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # the library's name

    async def ask(url: str) -> None:
        agents = Agents(lambda _name, _namespace: url)
        try:
            await agents.fleet(AgentAddress("shop", "author", "token"))
        finally:
            await agents.close()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(AgentUnreachableError) as caught:
            asyncio.run(ask(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
    return caught.value


@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
def test_what_no_agent_answers_counts_as_no_answer(answer: tuple[int, str, bytes]) -> None:
    assert len(str(unanswered(*answer))) < 600


@pytest.mark.parametrize(
    ("wished", "pause"), [("0.001", 1.0), ("-5", None), ("7", 7.0), ("600", 60.0), ("1e999", None), ("NaN", None)]
)
def test_an_agent_is_asked_again_neither_at_once_nor_never(wished: str, pause: float | None) -> None:
    body = f'{{"title": "Throttled", "retry_after_seconds": {wished}}}'
    assert unanswered(503, "application/json", body.encode()).retry_after_seconds == pause


CANARY = "canary-5d21be"
SPOILT = (f"{CANARY}\n{CANARY}", f"{CANARY}\x00", f"{CANARY}\u00e9", f"\ufeff{CANARY}", f"{CANARY}\r\nX-Other: 1")


def test_no_spoilt_token_of_a_publisher_is_quoted_by_any_kind(
    harbour: Harbour, caplog: pytest.LogCaptureFixture
) -> None:
    """Admin, caller and webhook tokens; every kind that asks the agent is looked at with each value."""
    caplog.set_level(logging.DEBUG)
    tokens = {"tokenSecretRef": {"name": "spoilt"}, "tokens": [{"name": "ci", "secretRef": {"name": "spoilt"}}]}
    hook = {"name": "crm", "url": "https://hooks.example/", "tokenSecretRef": {"name": "spoilt"}}
    harbour.make("Publisher", "guarded", {**PUBLISHER, "http": tokens, "events": {"webhooks": [hook]}})
    harbour.make("SubscriberPool", "readers", POOL)
    reference = {"publisherRef": {"name": "guarded"}}
    harbour.make("Distribution", "asked", {**reference, "action": "Test"})
    harbour.make("PackageBuild", "built", {**reference, "roots": ["/en"], "image": "spark:1"})
    kinds = {"Publisher": "guarded", "SubscriberPool": "readers", "Distribution": "asked", "PackageBuild": "built"}
    harbour.patch(f"{harbour.path('PackageBuild', 'built')}/status", {"status": {"buildId": "b", "application": "b-1"}})
    secrets = harbour.path("secret", root="api/v1")
    for value in SPOILT:
        harbour.http.delete(f"{secrets}/spoilt")
        data = {"token": base64.b64encode(value.encode()).decode()}
        harbour.http.post(secrets, json={"metadata": {"name": "spoilt"}, "data": data}).raise_for_status()
        for kind, name in kinds.items():
            harbour.reconcile(kind, name)
            status = {"status": {"replicas": 1, "readyReplicas": 1}}
            if kind == "Publisher":  # it is asked only while its pod is ready
                harbour.patch(f"{harbour.path('statefulset', name, 'apis/apps/v1')}/status", status)
                harbour.reconcile(kind, name)
            assert CANARY not in harbour.http.get(harbour.path(kind, name)).text
        assert harbour.condition("Distribution", "asked") == ("False", "SecretMalformed")
        assert harbour.condition("Distribution", "asked", "Stalled")[0] == "True"
    rendered = [harbour.http.get(harbour.path(kind, root="api/v1")).text for kind in ("configmap", "event", "service")]
    assert CANARY not in "".join(rendered) + caplog.text
