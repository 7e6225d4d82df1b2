"""What users call targets and files: places made absolute, and checked before anything is written.

What a home remembers of a subscriber's target must not depend on where a command was called. Called by the command line
and the agents.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from mailboat.composition.environment import expanded_path
from mailboat.content import locations
from mailboat.content.locations import parse_target
from mailboat.content.port import Target
from mailboat.errors import PlaceUnusableError


def absolute_target(text: str) -> str:
    """The same target from wherever a command is called. Raises: UsageError."""
    location = parse_target(text)
    return f"{location.kind}:{expanded_path(str(location.path)).absolute()}"


def open_target(text: str, *, is_known: bool = False) -> Target:
    """Open a target to import into, made if there is nothing yet.

    `is_known`: This process has checked all of it before.

    Raises: PlaceUnusableError; as `content.locations.open_target`.
    """
    location = parse_target(text)
    if location.kind == locations.SQLITE:
        if os.path.isdir(location.path):  # noqa: PTH112  # false also where it can't be asked for
            raise PlaceUnusableError(f"{location.path} is a folder; {text} is to be a file", path=location.path)
        check_folder_place(location.path.parent)
    else:
        check_folder_place(location.path)
    return locations.open_target(text, is_known=is_known)


def check_folder_place(path: Path) -> None:
    """Refuse a place where a folder can't be made, whenever it is tried. Raises: PlaceUnusableError."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # too long, a loop of links, a NUL
        raise PlaceUnusableError(f"{path} cannot be used as a folder: {error}", path=path) from error
    for parent in (path.absolute(), *path.absolute().parents):
        if os.path.exists(parent):  # noqa: PTH110
            if not parent.is_dir():
                raise PlaceUnusableError(f"{path} cannot be used as a folder: {parent} is a file", path=path)
            _check_storage(path, parent)
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
            f"files cannot be created in {folder}: {error.strerror or error}",
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


__all__ = ["absolute_target", "check_file_place", "check_folder_place", "open_target"]
