"""The package formats of an agent, by the type that a message names, and by the first bytes of a file.

Made once by the composition root and handed to publisher and subscriber. Loads no format itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, Final

from mailboat.errors import UnknownPackageTypeError
from mailboat.packages.port import PackageCodec

TREE: Final = "tree"
FILEVAULT: Final = "filevault"
_TREE_START: Final = b"\x0a"
_ZIP_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")  # a zip with entries, and an empty one


class PackageRegistry(Mapping[str, PackageCodec]):
    """Codecs by package type. Unchangeable, so any thread may use it."""

    def __init__(self, codecs: Iterable[PackageCodec]) -> None:
        self._codecs = {codec.package_type: codec for codec in codecs}  # of two for one type the later one counts

    def __getitem__(self, package_type: str) -> PackageCodec:
        return self._codecs[package_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codecs)

    def __len__(self) -> int:
        return len(self._codecs)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted(self._codecs))

    def codec_for(self, package_type: str) -> PackageCodec:
        """The codec of a type. Raises: UnknownPackageTypeError, naming the known ones."""
        codec = self._codecs.get(package_type)
        if codec is None:
            raise UnknownPackageTypeError(
                f"{package_type[:80]!r} is not a known package type; known are {', '.join(self.types) or 'none'}",
                package_type=package_type[:80],
            )
        return codec

    def codec_of(self, stream: BinaryIO) -> PackageCodec:
        """The codec that a file's first bytes speak for; the stream's position stays.

        Raises: UnknownPackageTypeError.
        """
        start = stream.tell()
        first = stream.read(4)
        stream.seek(start)
        if first.startswith(_ZIP_STARTS):
            return self.codec_for(FILEVAULT)
        if first.startswith(_TREE_START):
            return self.codec_for(TREE)
        what = f"starts with the bytes {first.hex(' ')}, which no package format does" if first else "is empty"
        raise UnknownPackageTypeError(f"the file {what}; known formats: {', '.join(self.types) or 'none'}")
