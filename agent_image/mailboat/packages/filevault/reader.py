"""Reads packages: a small one at once, a large one as a stream of records.

Names, sizes and structure of all entries are checked before the first record is given; what is in an entry is checked
when its turn comes. Records are covered nodes and the ancestors that they need, parents first, subtree by subtree; what
the filter does not cover is skipped, as in FileVault.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from mailboat.blobs.references import ReferenceCodec
from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError, PackageCorruptError, UntrustedInputError
from mailboat.model.changes import TreeChange
from mailboat.model.filters import MAX_RULES, FilterSet, WorkspaceFilter
from mailboat.model.namespaces import SingleNamespaces
from mailboat.model.nodes import FILE_TYPE, Binary, NodeRecord
from mailboat.model.paths import ROOT, NodePath, is_within, parse_path, paths_above
from mailboat.packages.filevault.archive_reader import ZipArchive, check_length
from mailboat.packages.filevault.archive_tree import (
    ArchiveDirectory,
    content_root,
    is_all_below,
    platform_path,
)
from mailboat.packages.filevault.document_reader import MAX_DOCUMENT_BYTES, DocumentReader, Element, SurveyPrefixes
from mailboat.packages.filevault.elements import NodeText, Refer, build_record
from mailboat.packages.filevault.filter_xml import FILTER_XML, MAX_FILTER_BYTES, parse_filter
from mailboat.packages.filevault.layout_reader import Aggregates, Place, refuse_bad_name, refuse_collisions
from mailboat.packages.filevault.names import CONTENT_XML
from mailboat.packages.filevault.properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTIES_XML,
    check_properties,
    parse_properties,
    replaces_root,
)
from mailboat.packages.filevault.vault_files import INLINE_BINARY_BYTES, VaultDirectory
from mailboat.packages.filevault.xml_namespaces import Namespaces
from mailboat.packages.prefixes import UsedNamespaces
from mailboat.wire.node_bodies import OpenBinary

MAX_CACHED_METADATA: Final = 64
_NO_NAMES: Final[tuple[str, ...]] = ()


@dataclass(frozen=True)
class ReadingSettings:
    """What does not change from package to package.

    Attributes:
        namespaces: Known prefixes, and the names resolved with them.
        references: Reads the texts of binaries that are elsewhere.
        max_document_bytes: One DocView document: it is held in memory.
        checked_properties: `properties.xml` by checksum and packed bytes, once parsed and checked.
    """

    namespaces: Namespaces
    references: ReferenceCodec
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    checked_properties: dict[tuple[int, bytes], dict[str, str]] = field(default_factory=dict)


class VaultPackage:
    """An open package: its metadata, and its content as places."""

    def __init__(
        self,
        archive: ZipArchive,
        limits: LimitsConfig,
        settings: ReadingSettings,
        survey: SurveyPrefixes | None = None,
    ) -> None:
        """Read the metadata. `survey`: see `DocumentReader`. Raises: as `PackageReader.change`."""
        self.archive = archive
        self.properties = _read_properties(archive, settings)
        self.documents = DocumentReader(settings.namespaces, limits.max_xml_depth, settings.max_document_bytes, survey)
        self.limits = limits
        self._settings = settings

    def filter(self) -> WorkspaceFilter | None:
        """What the package owns; None when it does not say."""
        entry = self.archive.entries.get(FILTER_XML)
        return None if entry is None else parse_filter(self.archive.read_document(entry, MAX_FILTER_BYTES))

    def content(self) -> ArchiveDirectory:
        return content_root(self.archive)

    def aggregates(
        self, open_blob: OpenBinary | None, owned: WorkspaceFilter | None, *, refuse_collisions: bool
    ) -> Aggregates:
        """How to read the nodes; `owned` is the package's filter."""
        refer = refer_to(self._settings.references, open_blob)
        return Aggregates(self.documents, refer, owned, refuse_collisions=refuse_collisions)


class FilevaultReader:
    """An open package, to import: see `PackageReader`.

    Attributes:
        properties: See there.
    """

    def __init__(self, package: VaultPackage, open_blob: OpenBinary | None) -> None:
        """Read the filter and lay out the content. Raises: as `PackageReader.change`."""
        found = package.filter()
        if found is None:
            raise PackageCorruptError("the package has no filter", entry=FILTER_XML)
        self.properties = package.properties
        self._check_names = package.archive.check_names
        self._max_nodes = package.limits.max_entries
        collisions = package.limits.refuse_collisions
        self._aggregates = package.aggregates(open_blob, found, refuse_collisions=collisions)
        if is_of_everything(found):
            found = imported_filter(found, self.properties, self._aggregates, package.content())
        self.filter: Final = found
        self._top = _top(package, found, self._aggregates)

    def change(self) -> TreeChange:
        declared = SingleNamespaces(self._aggregates.bindings())
        used = UsedNamespaces((SingleNamespaces(self._aggregates.namespaces.configured), declared))
        return TreeChange(self.filter, self._records(used), used.found)

    def _records(self, used: UsedNamespaces) -> Iterator[NodeRecord]:
        covers, count = self.filter.covers, 0
        bindings, configured = self._aggregates.bindings(), self._aggregates.namespaces.configured
        for record in self._selected():
            if bindings or configured:  # else there is no prefix to look for, and a small package costs 5 % less
                used.note(record.path, record.body)
            count += covers(record.path)
            if count > self._max_nodes:
                raise LimitExceededError(
                    "the package has more nodes than limits.max_entries", path=record.path, limit=self._max_nodes
                )
            yield record
        self._check_names()

    def _selected(self) -> Iterable[NodeRecord]:
        """What the filter covers. The usual package is one whole subtree in one document: nothing is to be selected."""
        sets, top = self.filter.sets, self._top
        if len(sets) == 1 and sets[0].root == top.path and self.filter.is_simple and not sets[0].is_shallow:
            whole = _Subtrees(self._aggregates).records(top)
            if whole is not None:
                return whole
        return _Selection(self.filter, self._aggregates).records(top)

    def close(self) -> None:
        """Nothing is held: the stream is the caller's."""


