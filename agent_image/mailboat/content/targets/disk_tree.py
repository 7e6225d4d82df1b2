"""A folder made to look like a tree, node by node; every step can be repeated, none leaves the folder.

Folders are entered one name at a time by descriptor and never through a link, so a link that someone planted in the
target can't lead a write elsewhere: it is reported, not followed. A file takes its place by rename. Nodes must come in
key order (parents first); a folder that gives way to a file goes with all that is in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Sequence
from typing import Final

from mailboat.content.binaries import binaries_of
from mailboat.content.layout import SIDECAR, binary_file, is_binary_file, names_on_disk, write_sidecar
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.staging import Staging
from mailboat.errors import TargetCorruptError
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import NodePath

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskTree:
    """Writes nodes into one folder."""

    def __init__(self, root: str, staging: Staging, durability: Durability) -> None:
        """Write into `root`, an existing folder. Raises: OSError."""
        self._root = root
        self._staging = staging
        self._durability = durability
        self._handles = [os.open(root, _FOLDER_FLAGS)]
        self._names: list[str] = []

    def close(self) -> None:
        """Release the folders entered."""
        while self._handles:
            os.close(self._handles.pop())

    def check(self, path: NodePath) -> None:
        """See that nothing but folders leads to where the node is. Raises: TargetCorruptError."""
        self._enter(names_on_disk(path)[:-1], is_made=False)

    def show(self, node: Node, number: int | None, *, has_children: bool) -> None:
        """Make the node's place look like it; its binaries are staged under `number`, or there already.

        Raises:
            TargetCorruptError: The bytes are neither staged nor in place, or a link is in the way.
            OSError: Nothing is half done that doing it again would not complete.
        """
        names = names_on_disk(node.path)
        if names and node.is_plain_file and not has_children:
            self._enter(names[:-1], is_made=True)
            self._place_file(names[-1], node, number)
            return
        self._enter(names, is_made=True)
        if node.is_plain_folder and names:
            self._drop_sidecar()
        else:
            self._place_sidecar(node, number)

    def remove(self, path: NodePath) -> None:
        """Remove the node with all that is below it; of the root only what makes it a node."""
        names = names_on_disk(path)
        if not names:
            self._enter([], is_made=False)
            self._drop_sidecar()
        elif self._enter(names[:-1], is_made=False):
            self._remove_entry(names[-1])

    def _enter(self, names: Sequence[str], *, is_made: bool) -> bool:
        """Make the folder of that name the current one; whether it is there."""
        shared = 0
        for mine, wanted in zip(self._names, names, strict=False):
            if mine != wanted:
                break
            shared += 1
        while len(self._names) > shared:
            os.close(self._handles.pop())
            self._names.pop()
        return all(self._step(name, is_made=is_made) for name in names[shared:])

    def _step(self, name: str, *, is_made: bool) -> bool:
        try:
            handle = os.open(name, _FOLDER_FLAGS, dir_fd=self._handles[-1])
        except OSError as error:
            if not self._clear_way(name, error, is_made=is_made):
                return False
            handle = os.open(name, _FOLDER_FLAGS, dir_fd=self._handles[-1])
        self._handles.append(handle)
        self._names.append(name)
        return True

    def _clear_way(self, name: str, error: OSError, *, is_made: bool) -> bool:
        """Deal with a folder that can't be entered: a new one, one where a file was, or a link; whether it is there."""
        here = self._handles[-1]
        try:
            mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
        except FileNotFoundError:
            mode = 0
        if stat.S_ISLNK(mode):
            place = self._place(name)
            raise TargetCorruptError(
                f"{place} is a link that the target did not make; nothing is written through it",
                next_step=f"remove {place}, or restore the target from a snapshot",
            ) from error
        if stat.S_ISDIR(mode):
            raise error
        if not is_made:
            return False
        if mode:
            os.unlink(name, dir_fd=here)
        os.mkdir(name, dir_fd=here)
        self._touch_folder()
        return True

    def _place_file(self, name: str, node: Node, number: int | None) -> None:
        data = node.data
        if data is not None and not self._move_in(name, data, number):
            self._check_there(name, data)

    def _place_sidecar(self, node: Node, number: int | None) -> None:
        held = {binary.digest: binary for binary in binaries_of(node)}
        files = {binary_file(digest): binary for digest, binary in held.items()}
        for name, binary in files.items():
            if not self._move_in(name, binary, number):
                self._check_there(name, binary)
        draft = self._staging.write("sidecar", write_sidecar(node))
        had_one = self._has(SIDECAR)
        self._rename_in(draft, SIDECAR)
        self._durability.touch(self._place(SIDECAR))
        if had_one:
            self._drop_binaries(files.keys())

    def _drop_sidecar(self) -> None:
        try:
            os.unlink(SIDECAR, dir_fd=self._handles[-1])
        except FileNotFoundError:
            return
        self._touch_folder()
        self._drop_binaries(())

    def _drop_binaries(self, keep: Collection[str]) -> None:
        for name in os.listdir(self._handles[-1]):  # noqa: PTH208
            if is_binary_file(name) and name not in keep:
                os.unlink(name, dir_fd=self._handles[-1])
                self._touch_folder()

    def _move_in(self, name: str, binary: Binary, number: int | None) -> bool:
        """Rename the staged file to its place; whether it was there."""
        if number is None:
            return False
        try:
            self._rename_in(self._staging.file(number, binary.digest), name)
        except FileNotFoundError:
            return False
        return True

    def _rename_in(self, file: str, name: str) -> None:
        try:
            os.rename(file, name, dst_dir_fd=self._handles[-1])
        except IsADirectoryError:
            self._remove_entry(name)
            os.rename(file, name, dst_dir_fd=self._handles[-1])
        self._durability.move(file, self._place(name))
        self._touch_folder()

    def _check_there(self, name: str, binary: Binary) -> None:
        """What is not staged must be in place: an earlier attempt put it there."""
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=self._handles[-1], follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_size == binary.length_bytes:
                return
        place = self._place(name)
        raise TargetCorruptError(
            f"the bytes of {place} are gone, from its place and from the staging folder",
            next_step="restore the target from a snapshot, or remove it and import everything again",
        )

    def _remove_entry(self, name: str) -> None:
        here = self._handles[-1]
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=here)
            except IsADirectoryError:
                shutil.rmtree(name, dir_fd=here)
            self._touch_folder()

    def _has(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._handles[-1], follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _place(self, name: str) -> str:
        return "/".join([self._root, *self._names, name])

    def _touch_folder(self) -> None:
        self._durability.touch("/".join([self._root, *self._names]))
