"""What every package format must do, as tests. Needs pytest and hypothesis.

A codec's test module derives a class from `PackageContract` and gives it a fixture `codec`. Trees are those of
`mailboat.testing.trees`, which every format can hold.
"""

from __future__ import annotations

import hashlib
import io
import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailboat.config.document import LimitsConfig
from mailboat.content.digest import TreeHash, tree_digest
from mailboat.errors import (
    LimitExceededError,
    MailboatError,
    SourceChangedError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
    UsageError,
)
from mailboat.model.changes import TreeChange
from mailboat.model.filters import MAX_RULES, FilterRule, FilterSet, WorkspaceFilter, filter_for
from mailboat.model.nodes import Binary, Node, NodeRecord, Property, PropertyType, file_node
from mailboat.model.paths import NodePath, parent_of
from mailboat.packages.port import PackageCodec, PackageContents, PackageSummary
from mailboat.testing.examples import examples
from mailboat.testing.trees import CONTENT, a_file, a_folder, a_page, large_binary, sample_tree, trees
from mailboat.wire.node_bodies import body_digest, decode_node

MIB: Final = 1024 * 1024
LIMITS: Final = LimitsConfig()

AT_ONCE: Final = "at once"
AS_STREAM: Final = "as a stream"

relaxed = settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[
        HealthCheck.differing_executors,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)


# ----------------------------------------------------------------------------------------------------------- helpers


def deep(*paths: str) -> WorkspaceFilter:
    """The filter of a request for subtrees."""
    return filter_for([], [NodePath(path) for path in paths])


def written(codec: PackageCodec, contents: PackageContents) -> tuple[bytes, PackageSummary]:
    """A package in memory."""
    into = io.BytesIO()
    summary = codec.write(contents, into)
    return into.getvalue(), summary


def read(
    codec: PackageCodec,
    payload: bytes,
    way: str = AT_ONCE,
    *,
    limits: LimitsConfig = LIMITS,
    store: DigestBlobs | None = None,
) -> TreeChange:
    """Read all of a package in one of the two ways; the records as a list."""
    open_blob = None if store is None else store.open
    if way == AT_ONCE:
        change = codec.read_bytes(payload, limits, open_blob)
    else:
        change = codec.open(io.BytesIO(payload), limits, open_blob).change()
    return change._replace(records=list(change.records))


def nodes_of(records: Iterable[NodeRecord]) -> list[Node]:
    """The nodes that records are, with their binaries openable."""

    def decoded(record: NodeRecord) -> Node:
        carried = {binary.digest: binary for binary in record.binaries}
        return decode_node(record.path, record.body, lambda digest: carried[digest].open())

    return [decoded(record) for record in records]


def contents_of(node: Node) -> list[bytes]:
    """The bytes of all its binaries."""
    held = [value for prop in node.properties if prop.type is PropertyType.BINARY for value in prop.values]
    return [_all_of(value.open()) for value in held if isinstance(value, Binary)]


def _all_of(stream: BinaryIO) -> bytes:
    with stream:
        return stream.read()


def by_path(nodes: Iterable[Node]) -> dict[NodePath, Node]:
    """Nodes by path."""
    return {node.path: node for node in nodes}


class DigestBlobs:
    """A blob store for binaries that a tree names by digest."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Hold all that can be opened."""
        self._content: dict[bytes, Callable[[], BinaryIO]] = {}
        self.opened: list[bytes] = []
        for node in nodes:
            for prop in node.properties:
                for value in prop.values:
                    if isinstance(value, Binary):
                        self._content[value.digest] = value.open

    def open(self, digest: bytes) -> BinaryIO:
        """The content of a blob."""
        self.opened.append(digest)
        return self._content[digest]()


class PatternStream(io.RawIOBase):
    """A stream as long as wished that holds nothing."""

    def __init__(self, length_bytes: int) -> None:
        """Give so many bytes."""
        super().__init__()
        self._left = length_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: any buffer
        count = min(len(buffer), self._left)
        buffer[:count] = bytes(count)
        self._left -= count
        return count


