"""What a target keeps for a shared pool, whose members import packages out of the order of the log."""

from __future__ import annotations

from typing import Protocol

from mailboat.model.identifiers import Offset


class PoolImports(Protocol):
    """The packages that a pool is done with. Each call is one durable step of its own, outside of a batch."""

    def marker(self) -> str | None:
        """The random name that the pool gave this target: members that see another one see another target.

        None in a target that belongs to no pool.
        """

    def mark(self, marker: str) -> None:
        """Make it the target of a pool."""

    def is_done(self, offset: Offset) -> bool:
        """Whether the package at this offset, not below the position, was imported, dropped or given up."""

    def end(self) -> Offset | None:
        """The offset behind the last package that is done; None where no package at or above the position is."""

    def forget(self) -> None:
        """Forget all packages: the offsets are of another log."""
