"""Whatever tree is written as a FileVault package is read back exactly."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.document import LimitsConfig
from mailboat.content.digest import tree_digest
from mailboat.errors import LimitExceededError, UsageError
from mailboat.model.changes import TreeChange
from mailboat.model.filters import WorkspaceFilter, filter_for
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.document_reader import MAX_DOCUMENT_BYTES
from mailboat.packages.filevault.layout_writer import MAX_ELEMENT_DEPTH
from mailboat.packages.port import PackageContents, PackageSummary
from mailboat.testing import trees
from mailboat.testing.examples import examples
from mailboat.testing.trees import TreeShape
from mailboat.wire.node_bodies import decode_node

CONTENT = NodePath("/content")
TRICKY_NAMES = [
    "jcr:content", "a.dir", "a",
    "a.xml", "x.binary", ".content.xml", ".vlt", ".vlt-sync", ".svn", "b[2]", "_", "__", "_a_b", ".git",
    "jcr:data", "a:b:c", "100%", "%41", "xmlns", "xml:lang", "_x0041_", "1", "a b", "😀", ".xml", ".dir", ".binary",
]  # fmt: skip
TRICKY = TreeShape(
    may_files_have_children=True,
    texts=trees.ANY_TEXTS,
    max_nodes=16,
    node_names=st.one_of(trees.names(), st.sampled_from(TRICKY_NAMES)),
)


class Exchange:
    """Writes trees and reads them back."""

    def __init__(self) -> None:
        self.codec = FilevaultCodec()
        self.blobs: dict[bytes, Binary] = {}

    def write(
        self, nodes: Sequence[Node], workspace: WorkspaceFilter | None = None, **options: object
    ) -> tuple[bytes, PackageSummary]:
        for node in nodes:
            self.blobs |= {
                value.digest: value
                for property_ in node.properties
                for value in property_.values
                if isinstance(value, Binary)
            }
        into = io.BytesIO()
        workspace = workspace or filter_for((), [nodes[0].path])
        contents = PackageContents(workspace, nodes, **options)  # type: ignore[arg-type]  # given by the tests
        summary = self.codec.write(contents, into)
        return into.getvalue(), summary

    def change(self, payload: bytes) -> TreeChange:
        return self.codec.read_bytes(payload, LimitsConfig(), lambda digest: self.blobs[digest].open())

    def read(self, payload: bytes) -> list[Node]:
        opening = self.blobs
        change = self.change(payload)
        return [
            decode_node(record.path, record.body, lambda digest: opening[digest].open()) for record in change.records
        ]


def by_path(nodes: Sequence[Node]) -> dict[NodePath, Node]:
    return {node.path: node for node in nodes}


@pytest.mark.costly("the widest property of the format, with trees of every shape")
@settings(deadline=None, max_examples=examples(150))
@given(nodes=trees.trees(TRICKY), is_self_contained=st.booleans())
def test_any_tree_comes_back_as_it_was(nodes: list[Node], is_self_contained: bool) -> None:
    exchange = Exchange()
    payload, summary = exchange.write(nodes, is_self_contained=is_self_contained)
    assert by_path(exchange.read(payload)) == by_path(nodes)
    assert summary.tree_digest == tree_digest(nodes)
    assert summary.node_count == len(nodes)
    assert zipfile.ZipFile(io.BytesIO(payload)).testzip() is None


@settings(deadline=None, max_examples=examples(40))
@given(nodes=trees.trees(TRICKY))
def test_the_bytes_depend_on_the_contents_only(nodes: list[Node]) -> None:
    assert Exchange().write(nodes)[0] == Exchange().write(list(nodes))[0]


@settings(deadline=None, max_examples=examples(40))
@given(nodes=trees.trees(TRICKY))
def test_parents_come_before_their_children_and_subtrees_together(nodes: list[Node]) -> None:
    exchange = Exchange()
    read = exchange.read(exchange.write(nodes)[0])
    assert tree_digest(read) == tree_digest(nodes)  # raises where the order is wrong


def test_a_node_that_the_filter_does_not_cover_is_refused() -> None:
    with pytest.raises(UsageError, match="/content is not covered"):
        Exchange().write([trees.a_folder("/content")], filter_for((), [NodePath("/other")]))


def test_a_document_that_readers_refuse_is_not_written() -> None:
    node = Node(CONTENT, "nt:unstructured", (), (Property("text", ("x" * MAX_DOCUMENT_BYTES,)),))
    with pytest.raises(LimitExceededError, match="need a document of") as caught:
        Exchange().write([node])
    assert caught.value.where["path"] == CONTENT


def test_documents_within_each_other_that_readers_refuse_are_not_written() -> None:
    text = Property("text", ("x" * (MAX_DOCUMENT_BYTES * 9 // 10),))
    nodes = [Node(NodePath(f"/content{'/a' * depth}"), "nt:unstructured", (), (text,)) for depth in range(5)]
    with pytest.raises(LimitExceededError, match="nodes below need documents of") as caught:
        Exchange().write(nodes)
    assert caught.value.where["path"] == CONTENT


def test_a_document_with_more_names_than_its_namespaces_allow_is_not_written() -> None:
    """expat writes the namespace of each name out."""
    uri = "urn:" + "x" * 2_000
    few, many = (Node(CONTENT, "nt:unstructured", (), tuple(numbered(count))) for count in (300, 33_500))
    exchange = Exchange()
    assert exchange.read(exchange.write([few], properties={"xmlns:acme": uri})[0]) == [few]
    with pytest.raises(LimitExceededError, match="the URI of a namespace has 2004 characters") as caught:
        exchange.write([many], properties={"xmlns:acme": uri})
    assert caught.value.where["path"] == CONTENT
    assert caught.value.next_step == "use a shorter namespace, or have fewer names in one node"


def numbered(count: int) -> Iterator[Property]:
    """Properties in the namespace of a project."""
    return (Property(f"acme:{number:05}", ("v",)) for number in range(count))


IMAGE = NodePath("/content/x.png")
CONTENT_OF_IMAGE = NodePath(f"{IMAGE}/jcr:content")
PNG = Property("jcr:data", (Binary(b"png"),), PropertyType.BINARY)


def a_rendition(content_type: str = "oak:Resource") -> list[Node]:
    mime = Property("jcr:mimeType", ("image/png",))
    return [
        Node(CONTENT, "sling:Folder"),
        Node(IMAGE, "nt:file"),
        Node(CONTENT_OF_IMAGE, content_type, (), (PNG, mime)),
    ]


@pytest.mark.parametrize("content_type", ["oak:Resource", "nt:resource"])
def test_a_file_with_properties_is_laid_out_as_filevault_does(content_type: str) -> None:
    """Its importer keeps the MIME type of a plain entry, and its validator knows no `_jcr_data.binary` there."""
    nodes = a_rendition(content_type)
    exchange = Exchange()
    payload, _ = exchange.write(nodes, is_self_contained=True)
    archive = zipfile.ZipFile(io.BytesIO(payload))
    content = [name for name in archive.namelist() if name.startswith("jcr_root/content/")]
    assert content == [
        "jcr_root/content/x.png",
        "jcr_root/content/x.png.dir/.content.xml",
        "jcr_root/content/.content.xml",
    ]
    assert archive.read("jcr_root/content/x.png") == b"png"
    assert b"jcr:data" not in archive.read("jcr_root/content/x.png.dir/.content.xml")
    assert exchange.read(payload) == nodes


def test_a_file_with_a_mixin_is_laid_out_as_filevault_does() -> None:
    nodes = [Node(CONTENT, "sling:Folder"), Node(IMAGE, "nt:file", ("mix:title",), (PNG,))]
    exchange = Exchange()
    payload, _ = exchange.write(nodes)
    assert zipfile.ZipFile(io.BytesIO(payload)).read("jcr_root/content/x.png") == b"png"
    assert exchange.read(payload) == nodes


def ordered(path: str, *names: str) -> Node:
    return Node(NodePath(path), "nt:unstructured", (), (), names)


def test_orders_for_repositories_name_only_nodes_of_the_package() -> None:
    """An importer keeps a node of which there is an empty element, although the package replaces what is there."""
    nodes = [ordered("/content", "gone", "b", "a"), ordered("/content/b", "gone"), ordered("/content/a", "x")]
    nodes.append(Node(NodePath("/content/a/x"), "nt:file", ("mix:title",), (PNG,), ("gone",)))
    kept = [ordered("/content", "b", "a"), ordered("/content/b"), ordered("/content/a", "x")]
    kept.append(Node(NodePath("/content/a/x"), "nt:file", ("mix:title",), (PNG,), ()))
    exchange = Exchange()
    payload, summary = exchange.write(nodes, is_for_repositories=True)
    assert by_path(exchange.read(payload)) == by_path(kept)
    assert summary.tree_digest == tree_digest(kept)


@pytest.mark.parametrize("shape", ["shallow", "between agents"])
def test_orders_keep_names_of_nodes_that_the_package_does_not_replace(shape: str) -> None:
    nodes = [ordered("/content", "b", "a")]
    exchange = Exchange()
    workspace = filter_for([CONTENT], []) if shape == "shallow" else None
    payload, _ = exchange.write(nodes, workspace, is_for_repositories=shape == "shallow")
    assert exchange.read(payload) == nodes


def test_orders_of_ancestors_keep_the_root() -> None:
    exchange, root = Exchange(), NodePath("/content/a")
    above = (ordered("/content", "b", "a"),)
    payload, _ = exchange.write([ordered(root)], filter_for((), [root]), ancestors=above, is_for_repositories=True)
    assert exchange.read(payload) == [*above, ordered(root)]


def test_access_control_lists_have_documents_of_their_own() -> None:
    """An importer that can't apply one gives its document up: with the page around it, or alone."""
    nodes = [ordered("/content", "rep:policy", "page"), Node(NodePath("/content/rep:policy"), "rep:ACL")]
    nodes.append(Node(NodePath("/content/page"), "nt:unstructured"))
    exchange = Exchange()
    payload, _ = exchange.write(nodes, is_for_repositories=True)
    content = [name for name in zipfile.ZipFile(io.BytesIO(payload)).namelist() if name.startswith("jcr_root/")]
    assert sorted(content) == ["jcr_root/content/.content.xml", "jcr_root/content/_rep_policy/.content.xml"]
    assert by_path(exchange.read(payload)) == by_path(nodes)


