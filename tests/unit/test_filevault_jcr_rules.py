"""What Oak refuses is refused when a package is written, with path and rule."""

from __future__ import annotations

import io
import re

import pytest
from mailboat.errors import UntrustedInputError
from mailboat.model.filters import FilterRule, FilterSet, WorkspaceFilter, filter_for
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.jcr_rules import reason_against_jcr_name
from mailboat.packages.filevault.xml_namespaces import KNOWN
from mailboat.packages.port import PackageContents

ROOT = NodePath("/content")
UUID = "0bb5a1f0-3f3b-4a5c-8f3e-0123456789ab"


def write(*nodes: Node, is_for_repositories: bool = True) -> None:
    contents = PackageContents(filter_for((), [nodes[0].path]), nodes, is_for_repositories=is_for_repositories)
    FilevaultCodec().write(contents, io.BytesIO())


@pytest.mark.parametrize(
    "name", ["a", "a b", "jcr:content", "a.b", "ä", "😀", "{x}", "{x}y", "{", "a'b", "sling:a b", "a\u2028b"]
)
def test_a_name_of_jcr_is_taken(name: str) -> None:
    assert reason_against_jcr_name(name, KNOWN) is None


def test_a_later_sibling_of_one_name_is_written_as_filevault_does() -> None:
    """Oak's importer leaves it out; without a first one the name is no sibling's, and would be lost."""
    kind, parent = "nt:unstructured", Node(ROOT, "nt:unstructured", child_order=("a", "a[2]", "b[2]"))
    first, later = Node(NodePath(f"{ROOT}/a"), kind), Node(NodePath(f"{ROOT}/a[2]"), kind)
    write(parent, first, later, Node(NodePath(f"{ROOT}/a[2]/x"), kind))
    for refused in ("b[2]", "a[1]", "a[0]"):
        with pytest.raises(UntrustedInputError, match=re.escape(f"{ROOT}/{refused}: its name is refused")):
            write(parent, first, Node(NodePath(f"{ROOT}/{refused}"), kind))


@pytest.mark.parametrize(
    "name",
    [
        "a[b].js",
        "a]b",
        "a*b",
        "a|b",
        "a:b:c",
        "x:",
        ":x",
        " lead",
        "trail ",
        "jcr: x",
        "a\tb",
        "1:a",
        "acme:a",
        "jcr:a:b",
        "{urn:x}y",
        "{internal}y",
        "{}y",
        "{}",
    ],
)
def test_a_name_that_jcr_does_not_know_is_refused_with_its_path(name: str) -> None:
    node = Node(NodePath(f"{ROOT}/{name}"), "nt:folder")
    with pytest.raises(UntrustedInputError, match="a JCR repository can't hold /content/") as caught:
        write(node)
    assert caught.value.where == {"path": node.path}


def test_names_are_not_judged_for_readers_of_our_own() -> None:
    write(Node(NodePath(f"{ROOT}/a*b"), "nt:unstructured"), is_for_repositories=False)


@pytest.mark.parametrize(
    ("kind", "value", "rule"),
    [
        (PropertyType.WEAK_REFERENCE, "x", "not a UUID"),
        (PropertyType.REFERENCE, f"{UUID}0", "not a UUID"),
        (PropertyType.DATE, "1582-10-07T00:00:00.000Z", "not in the calendar"),
        (PropertyType.DATE, "-12020-01-01T00:00:00.000Z", "not in the calendar"),
        (PropertyType.PATH, "../x", "the step"),
        (PropertyType.PATH, "a/./b", "the step"),
        (PropertyType.URI, "a b", "is not a URI"),
        (PropertyType.PATH, "/a//b", "an empty step"),
        (PropertyType.PATH, "/a*", "has '\\*'"),
        (PropertyType.NAME, "..", "it is '..'"),
        (PropertyType.NAME, "a|b", "has '\\|'"),
        (PropertyType.NAME, "", "it is empty"),
        (PropertyType.NAME, "{urn:x}", "a namespace in braces"),
        (PropertyType.NAME, "{urn:x}a|b", "has '\\|'"),
        (PropertyType.PATH, f"[{UUID}]", "has '\\['"),
    ],
)
def test_a_value_that_oak_refuses_is_refused(kind: PropertyType, value: str, rule: str) -> None:
    with pytest.raises(UntrustedInputError, match=f"a value of v is refused there, .*{rule}"):
        write(Node(ROOT, "nt:unstructured", (), (Property("v", (value,), kind),)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PropertyType.WEAK_REFERENCE, UUID),
        (PropertyType.DATE, "1582-10-15T00:00:00.000Z"),
        (PropertyType.PATH, "/a/b[2]/jcr:content"),
        (PropertyType.PATH, "/"),
        (PropertyType.NAME, "nt:file"),
        (PropertyType.NAME, "{urn:x}y"),
        (PropertyType.NAME, "{http://www.jcp.org/jcr/1.0}data"),
        (PropertyType.NAME, "{}y"),
        (PropertyType.PATH, "/{http://www.jcp.org/jcr/1.0}content/{urn:x}y/b"),
    ],
)
def test_a_value_that_oak_takes_is_taken(kind: PropertyType, value: str) -> None:
    write(Node(ROOT, "nt:unstructured", (), (Property("v", (value,), kind),)))


