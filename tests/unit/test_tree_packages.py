"""Packages of the `tree` format by hand: what they hold, what is refused, and that both ways to read agree."""

from __future__ import annotations

import hashlib
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import (
    LimitExceededError,
    MailboatError,
    PackageCorruptError,
    PathRefusedError,
    SourceChangedError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
    UsageError,
)
from mailboat.model.changes import Subtrees, TreeChange
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType, file_node
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageContents, PackageLimits
from mailboat.packages.tree import MAX_AT_ONCE_BYTES, TreeCodec
from mailboat.packages.tree_order import RECENT_NAMES, SiblingNames
from mailboat.testing.handmade import data, number, text, varint
from mailboat.testing.trees import a_file, a_folder, a_page, large_binary, sample_tree
from mailboat.wire._generated.tree_pb2 import TreeBinaryPiece
from mailboat.wire.nodes import encode_node
from mailboat.wire.tree import MAX_RECORD_BYTES, PIECE_BYTES, decode_piece, encode_piece

CODEC = TreeCodec()
LIMITS = PackageLimits()
FOLDER = data(1, text(1, "nt:folder"))
ROOT = NodePath("/c")


# ------------------------------------------------------------------------------------------------------------ by hand


def header(*filters: bytes, version: int = 1, ancestors: bytes = b"") -> bytes:
    return data(1, number(1, version) + b"".join(data(2, one) for one in filters or (text(1, "/c"),)) + ancestors)


def node(path: str, body: bytes = FOLDER) -> bytes:
    return data(2, text(1, path) + data(2, body))


def ancestor(path: str, body: bytes = FOLDER) -> bytes:
    return data(3, text(1, path) + data(2, body))


def piece(content: bytes, *, is_last: bool = True) -> bytes:
    return data(3, data(1, content) + (number(2, 1) if is_last else b""))


def large_file(content: bytes) -> bytes:
    """The body of a file that names its content."""
    named = data(1, hashlib.sha256(content).digest()) + data(2, varint(len(content) + 1))
    return data(1, text(1, "nt:file") + text(6, "jcr:data")) + data(3, named)


def package(*records: bytes, count: int | None = None) -> bytes:
    """The records, and the trailer that belongs behind them."""
    before = b"".join(records)
    nodes = sum(record[:1] == b"\x12" for record in records) if count is None else count
    return before + data(15, number(1, nodes) + data(2, hashlib.sha256(before).digest()))


def read_at_once(payload: bytes, limits: PackageLimits = LIMITS, *, are_bytes_checked: bool = False) -> TreeChange:
    return CODEC.read_bytes(payload, limits, None, are_bytes_checked=are_bytes_checked)


def read_as_stream(payload: bytes, limits: PackageLimits = LIMITS, *, are_bytes_checked: bool = False) -> TreeChange:
    reader = CODEC.open(io.BytesIO(payload), limits, None, are_bytes_checked=are_bytes_checked)
    change = reader.change()
    records = list(change.records)
    reader.close()
    assert change.filter == reader.filter
    return TreeChange(change.filter, records)


BOTH = pytest.mark.parametrize("read", [read_at_once, read_as_stream])


def written(contents: PackageContents) -> bytes:
    into = io.BytesIO()
    CODEC.write(contents, into)
    return into.getvalue()


# ------------------------------------------------------------------------------------------------------------- format


def test_a_package_has_the_bytes_of_its_field_numbers() -> None:
    contents = PackageContents(
        filter_for([NodePath("/x/alone")], [NodePath("/x/deep")]),
        [a_folder("/x/alone"), a_folder("/x/deep"), a_file("/x/deep/a.txt", b"hello")],
        (a_folder("/x"),),
    )
    file = data(1, text(1, "nt:file") + text(6, "jcr:data")) + data(3, data(1, b"hello"))
    expected = package(
        header(text(1, "/x/alone") + number(2, 1), text(1, "/x/deep"), ancestors=ancestor("/x")),
        node("/x/alone"),
        node("/x/deep"),
        node("/x/deep/a.txt", file),
    )
    assert written(contents) == expected


