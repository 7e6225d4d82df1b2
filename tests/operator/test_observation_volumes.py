"""Claims that may not grow: how often the API server is asked; and when a Secret counts as another one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mailboat.errors import ClusterRefusedError
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.kinds.publisher.controller import observe_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.plan.actions import Enlarge
from mailboat_operator.plan.child_manifest import Owner
from mailboat_operator.plan.findings import conditions_after
from mailboat_operator.systems import Systems
from mailboat_operator.workload.pods import AgentImage
from mailboat_operator.workload.template import Volume
from mailboat_operator.workload.volumes import VolumeClaims, plan_volumes, unmade_workload, volume_findings

GIBIBYTE = 1 << 30
STORAGE = {"metadata": {"name": "content"}, "spec": {"resources": {"requests": {"storage": "5Gi"}}}}
WORKLOAD: dict[str, Any] = {
    "metadata": {"name": "edge"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "edge"}}, "volumeClaimTemplates": [STORAGE]},
}


class PlayedCluster:
    """Two claims that the API server lets not grow, unless the test says otherwise."""

    def __init__(self) -> None:
        self.versions = ["7", "8"]
        self.selector = {"a": "edge"}
        self.asked: list[tuple[str, str]] = []
        self.is_refusing = True

    async def list(self, kind: str, namespace: str, labels: Any) -> list[dict[str, Any]]:
        assert (kind, namespace, labels) == ("PersistentVolumeClaim", "shop", self.selector)
        spec = {"resources": {"requests": {"storage": "5Gi"}}}
        return [
            {
                "metadata": {"name": f"content-edge-{number}", "namespace": "shop", "resourceVersion": version},
                "spec": spec,
            }
            for number, version in enumerate(self.versions)
        ]

    async def enlarge(self, claim: dict[str, Any], size: str) -> None:
        self.asked.append((claim["metadata"]["name"], size))
        if self.is_refusing:
            raise ClusterRefusedError("the class is fixed")


class Bench:
    """The operator's reader over a played cluster, at a moment of the test."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 23, tzinfo=UTC)
        self.cluster: Any = PlayedCluster()
        nothing: Any = None
        self.systems = Systems()
        self.reader = ClusterReader(self.cluster, nothing, AgentImage("mailboat:1"), self.systems, lambda: self.now)

    def look(self, gibibytes: int = 8) -> tuple[str | None, list[tuple[str, str]]]:
        """The refusal that plans report in the end, and what the API server was asked for it."""
        before, size = len(self.cluster.asked), gibibytes * GIBIBYTE
        while True:
            seen = self._seen(Volume(size))
            if all(self._is_done(action) for action in plan_volumes(seen, size)):
                return seen.refused, self.cluster.asked[before:]

    def _seen(self, volume: Volume) -> VolumeClaims:
        asked = len(self.cluster.asked)
        seen = asyncio.run(self.reader.claims("shop", WORKLOAD, volume))
        assert len(self.cluster.asked) == asked, "observing writes nothing"
        return seen

    def _is_done(self, action: Enlarge) -> bool:
        try:
            asyncio.run(self.cluster.enlarge(action.claim, action.size))
        except ClusterRefusedError as error:
            self.systems.refusals.note(action.claim, action.size, error.message, self.now)
            return False
        return True


@pytest.fixture
def bench() -> Bench:
    """The first look was refused."""
    made = Bench()
    assert made.look() == ("the class is fixed", [("content-edge-0", "8Gi")])
    return made


def test_a_refused_claim_is_not_asked_for_again_while_nothing_changes(bench: Bench) -> None:
    for _ in range(3):
        bench.now += timedelta(minutes=10)
        assert bench.look() == ("the class is fixed", [])


def test_another_size_or_a_changed_claim_is_asked_for_at_once(bench: Bench) -> None:
    assert bench.look(9) == ("the class is fixed", [("content-edge-0", "9Gi")])
    bench.cluster.versions[0] = "9"
    assert bench.look(9) == ("the class is fixed", [("content-edge-0", "9Gi")])
    assert bench.look(9) == ("the class is fixed", [])


