"""Packages that are built by hand keep what their source says beyond its nodes."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mailboat.composition.package_formats import package_registry
from mailboat.config.document import LimitsConfig, Transfer
from mailboat.content.port import Source
from mailboat.content.sources.folder import FolderSource
from mailboat.content.watched_sources import WatchedSource
from mailboat.errors import (
    LimitExceededError,
    PlaceUnusableError,
    SourceMissingError,
    UntrustedInputError,
    UsageError,
)
from mailboat.journal.port import Record
from mailboat.model.changes import TreeChange
from mailboat.model.filters import FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.messages import PackageMessage
from mailboat.model.nodes import folder_node
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.pieces import PieceMessage
from mailboat.model.requests import add_request
from mailboat.operations.package_files import PackageFiles, parse_properties
from mailboat.packages.codec_registry import FILEVAULT, PackageRegistry
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.document_reader import DocumentReader
from mailboat.packages.filevault.filter_xml import parse_filter
from mailboat.packages.filevault.properties import format_properties
from mailboat.packages.filevault.sources import VaultSource, open_archive_source, open_checkout_source
from mailboat.packages.prefixes import ContentRefusedError
from mailboat.packages.tree import TreeCodec
from mailboat.publisher.builder import shipment_of, shipped_properties, unpublished_of
from mailboat.publisher.publisher import own_roots
from mailboat.testing.memory_content import MemorySource
from mailboat.testing.target_model import ModelTree
from mailboat.wire.messages import decode_message
from mailboat.wire.node_bodies import decode_node
from mailboat.wire.package_messages import decode_package
from support.engines import EngineParts, memory_engine

PAGE = (
    '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:acme="urn:acme"'
    ' jcr:primaryType="nt:unstructured" acme:title="Hello"/>'
)
ACL = PAGE.replace("nt:unstructured", "rep:ACL")
FILTER = '<workspaceFilter version="1.0"><filter root="/home/groups" mode="merge_properties"/></workspaceFilter>'


@pytest.fixture
def checkout(tmp_path: Path) -> VaultSource:
    folder = tmp_path / "checkout"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "jcr_root/home/groups/editors").mkdir(parents=True)
    (folder / "jcr_root/home/groups/editors/.content.xml").write_text(PAGE)
    (folder / "jcr_root/home/groups/editors/_rep_policy.xml").write_text(ACL)
    (folder / "jcr_root/home/groups/readers").mkdir()
    (folder / "jcr_root/home/groups/readers/.content.xml").write_text(PAGE)
    (folder / "META-INF/vault/filter.xml").write_text(FILTER)
    (folder / "META-INF/vault/properties.xml").write_text(format_properties({"acHandling": "merge", "version": "7"}))
    return open_checkout_source(folder)


@contextmanager
def built(source: Source, path: str, into: Path, **properties: str) -> Iterator[VaultSource]:
    files = PackageFiles(PackageRegistry([FilevaultCodec()]), LimitsConfig())
    files.build(add_request([NodePath(path)]), source, into, FILEVAULT, properties)
    with closing(open_archive_source(into)) as package:
        yield package


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_package_of_a_checkout_keeps_its_metadata(checkout: VaultSource, tmp_path: Path, is_watched: bool) -> None:
    source = WatchedSource(checkout, lambda _: None) if is_watched else checkout
    with built(source, "/home/groups/editors", tmp_path / "x.zip") as package:
        assert package.filter is not None
        assert package.filter.sets[0].mode is ImportMode.MERGE_PROPERTIES
        assert (package.properties["acHandling"], package.properties["version"]) == ("merge", "7")
        assert package.node(NodePath("/home/groups/editors")) == checkout.node(NodePath("/home/groups/editors"))
        assert package.namespaces() == {"acme": ("urn:acme",)}
        assert list(package.ancestors(package.filter)) == []


STANDARD_PROPERTIES = {
    "acHandling": "overwrite",
    "allowIndexDefinitions": "true",
    "buildCount": "7",
    "cndPattern": ".*",
    "created": "2026-01-01T00:00:00.000Z",
    "createdBy": "them",
    "dependencies": "adobe/cq:core.wcm.components.all:[2.26,3)",
    "dependencies-locations": "adobe/cq:core.wcm.components.all:2.26=maven:a:b:1",
    "description": "Two lines\nof <their> content",
    "generator": "org.apache.jackrabbit.vault:4.2.0",
    "group": "theirs",
    "installhook.one.class": "org.example.Hook",
    "lastModified": "2026-01-02T00:00:00.000Z",
    "lastModifiedBy": "them",
    "lastWrapped": "2026-01-03T00:00:00.000Z",
    "lastWrappedBy": "them",
    "name": "wide.site",
    "noIntermediateSaves": "true",
    "overwritePrimaryTypesOfFolders": "false",
    "packageFormatVersion": "2",
    "packageType": "mixed",
    "requiresRestart": "true",
    "requiresRoot": "true",
    "subPackageHandling": "*;ignore",
    "useBinaryReferences": "true",
    "version": "7.1",
}
"""Those that FileVault's `PackageProperties` and `MetaInf` name (test_odd_packages.py asks FileVault itself)."""


