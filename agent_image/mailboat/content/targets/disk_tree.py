"""A folder made to look like a tree, node by node: each step can be repeated, none leaves the folder.

Folders are entered one name at a time by descriptor and never through a link, so a link that someone planted in the
target can't lead a write elsewhere: it is reported, not followed. A file takes its place by rename. Nodes must come in
key order (parents first); a folder that gives way to a file goes with all that is in it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Sequence

from mailboat.content.binaries import binaries_of
from mailboat.content.disk_layout import SIDECAR, binary_file, is_binary_file, names_on_disk, write_sidecar
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.staged_files import Staging
from mailboat.errors import TargetCorruptError
from mailboat.folder_handle import PUBLIC_FOLDER, FolderHandle, FolderTrail
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import NodePath


class DiskTree:
    """Writes nodes into one folder."""

    def __init__(self, root: FolderHandle, staging: Staging, durability: Durability) -> None:
        """Write into `root`, which stays the caller's."""
        self._staging = staging
        self._durability = durability
        self._trail = FolderTrail(root)

    def close(self) -> None:
        self._trail.close()

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
        if names and is_shown_as_file(node) and not has_children:
            self._enter(names[:-1], is_made=True)
            if node.data is not None and not self._move_in(names[-1], node.data, number):
                self._check_there(names[-1], node.data)
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
        elif self._enter(names[:-1], is_made=False) and self._trail.last.remove(names[-1]):
            self._touch_folder()

    def _enter(self, names: Sequence[str], *, is_made: bool) -> bool:
        """Make the folder of that name the current one; whether it is there. Raises: ForeignEntryError for a link."""
        return all(self._step(name, is_made=is_made) for name in self._trail.back_to(names))

    def _step(self, name: str, *, is_made: bool) -> bool:
        try:
            self._trail.step(name)
        except (FileNotFoundError, NotADirectoryError):
            if is_made:
                self._make_folder(name)
                self._trail.step(name)
            return is_made
        return True

    def _make_folder(self, name: str) -> None:
        """Make a folder, also where a file is."""
        here = self._trail.last.descriptor
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=here)
        os.mkdir(name, PUBLIC_FOLDER, dir_fd=here)
        self._touch_folder()

    def _place_sidecar(self, node: Node, number: int | None) -> None:
        held = {binary.digest: binary for binary in binaries_of(node)}
        files = {binary_file(digest): binary for digest, binary in held.items()}
        for name, binary in files.items():
            if not self._move_in(name, binary, number):
                self._check_there(name, binary)
        # binaries before the sidecar that names them, unused ones after it: who reads a sidecar finds its binaries
        draft = self._staging.write("sidecar", write_sidecar(node))
        # also true of the new one after a crash right behind its rename: the unused binaries go all the same
        had_one = self._trail.last.status(SIDECAR) is not None
        self._rename_in(draft, SIDECAR)
        self._durability.touch(self._place(SIDECAR))
        if had_one:
            self._drop_binaries(files.keys())

    def _drop_sidecar(self) -> None:
        if self._trail.last.status(SIDECAR) is not None:
            # before the sidecar: as long as there is one, what a crash interrupts here is done again
            self._drop_binaries(())
            self._trail.last.remove(SIDECAR)
            self._touch_folder()

    def _drop_binaries(self, keep: Collection[str]) -> None:
        for name in self._trail.last.names():
            if is_binary_file(name) and name not in keep:
                self._trail.last.remove(name)
                self._touch_folder()

    def _move_in(self, name: str, binary: Binary, number: int | None) -> bool:
        """Rename the staged file to its place; whether it was there."""
        if number is None:
            return False
        try:
            self._rename_in(self._staging.name(number, binary.digest), name)
        except FileNotFoundError:
            return False
        return True

    def _rename_in(self, staged: str, name: str) -> None:
        source, here = self._staging.folder, self._trail.last
        try:
            source.move(staged, here, name)
        except IsADirectoryError:
            # the folder of the node before, which a file replaces with all that is in it
            here.remove(name)
            source.move(staged, here, name)
        self._durability.move(f"{source.place}/{staged}", self._place(name))
        self._touch_folder()

    def _check_there(self, name: str, binary: Binary) -> None:
        """What is not staged must be in place: an earlier attempt put it there."""
        found = self._trail.last.status(name)
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_size == binary.length_bytes:
            return
        place = self._place(name)
        raise TargetCorruptError(
            f"the bytes of {place} are gone, from its place and from the staging folder",
            next_step="restore the target from a snapshot, or remove it and import everything again",
        )

    def _place(self, name: str) -> str:
        return f"{self._trail.last.place}/{name}"

    def _touch_folder(self) -> None:
        self._durability.touch(self._trail.last.place)


def is_shown_as_file(node: Node) -> bool:
    """Whether a node without children is a file, and not a folder with a sidecar."""
    return node.is_plain_file and node.child_order is None