@BOTH
def test_the_bytes_are_that_package(read) -> None:  # type: ignore[no-untyped-def]
    payload = package(
        header(text(1, "/x/alone") + number(2, 1), text(1, "/x/deep"), ancestors=ancestor("/x")),
        node("/x/alone"),
        node("/x/deep"),
    )
    change = read(payload)
    assert change.filter == filter_for([NodePath("/x/alone")], [NodePath("/x/deep")])
    assert change.records == [NodeRecord(NodePath(path), FOLDER) for path in ("/x", "/x/alone", "/x/deep")]


@BOTH
def test_rules_and_modes_of_filters_come_along(read) -> None:  # type: ignore[no-untyped-def]
    rules = (FilterRule(True, re.compile("/c/.*", re.ASCII)), FilterRule(False, re.compile("/c/a.*", re.ASCII)))
    own = (FilterRule(False, re.compile("/c/[^/]*/cq:.*", re.ASCII), True),)
    wanted = WorkspaceFilter(
        (
            FilterSet(NodePath("/c"), False, rules, own, ImportMode.MERGE_PROPERTIES),
            FilterSet(NodePath("/d"), True, mode=ImportMode.UPDATE_PROPERTIES),
            FilterSet(NodePath("/e")),
        )
    )
    payload = written(PackageContents(wanted, [a_folder("/c/b"), a_folder("/e")]))
    inner = (
        data(1, number(1, 1) + text(2, "/c/.*"))
        + data(1, text(2, "/c/a.*"))
        + data(2, text(2, "/c/[^/]*/cq:.*"))
        + text(3, "merge_properties")
    )
    update = text(1, "/d") + number(2, 1) + data(3, text(3, "update_properties"))
    assert payload == package(header(text(1, "/c") + data(3, inner), update, text(1, "/e")), node("/c/b"), node("/e"))
    assert read(payload).filter == wanted


def test_a_large_binary_travels_in_full_pieces_before_its_node() -> None:
    content = bytes(range(251)) * 5000
    carried = Binary(
        digest=hashlib.sha256(content).digest(), length_bytes=len(content), opener=lambda: io.BytesIO(content)
    )
    payload = written(PackageContents(filter_for([], [ROOT]), [file_node(ROOT, carried)], is_self_contained=True))
    pieces = [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
    assert len(pieces) == 3
    expected = [piece(one, is_last=index == 2) for index, one in enumerate(pieces)]
    assert payload == package(header(), *expected, node("/c", large_file(content)))
    for change in (read_at_once(payload), read_as_stream(payload)):
        assert [binary.open().read() for record in change.records for binary in record.binaries] == [content]


def test_a_binary_that_a_node_names_twice_travels_once() -> None:
    large = large_binary()
    twice = Node(ROOT, "nt:unstructured", (), (Property("b", (large, large), PropertyType.BINARY, is_multiple=True),))
    payload = written(PackageContents(filter_for([], [ROOT]), [twice], is_self_contained=True))
    assert len(payload) < large.length_bytes * 1.1
    (record,) = read_as_stream(payload).records
    assert [binary.open().read() for binary in record.binaries] == [large.open().read()] * 2


def test_a_node_of_many_small_binaries_fits_a_record() -> None:
    small = [Binary(bytes([index % 256]) * 60_000) for index in range(300)]
    crowded = Node(ROOT, "nt:unstructured", (), (Property("b", tuple(small), PropertyType.BINARY, is_multiple=True),))
    payload = written(PackageContents(filter_for([], [ROOT]), [crowded]))
    assert len(payload) > MAX_RECORD_BYTES
    (record,) = read_as_stream(payload).records
    assert len(record.body) < MAX_RECORD_BYTES / 3
    outside = {binary.digest: binary.open().read() for binary in record.binaries}
    assert outside == {one.digest: one.data for one in small[69:]}


def test_a_large_package_in_memory_is_read_record_by_record() -> None:
    tree = [a_folder("/c"), *(a_file(f"/c/{index:03}", bytes([index]) * 60_000) for index in range(80))]
    payload = written(PackageContents(filter_for([], [ROOT]), tree))
    assert len(payload) > MAX_AT_ONCE_BYTES
    assert read_at_once(payload).records == [encode_node(one) for one in tree]


def test_a_stream_is_read_from_where_it_stands_and_in_small_pieces() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size, 7) if size is not None and size > 0 else size)

    payload = written(PackageContents(filter_for([], [NodePath("/content")]), sample_tree(), is_self_contained=True))
    stream = Trickle(b"before" + payload)
    stream.seek(6)
    change = CODEC.open(stream, LIMITS, None).change()
    records = list(change.records)
    assert records == read_as_stream(payload).records
    large = next(record for record in records if record.path == "/content/large.bin")
    assert large.binaries[0].open().read() == large_binary().open().read()