def test_child_that_the_built_in_type_above_does_not_take_is_refused() -> None:
    folder, child = Node(ROOT, "nt:folder"), NodePath(f"{ROOT}/a")
    data = Property("jcr:data", (Binary(b"x"),), PropertyType.BINARY)
    for above, below, reason in (
        (folder, Node(child, "nt:unstructured"), "the nt:folder above takes folders, files and pages"),
        (folder, Node(child, "nt:resource", (), (data,)), ".* but no nt:resource"),
        (Node(ROOT, "nt:file"), Node(child, "nt:unstructured"), "the nt:file above takes jcr:content only"),
        (Node(ROOT, "nt:resource", (), (data,)), Node(child, "nt:unstructured"), "the nt:resource above takes no"),
    ):
        with pytest.raises(UntrustedInputError, match=f"can't hold /content/a: {reason}"):
            write(above, below)


def test_child_that_the_type_above_may_take_is_written() -> None:
    child = NodePath(f"{ROOT}/a")
    write(Node(ROOT, "nt:folder"), Node(child, "cq:Page"), Node(NodePath(f"{child}/jcr:content"), "nt:unstructured"))
    write(Node(ROOT, "nt:folder", ("sling:Resource",)), Node(child, "nt:unstructured"))  # a mixin may allow it
    write(Node(ROOT, "sling:Folder"), Node(child, "nt:unstructured"))


DATA = Property("jcr:data", (Binary(b"x"),), PropertyType.BINARY)
TITLE = Property("jcr:title", ("x",))


def test_a_file_without_the_content_that_a_rule_leaves_out_is_refused() -> None:
    rules = (FilterRule(False, re.compile(".*/jcr:content(/.*)?")),)
    ruled, alone = WorkspaceFilter((FilterSet(ROOT, rules=rules),)), filter_for([ROOT], [])
    file = Node(ROOT, "nt:file")
    with pytest.raises(UntrustedInputError, match="an nt:file needs jcr:content"):
        FilevaultCodec().write(PackageContents(ruled, [file], is_for_repositories=True), io.BytesIO())
    FilevaultCodec().write(PackageContents(alone, [file], is_for_repositories=True), io.BytesIO())


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node(ROOT, "nt:resource"), "an nt:resource needs jcr:data"),
        (Node(ROOT, "oak:Resource"), "an oak:Resource needs jcr:data"),
        (Node(ROOT, "nt:linkedFile"), "an nt:linkedFile needs jcr:content"),
        (Node(ROOT, "nt:file"), "an nt:file needs jcr:content"),
        (Node(ROOT, "nt:file", ("mix:title",)), "an nt:file needs jcr:content"),
        (Node(ROOT, "nt:folder", (), (TITLE,)), "nt:folder does not allow the property jcr:title"),
        (Node(ROOT, "nt:folder", ("mix:title",), (Property("v", ("x",)),)), "nt:folder, mix:title does not allow"),
        (Node(ROOT, "nt:folder", ("mix:title",), (Property("jcr:title", ("x",), is_multiple=True),)), "not a list"),
        (Node(ROOT, "nt:folder", (), (Property("jcr:created", ("5",), PropertyType.LONG),)), "is of type DATE"),
        (Node(ROOT, "nt:folder", (), (Property("jcr:createdBy", ("me",), PropertyType.NAME),)), "is of type STRING"),
        (Node(ROOT, "nt:file", (), (DATA, Property("jcr:mimeType", ("x",)))), "nt:file does not allow"),
        (Node(ROOT, "nt:resource", (), (DATA, Property("jcr:lastModified", ("today",)))), "can't be 'today'"),
        (Node(ROOT, "nt:resource", (), (DATA, Property("jcr:uuid", ("x",)))), "jcr:uuid can't be 'x'"),
        (
            Node(ROOT, "nt:resource", (), (DATA, Property("jcr:encoding", ("1",), PropertyType.LONG))),
            "is of type STRING",
        ),
    ],
)
def test_what_a_built_in_type_does_not_allow_is_refused(node: Node, reason: str) -> None:
    with pytest.raises(UntrustedInputError, match=f"can't hold /content: .*{reason}") as caught:
        write(node)
    assert str(caught.value.next_step).startswith("change it in the source, leave its path out")


@pytest.mark.parametrize(
    "node",
    [
        Node(ROOT, "nt:file", (), (DATA,)),
        Node(ROOT, "nt:file", ("mix:title",), (DATA, TITLE)),
        Node(ROOT, "nt:file", ("acme", "mix:title"), (DATA, Property("v", ("x",)))),  # that mixin may allow it
        Node(ROOT, "nt:folder", (), (Property("jcr:created", ("x",)),)),  # protected, too
        Node(ROOT, "nt:folder", (), (Property("jcr:createdBy", ("me",)),)),  # protected, so the importer ignores it
        Node(ROOT, "nt:resource", (), (DATA, Property("jcr:uuid", (UUID,)), Property("jcr:encoding", ("utf-8",)))),
        Node(ROOT, "sling:Folder", (), (TITLE,)),
    ],
)
def test_what_a_built_in_type_allows_is_taken(node: Node) -> None:
    write(node)


def test_a_file_alone_may_have_its_content_in_the_repository() -> None:
    contents = PackageContents(filter_for([ROOT], []), [Node(ROOT, "nt:file")], is_for_repositories=True)
    FilevaultCodec().write(contents, io.BytesIO())


def test_an_access_control_list_is_taken_below_files_and_folders() -> None:
    policy = Node(NodePath(f"{ROOT}/rep:policy"), "rep:ACL")
    write(Node(ROOT, "nt:file", (), (DATA,)), policy)
    write(Node(ROOT, "nt:folder"), policy)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node(ROOT, "acme:Page"), "the prefix 'acme' has no namespace"),
        (Node(ROOT, "nt:unstructured", ("mix:[",)), "its type 'mix:"),
    ],
)
def test_a_type_that_can_not_be_is_refused(node: Node, reason: str) -> None:
    with pytest.raises(UntrustedInputError, match=f"can't hold /content: {reason}"):
        write(node)
