"""Real Jackrabbit FileVault imports what we write, and we read what it exports. Repositories are compared, not zips."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mailboat.config.document import LimitsConfig
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.nodes import (
    CONTENT_NODE,
    DATA_PROPERTY,
    FILE_TYPE,
    Binary,
    Node,
    Property,
    PropertyType,
    file_node,
    ordered_names,
)
from mailboat.model.paths import NodePath, ancestors_of, child_of, name_of, parent_of
from mailboat.model.requests import add_request
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.filter_xml import format_filter
from mailboat.packages.filevault.names import platform_name, repository_name
from mailboat.packages.port import PackageContents
from mailboat.packages.prefixes import ContentRefusedError
from mailboat.testing import trees
from mailboat.testing.examples import examples
from mailboat.testing.memory_content import MemorySource
from mailboat.testing.target_model import ModelTree
from mailboat.testing.trees import TreeShape
from mailboat.wire.node_bodies import decode_node
from mailboat.wire.package_messages import decode_package
from support.engines import Engine, EngineParts, memory_engine

ROOT = NodePath("/content/site")
DEEP = filter_for((), [ROOT])
MADE_BY_THE_REPOSITORY = {
    "jcr:primaryType", "jcr:mixinTypes", "jcr:created", "jcr:createdBy", "jcr:lastModified", "jcr:lastModifiedBy",
    "jcr:uuid", "jcr:mimeType", "jcr:versionHistory", "jcr:baseVersion", "jcr:predecessors", "jcr:isCheckedOut",
}  # fmt: skip
DOCVIEW_LIKE = b'<?xml version="1.0"?>\n<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" jcr:primaryType="cq:Page"/>\n'


def write(path: Path, nodes: Iterable[Node], workspace: WorkspaceFilter = DEEP) -> Path:
    with path.open("wb") as into:
        contents = PackageContents(workspace, nodes, is_self_contained=True, is_for_repositories=True)
        FilevaultCodec().write(contents, into)
    return path


def read(payload: bytes) -> list[Node]:
    change = FilevaultCodec().read_bytes(payload, LimitsConfig(), None)
    return [decode_node(record.path, record.body) for record in change.records if change.filter.covers(record.path)]


def comparable(nodes: Sequence[Node]) -> dict[str, Any]:
    """Nodes as a repository would show them: files unfolded, orders as lists of the children that are there."""
    below: dict[str, list[str]] = {}
    for node in nodes:
        below.setdefault(parent_of(node.path), []).append(name_of(node.path))
    shown: dict[str, Any] = {}
    for node in nodes:
        held, children = node.properties, below.get(node.path, [])
        if node.data is not None:
            held = tuple(item for item in held if item.name != DATA_PROPERTY)
            data = Property(DATA_PROPERTY, (node.data,), PropertyType.BINARY)
            shown[child_of(node.path, CONTENT_NODE)] = ("nt:resource", [], {DATA_PROPERTY: shown_values(data)}, None)
        order = None if node.child_order is None else ordered_names(node.child_order, children)
        shown[node.path] = (node.primary_type, sorted(node.mixin_types), properties_of(held), order)
    return shown


def properties_of(held: Iterable[Property]) -> dict[str, Any]:
    return {item.name: shown_values(item) for item in held if item.name not in MADE_BY_THE_REPOSITORY}


def shown_values(one: Property) -> Any:
    values = [value.digest.hex() if isinstance(value, Binary) else value for value in one.values]
    if one.type is PropertyType.DOUBLE:
        values = [str(float(value)) for value in values]
    return [int(one.type), one.is_multiple, values]


def dumped(jackrabbit: Any, path: str = ROOT) -> dict[str, Any]:
    shown = {}
    for node in jackrabbit.ask("dump", path):
        held = {name: value for name, value in node["properties"].items() if name not in MADE_BY_THE_REPOSITORY}
        for value in held.values():
            if value[0] == PropertyType.DOUBLE:
                value[2] = [str(float(text)) for text in value[2]]
        shown[node["path"]] = (node["type"], sorted(node["mixins"]), held, node["children"])
    return shown


def without_order(repository: dict[str, Any]) -> dict[str, Any]:
    """The order of children that a document does not name is that of their import, which nothing prescribes."""
    return {path: (*node[:3], sorted(node[3])) for path, node in repository.items()}


def assert_same(repository: dict[str, Any], nodes: Sequence[Node]) -> None:
    expected = comparable(nodes)
    assert repository.keys() == expected.keys()
    for path, (kind, mixins, held, order) in expected.items():
        theirs = repository[path]
        assert (path, theirs[:3]) == (path, (kind, mixins, held))
        if order is not None:
            assert (path, theirs[3]) == (path, order)


# ------------------------------------------------------------------------------------------------- what we write

JCR_TYPES = {"nt:folder": "sling:Folder", "nt:resource": "nt:unstructured"}
NAMES_IN_JCR = trees.names().filter(lambda name: "{" not in name and "}" not in name and not name.startswith("jcr:"))


def legal(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with types that may hold anything, no mixins with protected properties, and what FileVault keeps.

    Its own importer makes no property of a list of no binaries, and gives a binary to the child of the same name.
    """
    paths = frozenset(node.path for node in nodes)
    return [legal_node(node, paths) for node in nodes]