def test_a_stream_that_becomes_shorter_is_noticed() -> None:
    payload = written(
        PackageContents(filter_for([], [ROOT]), [file_node(ROOT, large_binary())], is_self_contained=True)
    )
    stream = io.BytesIO(payload)
    (record,) = CODEC.open(stream, LIMITS, None).change().records
    stream.truncate(1000)
    with pytest.raises(PackageCorruptError, match="shorter"):
        record.binaries[0].open().read()


def test_a_binary_elsewhere_without_a_store_says_so_when_it_is_opened() -> None:
    (record,) = read_as_stream(package(header(), node("/c", large_file(b"x")))).records
    with pytest.raises(ValueError, match="by digest only"):
        record.binaries[0].open()


# ------------------------------------------------------------------------------------------------------------ refused

FULL = b"x" * PIECE_BYTES
LATE_LENGTH = b"\x12" + varint(2**31 - 1)

REFUSED: dict[str, tuple[bytes, type[MailboatError], str]] = {
    "nothing": (b"", PackageCorruptError, "header"),
    "no header": (package(node("/c")), PackageCorruptError, "header"),
    "a header of no version": (package(data(1, data(2, text(1, "/c")))), PackageCorruptError, "version"),
    "a later version": (package(header(version=2)), UnknownRequiredFeatureError, "version 2"),
    "a later version with fields of its own": (
        package(data(1, number(1, 9) + text(77, "x"))),
        UnknownRequiredFeatureError,
        "version 9",
    ),
    "no filter": (package(data(1, number(1, 1))), PackageCorruptError, "filter"),
    "a root that can't be": (package(header(text(1, "/../etc"))), PathRefusedError, "etc"),
    "an unknown mode": (package(header(text(1, "/c") + data(3, text(3, "destroy")))), PackageCorruptError, "destroy"),
    "rules without a mode": (package(header(text(1, "/c") + data(3, b""))), PackageCorruptError, "mode"),
    "an expression that is none": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "(")) + text(3, "replace")))),
        PackageCorruptError,
        "expression",
    ),
    "an expression that never ends": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "(a*)*b")) + text(3, "replace")))),
        LimitExceededError,
        "expression",
    ),
    "an expression that is too long": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "a" * 2000)) + text(3, "replace")))),
        LimitExceededError,
        "2000",
    ),
    "too many rules": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "a")) * 10_001 + text(3, "replace")))),
        LimitExceededError,
        "rules",
    ),
    "too many roots": (package(header(*([text(1, "/c")] * 10_001))), LimitExceededError, "roots"),
    "an unknown field in the header": (
        package(data(1, number(1, 1) + data(2, text(1, "/c")) + text(9, "x"))),
        PackageCorruptError,
        "unknown",
    ),
    "an ancestor that is covered": (package(header(ancestors=ancestor("/c/x"))), PackageCorruptError, "ancestor"),
    "an ancestor beside the root": (package(header(ancestors=ancestor("/d"))), PackageCorruptError, "ancestor"),
    "an ancestor that is the root": (package(header(ancestors=ancestor("/c"))), PackageCorruptError, "ancestor"),
    "ancestors out of order": (
        package(header(text(1, "/a/b/c"), ancestors=ancestor("/a/b") + ancestor("/a"))),
        PackageCorruptError,
        "twice or after",
    ),
    "a node that is not covered": (package(header(), node("/d")), PackageCorruptError, "does not cover"),
    "a node beside the root with its name as a start": (package(header(), node("/cc")), PackageCorruptError, "cover"),
    "a node below a path that is not deep": (
        package(header(text(1, "/c") + number(2, 1)), node("/c"), node("/c/d")),
        PackageCorruptError,
        "does not cover",
    ),
    "a node that the rules exclude": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "/c/x")) + text(3, "replace"))), node("/c/x")),
        PackageCorruptError,
        "does not cover",
    ),
    "a node without a path": (package(header(), data(2, data(2, FOLDER))), PathRefusedError, "''"),
    "a node without a body": (package(header(), data(2, text(1, "/c"))), PackageCorruptError, "not a name"),
    "a node with two paths": (
        package(header(), data(2, text(1, "/c/x") + text(1, "/c") + data(2, FOLDER))),
        PackageCorruptError,
        "form",
    ),
    "a node whose body is first": (
        package(header(), data(2, data(2, FOLDER) + text(1, "/c"))),
        PackageCorruptError,
        "form",
    ),
    "a node with an unknown field": (
        package(header(), data(2, text(1, "/c") + data(2, FOLDER) + number(3, 1))),
        PackageCorruptError,
        "unknown",
    ),
    "a body with an unknown field": (
        package(header(), node("/c", FOLDER + number(9, 1))),
        PackageCorruptError,
        "unknown",
    ),
    "a node twice": (package(header(), node("/c"), node("/c")), PackageCorruptError, "twice"),
    "a node twice with others between": (
        package(header(), node("/c/a"), node("/c/b"), node("/c/a")),
        PackageCorruptError,
        "twice, or after its subtree",
    ),
    "a parent after its child": (
        package(header(), node("/c/a/b"), node("/c/a")),
        PackageCorruptError,
        "after its desc",
    ),
    "a subtree in two parts": (
        package(header(), node("/c"), node("/c/a"), node("/c/a/1"), node("/c/b"), node("/c/a/2")),
        PackageCorruptError,
        "subtree was left",
    ),
    "the root of all after others": (
        package(header(text(1, "/")), node("/a"), node("/")),
        PackageCorruptError,
        "twice or after",
    ),
    "names that differ in case": (package(header(), node("/c/A"), node("/c/a")), LimitExceededError, "case"),
    "folders that differ in case": (package(header(), node("/c/A/x"), node("/c/a/y")), LimitExceededError, "case"),
    "names that differ in form": (package(header(), node("/c/\u00e4"), node("/c/a\u0308")), LimitExceededError, "form"),
    "a path that leads out": (package(header(), node("/c/../../etc/passwd")), PathRefusedError, "not allowed"),
    "a path with a NUL": (package(header(), node("/c/a\x00b")), PathRefusedError, "control"),
    "a path that is too long": (package(header(), node("/c" + "/a" * 3000)), PathRefusedError, "deep"),
    "a path that is not UTF-8": (
        package(header(), data(2, data(1, b"/c/\xff") + data(2, FOLDER))),
        PackageCorruptError,
        "UTF-8",
    ),
    "no trailer": (header() + node("/c"), PackageCorruptError, "trailer"),
    "a wrong count": (package(header(), node("/c"), count=2), PackageCorruptError, "trailer"),
    "a wrong count of many": (package(header(), node("/c"), count=300), PackageCorruptError, "trailer"),
    "a wrong digest": (package(header(), node("/c"))[:-1] + b"\x00", PackageCorruptError, "digest"),
    "a trailer without a digest": (header() + node("/c") + data(15, number(1, 1)), PackageCorruptError, "trailer"),
    "a trailer with a short digest": (
        header() + node("/c") + data(15, number(1, 1) + data(2, bytes(31))),
        PackageCorruptError,
        "trailer",
    ),
    "something after the trailer": (package(header(), node("/c")) + node("/c/a"), PackageCorruptError, "trailer|order"),
    "two trailers": (package(package(header(), node("/c")), count=1), PackageCorruptError, "trailer|order"),
    "two headers": (package(header(), header(), node("/c")), PackageCorruptError, "header|order"),
    "a header after a node": (package(header(), node("/c"), header()), PackageCorruptError, "header|order"),
    "an unknown record": (package(header(), node("/c"), data(4, b"x")), PackageCorruptError, "unknown"),
    "a group": (package(header(), b"\x13\x14"), PackageCorruptError, "unknown|not a tree"),
    "a length in too many bytes": (
        package(header(), b"\x12\x96\x80\x00" + node("/c")[2:]),
        PackageCorruptError,
        "padded|form|not a tree",
    ),
    "pieces without a node": (package(header(), piece(b"x")), PackageCorruptError, "without a node"),
    "pieces before a node that does not name them": (
        package(header(), piece(b"x"), node("/c")),
        PackageCorruptError,
        "name it",
    ),
    "pieces that are not what is named": (
        package(header(), piece(b"x"), node("/c", large_file(b"y"))),
        PackageCorruptError,
        "name it",
    ),
    "a node before the last piece": (
        package(header(), piece(FULL, is_last=False), node("/c", large_file(FULL))),
        PackageCorruptError,
        "last piece",
    ),
    "pieces without an end": (package(header(), piece(FULL, is_last=False)), PackageCorruptError, "without a node"),
    "a short piece that is not the last": (
        package(header(), piece(b"x", is_last=False), piece(b"y"), node("/c", large_file(b"xy"))),
        PackageCorruptError,
        "1 bytes",
    ),
    "an empty piece": (package(header(), piece(b""), node("/c", large_file(b""))), PackageCorruptError, "0 bytes"),
    "a piece that is too large": (package(header(), piece(FULL + b"x")), PackageCorruptError, "bytes"),
    "a piece that says it is not the last": (
        package(header(), data(3, data(1, FULL) + number(2, 0))),
        PackageCorruptError,
        "not the last",
    ),
    "a record of two gigabytes": (header() + LATE_LENGTH, UntrustedInputError, "limit|not a tree"),
    "a length that never ends": (header() + b"\x12" + b"\xff" * 20, PackageCorruptError, "length|not a tree"),
    "noise": (b"\x0a\x02\xff\xff", PackageCorruptError, "not valid|not a tree"),
}


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_writer_makes_is_refused(name: str, read) -> None:  # type: ignore[no-untyped-def]
    payload, error, reason = REFUSED[name]
    with pytest.raises(error, match=reason):
        read(payload)