@pytest.fixture
def described(tmp_path: Path) -> VaultSource:
    """A checkout with all standard properties and one of its own."""
    folder = tmp_path / "described"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "jcr_root/content/page").mkdir(parents=True)
    for path in ("content", "content/page"):
        (folder / "jcr_root" / path / ".content.xml").write_text(PAGE)
    said = format_properties({**STANDARD_PROPERTIES, "acme:note": "kept"})
    (folder / "META-INF/vault/properties.xml").write_text(said)
    filter_text = '<workspaceFilter version="1.0"><filter root="/content"/></workspaceFilter>'
    (folder / "META-INF/vault/filter.xml").write_text(filter_text)
    return open_checkout_source(folder)


def test_package_keeps_each_standard_property(described: VaultSource, tmp_path: Path) -> None:
    own = {"generator": "Mailboat", "useBinaryReferences": "false"}
    with built(described, "/content", tmp_path / "x.zip") as package:
        assert package.properties == {**STANDARD_PROPERTIES, "acme:note": "kept", **own}
    manifest = zipfile.ZipFile(tmp_path / "x.zip").read("META-INF/MANIFEST.MF")
    assert b"Content-Package-Id: theirs:wide.site:7.1\r\n" in manifest
    assert b"Content-Package-Type: mixed\r\n" in manifest
    assert b"Content-Package-Description: Two lines of <their> content\r\n" in manifest


def test_a_package_is_not_written_into_its_own_content(tmp_path: Path) -> None:
    (tmp_path / "site/news").mkdir(parents=True)
    (tmp_path / "site/.mailboat").mkdir()
    (tmp_path / "site/news/a").touch()
    files, source = PackageFiles(PackageRegistry([TreeCodec()]), LimitsConfig()), FolderSource(tmp_path / "site")
    for path, into in (("/", "site/p.pkg"), ("/", "site/news/p.pkg"), ("/news", "site/news/p.pkg")):
        with pytest.raises(PlaceUnusableError, match="lies in the content"):
            files.build(add_request([NodePath(path)]), source, tmp_path / into, "tree", {})
    for path, into in (("/news", "site/p.pkg"), ("/", "site/.mailboat/p.pkg"), ("/", "site.pkg")):
        files.build(add_request([NodePath(path)]), source, tmp_path / into, "tree", {})


def test_a_manifest_folds_lines_between_any_bytes(described: VaultSource, tmp_path: Path) -> None:
    text = "é" * 100
    with built(described, "/content", tmp_path / "x.zip", description=text):
        manifest = zipfile.ZipFile(tmp_path / "x.zip").read("META-INF/MANIFEST.MF")
    assert f"Content-Package-Description: {text}\r\n".encode() in manifest.replace(b"\r\n ", b"")
    assert max(map(len, manifest.split(b"\r\n"))) == 72


def test_given_properties_come_before_those_of_the_source(described: VaultSource, tmp_path: Path) -> None:
    given = {"name": "ours", "group": "us", "version": "", "description": "other", "acHandling": "clear"}
    with built(described, "/content", tmp_path / "x.zip", **given) as package:
        assert {key: package.properties[key] for key in given} == given
        assert package.properties["requiresRoot"] == "true"


def test_a_tree_package_refuses_properties_given(described: VaultSource, tmp_path: Path) -> None:
    files = PackageFiles(PackageRegistry([TreeCodec()]), LimitsConfig())
    request = add_request([NodePath("/content")])
    with pytest.raises(UsageError, match="type tree has no properties: version") as caught:
        files.build(request, described, tmp_path / "x.pkg", "tree", {"version": "2"})
    assert caught.value.next_step == "leave out --property, or build with --type filevault"
    assert list(tmp_path.glob("x.pkg*")) == []
    files.build(request, described, tmp_path / "x.pkg", "tree", {})


def test_part_of_a_source_is_another_package(described: VaultSource, tmp_path: Path) -> None:
    """It has the name of its file, and all other properties of the source."""
    with built(described, "/content/page", tmp_path / "part.zip") as package:
        assert package.properties == {**described.package_properties(), "name": "part"}


def test_properties_that_readers_refuse_for_their_size_are_not_written(described: VaultSource, tmp_path: Path) -> None:
    with (
        pytest.raises(LimitExceededError, match="bytes, which readers refuse") as caught,
        built(described, "/content", tmp_path / "x.zip", description="&" * 300_000),
    ):
        pass
    assert caught.value.where["entry"] == "META-INF/vault/properties.xml"
    assert list(tmp_path.glob("x.zip*")) == []