def legal_node(node: Node, paths: frozenset[NodePath]) -> Node:
    held = tuple(
        property_
        for property_ in node.properties
        if (not property_.name.startswith("jcr:") or property_.name == DATA_PROPERTY)
        and (
            property_.type is not PropertyType.BINARY
            or (property_.values and child_of(node.path, property_.name) not in paths)
        )
    )
    if node.primary_type == FILE_TYPE:
        return node
    mixins = tuple(mixin_type_ for mixin_type_ in node.mixin_types if mixin_type_ == "mix:title")
    kind = JCR_TYPES.get(node.primary_type, node.primary_type)
    return Node(node.path, kind, mixins, held, None if kind == "sling:Folder" else node.child_order)


@settings(
    max_examples=examples(15),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    nodes=trees.trees(TreeShape(root=ROOT, node_names=NAMES_IN_JCR)).map(legal),
    archive=st.sampled_from(["import", "import-file"]),
)
def test_jackrabbit_imports_any_tree(nodes: list[Node], archive: str, jackrabbit: Any, tmp_path: Path) -> None:
    jackrabbit.reset()
    package = write(tmp_path / "package.zip", nodes)
    assert jackrabbit.ask(archive, package) == []
    assert_same(dumped(jackrabbit), nodes)


@pytest.mark.long("java")
def test_javas_streaming_reader_finds_every_entry(jackrabbit: Any, tmp_path: Path) -> None:
    large = file_node(NodePath(f"{ROOT}/large.jpg"), trees.large_binary(b"jpg", 6_000_000))
    packed = file_node(NodePath(f"{ROOT}/large.txt"), trees.large_binary(b"txt", 6_000_000))
    package = write(tmp_path / "package.zip", [*legal(trees.sample_tree(ROOT)), large, packed])
    found = [entry.rpartition(" ")[0] for entry in jackrabbit.ask("stream", package)]
    assert found == zipfile.ZipFile(package).namelist()
    assert jackrabbit.ask("import", package) == []
    assert set(dumped(jackrabbit)) >= {large.path, packed.path}


@pytest.mark.parametrize(
    "name",
    ["page.xml", "bytes.binary", "folder.dir", ".content.xml", ".vlt", ".vlt-sync", "_a_b.jpg", "100%.txt", "a:b.css"],
)
def test_a_file_whose_name_or_content_means_something_to_filevault_stays_a_file(
    name: str, jackrabbit: Any, tmp_path: Path
) -> None:
    name = name.replace("a:", "cq:")
    nodes = [Node(ROOT, "sling:Folder"), trees.a_file(f"{ROOT}/{name}", DOCVIEW_LIKE)]
    package = write(tmp_path / "package.zip", nodes)
    assert read(package.read_bytes()) == nodes
    assert jackrabbit.ask("import", package) == []
    assert_same(dumped(jackrabbit), nodes)