@BOTH
def test_a_message_names_the_path_and_the_limit(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PackageCorruptError) as corrupt:
        read(package(header(), node("/c"), node("/c/b", text(9, "x"))))
    assert corrupt.value.where.get("path", corrupt.value.where.get("record", "whole")) in {"/c/b", 3, "whole"}
    with pytest.raises(LimitExceededError) as exceeded:
        read(package(header(), node("/c"), node("/c/b", large_file(b"x" * 11))), PackageLimits(max_entry_bytes=10))
    assert exceeded.value.where == {"entry": "/c/b", "limit": 10}
    assert exceeded.value.message == "a binary has more than 10 bytes, which is the limit"


def test_a_record_beyond_the_limit_is_refused_before_it_is_read() -> None:
    huge = header() + b"\x12" + varint(MAX_RECORD_BYTES + 1)
    stream = io.BytesIO(huge + bytes(1000))
    reader = CODEC.open(stream, LIMITS, None)
    with pytest.raises(LimitExceededError, match=str(MAX_RECORD_BYTES)):
        list(reader.change().records)


def test_pieces_beyond_the_limit_are_refused_while_they_come() -> None:
    pieces = [piece(FULL, is_last=False)] * 5
    with pytest.raises(LimitExceededError) as caught:
        read_as_stream(package(header(), *pieces), PackageLimits(max_entry_bytes=2 * PIECE_BYTES))
    assert caught.value.where["entry"] == "record 4"
    with pytest.raises(LimitExceededError):
        read_as_stream(package(header(), *pieces), PackageLimits(max_total_bytes=2 * PIECE_BYTES))