def is_of_everything(owned: WorkspaceFilter) -> bool:
    """Whether a root of the filter is `/`, with all below it."""
    return any(filter_set.root == ROOT and not filter_set.is_shallow for filter_set in owned.sets)


def imported_filter(
    owned: WorkspaceFilter, properties: Mapping[str, str], aggregates: Aggregates, top: VaultDirectory
) -> WorkspaceFilter:
    """The filter as FileVault applies it: a root `/` owns what the package has at the top, and other nodes there stay.

    The directory `jcr_root` "addresses itself" there, and nothing is removed. With a document of the root, FileVault
    would remove all other nodes, which Oak refuses: the administrator is among them.
    https://github.com/apache/jackrabbit-filevault/blob/jackrabbit-filevault-4.1.4/vault-core/src/main/java/org/apache/jackrabbit/vault/fs/impl/io/FolderArtifactHandler.java#L76

    Raises: LimitExceededError, and as `Aggregates.expand`.
    """
    if replaces_root(properties):
        return owned
    names = [place.path for place in aggregates.expand(aggregates.root(top)).children.values()]
    sets: list[FilterSet] = []
    for filter_set in owned.sets:
        is_root = filter_set.root == ROOT and not filter_set.is_shallow
        sets += [filter_set._replace(root=path) for path in names] if is_root else [filter_set]
        if len(sets) > MAX_RULES:
            raise LimitExceededError(
                f"the package has {len(names)} nodes at the top, and a root of its filter is /",
                next_step="name the roots in the filter",
                entry=FILTER_XML,
                limit=MAX_RULES,
            )
    return WorkspaceFilter(tuple(sets))


def _top(package: VaultPackage, workspace: WorkspaceFilter, aggregates: Aggregates) -> Place:
    """Where to begin: at the root of a filter that has one, if there is nothing above it, otherwise at the top."""
    if len(workspace.sets) == 1 and workspace.is_simple:
        root = workspace.sets[0].root
        directory = platform_path(root)
        if is_all_below(package.archive, directory):
            return Place(root, directory, directory=content_root(package.archive, directory))
    return aggregates.root(package.content())


class _Selection:
    """Which of the nodes become records."""

    def __init__(self, workspace: WorkspaceFilter, aggregates: Aggregates) -> None:
        self._filter = workspace
        self._aggregates = aggregates
        self._pending: list[NodeText] = []
        roots = [filter_set.root for filter_set in workspace.sets]
        self._above = frozenset(path for root in roots for path in paths_above(root))
        self._covers = workspace.covers
        self._below = tuple([root.rstrip("/") + "/" for root in roots])
        self._roots = frozenset(roots)
        # Below these roots everything is covered, so that whole documents can be taken at once.
        self._deep = tuple([root.rstrip("/") + "/" for root in workspace.deep_roots]) if workspace.is_simple else ()
        self._subtrees = _Subtrees(aggregates)

    def records(self, place: Place) -> Iterator[NodeRecord]:
        is_covered = self._covers(place.path)
        if is_covered and f"{place.path}/".startswith(self._deep):
            taken = self._subtrees.records(place)
            if taken is not None:
                yield from self._with_pending(place.path)
                yield from taken
                return
        children: Iterable[Place] | None = None if is_covered else self._aggregates.bare_children(place)
        if children is None:
            expanded = self._aggregates.expand(place)
            children = expanded.children.values()
            if expanded.node_text is not None and (is_covered or not expanded.is_implied):
                yield from self._given(expanded.node_text, is_covered=is_covered)
        for child in children:
            if self._may_matter(child.path):
                yield from self.records(child)

    def _given(self, node_text: NodeText, *, is_covered: bool) -> Iterator[NodeRecord]:
        """The node's record if it is wanted, after those above it that it needs."""
        if not is_covered:
            while self._pending and not is_within(node_text.path, self._pending[-1].path):
                self._pending.pop()
            self._pending.append(node_text)
            if node_text.path not in self._above:
                return
        yield from self._with_pending(node_text.path)
        if is_covered:
            yield self._aggregates.record(node_text)

    def _with_pending(self, path: NodePath) -> Iterator[NodeRecord]:
        if self._pending:
            pending, self._pending = self._pending, []
            for above in pending:
                if is_within(path, above.path):
                    yield self._aggregates.record(above)

    def _may_matter(self, path: NodePath) -> bool:
        return path.startswith(self._below) or path in self._roots or path in self._above


