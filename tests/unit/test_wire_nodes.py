"""Node bodies: their bytes by hand, both ways, and what is refused so that all that was accepted can be decoded."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import PackageCorruptError, UntrustedInputError
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType, file_node, folder_node
from mailboat.model.paths import NodePath
from mailboat.testing.examples import examples
from mailboat.testing.trees import ANY_TEXTS, TreeShape, a_full_node, a_page, large_binary, nodes, sample_tree
from mailboat.wire import shapes
from mailboat.wire._generated import tree_pb2
from mailboat.wire.node_bodies import MAX_NAME_LENGTH, body_digest, decode_node, encode_node, node_digest
from mailboat.wire.tree_records import encode_node_record
from support.handmade import data, number, packed, text

PATH = NodePath("/content/a")
LARGE = large_binary()


def body(shape: bytes, *rest: bytes) -> bytes:
    return data(1, shape) + b"".join(rest)


# Nodes, and their bodies by hand.
BODIES: dict[str, tuple[Node, bytes]] = {
    "a folder": (folder_node(PATH), body(text(1, "nt:folder"))),
    "a file": (
        file_node(PATH, Binary(b"hello")),
        body(text(1, "nt:file") + text(6, "jcr:data"), data(3, data(1, b"hello"))),
    ),
    "an empty file": (
        file_node(PATH, Binary(b"")),
        body(text(1, "nt:file") + text(6, "jcr:data"), data(3, data(1, b""))),
    ),
    "a large file": (
        file_node(PATH, LARGE),
        body(
            text(1, "nt:file") + text(6, "jcr:data"),
            data(3, data(1, LARGE.digest) + packed(2, LARGE.length_bytes + 1)),
        ),
    ),
    "single texts": (
        Node(PATH, "cq:Page", ("mix:a", "mix:b"), (Property("a", ("1",)), Property("ä", ("",)))),
        body(text(1, "cq:Page") + text(2, "mix:a") + text(2, "mix:b") + text(4, "a") + text(4, "ä")).replace(
            text(4, "a") + text(4, "ä"), text(3, "a") + text(3, "ä")
        )
        + text(2, "1")
        + text(2, ""),
    ),
    "types": (
        Node(
            PATH,
            "nt:unstructured",
            (),
            (
                Property("at", ("true",), PropertyType.BOOLEAN),
                Property("b", ("x",)),
                Property("n", ("-7",), PropertyType.LONG),
            ),
        ),
        body(
            text(1, "nt:unstructured") + text(3, "at") + text(3, "b") + text(3, "n") + packed(4, 6, 1, 3),
            text(2, "true"),
            text(2, "x"),
            text(2, "-7"),
        ),
    ),
    "multiple values": (
        Node(
            PATH,
            "nt:unstructured",
            (),
            (
                Property("a", ("1",)),
                Property("m", ("x", "y"), is_multiple=True),
                Property("none", (), is_multiple=True),
            ),
        ),
        body(
            text(1, "nt:unstructured") + text(3, "a") + text(3, "m") + text(3, "none") + packed(5, 0, 3, 1),
            text(2, "1"),
            text(2, "x"),
            text(2, "y"),
        ),
    ),
    "binaries of both kinds": (
        Node(
            PATH,
            "nt:unstructured",
            (),
            (Property("b", (Binary(b"in"), LARGE), PropertyType.BINARY, is_multiple=True), Property("t", ("x",))),
        ),
        body(
            text(1, "nt:unstructured") + text(3, "t") + text(6, "b") + packed(7, 3),
            text(2, "x"),
            data(3, data(1, b"in") + data(1, LARGE.digest) + packed(2, 0, LARGE.length_bytes + 1)),
        ),
    ),
    "no values of a multiple binary": (
        Node(PATH, "nt:unstructured", (), (Property("b", (), PropertyType.BINARY, is_multiple=True),)),
        body(text(1, "nt:unstructured") + text(6, "b") + packed(7, 1)),
    ),
    "an order": (
        Node(PATH, "nt:unstructured", child_order=("z", "a")),
        body(text(1, "nt:unstructured"), data(4, text(1, "z") + text(1, "a"))),
    ),
    "an order that names nobody": (
        Node(PATH, "nt:unstructured", child_order=()),
        body(text(1, "nt:unstructured"), data(4, b"")),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_node_has_the_bytes_of_its_field_numbers(name: str) -> None:
    node, expected = BODIES[name]
    assert encode_node(node).body == expected


@pytest.mark.parametrize("name", BODIES)
def test_the_bytes_are_that_node(name: str) -> None:
    node, encoded = BODIES[name]
    assert decode_node(PATH, encoded) == node


def test_binaries_outside_are_handed_along() -> None:
    node, _ = BODIES["binaries of both kinds"]
    assert encode_node(node).binaries == (LARGE,)
    decoded = decode_node(PATH, encode_node(node).body, lambda digest: {LARGE.digest: LARGE}[digest].open())
    outside = decoded.properties[0].values[1]
    assert isinstance(outside, Binary)
    assert outside.open().read() == LARGE.open().read()


def test_a_binary_that_no_one_can_open_says_so() -> None:
    decoded = decode_node(PATH, BODIES["a large file"][1])
    assert decoded.data is not None
    with pytest.raises(ValueError, match="by digest only"):
        decoded.data.open()


def test_properties_and_mixins_in_any_order_have_the_same_bytes() -> None:
    node = a_full_node(PATH)
    turned = Node(node.path, node.primary_type, node.mixin_types[::-1], node.properties[::-1], node.child_order)
    assert encode_node(turned) == encode_node(node)


@settings(deadline=None, max_examples=examples(150))
@given(nodes(PATH, TreeShape(texts=ANY_TEXTS)))
def test_every_node_comes_back(node: Node) -> None:
    record = encode_node(node)
    assert decode_node(PATH, record.body) == node
    assert encode_node(decode_node(PATH, record.body)).body == record.body
    assert body_digest(record.path, record.body) == node_digest(node)


@pytest.mark.parametrize("node", sample_tree(), ids=lambda node: node.path)
def test_the_digest_does_not_depend_on_where_the_binaries_are(node: Node) -> None:
    def elsewhere(one: Property) -> Property:
        if one.type is not PropertyType.BINARY:
            return one
        held = [value for value in one.values if isinstance(value, Binary)]
        named = tuple(Binary(digest=value.digest, length_bytes=value.length_bytes) for value in held)
        return Property(one.name, named, one.type, one.is_multiple)

    moved = Node(
        node.path, node.primary_type, node.mixin_types, tuple(map(elsewhere, node.properties)), node.child_order
    )
    assert node_digest(moved) == node_digest(node)
    assert body_digest(moved.path, encode_node(moved).body) == body_digest(node.path, encode_node(node).body)


def test_the_digest_is_that_of_the_body_with_all_binaries_named() -> None:
    named = body(
        text(1, "nt:file") + text(6, "jcr:data"),
        data(3, data(1, hashlib.sha256(b"hello").digest()) + packed(2, 6)),
    )
    assert node_digest(BODIES["a file"][0]) == hashlib.sha256(named).digest()


# ----------------------------------------------------------------------------------------------------------- refused

PRIMARY = text(1, "nt:unstructured")
LONG_NAME = "n" * (MAX_NAME_LENGTH + 1)

REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not a name"),
    "no primary type": (body(text(3, "a")) + text(2, "x"), "not a name"),
    "an empty shape": (body(b""), "not a name"),
    "a shape that is not protobuf": (body(b"\xff"), "shape"),
    "a shape with an unknown field": (body(PRIMARY + text(99, "x")), "unknown"),
    "a shape whose fields are out of order": (body(text(3, "a") + PRIMARY) + text(2, "x"), "unknown form"),
    "a shape with a length in two bytes": (body(b"\x0a\x89\x00nt:folder"), "unknown form"),
    "a primary type with a slash": (body(text(1, "nt/x")), "not a name"),
    "a primary type with a control character": (body(text(1, "nt\nx")), "not a name"),
    "a primary type that is too long": (body(text(1, LONG_NAME)), "not a name"),
    "a mixin without a name": (body(PRIMARY + text(2, "")), "not a name"),
    "mixins out of order": (body(PRIMARY + text(2, "b") + text(2, "a")), "not sorted"),
    "a mixin twice": (body(PRIMARY + text(2, "a") + text(2, "a")), "duplicated"),
    "a property without a name": (body(PRIMARY + text(3, "")) + text(2, "x"), "not a name"),
    "a property with a slash": (body(PRIMARY + text(3, "a/b")) + text(2, "x"), "not a name"),
    "a property name that is too long": (body(PRIMARY + text(3, LONG_NAME)) + text(2, "x"), "not a name"),
    "properties out of order": (body(PRIMARY + text(3, "b") + text(3, "a"), text(2, "1"), text(2, "2")), "not sorted"),
    "a property twice": (body(PRIMARY + text(3, "a") + text(3, "a"), text(2, "1"), text(2, "2")), "duplicated"),
    "the primary type among the properties": (body(PRIMARY + text(3, "jcr:primaryType")) + text(2, "x"), "external"),
    "the mixins among the binaries": (body(PRIMARY + text(6, "jcr:mixinTypes"), data(3, data(1, b""))), "external"),
    "a property that is text and binary": (
        body(PRIMARY + text(3, "a") + text(6, "a"), text(2, "x"), data(3, data(1, b""))),
        "both",
    ),
    "a value too few": (body(PRIMARY + text(3, "a")), "0 values for 1"),
    "a value too many": (body(PRIMARY + text(3, "a"), text(2, "1"), text(2, "2")), "2 values for 1"),
    "types for nobody": (body(PRIMARY + packed(4, 3)), "one for each"),
    "types that say nothing": (body(PRIMARY + text(3, "a") + packed(4, 1)) + text(2, "x"), "one for each"),
    "a type too few": (
        body(PRIMARY + text(3, "a") + text(3, "b") + packed(4, 3), text(2, "1"), text(2, "2")),
        "one for each",
    ),
    "an unknown type": (body(PRIMARY + text(3, "a") + packed(4, 13)) + text(2, "x"), "unknown type 13"),
    "a type below zero": (body(PRIMARY + text(3, "a") + packed(4, -1)) + text(2, "x"), "unknown type -1"),
    "a binary among the texts": (body(PRIMARY + text(3, "a") + packed(4, 2)) + text(2, "x"), "unknown type 2"),
    "types that are not packed": (body(PRIMARY + text(3, "a") + number(4, 3)) + text(2, "1"), "unknown form"),
    "counts that say nothing": (body(PRIMARY + text(3, "a") + packed(5, 0)) + text(2, "x"), "one for each"),
    "a count below zero": (
        body(PRIMARY + text(3, "a") + text(3, "b") + packed(5, -1, 4), text(2, "1")),
        "one for each",
    ),
    "a count of everything": (body(PRIMARY + text(3, "a") + packed(5, 2**31 - 1)), "0 values for"),
    "a long that is none": (body(PRIMARY + text(3, "a") + packed(4, 3)) + text(2, "forty-two"), "LONG"),
    "a long that is not canonical": (body(PRIMARY + text(3, "a") + packed(4, 3)) + text(2, "007"), "canonical form"),
    "a date that never was": (
        body(PRIMARY + text(3, "a") + packed(4, 5)) + text(2, "2026-02-30T00:00:00.000Z"),
        "DATE",
    ),
    "a text that is not UTF-8": (body(PRIMARY + text(3, "a")) + data(2, b"\xff"), "UTF-8|Error parsing"),
    "binaries that the shape does not say": (body(PRIMARY) + data(3, data(1, b"x")), "binaries"),
    "no binaries where the shape says some": (body(PRIMARY + text(6, "b")), "binaries"),
    "an empty list of binaries": (body(PRIMARY) + data(3, b""), "binaries"),
    "a binary too many": (body(PRIMARY + text(6, "b")) + data(3, data(1, b"") + data(1, b"")), "2 binaries for 1"),
    "lengths that say nothing": (body(PRIMARY + text(6, "b")) + data(3, data(1, b"x") + packed(2, 0)), "lengths"),
    "a length too many": (body(PRIMARY + text(6, "b")) + data(3, data(1, bytes(32)) + packed(2, 1, 1)), "lengths"),
    "a length below zero": (body(PRIMARY + text(6, "b")) + data(3, data(1, bytes(32)) + packed(2, -1)), "lengths"),
    "a digest that is too short": (
        body(PRIMARY + text(6, "b")) + data(3, data(1, bytes(31)) + packed(2, 9)),
        "SHA-256",
    ),
    "an order with a slash": (body(PRIMARY) + data(4, text(1, "a/b")), "slash"),
    "an order with a name that can't be": (body(PRIMARY) + data(4, text(1, "..")), "not allowed"),
    "an order that names one twice": (body(PRIMARY) + data(4, text(1, "a") + text(1, "a")), "twice"),
    "something that is not protobuf": (b"\xff\xff\xff", "protobuf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_writer_makes_is_refused_with_the_path_and_the_reason(name: str) -> None:
    encoded, reason = REFUSED[name]
    with pytest.raises(PackageCorruptError, match=reason) as caught:
        decode_node(PATH, encoded)
    assert caught.value.where["path"] == PATH


@pytest.mark.parametrize(("value", "is_read"), [("-0", True), ("-0.00", True), ("-05", False), ("--0", False)])
def test_negative_zeros_of_earlier_versions_are_read_as_they_are(value: str, is_read: bool) -> None:
    encoded = body(PRIMARY + text(3, "a") + packed(4, PropertyType.DECIMAL)) + text(2, value)
    if is_read:
        assert decode_node(PATH, encoded).properties == (Property("a", (value,), PropertyType.DECIMAL),)
    else:
        with pytest.raises(PackageCorruptError):
            decode_node(PATH, encoded)


@settings(deadline=None, max_examples=examples(300))
@given(
    st.data(), st.sampled_from([encode_node(node).body for node in sample_tree() if len(encode_node(node).body) < 5000])
)
def test_a_mutilated_body_is_refused_or_can_be_decoded_and_has_one_digest(draw: st.DataObject, encoded: bytes) -> None:
    changed = bytearray(encoded)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    try:
        node = decode_node(PATH, bytes(changed))
    except UntrustedInputError:
        return
    assert decode_node(PATH, encode_node(node).body) == node


def test_many_shapes_are_not_all_remembered() -> None:
    for index in range(3000):
        decode_node(PATH, encode_node(a_page(PATH, None, **{f"name{index}": "x"})).body)
    for remembered in (shapes._remembered_shape, shapes._remembered_encoding):
        assert remembered.cache_info().currsize <= 1024
    before = shapes._remembered_shape.cache_info().currsize
    wide = a_page(PATH, None, **{f"{index}" * 100: "x" for index in range(100)})
    assert decode_node(PATH, encode_node(wide).body) == wide
    assert shapes._remembered_shape.cache_info().currsize == before


def test_a_record_is_a_tuple_of_path_body_and_binaries() -> None:
    assert NodeRecord(PATH, b"") == (PATH, b"", (), False)


@pytest.mark.parametrize("size", [2, 0x7F, 0x80, 300])
@pytest.mark.parametrize("length", [0x7F, 0x80, 0x4000 - 0x80 - 6, 0x4000 - 0x80 - 5, 0x3FFF, 0x4000, 0x20_0000])
def test_the_record_of_a_node_is_what_protobuf_writes(size: int, length: int) -> None:
    path, body = "/" + "p" * (size - 1), b"b" * length
    package = tree_pb2.OpaquePackage(node=[tree_pb2.OpaqueNode(path=path, body=body)])
    assert encode_node_record(path, body) == package.SerializeToString()
