"""Nodes, binaries, the order of children, and changes."""

from __future__ import annotations

import hashlib
import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import UsageError
from mailboat.model.changes import ChangeCount
from mailboat.model.identifiers import PackageId, SlingId, parse_agent_name, parse_request_id, parse_topic_name
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.nodes import (
    Binary,
    Node,
    Property,
    PropertyType,
    file_node,
    folder_node,
    ordered_names,
)
from mailboat.model.paths import NodePath

PATH = NodePath("/a")


def test_a_binary_is_its_content_wherever_that_is() -> None:
    inline = Binary(b"hello")
    named = Binary(digest=hashlib.sha256(b"hello").digest(), length_bytes=5, opener=lambda: io.BytesIO(b"hello"))
    assert inline == named
    assert hash(inline) == hash(named)
    assert inline.open().read() == named.open().read() == b"hello"
    assert inline != Binary(b"other")
    assert inline != b"hello"
    assert repr(named) == "Binary(2cf24dba5fb0…, 5 bytes)"


def test_a_digest_that_no_one_told_is_that_of_the_content_read_once_when_it_is_asked_for() -> None:
    opened = []

    def open_it() -> io.BytesIO:
        opened.append(1)
        return io.BytesIO(b"hello")

    late = Binary(length_bytes=5, opener=open_it)
    assert repr(late) == "Binary(not read yet, 5 bytes)"
    assert (late.is_digest_known, opened) == (False, [])
    assert late.digest == late.digest == hashlib.sha256(b"hello").digest()
    assert (late.is_digest_known, opened) == (True, [1])


def test_who_reads_the_content_tells_the_digest_and_spares_a_reading() -> None:
    told = Binary(length_bytes=5, opener=lambda: pytest.fail("it is read again"))
    told.tell_digest(hashlib.sha256(b"hello").digest())
    assert told == Binary(b"hello")


def test_a_binary_needs_its_data_or_its_name_and_length() -> None:
    with pytest.raises(ValueError, match="needs"):
        Binary(digest=bytes(32))
    with pytest.raises(ValueError, match="needs"):
        Binary(length_bytes=1)


def test_the_digest_of_nothing_is_known_too() -> None:
    assert Binary(b"").digest == hashlib.sha256(b"").digest()


def test_a_plain_file_is_a_file_and_nothing_else() -> None:
    plain = file_node(PATH, Binary(b"x"))
    assert plain.is_plain_file
    assert plain.data == Binary(b"x")
    assert not Node(PATH, "nt:file", ("mix:title",), plain.properties).is_plain_file
    assert not Node(PATH, "nt:file", (), (*plain.properties, Property("z", ("1",)))).is_plain_file
    assert not Node(PATH, "nt:resource", (), plain.properties).is_plain_file
    assert Node(PATH, "nt:file").data is None
    assert Node(PATH, "nt:file", (), (Property("jcr:data", ("text",)),)).data is None
    many = Property("jcr:data", (Binary(b"x"),), PropertyType.BINARY, is_multiple=True)
    assert Node(PATH, "nt:file", (), (many,)).data is None


def test_a_plain_folder_is_a_folder_and_nothing_else() -> None:
    assert folder_node(PATH).is_plain_folder
    assert not Node(PATH, "nt:folder", ("mix:title",)).is_plain_folder
    assert not Node(PATH, "nt:folder", child_order=()).is_plain_folder
    assert not Node(PATH, "nt:folder", properties=(Property("a", ("1",)),)).is_plain_folder
    assert not Node(PATH, "sling:Folder").is_plain_folder


def test_a_property_is_found_by_name() -> None:
    node = Node(PATH, "nt:unstructured", (), (Property("a", ("1",)), Property("b", ("2",))))
    assert node.find("b") == Property("b", ("2",))
    assert node.find("c") is None


def test_named_children_come_first_and_the_others_by_name() -> None:
    assert ordered_names(("z", "gone", "m"), ["a", "m", "z", "b"]) == ["z", "m", "a", "b"]
    assert ordered_names(None, ["b", "a"]) == ["a", "b"]
    assert ordered_names((), ["b", "a"]) == ["a", "b"]


@given(st.lists(st.text(max_size=3), unique=True), st.lists(st.text(max_size=3), unique=True))
def test_an_order_loses_and_invents_no_one(order: list[str], present: list[str]) -> None:
    assert sorted(ordered_names(order, present)) == sorted(present)


def test_counts_of_changes_add_up() -> None:
    assert ChangeCount(1, 2, 3) + ChangeCount(10, 20, 30) == ChangeCount(11, 22, 33)


def test_a_message_tells_when_it_was_made() -> None:
    message = PackageMessage(SlingId("s"), PackageId("p"), Action.TEST, "tree", created_ms=1_767_225_600_500)
    assert message.created_at == datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert message._replace(created_ms=None).created_at is None


@pytest.mark.parametrize("name", ["a", "edge-1", "A.b_c", "a" * 63])
def test_an_agent_name_that_can_be(name: str) -> None:
    assert parse_agent_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "a" * 64, "a b", "a/b", "ä", "a\n"])
def test_an_agent_name_that_can_not_be(name: str) -> None:
    with pytest.raises(UsageError, match="agent name"):
        parse_agent_name(name)


def test_request_ids_and_topic_names() -> None:
    assert parse_request_id("r/1") == "r/1"
    assert parse_topic_name("shop-package") == "shop-package"
    for wrong in ("", "a b", "a" * 201, "ä"):
        with pytest.raises(UsageError, match="request id"):
            parse_request_id(wrong)
    for wrong in ("", "a b", "a" * 250, ".", "..", "a/b"):
        with pytest.raises(UsageError, match="topic name"):
            parse_topic_name(wrong)