def test_what_a_later_package_leaves_out_is_removed(jackrabbit: Any, tmp_path: Path) -> None:
    root = Node(ROOT, "sling:OrderedFolder", (), (), ("gone", "kept"))  # stays the order of a target without it
    kept = trees.a_page(f"{ROOT}/kept")
    jackrabbit.ask("import", write(tmp_path / "1.zip", [root, trees.a_page(f"{ROOT}/gone"), kept]))
    jackrabbit.ask("import", write(tmp_path / "2.zip", [root, kept]))
    assert set(dumped(jackrabbit)) == {ROOT, kept.path}


def test_a_shallow_package_leaves_what_is_below_alone(jackrabbit: Any, tmp_path: Path) -> None:
    before = [trees.a_page(ROOT, jcr_title="old"), trees.a_page(f"{ROOT}/child")]
    jackrabbit.ask("import", write(tmp_path / "1.zip", before))
    shallow = filter_for([ROOT], [])
    jackrabbit.ask("import", write(tmp_path / "2.zip", [trees.a_page(ROOT, jcr_title="new")], shallow))
    found = dumped(jackrabbit)
    assert found[ROOT][2]["jcr:title"] == [1, False, ["new"]]
    assert f"{ROOT}/child" in found


def test_a_folder_below_an_element_keeps_what_the_filter_leaves_out(jackrabbit: Any, tmp_path: Path) -> None:
    """FileVault removes children of an element that have entries of their own, with all below them."""
    root, element = Node(ROOT, "nt:unstructured"), Node(NodePath(f"{ROOT}/element"), "nt:unstructured")
    folder = Node(NodePath(f"{element.path}/folder"), "nt:folder")
    nodes, others = [root, element, folder], Node(NodePath(f"{folder.path}/others"), "nt:folder")
    jackrabbit.ask("import", write(tmp_path / "1.zip", [*nodes, others]))
    jackrabbit.ask("import", write(tmp_path / "2.zip", nodes, filter_for([node.path for node in nodes], [])))
    assert others.path in dumped(jackrabbit)


def test_a_folder_below_the_content_of_a_file_leaves_bytes_and_others_alone(jackrabbit: Any, tmp_path: Path) -> None:
    """They lie beside its document, and a document of the jcr:content would remove them."""
    content = NodePath(f"{ROOT}/jcr:content")
    data = Property(DATA_PROPERTY, (Binary(b"bytes"),), PropertyType.BINARY)
    nodes = [
        Node(ROOT, FILE_TYPE),
        Node(content, "nt:unstructured", (), (data,)),
        Node(NodePath(f"{content}/folder"), "nt:folder"),
    ]
    others = Node(NodePath(f"{content}/folder/others"), "nt:folder")
    jackrabbit.ask("import", write(tmp_path / "1.zip", [*nodes, others]))
    package = write(tmp_path / "2.zip", nodes, filter_for([node.path for node in nodes], []))
    assert read(package.read_bytes()) == nodes
    for _ in range(2):
        jackrabbit.ask("import", package)
        found = dumped(jackrabbit)
        assert DATA_PROPERTY in found[content][2]
        assert others.path in found


def test_uncovered_ancestors_are_made_with_their_types(jackrabbit: Any, tmp_path: Path) -> None:
    package = tmp_path / "package.zip"
    above = Node(NodePath("/content"), "sling:OrderedFolder")
    with package.open("wb") as into:
        contents = PackageContents(DEEP, [trees.a_page(ROOT)], (above,), is_self_contained=True)
        FilevaultCodec().write(contents, into)
    assert jackrabbit.ask("import", package) == []
    assert dumped(jackrabbit, "/content")["/content"][0] == "sling:OrderedFolder"