def test_binaries_elsewhere_count_as_bytes_of_the_package() -> None:
    payload = package(header(), node("/c", large_file(b"x" * 5000)))
    for read in (read_at_once, read_as_stream):
        with pytest.raises(LimitExceededError, match="4000"):
            read(payload, PackageLimits(max_total_bytes=4000))


@BOTH
def test_a_caller_that_knows_the_bytes_spares_their_digest_but_nothing_else(read) -> None:  # type: ignore[no-untyped-def]
    sound = package(header(), node("/c"))
    wrong = sound[:-1] + bytes([sound[-1] ^ 1])
    assert read(wrong, are_bytes_checked=True) == read(sound)
    with pytest.raises(PackageCorruptError, match="digest"):
        read(wrong)
    with pytest.raises(PackageCorruptError, match="trailer"):
        read(package(header(), node("/c"), count=3), are_bytes_checked=True)
    with pytest.raises(PackageCorruptError, match="twice"):
        read(package(header(), node("/c"), node("/c")), are_bytes_checked=True)


@BOTH
def test_collisions_can_be_allowed(read) -> None:  # type: ignore[no-untyped-def]
    payload = package(header(), node("/c/A"), node("/c/a"))
    assert len(read(payload, PackageLimits(are_collisions_refused=False)).records) == 2


