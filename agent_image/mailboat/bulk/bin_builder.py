"""Building one package of a bulk build: what an executor does, with the source and the blob store and nothing else.

The bytes are a function of the nodes and the recipe, so tasks that are tried again or run twice store the same blobs
under the same names. After a package is built, its part of the source is listed again: what was read is what was
listed, or the bin fails as SourceChanged, and nothing of it is in the manifest. A package is never torn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from typing import Final

from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import BlobReference
from mailboat.bulk.build_records import BinResult, BuiltBin, BuiltNode, Recipe, filter_of, problem_of
from mailboat.bulk.cutter import MAX_NODES, Bin, BinKind, Budget, Cutter, SkeletonNode, Unit, sign_bin
from mailboat.bulk.source_branches import items_of, listed_as
from mailboat.config.document import LimitsConfig
from mailboat.content.keys import key_of
from mailboat.content.listed_nodes import ListedNode, ListedSource, UnlistedEntry
from mailboat.content.port import Source
from mailboat.errors import LimitExceededError, MailboatError, PermanentError, SourceChangedError
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import NodePath, is_within
from mailboat.packages.port import PackageCodec
from mailboat.publisher.builder import observed, shipment_from, spooled_package, walk_roots, with_stored_binaries
from mailboat.publisher.published import ChangeDigests

_NO_BOUNDS: Final = Budget(2**62, 2**62)


class BinBuilder:
    """Builds bins of one build, one at a time."""

    def __init__(
        self,
        recipe: Recipe,
        source: Source,
        blobs: BlobStore,
        codecs: Mapping[str, PackageCodec],
        limits: LimitsConfig | None = None,
    ) -> None:
        """Read the nodes above the roots, which every package carries for targets that lack them.

        Args:
            recipe: How packages are made.
            source: What is built, read from one thread; the caller closes it.
            blobs: Where large binaries and packages go.
            codecs: The package formats by package type.
            limits: What subscribers accept.
        """
        self._recipe = recipe
        self._source = source
        self._blobs = blobs
        self._codec = codecs[recipe.package_type]
        self._digests = ChangeDigests(source)
        whole = shipment_from(source, filter_of(Bin(BinKind.CONTENT, recipe.roots, 0, 0, b"")), ())
        self._contents = replace(
            whole.contents(self._codec.package_type, limits or LimitsConfig()),
            inline_binary_bytes=recipe.inline_binary_bytes,
            refuse_collisions=recipe.are_collisions_refused,
        )

    def build(self, one: Bin) -> BinResult:
        """Build and store a package; what is wrong with its content is returned and not raised.

        Raises:
            StorageFullError, StorageReadOnlyError, RetryableError: The blob store can't take it; try the bin again.
        """
        try:
            return self._build(one)
        except (SourceChangedError, PermanentError) as error:
            return problem_of(_path_of(error, one), error)

    def _build(self, one: Bin) -> BuiltBin:
        recipe = self._recipe
        nodes, listed, large = list[BuiltNode](), list[ListedNode](), dict[bytes, Binary]()
        # Such a source lists the bin a second time when it is written; any other one is compared as it is read.
        is_listed = isinstance(self._source, ListedSource)

        def note(node: Node) -> None:
            nodes.append(BuiltNode(node.path, self._digests.of(node)))
            if not is_listed:
                listed.append(listed_as(node, self._digests))

        owned = filter_of(one)
        contents = replace(
            self._contents,
            filter=owned,
            nodes=self._stored(observed(walk_roots(owned, self._source, _vanished), note), large),
            ancestors=tuple(self._stored(self._contents.ancestors, large)),
        )
        with spooled_package(self._codec, contents) as (summary, spool):
            _check_message(large)
            self._check_unchanged(one, listed if not is_listed else None)
            is_inline = summary.length_bytes <= recipe.inline_package_bytes
            payload = spool.read() if is_inline else None
            if not is_inline:
                # after `_check_unchanged`: a package of a source that changed meanwhile is never stored
                self._blobs.put(spool, summary.package_digest)
        return BuiltBin(
            one.kind,
            one.roots,
            one.signature,
            frozenset(one.roots if one.kind is BinKind.CONTENT else ()),
            one.content_bytes,
            summary.length_bytes,
            summary.package_digest,
            summary.tree_digest,
            payload,
            tuple(BlobReference(binary.digest, binary.length_bytes) for binary in large.values()),
            tuple(nodes),
            (0 if is_inline else summary.length_bytes) + sum(binary.length_bytes for binary in large.values()),
        )

    def _stored(self, nodes: Iterable[Node], large: dict[bytes, Binary]) -> Iterator[Node]:
        return with_stored_binaries(nodes, self._recipe.inline_binary_bytes, self._blobs, large)

    def _check_unchanged(self, one: Bin, listed: Iterable[ListedNode] | None) -> None:
        items = items_of(self._source, one.roots, is_deep=one.kind is BinKind.CONTENT)
        now = sign_bin(one.kind, _signatures(one.kind, items if listed is None else listed))
        if now != one.signature:
            raise SourceChangedError("the source changed while it was built", path=one.roots[0])


def _vanished(root: NodePath) -> SourceChangedError:
    return SourceChangedError("a path vanished while it was built", path=root)


def _check_message(binaries: Sized) -> None:
    """Make sure that a message can name them: here, since the first package is published when the last is built."""
    if len(binaries) > MAX_NODES:
        raise LimitExceededError(
            f"{len(binaries)} binaries are stored outside of the package, and its message can name {MAX_NODES};"
            " build with fewer --nodes, or with larger inline binaries"
        )


def _signatures(kind: BinKind, items: Iterable[ListedNode | UnlistedEntry]) -> Iterator[tuple[NodePath, bytes]]:
    if kind is BinKind.SKELETON:
        yield from ((item.path, item.signature) for item in items if isinstance(item, ListedNode))
        return
    found = [part for part in Cutter(_NO_BOUNDS).cut(items) if isinstance(part, Unit | SkeletonNode)]
    for part in sorted(found, key=lambda one: key_of(one.path)):
        yield part.path, part.signature


def _path_of(error: MailboatError, one: Bin) -> NodePath:
    path = error.where.get("path")
    if isinstance(path, str) and any(is_within(NodePath(path), root) for root in one.roots):
        return NodePath(path)
    return one.roots[0]
