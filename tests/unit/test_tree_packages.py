"""Packages of the `tree` format: their bytes, what they hold, what is not written, and that both ways to read agree."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import (
    LimitExceededError,
    PackageCorruptError,
    SourceChangedError,
    UsageError,
)
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType, file_node
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import MAX_AT_ONCE_BYTES
from mailboat.packages.tree_order import RECENT_NAMES, SiblingNames
from mailboat.testing.examples import examples
from mailboat.testing.trees import a_file, a_folder, a_page, large_binary, sample_tree
from mailboat.wire._generated.tree_pb2 import TreeBinaryPiece
from mailboat.wire.node_bodies import encode_node
from mailboat.wire.tree_records import MAX_RECORD_BYTES, PIECE_BYTES, decode_piece, encode_piece
from support.handmade import data, number, text
from support.handmade_trees import (
    CODEC,
    FOLDER,
    LIMITS,
    READERS,
    ancestor,
    header,
    large_file,
    node,
    outcome_of,
    package,
    piece,
    read_as_stream,
    read_at_once,
    written,
)

ROOT = NodePath("/c")
BOTH = pytest.mark.parametrize("read", READERS)


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


@BOTH
def test_packages_of_mode_merge_say_which_nodes_are_in_the_document_of_a_node_above(read) -> None:  # type: ignore[no-untyped-def]
    """A reader of version 3 would merge nodes one by one; nodes of other packages have no such mark."""
    merging = WorkspaceFilter((FilterSet(NodePath("/c"), mode=ImportMode.MERGE),))
    nodes = [a_folder("/c"), replace(a_folder("/c/inner"), is_inner=True), a_folder("/c/own")]
    payload = written(PackageContents(merging, nodes))
    merge = text(1, "/c") + data(3, text(3, "merge"))
    inner = data(5, text(1, "/c/inner") + data(2, FOLDER))
    assert payload == package(header(merge, version=4), node("/c"), inner, node("/c/own"), count=3)
    change = read(payload)
    assert (change.filter, [record.is_inner for record in change.records]) == (merging, [False, True, False])
    plain = written(PackageContents(filter_for([], [ROOT]), nodes))
    assert plain == package(header(), node("/c"), node("/c/inner"), node("/c/own"))


def inner(path: str) -> Node:
    return replace(a_folder(path), is_inner=True)


WITHIN_DOCUMENTS = PackageContents(
    WorkspaceFilter(tuple(FilterSet(NodePath(root), mode=ImportMode.MERGE) for root in ("/a/in/x", "/b/y"))),
    [inner("/a/in/x"), inner("/b/y")],
    (a_folder("/a"), inner("/a/in"), a_folder("/b")),
)


@BOTH
def test_uncovered_nodes_come_before_what_their_documents_contain(read) -> None:  # type: ignore[no-untyped-def]
    payload = written(WITHIN_DOCUMENTS)
    above = ancestor("/a") + ancestor("/a/in") + ancestor("/b") + data(4, b"\x01")
    roots = [text(1, root) + data(3, text(3, "merge")) for root in ("/a/in/x", "/b/y")]
    assert payload.startswith(header(*roots, ancestors=above, version=4))
    assert [(record.path, record.is_inner) for record in read(payload).records] == [
        ("/a", False),
        ("/a/in", True),
        ("/a/in/x", True),
        ("/b", False),
        ("/b/y", True),
    ]


OVERLAPPING = (
    text(1, "/c") + data(3, data(1, number(1, 1) + text(2, "/c/a")) + text(3, "replace")),
    text(1, "/c") + data(3, data(1, number(1, 1) + text(2, "/c/b")) + text(3, "replace")),
)


@BOTH
def test_filters_that_overlap_raise_the_version(read) -> None:  # type: ignore[no-untyped-def]
    """A reader of version 2 would leave out what only the second filter covers, or refuse the package."""
    sets = [FilterSet(NodePath("/c"), rules=(FilterRule(True, re.compile(f"/c/{name}")),)) for name in "ab"]
    payload = written(PackageContents(WorkspaceFilter(tuple(sets)), [a_folder("/c/a"), a_folder("/c/b")]))
    assert payload == package(header(*OVERLAPPING, version=3), node("/c/a"), node("/c/b"))
    assert [covers(read(payload).filter, path) for path in ("/c/a", "/c/b", "/c/d")] == [True, True, False]


@pytest.mark.parametrize("version", [1, 2])
@BOTH
def test_filters_that_overlap_keep_their_meaning_in_older_versions(read, version: int) -> None:  # type: ignore[no-untyped-def]
    """The first root decides: what such a package left out is not removed today."""
    found = read(package(header(*OVERLAPPING, version=version), node("/c/a"))).filter
    assert [covers(found, path) for path in ("/c/a", "/c/b", "/c/d")] == [True, False, False]


def covers(found: WorkspaceFilter, path: str) -> bool:
    return found.covers(NodePath(path))


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
    assert outside == {item.digest: item.data for item in small[69:]}


def test_a_large_package_in_memory_is_read_record_by_record() -> None:
    tree = [a_folder("/c"), *(a_file(f"/c/{index:03}", bytes([index]) * 60_000) for index in range(80))]
    payload = written(PackageContents(filter_for([], [ROOT]), tree))
    assert len(payload) > MAX_AT_ONCE_BYTES
    assert read_at_once(payload).records == [encode_node(item) for item in tree]


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


@BOTH
def test_names_that_differ_in_case_are_read(read) -> None:  # type: ignore[no-untyped-def]
    payload = package(header(), node("/c/A"), node("/c/a"))
    assert len(read(payload).records) == 2


@BOTH
def test_siblings_may_come_in_any_order(read) -> None:  # type: ignore[no-untyped-def]
    paths = ["/c/z", "/c/z/1", "/c/a", "/c/a/2", "/c/a/1", "/c/m"]
    assert [record.path for record in read(package(header(), *map(node, paths))).records] == paths


@BOTH
def test_the_root_of_all_can_be_carried(read) -> None:  # type: ignore[no-untyped-def]
    assert [record.path for record in read(package(header(text(1, "/")), node("/"), node("/a"))).records] == ["/", "/a"]


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
    written(WITHIN_DOCUMENTS),
]


@settings(deadline=None, max_examples=examples(400))
@given(st.data(), st.sampled_from(SOUND))
def test_both_ways_to_read_accept_the_same_packages(draw: st.DataObject, payload: bytes) -> None:
    changed = bytearray(payload)
    for _ in range(draw.draw(st.integers(1, 2))):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    assert outcome_of(read_at_once, bytes(changed)) == outcome_of(read_as_stream, bytes(changed))


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


def test_a_large_binary_whose_digest_no_one_knows_is_read_once_and_written_as_if_it_were_known() -> None:
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