def test_a_file_with_properties_keeps_them_and_its_mime_type(jackrabbit: Any, tmp_path: Path) -> None:
    image, content = NodePath(f"{ROOT}/x.png"), NodePath(f"{ROOT}/x.png/jcr:content")
    data = Property(DATA_PROPERTY, (Binary(b"png"),), PropertyType.BINARY)
    inner = Node(content, "nt:unstructured", (), (data, Property("stEvt:action", ("saved",))))
    guarded = trees.a_file(f"{ROOT}/y.png", b"png")
    policy = Node(child_of(guarded.path, "rep:policy"), "rep:ACL")
    nodes = [Node(ROOT, "sling:Folder"), Node(image, "nt:file"), inner, guarded, policy]
    package = write(tmp_path / "package.zip", nodes)
    assert jackrabbit.ask("import", package) == []
    assert dumped(jackrabbit)[child_of(guarded.path, CONTENT_NODE)][2][DATA_PROPERTY][2] == [
        Binary(b"png").digest.hex()
    ]
    found = {node["path"]: node["properties"] for node in jackrabbit.ask("dump", ROOT)}[content]
    assert found["jcr:mimeType"][2] == ["image/png"]
    assert found["stEvt:action"][2] == ["saved"]
    assert found[DATA_PROPERTY][2] == [Binary(b"png").digest.hex()]


def test_two_elements_of_one_name_are_read_as_jackrabbit_imports_them(jackrabbit: Any, tmp_path: Path) -> None:
    package = tmp_path / "package.zip"
    kind = 'jcr:primaryType="nt:unstructured"'
    twice = f'<a {kind} v="1" w="1"><gone {kind}/></a><b {kind}/><a {kind} v="2"><new {kind}/></a>'
    head = '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0"'
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(
            "META-INF/vault/filter.xml", f'<workspaceFilter version="1.0"><filter root="{ROOT}"/></workspaceFilter>'
        )
        archive.writestr(f"jcr_root{ROOT}/.content.xml", f"{head} {kind}>{twice}</jcr:root>")
    assert jackrabbit.ask("import", package) == []
    assert_same(dumped(jackrabbit), read(package.read_bytes()))


@pytest.mark.parametrize("is_seeded", [False, True])
def test_nodes_that_rules_leave_out_are_made_above_covered_ones(
    jackrabbit: Any, tmp_path: Path, is_seeded: bool
) -> None:
    """Below a root that the filter does not cover, the importer enters only directories that are at or above a root."""
    site = [trees.a_page(f"{ROOT}{path}") for path in ("", "/x", "/x/new")]
    rules = tuple(FilterRule(True, re.compile(f"{ROOT}/x/{name}")) for name in ("new", "gone"))
    package = tmp_path / "package.zip"
    with package.open("wb") as into:
        owned = WorkspaceFilter((FilterSet(ROOT, rules=rules),))
        contents = PackageContents(owned, site[2:], tuple(site[:2]), is_self_contained=True, is_for_repositories=True)
        FilevaultCodec().write(contents, into)
    if is_seeded:
        jackrabbit.ask("import", write(tmp_path / "seed.zip", [*site[:2], trees.a_page(f"{ROOT}/x/gone")]))
    assert jackrabbit.ask("import", package) == []
    assert_same(dumped(jackrabbit), site)


