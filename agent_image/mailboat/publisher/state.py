"""What a publisher remembers over restarts, in one SQLite file: intents, receipts and what was last published."""

from __future__ import annotations

from pathlib import Path


class PublisherState:
    """The durable memory of one publisher agent. Several processes may use one file; each opens its own."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises: StorageFullError, StorageReadOnlyError, PublisherStateCorruptError."""
        self.path = path

    def close(self) -> None:
        """Release the file."""
