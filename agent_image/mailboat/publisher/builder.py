"""Building packages: from a request and a source to a message that is ready to append.

Binaries above the inline limit go to the blob store first, under the hash of their content; a package that doesn't fit
a message follows them. So whatever a message names is there before the message is. Memory is bounded: a package is
spooled to a temporary file or cut into pieces as it is written, and only one that travels inline is held as bytes.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, NamedTuple, cast

from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import BlobReference
from mailboat.clock import milliseconds_now
from mailboat.config.document import LimitsConfig, Transfer
from mailboat.content.binaries import binaries_of
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.keys import key_of
from mailboat.content.port import Source
from mailboat.content.watched_sources import description_of, namespaces_of
from mailboat.errors import (
    BlobCorruptError,
    LimitExceededError,
    MailboatError,
    SourceChangedError,
    SourceMissingError,
    UsageError,
)
from mailboat.failpoints import Failpoint
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.identifiers import PackageId, RequestId
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import ROOT, NodePath, ancestors_of
from mailboat.model.requests import DistributionRequest
from mailboat.packages.codec_registry import FILEVAULT
from mailboat.packages.port import AC_HANDLING, PackageCodec, PackageContents, PackageSummary
from mailboat.publisher.piece_writer import OVERHEAD_BYTES, PieceAppender, PieceWriter
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings
from mailboat.tracing import NO_SPAN, PublicationSpan, context_of_package, parse_trace_parent
from mailboat.wire.node_bodies import DIGEST_BYTES
from mailboat.wire.package_messages import encode_package

TEMPORARY_FOLDER: Final = "the folder for temporary files"
"""How errors name it, where no folder is configured."""
# Above the default inline limit of 800 KiB: a package that travels in its message touches no disk.
_SPOOL_BYTES: Final = 1024 * 1024
_SHIPPED_PROPERTIES: Final = frozenset({AC_HANDLING})  # importers of content read none of the others
# The field of a payload adds tag and length, 6 bytes, to the value that is measured without it; the rest is spare.
# Key and headers of the record need none of it: topics have room for them beyond the limit (`ROOM_BYTES`).
_FRAME_BYTES: Final = 64

# `check` measures a message before it has its ids; none is longer.
_ANY_UUID: Final = uuid.UUID(int=2**128 - 1)
_LONGEST_ID: Final = PackageId(f"dstrpck-{10**13}-{_ANY_UUID}")
_MADE_REQUEST_ID: Final = RequestId(str(_ANY_UUID))

ObserveNode = Callable[[Node], None]


class Publication(NamedTuple):
    """A message on its way into the log, from the builder to the receipt.

    Attributes:
        message: The message; its request id is the caller's or ours.
        fingerprint: What the request asks for.
        summary: Totals of the package; None without one.
        removed: How many paths subscribers remove.
        is_named: The request id may come again, so intent and receipt must be kept.
        followed: The sources of which something is staged under the package id.
        source_uri: The source that may have come to be followed since; None where that is known.
        span: Ended by the appender.
    """

    message: PackageMessage
    fingerprint: bytes
    summary: PackageSummary | None = None
    removed: int = 0
    is_named: bool = True
    followed: Sequence[int] = ()
    source_uri: str | None = None
    span: PublicationSpan = NO_SPAN

    @property
    def needs_state(self) -> bool:
        """Whether the state may have to know of it."""
        return self.is_named or self.source_uri is not None or self.message.action is Action.DELETE

    @property
    def request_id(self) -> RequestId:
        if self.message.request_id is None:
            raise ValueError("a publication has a request id")
        return self.message.request_id


@dataclass(frozen=True, slots=True)
class Shipment:
    """What a package will carry.

    Attributes:
        filter: What it owns.
        nodes: The covered nodes, parents first, read once.
        ancestors: The nodes above.
        namespaces: Of the source's prefixes, complete once the nodes were read; None for a source without any.
        properties: What the source says of itself as a package.
        directories: Mere directories above covered nodes.
        read_node_types: Reads the source's files that define node types, by entry.
        emptied: Roots without content: subscribers remove what they have there.
    """

    filter: WorkspaceFilter
    nodes: Iterable[Node]
    ancestors: tuple[Node, ...] = ()
    namespaces: NamespaceTable | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    directories: Sequence[NodePath] = ()
    read_node_types: Callable[[], Mapping[str, bytes]] = dict
    emptied: frozenset[NodePath] = frozenset()

    def contents(self, package_type: str, limits: LimitsConfig) -> PackageContents:
        """The contents of a package in a format, with the properties that a published package keeps."""
        is_filevault = package_type == FILEVAULT
        return PackageContents(
            self.filter,
            self.nodes,
            self.ancestors,
            is_for_repositories=is_filevault,
            properties=shipped_properties(self.properties),
            namespaces=self.namespaces,
            limits=limits,
            directories=self.directories,
            node_types=self.read_node_types() if is_filevault else {},
        )


class PackageBuilder:
    """Builds the messages of one publisher."""

    def __init__(self, settings: PublisherSettings, ports: PublisherPorts) -> None:
        self._settings = settings
        self._ports = ports
        # Only by reference do subscribers reach this blob store; otherwise the package has to carry all binaries.
        self._is_self_contained: Final = settings.config.transfer is not Transfer.REFERENCE

    def new_package_id(self) -> PackageId:
        """An id that no other package has: `dstrpck-<epoch milliseconds>-<uuid4>`, as in Sling."""
        # Not `uuid4`: randomness is passed in, so that a test can repeat a run.
        chance = uuid.UUID(int=self._ports.random.getrandbits(128), version=4)
        return PackageId(f"dstrpck-{milliseconds_now(self._ports.clock)}-{chance}")

    def build_bare(self, request: DistributionRequest, package_id: PackageId) -> Publication:
        """The message of a request without content: DELETE, INVALIDATE, TEST. Raises: LimitExceededError."""
        message = self.draft(request, package_id)
        self.room_in(message)
        removed = len(request.paths) if request.action is Action.DELETE else 0
        return Publication(message, request.fingerprint, removed=removed)

    def build(
        self, request: DistributionRequest, package_id: PackageId, shipment: Shipment, again: Callable[[], Shipment]
    ) -> Publication:
        """Write the package, store what does not travel inline, and compose the message.

        Args:
            request: What is published.
            package_id: The package's id.
            shipment: The content.
            again: Gives the same, to be checked to its end before a part of it is appended.

        Raises:
            UsageError: The format of the package can't hold a node.
            LimitExceededError: The package, or the message without it, is larger than allowed, or names collide.
            SourceChangedError: The source changed while it was read.
            StorageFullError, StorageReadOnlyError, RetryableError: The blob store can't take it.
        """
        began, large = self._ports.clock.monotonic(), dict[bytes, Binary]()
        draft = self.draft(request, package_id)
        contents = self._contents(shipment, large)
        if self._settings.config.transfer is Transfer.CHUNKS:
            # Appended pieces can't be taken back: the content is checked to its end before the first of them.
            built = self._build_in_pieces(draft, contents, large, lambda: self.check(request, again()))
        else:
            built = self._build_as_a_whole(draft, contents, large)
        # All blobs are durable from here on, and no message names them yet: a crash leaves them to the sweep.
        self._ports.failpoints.reach(Failpoint.PUBLISHER_BLOB_STORED)
        message, summary = built
        self._ports.meter.built(message.package_length_bytes, self._ports.clock.monotonic() - began)
        return Publication(message, request.fingerprint, summary, len(shipment.emptied))

    def _build_as_a_whole(
        self, draft: PackageMessage, contents: PackageContents, large: dict[bytes, Binary]
    ) -> tuple[PackageMessage, PackageSummary]:
        with spooled_package(self._codec(), contents, self._settings.spool) as (summary, spool):
            self._ports.failpoints.reach(Failpoint.PUBLISHER_PACKAGE_BUILT)
            self._check_length(summary)
            draft = _described(draft, summary, large)
            # Only what fits a message is read into memory; a larger package goes from the file to the blob store.
            if summary.length_bytes <= self._room_for_package(draft):
                return draft._replace(payload=spool.read()), summary
            if self._settings.config.transfer is Transfer.INLINE:
                raise _too_large_for_a_message(summary.length_bytes, self._settings.config.inline_package_bytes)
            # The blob is durable before the message that refers to it is appended.
            stored = self._ports.blobs.put(spool, draft.package_digest)
            reference = BlobReference(stored.digest, draft.package_length_bytes)
            return self._referring(draft, self._ports.references.format(reference)), summary

    def _build_in_pieces(
        self,
        draft: PackageMessage,
        contents: PackageContents,
        large: dict[bytes, Binary],
        check: Callable[[], object],
    ) -> tuple[PackageMessage, PackageSummary]:
        """Into the journal while it is written, as soon as it is clear that it does not fit a message."""
        with (
            TranslatedFailures(self._settings.spool or TEMPORARY_FOLDER),  # of codecs, which may spool a binary
            self._piece_writer(draft.package_id, check) as writer,
        ):
            summary = self._codec().write(contents, cast("BinaryIO", writer))
            self._ports.failpoints.reach(Failpoint.PUBLISHER_PACKAGE_BUILT)
            draft = _described(draft, summary, large)
            # None once pieces were appended: then the beginning of the package is in the log and nowhere else.
            content = writer.content
            if content is not None and len(content) <= self._room_for_package(draft):
                return draft._replace(payload=content), summary
            # `finish` waits for all pieces: the message must not precede them in the log.
            return self._referring(draft, str(writer.finish())), summary

    def _referring(self, draft: PackageMessage, reference: str) -> PackageMessage:
        message = draft._replace(payload_ref=reference)
        self.room_in(message)
        return message

    def _room_for_package(self, draft: PackageMessage) -> int:
        return min(self._settings.config.inline_package_bytes, self.room_in(draft))

    def check(self, request: DistributionRequest, shipment: Shipment) -> None:
        """Refuse what `build` would. Stores nothing; reads only binaries that a message must hold.

        Raises: as `build`, but for the size of a package that does not travel in its message.
        """
        # The message with all that publishing adds to it but the package, its place and large binaries.
        named, digest = replace(request, request_id=request.request_id or _MADE_REQUEST_ID), bytes(DIGEST_BYTES)
        draft = self.draft(named, _LONGEST_ID)._replace(
            package_length_bytes=self._settings.max_message_bytes, package_digest=digest, tree_digest=digest
        )
        contents = self._contents(shipment, None)
        if self._settings.config.transfer is Transfer.INLINE:
            # What packing gains is known only when it is done: this ends as soon as there is more than has room.
            self._codec().write(contents, cast("BinaryIO", _LimitedStream(self._room_for_package(draft))))
        else:
            self.room_in(draft)
            self._codec().check(contents)

    def _contents(self, shipment: Shipment, large: dict[bytes, Binary] | None) -> PackageContents:
        """The contents; `large` collects the large binaries, stored as their nodes are read. None stores none."""

        def stored(nodes: Iterable[Node]) -> Iterable[Node]:
            if large is None or self._is_self_contained:
                return nodes
            return with_stored_binaries(nodes, self._settings.config.inline_binary_bytes, self._ports.blobs, large)

        return replace(
            shipment.contents(self._codec().package_type, self._settings.limits),
            nodes=stored(shipment.nodes),
            ancestors=tuple(stored(shipment.ancestors)),
            inline_binary_bytes=self._settings.config.inline_binary_bytes,
            is_self_contained=self._is_self_contained,
            refuse_collisions=self._settings.limits.refuse_collisions,
            spool=self._settings.spool,
        )

    def _piece_writer(self, package_id: PackageId, check: Callable[[], object]) -> PieceWriter:
        settings, ports = self._settings, self._ports
        largest = settings.max_message_bytes - OVERHEAD_BYTES
        return PieceWriter(
            PieceAppender(ports.journal, settings.package_topic, settings.sling_id, settings.name, package_id),
            # A configured piece may be larger than what the topic takes: the brokers would refuse it half-way.
            min(settings.config.piece_bytes, largest),
            # A package that may travel inline must be held whole: its beginning must not be appended as a piece.
            max(settings.append_bytes, settings.config.inline_package_bytes),
            ports.failpoints,
            settings.limits.max_total_bytes,
            check,
        )

    def room_in(self, message: PackageMessage) -> int:
        """Bytes that a payload may still have. Raises: LimitExceededError when the message is too large without."""
        taken = len(encode_package(message)) + _FRAME_BYTES
        if taken > self._settings.max_message_bytes:
            raise LimitExceededError(
                f"the paths and large binaries of one request need a message of {taken} bytes,"
                f" the journal takes {self._settings.max_message_bytes}",
                next_step="publish in several requests, or with --changed, which splits the content",
                limit=self._settings.max_message_bytes,
                paths=len(message.paths),
                binaries=len(message.binaries),
            )
        return self._settings.max_message_bytes - taken

    def _check_length(self, summary: PackageSummary) -> None:
        limit = self._settings.limits.max_total_bytes
        if summary.length_bytes > limit:
            raise LimitExceededError(
                f"the package has {summary.length_bytes} bytes, the limit is {limit}",
                next_step="publish in several requests, or with --changed, which splits the content",
                limit=limit,
            )

    def draft(self, request: DistributionRequest, package_id: PackageId) -> PackageMessage:
        """The message of a request, without its package."""
        context = parse_trace_parent(request.trace_parent) or context_of_package(package_id)
        return PackageMessage(
            self._settings.sling_id,
            package_id,
            request.action,
            self._settings.config.package_type_name,
            self._settings.name,
            paths=request.paths,
            # in the order of `paths`: a set has none, and equal requests make equal messages
            deep_paths=tuple(path for path in request.paths if path in request.deep_paths),
            user_id=request.user_id,
            request_id=request.request_id,
            created_ms=milliseconds_now(self._ports.clock),
            trace_parent=None if context is None else str(context),
        )

    def _codec(self) -> PackageCodec:
        name = self._settings.config.package_type_name
        codec = self._ports.codecs.get(name)
        if codec is None:
            known = ", ".join(sorted(self._ports.codecs))
            raise UsageError(f"there is no package format {name!r}; known here: {known}")
        return codec


@contextmanager
def spooled_package(
    codec: PackageCodec, contents: PackageContents, folder: str | None = None
) -> Iterator[tuple[PackageSummary, BinaryIO]]:
    """Write a package into a temporary file, which is in memory while it is small.

    Gives its totals and the file, at its beginning. Raises: as `PackageCodec.write`; StorageFullError, …
    """
    # By a file: a blob's name is its digest, and whether a package fits its message is known at the end, too.
    with TranslatedFailures(folder or TEMPORARY_FOLDER), SpooledTemporaryFile(_SPOOL_BYTES, dir=folder) as spool:
        stream = cast("BinaryIO", spool)
        summary = codec.write(contents, stream)
        stream.seek(0)
        yield summary, stream


class _LimitedStream(io.RawIOBase):
    """A stream that keeps nothing, and takes at most its limit of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._written_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        length = len(memoryview(data))  # type: ignore[arg-type]  # typeshed's ReadableBuffer is not importable
        self._written_bytes += length
        if self._written_bytes > self._limit_bytes:
            raise _too_large_for_a_message(f"more than {self._limit_bytes}", self._limit_bytes)
        return length