def test_a_part_with_the_name_of_its_source_is_refused(described: VaultSource, tmp_path: Path) -> None:
    into = tmp_path / "wide.site.zip"
    message = "would have the name of the whole, theirs:wide.site:7.1"
    for given in ({}, {"group": "theirs"}, {"version": "9"}):
        with pytest.raises(UsageError, match=message) as caught, built(described, "/content/page", into, **given):
            pass
        assert caught.value.next_step == "write it to a file of another name, or pass --property name=NAME"
        assert not into.exists()
    with built(described, "/content/page", into, name="wide.site") as package:
        assert package.properties["name"] == "wide.site"
    with built(described, "/content/page", into, group="ours") as package:
        assert (package.properties["group"], package.properties["name"]) == ("ours", "wide.site")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"name": "x", "group": "g"}, ("g", "x", "")),
        ({"name": "x"}, ("", "x", "")),
        ({"group": "g", "version": "3"}, ("g", "file", "3")),
        ({}, ("mailboat", "file", "1.0")),
    ],
)
def test_a_whole_source_keeps_that_its_id_lacks_group_or_version(
    described: VaultSource, tmp_path: Path, own: dict[str, str], expected: tuple[str, ...]
) -> None:
    described.properties = own
    with built(described, "/content", tmp_path / "file.zip") as package:
        assert tuple(package.properties[key] for key in ("group", "name", "version")) == expected


@pytest.mark.parametrize(
    "roots",
    [
        '<filter root="/content"/><filter root="/content/page"/>',
        '<filter root="/content/page"/><filter root="/content"/>',
        '<filter root="/content"/><filter root="/content/old" type="cleanup"/>',
        '<filter root="/content/page"/><filter root="/content"><exclude pattern="/content/x"/></filter>',
    ],
)
def test_a_source_with_roots_that_change_nothing_is_built_whole(
    described: VaultSource, tmp_path: Path, roots: str
) -> None:
    described.filter = parse_filter(f'<workspaceFilter version="1.0">{roots}</workspaceFilter>'.encode())
    described.properties = {"name": "x", "group": "g", "version": "1", "acHandling": "merge"}
    for into in (tmp_path / "o.zip", tmp_path / "x.zip"):
        request = add_request(own_roots(described))
        files = PackageFiles(PackageRegistry([FilevaultCodec()]), LimitsConfig())
        assert files.build(request, described, into, FILEVAULT, {}).name == "g:x:1"
        with closing(open_archive_source(into)) as package:
            assert package.package_properties() == {**package.package_properties(), **described.properties}


def test_publication_keeps_the_property_that_importers_of_content_read(described: VaultSource) -> None:
    """Each other one is among those that `plan` lists as not published."""
    shipped = shipped_properties(described.package_properties())
    assert shipped == {"acHandling": "overwrite"}
    unpublished = unpublished_of(described, FILEVAULT).properties
    assert unpublished == sorted({*STANDARD_PROPERTIES, "acme:note"} - shipped.keys())
    assert unpublished_of(MemorySource([]), FILEVAULT) == ((), ())


def test_files_of_metadata_that_packages_leave_out_are_known(checkout: VaultSource, tmp_path: Path) -> None:
    folder = Path(checkout.uri)
    others = ["META-INF/maven/g/a/pom.xml", "META-INF/vault/hooks/h.jar", "META-INF/vault/nodetypes.cnd"]
    for name in (*others, "META-INF/MANIFEST.MF"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.mkdir("META-INF/vault")
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    for source in (open_checkout_source(folder), WatchedSource(open_archive_source(file), lambda _: None)):
        with closing(source):
            assert unpublished_of(source, "tree").files == others
            assert unpublished_of(source, FILEVAULT).files == others[:2]
            with built(source, "/home/groups/editors", tmp_path / "y.zip") as package:
                assert package.node_types() == {"META-INF/vault/nodetypes.cnd": b"x"}


def test_a_checkout_with_the_root_of_everything_owns_what_is_removed_from_its_top(checkout: VaultSource) -> None:
    """FileVault keeps nodes at the top that a package does not have; who publishes a checkout means all of it."""
    folder = Path(checkout.uri)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/"/></workspaceFilter>'
    )
    with closing(open_checkout_source(folder)) as source:
        everything = filter_for([ROOT], [ROOT])
        assert source.filter_within(everything) == everything


@pytest.mark.parametrize("is_zip", [True, False])
def test_node_types_beyond_the_limit_are_refused(checkout: VaultSource, tmp_path: Path, is_zip: bool) -> None:
    folder, file = Path(checkout.uri), tmp_path / "x.zip"
    for name in ("a", "b"):
        (folder / f"META-INF/vault/{name}.cnd").write_bytes(b"//" + b" " * 600_000)
    with zipfile.ZipFile(file, "w") as archive:
        for path in folder.rglob("*.*"):
            archive.write(path, path.relative_to(folder).as_posix())
    with (
        closing(open_archive_source(file) if is_zip else open_checkout_source(folder)) as source,
        pytest.raises(LimitExceededError, match=r"b\.cnd is too long"),
        built(source, "/home/groups/editors", tmp_path / "y.zip"),
    ):
        pass


