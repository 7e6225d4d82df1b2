"""A folder copied by hard links: new folders, the same files. Costs one system call a file, and no bytes."""

from __future__ import annotations

import errno
import os
import shutil

from mailboat.content.targets.durability import Durability
from mailboat.folder_handle import PUBLIC_FILE, PUBLIC_FOLDER, FolderHandle


def copy_by_links(existing: FolderHandle, new: FolderHandle, durability: Durability) -> None:
    """Fill the empty folder `new` with links to the files in `existing`, to any depth; no link is followed.

    Raises: OSError.
    """
    durability.touch(new.place)
    with os.scandir(existing.descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                with existing.folder(entry.name) as inner, new.make_folder(entry.name, PUBLIC_FOLDER) as copy:
                    copy_by_links(inner, copy, durability)
            elif entry.is_file(follow_symlinks=False):
                _link(existing, new, entry.name)


def _link(existing: FolderHandle, new: FolderHandle, name: str) -> None:
    try:
        os.link(name, name, src_dir_fd=existing.descriptor, dst_dir_fd=new.descriptor, follow_symlinks=False)
    except OSError as error:
        # ext4 takes 65,000 links to a file (EMLINK); some file systems take none
        if error.errno not in {errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP}:
            raise
        with existing.open_file(name) as source, new.create_file(name, PUBLIC_FILE) as copy:
            shutil.copyfileobj(source, copy)
            # a link shares durable bytes with its original file, a copy has bytes of its own
            os.fsync(copy.fileno())