class _Subtrees:
    """Reads documents that nothing is nested in straight into records: the usual package is one of them.

    Gives what walking the places of `layout_reader.py` gives, without making a place for each element; a test holds the
    two together. Only for subtrees that are covered as a whole.
    """

    def __init__(self, aggregates: Aggregates) -> None:
        """Read as `aggregates` does."""
        self._aggregates = aggregates
        self._plan = aggregates.plan
        self._resolve = aggregates.namespaces.resolve

    def records(self, place: Place) -> list[NodeRecord] | None:
        """The records at and below a place that is one element or one document; None when it is more than that."""
        element = place.element
        if place.file is not None or place.document is not None:
            return None
        if place.directory is not None:
            if element is not None or place.directory.directories() or list(place.directory.files()) != [CONTENT_XML]:
                return None
            element = self._aggregates.own_document(place)
        if element is None or not element.attributes:
            return None
        taken: list[NodeRecord] = []
        try:
            self._take(element, place.path, place.entry, taken)
        except UntrustedInputError as error:
            error.with_facts(entry=place.entry, path=place.path)
            raise
        return taken

    def _take(self, element: Element, path: NodePath, entry: str, taken: list[NodeRecord]) -> None:
        attributes = element.attributes
        plan, texts = self._plan(element, path, entry), attributes[1::2]
        if not element.children:
            node_text = NodeText(path, entry, plan, texts, (), _NO_NAMES, element.marks)
            taken.append(build_record(node_text, self._aggregates.refer))
            return
        if plan.primary is None or FILE_TYPE in texts[plan.primary]:
            taken += self._take_place(Place(path, entry, element))
            return
        try:
            names = tuple([self._resolve(child.name, entry) for child in element.children])
        except UntrustedInputError as error:
            error.with_facts(path=path)  # the parent: the name of the child is what cannot be read
            raise
        if len(set(names)) != len(names):
            taken += self._take_place(Place(path, entry, element))
            return
        node_text = NodeText(path, entry, plan, texts, (), names, element.marks)
        taken.append(build_record(node_text, self._aggregates.refer))
        self._take_children(element, names, path, entry, taken)

    def _take_children(
        self, element: Element, names: tuple[str, ...], path: NodePath, entry: str, taken: list[NodeRecord]
    ) -> None:
        present = [
            name for name, child in zip(names, element.children, strict=True) if child.attributes or child.children
        ]
        if len(present) > 1 and self._aggregates.refuse_collisions:
            refuse_collisions(path, present)
        above = path.rstrip("/")
        for name, child in zip(names, element.children, strict=True):
            if "/" in name or not (child.attributes or child.children):
                refuse_bad_name(path, entry, name)
            if child.attributes:
                self._take(child, parse_path(f"{above}/{name}"), entry, taken)
            elif child.children:
                taken += self._take_place(Place(parse_path(f"{above}/{name}"), entry, child))

    def _take_place(self, place: Place) -> Iterator[NodeRecord]:
        expanded = self._aggregates.expand(place)
        if expanded.node_text is not None:
            yield self._aggregates.record(expanded.node_text)
        for child in expanded.children.values():
            yield from self._take_place(child)


def refer_to(references: ReferenceCodec, open_blob: OpenBinary | None) -> Refer:
    """How the text of a reference becomes a binary; without `open_blob` it can't be opened."""

    def refer(text: str) -> Binary:
        digest, length = references.parse(text)
        opener = None if open_blob is None else lambda: open_blob(digest)
        return Binary(digest=digest, length_bytes=length, opener=opener)

    return refer


def open_archive(stream: BinaryIO, limits: LimitsConfig) -> ZipArchive:
    """Open a zip that fills a seekable stream. Raises: PackageCorruptError, LimitExceededError, PathRefusedError."""
    return ZipArchive(stream, stream.seek(0, io.SEEK_END), limits)


def _read_properties(archive: ZipArchive, settings: ReadingSettings) -> dict[str, str]:
    entry = archive.entries.get(PROPERTIES_XML)
    if entry is None:
        return {}
    check_length(entry, MAX_PROPERTIES_BYTES)
    packed = archive.read_packed(entry)
    known = settings.checked_properties.get((entry.crc, packed))
    if known is None:
        known = parse_properties(archive.read(entry))
        check_properties(known)
        if len(settings.checked_properties) >= MAX_CACHED_METADATA:
            settings.checked_properties.clear()
        if len(packed) < INLINE_BINARY_BYTES:
            settings.checked_properties[entry.crc, packed] = known
    return known