def _too_large_for_a_message(length_bytes: int | str, limit: int) -> LimitExceededError:
    return LimitExceededError(
        f"the package has {length_bytes} bytes, does not fit a message, and may not travel otherwise",
        next_step="publish in several requests, or let it travel by another `publisher.transfer` than inline",
        limit=limit,
    )


def _described(draft: PackageMessage, summary: PackageSummary, large: dict[bytes, Binary]) -> PackageMessage:
    return draft._replace(
        package_length_bytes=summary.length_bytes,
        package_digest=summary.package_digest,
        tree_digest=summary.tree_digest,
        binaries=tuple(Binary(digest=binary.digest, length_bytes=binary.length_bytes) for binary in large.values()),
    )


def shipment_of(request: DistributionRequest, source: Source, observe: ObserveNode | None = None) -> Shipment:
    """What the ADD ships. `observe` sees every node as it is read.

    A path that has nothing in the source ships if the source's own filter has a root at or below it: the package then
    removes what a target has there, as in FileVault.

    Raises:
        SourceMissingError: Any other path is not in the source. A removal is published by DELETE.
    """
    declared = _declared(request.deep_paths, source)
    absent = [path for path in request.paths if path != ROOT and source.node(path) is None]
    for path in absent:
        if path not in declared:
            raise _missing(path, source)
    owned = owned_of(request, source)

    def gone(path: NodePath) -> MailboatError:
        if path == ROOT:  # only the walk shows whether a source has it; all other paths were there just now
            return _missing(path, source)
        return SourceChangedError("a path vanished while it was published", path=path)

    # Decided once: a path that vanishes from here on is an error, and no removal.
    nodes = walk_roots(request.filter, source, gone, declared.intersection((*absent, ROOT)))
    if owned != request.filter:
        nodes = _covered(nodes, owned, source, may_be_empty=bool(declared))
    shipment = shipment_from(source, owned, nodes if observe is None else observed(nodes, observe))
    if not declared:
        return shipment
    roots = (filter_set.root for filter_set in owned.sets)
    emptied = frozenset(root for root in roots if owned.replaces(root) and source.node(root) is None)
    return replace(shipment, emptied=emptied)