def test_a_directory_and_a_file_that_rules_leave_out_are_made_above_covered_ones(
    jackrabbit: Any, tmp_path: Path
) -> None:
    """The file is made with its bytes where it is missing, and keeps others where it is there."""
    page, file = trees.a_page(f"{ROOT}/x/y"), trees.a_file(f"{ROOT}/f.txt", b"mine")
    policy = Node(NodePath(f"{file.path}/rep:policy"), "rep:ACL")
    rules = tuple(FilterRule(True, re.compile(f"{ROOT}/{name}")) for name in ("x/y", "f.txt/rep:policy"))
    package = tmp_path / "package.zip"
    with package.open("wb") as into:
        owned = WorkspaceFilter((FilterSet(ROOT, rules=rules),))
        contents = PackageContents(
            owned,
            [policy, page],
            (trees.a_page(ROOT), file),
            is_self_contained=True,
            is_for_repositories=True,
            properties={"acHandling": "overwrite"},
            directories=[NodePath(f"{ROOT}/x")],
        )
        FilevaultCodec().write(contents, into)
    seed = write(tmp_path / "seed.zip", [trees.a_page(ROOT), trees.a_file(file.path, b"theirs")])
    for before, expected in (((), b"mine"), ((seed,), b"theirs")):
        jackrabbit.reset()
        for item in (*before, package):
            assert jackrabbit.ask("install", item) == []
        found = dumped(jackrabbit)
        assert {page.path, f"{ROOT}/f.txt/rep:policy"} < found.keys()
        assert found[f"{file.path}/{CONTENT_NODE}"][2][DATA_PROPERTY][2] == [Binary(expected).digest.hex()]


def test_a_file_without_the_content_that_a_rule_leaves_out_fails_as_we_say(jackrabbit: Any, tmp_path: Path) -> None:
    rules = (FilterRule(False, re.compile(".*/jcr:content(/.*)?")),)
    owned = WorkspaceFilter((FilterSet(ROOT, rules=rules),))
    nodes = [Node(ROOT, "sling:Folder"), Node(NodePath(f"{ROOT}/x.txt"), "nt:file")]
    package = tmp_path / "package.zip"
    with package.open("wb") as into:
        FilevaultCodec().write(PackageContents(owned, nodes, is_self_contained=True), into)
    with pytest.raises(Exception, match="OakConstraint0025"):
        jackrabbit.ask("import", package)
    with pytest.raises(ContentRefusedError, match="an nt:file needs jcr:content"):
        FilevaultCodec().write(PackageContents(owned, nodes, is_for_repositories=True), io.BytesIO())


class PolicySource(MemorySource):
    """A source that asks for its access control lists to be applied."""

    filter = None

    def filter_within(self, asked: WorkspaceFilter) -> WorkspaceFilter:
        return asked

    def ancestors(self, owned: WorkspaceFilter) -> Iterator[Node]:
        return (node for path in ancestors_of(owned.sets[0].root) if (node := self.node(path)) is not None)

    def directories(self, owned: WorkspaceFilter) -> Sequence[NodePath]:  # noqa: ARG002  # part of the port
        return ()

    def package_properties(self) -> dict[str, str]:
        return {"acHandling": "overwrite"}

    def other_metadata(self) -> Sequence[str]:
        return ()

    def node_types(self) -> Mapping[str, bytes]:
        return {}


def policy_source(*entries: tuple[str, str]) -> PolicySource:
    """A page with an access control list; of each entry the name and the privilege."""
    page, policy = trees.a_page(ROOT), NodePath(f"{ROOT}/rep:policy")
    nodes = [
        replace(page, mixin_types=("rep:AccessControllable",)),
        Node(policy, "rep:ACL", child_order=tuple(name for name, _ in entries)),
    ]
    for name, privilege in entries:
        kind = "rep:DenyACE" if name.startswith("deny") else "rep:GrantACE"
        held = (
            Property("rep:principalName", (name,)),
            Property("rep:privileges", (privilege,), PropertyType.NAME),
        )
        nodes.append(Node(child_of(policy, name), kind, (), held))
    return PolicySource([*nodes, trees.a_page(f"{ROOT}/child")], uri="memory:policies")