@BOTH
def test_siblings_may_come_in_any_order(read) -> None:  # type: ignore[no-untyped-def]
    paths = ["/c/z", "/c/z/1", "/c/a", "/c/a/2", "/c/a/1", "/c/m"]
    assert [record.path for record in read(package(header(), *map(node, paths))).records] == paths


@BOTH
def test_the_root_of_all_can_be_carried(read) -> None:  # type: ignore[no-untyped-def]
    assert [one.path for one in read(package(header(text(1, "/")), node("/"), node("/a"))).records] == ["/", "/a"]


SOUND = [
    written(
        PackageContents(
            filter_for([], [NodePath("/c")]), [a_folder("/c"), a_page("/c/b", ("x",), title="T"), a_file("/c/d")]
        )
    ),
    written(
        PackageContents(
            filter_for([NodePath("/a")], [NodePath("/b/c")]), [a_folder("/a"), a_folder("/b/c")], (a_folder("/b"),)
        )
    ),
    package(header(), piece(b"x"), node("/c", large_file(b"x"))),
]


def outcome(read, payload: bytes) -> object:  # type: ignore[no-untyped-def]
    try:
        change = read(payload, are_bytes_checked=True)
    except (UntrustedInputError, UnknownRequiredFeatureError):
        return "refused"
    return change.filter, change.records


@settings(deadline=None, max_examples=400)
@given(st.data(), st.sampled_from(SOUND))
def test_both_ways_to_read_accept_the_same_packages(draw: st.DataObject, payload: bytes) -> None:
    changed = bytearray(payload)
    for _ in range(draw.draw(st.integers(1, 2))):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    assert outcome(read_at_once, bytes(changed)) == outcome(read_as_stream, bytes(changed))


# ----------------------------------------------------------------------------------------------------------- together

PAGE = data(1, text(1, "nt:unstructured") + text(3, "text")) + text(2, "grüße")
BEFORE = package(header(text(1, "/b")), node("/b"), node("/b/x", PAGE))
BEHIND = package(header(text(1, "/d"), ancestors=b""), node("/d", PAGE))


def read_together(payload: bytes, limits: PackageLimits = LIMITS, root: str = "/c") -> Subtrees | None:
    """Read a package between two others, all of them at once."""
    roots = [NodePath("/b"), NodePath(root), NodePath("/d")]
    return CODEC.read_together([BEFORE, payload, BEHIND], roots, limits)


def between(found: Subtrees) -> list[tuple[str, bytes]]:
    """Paths and bodies of the package between the others."""
    end = 2 + found.counts[1]
    assert (found.counts[0], found.counts[2], len(found.paths), len(found.bodies)) == (2, 1, end + 1, end + 1)
    return list(zip(found.paths[2:end], found.bodies[2:end], strict=True))


