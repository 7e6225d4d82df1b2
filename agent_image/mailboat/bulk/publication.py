"""From the rows of a manifest to packages in the log: in order, each once, whatever attempt does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from typing import Final

from mailboat.blobs.port import BlobStore
from mailboat.bulk.build_manifest import Manifest
from mailboat.bulk.build_records import BuiltBin
from mailboat.bulk.build_registry import Build
from mailboat.bulk.cutter import BinKind
from mailboat.bulk.identity import package_id_of, request_id_of
from mailboat.errors import BlobMissingError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import BulkPart
from mailboat.model.nodes import Binary
from mailboat.publisher.appender import Placed
from mailboat.publisher.bulk_parts import BulkParts, Part
from mailboat.publisher.published import NO_NODE, StagedNode

RESUME_SECONDS: Final = 6 * 3600.0
"""What was stored longer ago may be swept before it is published; less with a short `blobs.grace_seconds`."""

# Each check is one request that waits for the store.
_CHECK_THREADS: Final = 16
_CHECKED_AT_ONCE: Final = 1_000
"""Blobs that are checked at once: more would be in memory for nothing."""


def resume_seconds_of(grace_seconds: float) -> float:
    """For how long a build relies on what it stored."""
    # A sweep may come as soon as the grace period is over. Half of it is for the rest of the build.
    return min(RESUME_SECONDS, grace_seconds / 2)


def publish_build(
    build: Build, manifest: Manifest, parts: BulkParts, blobs: BlobStore, *, is_doubted: bool
) -> Iterator[Placed]:
    """Publish a build step by step, as the places are asked for; what stands in the log already is found.

    Args:
        build: The build.
        manifest: Its manifest.
        parts: Publishes packages.
        blobs: Where the packages are.
        is_doubted: Look first whether all that is to be published is still in the blob store.

    Raises:
        BlobMissingError: What an old build stored was swept before it was published; nothing more is published.
        ManifestDamagedError: Rows of the build are gone or can't be read; nothing more is published.
        RequestConflictError, JournalUnavailableError, StorageFullError: see `BulkParts.ship`.
    """

    def fresh() -> Iterator[tuple[int, BuiltBin]]:
        return enumerate(row for row in manifest.ordered(build.total) if not row.is_present)

    known = parts.published_parts(build.build_id, build.scan_from or Offset(0))
    if is_doubted:
        # all of them before the first is published: half a tree is worse than none
        for _, digest in rows_without_blobs((row for sequence, row in fresh() if sequence not in known), blobs):
            raise _swept(build, blobs, digest)
    return parts.ship(
        ((part_of(build, sequence, row), known.get(sequence)) for sequence, row in fresh()), build.recipe.source
    )


def _swept(build: Build, blobs: BlobStore, digest: bytes) -> BlobMissingError:
    return BlobMissingError(
        f"a package of the build {build.build_id} needs the blob {digest.hex()}, which is no longer in"
        f" {blobs.description}; nothing more was published",
        next_step=f"mailboat bulk forget {build.build_id}, then build again",
        build=build.build_id,
        digest=digest.hex(),
    )


def rows_without_blobs(
    rows: Iterable[BuiltBin], blobs: BlobStore, stored_since: datetime | None = None
) -> Iterator[tuple[BuiltBin, bytes]]:
    """The rows whose packages need what is not in the blob store, or older, each with the digest of what it needs."""
    needs = ((row, digest) for row in rows for digest in _blobs_of(row))
    with ThreadPoolExecutor(_CHECK_THREADS, thread_name_prefix="bulk-blobs") as pool:
        while some := list(islice(needs, _CHECKED_AT_ONCE)):
            for need, found in zip(some, pool.map(blobs.stat, [digest for _, digest in some]), strict=True):
                if found is None or (stored_since is not None and found.stored_at < stored_since):
                    yield need


def _blobs_of(row: BuiltBin) -> Iterator[bytes]:
    """What must be in the blob store for the package of a row: itself, where its message has it not, and binaries."""
    if row.payload is None:
        yield row.package_digest
    yield from (binary.digest for binary in row.binaries)


def part_of(build: Build, sequence: int, row: BuiltBin) -> Part:
    """The package of a row in its place."""
    return Part(
        BulkPart(build.build_id, sequence, build.total),
        package_id_of(build.build_id, sequence, row.package_digest, build.created_ms),
        request_id_of(build.build_id, build.created_ms, sequence),
        row.roots,
        row.deep_roots,
        build.recipe.package_type,
        row.package_bytes,
        row.package_digest,
        row.tree_digest,
        row.payload,
        tuple(Binary(digest=binary.digest, length_bytes=binary.length_bytes) for binary in row.binaries),
        tuple(_changes_of(row)),
    )


def _changes_of(row: BuiltBin) -> Iterator[StagedNode]:
    for root in row.roots:
        if root in row.deep_roots:
            yield StagedNode(root, None)
        elif row.kind is BinKind.CLOSING:
            yield StagedNode(root, NO_NODE)
    for node in row.nodes:
        yield StagedNode(node.path, node.digest)
