"""How long the paths of content may be in one folder: the operating system bounds the whole path, root included.

A node that can be written by descriptors, folder by folder, still couldn't be copied to the next generation nor read as
a source by its whole path, so what is too long is refused for the package that brings it, before anything is written.
"""

from __future__ import annotations

import os
from typing import Final

from mailboat.content.disk_layout import binary_file, names_on_disk
from mailboat.errors import PathRefusedError
from mailboat.model.paths import NodePath

_BESIDE_BYTES: Final = len("/" + binary_file(bytes(32)))
"""Any node may get a sidecar and binaries next to it, if only because another package puts something below it."""
_ESCAPE_BYTES: Final = 16
_UTF8_BYTES: Final = 4


class PathLimits:
    """The room below one folder."""

    def __init__(self, folder: str, longest_below: str) -> None:
        """Measure for content shown in `folder`, or in one below it with that relative path. Raises: OSError."""
        self._folder = folder
        root_bytes = len(os.fsencode(folder + longest_below))
        self._path_bytes = os.pathconf(folder, "PC_PATH_MAX") - 1 - root_bytes - _BESIDE_BYTES
        self._name_bytes = os.pathconf(folder, "PC_NAME_MAX")
        self._plain_bytes = min(self._path_bytes, self._name_bytes) - _ESCAPE_BYTES

    def check(self, path: NodePath) -> None:
        """See whether a node has room. Raises: PathRefusedError, with the limit."""
        size = len(path) if path.isascii() else len(path) * _UTF8_BYTES
        if size <= self._plain_bytes and "/.node." not in path:
            return
        names = [len(name.encode()) for name in names_on_disk(path)]
        if sum(names) + len(names) > self._path_bytes:
            raise PathRefusedError(
                f"{path[:80]}… has {sum(names) + len(names)} bytes, and {self._folder} has room for paths of "
                f"{max(0, self._path_bytes)} bytes",
                path=path[:200],
            )
        if max(names, default=0) > self._name_bytes:
            raise PathRefusedError(
                f"{path[:80]}… has a name of {max(names)} bytes, and {self._folder} takes {self._name_bytes}",
                path=path[:200],
            )
