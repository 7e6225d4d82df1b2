"""From the rows of a manifest to packages in the log: in order, each once, whatever attempt does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mailboat.blobs.port import BlobStore
from mailboat.bulk.cutting import BinKind
from mailboat.bulk.identity import package_id_of, request_id_of
from mailboat.bulk.library import Build
from mailboat.bulk.manifest import Manifest
from mailboat.bulk.records import BuiltBin
from mailboat.errors import BlobMissingError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import BulkPart
from mailboat.model.nodes import Binary
from mailboat.publisher.appending import Placed
from mailboat.publisher.lane import KnownPart, Part
from mailboat.publisher.parts import PartShipper
from mailboat.publisher.published import StagedNode

RESUME_SECONDS: Final = 6 * 3600.0
"""What an attempt built longer ago may have been swept from the blob store meanwhile."""


class BuildPublication:
    """Publishes one build."""

    def __init__(self, build: Build, manifest: Manifest, parts: PartShipper, blobs: BlobStore) -> None:
        """Publish nothing yet."""
        self._build = build
        self._manifest = manifest
        self._parts = parts
        self._blobs = blobs

    def places(self, now_ms: int) -> Iterator[Placed]:
        """Publish step by step, as the places are asked for; what stands in the log already is found.

        Raises:
            BlobMissingError: An old build's package was swept before it was published.
            RequestConflictError, JournalUnavailableError, StorageFullError: see `PartShipper.ship`.
        """
        build = self._build
        known = self._parts.published_parts(build.build_id, build.scan_from or Offset(0))
        is_old = now_ms - build.created_ms > RESUME_SECONDS * 1000
        fresh = (row for row in self._manifest.ordered() if not row.is_present)

        def parts() -> Iterator[KnownPart]:
            for sequence, row in enumerate(fresh):
                found = known.get(sequence)
                if is_old and found is None and row.payload is None:
                    self._check_stored(row)
                yield part_of(build, sequence, row), found

        return self._parts.ship(parts(), build.recipe.source)

    def _check_stored(self, row: BuiltBin) -> None:
        if self._blobs.stat(row.package_digest) is None:
            raise BlobMissingError(
                f"a package of the build {self._build.build_id} is no longer in {self._blobs.description}",
                next_step=f"mailboat bulk forget {self._build.build_id}, then build anew",
                build=self._build.build_id,
            )


def part_of(build: Build, sequence: int, row: BuiltBin) -> Part:
    """The package of a row in its place."""
    return Part(
        BulkPart(build.build_id, sequence, build.total),
        package_id_of(build.build_id, sequence, row.package_digest, build.created_ms),
        request_id_of(build.build_id, sequence),
        row.roots,
        row.deep_roots,
        build.recipe.package_type,
        row.package_bytes,
        row.package_digest,
        row.tree_digest,
        row.payload,
        tuple(Binary(digest=one.digest, length_bytes=one.length_bytes) for one in row.binaries),
        tuple(_changes_of(row)),
    )


def _changes_of(row: BuiltBin) -> Iterator[StagedNode]:
    cleared = row.roots if row.kind is BinKind.CLOSING else [root for root in row.roots if root in row.deep_roots]
    for root in cleared:
        yield StagedNode(root, None)
    for node in row.nodes:
        yield StagedNode(node.path, node.digest)
