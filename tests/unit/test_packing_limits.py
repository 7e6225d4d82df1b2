"""What a publisher writes under its limits, readers accept under the same; everything else it refuses."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import NodePath, child_of
from mailboat.model.requests import add_request
from mailboat.packages.filevault.codec import MAX_NODE_PROPERTIES, FilevaultCodec
from mailboat.packages.filevault.document_reader import MAX_DOCUMENT_ELEMENTS
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.testing.memory_content import MemorySource
from support.engines import EngineParts, memory_engine

ROOT = NodePath("/content/a")
CODECS = pytest.mark.parametrize("codec", [TreeCodec(), FilevaultCodec()], ids=["tree", "filevault"])


def page(path: NodePath, *held: Property, order: Sequence[str] | None = None) -> Node:
    return Node(path, "nt:unstructured", (), held, None if order is None else tuple(order))


def pages(count: int, *held: Property) -> list[Node]:
    return [page(ROOT), *(page(child_of(ROOT, f"n{n:03}"), *held) for n in range(count))]


def blob(name: str, content: bytes) -> Property:
    return Property(name, (Binary(content),), PropertyType.BINARY)


def texts(count: int) -> tuple[Property, ...]:
    return tuple(Property(f"p{n:06}", ("",)) for n in range(count))


def chain(depth: int) -> list[Node]:
    paths = [ROOT]
    while len(paths) < depth:
        paths.append(child_of(paths[-1], "b"))
    return [page(path, order=("b",)) for path in paths]


def written(codec: TreeCodec | FilevaultCodec, nodes: Sequence[Node], limits: LimitsConfig) -> bytes:
    into = io.BytesIO()
    codec.write(PackageContents(filter_for((), [ROOT]), nodes, is_self_contained=True, limits=limits), into)
    return into.getvalue()


def read_paths(codec: TreeCodec | FilevaultCodec, package: bytes, limits: LimitsConfig) -> list[NodePath]:
    change = codec.read_bytes(package, limits, None)
    return [record.path for record in change.records if change.filter.covers(record.path)]


ENTRY = (LimitsConfig(max_entry_bytes=5_000), [page(ROOT, blob("data", b"x" * 5_001))], "max_entry_bytes")
TOTAL = (
    LimitsConfig(max_total_bytes=9_000),
    [page(ROOT, blob("a", b"x" * 5_000), blob("b", b"y" * 5_000))],
    "max_total_bytes",
)


@pytest.mark.parametrize(
    ("limits", "nodes", "reason"),
    [ENTRY, (LimitsConfig(max_entries=5), pages(5), "more nodes"), TOTAL],
    ids=["entry", "entries", "total"],
)
def test_tree_package_beyond_a_limit_is_refused(limits: LimitsConfig, nodes: list[Node], reason: str) -> None:
    with pytest.raises(LimitExceededError, match=reason) as caught:
        written(TreeCodec(), nodes, limits)
    assert str(caught.value.where["path"]).startswith(ROOT)


@pytest.mark.parametrize(
    ("limits", "nodes", "reason", "place"),
    [
        (*ENTRY, ROOT),
        (
            LimitsConfig(max_entries=5),
            [page(ROOT, *(blob(f"b{n}", b"x") for n in range(4)))],
            "more entries",
            f"jcr_root{ROOT}/b2.binary",
        ),
        (*TOTAL, f"jcr_root{ROOT}/b.binary"),
        (LimitsConfig(max_xml_depth=2), chain(2), "3 nested elements", child_of(ROOT, "b")),
    ],
    ids=["entry", "entries", "total", "depth"],
)
def test_filevault_package_beyond_a_limit_is_refused(
    limits: LimitsConfig, nodes: list[Node], reason: str, place: str
) -> None:
    with pytest.raises(LimitExceededError, match=reason) as caught:
        written(FilevaultCodec(), nodes, limits)
    where = caught.value.where
    assert where.get("path", where.get("entry")) == place


@CODECS
@pytest.mark.parametrize(
    ("limits", "nodes"),
    [
        (LimitsConfig(max_ratio=1), [page(ROOT, blob("data", bytes(1_500_000)))]),
        (LimitsConfig(max_ratio=7.5), [page(ROOT, blob("data", bytes(5_000_000)))]),
        (LimitsConfig(max_ratio=20), pages(30, blob("data", bytes(60_000)))),
        (LimitsConfig(max_xml_depth=3), chain(12)),
        (LimitsConfig(max_xml_depth=6), chain(12)),
        (LimitsConfig(max_entries=12), chain(9)),
        (LimitsConfig(max_entry_bytes=5_000), [page(ROOT, blob("data", b"x" * 5_000))]),
    ],
    ids=["stored", "spooled", "many", "depth 3", "depth 6", "entries", "entry"],
)
def test_package_within_its_limits_is_read_under_them(
    codec: TreeCodec | FilevaultCodec, limits: LimitsConfig, nodes: list[Node]
) -> None:
    assert read_paths(codec, written(codec, nodes, limits), limits) == [node.path for node in nodes]


def test_more_properties_than_a_document_may_have_are_refused() -> None:
    with pytest.raises(LimitExceededError, match="249999 properties") as caught:
        written(FilevaultCodec(), [page(ROOT, *texts(MAX_NODE_PROPERTIES + 1))], LimitsConfig())
    assert caught.value.where["path"] == ROOT


def test_child_of_many_properties_gets_its_own_document() -> None:
    """Both fit a document alone; with the properties of both, readers would refuse it."""
    nodes = [page(ROOT, *texts(10_000)), page(child_of(ROOT, "b"), *texts(MAX_NODE_PROPERTIES - 5_000))]
    package = written(FilevaultCodec(), nodes, LimitsConfig())
    documents = [entry for entry in zipfile.ZipFile(io.BytesIO(package)).namelist() if entry.endswith(".content.xml")]
    assert documents == [f"jcr_root{ROOT}/b/.content.xml", f"jcr_root{ROOT}/.content.xml"]


def test_longer_order_than_a_document_may_have_is_refused() -> None:
    names = [f"{n:x}" for n in range(MAX_DOCUMENT_ELEMENTS)]
    with pytest.raises(LimitExceededError, match="100001 children in an order") as caught:
        written(FilevaultCodec(), [page(ROOT, order=names)], LimitsConfig())
    assert caught.value.where["path"] == ROOT


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_publisher_refuses_what_its_own_limits_refuse_before_it_appends(package_type: str, tmp_path: Path) -> None:
    source = MemorySource([page(ROOT, blob("data", b"x" * 5_001))], uri="memory:limits")
    parts = EngineParts(codecs={"tree": TreeCodec(), "filevault": FilevaultCodec()})
    with memory_engine(tmp_path, parts) as engine:
        limits = LimitsConfig(max_entry_bytes=5_000)
        publisher = engine.publisher(engine.publishing_with(package_type=package_type, limits=limits))
        with pytest.raises(LimitExceededError, match=r"limits\.max_entry_bytes") as caught:
            publisher.publish(add_request([ROOT]), source)
        assert (caught.value.where["path"], engine.records()) == (ROOT, [])


@pytest.mark.parametrize("codec", [TreeCodec(), FilevaultCodec()], ids=["tree", "filevault"])
def test_both_formats_count_nodes(codec: TreeCodec | FilevaultCodec) -> None:
    """Also where a FileVault document holds several nodes in one entry."""
    nodes, few = pages(5), LimitsConfig(max_entries=5)
    with pytest.raises(LimitExceededError, match=r"more nodes than limits\.max_entries"):
        written(codec, nodes, few)
    package = written(codec, nodes, LimitsConfig())
    with pytest.raises(LimitExceededError, match=r"more (nodes )?than limits\.max_entries"):
        read_paths(codec, package, few)
    assert len(read_paths(codec, package, LimitsConfig())) == 6
