"""What users call sources: a folder, a FileVault checkout or zip, or a target's committed content.

What a publisher remembers of a source must not depend on where a command was called. The FileVault format is imported
when it is met: plain folders are the most common source.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

from mailboat.composition.environment import expanded_path
from mailboat.composition.places import absolute_target
from mailboat.content import locations
from mailboat.content.port import Source
from mailboat.content.sources.folder import FolderSource
from mailboat.content.sources.known_files import KnownFiles
from mailboat.errors import UsageError
from mailboat.model.identifiers import FileIdentity

FILEVAULT_ROOT: Final = "jcr_root"
FILEVAULT_META: Final = "META-INF/vault"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:")
ZIP_SUFFIXES: Final = frozenset({".zip", ".jar"})


def absolute_source(text: str) -> str:
    """The same source from wherever a command is called. Raises: UsageError."""
    _check_source(text)
    kind, colon, _ = text.partition(":")
    is_target = bool(colon) and kind in locations.TARGET_KINDS
    return absolute_target(text) if is_target else _remembered(str(expanded_path(text).absolute()))


def _remembered(place: str) -> str:
    try:
        place.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the path of the source {place!r} is not valid UTF-8, and publishers remember it in UTF-8",
            next_step="rename the folder, or convert its name with convmv",
        ) from error
    return place


def _check_source(text: str) -> None:
    """Refuse what names no place on this machine. Raises: UsageError."""
    if not text:
        raise UsageError("the source is empty", next_step="write . for the current folder")
    scheme = _SCHEME.match(text)
    is_known = scheme is not None and scheme[0].removesuffix(":") in locations.TARGET_KINDS
    if scheme is not None and not is_known and not Path(text).exists():
        raise UsageError(
            f"unsupported source {text!r}: expected a folder, a FileVault checkout or zip, files:DIR, generations:DIR"
            " or sqlite:FILE"
        )


def open_source(text: str, known_files: Path | None = None, identity: FileIdentity = FileIdentity.INODE) -> Source:
    """Open something to read: a folder, a FileVault checkout or zip, or a target's committed content.

    Args:
        text: As a user gives it.
        known_files: Where it is kept what large files of folders hold, so that unchanged ones are not read again.
            None where nothing is published.
        identity: What files of plain folders are recognised by.

    Raises:
        SourceMissingError: There is nothing at that place.
        UsageError: The place is not a source.
    """
    _check_source(text)
    kind, colon, _ = text.partition(":")
    if colon and kind in locations.TARGET_KINDS:
        return locations.open_source(absolute_target(text))
    openers: list[locations.SourceOpener] = [_open_filevault, partial(_open_folder, known_files, identity)]
    place = str(expanded_path(text).absolute())
    return locations.open_source(place if known_files is None else _remembered(place), openers)


def _open_folder(known_files: Path | None, identity: FileIdentity, path: Path) -> Source | None:
    """A plain folder; None for anything else."""
    if not path.is_dir():
        return None

    if known_files is None:
        return FolderSource(path, identity=identity)

    return FolderSource(path, digests=KnownFiles(known_files, path), identity=identity)


def _open_filevault(path: Path) -> Source | None:
    """A FileVault checkout or package; None for anything else. Raises: UsageError where a folder may be either."""
    is_checkout = _is_checkout(path)
    if not is_checkout and not (path.is_file() and path.suffix.lower() in ZIP_SUFFIXES):
        return None
    from mailboat.packages.filevault.sources import open_archive_source, open_checkout_source

    return open_checkout_source(path) if is_checkout else open_archive_source(path)


def _is_checkout(path: Path) -> bool:
    """Whether a folder is a FileVault checkout, or a plain one.

    The wrong guess of the two finds nothing of what was published, and `--changed` would remove it everywhere. So what
    has one half of a checkout is neither.
    """
    has_root, has_meta = (path / FILEVAULT_ROOT).is_dir(), (path / FILEVAULT_META).is_dir()
    if has_root and not has_meta:
        others = sorted(entry.name for entry in path.iterdir() if entry.name != FILEVAULT_ROOT and entry.name[0] != ".")
        if others:
            raise UsageError(
                f"{path} may be a FileVault checkout, as it has {FILEVAULT_ROOT}, or a plain folder, as it has"
                f" {others[0]} and no {FILEVAULT_META}",
                next_step=f"for a checkout, make the folder {FILEVAULT_META};"
                f" for a plain folder, move {FILEVAULT_ROOT} away",
            )
    if has_meta and not has_root:
        raise UsageError(
            f"{path} has {FILEVAULT_META} and no {FILEVAULT_ROOT}: its content is "
            f"missing, or it is not a FileVault checkout",
            next_step=f"bring {FILEVAULT_ROOT} back; for a plain folder, move {FILEVAULT_META} away",
        )
    return has_root
