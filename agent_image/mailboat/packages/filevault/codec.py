"""The codec `filevault`: see `packages/port.py` for its contract, docs/formats/filevault.md for the format.

Between our agents packages are binary-less: large binaries are named by digest and lie in the shared blob store. For
AEM and Sling they are self-contained. Any thread may use a codec: it keeps nothing but bounded caches, whose
entries may be lost at any time.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

from mailboat.blobs.references import ReferenceCodec
from mailboat.config.document import LimitsConfig
from mailboat.content.binaries import content_bytes_of, unread
from mailboat.content.digest import TreeHash
from mailboat.errors import LimitExceededError, UsageError
from mailboat.model.changes import TreeChange
from mailboat.model.filters import MAX_RULES
from mailboat.model.nodes import Binary, Node, PropertyType
from mailboat.model.paths import NodePath, is_within, paths_above
from mailboat.packages.filevault.archive_writer import LEVEL, ArchiveWriter, EntryCounter, PackedContent
from mailboat.packages.filevault.document_reader import MAX_DOCUMENT_ATTRIBUTES, MAX_DOCUMENT_BYTES
from mailboat.packages.filevault.filter_xml import FILTER_XML, MAX_FILTER_BYTES, format_filter
from mailboat.packages.filevault.jcr_rules import NodeChecker
from mailboat.packages.filevault.layout_writer import Layout, LayoutSettings
from mailboat.packages.filevault.pattern_reach import with_roots_in_between
from mailboat.packages.filevault.properties import (
    MAX_PROPERTIES_BYTES,
    OWNS_ROOT,
    PROPERTIES_XML,
    check_written,
    format_properties,
    package_id,
    with_package_type,
)
from mailboat.packages.filevault.reader import (
    FilevaultReader,
    ReadingSettings,
    VaultPackage,
    is_of_everything,
    open_archive,
)
from mailboat.packages.filevault.xml_namespaces import Namespaces
from mailboat.packages.port import PackageContents, PackageReader, PackageSummary
from mailboat.packages.prefixes import Declarations
from mailboat.packages.tree_order import PathOrder
from mailboat.wire.node_bodies import OpenBinary, node_digest

MANIFEST: Final = "META-INF/MANIFEST.MF"
MAX_REMEMBERED: Final = 64
MAX_NODE_PROPERTIES: Final = MAX_DOCUMENT_ATTRIBUTES - 2
"""A document has two attributes more: the types of the node."""


@dataclass(frozen=True)
class FilevaultSettings:
    """How packages are written and read.

    Attributes:
        references: Signs and checks references to binaries in the blob store.
        namespaces: Prefix to namespace, for prefixes beyond those of JCR, Sling and AEM.
        level: zlib's, 0 to 9, for what is not packed already.
        max_document_bytes: The largest DocView document that is read: it is held in memory.
    """

    references: ReferenceCodec = field(default_factory=ReferenceCodec)
    namespaces: Mapping[str, str] = field(default_factory=dict)
    level: int = LEVEL
    max_document_bytes: int = MAX_DOCUMENT_BYTES


class FilevaultCodec:
    """Writes and reads FileVault packages."""

    package_type: Final = "filevault"
    read_together: Final = None

    def __init__(self, settings: FilevaultSettings | None = None) -> None:
        self._settings = settings or FilevaultSettings()
        self._packed_properties: dict[tuple[float, tuple[tuple[str, str], ...]], PackedContent] = {}
        self._reading = ReadingSettings(
            Namespaces(self._settings.namespaces), self._settings.references, self._settings.max_document_bytes
        )

    def write(self, contents: PackageContents, into: BinaryIO) -> PackageSummary:
        """Write a package. Properties `xmlns:<prefix>` name namespaces, the others go into `properties.xml`.

        Raises:
            UsageError: A node is not covered by the filter, the filter has no form in FileVault, or a repository can't
                hold a node.
            NamespaceUnresolvedError: A prefix has no namespace, or several.
            SourceChangedError: A binary's bytes are not those of its digest.
            LimitExceededError: Names collide that must not, or readers of the same configuration refuse a node.
        """
        return self._lay_out(contents, ArchiveWriter(into, self._settings.level, contents.limits, contents.spool))

    def check(self, contents: PackageContents) -> None:
        self._lay_out(replace(contents, nodes=unread(contents.nodes)), EntryCounter(contents.limits))

    def _lay_out(self, contents: PackageContents, archive: ArchiveWriter) -> PackageSummary:
        self._write_metadata(archive, contents)
        largest = None if contents.is_self_contained else contents.inline_binary_bytes
        namespaces = Declarations(contents, self._reading.namespaces.by_prefix)
        total = _Total(contents)
        owns = contents.filter.replaces
        settings = LayoutSettings(
            namespaces,
            self._settings.references,
            largest,
            owns if contents.is_for_repositories else None,
            total.amend,
            contents.limits.max_xml_depth,
            contents.filter.keeps_documents,
            contents.filter.is_simple and not any(root.is_shallow for root in contents.filter.sets),
        )
        layout = Layout(archive, settings)
        # Where documents are kept, each is written right before the first node below it: see `_Above`.
        for ancestor in () if settings.keeps_documents else contents.ancestors:
            layout.add_ancestor(ancestor)
        rules = NodeChecker(namespaces, contents.filter)
        checker = rules if contents.is_for_repositories else None
        above = _Above(contents.ancestors, checker, layout if settings.keeps_documents else None)
        for node, has_children in _with_lookahead(contents.nodes):
            above.take_of(node.path)
            if checker is not None:
                checker.check(node)
            check_size(node, contents.limits)
            layout.write_before(node.path)  # which may amend the digests of nodes that are complete then
            total.add(node)
            layout.add(node, has_children=has_children)
        above.take_rest()
        rules.finish()
        layout.finish()
        digest = archive.finish()
        return PackageSummary(
            archive.length_bytes,
            digest,
            total.hash.digest(),
            total.node_count,
            total.content_bytes,
            package_id(contents.properties) if contents.is_self_contained else None,
        )

    def read_bytes(
        self,
        payload: bytes,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,  # noqa: ARG002  # zip has a checksum for each entry, and none for the whole
    ) -> TreeChange:
        """Read a small package at once; everything is checked on return."""
        change = self.open(io.BytesIO(payload), limits, open_blob).change()
        return change._replace(records=list(change.records))

    def open(
        self,
        stream: BinaryIO,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,  # noqa: ARG002  # as in `read_bytes`
    ) -> PackageReader:
        """Open a package of any size. The stream must stay open, and be this reader's alone."""
        package = VaultPackage(open_archive(stream, limits), limits, self._reading)
        return FilevaultReader(package, open_blob)

    def _write_metadata(self, archive: ArchiveWriter, contents: PackageContents) -> None:
        roots = [filter_set.root for filter_set in contents.filter.sets]
        typed = with_package_type(contents.properties, roots)
        if is_of_everything(contents.filter):
            typed = {**typed, OWNS_ROOT: "true"}
        ratio = contents.limits.max_ratio
        key = ratio, tuple(typed.items())
        packed = self._packed_properties.get(key)
        if packed is None:
            check_written(typed)
            content = _encoded(PROPERTIES_XML, format_properties(typed), MAX_PROPERTIES_BYTES)
            packed = PackedContent.of(content, self._settings.level, ratio)
            if len(self._packed_properties) >= MAX_REMEMBERED:
                self._packed_properties.clear()
            self._packed_properties[key] = packed
        if contents.is_self_contained:
            archive.add(MANIFEST, _manifest(typed, roots))
        archive.add_packed(PROPERTIES_XML, packed)
        above = (*(node.path for node in contents.ancestors), *contents.directories)
        written = with_roots_in_between(contents.filter, above)
        if written.rule_count > MAX_RULES:
            raise LimitExceededError(
                f"the filter of the package would have {written.rule_count} roots and rules, which readers refuse",
                next_step="publish in several requests, or simplify the rules of the filter in the source",
                entry=FILTER_XML,
                limit=MAX_RULES,
            )
        archive.add(FILTER_XML, _encoded(FILTER_XML, format_filter(written), MAX_FILTER_BYTES))
        for name, definitions in contents.node_types.items():
            archive.add(name, definitions)


