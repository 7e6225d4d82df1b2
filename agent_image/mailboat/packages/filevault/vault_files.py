"""What a checkout or zip offers to those who read nodes from it: files and directories, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, Protocol


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