@pytest.mark.parametrize(("gibibytes", "asked"), [(5, []), (8, ["content-edge-0", "content-edge-1"])])
def test_claims_of_an_earlier_workload_of_the_name_are_enlarged(gibibytes: int, asked: list[str]) -> None:
    """They outlive an object that is deleted, and one that is made again with more space would fill them."""
    bench, volume = Bench(), Volume(gibibytes * GIBIBYTE)
    owner = Owner("SubscriberPool", "pool", Metadata("edge", "shop"))
    unmade = unmade_workload(owner, "content", 2)
    bench.cluster.selector = unmade["spec"]["selector"]["matchLabels"]
    seen = asyncio.run(bench.reader.claims("shop", unmade, volume))
    actions = plan_volumes(seen, volume.size_bytes)
    assert [action.claim["metadata"]["name"] for action in actions] == asked
    made = {**unmade, "spec": {**unmade["spec"], "volumeClaimTemplates": [claim_template(gibibytes)]}}
    before = conditions_after((), volume_findings(seen, volume.size_bytes), 1, bench.now)
    followed = asyncio.run(bench.reader.claims("shop", made, volume, before))
    assert len(followed.found) == len(asked), "until they have grown, once the workload is made"


def claim_template(gibibytes: int) -> dict[str, Any]:
    return {"metadata": {"name": "content"}, "spec": {"resources": {"requests": {"storage": f"{gibibytes}Gi"}}}}


def test_after_an_hour_the_class_may_have_changed(bench: Bench) -> None:
    bench.now += timedelta(hours=1)
    bench.cluster.is_refusing = False
    assert bench.look() == (None, [("content-edge-0", "8Gi"), ("content-edge-1", "8Gi")])


def test_a_secret_is_another_one_by_its_content_alone() -> None:
    """A label, or another tool's annotation, must not roll the pods of all pools."""
    secret: dict[str, Any] = {"metadata": {"uid": "u-1", "resourceVersion": "7"}, "data": {"password": "c2VjcmV0"}}
    labelled = {**secret, "metadata": {"uid": "u-1", "resourceVersion": "8", "labels": {"team": "web"}}}
    rotated = {**labelled, "data": {"password": "bmV3"}}
    made_again = {**secret, "metadata": {"uid": "u-2", "resourceVersion": "9"}}
    answers = iter([secret, labelled, rotated, made_again])

    class Secrets:
        async def get(self, *_: str) -> dict[str, Any]:
            return next(answers)

    cluster: Any = Secrets()
    nothing: Any = None
    reader = ClusterReader(cluster, nothing, AgentImage("mailboat:1"), Systems(), lambda: datetime.now(UTC))

    async def versions() -> list[str]:
        found = [await reader.secret("shop", "login") for _ in range(4)]
        return [item.version for item in found if item is not None]

    first, second, third, fourth = asyncio.run(versions())
    assert first == second
    assert len({first, third, fourth}) == 3


class ForeignWorkload:
    """A namespace with a StatefulSet of the Publisher's name that another client made."""

    def __init__(self) -> None:
        self.listed = list[str]()

    async def get(self, kind: str, *_: str) -> dict[str, Any] | None:
        spec = {**WORKLOAD["spec"], "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}
        return (
            {"metadata": {"name": "author"}, "spec": spec, "status": {"readyReplicas": 1}}
            if kind == "StatefulSet"
            else None
        )

    async def list(self, kind: str, _: str) -> list[dict[str, Any]]:
        self.listed.append(kind)
        return []


def test_claims_pods_and_agent_of_a_foreign_workload_are_left_alone(manifest_of: Any) -> None:
    manifest = manifest_of("Publisher", {"volume": {"size": "8Gi"}})
    publisher = decode({**manifest, "metadata": {**manifest["metadata"], "namespace": "shop", "uid": "ours"}})
    cluster, agents = ForeignWorkload(), SimpleNamespace()  # no agent may be asked
    reader = ClusterReader(
        cast("Any", cluster), cast("Any", agents), AgentImage("mailboat:1"), Systems(), lambda: datetime.now(UTC)
    )
    context = asyncio.run(observe_publisher(reader, publisher))
    assert cluster.listed == ["SubscriberPool"]
    assert [*plan_volumes(context.claims, 8 * GIBIBYTE)] == []
