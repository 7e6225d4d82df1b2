"""From a folder through the journal into every kind of target, with real parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.content.sources.folder import FolderSource
from mailboat.model.messages import Action, PackageStatus
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Until
from support.engines import TARGET_KINDS, Engine, digest_of, write_site

SITE = {
    "index.html": "<h1>Home</h1>",
    "news/2026/a.html": "a" * 1000,
    "news/2026/b.html": "b" * 70_000,
    "img/logo.png": b"\x89PNG" + bytes(200_000),
    "empty.txt": "",
}


@pytest.fixture
def engine(tmp_path: Path):
    with Engine(tmp_path / "home") as opened:
        yield opened


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_published_folder_arrives_in_every_kind_of_target(engine: Engine, tmp_path: Path, kind: str) -> None:
    source = write_site(tmp_path / "site", SITE)
    publisher = engine.publisher()
    receipt = publisher.publish(add_request([ROOT]), source)
    target = engine.target(kind)
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    assert digest_of(target.source()) == digest_of(source)
    assert (statistics.phase, statistics.imported, statistics.next_offset) == (SubscriberPhase.STOPPED, 1, 1)
    assert [(status.offset, status.status, status.package_id) for status in engine.statuses()] == [
        (receipt.offset, PackageStatus.IMPORTED, receipt.package_id)
    ]
    target.close()


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_changes_deletes_and_files_that_become_folders_follow(engine: Engine, tmp_path: Path, kind: str) -> None:
    site = tmp_path / "site"
    source = write_site(site, {**SITE, "was-file": "x", "was-folder/x/y.txt": "y", "gone/a.txt": "a"})
    publisher = engine.publisher()
    first = list(publisher.publish_changed(source))
    assert first
    assert list(publisher.publish_changed(source)) == []
    for path in ("was-file", "was-folder/x/y.txt", "gone/a.txt"):
        (site / path).unlink()
    for folder in ("was-folder/x", "was-folder", "gone"):
        (site / folder).rmdir()
    source = write_site(site, {"was-file/inside.txt": "in", "was-folder": "file now", "index.html": "<h1>New</h1>"})
    second = list(publisher.publish_changed(source))
    assert sum(item.removed for item in second) == 2
    target = engine.target(kind)
    engine.subscriber(target).run(Until.CAUGHT_UP)
    assert digest_of(target.source()) == digest_of(FolderSource(site))
    target.close()


def test_delete_removes_subtrees_and_test_and_invalidate_change_nothing(engine: Engine, tmp_path: Path) -> None:
    source = write_site(tmp_path / "site", SITE)
    publisher = engine.publisher()
    publisher.publish(add_request([ROOT]), source)
    publisher.publish(DistributionRequest(Action.TEST))
    publisher.publish(DistributionRequest(Action.INVALIDATE, (NodePath("/index.html"),)))
    publisher.publish(DistributionRequest(Action.DELETE, (NodePath("/news"), NodePath("/nowhere"))))
    target = engine.target("sqlite")
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    paths = {node.path for node in target.source().walk(ROOT)}
    assert "/index.html" in paths
    assert not any(path.startswith("/news") for path in paths)
    assert (statistics.imported, statistics.skipped) == (3, 1)
    assert [status.offset for status in engine.statuses()] == [0, 2, 3]
    target.close()
