"""Small documents next to the blobs of a directory: one file each in a folder of theirs, replaced by a rename."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mailboat.blobs.disk_errors import mapped_disk_errors
from mailboat.durable_file import Draft
from mailboat.folder_handle import FolderHandle
from mailboat.model.identifiers import parse_agent_name


class DirectoryDocuments:
    """The port's named documents over a directory. Safe to use from several threads and processes."""

    def __init__(self, store: Path, name: str, drafts: str) -> None:
        """Keep them in the folder `name` of the store; drafts are in its folder `drafts`, where a sweep finds them."""
        self._store = store
        self._name = name
        self._drafts = drafts

    def write(self, name: str, document: bytes) -> None:
        """See `NamedDocuments.write`."""
        entry = parse_agent_name(name)
        with mapped_disk_errors(self._store), self._drafted(document) as (draft, folder):
            draft.place(folder, entry)

    def create(self, name: str, document: bytes) -> bool:
        """See `NamedDocuments.create`: by a hard link, which is refused where there is a file."""
        entry = parse_agent_name(name)
        with mapped_disk_errors(self._store), self._drafted(document) as (draft, folder):
            return draft.link(folder, entry)

    def read(self, name: str) -> bytes | None:
        """See `NamedDocuments.read`."""
        entry = parse_agent_name(name)
        with (
            mapped_disk_errors(self._store),
            suppress(FileNotFoundError),
            self._folder() as folder,
            folder.open_file(entry) as file,
        ):
            return file.readall()
        return None

    def names(self, prefix: str = "") -> Sequence[str]:
        """See `NamedDocuments.names`."""
        with mapped_disk_errors(self._store), suppress(FileNotFoundError), self._folder() as folder:
            return sorted(name for name in folder.names() if name.startswith(prefix))
        return ()

    def remove(self, name: str) -> bool:
        """See `NamedDocuments.remove`."""
        entry = parse_agent_name(name)
        with mapped_disk_errors(self._store), suppress(FileNotFoundError), self._folder() as folder:
            os.unlink(entry, dir_fd=folder.descriptor)
            return True
        return False

    @contextmanager
    def _folder(self) -> Iterator[FolderHandle]:
        with FolderHandle.open(str(self._store)) as store, store.folder(self._name) as folder:
            yield folder

    @contextmanager
    def _drafted(self, document: bytes) -> Iterator[tuple[Draft, FolderHandle]]:
        with (
            FolderHandle.open(str(self._store)) as store,
            store.make_folder(self._name) as folder,
            store.folder(self._drafts) as drafts,
            Draft(drafts) as draft,
        ):
            draft.stream.write(document)
            yield draft, folder
