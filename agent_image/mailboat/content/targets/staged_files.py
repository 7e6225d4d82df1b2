"""Files of a batch that wait for its commit, named by number and digest, in the state folder.

The number is that of the node's row (`held`), so two nodes with equal bytes have two files, and moving one to its place
leaves the other alone. What is staged is checked while it is copied, here or by the stream that it comes from: a wrong
digest or length keeps it out.
"""

from __future__ import annotations

from io import FileIO
from typing import Final

from mailboat.blobs.checked_content import CopyProof, blob_corrupt
from mailboat.content.held_blobs import open_binary
from mailboat.content.targets.durability import Durability
from mailboat.folder_handle import PUBLIC_FILE, FolderHandle
from mailboat.model.nodes import Binary

CHUNK_BYTES: Final = 1024 * 1024


class Staging:
    """The folder of staged files."""

    def __init__(self, folder: FolderHandle, durability: Durability) -> None:
        """Use a folder on the same file system as the content, from now on owned by this object."""
        self.folder = folder
        self._durability = durability
        self._is_clear = False

    def name(self, number: int, digest: bytes) -> str:
        """The name of a staged binary, if it is there."""
        return f"{number}-{digest.hex()}"

    def add(self, number: int, binary: Binary) -> None:
        """Stage a binary. Raises: BlobMissingError, BlobCorruptError, OSError."""
        name = self.name(number, binary.digest)
        with self._create(name) as into:
            if binary.data is not None:
                _write(into, binary.data)
            else:
                _copy(binary, into)
        self._durability.touch(f"{self.folder.place}/{name}")

    def has(self, number: int, digest: bytes) -> bool:
        return self.folder.status(self.name(number, digest)) is not None

    def open(self, number: int, digest: bytes) -> FileIO:
        """A staged binary. Raises: OSError."""
        return self.folder.open_file(self.name(number, digest))

    def write(self, name: str, content: bytes) -> str:
        """Write a small file that is renamed at once; its name."""
        with self._create(name) as into:
            _write(into, content)
        return name

    def seal(self) -> None:
        """Make the names outlive a crash, too."""
        if not self._is_clear:
            self._durability.touch(self.folder.place)

    def drop_above(self, number: int) -> None:
        """Remove what is staged under numbers above this one."""
        for name in self.folder.names():
            staged = name.partition("-")[0]
            if not staged.isdecimal() or int(staged) > number:
                self.folder.remove(name)

    def clear(self) -> None:
        if self._is_clear:
            return
        for name in self.folder.names():
            self.folder.remove(name)
        self._is_clear = True

    def close(self) -> None:
        self.folder.close()

    def _create(self, name: str) -> FileIO:
        self._is_clear = False
        return self.folder.create_file(name, PUBLIC_FILE)  # it is published by a rename


def _copy(binary: Binary, into: FileIO) -> None:
    with open_binary(binary) as stream:
        proof = CopyProof(stream)
        while chunk := stream.read(CHUNK_BYTES):
            proof.update(chunk)
            _write(into, chunk)
    if proof.digest() != binary.digest or proof.length_bytes != binary.length_bytes:
        raise blob_corrupt(binary.digest, f"came with {proof.length_bytes} bytes of other content")


def _write(into: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[into.write(view) :]
