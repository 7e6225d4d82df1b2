"""FileVault checkouts and zips as sources: what `publish` and `content` read from them.

Both show all nodes that are there; what their filter covers, if they have one, is `filter`. Binaries that a package
only refers to can't be opened from here. One thread at a time.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from mailboat.blobs.references import ReferenceCodec
from mailboat.config.document import LimitsConfig
from mailboat.content.sources.folder_entries import closed_folders, readable_source
from mailboat.errors import LimitExceededError, SourceMissingError
from mailboat.folder_handle import open_regular_file
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.namespaces import NamespaceTable, SingleNamespaces
from mailboat.model.nodes import Binary, Node, ordered_names
from mailboat.model.paths import ROOT, NodePath, ancestors_of
from mailboat.packages.filevault.aggregates import Aggregates, Place
from mailboat.packages.filevault.archive_tree import CONTENT_ROOT
from mailboat.packages.filevault.checkout import CheckoutDirectory, checkout_binary
from mailboat.packages.filevault.document import MAX_DOCUMENT_BYTES, DocumentReader
from mailboat.packages.filevault.elements import NodeText
from mailboat.packages.filevault.filters import FILTER_XML, MAX_FILTER_BYTES, parse_filter
from mailboat.packages.filevault.namespaces import Namespaces
from mailboat.packages.filevault.pattern_reach import filter_within
from mailboat.packages.filevault.properties import (
    KEPT_PROPERTIES,
    MAX_PROPERTIES_BYTES,
    PROPERTIES_XML,
    check_properties,
    parse_properties,
)
from mailboat.packages.filevault.reader import (
    INLINE_BINARY_BYTES,
    ReadingSettings,
    VaultPackage,
    coverage,
    open_archive,
    refer_to,
)
from mailboat.packages.filevault.vault_files import VaultDirectory, VaultFile
from mailboat.wire.nodes import OpenBinary


class VaultSource:
    """The nodes of a checkout or zip. See `Source`."""

    def __init__(self, uri: str, aggregates: Aggregates, directory: VaultDirectory, stream: BinaryIO | None) -> None:
        """Read below `directory`; `stream` is closed with the source."""
        self.uri = uri
        self.filter: WorkspaceFilter | None = None
        self.properties: Mapping[str, str] = {}
        self._aggregates = aggregates
        self._directory = directory
        self._stream = stream

    def node(self, path: NodePath) -> Node | None:
        return next(self.walk(path, is_deep=False), None)

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        place = self._find(path)
        if place is None:
            return
        if is_deep:
            yield from self._aggregates.walk(place)
            return
        said = self._aggregates.expand(place).said
        if said is not None:
            yield self._aggregates.node(said)

    def child_names(self, path: NodePath) -> list[str]:
        place = self._find(path)
        if place is None:
            return []
        expansion = self._aggregates.expand(place)
        order = None if expansion.said is None else self._aggregates.node(expansion.said).child_order
        return ordered_names(order, list(expansion.children))

    def filter_within(self, asked: WorkspaceFilter) -> WorkspaceFilter:
        return asked if self.filter is None else filter_within(asked, self.filter)

    def ancestors(self, owned: WorkspaceFilter) -> Iterator[Node]:
        return _Ancestors(owned, self._aggregates).nodes(self._aggregates.root(self._directory))

    def namespaces(self) -> NamespaceTable:
        return SingleNamespaces(self._aggregates.bindings())

    def package_properties(self) -> Mapping[str, str]:
        return {key: text for key, text in self.properties.items() if key in KEPT_PROPERTIES}

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _find(self, path: NodePath) -> Place | None:
        place: Place | None = self._aggregates.root(self._directory)
        for name in path[1:].split("/") if path != ROOT else ():
            if place is None:
                return None
            place = self._aggregates.expand(place).children.get(name)
        return place


class _Ancestors:
    """Finds the nodes above covered ones; those that are covered are expanded, and not understood."""

    def __init__(self, owned: WorkspaceFilter, aggregates: Aggregates) -> None:
        self._aggregates = aggregates
        self._covers = coverage(owned)
        roots = [filter_set.root for filter_set in owned.sets]
        self._above = frozenset(path for root in roots if root != ROOT for path in (ROOT, *ancestors_of(root)))
        self._ruled = frozenset(filter_set.root for filter_set in owned.sets if filter_set.rules)
        self._below_ruled = tuple(root.rstrip("/") + "/" for root in self._ruled)
        self._pending: list[NodeText] = []  # above the current place, with nothing covered below so far

    def nodes(self, place: Place) -> Iterator[Node]:
        """Those at and below a place."""
        expanded, path = self._aggregates.expand(place), place.path
        is_covered = self._covers(path)
        if not is_covered and expanded.said is not None and expanded.is_defined:
            self._pending.append(expanded.said)
        if is_covered or path in self._above:
            pending, self._pending = self._pending, []
            yield from map(self._aggregates.node, pending)
        for child in expanded.children.values():
            if child.path in self._above or child.path in self._ruled or child.path.startswith(self._below_ruled):
                yield from self.nodes(child)
        if self._pending and self._pending[-1] is expanded.said:
            self._pending.pop()


def open_checkout_source(folder: Path) -> VaultSource:
    """Open a folder that has `jcr_root`, and perhaps `META-INF/vault/filter.xml`.

    Raises:
        SourceMissingError: There is no `jcr_root`.
        UntrustedInputError: Its filter can't be understood.
    """
    root = os.path.realpath(folder / CONTENT_ROOT)
    if not os.path.isdir(root):  # noqa: PTH112  # a text from here on
        raise SourceMissingError(f"{folder} has no folder {CONTENT_ROOT}")
    limits = LimitsConfig()
    documents = DocumentReader(Namespaces(), limits.max_xml_depth, MAX_DOCUMENT_BYTES)

    def make_binary(file: VaultFile) -> Binary:
        return checkout_binary(file, INLINE_BINARY_BYTES)

    aggregates = Aggregates(documents, make_binary, refer_to(ReferenceCodec(), None), refuse_collisions=False)
    source = VaultSource(str(folder), aggregates, CheckoutDirectory(CONTENT_ROOT, root, root), None)
    content = _metadata_of(folder, FILTER_XML, MAX_FILTER_BYTES)
    source.filter = None if content is None else parse_filter(content)
    content = _metadata_of(folder, PROPERTIES_XML, MAX_PROPERTIES_BYTES)
    source.properties = {} if content is None else parse_properties(content)
    check_properties(source.properties)
    return source


def open_archive_source(
    file: Path, limits: LimitsConfig | None = None, open_blob: OpenBinary | None = None
) -> VaultSource:
    """Open a FileVault zip; all its entries are checked first.

    Raises:
        SourceMissingError: There is no such file.
        UntrustedInputError: The file is not a zip, or not one that may be read.
    """
    try:
        stream = io.BufferedReader(open_regular_file(file))
    except OSError as error:
        raise SourceMissingError(f"{file} can't be opened: {error.strerror}") from error
    try:
        wanted = limits or LimitsConfig()
        settings = ReadingSettings(Namespaces(), ReferenceCodec())
        package = VaultPackage(open_archive(stream, wanted), wanted, settings)
        source = VaultSource(str(file), package.aggregates(open_blob), package.content(), stream)
        source.filter = package.filter()
        source.properties = package.properties
    except BaseException:
        stream.close()
        raise
    return source


def _metadata_of(folder: Path, name: str, largest: int) -> bytes | None:
    root = os.path.realpath(folder)
    disk = f"{root}/{name}"
    with (
        readable_source(disk),
        suppress(FileNotFoundError, NotADirectoryError),
        closed_folders(root) as folders,
    ):
        content = folders.read(folders.look(disk)[0], largest)
        if content is None:
            raise LimitExceededError(f"{name} is too long", entry=disk, limit=largest)
        return content.data or b""
    return None