@pytest.mark.parametrize(("name", "file"), [("a.txt", "a.txt"), ("a.dir", "a.dir.dir/_jcr_content/_jcr_data.binary")])
def test_a_file_with_an_access_control_list_keeps_its_bytes_as_its_content(name: str, file: str) -> None:
    exchange, path = Exchange(), f"{CONTENT}/{name}"
    nodes = [Node(CONTENT, "sling:Folder"), trees.a_file(path, b"x"), Node(NodePath(f"{path}/rep:policy"), "rep:ACL")]
    payload, _ = exchange.write(nodes, is_self_contained=True)
    assert by_path(exchange.read(payload)) == by_path(nodes)
    folder = f"jcr_root/content/{name}.dir"
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        assert archive.read(f"jcr_root/content/{file}") == b"x"
        assert b"<jcr:content" in archive.read(f"{folder}/.content.xml")


def test_a_file_above_an_ancestor_has_no_entry_of_its_name() -> None:
    """The ancestor's directory, which has that name, is written before the file is known."""
    exchange, file = Exchange(), NodePath("/content/a.txt")
    content, others, below = [NodePath(f"{file}/jcr:content{rest}") for rest in ("", "/k", "/k/b.txt")]
    data = Property("jcr:data", (Binary(b"x"),), PropertyType.BINARY)
    nodes = [Node(file, "nt:file"), Node(content, "nt:unstructured", (), (data,)), trees.a_file(below, b"y")]
    above = (Node(CONTENT, "nt:folder"), Node(others, "nt:unstructured"))
    payload, _ = exchange.write(nodes, filter_for([file, content], [below]), ancestors=above, is_self_contained=True)
    assert by_path(exchange.read(payload)) == by_path([*above, *nodes])


