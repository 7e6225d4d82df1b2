"""The children of a node, by whatever way a source has: the same names, in the same order, as a walk shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.content.listed_nodes import BranchingSource, children_of
from mailboat.content.locations import open_target
from mailboat.content.port import Source
from mailboat.content.sources.folder import FolderSource
from mailboat.model.changes import TreeChange
from mailboat.model.filters import filter_for
from mailboat.model.identifiers import Offset
from mailboat.model.nodes import Binary, Node, file_node, folder_node
from mailboat.model.paths import NodePath, parent_of, parse_path
from mailboat.model.positions import LogIdentity, Position
from mailboat.packages.filevault.sources import open_checkout_source
from mailboat.testing.trees import records

TREE = [
    Node(NodePath("/site"), "nt:unstructured", child_order=("z", "en", "gone")),
    folder_node(NodePath("/site/z")),
    file_node(NodePath("/site/z/a.txt"), Binary(b"a")),
    folder_node(NodePath("/site/en")),
    file_node(NodePath("/site/en/b!c.txt"), Binary(b"b")),
    file_node(NodePath("/site/en/b.txt"), Binary(b"c")),
    file_node(NodePath("/site/a.txt"), Binary(b"d")),
]


class Walked:
    """A source that can be walked and nothing else."""

    def __init__(self, source: Source) -> None:
        self.walk, self.node, self.uri, self.close = source.walk, source.node, source.uri, source.close


@pytest.fixture(params=["files", "sqlite", "walked"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    kind = "files" if request.param == "walked" else request.param
    target = open_target(f"{kind}:{tmp_path / 'target'}")
    with target.batch() as batch:
        change = TreeChange(filter_for([NodePath("/site")], [NodePath("/site")]), records(TREE))
        batch.apply(change, Offset(0))
        batch.commit(Position(LogIdentity("c", "t"), Offset(1)))
    found = target.source()
    yield Walked(found) if request.param == "walked" else found  # type: ignore[misc]
    found.close()
    target.close()


@pytest.mark.parametrize("path", ["/", "/site", "/site/z", "/site/en"])
def test_children_are_named_in_the_order_in_which_a_walk_shows_them(source: Source, path: str) -> None:
    expected = [node.path for node in source.walk(NodePath("/")) if node.path != "/" and parent_of(node.path) == path]
    assert [f"{path.rstrip('/')}/{name}" for name in children_of(source, parse_path(path))] == expected


@pytest.mark.parametrize("path", ["/site/a.txt", "/nothing", "/site/a.txt/below"])
def test_files_and_places_without_anything_have_no_children(source: Source, path: str) -> None:
    assert list(children_of(source, parse_path(path))) == []


def test_a_checkout_names_its_children_from_documents_and_files_alike(tmp_path: Path) -> None:
    site = tmp_path / "jcr_root" / "site"
    site.mkdir(parents=True)
    (site / ".content.xml").write_text(
        '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0"'
        ' jcr:primaryType="nt:unstructured"><z jcr:primaryType="nt:unstructured"/><file.txt/></jcr:root>'
    )
    (site / "file.txt").write_text("x")
    source = open_checkout_source(tmp_path)
    shown = [node.path for node in source.walk(NodePath("/site"))][1:]
    assert (
        [f"/site/{name}" for name in children_of(source, NodePath("/site"))] == shown == ["/site/z", "/site/file.txt"]
    )
    source.close()


def test_the_sources_of_ours_need_no_walk(tmp_path: Path) -> None:
    assert isinstance(FolderSource(tmp_path), BranchingSource)
