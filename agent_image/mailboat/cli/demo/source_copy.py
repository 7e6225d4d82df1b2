"""Makes a source of any directory: what content can't hold is left out of a copy, and said so.

A publisher refuses a folder with sockets, unreadable files, names that are not UTF-8, or links that lead outside or
nowhere, since skipping entries without a report would be wrong. A demo of any directory can't end there: it publishes a
copy without them, of hard links where the disk allows. A directory without such entries is published as it is.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mailboat.content.disk_layout import name_of_entry
from mailboat.content.sources.folder_entries import closed_folders
from mailboat.errors import MailboatError
from mailboat.model.paths import parse_path


@dataclass(slots=True)
class SkippedEntries:
    """Entries that content can't hold: how many, and the first few with the reason."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, reason: str) -> None:
        self.count += 1
        if len(self.examples) < 3:
            self.examples.append(reason)


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A file or folder that content can hold: its place below the root, and where its bytes are."""

    relative: str
    disk: str
    is_folder: bool


def copy_content(source: Path, copy: Path) -> tuple[Path, SkippedEntries]:
    """The folder to publish: `source`, or `copy` with all of it that content can hold."""
    skipped = SkippedEntries()
    entries = list(_entries(os.path.realpath(source), skipped))
    if not skipped.count:
        return source, skipped
    copy.mkdir(parents=True)
    for entry in entries:
        place = copy / entry.relative
        try:
            if entry.is_folder:
                place.mkdir()
                continue
            try:
                os.link(entry.disk, place)
            except OSError:  # another file system, or a file of another user
                shutil.copyfile(entry.disk, place)
        except OSError as error:
            skipped.add(f"{entry.relative}: {error.strerror}")
    return copy, skipped


def _entries(root: str, skipped: SkippedEntries) -> Iterator[SourceEntry]:
    """Everything that can be published, parents first."""
    top = os.stat(root)  # noqa: PTH116  # as below
    todo = [("", root, frozenset({(top.st_dev, top.st_ino)}))]
    while todo:
        relative, folder, trail = todo.pop()
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208  # texts all along
        except OSError as error:
            skipped.add(f"{relative}: {error.strerror}")
            continue
        for name in names:
            inner = f"{relative}/{name}".lstrip("/")
            try:
                if name_of_entry(name, folder=folder, is_at_top=not relative) is None:
                    continue
                status = _resolved_status(inner, f"{folder}/{name}", root)
            except (MailboatError, OSError, UnicodeError) as error:
                skipped.add(error.message if isinstance(error, MailboatError) else f"{inner!a}: {error}")
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            here = (status.st_dev, status.st_ino)
            if is_folder and here in trail:
                skipped.add(f"{inner} is a link to a folder that it lies in")
                continue
            yield SourceEntry(inner, f"{folder}/{name}", is_folder)
            if is_folder:
                todo.append((inner, f"{folder}/{name}", trail | {here}))


def _resolved_status(relative: str, disk: str, root: str) -> os.stat_result:
    """Raises: PathRefusedError, OSError."""
    parse_path(f"/{relative}")
    with closed_folders(root) as folders:
        _, status = folders.resolve(disk)
    if not os.access(disk, os.R_OK | os.X_OK if stat.S_ISDIR(status.st_mode) else os.R_OK):
        raise PermissionError(13, "can't be read", relative)
    return status
