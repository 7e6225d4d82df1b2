"""Reads packages: a small one at once, a large one as a stream of records.

Names, sizes and structure of all entries are checked before the first record is given; what is in an entry is checked
when its turn comes. Records are covered nodes and the ancestors that they need, parents first, subtree by subtree; what
the filter does not cover is passed over, as FileVault does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from mailboat.blobs.references import ReferenceCodec
from mailboat.errors import PackageCorruptError
from mailboat.model.changes import TreeChange
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.nodes import Binary, NodeRecord
from mailboat.model.paths import NodePath, is_within
from mailboat.packages.filevault.aggregates import Aggregates, Place, VaultFile
from mailboat.packages.filevault.archive import Archive
from mailboat.packages.filevault.archive_tree import ArchiveDirectory, binary_of, content_root
from mailboat.packages.filevault.document import DocumentReader
from mailboat.packages.filevault.elements import NodeText, Refer
from mailboat.packages.filevault.filters import FILTER_XML, parse_filter
from mailboat.packages.filevault.namespaces import Namespaces
from mailboat.packages.filevault.properties import PROPERTIES_XML, check_properties, parse_properties
from mailboat.packages.port import PackageLimits
from mailboat.wire.nodes import OpenBinary, encode_node

INLINE_BINARY_BYTES: Final = 64 * 1024
MAX_CACHED_METADATA: Final = 64


@dataclass(frozen=True)
class ReadingSettings:
    """What does not change from package to package.

    Attributes:
        namespaces: Known prefixes, and the names resolved with them.
        references: Reads the texts of binaries that are elsewhere.
        max_document_bytes: One DocView document: it is held in memory.
        inline_binary_bytes: Binaries up to this size are held inline in records.
        checked_properties: `properties.xml` by its bytes, parsed and checked: publishers repeat themselves.
    """

    namespaces: Namespaces
    references: ReferenceCodec
    max_document_bytes: int = 32 * 1024 * 1024
    inline_binary_bytes: int = INLINE_BINARY_BYTES
    checked_properties: dict[bytes, dict[str, str]] = field(default_factory=dict)


class VaultPackage:
    """An open package: its metadata, and its content as places."""

    def __init__(self, archive: Archive, limits: PackageLimits, settings: ReadingSettings) -> None:
        """Read the metadata. Raises: as `PackageReader.change`."""
        self.archive = archive
        self.properties = _read_properties(archive, settings)
        self.documents = DocumentReader(settings.namespaces, limits.max_xml_depth, settings.max_document_bytes)
        self._limits = limits
        self._settings = settings

    def filter(self) -> WorkspaceFilter | None:
        """What the package owns; None when it does not say."""
        entry = self.archive.entries.get(FILTER_XML)
        return None if entry is None else parse_filter(self.archive.read(entry))

    def content(self) -> ArchiveDirectory:
        """The folder `jcr_root`."""
        return content_root(self.archive, self.archive.entries.values())

    def aggregates(self, open_blob: OpenBinary | None) -> Aggregates:
        """How to read the nodes."""
        settings = self._settings

        def make_binary(file: VaultFile) -> Binary:
            return binary_of(file, settings.inline_binary_bytes)

        refer = refer_to(settings.references, open_blob)
        collisions = self._limits.are_collisions_refused
        return Aggregates(self.documents, make_binary, refer, are_collisions_refused=collisions)


class FilevaultReader:
    """An open package, to import: see `PackageReader`."""

    def __init__(self, package: VaultPackage, open_blob: OpenBinary | None) -> None:
        """Read the filter and lay out the content. Raises: as `PackageReader.change`."""
        found = package.filter()
        if found is None:
            raise PackageCorruptError("the package has no filter", entry=FILTER_XML)
        self._filter = found
        self._aggregates = package.aggregates(open_blob)
        self._root = self._aggregates.root(package.content())

    @property
    def filter(self) -> WorkspaceFilter:
        """What the package owns."""
        return self._filter

    def change(self) -> TreeChange:
        """The content, as a stream that is read once."""
        return TreeChange(self._filter, self.records())

    def records(self) -> Iterator[NodeRecord]:
        """The records of the content."""
        return _Selection(self._filter, self._aggregates).records(self._root)

    def close(self) -> None:
        """Nothing is held: the stream is the caller's."""


class _Selection:
    """Which of the nodes become records."""

    def __init__(self, workspace: WorkspaceFilter, aggregates: Aggregates) -> None:
        self._filter = workspace
        self._aggregates = aggregates
        self._pending: list[NodeText] = []

    def records(self, place: Place) -> Iterator[NodeRecord]:
        expanded = self._aggregates.expand(place)
        said = expanded.said
        if said is not None:
            if self._filter.covers(place.path):
                yield from self._needed(place.path)
                yield self._record(said)
            elif not expanded.is_implied:
                self._pending.append(said)
                if self._filter.is_ancestor(place.path):
                    yield from self._needed(place.path)
        for child in expanded.children.values():
            if self._may_matter(child.path):
                yield from self.records(child)

    def _needed(self, path: NodePath) -> Iterator[NodeRecord]:
        """Nodes that are not covered, given because something below them is."""
        pending, self._pending = self._pending, []
        for said in pending:
            if is_within(path, said.path):
                yield self._record(said)

    def _may_matter(self, path: NodePath) -> bool:
        return self._filter.set_for(path) is not None or self._filter.is_ancestor(path)

    def _record(self, said: NodeText) -> NodeRecord:
        return encode_node(self._aggregates.node(said))


def refer_to(references: ReferenceCodec, open_blob: OpenBinary | None) -> Refer:
    """How the text of a reference becomes a binary; without `open_blob` it can't be opened."""

    def refer(text: str) -> Binary:
        digest, length = references.parse(text)
        opener = None if open_blob is None else lambda: open_blob(digest)
        return Binary(digest=digest, length_bytes=length, opener=opener)

    return refer


def open_archive(stream: BinaryIO, limits: PackageLimits) -> Archive:
    """Open a zip that fills a seekable stream. Raises: PackageCorruptError, LimitExceededError, PathRefusedError."""
    return Archive(stream, stream.seek(0, io.SEEK_END), limits)


def _read_properties(archive: Archive, settings: ReadingSettings) -> dict[str, str]:
    entry = archive.entries.get(PROPERTIES_XML)
    if entry is None:
        return {}
    content = archive.read(entry)
    known = settings.checked_properties.get(content)
    if known is None:
        known = parse_properties(content)
        check_properties(known)
        if len(settings.checked_properties) >= MAX_CACHED_METADATA:
            settings.checked_properties.clear()
        if len(content) < INLINE_BINARY_BYTES:
            settings.checked_properties[content] = known
    return known
