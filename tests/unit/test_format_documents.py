"""What docs/formats says is true: the example has the bytes that we write, and its digests can be computed."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import pytest
from mailboat.config.document import LimitsConfig
from mailboat.content.digest import tree_digest
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Binary, Node, Property, PropertyType, file_node, folder_node
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.testing.trees import sample_tree
from mailboat.wire import headers
from mailboat.wire.node_bodies import node_digest

FORMATS = Path(__file__).resolve().parent.parent.parent / "docs" / "formats"
TREE = (FORMATS / "tree.md").read_text()
DIGEST = (FORMATS / "digest.md").read_text()
MESSAGES = (FORMATS / "messages.md").read_text()
EN = NodePath("/site/en")
NODES = [
    folder_node(EN),
    file_node(NodePath("/site/en/a.txt"), Binary(b"hello\n")),
    Node(
        NodePath("/site/en/b"),
        "nt:unstructured",
        ("mix:title",),
        (
            Property("at", ("2026-01-02T03:04:05.678Z",), PropertyType.DATE),
            Property("tags", ("x", "y"), is_multiple=True),
            Property("title", ("Hi",)),
        ),
        ("z", "a"),
    ),
]


def example() -> bytes:
    lines = (FORMATS / "tree-example.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def test_the_example_is_what_is_written() -> None:
    into = io.BytesIO()
    summary = TreeCodec().write(PackageContents(filter_for([], [EN]), NODES, (folder_node(NodePath("/site")),)), into)
    assert into.getvalue() == example()
    assert f"these {summary.length_bytes} bytes is `{summary.package_digest.hex()}`" in TREE
    assert summary.tree_digest.hex() in TREE


def test_the_example_is_read() -> None:
    change = TreeCodec().read_bytes(example(), LimitsConfig(), None)
    assert [record.path for record in change.records] == ["/site", *(node.path for node in NODES)]


def test_the_documented_digests_are_true() -> None:
    for node in NODES:
        assert f"- `{node.path}`: `{node_digest(node).hex()}`" in " ".join(DIGEST.split())
    assert tree_digest(NODES).hex() in DIGEST
    assert tree_digest([]) == hashlib.sha256(bytes(32)).digest()


def digest_as_documented(nodes: list[Node]) -> bytes:
    """Written from the page alone, without regard for memory."""
    own = {node.path: node_digest(node) for node in nodes}

    def hash_of(path: str) -> bytes:
        below = "/" if path == "/" else f"{path}/"
        names = {other[len(below) :].partition("/")[0] for other in own if other.startswith(below) and other != path}
        total = own.get(NodePath(path), bytes(32))
        for name in sorted(names):
            total += f"{len(name.encode())}:".encode() + name.encode() + hash_of(below + name)
        return hashlib.sha256(total).digest()

    return hash_of("/")


@pytest.mark.parametrize("nodes", [[], NODES, sample_tree(), sample_tree("/a/b"), [folder_node(NodePath("/")), *NODES]])
def test_the_digest_can_be_computed_as_documented(nodes: list[Node]) -> None:
    assert digest_as_documented(nodes) == tree_digest(nodes)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("DiscoveryMessage", 1),
        ("PackageMessage", 2),
        ("PackageStatusMessage", 3),
        ("CommandMessage", 4),
        ("PingMessage", 5),
        ("RedriveMessage", 20),
        ("CommandResult", 21),
    ],
)
def test_the_documented_headers_are_those_of_the_records(name: str, number: int) -> None:
    assert re.search(rf"\| {number} \| `{name}`", MESSAGES)
    assert f"the headers `type` and `version` ({headers.VERSION})" in MESSAGES
