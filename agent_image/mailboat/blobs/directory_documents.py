"""Small documents beside the blobs of a directory: one file each in a folder of theirs, replaced by a rename."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mailboat.blobs.disk_errors import mapped_disk_errors
from mailboat.model.identifiers import parse_agent_name


class DirectoryDocuments:
    """The port's named documents over a directory. Safe to use from several threads and processes."""

    def __init__(self, folder: Path, drafts: Path) -> None:
        """Keep them in `folder`; what is being written is in `drafts`, where a sweep finds what was left behind."""
        self._folder = folder
        self._drafts = drafts

    def write(self, name: str, document: bytes) -> None:
        """See `NamedDocuments.write`."""
        place = self._place(name)
        with mapped_disk_errors(self._folder), self._drafted(document) as draft:
            draft.replace(place)
            synchronise(self._folder)

    def create(self, name: str, document: bytes) -> bool:
        """See `NamedDocuments.create`: by a hard link, which is refused where there is a file."""
        place = self._place(name)
        with mapped_disk_errors(self._folder), self._drafted(document) as draft:
            try:
                place.hardlink_to(draft)
            except FileExistsError:
                return False
            synchronise(self._folder)
            return True

    def read(self, name: str) -> bytes | None:
        """See `NamedDocuments.read`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            return self._place(name).read_bytes()
        return None

    def names(self, prefix: str = "") -> Sequence[str]:
        """See `NamedDocuments.names`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            return sorted(file.name for file in self._folder.iterdir() if file.name.startswith(prefix))
        return ()

    def remove(self, name: str) -> bool:
        """See `NamedDocuments.remove`."""
        with mapped_disk_errors(self._folder), suppress(FileNotFoundError):
            self._place(name).unlink()
            return True
        return False

    @contextmanager
    def _drafted(self, document: bytes) -> Iterator[Path]:
        draft = self._drafts / os.urandom(16).hex()
        try:
            self._folder.mkdir(exist_ok=True)
            with draft.open("xb") as file:
                file.write(document)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        return self._folder / parse_agent_name(name)


def synchronise(path: Path) -> None:
    """Make a file or the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