def a_long_binary(length_bytes: int) -> Binary:
    """A binary of zeros that takes no memory."""
    digest = hashlib.sha256()
    for _ in range(length_bytes // MIB):
        digest.update(bytes(MIB))
    return Binary(
        digest=digest.digest(), length_bytes=length_bytes, opener=lambda: io.BufferedReader(PatternStream(length_bytes))
    )


def a_packed_binary(length_bytes: int, seed: bytes = b"seed") -> Binary:
    """A binary that can't be packed further."""
    data = hashlib.shake_256(seed).digest(length_bytes)
    return Binary(digest=hashlib.sha256(data).digest(), length_bytes=length_bytes, opener=lambda: io.BytesIO(data))


def peak_bytes(action: Callable[[], object]) -> int:
    """The memory that an action takes beyond what there was."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------------- suite


@pytest.fixture(params=[AT_ONCE, AS_STREAM])
def way(request: pytest.FixtureRequest) -> str:
    """Both ways to read."""
    return str(request.param)


class PackageContract:
    """Round trips, limits, damage and memory.

    Attributes:
        index_bytes_per_node: What a format whose reader needs an index of all entries may hold for each node.
    """

    index_bytes_per_node = 0

    def test_a_tree_comes_back_as_it_was(self, codec: PackageCodec, way: str) -> None:
        tree = sample_tree()
        payload, _ = written(codec, PackageContents(deep("/content"), tree))
        change = read(codec, payload, way, store=DigestBlobs(tree))
        assert by_path(nodes_of(change.records)) == by_path(tree)
        assert change.filter == deep("/content")

    @relaxed
    @given(tree=trees(), is_self_contained=st.booleans())
    def test_every_tree_comes_back(self, codec: PackageCodec, tree: list[Node], *, is_self_contained: bool) -> None:
        contents = PackageContents(deep(CONTENT), tree, is_self_contained=is_self_contained)
        payload, summary = written(codec, contents)
        for one_way in (AT_ONCE, AS_STREAM):
            found = nodes_of(read(codec, payload, one_way, store=DigestBlobs(tree)).records)
            assert by_path(found) == by_path(tree)
            assert [contents_of(node) for node in found] == [contents_of(by_path(tree)[node.path]) for node in found]
        assert summary.tree_digest == tree_digest(tree)

    @relaxed
    @given(tree=trees())
    def test_records_can_be_stored_as_they_are(self, codec: PackageCodec, tree: list[Node]) -> None:
        payload, summary = written(codec, PackageContents(deep(CONTENT), tree))
        total = TreeHash()
        for record in read(codec, payload, store=DigestBlobs(tree)).records:
            total.add(record.path, body_digest(record.path, record.body))
        assert total.digest() == summary.tree_digest

    def test_parents_come_before_their_children(self, codec: PackageCodec, way: str) -> None:
        payload, _ = written(codec, PackageContents(deep("/content"), sample_tree()))
        seen: set[str] = set()
        for record in read(codec, payload, way, store=DigestBlobs(sample_tree())).records:
            assert record.path == "/content" or parent_of(record.path) in seen
            seen.add(record.path)

    def test_equal_contents_are_equal_bytes(self, codec: PackageCodec) -> None:
        first, again = (written(codec, PackageContents(deep("/content"), iter(sample_tree())))[0] for _ in range(2))
        assert first == again

    def test_the_summary_tells_the_truth(self, codec: PackageCodec) -> None:
        tree = sample_tree()
        payload, summary = written(codec, PackageContents(deep("/content"), tree))
        texts = [v.encode() for node in tree for prop in node.properties for v in prop.values if isinstance(v, str)]
        sizes = sum(map(len, [*texts, *(content for node in tree for content in contents_of(node))]))
        digest = hashlib.sha256(payload).digest()
        assert summary == PackageSummary(len(payload), digest, tree_digest(tree), len(tree), sizes)

    def test_a_package_is_written_where_the_stream_stands(self, codec: PackageCodec) -> None:
        contents = PackageContents(deep("/content"), sample_tree(), is_self_contained=True)
        alone, _ = written(codec, contents)
        into = io.BytesIO()
        into.write(b"before")
        codec.write(contents, into)
        assert into.getvalue() == b"before" + alone

    def test_the_whole_repository_can_be_shipped(self, codec: PackageCodec, way: str) -> None:
        tree = [a_page("/", None, title="root"), a_file("/a.txt"), a_folder("/b")]
        payload, _ = written(codec, PackageContents(deep("/"), tree))
        assert by_path(nodes_of(read(codec, payload, way).records)) == by_path(tree)

    # ------------------------------------------------------------------------------------------------------- coverage

    def test_ancestors_come_along_uncovered(self, codec: PackageCodec, way: str) -> None:
        above = (a_folder("/content"), a_page("/content/site", None))
        tree = [a_page("/content/site/en", None), a_file("/content/site/en/a.txt")]
        payload, summary = written(codec, PackageContents(deep("/content/site/en"), tree, above))
        change = read(codec, payload, way)
        records = list(change.records)
        assert {record.path for record in records if change.filter.covers(record.path)} == set(by_path(tree))
        assert by_path(nodes_of(records)) == by_path([*above, *tree])
        assert summary.node_count == len(tree)

    def test_nodes_that_rules_leave_out_come_before_what_is_below(self, codec: PackageCodec, way: str) -> None:
        rules = tuple(FilterRule(kind, re.compile(one)) for kind, one in ((False, "/c/out"), (False, "/c/out/mid")))
        above = (a_page("/c/out", None), a_page("/c/out/mid", None))
        tree = [a_page("/c", None), a_page("/c/out/mid/in", None)]
        contents = PackageContents(WorkspaceFilter((FilterSet(NodePath("/c"), rules=rules),)), tree, above)
        records = list(read(codec, written(codec, contents)[0], way).records)
        assert nodes_of(records) == [tree[0], *above, tree[1]]

    def test_namespaces_of_prefixes_in_use_travel(self, codec: PackageCodec, way: str) -> None:
        above = Node(NodePath("/content"), "top:folder")
        names = Property("ref", ("name:x",), PropertyType.NAME), Property("text", ("text:x", "unused:y"))
        nodes = [
            Node(NodePath("/content/kid:a"), "type:page", ("mixin:a",), (Property("own:title", ("x",)), *names)),
            a_file("/content/kid:a/b.bin", b"text:"),
        ]
        used = ("kid", "mixin", "name", "own", "top", "type")
        known = {prefix: (f"urn:{prefix}",) for prefix in (*used, "text", "unused")}
        contents = PackageContents(deep("/content/kid:a"), nodes, (above,), namespaces=known, is_self_contained=True)
        change = read(codec, written(codec, contents)[0], way)
        assert change.namespaces == {prefix: known[prefix] for prefix in used}

    def test_a_given_namespace_wins_over_the_source(self, codec: PackageCodec) -> None:
        nodes = [Node(NodePath("/content"), "own:page")]
        given = {"xmlns:own": "urn:given"}
        contents = PackageContents(deep("/content"), nodes, namespaces={"own": ("urn:own",)}, properties=given)
        assert read(codec, written(codec, contents)[0]).namespaces == {"own": ("urn:given",)}

    def test_a_property_that_names_no_namespace_is_refused(self, codec: PackageCodec) -> None:
        contents = PackageContents(deep("/content"), [a_folder("/content")], properties={"xmlns:own": "not a uri"})
        with pytest.raises(UsageError, match="xmlns:own names no namespace"):
            written(codec, contents)

    def test_a_package_without_nodes_removes_what_its_filter_covers(self, codec: PackageCodec, way: str) -> None:
        payload, summary = written(codec, PackageContents(deep("/content/a", "/content/b"), []))
        change = read(codec, payload, way)
        assert list(change.records) == []
        assert change.filter == deep("/content/a", "/content/b")
        assert summary.node_count == 0

    def test_a_path_that_is_not_deep_stays_so(self, codec: PackageCodec, way: str) -> None:
        asked = filter_for([NodePath("/content/a")], [NodePath("/content/b")])
        tree = [a_page("/content/a", None), a_page("/content/b", None), a_page("/content/b/c", None)]
        payload, _ = written(codec, PackageContents(asked, tree))
        change = read(codec, payload, way)
        assert change.filter == asked
        assert change.filter.is_simple
        assert by_path(nodes_of(change.records)) == by_path(tree)

    def test_a_node_that_the_filter_does_not_cover_is_not_written(self, codec: PackageCodec) -> None:
        with pytest.raises(MailboatError, match="/content/b"):
            written(codec, PackageContents(deep("/content/a"), [a_page("/content/b", None)]))

    # ------------------------------------------------------------------------------------------------------- binaries

    def test_large_binaries_stay_in_the_blob_store(self, codec: PackageCodec, way: str) -> None:
        large = large_binary(length_bytes=3 * MIB)
        tree = [a_folder("/content"), file_node(NodePath("/content/large.bin"), large)]
        payload, summary = written(codec, PackageContents(deep("/content"), tree))
        assert len(payload) < 10_000
        assert summary.content_bytes == 3 * MIB
        blobs = DigestBlobs(tree)
        found = by_path(nodes_of(read(codec, payload, way, store=blobs).records))[NodePath("/content/large.bin")]
        assert contents_of(found) == [_all_of(large.open())]
        assert blobs.opened == [large.digest]

    def test_a_self_contained_package_needs_no_blob_store(self, codec: PackageCodec, way: str) -> None:
        large = a_packed_binary(3 * MIB + 17)
        tree = [a_folder("/content"), file_node(NodePath("/content/large.bin"), large)]
        payload, _ = written(codec, PackageContents(deep("/content"), tree, is_self_contained=True))
        found = by_path(nodes_of(read(codec, payload, way).records))[NodePath("/content/large.bin")]
        assert contents_of(found) == [_all_of(large.open())]

    def test_binaries_of_one_reader_can_be_read_in_turns(self, codec: PackageCodec) -> None:
        binaries = [a_packed_binary(MIB, seed) for seed in (b"a", b"b")]
        tree = [a_folder("/c"), *(file_node(NodePath(f"/c/{index}"), one) for index, one in enumerate(binaries))]
        payload, _ = written(codec, PackageContents(deep("/c"), tree, is_self_contained=True))
        records = list(codec.open(io.BytesIO(payload), LIMITS, None).change().records)
        first, second = (record.binaries[0].open() for record in records[1:])
        with first, second:
            pieces = [(first.read(300_000), second.read(300_000)) for _ in range(5)]
        assert [b"".join(parts) for parts in zip(*pieces, strict=True)] == [
            _all_of(binary.open()) for binary in binaries
        ]

    def test_a_binary_that_changed_meanwhile_stops_the_build(self, codec: PackageCodec) -> None:
        said = large_binary(b"said")

        def changed_to(actual: bytes) -> Binary:
            return Binary(digest=said.digest, length_bytes=said.length_bytes, opener=lambda: io.BytesIO(actual))

        for actual in (b"", b"other" * 20_000):
            node = file_node(NodePath("/a.bin"), changed_to(actual))
            with pytest.raises(SourceChangedError):
                written(codec, PackageContents(deep("/a.bin"), [node], is_self_contained=True))

    # --------------------------------------------------------------------------------------------------------- limits

    def test_more_nodes_than_allowed_are_refused(self, codec: PackageCodec, way: str) -> None:
        tree = [a_folder("/c"), *(a_file(f"/c/{number}.txt") for number in range(20))]
        payload, _ = written(codec, PackageContents(deep("/c"), tree))
        with pytest.raises(LimitExceededError, match="10"):
            read(codec, payload, way, limits=replace(LIMITS, max_entries=10))

    def test_a_larger_binary_than_allowed_is_refused(self, codec: PackageCodec, way: str) -> None:
        tree = [a_folder("/c"), file_node(NodePath("/c/large.bin"), large_binary(length_bytes=MIB))]
        payload, _ = written(codec, PackageContents(deep("/c"), tree, is_self_contained=True))
        with pytest.raises(LimitExceededError):
            read(codec, payload, way, limits=replace(LIMITS, max_entry_bytes=MIB - 1))

    def test_more_bytes_than_allowed_are_refused(self, codec: PackageCodec, way: str) -> None:
        tree = [a_folder("/c"), *(a_file(f"/c/{number}.txt", bytes(range(256)) * 40) for number in range(20))]
        payload, _ = written(codec, PackageContents(deep("/c"), tree))
        with pytest.raises(LimitExceededError):
            read(codec, payload, way, limits=replace(LIMITS, max_total_bytes=100_000))

    def test_names_that_differ_in_case_only_are_refused_when_told_so(self, codec: PackageCodec, way: str) -> None:
        tree = [a_folder("/c"), a_folder("/c/Straße"), a_folder("/c/STRASSE")]
        payload, _ = written(codec, PackageContents(deep("/c"), tree))
        with pytest.raises(UntrustedInputError, match=r"(?i)stra"):
            read(codec, payload, way, limits=replace(LIMITS, refuse_collisions=True))
        assert len(list(read(codec, payload, way).records)) == 3

    def test_names_that_readers_refuse_are_not_written_when_told_so(self, codec: PackageCodec) -> None:
        tree = [a_folder("/c"), a_folder("/c/Page"), a_folder("/c/page")]
        with pytest.raises(LimitExceededError, match="'Page' and 'page' in one folder"):
            written(codec, PackageContents(deep("/c"), tree, refuse_collisions=True))
        written(codec, PackageContents(deep("/c"), tree[:2], refuse_collisions=True))

    def test_a_filter_that_readers_refuse_is_not_written(self, codec: PackageCodec, way: str) -> None:
        roots = tuple(FilterSet(NodePath(f"/c/{number:05}")) for number in range(MAX_RULES + 1))
        rule = FilterRule(is_include=False, pattern=re.compile("/c/x"))
        for refused in (roots, (FilterSet(NodePath("/c"), rules=(rule,) * (MAX_RULES + 1)),)):
            with pytest.raises(LimitExceededError, match=r"roots|rules") as caught:
                codec.check(PackageContents(WorkspaceFilter(refused), ()))
            assert caught.value.next_step
        largest = WorkspaceFilter(roots[:MAX_RULES])
        payload, _ = written(codec, PackageContents(largest, ()))
        assert read(codec, payload, way).filter == largest

    def test_what_would_not_be_written_is_refused_before(self, codec: PackageCodec) -> None:
        tree = [a_folder("/c"), a_folder("/c/Page"), a_file("/c/a.txt", b"x" * 2000), a_folder("/c/page")]
        contents = PackageContents(deep("/c"), tree, refuse_collisions=True)
        with pytest.raises(LimitExceededError, match="'Page' and 'page' in one folder"):
            codec.check(contents)
        codec.check(replace(contents, refuse_collisions=False))
        with pytest.raises(UsageError, match="not covered"):
            codec.check(replace(contents, filter=deep("/d")))
        with pytest.raises(LimitExceededError):
            codec.check(replace(contents, refuse_collisions=False, limits=replace(LIMITS, max_entry_bytes=1999)))

    # -------------------------------------------------------------------------------------------------------- hostile

    def test_a_package_that_was_cut_is_refused(self, codec: PackageCodec, way: str) -> None:
        payload, _ = written(
            codec, PackageContents(deep("/c"), [a_folder("/c"), a_file("/c/a.txt"), a_page("/c/b", ())])
        )
        for length in range(len(payload)):
            with pytest.raises(UntrustedInputError):
                read(codec, payload[:length], way)

    def test_a_damaged_byte_is_noticed_or_harmless(self, codec: PackageCodec, way: str) -> None:
        tree = [a_folder("/c"), a_file("/c/a.txt"), a_page("/c/b", ("x",), title="Hello")]
        payload, _ = written(codec, PackageContents(deep("/c"), tree))
        for index in range(len(payload)):
            damaged = bytearray(payload)
            damaged[index] ^= 1 << index % 8
            found = self._read_damaged(codec, bytes(damaged), way)
            assert found is None or found == by_path(tree)

    def _read_damaged(self, codec: PackageCodec, payload: bytes, way: str) -> dict[NodePath, Node] | None:
        try:
            change = read(codec, payload, way)
        except (UntrustedInputError, UnknownRequiredFeatureError):
            return None
        assert change.filter == deep("/c")
        return by_path(nodes_of(change.records))

    @relaxed
    @given(noise=st.binary(max_size=200))
    def test_noise_is_refused(self, codec: PackageCodec, noise: bytes) -> None:
        for one_way in (AT_ONCE, AS_STREAM):
            with pytest.raises(UntrustedInputError):
                read(codec, noise, one_way)

    # --------------------------------------------------------------------------------------------------------- memory

    def test_a_large_binary_takes_little_memory(self, codec: PackageCodec, tmp_path: Path) -> None:
        tree = [a_folder("/c"), file_node(NodePath("/c/large.bin"), a_long_binary(64 * MIB))]
        contents = PackageContents(deep("/c"), tree, is_self_contained=True)
        with (tmp_path / "package").open("w+b") as file:
            assert peak_bytes(lambda: codec.write(contents, file)) < 8 * MIB
            assert peak_bytes(lambda: _read_through(codec, file)) < 8 * MIB

    def test_many_nodes_take_little_memory(self, codec: PackageCodec, tmp_path: Path) -> None:
        with (tmp_path / "package").open("w+b") as file:
            allowed = 4 * MIB + self.index_bytes_per_node * 6_061
            assert peak_bytes(lambda: codec.write(PackageContents(deep("/c"), _many_nodes(60)), file)) < allowed
            assert peak_bytes(lambda: _read_through(codec, file)) < allowed


def _read_through(codec: PackageCodec, file: BinaryIO) -> None:
    file.seek(0)
    for record in codec.open(file, replace(LIMITS, max_ratio=2000.0), None).change().records:
        for binary in record.binaries:
            with binary.open() as stream:
                while stream.read(MIB):
                    pass


def _many_nodes(folders: int) -> Iterator[Node]:
    yield a_folder("/c")
    for folder in range(folders):
        yield a_folder(f"/c/{folder:04}")
        for number in range(100):
            yield a_page(f"/c/{folder:04}/{number:04}", None, title=f"page {number}")
