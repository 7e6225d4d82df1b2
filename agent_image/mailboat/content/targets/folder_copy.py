"""A folder copied by hard links: new folders, the same files. Costs one system call a file, and no bytes."""

from __future__ import annotations

import errno
import os
import shutil

from mailboat.content.targets.durability import Durability


def copy_by_links(existing: str, new: str, durability: Durability) -> None:
    """Fill the empty folder `new` with links to the files below `existing`, to any depth; no link is followed.

    Raises: OSError.
    """
    todo = [(existing, new)]
    while todo:
        source, copy = todo.pop()
        durability.touch(copy)
        with os.scandir(source) as entries:
            for entry in entries:
                place = f"{copy}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    os.mkdir(place)  # noqa: PTH102
                    todo.append((entry.path, place))
                elif entry.is_file(follow_symlinks=False):
                    _link(entry.path, place)


def _link(existing: str, new: str) -> None:
    try:
        os.link(existing, new, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP}:
            raise
        shutil.copyfile(existing, new, follow_symlinks=False)
        durable = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(durable)
        finally:
            os.close(durable)
