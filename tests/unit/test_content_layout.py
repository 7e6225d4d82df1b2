"""The form of a tree in a folder: names, sidecars, and hostile ones."""

from __future__ import annotations

import contextlib
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.content.binaries import named, with_binaries
from mailboat.content.disk_layout import (
    KEPT_AT_TOP,
    binary_file,
    is_binary_file,
    name_of_entry,
    name_on_disk,
    names_on_disk,
    read_sidecar,
    write_sidecar,
)
from mailboat.errors import MailboatError, PackageCorruptError, PathRefusedError
from mailboat.model.nodes import Node, Property, PropertyType
from mailboat.model.paths import ROOT, NodePath
from mailboat.testing.trees import ANY_TEXTS, TreeShape, a_full_node, names, nodes
from mailboat.wire.node_bodies import OpenBinary

HERE = NodePath("/content/here")
ODD_NAMES = st.sampled_from([".node.json", ".node.", ".node", ".mailboat", ".git", ".node.name.x", ".node.name.", "a"])


def never(digest: bytes) -> OpenBinary:
    """Opens nothing."""
    raise AssertionError(digest)


@given(st.one_of(names(), ODD_NAMES), st.booleans())
def test_a_name_comes_back_from_its_entry(name: str, is_at_top: bool) -> None:
    entry = name_on_disk(name, is_at_top=is_at_top)
    assert name_of_entry(entry, is_at_top=is_at_top) == name
    assert entry == name or name.startswith(".node.") or name in KEPT_AT_TOP


def test_only_the_first_name_is_at_the_top() -> None:
    assert names_on_disk(NodePath("/.git/.git")) == [".node.name..git", ".git"]
    assert names_on_disk(ROOT) == []


@pytest.mark.parametrize("entry", [".node.json", binary_file(b"\1" * 32)])
def test_entries_of_a_node_itself_are_no_content(entry: str) -> None:
    assert name_of_entry(entry) is None


@pytest.mark.parametrize(
    "entry", [".node.", ".node.x", ".node.name.", ".node.name.x", ".node.name..git", f".node.{'x' * 64}.bin"]
)
def test_reserved_names_that_no_target_writes_are_refused(entry: str) -> None:
    with pytest.raises(PathRefusedError, match=re.escape(f"'/srv/{entry}' has a reserved name: .node.*")):
        name_of_entry(entry, folder="/srv")


def test_the_top_keeps_some_names_for_itself() -> None:
    assert [name_of_entry(name, is_at_top=True) for name in sorted(KEPT_AT_TOP)] == [None] * len(KEPT_AT_TOP)
    assert [name_of_entry(name) for name in sorted(KEPT_AT_TOP)] == sorted(KEPT_AT_TOP)


def test_a_reserved_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(PathRefusedError, match="too long"):
        name_on_disk(".node." + "x" * 245)


def test_files_of_binaries_are_recognised() -> None:
    assert is_binary_file(binary_file(b"\xff" * 32))
    assert not is_binary_file(".node.json")
    assert not is_binary_file("x" * 74)


@given(nodes(HERE, TreeShape(texts=ANY_TEXTS)))
def test_a_node_comes_back_from_its_sidecar(node: Node) -> None:
    content = write_sidecar(node)
    assert read_sidecar(HERE, content, never) == node
    assert write_sidecar(with_binaries(node, named)) == content


@pytest.mark.parametrize("is_multiple", [False, True])
def test_weak_reference_is_written_and_read(is_multiple: bool) -> None:
    values = ("5f2d7c9c-0b4e-4a52-8a8e-2f6f0f6f2f0e",)
    node = Node(HERE, "nt:unstructured", properties=(Property("to", values, PropertyType.WEAK_REFERENCE, is_multiple),))
    content = write_sidecar(node)
    value = {"values": list(values)} if is_multiple else {"value": values[0]}
    assert json.loads(content)["properties"] == [{"name": "to", "type": "WEAK_REFERENCE", **value}]
    assert read_sidecar(HERE, content, never) == node


