"""Decides which blobs a sweep may remove: those that no retained message names, once the grace period is over.

    referenced   stays: a retained message names it
    young        stays: its publisher may be about to append the message that names it
    removable    goes, unless a publisher renews it before (`BlobStore.remove_unrenewed`)

Nothing here touches a store, and no list of blobs or references is ever whole in memory.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailboat.blobs.port import BlobInfo, Digest
from mailboat.errors import RetryableError, StopError

# 2**27 bits are 16 MiB, however many blobs are referred to.
_PLACE_BITS: Final = 27
_PLACES_OF_DIGEST: Final = (0, 1, 2, 3)


class BlobStoreSharedError(StopError):
    """Other journals use this blob store too, and the sweep cannot see which blobs they refer to. Nothing was removed.

    Give each journal its own prefix or folder. If the other journal no longer exists, for example after `init
    --new-journal`, run `mailboat blobs sweep --forget-journal ID`.
    """


class SweepBusyError(RetryableError):
    """Another process is sweeping the same blob store. Retry when it is done, usually within minutes."""


class SweepDecision(enum.StrEnum):
    """The decision for a blob, and why; see the module."""

    REFERENCED = "referenced"
    YOUNG = "young"
    REMOVABLE = "removable"


class ReferencedDigests:
    """A Bloom filter of digests: one that is wrongly taken for named is kept, and no named one is ever missed.

    It takes 16 MiB, whatever it holds. A digest's own bits are its hashes. One in ten billion of the other blobs is
    kept needlessly with a hundred thousand references, one in 250 with ten millions.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._bits = bytearray(1 << (_PLACE_BITS - 3))
        self.added = 0

    def add(self, digest: Digest) -> None:
        """A message names this blob."""
        self.added += 1
        for place in _places(digest):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, digest: Digest) -> bool:
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in _places(digest))


@dataclass(slots=True)
class SweepTally:
    """How many blobs, and their bytes."""

    count: int = 0
    total_bytes: int = 0

    def add(self, info: BlobInfo) -> None:
        """Count one."""
        self.count += 1
        self.total_bytes += info.length_bytes


SweepFigures = dict[SweepDecision, SweepTally]
"""What a plan came to."""


def new_figures() -> SweepFigures:
    """Nothing counted yet."""
    return {decision: SweepTally() for decision in SweepDecision}


def decide_sweep(info: BlobInfo, referenced: ReferencedDigests, stored_before: datetime) -> SweepDecision:
    """What a sweep does with one blob."""
    if info.digest in referenced:
        return SweepDecision.REFERENCED
    return SweepDecision.YOUNG if info.stored_at >= stored_before else SweepDecision.REMOVABLE


def plan_sweep(
    blobs: Iterable[BlobInfo], referenced: ReferencedDigests, stored_before: datetime, figures: SweepFigures
) -> Iterator[BlobInfo]:
    """The blobs that may go, as a stream; all are counted in `figures` as they come by."""
    for info in blobs:
        decision = decide_sweep(info, referenced, stored_before)
        figures[decision].add(info)
        if decision is SweepDecision.REMOVABLE:
            yield info


def _places(digest: Digest) -> list[int]:
    return [int.from_bytes(digest[4 * at : 4 * at + 4], "big") & (1 << _PLACE_BITS) - 1 for at in _PLACES_OF_DIGEST]
