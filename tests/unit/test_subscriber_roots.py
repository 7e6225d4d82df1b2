"""Roots of a subscriber: a package that would change anything outside of them is refused as a whole."""

from __future__ import annotations

import pytest
from mailboat.model.changes import TreeChange
from mailboat.model.filters import filter_for
from mailboat.model.messages import Action, PackageStatus
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.subscriber.admission import Roots, RootsExceededError
from mailboat.subscriber.subscriber_settings import Processors
from mailboat.testing.memory_content import MemoryStore
from mailboat.testing.trees import a_file, a_page, records
from support.engines import Engine
from support.memory_imports import Hook, append, message, paths_of, publish, renamed, run

ROOTS = (NodePath("/site/de"), NodePath("/shared"))
WITHIN = Roots(ROOTS)


def limited(tree: list[Node], *deep: str) -> list[str]:
    """The paths of what is left of a change."""
    change = TreeChange(filter_for([], [NodePath(path) for path in deep]), records(tree))
    return [record.path for record in WITHIN.limited(change, message()).records]


@pytest.mark.parametrize("path", ["/", "/site", "/site/fr", "/site/de-at", "/sharedx", "/other"])
@pytest.mark.parametrize("action", [Action.ADD, Action.DELETE, Action.INVALIDATE])
def test_message_that_names_a_path_outside_is_refused(path: str, action: Action) -> None:
    paths = (NodePath("/site/de/a"), NodePath(path))
    with pytest.raises(RootsExceededError, match="outside the roots /site/de, /shared") as raised:
        WITHIN.check(message(action=action, paths=paths))
    assert raised.value.where["path"] == path


@pytest.mark.parametrize("path", ["/site/de", "/site/de/a/b", "/shared"])
def test_message_within_the_roots_passes(path: str) -> None:
    WITHIN.check(message(paths=(NodePath(path),)))


@pytest.mark.parametrize("outside", ["/", "/site", "/other"])
def test_package_whose_filter_owns_content_outside_is_refused(outside: str) -> None:
    with pytest.raises(RootsExceededError, match=f"would change {outside}"):
        limited([], "/site/de", outside)


def test_ancestors_that_a_package_brings_are_dropped_outside_the_roots() -> None:
    tree = [a_page("/site", None, title="foreign"), a_page("/site/de", None), a_file("/site/de/a"), a_file("/evil")]
    assert limited(tree, "/site/de/a") == ["/site/de", "/site/de/a"]


def test_one_package_outside_is_given_up_alone_and_confirmed_as_failed(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/site/de/a")
    publish(engine, "/site/fr/a")
    publish(engine, "/site/de/b", "/other")
    publish(engine, "/shared/c")
    statistics = run(engine, store, engine.with_settings(roots=ROOTS))
    assert paths_of(store) == {"/site", "/site/de", "/site/de/a", "/shared", "/shared/c"}
    assert (statistics.imported, statistics.failed) == (2, 2)
    assert [(error.offset, error.cause.code) for error in store.errors.values()] == [
        (1, "RootsExceeded"),
        (2, "RootsExceeded"),
    ]
    failed = [status.offset for status in engine.statuses() if status.status is PackageStatus.REMOVED_FAILED]
    assert failed == [1, 2]


def test_delete_above_a_root_removes_nothing(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/site/de/a")
    engine.publisher().publish(DistributionRequest(Action.DELETE, (NodePath("/site"),)))
    run(engine, store, engine.with_settings(roots=ROOTS))
    assert "/site/de/a" in paths_of(store)
    assert [error.offset for error in store.errors.values()] == [1]


def test_package_that_lies_about_its_paths_is_refused(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/other")
    append(engine, renamed(engine, "/site/de"), renamed(engine))
    run(engine, store, engine.with_settings(roots=ROOTS))
    assert paths_of(store) == set()
    assert [error.cause.code for error in store.errors.values()] == ["RootsExceeded", "PackageCorrupt", "RootsExceeded"]


def test_hooks_do_not_run_for_a_refused_package(engine: Engine, store: MemoryStore) -> None:
    hook = Hook()
    publish(engine, "/other")
    append(engine, message(action=Action.INVALIDATE, paths=(NodePath("/other"),)))
    run(engine, store, engine.with_settings(roots=ROOTS), processors=Processors(hook, None, hook))
    assert hook.seen == []