def test_an_access_control_list_without_its_entries_names_none() -> None:
    """FileVault refuses a package with an entry that is only a name."""
    path = NodePath("/content/rep:policy")
    exchange = Exchange()
    nodes = [Node(path, "rep:ACL", (), (), ("allow",))]
    payload, summary = exchange.write(nodes, filter_for([path], []), is_for_repositories=True)
    assert exchange.read(payload) == [Node(path, "rep:ACL", (), (), ())]
    assert summary.tree_digest == tree_digest([Node(path, "rep:ACL", (), (), ())])


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("kind", ["property", "file"])
def test_entries_lie_below_elements_that_the_validator_remembers(kind: str, is_ordered: bool) -> None:
    """It takes deeper ones for folders, where a property of a binary or a page is an error."""
    path, nodes = "/content", []
    for depth in range(7):
        nodes.append(Node(NodePath(path), "nt:unstructured", (), (), (f"n{depth}",) if is_ordered else None))
        path += f"/n{depth}"
    data = Property("blob", (Binary(b"bytes"),), PropertyType.BINARY)
    holder = Node(NodePath(path), "nt:unstructured", (), (data,))
    nodes.append(holder if kind == "property" else trees.a_file(path, b"bytes"))
    exchange = Exchange()
    payload, _ = exchange.write(nodes, is_self_contained=True)
    entries = [name for name in zipfile.ZipFile(io.BytesIO(payload)).namelist() if name.startswith("jcr_root/")]
    documents = [name.removesuffix("/.content.xml") for name in entries if name.endswith("/.content.xml")]
    (folder,) = [name.rpartition("/")[0] for name in entries if not name.endswith("/.content.xml")]
    innermost = max((name for name in documents if f"{folder}/".startswith(f"{name}/")), key=len)
    assert folder.count("/") - innermost.count("/") <= MAX_ELEMENT_DEPTH
    assert by_path(exchange.read(payload)) == by_path(nodes)


def test_namespaces_may_come_to_light_with_the_nodes() -> None:
    found: dict[str, tuple[str, ...]] = {}

    def nodes() -> Iterator[Node]:
        found["acme"] = ("urn:acme",)
        yield Node(CONTENT, "acme:Thing")

    into = io.BytesIO()
    FilevaultCodec().write(PackageContents(filter_for((), [CONTENT]), nodes(), namespaces=found), into)
    assert b'xmlns:acme="urn:acme"' in zipfile.ZipFile(into).read("jcr_root/content/.content.xml")


@pytest.mark.parametrize("size", [2_000_000, 6_000_000], ids=["in memory", "spooled"])
def test_what_packs_too_well_is_packed_less_so_that_readers_take_it(size: int) -> None:
    zeros = [Node(CONTENT, "sling:Folder"), trees.a_file(f"{CONTENT}/zeros.bin", bytes(size))]
    exchange = Exchange()
    payload, _ = exchange.write(zeros, is_self_contained=True)
    assert len(payload) < size / 50
    assert exchange.read(payload) == zeros
    assert zipfile.ZipFile(io.BytesIO(payload)).testzip() is None
