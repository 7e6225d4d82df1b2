"""FileVault checkouts and zips as sources: what `publish` and `content` read from them.

Both show all nodes that are there; what their filter covers, if they have one, is `filter`. Binaries that a package
only refers to can't be opened from here. One thread at a time.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from mailboat.blobs.references import ReferenceCodec
from mailboat.clock import SystemClock
from mailboat.config.document import LimitsConfig
from mailboat.content.disk_layout import not_utf_8
from mailboat.content.sources.folder_entries import (
    SourceFolders,
    SourceRoot,
    binary_of_file,
    closed_folders,
    open_unchanged,
    readable_source,
    signature_of,
)
from mailboat.errors import LimitExceededError, SourceMissingError
from mailboat.folder_handle import open_regular_file
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.namespaces import NamespaceTable, SingleNamespaces
from mailboat.model.nodes import Binary, Node, ordered_names
from mailboat.model.paths import ROOT, NodePath, paths_above
from mailboat.packages.filevault.archive_reader import ZipArchive
from mailboat.packages.filevault.archive_tree import CONTENT_ROOT, content_root
from mailboat.packages.filevault.document_reader import MAX_DOCUMENT_BYTES, DocumentReader, declarations_in
from mailboat.packages.filevault.elements import NodeText
from mailboat.packages.filevault.filter_xml import FILTER_XML, MAX_FILTER_BYTES, parse_filter
from mailboat.packages.filevault.layout_reader import Aggregates, Place
from mailboat.packages.filevault.pattern_reach import coverage_below, filter_within
from mailboat.packages.filevault.properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTIES_XML,
    check_properties,
    kept_properties,
    parse_properties,
)
from mailboat.packages.filevault.reader import (
    ReadingSettings,
    VaultPackage,
    imported_filter,
    is_of_everything,
    open_archive,
    refer_to,
)
from mailboat.packages.filevault.vault_files import INLINE_BINARY_BYTES, VaultDirectory
from mailboat.packages.filevault.xml_namespaces import Namespaces
from mailboat.packages.port import refusals_of

_LEFT_BY_TOOLS: Final = frozenset(
    {".git", ".svn", ".hg", ".DS_Store", "Thumbs.db", ".vltignore", ".gitkeep", ".gitignore"}
)


class CheckoutFile:
    """A file on disk."""

    __slots__ = ("_disk", "_root", "_status", "entry", "size_bytes")

    def __init__(self, entry: str, root: str, disk: str, status: os.stat_result) -> None:
        self.entry = entry
        self.size_bytes = status.st_size
        self._root = root
        self._disk = disk
        self._status = status

    def head(self, length: int) -> bytes:
        with self.open() as stream:
            return stream.read(length)

    def read(self) -> bytes:
        """All of it. Raises: SourceChangedError."""
        with self.open() as stream:
            return stream.read()

    def open(self) -> BinaryIO:
        """A stream over it, which raises SourceChangedError when the file is not the one checked."""
        return open_unchanged(self._root, self._disk, signature_of(self._status))

    def binary(self) -> Binary:
        """Its bytes; see `VaultFile.binary`."""
        if self.size_bytes <= INLINE_BINARY_BYTES:
            return Binary(self.read())
        return binary_of_file(self._root, self._disk, signature_of(self._status))


class CheckoutDirectory:
    """A directory on disk, listed when it is asked for. What tools leave in checkouts is not content.

    Links, sockets and files that change while they are read are treated as in any source folder
    (`content/sources/folder_entries.py`).
    """

    is_explicit = True

    def __init__(self, entry: str, disk: str, root: SourceRoot) -> None:
        """Stand for a directory; `root` is the checkout, which no link may leave."""
        self.entry = entry
        self._disk = disk
        self._root = root
        self._files: dict[str, CheckoutFile] | None = None
        self._directories: dict[str, CheckoutDirectory] = {}

    def files(self) -> dict[str, CheckoutFile]:
        """Files in it, by name. Raises: PathRefusedError, SourceChangedError, UsageError."""
        if self._files is None:
            self._files = {}
            with readable_source(self._disk), closed_folders(self._root.place) as folders:
                for name in sorted(folders.entries(self._disk)):
                    if name not in _LEFT_BY_TOOLS:
                        self._add(name, self._files, folders)
                self._root.note(folders.resolve(self._disk)[1])
        return self._files

    def check_kept(self) -> None:
        """See that the checkout was not being removed while it was read. Raises: SourceChangedError."""
        self._root.check()

    def directories(self) -> dict[str, CheckoutDirectory]:
        """Directories in it, by name. Raises: as `files`."""
        self.files()
        return self._directories

    def _add(self, name: str, files: dict[str, CheckoutFile], folders: SourceFolders) -> None:
        disk, entry = f"{self._disk}/{name}", f"{self.entry}/{name}"
        if not name.isprintable() and any("\ud800" <= character <= "\udfff" for character in name):
            raise not_utf_8(name, self._disk)
        disk, status = folders.resolve(disk)
        if stat.S_ISDIR(status.st_mode):
            self._directories[name] = CheckoutDirectory(entry, disk, self._root)
        else:
            files[name] = CheckoutFile(entry, self._root.place, disk, status)


_META: Final = "META-INF"
_REWRITTEN: Final = frozenset({FILTER_XML, PROPERTIES_XML, f"{_META}/MANIFEST.MF"})
"""What a package has of its own."""
_NODE_TYPES: Final = re.compile(rf"{_META}/vault/[A-Za-z0-9_.-]+\.cnd")
MAX_NODE_TYPES_BYTES: Final = 1024 * 1024
_Above = tuple[NodePath, NodeText | None]
"""A node above covered ones, and what defines it; None for a mere directory."""


class PackageMetadata(NamedTuple):
    """What `META-INF` says of a source.

    Attributes:
        files: Names of its files, below the folder that has `META-INF`.
        filter: What the package covers; None without a `filter.xml`.
        properties: Of `properties.xml`.
    """

    files: Sequence[str]
    filter: WorkspaceFilter | None
    properties: Mapping[str, str]


class VaultSource:
    """The nodes of a checkout or zip. See `Source`."""

    def __init__(
        self,
        uri: str,
        aggregates: Aggregates,
        directory: VaultDirectory,
        stream: BinaryIO | None,
        metadata: PackageMetadata,
        archive: ZipArchive | None = None,
    ) -> None:
        """Read below `directory`; `stream` is closed with the source, and `metadata` is of `archive` or checkout."""
        self.uri = uri
        self.filter = metadata.filter
        self.properties = metadata.properties
        self._metadata = metadata.files
        self._node_types: Mapping[str, bytes] | None = None
        self._archive = archive
        self._aggregates = aggregates
        self._directory = directory
        self._stream = stream
        self._found: tuple[WorkspaceFilter, Sequence[_Above]] | None = None

    def node(self, path: NodePath) -> Node | None:
        return next(self.walk(path, is_deep=False), None)

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        with refusals_of(self.uri):
            place = self._find(path)
            if place is None:
                return
            if is_deep:
                yield from self._aggregates.walk(place)
                if isinstance(self._directory, CheckoutDirectory):
                    self._directory.check_kept()
                return
            node_text = self._aggregates.expand(place).node_text
            if node_text is not None:
                yield self._aggregates.node(node_text)

    def child_names(self, path: NodePath) -> list[str]:
        with refusals_of(self.uri):
            place = self._find(path)
            if place is None:
                return []
            expansion = self._aggregates.expand(place)
            order = None if expansion.node_text is None else self._aggregates.node(expansion.node_text).child_order
            return ordered_names(order, list(expansion.children))

    def filter_within(self, asked: WorkspaceFilter) -> WorkspaceFilter:
        return asked if self.filter is None else filter_within(asked, self.filter)

    def ancestors(self, owned: WorkspaceFilter) -> Iterator[Node]:
        with refusals_of(self.uri):
            for _, node_text in self._above(owned):
                if node_text is not None:
                    yield self._aggregates.node(node_text)

    def directories(self, owned: WorkspaceFilter) -> Sequence[NodePath]:
        with refusals_of(self.uri):
            return [path for path, node_text in self._above(owned) if node_text is None]

    def _above(self, owned: WorkspaceFilter) -> Sequence[_Above]:
        """What is above covered nodes, found once for a filter."""
        if self._found is None or self._found[0] != owned:
            place = self._aggregates.root(self._directory)
            self._found = owned, list(_Ancestors(owned, self._aggregates).above(place))
        return self._found[1]

    def namespaces(self) -> NamespaceTable:
        return SingleNamespaces(self._aggregates.bindings())

    def package_properties(self) -> Mapping[str, str]:
        return kept_properties(self.properties)

    def other_metadata(self) -> Sequence[str]:
        return sorted(name for name in self._metadata if name not in _REWRITTEN)

    def node_types(self) -> Mapping[str, bytes]:
        if self._node_types is None:
            found: dict[str, bytes] = {}
            left = MAX_NODE_TYPES_BYTES
            with refusals_of(self.uri):
                for name in filter(_NODE_TYPES.fullmatch, self.other_metadata()):
                    found[name] = self._read_metadata(name, left)
                    left -= len(found[name])
            self._node_types = found
        return self._node_types

    def _read_metadata(self, name: str, largest: int) -> bytes:
        if self._archive is None:
            return _metadata_of(Path(self.uri), name, largest) or b""
        entry = self._archive.entries[name]
        if entry.size_bytes > largest:
            raise LimitExceededError(f"{name} is too long", entry=name, limit=largest)
        return self._archive.read(entry)

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
    """Finds the nodes above covered ones; those that are covered are expanded, and not understood.

    The walk for the nodes themselves reads all documents again, so this one leaves those out where no rule decides.
    """

    def __init__(self, owned: WorkspaceFilter, aggregates: Aggregates) -> None:
        self._aggregates = aggregates
        self._owned = owned
        roots = [filter_set.root for filter_set in owned.sets]
        self._paths_above = frozenset(path for root in roots for path in paths_above(root))
        self._ruled = frozenset(filter_set.root for filter_set in owned.sets if filter_set.rules)
        self._below_ruled = tuple(root.rstrip("/") + "/" for root in self._ruled)
        self._pending: list[_Above] = []  # above the current place, with nothing covered below so far

    def above(self, place: Place) -> Iterator[_Above]:
        """Those at and below a place."""
        expanded, path = self._aggregates.expand(place), place.path
        is_covered = self._owned.covers(path)
        if not is_covered and expanded.node_text is not None:
            self._pending.append((path, expanded.node_text if expanded.is_defined else None))
        if is_covered or path in self._paths_above:
            yield from self._take_pending()
        for child in expanded.children.values():
            if child.path in self._paths_above or child.path in self._ruled:
                yield from self.above(child)
            elif child.path.startswith(self._below_ruled):
                has_file = child.directory is not None or child.document is not None
                is_all_covered = coverage_below(self._owned, child.path) if has_file else None
                if is_all_covered is None:
                    yield from self.above(child)
                elif is_all_covered:
                    yield from self._take_pending()
        if self._pending and self._pending[-1][0] == path:
            self._pending.pop()

    def _take_pending(self) -> Sequence[_Above]:
        pending, self._pending = self._pending, []
        return pending


def open_checkout_source(folder: Path) -> VaultSource:
    """Open a folder that has `jcr_root`, and perhaps `META-INF/vault/filter.xml`.

    Raises:
        SourceMissingError: There is no `jcr_root`.
        UntrustedInputError: Its filter can't be understood.
    """
    with refusals_of(folder):
        root = SourceRoot(folder / CONTENT_ROOT, SystemClock())
        if not os.path.isdir(root.place):  # noqa: PTH112  # a text
            raise SourceMissingError(f"{folder} has no folder {CONTENT_ROOT}")
        directory = CheckoutDirectory(CONTENT_ROOT, root.place, root)
        survey = partial(declarations_in, directory)
        documents = DocumentReader(Namespaces(), LimitsConfig().max_xml_depth, MAX_DOCUMENT_BYTES, survey)

        content = _metadata_of(folder, FILTER_XML, MAX_FILTER_BYTES)
        owned = None if content is None else parse_filter(content)
        aggregates = Aggregates(documents, refer_to(ReferenceCodec(), None), owned, refuse_collisions=False)
        content = _metadata_of(folder, PROPERTIES_XML, MAX_PROPERTIES_BYTES)
        properties = {} if content is None else parse_properties(content)
        check_properties(properties)
        files = [
            (Path(place) / name).relative_to(folder).as_posix()
            for place, _, names in os.walk(folder / _META)
            for name in names
        ]
        # A root `/` stays: who publishes a checkout owns all of it, and what is removed at its top is a deletion.
        return VaultSource(str(folder), aggregates, directory, None, PackageMetadata(files, owned, properties))


def open_archive_source(file: Path) -> VaultSource:
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
        with refusals_of(file):
            return _opened_archive(file, stream)
    except BaseException:
        stream.close()
        raise


def _opened_archive(file: Path, stream: BinaryIO) -> VaultSource:
    limits = LimitsConfig()
    archive = open_archive(stream, limits)
    directory = content_root(archive)
    settings = ReadingSettings(Namespaces(), ReferenceCodec())
    package = VaultPackage(archive, limits, settings, partial(declarations_in, directory))
    owned = package.filter()
    # A source may have what some targets can't hold: what is made of it is checked when it is written.
    aggregates = package.aggregates(None, owned, refuse_collisions=False)
    if owned is not None and is_of_everything(owned):
        owned = imported_filter(owned, package.properties, aggregates, directory)
    files = [name for name in archive.entries if name.startswith(f"{_META}/") and name[-1] != "/"]
    metadata = PackageMetadata(files, owned, package.properties)
    return VaultSource(str(file), aggregates, directory, stream, metadata, archive)


def _metadata_of(folder: Path, name: str, largest: int) -> bytes | None:
    root = os.path.realpath(folder)
    disk = f"{root}/{name}"
    with (
        readable_source(disk),
        suppress(FileNotFoundError, NotADirectoryError),
        closed_folders(root) as folders,
    ):
        content = folders.read(folders.resolve(disk)[0], largest)
        if content is None:
            raise LimitExceededError(f"{name} is too long", entry=disk, limit=largest)
        return content.data or b""
    return None
