"""What users call sources and targets: `content/locations.py` with the formats above it, and places made absolute.

What a publisher remembers of a source, and a home of a subscriber's target, must not depend on where a command was
called. Called by the command line and the agents.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from mailboat.composition.settings import expanded_path
from mailboat.content import locations
from mailboat.content.digest import source_digest
from mailboat.content.locations import opened_ledger, parse_target
from mailboat.content.port import Source, Target
from mailboat.errors import UsageError
from mailboat.model.filters import ImportMode
from mailboat.model.identifiers import FileIdentity
from mailboat.model.paths import NodePath

FILEVAULT_ROOT: Final = "jcr_root"
FILEVAULT_META: Final = "META-INF/vault"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:")
ZIP_SUFFIXES: Final = frozenset({".zip", ".jar"})


class PlaceUnusableError(UsageError):
    """A file or folder cannot be created at that place: it is taken, or the name is invalid.

    Name another place. Nothing was changed.
    """


def absolute_target(text: str) -> str:
    """The same target from wherever a command is called. Raises: UsageError."""
    location = parse_target(text)
    return f"{location.kind}:{expanded_path(str(location.path)).absolute()}"


def absolute_source(text: str) -> str:
    """The same source from wherever a command is called. Raises: UsageError."""
    _check_source(text)
    kind, colon, _ = text.partition(":")
    is_target = bool(colon) and kind in locations.TARGET_KINDS
    return absolute_target(text) if is_target else str(expanded_path(text).absolute())


def open_target(text: str) -> Target:
    """Open a target to import into, made if there is nothing yet.

    Raises: PlaceUnusableError; as `content.locations.open_target`.
    """
    location = parse_target(text)
    if location.kind == locations.SQLITE:
        if os.path.isdir(location.path):  # noqa: PTH112  # false also where it can't be asked for
            raise PlaceUnusableError(f"{location.path} is a folder; {text} is to be a file", path=location.path)
        check_folder_place(location.path.parent)
    else:
        check_folder_place(location.path)
    return locations.open_target(text)


def check_folder_place(path: Path) -> None:
    """Refuse a place where a folder can't be made, whenever it is tried. Raises: PlaceUnusableError."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # too long, a loop of links, a NUL
        raise PlaceUnusableError(f"{path} can't be a folder: {error}", path=path) from error
    for one in (path.absolute(), *path.absolute().parents):
        if os.path.exists(one):  # noqa: PTH110
            if not one.is_dir():
                raise PlaceUnusableError(f"{path} can't be a folder: {one} is a file", path=path)
            _check_storage(path, one)
            return


def _check_storage(path: Path, folder: Path) -> None:
    """Refuse a folder of /proc, /sys and the like, where no file can ever be created.

    They report no blocks (as `df` recognises them). Some FUSE file systems do as well, so creating a file decides.
    """
    try:
        if os.statvfs(folder).f_blocks == 0:
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise PlaceUnusableError(
            f"{folder} takes no files: {error.strerror or error}",
            next_step="name a place on a disk or a volume",
            path=path,
        ) from error


def check_file_place(path: Path) -> None:
    """Refuse a place where a file can't be written, whenever it is tried. Raises: PlaceUnusableError."""
    check_folder_place(path.parent)
    if not path.parent.is_dir():
        raise PlaceUnusableError(
            f"the folder {path.parent} does not exist", next_step=f"mkdir -p {shlex.quote(str(path.parent))}", path=path
        )
    if path.is_dir():
        raise PlaceUnusableError(f"{path} is a folder", next_step="name a file", path=path)


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
        identity: What files of plain folders are recognised by.

    Raises:
        SourceMissingError: There is nothing at that place.
        UsageError: What is there is no source.
    """
    _check_source(text)
    kind, colon, _ = text.partition(":")
    if colon and kind in locations.TARGET_KINDS:
        return locations.open_source(absolute_target(text))
    openers: list[locations.SourceOpener] = [_open_filevault, partial(_open_folder, known_files, identity)]
    return locations.open_source(str(expanded_path(text).absolute()), openers)


def own_roots(source: Source) -> tuple[NodePath, ...]:
    """The roots of a FileVault source's own filter; none when it has no filter, or is no FileVault source.

    Raises:
        UsageError: The filter leaves parts of its roots out, or merges: publishing the roots would replace more.
    """
    from mailboat.content.sources.folder import FolderSource

    if isinstance(source, FolderSource):
        return ()  # the most common source, for which the other format need not be loaded
    from mailboat.packages.filevault.sources import VaultSource

    found = source.filter if isinstance(source, VaultSource) else None
    if found is None:
        return ()
    for one in found.sets:
        if one.is_shallow or not one.is_simple or one.mode is not ImportMode.REPLACE:
            raise UsageError(
                f"the filter of {source.uri} has rules or a mode for {one.root}, which a publication does not carry",
                next_step=f"to replace all below it: mailboat publish --source {shlex.quote(source.uri)} {one.root}",
            )
    return tuple(one.root for one in found.sets)


def _open_folder(known_files: Path | None, identity: FileIdentity, path: Path) -> Source | None:
    """A plain folder; None for anything else."""
    if not path.is_dir():
        return None
    from mailboat.content.sources.folder import FolderSource

    if known_files is None:
        return FolderSource(path, identity=identity)
    from mailboat.content.sources.known_files import KnownFiles

    return FolderSource(path, digests=KnownFiles(known_files, path), identity=identity)


def _open_filevault(path: Path) -> Source | None:
    """A FileVault checkout or package; None for anything else. Raises: UsageError where a folder may be either."""
    if _is_checkout(path):
        from mailboat.packages.filevault.sources import open_checkout_source

        return open_checkout_source(path)
    if path.is_file() and path.suffix.lower() in ZIP_SUFFIXES:
        from mailboat.packages.filevault.sources import open_archive_source

        return open_archive_source(path)
    return None


def _is_checkout(path: Path) -> bool:
    """Whether a folder is a FileVault checkout, or a plain one.

    The wrong guess of the two finds nothing of what was published, and `--changed` would remove it everywhere. So what
    has one half of a checkout is neither.
    """
    has_root, has_meta = (path / FILEVAULT_ROOT).is_dir(), (path / FILEVAULT_META).is_dir()
    if has_root and not has_meta:
        others = sorted(one.name for one in path.iterdir() if one.name != FILEVAULT_ROOT and one.name[0] != ".")
        if others:
            raise UsageError(
                f"{path} may be a FileVault checkout, as it has {FILEVAULT_ROOT}, or a plain folder, as it has"
                f" {others[0]} and no {FILEVAULT_META}",
                next_step=f"for a checkout, make the folder {FILEVAULT_META};"
                f" for a plain folder, move {FILEVAULT_ROOT} away",
            )
    if has_meta and not has_root:
        raise UsageError(
            f"{path} has {FILEVAULT_META} and no {FILEVAULT_ROOT}: its content is gone, or it is no FileVault checkout",
            next_step=f"bring {FILEVAULT_ROOT} back; for a plain folder, move {FILEVAULT_META} away",
        )
    return has_root


__all__ = [
    "absolute_source",
    "absolute_target",
    "open_source",
    "open_target",
    "opened_ledger",
    "own_roots",
    "source_digest",
]