def _declared(paths: Iterable[NodePath], source: Source) -> frozenset[NodePath]:
    """The paths with a root of the source's own filter at or below them."""
    described = description_of(source)
    if described is None or described.filter is None:
        return frozenset()
    roots = {filter_set.root for filter_set in described.filter.sets}
    return frozenset(paths) & {ROOT, *roots, *(above for root in roots for above in ancestors_of(root))}


def owned_of(request: DistributionRequest, source: Source) -> WorkspaceFilter:
    """What the package of an ADD owns: its paths, with the modes and rules of the source's own filter."""
    described = description_of(source)
    return request.filter if described is None else described.filter_within(request.filter)


def shipment_from(source: Source, owned: WorkspaceFilter, nodes: Iterable[Node]) -> Shipment:
    """These nodes of the source, with what else it says of them."""
    ancestors, namespaces = ancestors_in(owned, source), namespaces_of(source)
    described = description_of(source)
    if described is None:
        return Shipment(owned, nodes, ancestors, namespaces)
    properties, directories = described.package_properties(), described.directories(owned)
    return Shipment(owned, nodes, ancestors, namespaces, properties, directories, described.node_types)


def shipped_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """What of a source's package properties a published package keeps."""
    return {key: text for key, text in properties.items() if key in _SHIPPED_PROPERTIES}