@pytest.mark.parametrize("handling", ["mrege", "", "merge "])
def test_an_unknown_handling_of_access_control_is_the_default(
    checkout: VaultSource, tmp_path: Path, handling: str
) -> None:
    """As in FileVault, which ignores access control lists then."""
    checkout.properties = {"acHandling": handling, "version": "7"}
    with built(checkout, "/home/groups/editors", tmp_path / "x.zip") as package:
        assert (package.properties.get("acHandling"), package.properties["version"]) == (None, "7")


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_publication_of_format_filevault_defines_the_node_types_of_its_source(
    described: VaultSource, tmp_path: Path, package_type: str
) -> None:
    """Also for a path alone, and where only changes are published; a tree package has no place for them."""
    types = {"META-INF/vault/nodetypes.cnd": b"[acme:page]\n"}
    for name, content in types.items():
        (Path(described.uri) / name).write_bytes(content)
    parts = EngineParts(codecs={"filevault": FilevaultCodec(), "tree": TreeCodec()})
    with closing(open_checkout_source(Path(described.uri))) as source, memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=package_type))
        publisher.publish(add_request([NodePath("/content/page")]), source)
        list(publisher.publish_changed(source, [NodePath("/content")]))
        payloads = [decode_package(record.value).payload for record in engine.records()]
    assert len(payloads) == 2
    for payload in payloads:
        assert payload is not None
        if package_type == "tree":
            assert types["META-INF/vault/nodetypes.cnd"] not in payload
            continue
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            assert {name: archive.read(name) for name in types} == types


@pytest.fixture
def ruled(tmp_path: Path) -> VaultSource:
    """A checkout whose filter leaves one of two pages out."""
    folder = tmp_path / "ruled"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/content"><exclude pattern="/content/site/local(/.*)?"/>'
        '<exclude pattern=".*/secret" matchProperties="true"/></filter></workspaceFilter>'
    )
    for name in ("site", "site/page", "site/local"):
        (folder / "jcr_root/content" / name).mkdir(parents=True)
        (folder / "jcr_root/content" / name / ".content.xml").write_text(PAGE)
    return open_checkout_source(folder)


def test_a_package_of_a_checkout_keeps_the_rules_of_its_filter(ruled: VaultSource, tmp_path: Path) -> None:
    with built(ruled, "/content/site", tmp_path / "x.zip") as package:
        assert package.filter is not None
        assert ruled.filter is not None
        (one,), (kept,) = package.filter.sets, ruled.filter.sets
        assert one == kept._replace(root=NodePath("/content/site"))
        assert [node.path for node in package.walk(NodePath("/content/site"))] == [
            "/content/site",
            "/content/site/page",
        ]


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_nodes_between_a_root_and_covered_content_travel(tmp_path: Path, package_type: str) -> None:
    folder = tmp_path / "inner"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/etc"><include pattern="/etc/a/in(/.*)?"/>'
        '<include pattern="/etc/b/.*/in"/></filter></workspaceFilter>'
    )
    for name in ("etc", "etc/a", "etc/a/in", "etc/a/out", "etc/a/in/x", "etc/b", "etc/b/c", "etc/d"):
        (folder / "jcr_root" / name).mkdir(parents=True, exist_ok=True)
        (folder / "jcr_root" / name / ".content.xml").write_text(PAGE)
    (folder / "jcr_root/etc/b/bare/in").mkdir(parents=True)
    (folder / "jcr_root/etc/b/bare/in/.content.xml").write_text(PAGE)
    source = open_checkout_source(folder)
    assert source.filter is not None
    parts = EngineParts(codecs={"filevault": FilevaultCodec(), "tree": TreeCodec()})
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=package_type))
        publisher.publish(add_request([NodePath("/etc")]), source)
        change = published_change(parts, engine.records()[-1])
    above = ["/etc", "/etc/a", "/etc/b"]
    assert [record.path for record in change.records if not change.filter.covers(record.path)] == above
    assert [record.path for record in change.records if change.filter.covers(record.path)] == [
        "/etc/a/in",
        "/etc/a/in/x",
        "/etc/b/bare/in",
    ]
    assert [node.path for node in source.ancestors(source.filter)] == above
    assert list(source.directories(source.filter)) == ["/etc/b/bare"]
    if package_type == "filevault":  # whose importer enters no other directories below a root that rules leave out
        assert {filter_set.root for filter_set in change.filter.sets} == {"/etc", "/etc/a", "/etc/b/bare"}
    assert all(
        decode_node(record.path, record.body) == source.node(record.path)
        for record in change.records
        if record.path in above
    )