def test_changed_access_control_lists_arrive_whole(jackrabbit: Any, tmp_path: Path) -> None:
    """Oak holds after each `publish --changed` what it holds after a publication of everything."""
    states = [
        policy_source(("allow", "jcr:read"), ("deny", "jcr:write")),
        policy_source(("allow", "jcr:versionManagement"), ("deny", "jcr:write")),
        policy_source(("allow", "jcr:versionManagement"), ("deny", "jcr:write"), ("allow0", "jcr:read")),
        policy_source(("allow0", "jcr:read")),
        policy_source(),
    ]
    parts = EngineParts(codecs={"filevault": FilevaultCodec()})
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type="filevault"))
        followed = []
        for state in states:
            (receipt,) = publisher.publish_changed(state, [ROOT])
            followed.append(installed(jackrabbit, engine, tmp_path))
        assert receipt.paths == (f"{ROOT}/rep:policy",)
        for state, found in zip(states, followed, strict=True):
            jackrabbit.reset()
            publisher.publish(add_request([ROOT]), state)
            assert found == installed(jackrabbit, engine, tmp_path)
    assert [sum("/rep:policy/" in path for path in found) for found in followed] == [2, 2, 3, 1, 0]


def installed(jackrabbit: Any, engine: Engine, folder: Path) -> dict[str, Any]:
    """What Oak holds after the latest package."""
    message = decode_package(engine.records()[-1].value)
    assert message.payload is not None
    package = folder / "package.zip"
    package.write_bytes(message.payload)
    assert jackrabbit.ask("install", package) == []
    return dumped(jackrabbit)


# ----------------------------------------------------------------------------------------- filters that overlap

FILTERED = [NodePath(path) for path in ("/", "/content", "/content/a", "/content/a/b", "/content/a/b/c", "/content/b")]
FILTERS = st.lists(
    st.builds(
        FilterSet,
        st.sampled_from(FILTERED[1:5]),
        st.booleans(),
        mode=st.sampled_from(ImportMode),
        **{
            name: st.lists(
                st.builds(
                    FilterRule,
                    st.booleans(),
                    st.sampled_from(["/content/a", "/content/a/b(/.*)?", ".*/b", ".*/title", "/.*"]).map(re.compile),
                    st.just(name == "property_rules"),
                ),
                max_size=2,
            ).map(tuple)
            for name in ("rules", "property_rules")
        },
    ).map(lambda one: one._replace(rules=(), property_rules=()) if one.is_shallow else one),
    min_size=1,
    max_size=4,
).map(lambda sets: WorkspaceFilter(tuple(sets)))


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(owned=FILTERS)
def test_a_filter_covers_and_merges_what_filevault_covers_and_merges(
    owned: WorkspaceFilter, jackrabbit_process: Any, tmp_path: Path
) -> None:
    file = tmp_path / "filter.xml"
    file.write_text(format_filter(owned))
    said = [item.split(" ") for item in jackrabbit_process.ask("filter", file, "title", *FILTERED)]
    for path, (is_covered, mode, is_property_covered) in zip(FILTERED, said, strict=True):
        assert (path, owned.covers(path)) == (path, is_covered == "true")
        assert (path, owned.mode_of(path).name) == (path, mode)
        if is_covered == "true":
            assert (path, owned.covers_property(path, "title")) == (path, is_property_covered == "true")


@pytest.mark.long("java")
@pytest.mark.parametrize(
    "filters",
    [
        (
            '<filter root="R"><include pattern="R/a(/.*)?"/></filter>'
            '<filter root="R"><include pattern="R/b(/.*)?"/></filter>'
        ),
        '<filter root="R/a"><exclude pattern="R/a/x"/></filter><filter root="R"><exclude pattern="R/b"/></filter>',
        '<filter root="R"><exclude pattern="R/a(/.*)?"/></filter><filter root="R/a" mode="merge_properties"/>',
        '<filter root="R/a" mode="merge_properties"/><filter root="R"/>',
        '<filter root="R" mode="update_properties"/><filter root="R/b"/>',
    ],
    ids=["one root twice", "inner first", "outer first", "inner merges", "outer merges"],
)
def test_an_import_with_filters_that_overlap_leaves_what_jackrabbit_leaves(
    filters: str, jackrabbit: Any, tmp_path: Path
) -> None:
    """The repository has nodes that the package lacks; what goes and what comes is compared."""
    pages = [trees.a_page(f"{ROOT}{path}") for path in ("", "/a", "/a/x", "/a/y", "/b", "/b/x", "/c", "/c/x")]
    carried = [page for page in pages if page.path not in (f"{ROOT}/a/y", f"{ROOT}/b/x", f"{ROOT}/c/x")]
    new = trees.a_page(f"{ROOT}/b/new")
    package, rules = tmp_path / "2.zip", filters.replace("R", ROOT)
    write(tmp_path / "1.zip", pages)
    whole = zipfile.ZipFile(write(tmp_path / "whole.zip", trees.in_walk_order([*carried, new])))
    with whole, zipfile.ZipFile(package, "w") as archive:
        for entry in whole.namelist():
            content = whole.read(entry).decode()
            is_filter = entry.endswith("filter.xml")
            archive.writestr(
                entry, f'<workspaceFilter version="1.0">{rules}</workspaceFilter>' if is_filter else content
            )
    model = ModelTree()
    for file in (tmp_path / "1.zip", package):
        assert jackrabbit.ask("import", file) == []
        change = FilevaultCodec().read_bytes(file.read_bytes(), LimitsConfig(), None)
        model.apply([decode_node(record.path, record.body) for record in change.records], change.filter)
    assert sorted(dumped(jackrabbit)) == [path for path in sorted(model.nodes) if path.startswith(ROOT)]