FIELDS = st.sampled_from(["primaryType", "properties", "name", "type", "value", "values", "childOrder", "mixinTypes"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["STRING", "BINARY"]),
    lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner),
)


@given(JSON)
def test_any_json_is_a_node_or_refused_with_its_path(document: object) -> None:
    with contextlib.suppress(PackageCorruptError):
        assert read_sidecar(HERE, json.dumps(document).encode(), never).path == HERE
        return
    with pytest.raises(PackageCorruptError, match="/content/here"):
        read_sidecar(HERE, json.dumps(document).encode(), never)


def broken(**changes: object) -> bytes:
    """A good sidecar with fields changed."""
    return json.dumps({"primaryType": "nt:x", **changes}).encode()


HOSTILE = {
    "lone surrogate": b'{"primaryType": "\\ud800"}',
    "not UTF-8": b'{"primaryType": "\xff"}',
    "deep": b'{"primaryType": ' + b"[" * 200_000,
    "a property twice": broken(properties=[{"name": "a", "type": "STRING", "value": "1"}] * 2),
    "an unknown type": broken(properties=[{"name": "a", "type": "GRAPH", "value": "1"}]),
    "a number": broken(properties=[{"name": "a", "type": "LONG", "value": 1}]),
    "no number": broken(properties=[{"name": "a", "type": "LONG", "value": "one"}]),
    "a slash": broken(properties=[{"name": "../a", "type": "STRING", "value": "1"}]),
    "a short digest": broken(properties=[{"name": "a", "type": "BINARY", "value": {"sha256": "00", "bytes": 1}}]),
    "a negative length": broken(
        properties=[{"name": "a", "type": "BINARY", "value": {"sha256": "00" * 32, "bytes": -1}}]
    ),
    "a length of less than -1": broken(
        properties=[{"name": "a", "type": "BINARY", "value": {"sha256": "00" * 32, "bytes": -2}}]
    ),
    "a negative length before another one": broken(
        properties=[
            {"name": "a", "type": "BINARY", "values": [{"sha256": "00" * 32, "bytes": n} for n in (-1, 5)]},
        ]
    ),
    "a truth value as length": broken(
        properties=[{"name": "a", "type": "BINARY", "value": {"sha256": "00" * 32, "bytes": True}}]
    ),
    "a path as order": broken(childOrder=["../x"]),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_sidecars_are_refused(content: bytes) -> None:
    with pytest.raises(MailboatError):
        read_sidecar(HERE, content, never)


def test_a_sidecar_is_written_for_people_to_read() -> None:
    lines = write_sidecar(a_full_node("/x")).decode().splitlines()
    assert lines[1] == ' "primaryType": "nt:unstructured",'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"name": "package", "private": true}', "it has no member 'primaryType'"),
        (b"not json", "it is not JSON"),
        (b"[]", "is not an object"),
        (broken(properties=[{"name": "a", "type": "GRAPH", "value": "1"}]), "'a' has the unknown type 'GRAPH'"),
        (broken(properties=[{"name": "a", "type": "STRING"}]), "it has no member 'value'"),
    ],
)
def test_foreign_sidecar_is_refused_with_its_file_and_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(PackageCorruptError, match=reason) as raised:
        read_sidecar(HERE, content, never)
    assert raised.value.message.startswith("/content/here/.node.json does not describe a node: ")
    assert "Error" not in raised.value.message
    assert "rename or remove /content/here/.node.json" in str(raised.value.next_step)


def test_name_that_is_not_utf_8_is_refused_with_its_bytes() -> None:
    entry = os.fsdecode(b"bad\xff.txt")
    with pytest.raises(PathRefusedError, match=r"the file name bad\\xff\.txt is not valid UTF-8, in /srv/site"):
        name_of_entry(entry, folder="/srv/site")