LONG = ("x" * 127, "y" * 128, "z" * 16_000)
DATED = Node(NodePath("/c/Dated"), "cq:Page", properties=(Property("at", ("1",), PropertyType.LONG),))
SEVERAL = Node(NodePath("/c/several"), "nt:unstructured", properties=(Property("t", LONG, is_multiple=True),))
TOGETHER = {
    "folders and pages": [a_folder("/c"), a_page("/c/a", ("x",), title="T"), a_page("/c/a/b", jcr_title="B")],
    "a file": [a_folder("/c"), a_file("/c/file", b"content")],
    "typed values": [a_folder("/c"), DATED],
    "values of all lengths": [a_folder("/c"), SEVERAL],
    "a page longer than a quick look": [a_page("/c", (), text="x" * 20_000)],
    "many properties": [a_page("/c", (), **{f"name{n}": str(n) for n in range(60)})],
}


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("above", [(), (Node(NodePath("/"), "rep:root"),)])
def test_packages_of_one_subtree_are_read_together(name: str, above: tuple[Node, ...]) -> None:
    payload = written(PackageContents(filter_for([], [ROOT]), TOGETHER[name], above))
    found = read_together(payload)
    assert found is not None
    assert between(found) == [(one.path, one.body) for one in map(encode_node, TOGETHER[name])]


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"a wrong digest"}))  # the caller compares the bytes
def test_what_is_refused_alone_is_not_read_together(name: str) -> None:
    assert read_together(REFUSED[name][0]) is None


NOT_TOGETHER = {
    "another root": package(header(text(1, "/cc")), node("/cc")),
    "two roots": package(header(text(1, "/c"), text(1, "/e")), node("/c")),
    "a root that is not deep": package(header(text(1, "/c") + number(2, 1)), node("/c")),
    "no nodes": package(header()),
    "no node at the root": package(header(), node("/c/a")),
    "a node without its parent": package(header(), node("/c"), node("/c/a/b")),
    "siblings in another order": package(header(), node("/c"), node("/c/b"), node("/c/a")),
    "a binary that travels in pieces": package(header(), piece(b"x"), node("/c", large_file(b"x"))),
    "a binary that is elsewhere": package(header(), node("/c", large_file(b"x"))),
    "more nodes than few": package(header(), node("/c"), *(node(f"/c/{n:02}") for n in range(16))),
    "one node less than the trailer says": package(header(), node("/c"), count=2),
    "one node more than the trailer says": package(header(), node("/c"), node("/c/a"), count=1),
}


@pytest.mark.parametrize("name", NOT_TOGETHER)
def test_what_is_not_one_plain_subtree_is_read_alone(name: str) -> None:
    assert read_together(NOT_TOGETHER[name]) is None


def test_packages_read_together_keep_within_the_limits() -> None:
    payload = package(header(), node("/c"), node("/c/A"), node("/c/a"))
    assert read_together(payload) is None
    assert read_together(payload, PackageLimits(are_collisions_refused=False)) is not None
    assert read_together(package(header(), node("/c"), node("/c/A"))) is not None
    assert read_together(payload, PackageLimits(are_collisions_refused=False, max_entries=2)) is None
    assert read_together(payload, PackageLimits(are_collisions_refused=False, max_total_bytes=len(payload) - 1)) is None


@settings(deadline=None, max_examples=600)
@given(st.data(), st.sampled_from(sorted(TOGETHER)))
def test_what_is_read_together_is_what_is_read_alone(draw: st.DataObject, name: str) -> None:
    changed = bytearray(written(PackageContents(filter_for([], [ROOT]), TOGETHER[name])))
    for _ in range(draw.draw(st.integers(1, 2))):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    found = read_together(bytes(changed))
    if found is not None:
        alone = outcome(read_at_once, bytes(changed))
        assert alone == (filter_for([], [ROOT]), [NodeRecord(NodePath(path), body) for path, body in between(found)])


# ------------------------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize("count", [3, 200])
def test_nodes_out_of_order_are_not_written(count: int) -> None:
    tree = [a_folder("/c"), *(a_folder(f"/c/{index}") for index in range(count)), a_folder("/c/0")]
    with pytest.raises(PackageCorruptError, match="twice"):
        written(PackageContents(filter_for([], [ROOT]), tree))


def test_uncovered_nodes_are_not_written() -> None:
    with pytest.raises(UsageError, match="/d"):
        written(PackageContents(filter_for([], [ROOT]), [a_folder("/c"), a_folder("/d")]))