# ------------------------------------------------------------------------------------------------- what we read


@pytest.mark.long("java")
@settings(
    max_examples=examples(10),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(nodes=trees.trees(TreeShape(root=ROOT, node_names=NAMES_IN_JCR)).map(legal))
def test_what_jackrabbit_exports_is_read(nodes: list[Node], jackrabbit: Any, tmp_path: Path) -> None:
    jackrabbit.reset()
    jackrabbit.ask("import", write(tmp_path / "package.zip", nodes))
    exported = tmp_path / "exported.zip"
    jackrabbit.ask("export", exported, "full", ROOT)
    assert_same(dumped(jackrabbit), unfolded(read(exported.read_bytes())))


def unfolded(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that a repository shows in two: it adds a mime type to every jcr:content, so that some are not folded."""
    return [node for node in nodes if node.primary_type != "nt:resource" or node.find(DATA_PROPERTY) is not None]


def test_our_names_are_those_of_filevault(jackrabbit: Any) -> None:
    names = [
        "test.jpg", "cq:content", "test_image.jpg", "_test_image.jpg", "_testimage.jpg", "cq_:test", "_cq_:test",
        "cq:te:st",
        "_cq:test", "_cq_test", ":test", "_", "__", "_a", "___", "a<b>c", 'a"b', "a|b", "a?b", "a%b", "a%41", "jcr:a_b",
        "_jcr_content", "__jcr_content", "_x", "%5f%3c", "Ünï", "a b", "_a%3ab",
    ]  # fmt: skip
    theirs = jackrabbit.ask("names", *names)
    assert [platform_name(name) for name in names] == theirs[::2]
    assert [repository_name(name) for name in names] == theirs[1::2]


def test_names_that_filevault_loses_are_written_so_that_it_does_not(jackrabbit: Any) -> None:
    names = ["_<", "_%41", "<:b", ".content.xml", ".vlt", ".vlt-x"]
    theirs = jackrabbit.ask("names", *[platform_name(name) for name in names])
    assert theirs[1::2] == names


# ------------------------------------------------------------------------------------------------- real content


@pytest.mark.long("java")
def test_a_published_package_of_aem_comes_through(core_components: Path, jackrabbit: Any, tmp_path: Path) -> None:
    nodes = read(core_components.read_bytes())
    top = NodePath("/apps/core/wcm/components")
    package = write(tmp_path / "rewritten.zip", nodes, filter_for((), [top]))
    assert {node.path: node for node in read(package.read_bytes())} == {node.path: node for node in nodes}
    assert jackrabbit.ask("import", core_components) == []
    original = dumped(jackrabbit, top)
    jackrabbit.reset()
    assert jackrabbit.ask("import", package) == []
    assert without_order(dumped(jackrabbit, top)) == without_order(original)
    assert len(original) > 4000