class Unpublished(NamedTuple):
    """What a publication leaves out of a source's metadata.

    Attributes:
        properties: Names of package properties.
        files: Files of `META-INF`.
    """

    properties: Sequence[str] = ()
    files: Sequence[str] = ()


def unpublished_of(source: Source, package_type: str) -> Unpublished:
    """What a publication of this format leaves out of the metadata of a source.

    Raises: LimitExceededError: The source defines node types beyond the limit.
    """
    described = description_of(source)
    if described is None:
        return Unpublished()
    properties = described.package_properties().keys() - _SHIPPED_PROPERTIES
    kept = described.node_types() if package_type == FILEVAULT else {}
    return Unpublished(sorted(properties), [name for name in described.other_metadata() if name not in kept])


def ancestors_in(owned: WorkspaceFilter, source: Source) -> tuple[Node, ...]:
    """Uncovered nodes of the source above covered ones, top down; no plain folders."""
    described = description_of(source)
    if described is not None:
        return tuple(sorted(described.ancestors(owned), key=lambda node: key_of(node.path)))
    # Only a described source has rules, which can leave out a node between a root and what is covered.
    above = {path for filter_set in owned.sets for path in ancestors_of(filter_set.root)}
    paths = [path for path in sorted(above, key=key_of) if not owned.covers(path)]
    # A target that lacks a plain folder creates one of the type that fits there: in a repository, `/home/groups` can't
    # be an nt:folder.
    return tuple(node for node in map(source.node, paths) if node is not None and not node.is_plain_folder)


