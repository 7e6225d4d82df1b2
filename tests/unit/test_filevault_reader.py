"""Packages and checkouts in every layout that Jackrabbit writes, and documents that are refused."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from mailboat.blobs.references import ReferenceCodec, ReferenceRefusedError
from mailboat.config.document import LimitsConfig
from mailboat.content.digest import source_digest, tree_digest
from mailboat.errors import (
    LimitExceededError,
    PackageCorruptError,
    PathRefusedError,
    SourceChangedError,
    SourceMissingError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
    ValueRefusedError,
)
from mailboat.model.filters import MAX_RULES, filter_for
from mailboat.model.namespaces import MAX_KEPT_NAMESPACES
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import ROOT, NodePath
from mailboat.packages.filevault.codec import FilevaultCodec, FilevaultSettings
from mailboat.packages.filevault.document_reader import MAX_DOCUMENT_ATTRIBUTES, MAX_DOCUMENT_ELEMENTS
from mailboat.packages.filevault.properties import DEFAULT_PROPERTIES
from mailboat.packages.filevault.sources import open_archive_source, open_checkout_source
from mailboat.packages.filevault.vault_files import INLINE_BINARY_BYTES
from mailboat.packages.port import PackageContents
from mailboat.packages.prefixes import NamespaceUnresolvedError
from mailboat.testing import trees
from mailboat.wire.node_bodies import decode_node

LIMITS = LimitsConfig()
HEAD = (
    '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0"'
    ' xmlns:cq="http://www.day.com/jcr/cq/1.0"'
)
FILTER = '<workspaceFilter version="1.0"><filter root="/c"/></workspaceFilter>'


def document(attributes: str = "", inner: str = "") -> str:
    return f"{HEAD} {attributes}>{inner}</jcr:root>"


def package(files: Mapping[str, str | bytes], workspace: str = FILTER) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", workspace)
        for name, content in files.items():
            archive.writestr(name if name.startswith("META-INF") else f"jcr_root/{name}", content)
    return into.getvalue()


def read(files: Mapping[str, str | bytes], workspace: str = FILTER, limits: LimitsConfig = LIMITS) -> dict[str, Node]:
    change = FilevaultCodec().read_bytes(package(files, workspace), limits, None)
    return {record.path: decode_node(record.path, record.body) for record in change.records}


def value(node: Node, name: str) -> object:
    found = node.find(name)
    assert found is not None
    return found.values if found.is_multiple else found.values[0]


UNSTRUCTURED = 'jcr:primaryType="nt:unstructured"'
FILE_TYPE = 'jcr:primaryType="nt:file"'
RESOURCE = 'jcr:primaryType="nt:resource"'


# ------------------------------------------------------------------------------------------------------- layouts


def test_a_plain_file_and_a_mere_directory() -> None:
    found = read({"c/a/hello.txt": b"hello"})
    assert list(found) == ["/c", "/c/a", "/c/a/hello.txt"]
    assert found["/c"].is_plain_folder
    assert found["/c/a/hello.txt"].data == Binary(b"hello")


def test_a_document_of_a_directory_with_nodes_within_and_files_below() -> None:
    inner = f'<jcr:content {UNSTRUCTURED} n="{{Long}}1"><image {UNSTRUCTURED}/></jcr:content><b/><a/>'
    found = read(
        {
            "c/.content.xml": document('jcr:primaryType="cq:Page"', inner),
            "c/_jcr_content/image/file.png": b"png",
            "c/a/.content.xml": document('jcr:primaryType="cq:Page"'),
        }
    )
    assert list(found) == ["/c", "/c/jcr:content", "/c/jcr:content/image", "/c/jcr:content/image/file.png", "/c/a"]
    assert found["/c"].child_order == ("jcr:content", "b", "a")
    assert found["/c/jcr:content"].find("n") is not None


def test_a_document_named_after_its_node() -> None:
    found = read({"c/policy.xml": document(UNSTRUCTURED, f'<allow {UNSTRUCTURED} p="[a,b]"/>')})
    assert list(found) == ["/c", "/c/policy", "/c/policy/allow"]
    assert value(found["/c/policy/allow"], "p") == ("a", "b")


def test_an_xml_file_of_a_user_is_a_file() -> None:
    found = read({"c/feed.xml": "<rss/>", "c/.xml": document(UNSTRUCTURED)})
    assert found["/c/feed.xml"].data == Binary(b"<rss/>")
    assert found["/c/.xml"].is_plain_file


@pytest.mark.parametrize("content", [f"<jcr:content {RESOURCE}/>", "<jcr:content/>", ""])
def test_a_file_whose_document_says_nothing_of_its_bytes_is_one_node(content: str) -> None:
    found = read({"c/a.txt": b"hello", "c/a.txt.dir/.content.xml": document(FILE_TYPE, content)})
    assert list(found) == ["/c", "/c/a.txt"]
    assert found["/c/a.txt"].is_plain_file


def test_a_file_with_more_to_say_is_two_nodes() -> None:
    inner = f'<jcr:content {RESOURCE} jcr:mimeType="text/x"/>'
    found = read({"c/a.txt": b"hello", "c/a.txt.dir/.content.xml": document(FILE_TYPE, inner)})
    assert value(found["/c/a.txt/jcr:content"], "jcr:data") == Binary(b"hello")
    assert found["/c/a.txt"].properties == ()
    assert found["/c/a.txt"].child_order is None


def test_a_file_whose_jcr_content_is_not_described_gets_one() -> None:
    found = read({"c/a": b"1", "c/a.dir/_jcr_content/sub/.content.xml": document(UNSTRUCTURED)})
    assert found["/c/a/jcr:content"].primary_type == "nt:resource"
    assert value(found["/c/a/jcr:content"], "jcr:data") == Binary(b"1")


def test_bytes_beside_a_resource_are_its_own() -> None:
    found = read({"c/r": b"hello", "c/r.dir/.content.xml": document(f'{RESOURCE} jcr:mimeType="a/b"')})
    assert value(found["/c/r"], "jcr:data") == Binary(b"hello")


def test_binaries_that_travel_as_entries() -> None:
    found = read(
        {
            "c/.content.xml": document(f'{UNSTRUCTURED} jcr:data="{{Binary}}" two="{{Binary}}[,]" none="{{Binary}}[]"'),
            "c/_jcr_data.binary": b"one",
            "c/two[0].binary": b"0",
            "c/two[1].binary": b"1",
            "c/unannounced.binary": b"x",
            "c/many[0].binary": b"m",
        }
    )["/c"]
    assert value(found, "jcr:data") == Binary(b"one")
    assert value(found, "two") == (Binary(b"0"), Binary(b"1"))
    assert value(found, "none") == ()
    assert value(found, "unannounced") == Binary(b"x")
    assert value(found, "many") == (Binary(b"m"),)


def test_a_node_without_a_type_is_unstructured() -> None:
    assert read({"c/.content.xml": document('a="b"')})["/c"].primary_type == "nt:unstructured"


def test_mixins_are_sorted_and_types_may_be_spelt_out() -> None:
    attributes = 'jcr:primaryType="{Name}cq:Page" jcr:mixinTypes="[mix:versionable,mix:title]"'
    found = read({"c/.content.xml": document(attributes)})["/c"]
    assert (found.primary_type, found.mixin_types) == ("cq:Page", ("mix:title", "mix:versionable"))


def test_siblings_of_one_name_keep_their_index() -> None:
    inner = f"<a {UNSTRUCTURED}/><a_x005b_2_x005d_ {UNSTRUCTURED}/>"
    assert list(read({"c/.content.xml": document(UNSTRUCTURED, inner)})) == ["/c", "/c/a", "/c/a[2]"]


def test_what_tools_leave_and_sub_packages() -> None:
    found = read({"c/.vlt": "x", "c/.vlt-sync-config.properties": "x", "c/.svn/entries": "x", "c/p-1.0.zip": b"PK"})
    assert list(found) == ["/c", "/c/p-1.0.zip"]


def test_prefixes_are_translated_to_the_known_ones() -> None:
    text = '<j:root xmlns:j="http://www.jcp.org/jcr/1.0" j:primaryType="nt:unstructured" j:title="t"/>'
    assert value(read({"c/.content.xml": text})["/c"], "jcr:title") == "t"


def test_content_that_the_filter_does_not_cover_is_passed_over() -> None:
    found = read(
        {
            ".content.xml": document('jcr:primaryType="rep:root"'),
            "c/.content.xml": document('jcr:primaryType="cq:Page"', f"<jcr:content {UNSTRUCTURED}/>"),
            "c/d/.content.xml": document(UNSTRUCTURED),
            "c/d/x/.content.xml": document(UNSTRUCTURED),
            "c/d/x/y/.content.xml": document(UNSTRUCTURED),
            "other/.content.xml": document(UNSTRUCTURED),
        },
        '<workspaceFilter version="1.0"><filter root="/c/d"><exclude pattern="/c/d/x"/></filter></workspaceFilter>',
    )
    assert list(found) == ["/", "/c", "/c/d", "/c/d/x", "/c/d/x/y"]


def test_of_two_attributes_of_one_name_the_first_counts() -> None:
    found = read({"c/.content.xml": document(f'{UNSTRUCTURED} a="1" _x0061_="2" b="3"')})
    assert [(prop.name, prop.values) for prop in found["/c"].properties] == [("a", ("1",)), ("b", ("3",))]


ALL_OWNED = filter_for([NodePath("/")], [NodePath("/")])
ALL = '<workspaceFilter version="1.0"><filter root="/c/x"/><filter root="/"><exclude pattern="/c/y"/></filter>{}'


def test_a_root_of_everything_owns_what_the_package_has_at_the_top() -> None:
    files = {".content.xml": document('jcr:primaryType="rep:root"'), "c/": "", "d.xml": document(), "_rep_p/x": ""}
    workspace = ALL.format("</workspaceFilter>")
    change = FilevaultCodec().read_bytes(package(files, workspace), LIMITS, None)
    assert [filter_set.root for filter_set in change.filter.sets] == ["/c/x", "/c", "/rep:p", "/d"]
    assert not change.filter.covers(NodePath("/other"))
    assert not change.filter.covers(NodePath("/c/y"))


def test_a_root_of_everything_is_refused_with_too_many_nodes_at_the_top() -> None:
    """Rules cost nothing more for each of them: only their number counts, for each such root."""
    files = {f"n{number}": b"" for number in range(MAX_RULES // 2 + 1)}
    change = FilevaultCodec().read_bytes(package(files, ALL.format("</workspaceFilter>")), LIMITS, None)
    assert len(change.filter.sets) == len(files) + 1
    with pytest.raises(LimitExceededError, match="5001 nodes at the top"):
        read(files, ALL.format('<filter root="/"/></workspaceFilter>'))


def test_packages_of_everything_that_older_publishers_made_replace_everything() -> None:
    """The log keeps them, and subscribers of their version replaced everything."""
    properties = {key: f"<entry key='{key}'>{text}</entry>" for key, text in DEFAULT_PROPERTIES}
    files = {"META-INF/vault/properties.xml": f"<properties>{''.join(properties.values())}</properties>", "d.xml": ""}
    workspace = '<workspaceFilter version="1.0"><filter root="/"/></workspaceFilter>'
    assert FilevaultCodec().read_bytes(package(files, workspace), LIMITS, None).filter == ALL_OWNED
    files["META-INF/vault/properties.xml"] = f"<properties>{properties['group']}</properties>"
    change = FilevaultCodec().read_bytes(package(files, workspace), LIMITS, None)
    assert [filter_set.root for filter_set in change.filter.sets] == ["/d.xml"]


def test_our_packages_of_everything_replace_everything() -> None:
    """FileVault keeps other nodes at the top."""
    into = io.BytesIO()
    FilevaultCodec().write(
        PackageContents(ALL_OWNED, [Node(NodePath("/"), "nt:folder"), Node(NodePath("/c"), "nt:folder")]), into
    )
    assert FilevaultCodec().read_bytes(into.getvalue(), LIMITS, None).filter == ALL_OWNED


def test_a_directory_that_is_only_on_the_way_is_no_ancestor_to_make() -> None:
    only_below = '<workspaceFilter version="1.0"><filter root="/c/d/e"/></workspaceFilter>'
    assert list(read({"c/d/e/x.txt": b""}, only_below)) == ["/c/d/e", "/c/d/e/x.txt"]
    assert list(read({"c/": b"", "c/d/e/x.txt": b""}, only_below)) == ["/c", "/c/d/e", "/c/d/e/x.txt"]


@pytest.mark.parametrize("own", [{}, {"c/x.txt": b""}], ids=["one document", "documents and files"])
def test_the_second_of_two_elements_of_one_name_is_imported_over_the_first(own: dict[str, str | bytes]) -> None:
    """As in FileVault: Adobe's examples of core components have such documents."""
    inner = f'<a {UNSTRUCTURED} v="1" w="1"><gone {UNSTRUCTURED}/></a><b {UNSTRUCTURED}/><a {UNSTRUCTURED} v="2"/><a/>'
    found = read({"c/.content.xml": document(UNSTRUCTURED, inner), **own})
    assert [(property_.name, property_.values) for property_ in found["/c/a"].properties] == [
        ("v", ("2",)),
        ("w", ("1",)),
    ]
    assert found["/c"].child_order == ("a", "b")
    assert "/c/a/gone" not in found


