"""The bins of a build on the driver's disk, as they come from the cut, until they are built.

A bin names all of its paths, so all bins together are about as large as the listing of the tree. What the driver holds
of each is its signature, which is its id in the manifest, and where it lies in the store; while the cut goes on, its
first path, too, by which bins are put in order.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Final

from mailboat.bulk.build_manifest import borders_of
from mailboat.bulk.cutter import Bin, BinKind, Order, revision_of
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.model.paths import NodePath

_PLACE: Final = "the folder for temporary files"


@dataclass(frozen=True, slots=True)
class ArrangedBins:
    """All bins of a build, in the order of publication.

    Attributes:
        signatures: Of each.
        revision: Of the source, see `revision_of`.
        borders: Of the buckets of a manifest with these bins.
    """

    signatures: Sequence[bytes]
    revision: bytes
    borders: tuple[Order, ...]
    _places: Sequence[int]
    _file: IO[bytes]

    def __len__(self) -> int:
        return len(self.signatures)

    def bins(self, wanted: Container[bytes]) -> Iterator[Bin]:
        """The bins with these signatures, in order, each read from the disk when it is asked for."""
        for signature, place in zip(self.signatures, self._places, strict=True):
            if signature in wanted:
                yield _decoded(self._line_at(place))

    def _line_at(self, place: int) -> bytes:
        with TranslatedFailures(_PLACE):
            self._file.seek(place)
            return self._file.readline()


class BinStore:
    """Takes the bins of one build in any order. Close it."""

    def __init__(self) -> None:
        """Make a file that is gone when it is closed. Raises: StorageFullError, StorageFailedError."""
        with TranslatedFailures(_PLACE):
            self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._entries = list[tuple[Order, bytes, int]]()
        self._end = 0

    def close(self) -> None:
        """Forget all bins."""
        self._file.close()

    def put(self, one: Bin) -> None:
        """Keep a bin. Raises: StorageFullError, StorageFailedError."""
        line = json.dumps([one.kind, one.roots, one.content_bytes, one.nodes, one.signature.hex()]).encode() + b"\n"
        with TranslatedFailures(_PLACE):
            self._file.write(line)
        self._entries.append((one.order, one.signature, self._end))
        self._end += len(line)

    def arranged(self) -> ArrangedBins:
        """All that was put, in order; nothing can be put after it. Raises: StorageFullError, StorageFailedError."""
        with TranslatedFailures(_PLACE):
            self._file.flush()
        entries, self._entries = sorted(self._entries), []
        return ArrangedBins(
            [signature for _, signature, _ in entries],
            revision_of((order, signature) for order, signature, _ in entries),
            tuple(borders_of(order for order, _, _ in entries)),
            array("q", (place for _, _, place in entries)),
            self._file,
        )


def _decoded(line: bytes) -> Bin:
    kind, roots, content_bytes, nodes, signature = json.loads(line)
    return Bin(BinKind(kind), tuple(map(NodePath, roots)), content_bytes, nodes, bytes.fromhex(signature))