def observed(nodes: Iterable[Node], observe: ObserveNode) -> Iterator[Node]:
    """The nodes; each is shown to `observe` before it is given."""
    for node in nodes:
        observe(node)
        yield node


def _covered(nodes: Iterable[Node], owned: WorkspaceFilter, source: Source, *, may_be_empty: bool) -> Iterator[Node]:
    is_empty = not may_be_empty
    for node in nodes:
        if owned.covers(node.path):
            is_empty = False
            yield node
    if is_empty:
        roots = ", ".join(filter_set.root for filter_set in owned.sets)
        raise UsageError(
            f"the filter of {source.uri} leaves out everything at {roots[:200]}",
            next_step="name other paths, or change the rules of the filter in the source",
        )


def walk_roots(
    owned: WorkspaceFilter,
    source: Source,
    gone: Callable[[NodePath], MailboatError],
    emptied: AbstractSet[NodePath] = frozenset(),
) -> Iterator[Node]:
    """The nodes at and below the roots of a filter, in the order of a package.

    Raises:
        gone(root): A root that is not among `emptied` has nothing: an empty package would delete it at the subscribers.
    """
    for filter_set in sorted(owned.sets, key=lambda filter_set: key_of(filter_set.root)):
        is_empty = filter_set.root not in emptied
        for node in source.walk(filter_set.root, is_deep=not filter_set.is_shallow):
            is_empty = False
            yield node
        if is_empty:
            raise gone(filter_set.root)


def _missing(path: NodePath, source: Source) -> SourceMissingError:
    if path == ROOT:
        return SourceMissingError(
            f"{source.uri} has no node of its own at /, or nothing at all",
            next_step="publish paths below it, or / alone with --shallow",
            path=path,
        )
    return SourceMissingError(
        f"{source.uri} has nothing at {path}",
        next_step=f"to publish a removal: mailboat delete {path}",
        path=path,
    )


def with_stored_binaries(
    nodes: Iterable[Node], limit_bytes: int, blobs: BlobStore, stored: dict[bytes, Binary]
) -> Iterator[Node]:
    """The nodes, each after its large binaries are stored; `stored` collects these by digest.

    Raises:
        SourceChangedError: A binary is no longer what its digest says.
        StorageFullError, StorageReadOnlyError, RetryableError: The blob store can't take it.
    """
    for node in nodes:
        for binary in binaries_of(node):
            # By digest: a binary that many nodes have is stored once per package.
            if binary.length_bytes > limit_bytes and binary.digest not in stored:
                try:
                    with binary.open() as content:
                        blobs.put(content, binary.digest)
                except BlobCorruptError as error:
                    raise SourceChangedError("a binary changed while it was published", path=node.path) from error
                stored[binary.digest] = binary
        yield node
