"""Small documents beside the blobs of a directory: `documents/<name>`, each replaced by a rename."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mailboat.blobs.disk_errors import mapped_disk_errors
from mailboat.model.identifiers import parse_agent_name

_FOLDER: Final = "documents"


class DirectoryDocuments:
    """The port's named documents over a directory. Safe to use from several threads and processes."""

    def __init__(self, folder: Path, drafts: Path) -> None:
        """Keep them in `folder`; what is being written is in `drafts`, where a sweep finds what was left behind."""
        self._folder = folder / _FOLDER
        self._drafts = drafts

    def write(self, name: str, document: bytes) -> None:
        """See `NamedDocuments.write`."""
        place, draft = self._place(name), self._drafts / uuid.uuid4().hex
        with mapped_disk_errors(self._folder):
            try:
                self._folder.mkdir(exist_ok=True)
                with draft.open("xb") as file:
                    file.write(document)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(place)
                synchronise(self._folder)
            finally:
                draft.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        """See `NamedDocuments.read`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            return self._place(name).read_bytes()
        return None

    def names(self) -> Sequence[str]:
        """See `NamedDocuments.names`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            return sorted(file.name for file in self._folder.iterdir())
        return ()

    def remove(self, name: str) -> bool:
        """See `NamedDocuments.remove`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            self._place(name).unlink()
            return True
        return False

    def _place(self, name: str) -> Path:
        return self._folder / parse_agent_name(name)


def synchronise(path: Path) -> None:
    """Make a file or the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
