"""The test cluster: which way it is made, what that builds, and what is announced before."""

from __future__ import annotations

from dataclasses import dataclass, field

import builds
import cluster
import engine
import pytest
from cluster import Step, announced, programs_of
from engine import Engine, find_way

IMAGE = "kindest/node:v1"


@dataclass
class FakeEngine(Engine):
    """An engine that answers as it is told, and notes what it was asked."""

    runs: bool = False
    has: bool = False
    reaches: bool = False
    asked: list[str] = field(default_factory=list)

    def is_ready(self) -> bool:
        return self.runs

    def up(self) -> None:
        self.asked.append("up")

    def down(self) -> None:
        self.asked.append("down")

    def has_image(self, name: str) -> bool:
        self.asked.append(f"has {name}")
        return self.has

    def can_reach(self, name: str) -> bool:
        self.asked.append(f"reach {name}")
        return self.reaches


@pytest.mark.parametrize(
    ("running", "is_published", "reason"),
    [
        (FakeEngine(), False, "no container engine answers"),
        (FakeEngine(runs=True, has=True), True, f"has {IMAGE}"),
        (FakeEngine(runs=True, reaches=True), True, f"can pull {IMAGE}"),
        (FakeEngine(runs=True), False, f"can't pull {IMAGE}"),
    ],
)
def test_a_running_engine_is_used_if_it_has_or_can_pull_the_published_image(
    running: FakeEngine, is_published: bool, reason: str
) -> None:
    way = find_way(IMAGE, running, own := FakeEngine())
    assert way.engine is (running if is_published else own)
    assert reason in way.reason


def test_no_registry_is_asked_while_the_engine_of_the_tests_runs() -> None:
    running = FakeEngine(runs=True, reaches=True)
    own = FakeEngine(runs=True)
    assert find_way(IMAGE, running, own).engine is own
    assert running.asked == []


def test_an_engine_that_does_not_answer_in_time_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(command: list[str], timeout: float | None = None, **_: object) -> None:
        raise engine.subprocess.TimeoutExpired(command, timeout or 0.0)

    monkeypatch.setattr(engine.shutil, "which", lambda _: "/usr/bin/docker")
    monkeypatch.setattr(engine.subprocess, "run", never)
    assert not Engine().is_ready()
    assert not Engine().can_reach(IMAGE)


def test_a_cluster_of_published_images_needs_no_control_plane() -> None:
    assert builds.KUBEBOX not in programs_of(can_pull=True).values()
    assert programs_of(can_pull=False)["kubectl"] is builds.KUBEBOX
    assert builds.HELM not in [*programs_of(can_pull=True).values(), *programs_of(can_pull=False).values()]


@pytest.mark.parametrize(("runs", "expected"), [(False, ["up", "down"]), (True, ["up"])])
def test_an_engine_that_was_started_for_images_alone_ends_with_them(
    runs: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Started at the lowest priority, it would keep that for the cluster."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, built = FakeEngine(runs=runs), list[str]()
    monkeypatch.setattr(cluster, "PROGRAMS", ())
    monkeypatch.setattr(cluster, "way", lambda: engine.Way(found, ""))
    monkeypatch.setattr(cluster, "image", lambda _, recipe: built.append(recipe.name))
    cluster.build_alone()
    assert found.asked == expected
    assert built == ["mailboat", "mailboat-operator", "mailboat-spark"]


def test_the_announcement_names_what_is_missing_with_its_last_duration() -> None:
    steps = [Step("program kubebox", made=False), Step("program kind", made=True), Step("cluster", made=False)]
    assert announced(steps, {"program kubebox": 840.4, "program kind": 20.0}).splitlines() == [
        "to make:",
        "  program kubebox: 840 s last time",
        "  cluster: not timed on this machine yet",
        "  together: 840 s last time, and what was not timed yet",
    ]
    assert announced(steps[2:], {}).splitlines() == ["to make:", "  cluster: not timed on this machine yet"]
    assert announced([Step("cluster", made=True)], {}) == "everything is built and the cluster runs"


def test_every_step_of_the_announcement_is_one_whose_duration_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    named = {e2e_step.name for e2e_step in cluster.e2e_steps(FakeEngine())}
    assert {"program kind", "program helm", "image mailboat", "image mailboat-spark", "cluster"} <= named
    assert "program kubebox" not in named
    with builds.timed("program kind"):
        pass
    assert builds.durations() == {"program kind": 0.0}
    with pytest.raises(RuntimeError), builds.timed("program helm"):
        raise RuntimeError
    assert set(builds.durations()) == {"program kind"}
