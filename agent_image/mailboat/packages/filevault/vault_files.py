"""What a checkout or zip offers to those who read nodes from it: files and directories, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, Final, Protocol

from mailboat.model.nodes import Binary

INLINE_BINARY_BYTES: Final = 64 * 1024


class VaultFile(Protocol):
    """A file of a zip or checkout."""

    @property
    def entry(self) -> str:
        """Its path there, for messages."""

    @property
    def size_bytes(self) -> int:
        """Its size."""

    def head(self, length: int) -> bytes:
        """Its first bytes."""

    def read(self) -> bytes:
        """All of it."""

    def open(self) -> BinaryIO:
        """A stream over it."""

    def binary(self) -> Binary:
        """Its bytes: held inline up to `INLINE_BINARY_BYTES`, otherwise opened again when they are needed."""


class VaultDirectory(Protocol):
    """A directory of a zip or checkout."""

    @property
    def entry(self) -> str:
        """Its path there, for messages."""

    @property
    def is_explicit(self) -> bool:
        """Whether the archive has an entry for it, not only for what it contains."""

    def files(self) -> Mapping[str, VaultFile]:
        """Files in it, by name."""

    def directories(self) -> Mapping[str, VaultDirectory]:
        """Directories in it, by name."""