@pytest.mark.interpreted("counts the calls of a method that compiled code calls directly")
def test_documents_are_read_once_where_no_rule_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for nodes above covered ones reads a document again only on the way to what a rule leaves out."""
    folder = tmp_path / "rules"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/etc"><exclude pattern="/etc/a/out(/.*)?"/></filter>'
        "</workspaceFilter>"
    )
    for name in ("etc", "etc/a", "etc/a/in", "etc/a/out", "etc/a/in/x", "etc/b", "etc/b/c"):
        (folder / "jcr_root" / name).mkdir(parents=True, exist_ok=True)
        (folder / "jcr_root" / name / ".content.xml").write_text(PAGE)
    source = open_checkout_source(folder)
    read = Counter[str]()
    real = DocumentReader.read

    def counting(reader: DocumentReader, content: bytes, entry: str) -> Any:
        read[str(Path(entry).parent.relative_to("jcr_root"))] += 1
        return real(reader, content, entry)

    monkeypatch.setattr(DocumentReader, "read", counting)
    list(source.ancestors(source.filter or filter_for((), ())))
    assert set(read) == {"etc", "etc/a"}


def test_rules_that_cannot_match_below_a_narrower_root_are_dropped(ruled: VaultSource, tmp_path: Path) -> None:
    with built(ruled, "/content/site/page", tmp_path / "x.zip") as package:
        assert package.filter is not None
        (one,) = package.filter.sets
        assert (one.root, one.rules) == ("/content/site/page", ())
        assert [rule.pattern.pattern for rule in one.property_rules] == [".*/secret"]


def test_a_root_that_the_source_owns_alone_owns_nothing_below_it(tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/content"><include pattern="\\Q/content\\E"/></filter>'
        "</workspaceFilter>"
    )
    (folder / "jcr_root/content").mkdir(parents=True)
    (folder / "jcr_root/content/.content.xml").write_text(PAGE)
    with built(open_checkout_source(folder), "/content", tmp_path / "x.zip") as package:
        assert package.filter is not None
        assert package.filter.sets[0].is_shallow


@pytest.mark.parametrize("path", ["/content/site/local", "/content/site"])
def test_path_without_children_with_a_rule_is_refused(ruled: VaultSource, path: str) -> None:
    """The filter of one node has no room for rules, so the excluded node or property would travel."""
    with pytest.raises(UsageError, match=f"leaves out {path} or properties of it"):
        shipment_of(add_request([NodePath(path)], is_deep=False), ruled)


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_publication_keeps_rules_and_modes_of_the_source(
    ruled: VaultSource, several: VaultSource, package_type: str, tmp_path: Path
) -> None:
    parts = EngineParts(codecs={"filevault": FilevaultCodec(), "tree": TreeCodec()})
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=package_type))
        publisher.publish(add_request([NodePath("/content/site")]), ruled)
        publisher.publish(add_request([NodePath("/content/wknd")]), several)
        ruled_change, several_change = (published_change(parts, record) for record in engine.records())
        (one,) = ruled_change.filter.sets
        assert ruled.filter is not None
        assert one == ruled.filter.sets[0]._replace(root=NodePath("/content/site"))
        carried = [node.path for node in ruled_change.records if ruled_change.filter.covers(node.path)]
        assert carried == ["/content/site", "/content/site/page"]
        modes = [(filter_set.root, filter_set.mode) for filter_set in several_change.filter.sets]
        assert modes == [("/content/wknd/live", "update_properties"), ("/content/wknd", "merge_properties")]


@pytest.mark.parametrize(
    "route", [{}, {"inline_package_bytes": 0}, {"inline_package_bytes": 0, "transfer": Transfer.CHUNKS}]
)
def test_publication_keeps_how_access_control_is_imported(
    checkout: VaultSource, route: dict[str, object], tmp_path: Path
) -> None:
    parts = EngineParts(codecs={"filevault": FilevaultCodec()})
    checkout.properties = {"acHandling": "merge", "packageType": "content", "dependencies": "a:b"}
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type="filevault", **route))
        publisher.publish(add_request([NodePath("/home/groups/editors")]), checkout)
        messages = [decode_message(record.headers, record.value) for record in engine.records()]
        *pieces, message = messages
        assert isinstance(message, PackageMessage)
        payload = message.payload or b"".join(piece.content for piece in pieces if isinstance(piece, PieceMessage))
        if not payload:
            with engine.blobs.open(message.package_digest, message.package_length_bytes) as stream:
                payload = stream.read()
    (tmp_path / "x.zip").write_bytes(payload)
    with closing(open_archive_source(tmp_path / "x.zip")) as package:
        own = {"group": "mailboat", "name": "package", "version": "1.0.0", "packageType": "content"}
        assert package.package_properties() == {**own, "acHandling": "merge"}
        assert package.filter is not None
        assert package.filter.sets[0].mode is ImportMode.MERGE_PROPERTIES


def published_change(parts: EngineParts, record: Record) -> TreeChange:
    message = decode_package(record.value)
    assert message.payload is not None
    return parts.codecs[message.package_type].read_bytes(message.payload, LimitsConfig(), None)


@pytest.mark.parametrize("paths", [(ROOT,), (NodePath("/content/site"),)])
def test_comparison_refuses_a_source_with_rules(ruled: VaultSource, paths: Sequence[NodePath], tmp_path: Path) -> None:
    with memory_engine(tmp_path) as engine:
        publisher = engine.publisher()
        for ask in (publisher.plan_changed, publisher.publish_changed):
            with pytest.raises(UsageError, match="has rules or a mode for /content"):
                ask(ruled, paths)
        assert engine.records() == []


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_a_package_beyond_a_limit_is_refused_with_file_key_and_next_step(
    checkout: VaultSource, package_type: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.zip"
    PackageFiles(package_registry(), LimitsConfig()).build(
        add_request([NodePath("/home/groups/editors")]), checkout, file, package_type, {}
    )
    with pytest.raises(LimitExceededError, match=r"more (nodes )?than limits\.max_entries") as caught:
        PackageFiles(package_registry(), LimitsConfig(max_entries=1)).inspect(file, reads_binaries=False)
    assert caught.value.where["file"] == str(file)
    assert caught.value.next_step == "if you trust the package, raise that limit in the configuration of the home"


def test_a_path_that_the_filter_leaves_out_is_refused(ruled: VaultSource, tmp_path: Path) -> None:
    into = tmp_path / "x.zip"
    reason = "leaves out everything at /content/site/local"
    with pytest.raises(UsageError, match=reason), built(ruled, "/content/site/local", into):
        pass
    assert not into.exists()


@pytest.fixture
def several(tmp_path: Path) -> VaultSource:
    """A checkout with three roots, one of them below another, and a page outside of them."""
    folder = tmp_path / "several"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/content/wknd/live" mode="update_properties"/>'
        '<filter root="/content/wknd" mode="merge_properties"><exclude pattern=".*/local"/></filter>'
        '<filter root="/content/dam"/></workspaceFilter>'
    )
    for name in ("", "wknd", "wknd/live", "wknd/local", "dam", "other"):
        (folder / "jcr_root/content" / name).mkdir(parents=True)
        (folder / "jcr_root/content" / name / ".content.xml").write_text(PAGE)
    return open_checkout_source(folder)


@pytest.mark.parametrize("path", ["/", "/content"])
def test_a_path_above_the_roots_of_the_source_owns_these_roots(several: VaultSource, tmp_path: Path, path: str) -> None:
    with built(several, path, tmp_path / "x.zip") as package:
        assert package.filter == several.filter
        carried = [node.path for node in package.walk(ROOT) if several.filter and several.filter.covers(node.path)]
        assert carried == ["/content/dam", "/content/wknd", "/content/wknd/live"]
        assert package.filter is not None
        assert list(package.ancestors(package.filter)) == [several.node(NodePath("/content"))]
        assert package.node(NodePath("/content/other")) is None


def test_a_path_with_a_root_above_and_a_root_below_keeps_both(several: VaultSource, tmp_path: Path) -> None:
    with built(several, "/content/wknd", tmp_path / "x.zip") as package:
        assert package.filter is not None
        assert [(filter_set.root, filter_set.mode) for filter_set in package.filter.sets] == [
            ("/content/wknd/live", ImportMode.UPDATE_PROPERTIES),
            ("/content/wknd", ImportMode.MERGE_PROPERTIES),
        ]


@pytest.fixture
def twice(tmp_path: Path) -> VaultSource:
    """A checkout whose filter names one root twice, each time with one of two pages."""
    folder = tmp_path / "twice"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/content/pp"><include pattern="/content/pp/a"/></filter>'
        '<filter root="/content/pp"><include pattern="/content/pp/b"/></filter></workspaceFilter>'
    )
    for name in ("", "a", "b", "c"):
        (folder / "jcr_root/content/pp" / name).mkdir(parents=True)
        (folder / "jcr_root/content/pp" / name / ".content.xml").write_text(PAGE)
    return open_checkout_source(folder)


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_what_only_the_second_of_two_filters_covers_arrives(
    twice: VaultSource, package_type: str, tmp_path: Path
) -> None:
    """And only the pages that one of the filters covers are removed from the target."""
    parts = EngineParts(codecs={"filevault": FilevaultCodec(), "tree": TreeCodec()})
    model = ModelTree()
    model.apply([folder_node(NodePath(f"/content/pp/{name}")) for name in "bd"], filter_for([], [NodePath("/content")]))
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=package_type))
        publisher.publish(add_request(own_roots(twice)), twice)
        (change,) = (published_change(parts, record) for record in engine.records())
    model.apply([decode_node(record.path, record.body) for record in change.records], change.filter)
    assert sorted(model.nodes) == ["/content", "/content/pp", *(f"/content/pp/{name}" for name in "abd")]
    assert model.nodes[NodePath("/content/pp/b")].primary_type == "nt:unstructured"


@pytest.fixture
def emptied(tmp_path: Path) -> VaultSource:
    """A checkout with a page at one of three roots."""
    folder = tmp_path / "emptied"
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(
        '<workspaceFilter version="1.0"><filter root="/content/kept"/><filter root="/content/gone"/>'
        '<filter root="/etc/old" type="cleanup"/></workspaceFilter>'
    )
    (folder / "jcr_root/content/kept").mkdir(parents=True)
    (folder / "jcr_root/content/kept/.content.xml").write_text(PAGE)
    return open_checkout_source(folder)


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
@pytest.mark.parametrize(
    ("paths", "left", "deletes"),
    [
        (None, ["/content", "/content/kept", "/etc"], 2),
        (["/"], ["/content", "/content/kept", "/etc"], 2),
        (["/content/gone"], ["/content", "/etc", "/etc/old"], 1),
        (["/etc"], ["/content", "/content/gone", "/content/gone/a", "/etc"], 1),
    ],
)
def test_a_root_without_content_removes_what_is_there(
    emptied: VaultSource,
    package_type: str,
    paths: list[NodePath] | None,
    left: list[str],
    deletes: int,
    tmp_path: Path,
) -> None:
    parts = EngineParts(codecs={"filevault": FilevaultCodec(), "tree": TreeCodec()})
    model = ModelTree()
    before = [folder_node(NodePath(path)) for path in ("/content/gone", "/content/gone/a", "/etc/old")]
    model.apply(before, filter_for([], [NodePath("/content"), NodePath("/etc")]))
    request = add_request(own_roots(emptied) if paths is None else paths)
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=package_type))
        assert publisher.plan(request, emptied).deletes == deletes
        assert publisher.publish(request, emptied).removed == deletes
        (change,) = (published_change(parts, record) for record in engine.records())
    model.apply([decode_node(record.path, record.body) for record in change.records], change.filter)
    assert sorted(model.nodes) == left


def test_a_package_keeps_that_a_root_needs_no_content(emptied: VaultSource, tmp_path: Path) -> None:
    with built(emptied, "/", tmp_path / "x.zip") as package:
        assert package.filter == emptied.filter
        assert package.filter is not None
        assert [filter_set.is_cleanup for filter_set in package.filter.sets] == [False, False, True]


@pytest.mark.parametrize(("path", "is_deep"), [("/content/gone/a", True), ("/content/gone", False), ("/x", True)])
def test_a_path_without_content_and_root_is_missing(emptied: VaultSource, path: str, is_deep: bool) -> None:
    with pytest.raises(SourceMissingError, match=f"has nothing at {path}"):
        shipment_of(add_request([NodePath(path)], is_deep=is_deep), emptied)


def test_a_path_that_no_root_of_the_source_concerns_is_owned(several: VaultSource, tmp_path: Path) -> None:
    with built(several, "/content/other", tmp_path / "x.zip") as package:
        assert package.filter == WorkspaceFilter((FilterSet(NodePath("/content/other")),))


@pytest.mark.parametrize(
    ("path", "handling", "kept"),
    [
        ("/home/groups/editors", "merge_preserve", "merge_preserve"),
        ("/home/groups/readers", "merge", None),
        ("/home/groups/readers", "merge_preserve", None),
        ("/home/groups/readers", "overwrite", "overwrite"),
        ("/home/groups/readers", "clear", "clear"),
    ],
)
def test_access_control_handling_without_effect_is_dropped(
    checkout: VaultSource, tmp_path: Path, path: str, handling: str, kept: str | None
) -> None:
    checkout.properties = {"acHandling": handling}
    watched: list[int] = []
    with built(WatchedSource(checkout, watched.append), path, tmp_path / "x.zip") as package:
        assert package.properties.get("acHandling") == kept
    assert len(watched) == len(list(checkout.walk(NodePath(path)))), "each node counts once"


def test_a_property_that_is_given_counts(checkout: VaultSource, tmp_path: Path) -> None:
    with built(checkout, "/home/groups/editors", tmp_path / "x.zip", acHandling="overwrite") as package:
        assert package.properties["acHandling"] == "overwrite"


def test_a_given_access_control_handling_that_filevault_would_ignore_is_refused(
    checkout: VaultSource, tmp_path: Path
) -> None:
    assert parse_properties(["acHandling=MERGE", "note=a=b"]) == {"acHandling": "MERGE", "note": "a=b"}
    path, given = "/home/groups/editors", {"acHandling": "mrege"}
    files = PackageFiles(package_registry(), LimitsConfig())
    with pytest.raises(UsageError, match="acHandling can't be 'mrege'") as caught:
        files.build(add_request([NodePath(path)]), checkout, tmp_path / "x.zip", FILEVAULT, given)
    assert str(caught.value.next_step).startswith("one of clear, ignore, merge, merge_preserve, overwrite")
    with built(checkout, path, tmp_path / "x.zip", acHandling="MERGE") as package:
        assert package.properties["acHandling"] == "MERGE"


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("packageFormatVersion", "3", "has the format version 3"),
        ("Path-Mapping", "/a=/b", "maps paths on import"),
        ("description", "\x01", "a character that XML can't hold"),
        ("description", "\udcff", "a character that XML can't hold"),
        ("a\x00", "x", "a character that XML can't hold"),
        ("name", " ", "the name of a package can't be empty"),
        ("xmlns:jcr", "urn:x", "the prefix stands for http://www.jcp.org/jcr/1.0"),
        ("xmlns:acme", "urn:\udcff", "a character that XML can't hold"),
    ],
)
def test_a_property_that_readers_refuse_is_not_written(
    checkout: VaultSource, tmp_path: Path, key: str, text: str, reason: str
) -> None:
    with (
        pytest.raises(UsageError, match=reason),
        built(checkout, "/home/groups/editors", tmp_path / "x.zip", **{key: text}),
    ):
        pass
    assert not (tmp_path / "x.zip").exists()


@pytest.mark.parametrize("stem", ["p\x01", "p\udcff"])
def test_a_file_whose_name_xml_cannot_hold_needs_a_name_of_the_package(
    checkout: VaultSource, tmp_path: Path, stem: str
) -> None:
    into = tmp_path / f"{stem}.zip"
    with (
        pytest.raises(UsageError, match="the property 'name' has a character"),
        built(checkout, "/home/groups/editors", into),
    ):
        pass
    with built(checkout, "/home/groups/editors", into, name="p") as package:
        assert package.properties["name"] == "p"


def test_a_name_that_jcr_does_not_know_is_refused_and_no_package_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "site/content"
    folder.mkdir(parents=True)
    (folder / "a[b].js").write_bytes(b"")
    source, into = FolderSource(tmp_path / "site"), tmp_path / "x.zip"
    with (
        pytest.raises(ContentRefusedError, match="a JCR repository can't hold /content/a"),
        built(source, "/content", into),
    ):
        pass
    assert not (tmp_path / "x.zip").exists()


HEAD = '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" jcr:primaryType="nt:unstructured"'
DEFECTS = {
    "xml": ({"jcr_root/a/.content.xml": "<jcr:root"}, "can't be parsed", {"entry": "jcr_root/a/.content.xml"}),
    "value": (
        {"jcr_root/a/.content.xml": f'{HEAD} n="{{Long}}[1,x]"/>'},
        "'x' is not a LONG",
        {"property": "n", "path": "/a"},
    ),
    "name": ({"jcr_root/a/.content.xml": f"{HEAD}><_x002f_/></jcr:root>"}, "can't name a node", {"path": "/a"}),
    "property": ({"jcr_root/a/.content.xml": f'{HEAD} _x002f_="1"/>'}, "not a property's name", {"path": "/a"}),
    "entries": ({"jcr_root/a/b": "1", "jcr_root/a/b/c": "2"}, "both a file and a directory", {"entry": "jcr_root/a/b"}),
    "entry": ({"jcr_root/../a": ""}, "not a name that an entry may have", {"entry": "jcr_root/../a"}),
    "rule": (
        {
            "META-INF/vault/filter.xml": FILTER.replace("/home/groups", "/a").replace(
                "/></w", '><include pattern="(a"/></filter></w'
            )
        },
        "expression can't be understood",
        {"entry": "META-INF/vault/filter.xml", "root": "/a", "pattern": "(a"},
    ),
    "root": (
        {"META-INF/vault/filter.xml": FILTER.replace("/home", "/./home")},
        "'/./home/groups' is not a content path",
        {"entry": "META-INF/vault/filter.xml"},
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("way", ["read", "build", "verify"])
def test_what_is_refused_names_package_place_and_next_step(defect: str, way: str, tmp_path: Path) -> None:
    entries, message, facts = DEFECTS[defect]
    file, files = tmp_path / "x.zip", PackageFiles(package_registry(), LimitsConfig())
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in {"META-INF/vault/filter.xml": FILTER.replace("/home/groups", "/a"), **entries}.items():
            archive.writestr(name, text)

    def build() -> None:
        with closing(open_archive_source(file)) as source:
            files.build(add_request([NodePath("/a")]), source, tmp_path / "y.zip", FILEVAULT, {})

    ways = {
        "read": lambda: files.inspect(file, reads_binaries=False),
        "build": build,
        "verify": lambda: files.verify(file),
    }
    with pytest.raises(UntrustedInputError, match=message) as caught:
        ways[way]()
    assert caught.value.where == {**caught.value.where, "file": str(file), **facts}
    assert caught.value.next_step == "correct it in the package or its source, then repeat the command"


def test_names_that_differ_in_case_are_published_unless_refused(tmp_path: Path) -> None:
    """A zip and JCR hold both; the disk of a subscriber may not."""
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", FILTER.replace("/home/groups", "/a"))
        archive.writestr("jcr_root/a/.content.xml", PAGE.replace("/>", "><x/><X/></jcr:root>"))
        for name in "xX":
            archive.writestr(f"jcr_root/a/{name}/.content.xml", PAGE)
    with closing(open_archive_source(file)) as source, memory_engine(tmp_path) as engine:
        with built(source, "/a", tmp_path / "y.zip") as package:
            assert [node.path for node in package.walk(NodePath("/a"))] == ["/a", "/a/x", "/a/X"]
        with pytest.raises(LimitExceededError, match="differ in case") as caught:
            engine.publisher(engine.publishing_with(limits=LimitsConfig(refuse_collisions=True))).publish(
                add_request([NodePath("/a")]), source
            )
        assert caught.value.where["limit"] == "limits.refuse_collisions"
        assert "set limits.refuse_collisions to false" in (caught.value.next_step or "")
        assert engine.records() == []
        engine.publisher().publish(add_request([NodePath("/a")]), source)
        assert len(engine.records()) == 1
