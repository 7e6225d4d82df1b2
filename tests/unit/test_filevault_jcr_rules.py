"""What Oak refuses is refused when a package is written, with path and rule."""

from __future__ import annotations

import io

import pytest
from mailboat.errors import UsageError
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Node, Property, PropertyType
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.jcr_rules import reason_against_jcr_name
from mailboat.packages.filevault.namespaces import KNOWN
from mailboat.packages.port import PackageContents

ROOT = NodePath("/content")
UUID = "0bb5a1f0-3f3b-4a5c-8f3e-0123456789ab"


def write(node: Node, *, is_for_repositories: bool = True) -> None:
    contents = PackageContents(filter_for((), [node.path]), [node], is_for_repositories=is_for_repositories)
    FilevaultCodec().write(contents, io.BytesIO())


@pytest.mark.parametrize("name", ["a", "a b", "jcr:content", "a.b", "ä", "😀", "{x}", "a'b", "sling:a b", "a\u2028b"])
def test_a_name_of_jcr_is_taken(name: str) -> None:
    assert reason_against_jcr_name(name, KNOWN) is None


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
    ],
)
def test_a_name_that_jcr_does_not_know_is_refused_with_its_path(name: str) -> None:
    node = Node(NodePath(f"{ROOT}/{name}"), "nt:folder")
    with pytest.raises(UsageError, match="a JCR repository can't hold /content/") as caught:
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
        (PropertyType.PATH, "../x", "the step"),
        (PropertyType.PATH, ".", "the step"),
        (PropertyType.PATH, "/a//b", "an empty step"),
        (PropertyType.PATH, "/a*", "has '\\*'"),
        (PropertyType.NAME, "a|b", "has '\\|'"),
        (PropertyType.NAME, "", "it is empty"),
    ],
)
def test_a_value_that_oak_refuses_is_refused(kind: PropertyType, value: str, rule: str) -> None:
    with pytest.raises(UsageError, match=f"a value of v is refused there, .*{rule}"):
        write(Node(ROOT, "nt:unstructured", (), (Property("v", (value,), kind),)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PropertyType.WEAK_REFERENCE, UUID),
        (PropertyType.DATE, "1582-10-15T00:00:00.000Z"),
        (PropertyType.PATH, "/a/b[2]/jcr:content"),
        (PropertyType.PATH, "/"),
        (PropertyType.NAME, "nt:file"),
    ],
)
def test_a_value_that_oak_takes_is_taken(kind: PropertyType, value: str) -> None:
    write(Node(ROOT, "nt:unstructured", (), (Property("v", (value,), kind),)))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node(ROOT, "acme:Page"), "the prefix 'acme' has no namespace"),
        (Node(ROOT, "nt:unstructured", ("mix:[",)), "its type 'mix:"),
    ],
)
def test_a_type_that_can_not_be_is_refused(node: Node, reason: str) -> None:
    with pytest.raises(UsageError, match=f"can't hold /content: {reason}"):
        write(node)