def _encoded(entry: str, text: str, largest: int) -> bytes:
    """A document of metadata. Raises: LimitExceededError, where readers refuse it."""
    content = text.encode()
    if len(content) > largest:
        raise LimitExceededError(
            f"an XML document would have {len(content)} bytes, which readers refuse",
            next_step="shorten it in the source, or publish smaller parts",
            entry=entry,
            limit=largest,
        )
    return content


def check_size(node: Node, limits: LimitsConfig) -> None:
    """Refuse a node that readers refuse wherever it is written. Raises: LimitExceededError."""
    if len(node.properties) > MAX_NODE_PROPERTIES:
        raise LimitExceededError(
            f"a node has {len(node.properties)} properties, which readers refuse in a document",
            path=node.path,
            limit=MAX_NODE_PROPERTIES,
        )
    for prop in node.properties:
        if prop.type is PropertyType.BINARY:
            for value in prop.values:
                if isinstance(value, Binary) and value.length_bytes > limits.max_entry_bytes:
                    raise LimitExceededError(
                        f"{prop.name} has {value.length_bytes} bytes, more than limits.max_entry_bytes",
                        next_step="leave the node out, or raise the limit at publisher and subscribers",
                        path=node.path,
                        limit=limits.max_entry_bytes,
                    )


class _Above:
    """The nodes above covered ones, each checked before the first one below it; with `layout` also written then."""

    def __init__(self, nodes: Iterable[Node], checker: NodeChecker | None, layout: Layout | None) -> None:
        self._waiting = {} if checker is None and layout is None else {node.path: node for node in nodes}
        self._checker = checker
        self._layout = layout

    def take_of(self, path: NodePath) -> None:
        for above in paths_above(path) if self._waiting else ():
            node = self._waiting.pop(above, None)
            if node is not None:
                self._take(node)

    def take_rest(self) -> None:
        """Take those without a node below."""
        for node in self._waiting.values():
            self._take(node)

    def _take(self, node: Node) -> None:
        if self._checker is not None:
            self._checker.check(node)
        if self._layout is not None:
            self._layout.add_ancestor(node)


