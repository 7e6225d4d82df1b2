"""Nothing outside a subscriber's roots is written or removed, in every kind of target, on every road into it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.content.locations import TARGET_KINDS, open_target
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.operations.target_snapshots import SnapshotPartialError, restore_snapshot, take_snapshot
from mailboat.subscriber.subscriber import Until
from mailboat.testing.target_contract import content_of
from mailboat.testing.trees import a_folder
from support.engines import Engine, page_source


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_only_content_within_the_roots_is_ever_written(tmp_path: Path, kind: str) -> None:
    with Engine(tmp_path / "home") as engine, closing(engine.target(kind)) as target:
        publisher = engine.publisher()
        paths = ["/site/de/a", "/site/fr/a", "/site/de/b", "/site", "/"]
        for path in paths:
            shallow = add_request([NodePath(path)])
            publisher.publish(shallow, page_source("/site/de/a", "/site/fr/a", "/site/de/b"))
        publisher.publish(add_request([NodePath("/site/de")]), page_source("/site/de/c"))
        for path in ("/site/fr", "/site"):
            publisher.publish(DistributionRequest(Action.DELETE, (NodePath(path),)))
        engine.subscriber(target, engine.with_settings(roots=(NodePath("/site/de"),))).run(Until.CAUGHT_UP)
        found = content_of(target)
        assert found[0] == a_folder("/site")
        assert [node.path for node in found] == ["/site", "/site/de", "/site/de/c"]
        assert [item.offset for item in target.ledger.given_up()] == [1, 3, 4, 6, 7]
        assert {item.cause.code for item in target.ledger.given_up()} == {"RootsExceeded"}
        position = target.ledger.position()
        assert position is not None
        assert position.next_offset == 8


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_only_content_within_the_roots_is_restored_from_a_snapshot(tmp_path: Path, kind: str) -> None:
    with Engine(tmp_path / "home") as engine:
        source = page_source("/site/de/a", "/site/fr/a", "/other/a")
        engine.publisher().publish(add_request([NodePath("/")]), source)
        with closing(engine.target("sqlite")) as whole:
            engine.subscriber(whole).run(Until.CAUGHT_UP)
        location = f"sqlite:{engine.folder / 'edge-sqlite/content.db'}"
        take_snapshot(location, tmp_path / "snap", SystemClock())
    into = f"{kind}:{tmp_path / ('new.db' if kind == 'sqlite' else 'new')}"
    roots = tuple(map(NodePath, ("/site/de/a", "/site/de", "/missing")))
    taken = restore_snapshot(tmp_path / "snap", into, None, roots=roots)
    with closing(open_target(into)) as target:
        assert [node.path for node in content_of(target)] == ["/site", "/site/de", "/site/de/a"]
        assert target.ledger.position() == taken.head.position
    assert taken.roots == roots


@pytest.mark.parametrize(
    ("held", "wanted", "is_refused"),
    [
        (None, (), False),  # of an earlier version
        ((), (), False),
        ((), ("/site",), False),
        (("/site",), ("/site/de", "/site"), False),
        (("/site/de", "/site/fr"), ("/site/fr",), False),
        (("/site",), (), True),
        (("/site/de",), ("/site",), True),
        (("/site",), ("/site/de", "/sites"), True),
    ],
)
def test_a_snapshot_is_refused_that_lacks_what_the_roots_of_its_subscriber_left_out(
    tmp_path: Path, held: tuple[NodePath, ...] | None, wanted: tuple[NodePath, ...], is_refused: bool
) -> None:
    with Engine(tmp_path / "home") as engine, closing(engine.target("sqlite")) as whole:
        engine.publisher().publish(add_request([NodePath("/")]), page_source("/site/de/a"))
        engine.subscriber(whole).run(Until.CAUGHT_UP)
    location, snap = f"sqlite:{engine.folder / 'edge-sqlite/content.db'}", tmp_path / "snap"
    assert take_snapshot(location, snap, SystemClock(), roots=held).head.roots == held
    into = f"sqlite:{tmp_path / 'new.db'}"
    if not is_refused:
        assert restore_snapshot(snap, into, None, roots=wanted).head.roots == held
        return
    with pytest.raises(SnapshotPartialError, match="only, the subscriber of sqlite:"):
        restore_snapshot(snap, into, None, roots=wanted)
    assert not (tmp_path / "new.db").exists()
