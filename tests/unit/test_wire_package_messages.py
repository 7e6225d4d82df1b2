"""Package messages: plain ones are taken by few fields, and by the same rules as all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.clock import LAST_MS
from mailboat.errors import MessageCorruptError, PathRefusedError
from mailboat.model.messages import Action
from mailboat.testing.examples import examples
from mailboat.wire._generated import messages_pb2 as pb
from mailboat.wire.package_messages import PlainPackage, decode_package, may_be_part, take_plain_package

Edit = Callable[[pb.PackageMessage], object]

DIGEST = bytes(range(32))


def plain() -> pb.PackageMessage:
    return pb.PackageMessage(
        pub_sling_id="id",
        pub_agent_name="author",
        pkg_id="p1",
        req_type=pb.PackageMessage.ADD,
        pkg_length=3,
        pkg_binary=b"abc",
        paths=["/content/é"],
        deep_paths=["/content/é"],
        pkg_type="tree",
        package_digest=DIGEST,
        tree_digest=DIGEST,
        created_ms=1,
    )


def test_a_plain_package_is_taken() -> None:
    assert take_plain_package(plain().SerializeToString()) == PlainPackage(
        "/content/é", b"abc", DIGEST, "tree", "author"
    )


def test_a_part_of_a_build_without_publisher_and_content_is_as_plain() -> None:
    message = plain()
    message.bulk.CopyFrom(pb.BulkPart(build_id="b-1", sequence=0, total=1))
    message.pkg_binary = b""
    message.ClearField("pub_agent_name")
    assert take_plain_package(message.SerializeToString()) == PlainPackage("/content/é", b"", DIGEST, "tree", "")


OTHERS: dict[str, Edit] = {
    "removes": lambda m: setattr(m, "req_type", pb.PackageMessage.DELETE),
    "says nothing": lambda m: setattr(m, "req_type", pb.PackageMessage.TEST),
    "lies in the blob store": lambda m: m.ClearField("pkg_binary"),
    "has no digest": lambda m: m.ClearField("package_digest"),
    "names two paths": lambda m: m.paths.append("/other"),
    "names no path": lambda m: m.ClearField("paths"),
    "is shallow": lambda m: m.ClearField("deep_paths"),
    "is deep elsewhere": lambda m: m.deep_paths.__setitem__(0, "/other"),
    "needs a blob": lambda m: m.blobs.append(pb.BlobReference(digest=DIGEST, length=1)),
    "needs a feature": lambda m: m.required_features.append("new"),
}
REFUSED: dict[str, Edit] = {
    "short digest": lambda m: setattr(m, "package_digest", DIGEST[1:]),
    "short digest of the tree": lambda m: setattr(m, "tree_digest", DIGEST[1:]),
    "length below zero": lambda m: setattr(m, "pkg_length", -1),
    "made before 1970": lambda m: setattr(m, "created_ms", -1),
    "made after 9999": lambda m: setattr(m, "created_ms", LAST_MS + 1),
    "no publisher's id": lambda m: m.ClearField("pub_sling_id"),
    "no format": lambda m: m.ClearField("pkg_type"),
    "part beyond its build": lambda m: m.bulk.CopyFrom(pb.BulkPart(build_id="b", sequence=1, total=1)),
    "build without a name": lambda m: m.bulk.CopyFrom(pb.BulkPart(build_id="", sequence=0, total=1)),
}


@pytest.mark.parametrize("edit", OTHERS.values(), ids=OTHERS)
def test_a_package_of_another_kind_is_left_to_who_decodes_it(edit: Edit) -> None:
    message = plain()
    edit(message)
    value = message.SerializeToString()
    decode_package(value)  # it is right
    assert take_plain_package(value) is None


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_what_decoding_refuses_is_not_taken(edit: Edit) -> None:
    message = plain()
    edit(message)
    value = message.SerializePartialToString()
    with pytest.raises(MessageCorruptError):
        decode_package(value)
    assert take_plain_package(value) is None


def test_bytes_that_are_no_message_are_not_taken() -> None:
    assert take_plain_package(b"\xff") is None


@given(st.data())
@settings(deadline=None, max_examples=examples(200))
def test_what_is_taken_is_what_decoding_gives(data: st.DataObject) -> None:
    value = bytearray(plain().SerializeToString())
    for _ in range(data.draw(st.integers(0, 2))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    package = take_plain_package(bytes(value))
    if package is None:
        return
    try:
        message = decode_package(bytes(value))
    except PathRefusedError:  # the one rule that is asked of all paths of a batch together
        return
    assert message.action is Action.ADD
    assert message.paths == message.deep_paths == (package.path,)
    assert (message.payload, message.package_digest) == (package.payload, package.digest)
    assert (message.package_type, message.pub_agent_name or "") == (package.package_type, package.pub_agent_name)


@given(st.lists(st.sampled_from([b"\xe2", b"\x01", b"a"])).map(b"".join))
@settings(deadline=None)
def test_a_message_may_be_a_part_where_the_tag_of_its_field_stands_in_it(value: bytes) -> None:
    assert may_be_part(value) == (b"\xe2\x01" in value)
    assert may_be_part(pb.PackageMessage(bulk=pb.BulkPart(sequence=1)).SerializePartialToString())
