"""Targets keep the namespaces that packages bring, in the transaction of the package, and give them to publishers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.locations import TARGET_KINDS, open_target
from mailboat.content.port import Target
from mailboat.content.watched_sources import namespaces_of
from mailboat.errors import LimitExceededError
from mailboat.model.changes import TreeChange
from mailboat.model.identifiers import Offset
from mailboat.model.namespaces import MAX_KEPT_NAMESPACES, NamespaceTable
from mailboat.testing.target_contract import at, deep, names_in, publish
from mailboat.testing.target_model import as_change
from mailboat.testing.trees import a_folder, a_page


@pytest.fixture(params=TARGET_KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A target of each kind."""
    with closing(open_target(f"{request.param}:{tmp_path / 'web'}")) as opened:
        yield opened


def named_change(table: NamespaceTable, *, is_stream: bool = False) -> TreeChange:
    """A package whose prefixes stand for these namespaces."""
    tree = [a_folder("/a"), a_page("/a/x", None)]
    return as_change(tree, deep("/a"), is_stream=is_stream)._replace(namespaces=table)


def import_named(target: Target, offset: int, table: NamespaceTable, *, is_stream: bool = False) -> None:
    """Import it in a batch of its own."""
    with target.batch() as batch:
        batch.apply(named_change(table, is_stream=is_stream), Offset(offset))
        batch.commit(at(offset + 1))


def namespaces_in(target: Target) -> NamespaceTable:
    """What a publisher of the content knows of its prefixes."""
    with closing(target.source()) as source:
        return dict(namespaces_of(source) or {})


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_namespaces_of_packages_are_kept(tmp_path: Path, kind: str) -> None:
    target = open_target(f"{kind}:{tmp_path / 'web'}")
    assert namespaces_in(target) == {}
    import_named(target, 0, {"acme": ("urn:acme",)})
    import_named(target, 1, {"acme": ("urn:acme",), "zoo": ("urn:zoo",)}, is_stream=True)
    assert namespaces_in(target) == {"acme": ("urn:acme",), "zoo": ("urn:zoo",)}
    target.close()
    with closing(open_target(f"{kind}:{tmp_path / 'web'}")) as opened:
        assert namespaces_in(opened) == {"acme": ("urn:acme",), "zoo": ("urn:zoo",)}


def test_a_namespace_arrives_with_content_that_is_there_already(target: Target) -> None:
    import_named(target, 0, {})
    import_named(target, 1, {"acme": ("urn:acme",)})
    assert namespaces_in(target) == {"acme": ("urn:acme",)}


def test_all_namespaces_of_a_prefix_are_kept(target: Target) -> None:
    import_named(target, 0, {"acme": ("urn:second",)})
    import_named(target, 1, {"acme": ("urn:first",)})
    assert namespaces_in(target) == {"acme": ("urn:first", "urn:second")}


def test_namespaces_of_a_batch_that_was_given_up_are_not_kept(target: Target) -> None:
    with target.batch() as batch:
        batch.apply(named_change({"acme": ("urn:acme",)}), Offset(0))
    import_named(target, 1, {"zoo": ("urn:zoo",)})
    assert namespaces_in(target) == {"zoo": ("urn:zoo",)}


def test_namespaces_are_no_content(target: Target) -> None:
    import_named(target, 0, {"acme": ("urn:acme",)})
    assert names_in(target) == ["/a", "/a/x"]
    publish(target, [a_folder("/a")], deep("/a"), 1)
    assert names_in(target) == ["/a"]
    assert namespaces_in(target) == {"acme": ("urn:acme",)}


def test_a_package_beyond_the_number_of_namespaces_is_refused(target: Target) -> None:
    full = {f"p{number}": ("urn:x",) for number in range(MAX_KEPT_NAMESPACES)}
    import_named(target, 0, full)
    with target.batch() as batch, pytest.raises(LimitExceededError, match="namespaces"):
        batch.apply(named_change({"acme": ("urn:acme",)}), Offset(1))
    assert namespaces_in(target) == full