class _Total:
    """What a package amounts to."""

    def __init__(self, contents: PackageContents) -> None:
        self.hash = TreeHash()
        self.node_count = 0
        self.content_bytes = 0
        self._covers = contents.filter.covers
        self._max_nodes = contents.limits.max_entries
        self._order = PathOrder(refuse_collisions=True) if contents.refuse_collisions else None

    def add(self, node: Node) -> None:
        if not self._covers(node.path):
            raise UsageError(f"{node.path} is not covered by the package's filter", path=node.path)
        if self._order is not None:
            self._order.add(node.path)
        self.hash.add(node.path, node_digest(node))
        self.node_count += 1
        if self.node_count > self._max_nodes:
            raise LimitExceededError(
                "the package has more nodes than limits.max_entries",
                next_step="publish smaller parts, or raise the limit at publisher and subscribers",
                path=node.path,
                limit=self._max_nodes,
            )
        self.content_bytes += content_bytes_of(node)

    def amend(self, node: Node) -> None:
        self.hash.amend(node.path, node_digest(node))


def _manifest(properties: Mapping[str, str], roots: Sequence[NodePath]) -> bytes:
    entries = {
        "Manifest-Version": "1.0",
        "Content-Package-Id": package_id(properties),
        "Content-Package-Type": properties["packageType"],
        "Content-Package-Roots": ",".join(roots),
        "Content-Package-Dependencies": properties.get("dependencies", ""),
        "Content-Package-Dependencies-Locations": properties.get("dependencies-locations", ""),
        "Content-Package-Description": properties.get("description", ""),
    }
    # A line break within a value would begin another entry.
    lines = [f"{key}: {' '.join(text.split())}" for key, text in entries.items() if text]
    return b"".join(_folded(line) for line in lines) + b"\r\n"


def _folded(line: str) -> bytes:
    """A manifest line in pieces of at most 72 bytes, the continued ones with a space before."""
    raw = line.encode()
    pieces = [raw[:72]] + [b" " + raw[at : at + 71] for at in range(72, len(raw), 71)]
    return b"".join(piece + b"\r\n" for piece in pieces)


def _with_lookahead(nodes: Iterable[Node]) -> Iterator[tuple[Node, bool]]:
    """Each node, and whether a child of it comes next."""
    before: Node | None = None
    for node in nodes:
        if before is not None:
            yield before, is_within(node.path, before.path)
        before = node
    if before is not None:
        yield before, False
