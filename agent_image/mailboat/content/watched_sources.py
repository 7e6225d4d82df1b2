"""Sources, nodes and records that report progress in bytes, for a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final, Protocol, cast

from mailboat.content.binaries import content_bytes_of, with_binaries
from mailboat.content.port import DescribedSource, NamedSource, Source
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Binary, Node, NodeRecord
from mailboat.model.paths import NodePath

Watch = Callable[[int], None]
"""Called with a number of processed bytes."""


class Phases(Protocol):
    """Progress of long work in phases."""

    def begin(self, phase: str, total_bytes: int | None = None) -> None:
        """A phase begins; without a total, the time left cannot be known."""

    def advance(self, count: int) -> None:
        """So many more bytes of the phase are done."""


class WatchedSource:
    """A source whose walks are watched. See `Source`."""

    def __init__(self, source: Source, on_walk: Watch, on_node: Watch | None = None) -> None:
        """Watch a source, which the caller closes.

        `on_walk` and `on_node` receive the bytes of nodes that `walk` and `node` give, as they are read.
        """
        self.uri: Final = source.uri
        self.unwatched: Final = unwatched(source)
        self._source = source
        self._on_walk = on_walk
        self._on_node = on_node

    def node(self, path: NodePath) -> Node | None:
        found = self._source.node(path)
        if found is not None and self._on_node is not None:
            self._on_node(content_bytes_of(found))
        return found

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        return watched_nodes(self._source.walk(path, is_deep=is_deep), self._on_walk)

    def close(self) -> None:
        self._source.close()


def unwatched(source: Source) -> Source:
    """The source without a watch, for nodes that are read a second time."""
    return source.unwatched if isinstance(source, WatchedSource) else source


def description_of(source: Source) -> DescribedSource | None:
    """What the documents of a source say beyond its nodes; None where there are none."""
    itself = unwatched(source)
    return itself if isinstance(itself, DescribedSource) else None


def namespaces_of(source: Source) -> NamespaceTable | None:
    """A source's namespaces by prefix, a table that grows while nodes are read; None without any.

    Raises: as `NamedSource.namespaces`.
    """
    itself = unwatched(source)
    return itself.namespaces() if isinstance(itself, NamedSource) else None


def watched_nodes(nodes: Iterable[Node], watch: Watch) -> Iterator[Node]:
    """The nodes. Large binaries count while they are read, others when the next node is read."""
    for node in nodes:
        passages: list[_BinaryRead] = []

        def counted(binary: Binary, passages: list[_BinaryRead] = passages) -> Binary:
            if binary.data is not None or binary.opener is None:
                return binary
            passages.append(_BinaryRead(binary, watch))
            return passages[-1].shown

        shown = with_binaries(node, counted)
        yield shown
        watch(content_bytes_of(node) - sum(passage.shown.length_bytes for passage in passages))
        for passage in passages:
            passage.end()


def watched_records(records: Iterable[NodeRecord], watch: Watch) -> Iterator[NodeRecord]:
    """The records; each counts when the next one is asked for."""
    for record in records:
        yield record
        watch(len(record.body) + sum(binary.length_bytes for binary in record.binaries))


class _BinaryRead:
    """A binary that is read, possibly more than once: its bytes count once."""

    def __init__(self, binary: Binary, watch: Watch) -> None:
        self._binary = binary
        self._watch = watch
        digest = binary.digest if binary.is_digest_known else None
        self.shown = Binary(digest=digest, length_bytes=binary.length_bytes, opener=self._open)
        self.counted_bytes = 0

    def _open(self) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_CountedStream(self._binary.open(), self._count)))

    def _count(self, count: int) -> None:
        new = min(count, self._binary.length_bytes - self.counted_bytes)
        self.counted_bytes += new
        self._watch(new)

    def end(self) -> None:
        """The next node is asked for: what was not read counts now, also where a codec reads it later.

        The source receives the digest once it is known, and need not read the binary again.
        """
        self._count(self._binary.length_bytes)
        if self.shown.is_digest_known and not self._binary.is_digest_known:
            self._binary.tell_digest(self.shown.digest)


class _CountedStream(io.RawIOBase):
    """A stream that counts what is read."""

    def __init__(self, stream: BinaryIO, count: Watch) -> None:
        self._stream = stream
        self._count = count

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # typeshed's WriteableBuffer is not importable
        data = self._stream.read(len(view))
        view[: len(data)] = data
        self._count(len(data))
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