def test_many_elements_of_one_name_are_merged_at_once() -> None:
    """One by one, each with all attributes before, they would take minutes."""
    first = " ".join(f'p{number}="1"' for number in range(20_000))
    found = read({"c/.content.xml": document(UNSTRUCTURED, f"<a/><a {first}/>" + '<a p1="2"/><a/>' * 20_000)})
    assert len(found["/c/a"].properties) == 20_000
    assert (value(found["/c/a"], "p0"), value(found["/c/a"], "p1")) == ("1", "2")


def test_namespaces_that_are_used_are_found_among_many() -> None:
    """To look for each one in each node would take minutes."""
    declared = "".join(f' xmlns:p{number}="urn:{number}"' for number in range(MAX_KEPT_NAMESPACES - 10))
    inner = "".join(f'<a{number} p{number % 50}:x=""/>' for number in range(5_000))
    content = package({"c/.content.xml": document(UNSTRUCTURED + declared, f'{inner}<p77:b x=""/>')})
    change = FilevaultCodec().read_bytes(content, LIMITS, None)
    assert change.namespaces == {f"p{number}": (f"urn:{number}",) for number in (*range(50), 77)}


# ------------------------------------------------------------------------------------------------------- refusals

NESTED = "<a>" * 200 + "</a>" * 200
LONG, MANY = "u:".ljust(2048, "x"), " ".join(f'p:a{number}=""' for number in range(33_000))
REFUSED: dict[str, tuple[dict[str, str | bytes], str]] = {
    "laughs": (
        {"c/.content.xml": '<!DOCTYPE x [<!ENTITY a "aaa"><!ENTITY b "&a;&a;">]>' + document('t="&b;"')},
        "declares",
    ),
    "long type": ({"c/.content.xml": f"<!DOCTYPE x [{'<!ELEMENT x ANY>' * 5_000}]>" + document()}, "too long"),
    "attributes": ({"c/.content.xml": "<!DOCTYPE x [<!ATTLIST x a CDATA #IMPLIED>]>" + document()}, "declares"),
    "skipped": ({"c/.content.xml": "<!DOCTYPE x [%p;]>" + document('t="&b;"')}, "declares"),
    "long namespace": ({"c/.content.xml": document(f'xmlns:p="{LONG}x" {MANY}')}, "2049 characters"),
    "in UTF-16": ({"c/.content.xml": document(f"xmlns:p = '{LONG}x' {MANY}").encode("utf-16")}, "2049 characters"),
    "long default namespace": ({"c/.content.xml": document(f'xmlns="{LONG}x"')}, "2049 characters"),
    "names times namespace": ({"c/.content.xml": document(f'xmlns:p="{LONG}" {MANY}')}, "2048 characters"),
    "deep": ({"c/.content.xml": document(UNSTRUCTURED, NESTED)}, "nested too deep"),
    "broken": ({"c/.content.xml": document(UNSTRUCTURED, "<a>")}, "can't be parsed"),
    "encoding": ({"c/.content.xml": '<?xml version="1.0" encoding="nothing"?>' + document()}, "can't be"),
    "root": ({"c/.content.xml": "<other/>"}, "root is not jcr:root"),
    "prefix": ({"c/.content.xml": document(f'{UNSTRUCTURED} x:y="1"')}, "can't be parsed"),
    "rebound": ({"c/.content.xml": '<jcr:root xmlns:jcr="urn:evil" jcr:primaryType="a"/>'}, "root is not jcr:root"),
    "prefix of a directory below": (
        {
            "c/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:1"', f'<a xmlns:q="urn:2" {UNSTRUCTURED}/>'),
            "c/a/_q_b/.content.xml": document(UNSTRUCTURED),
        },
        "the prefix 'q' has two namespaces in the package",
    ),
    "empty reference": ({"c/.content.xml": document(f'{UNSTRUCTURED} b="{{BinaryRef}}"')}, "has no content"),
    "prefix of a directory": (
        {
            "c/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:1" q:b="1"'),
            "c/_q_a/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:2"'),
        },
        "'q' has two namespaces in the package",
    ),
    "prefix of a file's directory": (
        {
            "c/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:1" q:b="1"'),
            "c/d/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:2"', f"<q:a {UNSTRUCTURED}/>"),
            "c/d/_q_a/x.txt": b"",
        },
        "'q' has two namespaces in the package",
    ),
    "prefix of a directory below an element": (
        {
            "c/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:1" q:b="1"'),
            "c/d/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:2"', f"<e {UNSTRUCTURED}><q:a/></e>"),
            "c/d/e/_q_a/x.txt": b"",
        },
        "'q' has two namespaces in the package",
    ),
    "prefix of a binary": (
        {
            "c/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:1" q:b="1"'),
            "c/d/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:2"'),
            "c/d/_q_a.binary": b"",
        },
        "'q' has two namespaces in the package",
    ),
    "default": ({"c/.content.xml": document(UNSTRUCTURED, '<a xmlns="urn:x" b="1"/>')}, "without prefix"),
    "odd uri": ({"c/.content.xml": document(UNSTRUCTURED, '<a xmlns:q="urn: x" b="1"/>')}, "can't be parsed"),
    "surrogate": ({"c/.content.xml": document(f'{UNSTRUCTURED} _xd800_="1"')}, "is not a name"),
    "slash": ({"c/.content.xml": document(UNSTRUCTURED, '<a_x002f_b c="1"/>')}, "has a slash"),
    "dots": ({"c/.content.xml": document(UNSTRUCTURED, '<_x002e__x002e_ c="1"/>')}, "is not a content path"),
    "order": ({"c/.content.xml": document(UNSTRUCTURED, "<_x002e__x002e_/>")}, "can't name a node"),
    "property": ({"c/.content.xml": document(f'{UNSTRUCTURED} a_x002f_b="1"')}, "is not a property's name"),
    "type": ({"c/.content.xml": document('jcr:primaryType=""')}, "is not a node type"),
    "two directories": ({"c/a/x": b"", "c/a.dir/y": b""}, "two directories"),
    "two files": ({"c/%61": b"", "c/a": b""}, "two entries"),
    "two bytes": (
        {"c/a": b"1", "c/a.dir/.content.xml": document(FILE_TYPE), "c/a.dir/_jcr_content": b"2"},
        "two entries have the bytes",
    ),
    "no bytes": ({"c/.content.xml": document(f'{UNSTRUCTURED} b="{{Binary}}"')}, "'b' has no content"),
    "no content": ({"c/.content.xml": document(f'{RESOURCE} jcr:data="{{Binary}}"')}, "has no content"),
    "one of two": (
        {"c/.content.xml": document(f'{UNSTRUCTURED} b="{{Binary}}[,]"'), "c/b[0].binary": b""},
        "has no content",
    ),
    "inline": ({"c/.content.xml": document(f'{UNSTRUCTURED} b="{{Binary}}abcd"')}, "referred to"),
    "single and multiple": (
        {"c/.content.xml": document(f'{UNSTRUCTURED} b="{{Binary}}"'), "c/b.binary": b"", "c/b[0].binary": b""},
        "both single and multiple",
    ),
    "list as attribute": (
        {"c/.content.xml": document(f'{UNSTRUCTURED} b="[x]"'), "c/b.binary": b""},
        "'b' is not a property's name, or a duplicate",
    ),
    "more values": (
        {"c/.content.xml": document(f'{UNSTRUCTURED} b="{{Binary}}[\\0]"'), "c/b[0].binary": b"", "c/b[1].binary": b""},
        "more entries than values",
    ),
    "counted": ({"c/b[1].binary": b""}, "not counted from 0"),
    "kept elsewhere": ({"c/_jcr_primaryType.binary": b""}, "not a property's name"),
    "traversal": ({"c/%2e%2e": b""}, "is not a content path"),
    "encoded slash": ({"c/a%2fb": b""}, "has a slash"),
    "nul": ({"c/a%00b": b""}, "is not a content path"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_content_that_breaks_a_rule_is_refused(kind: str) -> None:
    files, told = REFUSED[kind]
    with pytest.raises(UntrustedInputError, match=told) as caught:
        read(files)
    assert caught.value.where.keys() >= {"entry", "path"}


@pytest.mark.costly("a hundred thousand elements are the limit")
def test_a_document_of_more_elements_than_the_limit_is_refused() -> None:
    most = MAX_DOCUMENT_ELEMENTS - 1  # the root is one, too
    names = [f"<n{number}/>" for number in range(most)]
    assert list(read({"c/.content.xml": document(UNSTRUCTURED, "".join(names))}))[-1] == "/c"
    with pytest.raises(LimitExceededError, match="more than 100000 elements") as caught:
        read({"c/.content.xml": document(UNSTRUCTURED, "".join([*names, "<more/>"]))})
    assert caught.value.where == {"entry": "jcr_root/c/.content.xml", "path": "/c", "limit": MAX_DOCUMENT_ELEMENTS}


def test_a_document_of_more_attributes_than_the_limit_is_refused() -> None:
    attributes = "".join(f' p{number}=""' for number in range(MAX_DOCUMENT_ATTRIBUTES + 1))
    with pytest.raises(LimitExceededError, match="more than 250000 attributes") as caught:
        read({"c/.content.xml": document(UNSTRUCTURED, f"<x{attributes}/>")})
    assert caught.value.where == {"entry": "jcr_root/c/.content.xml", "path": "/c", "limit": MAX_DOCUMENT_ATTRIBUTES}


@pytest.mark.parametrize(("uri", "documents"), [("urn:{}", 1), ("urn:{}", 2), ("http://www.jcp.org/jcr/1.0", 1)])
def test_documents_that_declare_more_namespaces_than_the_limit_are_refused(uri: str, documents: int) -> None:
    """Expat does not count declarations among the attributes."""
    declared = [f' xmlns:p{number}="{uri.format(number)}"' for number in range(MAX_KEPT_NAMESPACES + 1)]
    parts = ["".join(declared[place::documents]) for place in range(documents)]
    with pytest.raises(LimitExceededError, match="documents declare more than 10000 namespaces"):
        read({f"c/{place}/.content.xml": document(UNSTRUCTURED + part) for place, part in enumerate(parts)})


def test_a_long_namespace_of_few_names_is_read() -> None:
    found = read({"c/.content.xml": document(f'{UNSTRUCTURED} xmlns:p="{LONG}" p:a="1"')})
    assert value(found["/c"], "p:a") == "1"


def test_marks_of_an_element_are_kept_once() -> None:
    """A text of all of them would take minutes for a document of some megabytes."""
    marks = "<?mailboat ordered other ordered?><?mailboat other?>" + "<?mailboat x?>" * 300_000
    found = read({"c/.content.xml": document(UNSTRUCTURED, marks)})
    assert found["/c"].child_order == ()


def test_a_node_in_two_documents_is_refused_with_a_mode_that_merges() -> None:
    """In FileVault the second would be merged into the first. In the mode replace it takes its place."""
    files = {"c/.content.xml": document(UNSTRUCTURED, f'<a {UNSTRUCTURED} v="1" w="1"/>')}
    files["c/a/.content.xml"] = document(f'{UNSTRUCTURED} v="2"')
    assert [property_.name for property_ in read(files)["/c/a"].properties] == ["v"]
    with pytest.raises(PackageCorruptError, match="two documents, and the mode of the filter merges"):
        read(files, FILTER.replace('root="/c"', 'root="/c" mode="update_properties"'))


def test_a_document_next_to_the_directory_of_its_node_counts() -> None:
    found = read({f"c/a{name}": document(f'{UNSTRUCTURED} v="{name}"') for name in (".xml", "/.content.xml", "/b.xml")})
    assert value(found["/c/a"], "v") == ".xml"
    assert value(found["/c/a/b"], "v") == "/b.xml"


def test_a_second_namespace_of_a_prefix_gets_another_prefix() -> None:
    names = 'q:x="1" n="{Name}[q:a,r:q:b]" p="{Path}/q:c/q:d" s="q:e"'
    files = {
        "c/.content.xml": document(
            f'{UNSTRUCTURED} xmlns:q="urn:1" q:x="1"',
            f'<j:a xmlns:j="http://www.jcp.org/jcr/1.0" {UNSTRUCTURED} n="{{Name}}j:v"/>',
        ),
        "c/b/.content.xml": document(
            f'{UNSTRUCTURED} xmlns:q="urn:2" jcr:mixinTypes="[q:m]" {names}', '<q:k q:y="1"/>'
        ),
        "c/d/.content.xml": document(f'{UNSTRUCTURED} xmlns:q="urn:2" q:y="1"'),
    }
    change = FilevaultCodec().read_bytes(package(files), LIMITS, None)
    found = {record.path: decode_node(record.path, record.body) for record in change.records}
    assert change.namespaces == {"q": ("urn:1",), "q0": ("urn:2",)}
    node = found[NodePath("/c/b")]
    assert {property_.name: property_.values for property_ in node.properties} == {
        "n": ("q0:a", "r:q:b"),
        "p": ("/q0:c/q0:d",),
        "q0:x": ("1",),
        "s": ("q:e",),
    }
    assert (node.mixin_types, node.child_order) == (("q0:m",), ("q0:k",))
    assert value(found[NodePath("/c/b/q0:k")], "q0:y") == value(found[NodePath("/c/d")], "q0:y") == "1"
    assert value(found[NodePath("/c/jcr:a")], "n") == "jcr:v"


def test_a_prefix_that_an_element_declares_again_is_another_one_within_it() -> None:
    """As FileVault reads it, asked of Oak in test_odd_packages.py."""
    within = '<q:a xmlns:q="urn:2" q:x="2" n="{Name}q:v"><q:b xmlns:q="urn:1" q:x="1"/><q:c q:x="2"/></q:a>'
    text = document(f'{UNSTRUCTURED} xmlns:q="urn:1" q:x="1"', f'{within}<q:d q:x="1" n="{{Name}}q:v"/>')
    change = FilevaultCodec().read_bytes(package({"c/.content.xml": text}), LIMITS, None)
    found = {record.path: decode_node(record.path, record.body) for record in change.records}
    assert change.namespaces == {"q": ("urn:1",), "q0": ("urn:2",)}
    assert {
        path: {property_.name: property_.values[0] for property_ in node.properties} for path, node in found.items()
    } == {
        "/c": {"q:x": "1"},
        "/c/q0:a": {"n": "q0:v", "q0:x": "2"},
        "/c/q0:a/q:b": {"q:x": "1"},
        "/c/q0:a/q0:c": {"q0:x": "2"},
        "/c/q:d": {"n": "q:v", "q:x": "1"},
    }


def test_a_value_that_is_none_is_refused_with_entry_path_and_property() -> None:
    with pytest.raises(ValueRefusedError) as caught:
        read({"c/a/.content.xml": document(f'{UNSTRUCTURED} n="{{Long}}[forty-two]"')})
    assert caught.value.where == {"entry": "jcr_root/c/a/.content.xml", "path": "/c/a", "property": "n"}


def test_a_large_document_is_refused_before_it_is_unpacked() -> None:
    codec = FilevaultCodec(FilevaultSettings(max_document_bytes=1000))
    payload = package({"c/.content.xml": document(UNSTRUCTURED, " " * 1000)})
    with pytest.raises(LimitExceededError, match="a document of nodes has") as caught:
        codec.read_bytes(payload, LIMITS, None)
    assert caught.value.where["limit"] == 1000


def test_nodes_that_rules_leave_out_are_not_held() -> None:
    text = f't="{"x" * 65_536}"'
    files = {f"c/n{number}/.content.xml": document(f"{UNSTRUCTURED} {text}") for number in range(200)}
    rules = FILTER.replace('"/c"/>', '"/c"><exclude pattern="/c/n.*"/></filter>')
    stream = io.BytesIO(package({**files, "c/z.txt": b"covered"}, rules))
    reader = FilevaultCodec().open(stream, LIMITS, None)
    tracemalloc.start()
    try:
        found = [record.path for record in reader.change().records]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == ["/c", "/c/z.txt"]
    assert peak < 4 * 1024 * 1024


def test_long_names_of_refused_packages_do_not_stay_in_the_codec() -> None:
    codec = FilevaultCodec()
    for number in range(12):
        name = f"n{number}{'x' * 1_500_000}"
        for inner in (f"<{name} {UNSTRUCTURED}/>", f'<n {UNSTRUCTURED} {name}=""/>'):
            with pytest.raises(UntrustedInputError):
                codec.read_bytes(package({"c/.content.xml": document(UNSTRUCTURED, inner)}), LIMITS, None)
    kept = codec._reading.namespaces
    assert sum(map(len, kept.names)) < 10_000
    assert sum(map(len, kept.interned)) < 10 * 1024 * 1024


def test_documents_within_each_other_are_refused_beyond_four_of_the_largest() -> None:
    codec = FilevaultCodec(FilevaultSettings(max_document_bytes=1000))
    one = document(UNSTRUCTURED, " " * (900 - len(document(UNSTRUCTURED))))
    siblings = {f"c/{number}/.content.xml": one for number in range(9)}
    nested = {f"c{'/x' * depth}/.content.xml": one for depth in range(4)}
    assert len(list(codec.read_bytes(package(siblings | nested), LIMITS, None).records)) == 13
    nested["c/x/x/x/x/.content.xml"] = one
    with pytest.raises(LimitExceededError, match="that lie within each other have 4500 bytes") as caught:
        codec.read_bytes(package(nested), LIMITS, None)
    assert caught.value.where == {"entry": "jcr_root/c/x/x/x/x/.content.xml", "limit": 4000, "path": "/c/x/x/x/x"}


def test_a_package_without_a_filter_is_refused() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("jcr_root/c/a", "x")
    with pytest.raises(PackageCorruptError, match="no filter"):
        FilevaultCodec().read_bytes(into.getvalue(), LIMITS, None)


def test_a_package_that_wants_its_paths_mapped_is_refused() -> None:
    properties = '<properties><entry key="Path-Mapping">/c=/d</entry></properties>'
    with pytest.raises(UnknownRequiredFeatureError, match="/c=/d"):
        read({"META-INF/vault/properties.xml": properties, "c/a": b""})


@pytest.mark.parametrize("text", ["abcdef0123:9f8e", "sha256:00:1", "https://example.org/"])
def test_a_reference_into_another_store_is_refused(text: str) -> None:
    with pytest.raises(ReferenceRefusedError) as caught:
        read({"c/.content.xml": document(f'{UNSTRUCTURED} b="{{BinaryRef}}{text}"')})
    assert caught.value.where["property"] == "b"


# ------------------------------------------------------------------------------------- large and referred binaries


def test_large_binaries_are_named_with_a_signature_and_opened_by_digest() -> None:
    large = trees.large_binary()
    nodes = [trees.a_folder("/c"), trees.file_node(NodePath("/c/large.bin"), large)]
    codec, into = FilevaultCodec(FilevaultSettings(references=ReferenceCodec(b"k" * 16))), io.BytesIO()
    codec.write(PackageContents(filter_for((), [NodePath("/c")]), nodes), into)
    assert len(into.getvalue()) < 3000
    record = list(codec.read_bytes(into.getvalue(), LIMITS, lambda _: large.open()).records)[-1]
    assert record.binaries == (large,)
    with record.binaries[0].open() as stream, large.open() as expected:
        assert stream.read() == expected.read()
    with pytest.raises(ReferenceRefusedError):
        FilevaultCodec(FilevaultSettings(references=ReferenceCodec(b"x" * 16))).read_bytes(
            into.getvalue(), LIMITS, None
        )


def test_large_entries_are_streamed_and_can_be_read_more_than_once() -> None:
    data = bytes(range(256)) * (INLINE_BINARY_BYTES // 128)
    payload = package({"c/a.bin": data, "c/b.bin": data[::-1]})
    reader = FilevaultCodec().open(io.BytesIO(payload), LIMITS, None)
    binaries = {record.path: record.binaries[0] for record in reader.change().records if record.binaries}
    with binaries[NodePath("/c/a.bin")].open() as first, binaries[NodePath("/c/b.bin")].open() as second:
        assert first.read(10) + first.read() == data
        assert second.read() == data[::-1]
    reader.close()


# ---------------------------------------------------------------------------------------------------------- sources


def unpacked(payload: bytes, into: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        archive.extractall(into)
    return into


@given(nodes=trees.trees())
def test_a_package_unpacked_is_a_checkout_of_the_same_tree(
    nodes: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, into = tmp_path_factory.mktemp("checkout"), io.BytesIO()
    workspace = filter_for((), [nodes[0].path])
    FilevaultCodec().write(PackageContents(workspace, nodes, is_self_contained=True), into)
    file = folder / "package.zip"
    file.write_bytes(into.getvalue())
    checkout = open_checkout_source(unpacked(into.getvalue(), folder / "checkout"))
    archive = open_archive_source(file)
    for source in (checkout, archive):
        assert source.filter == workspace
        assert list(source.walk(nodes[0].path)) == nodes
        assert source_digest(source, nodes[0].path) == tree_digest(nodes)
        for node in nodes:
            assert source.node(node.path) == node
        assert source.node(NodePath("/nothing/there")) is None
        source.close()


def test_a_checkout_without_metadata_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "jcr_root/c").mkdir(parents=True)
    (tmp_path / "jcr_root/c/.DS_Store").write_bytes(b"x")
    (tmp_path / "jcr_root/c/page.xml").write_text(document(f'xmlns:acme="urn:acme" acme:a="1" {UNSTRUCTURED}'))
    (tmp_path / "jcr_root/c/large.bin").write_bytes(b"x" * (INLINE_BINARY_BYTES + 1))
    source = open_checkout_source(tmp_path)
    assert source.filter is None
    assert [node.path for node in source.walk(ROOT)] == ["/c", "/c/large.bin", "/c/page"]
    assert source.namespaces() == {"acme": ("urn:acme",)}
    assert source.package_properties() == {}
    large = source.node(NodePath("/c/large.bin"))
    assert large is not None
    assert large.data is not None
    with large.data.open() as stream:
        assert stream.read() == b"x" * (INLINE_BINARY_BYTES + 1)


def test_namespaces_are_given_on(tmp_path: Path) -> None:
    node = Node(NodePath("/c"), "acme:Thing")
    into = io.BytesIO()
    workspace = filter_for((), [node.path])
    FilevaultCodec().write(PackageContents(workspace, [node], properties={"xmlns:acme": "urn:acme"}), into)
    assert b'xmlns:acme="urn:acme"' in zipfile.ZipFile(into).read("jcr_root/c/.content.xml")
    FilevaultCodec(FilevaultSettings(namespaces={"acme": "urn:2"})).write(PackageContents(workspace, [node]), into)
    assert b'xmlns:acme="urn:2"' in zipfile.ZipFile(into).read("jcr_root/c/.content.xml")


def test_a_prefix_without_a_namespace_is_refused() -> None:
    node = Node(NodePath("/c"), "nt:unstructured", properties=(Property("acme:a", ("1",)),))
    with pytest.raises(NamespaceUnresolvedError, match="the prefix 'acme' has no namespace") as caught:
        FilevaultCodec().write(PackageContents(filter_for((), [node.path]), [node]), io.BytesIO())
    assert caught.value.where == {"path": "/c"}
    assert "`packages build --property xmlns:acme=URI`" in str(caught.value.next_step)


def test_a_prefix_of_several_namespaces_is_refused_until_one_is_named() -> None:
    node = Node(NodePath("/c"), "nt:unstructured", properties=(Property("acme:a", ("1",)),))
    table = {"acme": ("urn:1", "urn:2"), "unused": ("urn:1", "urn:2")}
    contents = PackageContents(filter_for((), [node.path]), [node], namespaces=table, is_for_repositories=True)
    with pytest.raises(NamespaceUnresolvedError, match="'acme' has several namespaces: urn:1, urn:2"):
        FilevaultCodec().write(contents, io.BytesIO())
    into = io.BytesIO()
    FilevaultCodec(FilevaultSettings(namespaces={"acme": "urn:2"})).write(contents, into)
    assert b'xmlns:acme="urn:2"' in zipfile.ZipFile(into).read("jcr_root/c/.content.xml")
    with pytest.raises(NamespaceUnresolvedError, match="and for urn:3 by the configuration"):
        FilevaultCodec(FilevaultSettings(namespaces={"acme": "urn:3"})).write(contents, io.BytesIO())


def test_a_mere_directory_defines_no_node(tmp_path: Path) -> None:
    """FileVault chooses the type of such nodes: `/home/groups` can't be an nt:folder."""
    (tmp_path / "jcr_root/home/groups").mkdir(parents=True)
    (tmp_path / "jcr_root/home/.content.xml").write_text(document('jcr:primaryType="rep:AuthorizableFolder"'))
    (tmp_path / "jcr_root/home/groups/a.txt").write_bytes(b"")
    source = open_checkout_source(tmp_path)
    owned = filter_for((), [NodePath("/home/groups/a.txt/x"), NodePath("/x/y")])
    above = [(node.path, node.primary_type) for node in source.ancestors(owned)]
    assert above == [("/home", "rep:AuthorizableFolder"), ("/home/groups/a.txt", "nt:file")]


def test_the_prefix_of_a_second_namespace_does_not_depend_on_what_is_read_first(tmp_path: Path) -> None:
    """Nor on the order of the zip, on directories that can't be read, or on a document that is broken."""
    documents = {
        f"c/{name}/.content.xml": document(f'{UNSTRUCTURED} xmlns:acme="urn:{name}" acme:t="1"') for name in ("b", "a")
    }
    files = {**documents, "c/broken.xml": HEAD, "d/_acme_e/.content.xml": document(UNSTRUCTURED)}
    (tmp_path / "x.zip").write_bytes(package(files))
    for name, content in files.items():
        (tmp_path / "x/jcr_root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x/jcr_root" / name).write_text(content)
    (tmp_path / "x/jcr_root/e").mkdir()
    (tmp_path / "x/jcr_root/e/link").symlink_to("/etc")
    for place in (tmp_path / "x.zip", tmp_path / "x"):
        for order in (("a", "b"), ("b", "a")):
            with closing(open_archive_source(place) if place.is_file() else open_checkout_source(place)) as source:
                nodes = {name: source.node(NodePath(f"/c/{name}")) for name in order}
                names = {
                    name: [property_.name for property_ in node.properties] for name, node in nodes.items() if node
                }
                assert names == {"a": ["acme:t"], "b": ["acme0:t"]}
                assert source.namespaces() == {"acme": ("urn:a",), "acme0": ("urn:b",)}


@pytest.mark.parametrize(
    "head",
    [
        '<!DOCTYPE x SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE x PUBLIC "-//x" "http://nowhere.invalid/x.dtd">',
        '<!DOCTYPE x [<!ELEMENT x ANY><!NOTATION n SYSTEM "%a"><?x %p;?><!-- %p; -->]>',
    ],
)
def test_a_document_type_without_entities_and_attributes_changes_nothing(head: str) -> None:
    found = read({"c/.content.xml": head + document(f'{UNSTRUCTURED} t="100%"')}, head + FILTER)
    assert value(found["/c"], "t") == "100%"


def test_a_list_of_binaries_that_nothing_has_is_left_out_as_by_filevault() -> None:
    found = read({"c/.content.xml": document(f'{UNSTRUCTURED} b="{{Binary}}[,]" t="1"')})
    assert [property_.name for property_ in found["/c"].properties] == ["t"]


def test_a_checkout_that_is_removed_since_its_link_leads_elsewhere_is_not_one_of_fewer_nodes(tmp_path: Path) -> None:
    for release in ("1", "2"):
        (tmp_path / release / "jcr_root/c").mkdir(parents=True)
    for is_changed in (False, True):
        (tmp_path / "current").unlink(missing_ok=True)
        (tmp_path / "current").symlink_to("1")
        source = open_checkout_source(tmp_path / "current")
        (tmp_path / "current").unlink()
        (tmp_path / "current").symlink_to("2")
        if is_changed:
            os.utime(tmp_path / "1/jcr_root/c", (2e9, 2e9))  # later than the source was opened
            with pytest.raises(SourceChangedError, match="leads elsewhere now"):
                list(source.walk(ROOT))
        else:
            assert [node.path for node in source.walk(ROOT)] == ["/c"]


def test_a_link_out_of_a_checkout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jcr_root").mkdir()
    (tmp_path / "jcr_root/link").symlink_to("/etc")
    with pytest.raises(PathRefusedError, match="outside"):
        list(open_checkout_source(tmp_path).walk(ROOT))


def test_a_name_that_is_not_utf8_is_refused_in_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "jcr_root").mkdir()
    (tmp_path / "jcr_root" / os.fsdecode(b"a\xff")).write_bytes(b"")
    with pytest.raises(PathRefusedError, match="not valid UTF-8"):
        list(open_checkout_source(tmp_path).walk(ROOT))


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="no folder jcr_root"):
        open_checkout_source(tmp_path)
    with pytest.raises(SourceMissingError, match="can't be opened"):
        open_archive_source(tmp_path / "none.zip")
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    with pytest.raises(PackageCorruptError, match="is not a zip"):
        open_archive_source(broken)


def test_a_huge_filter_of_a_checkout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jcr_root").mkdir()
    (tmp_path / "META-INF/vault").mkdir(parents=True)
    (tmp_path / "META-INF/vault/filter.xml").write_bytes(b" " * 5_000_000)
    with pytest.raises(LimitExceededError, match="too long"):
        open_checkout_source(tmp_path)


def test_all_types_of_properties_are_read() -> None:
    names = [
        "String",
        "Long",
        "Double",
        "Date",
        "Boolean",
        "Name",
        "Path",
        "Reference",
        "WeakReference",
        "URI",
        "Decimal",
    ]
    uuid = "0f0e0d0c-1111-4222-8333-444455556666"
    texts = ["a", "1", "1.5", "2026-01-02T03:04:05.678Z", "true", "a", "/a", uuid, uuid, "urn:x", "1.10"]
    attributes = " ".join(f'p{name}="{{{name}}}{text}"' for name, text in zip(names, texts, strict=True))
    found = read({"c/.content.xml": document(f"{UNSTRUCTURED} {attributes}")})["/c"]
    kinds = {property_.name: property_.type for property_ in found.properties}
    assert set(kinds.values()) == set(PropertyType) - {PropertyType.BINARY}
    assert [value(found, f"p{name}") for name in names] == texts
