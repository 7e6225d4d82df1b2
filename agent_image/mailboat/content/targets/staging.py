"""Where the bytes of a batch wait until it is committed: files named by number and digest in the state folder.

The number is that of the node's row (`held`), so two nodes with equal bytes have two files, and moving one to its place
leaves the other alone. What is staged is checked while it is copied, here or by the stream that it comes from: a wrong
digest or length keeps it out.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO, Final

from mailboat.blobs.content import CopyProof, blob_corrupt
from mailboat.content.held_blobs import open_binary
from mailboat.content.targets.durability import Durability
from mailboat.model.nodes import Binary

CHUNK_BYTES: Final = 1024 * 1024


class Staging:
    """The folder of staged files."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        """Use a folder on the same file system as the content; made if it is missing."""
        folder.mkdir(exist_ok=True)
        self._folder = str(folder)
        self._durability = durability
        self._is_clear = False

    @property
    def folder(self) -> str:
        """The folder."""
        return self._folder

    def file(self, number: int, digest: bytes) -> str:
        """Where a staged binary is, if it is there."""
        return f"{self._folder}/{number}-{digest.hex()}"

    def add(self, number: int, binary: Binary) -> None:
        """Stage a binary. Raises: BlobMissingError, BlobCorruptError, OSError."""
        file = self.file(number, binary.digest)
        self._is_clear = False
        with open(file, "wb", buffering=0) as into:  # noqa: PTH123  # a text: a Path for each costs more
            if binary.data is not None:
                _write(into, binary.data)
            else:
                _copy(binary, into)
        self._durability.touch(file)

    def has(self, number: int, digest: bytes) -> bool:
        """Whether that binary is staged."""
        return os.path.exists(self.file(number, digest))  # noqa: PTH110

    def write(self, name: str, content: bytes) -> str:
        """A small file to be renamed at once; where it is."""
        file = f"{self._folder}/{name}"
        self._is_clear = False
        with open(file, "wb", buffering=0) as into:  # noqa: PTH123
            _write(into, content)
        return file

    def seal(self) -> None:
        """The names are to outlive a crash, too."""
        if not self._is_clear:
            self._durability.touch(self._folder)

    def drop_above(self, number: int) -> None:
        """Remove what is staged under numbers above this one."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                staged = entry.name.partition("-")[0]
                if not staged.isdecimal() or int(staged) > number:
                    os.unlink(entry.path)  # noqa: PTH108

    def clear(self) -> None:
        """Remove everything that is staged."""
        if self._is_clear:
            return
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)  # noqa: PTH108
        self._is_clear = True


def _copy(binary: Binary, into: BinaryIO) -> None:
    with open_binary(binary) as stream:
        proof = CopyProof(stream)
        while chunk := stream.read(CHUNK_BYTES):
            proof.update(chunk)
            _write(into, chunk)
    if proof.digest() != binary.digest or proof.length_bytes != binary.length_bytes:
        raise blob_corrupt(binary.digest, f"came with {proof.length_bytes} bytes of other content")


def _write(into: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[into.write(view) :]