def test_a_node_beyond_a_record_is_not_written() -> None:
    with pytest.raises(LimitExceededError) as caught:
        written(PackageContents(filter_for([], [ROOT]), [a_page("/c", None, text="x" * MAX_RECORD_BYTES)]))
    assert caught.value.where == {"path": "/c", "limit": MAX_RECORD_BYTES}


def test_a_large_binary_whose_digest_nobody_knows_is_read_once_and_written_as_if_it_were_known() -> None:
    content, opened = bytes(range(256)) * 4096, []

    def open_it() -> io.BytesIO:
        opened.append(1)
        return io.BytesIO(content)

    late = Binary(length_bytes=len(content), opener=open_it)
    contents = PackageContents(filter_for([ROOT], [ROOT]), [file_node(ROOT, late)], is_self_contained=True)
    known = PackageContents(
        filter_for([ROOT], [ROOT]), [file_node(ROOT, large_binary(content, len(content)))], is_self_contained=True
    )
    into, expected = io.BytesIO(), io.BytesIO()
    assert CODEC.write(contents, into) == CODEC.write(known, expected)
    assert into.getvalue() == expected.getvalue()
    assert opened == [1]


@given(st.data(), st.integers(1, 70) | st.sampled_from([16_383, 16_384, PIECE_BYTES - 1, PIECE_BYTES]), st.booleans())
def test_a_piece_of_a_binary_is_read_as_protobuf_reads_it(draw: st.DataObject, size: int, is_last: bool) -> None:
    framed = encode_piece(bytes(size), is_last=is_last)
    assert framed == piece(bytes(size), is_last=is_last)
    content = framed[len(framed) - len(data(1, bytes(size))) - (2 if is_last else 0) :]
    assert decode_piece(content, 1) == (bytes(size), is_last)
    at = draw.draw(st.sampled_from([0, 1, 2, 3, 4, len(content) - 2, len(content) - 1]))
    changed = bytearray(content)
    changed[min(at, len(content) - 1)] = draw.draw(st.integers(0, 255))
    hostile = draw.draw(st.sampled_from([bytes(changed), content + b"\x10\x01", content[:-1], content + b"\x00"]))
    try:
        data_read, says_last = decode_piece(hostile, 1)
    except PackageCorruptError:
        return
    wire = TreeBinaryPiece.FromString(hostile)
    assert wire.SerializeToString() == hostile
    assert (wire.data, wire.is_last) == (data_read, says_last)


@pytest.mark.parametrize("missing", [1, 2, PIECE_BYTES])
def test_a_full_piece_that_was_cut_is_refused(missing: int) -> None:
    whole = data(1, bytes(PIECE_BYTES))
    assert decode_piece(whole, 1) == (bytes(PIECE_BYTES), False)
    with pytest.raises(PackageCorruptError):
        decode_piece(whole[:-missing], 1)


def test_a_small_binary_that_changed_stops_the_build() -> None:
    changed = Binary(digest=bytes(32), length_bytes=5, opener=lambda: io.BytesIO(b"hello"))
    with pytest.raises(SourceChangedError):
        written(PackageContents(filter_for([], [ROOT]), [file_node(ROOT, changed)]))


def test_a_small_binary_that_is_not_at_hand_is_read_into_its_node() -> None:
    there = Binary(digest=hashlib.sha256(b"hello").digest(), length_bytes=5, opener=lambda: io.BytesIO(b"hello"))
    assert written(PackageContents(filter_for([], [ROOT]), [file_node(ROOT, there)])) == written(
        PackageContents(filter_for([], [ROOT]), [a_file("/c", b"hello")])
    )


def test_names_of_a_wide_folder_are_remembered_in_little_room() -> None:
    names = SiblingNames()
    assert all(names.add(f"name-{index}", f"name-{index}") is None for index in range(RECENT_NAMES * 2 + 10))
    for index in (0, RECENT_NAMES - 1, RECENT_NAMES, RECENT_NAMES * 2, RECENT_NAMES * 2 + 9):
        assert names.add(f"name-{index}", "NAME") == f"name-{index}"
    assert names.add("another", "another") is None
    assert len(names._recent) == 11
