"""The content model: nodes with typed properties, binaries and an order of children.

A node has its path, so a tree is a stream of nodes, parents first. A plain file is one node of type `nt:file` whose
bytes are its binary property `jcr:data`; the pair nt:file + nt:resource of a JCR repository with nothing else to say is
the same thing, and the FileVault codec folds and unfolds it (FileVault's own file aggregate does the same).
"""

from __future__ import annotations

import enum
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

from mailboat.model.content_hash import ContentHash
from mailboat.model.paths import NodePath

FILE_TYPE: Final = "nt:file"
FOLDER_TYPE: Final = "nt:folder"
RESOURCE_TYPE: Final = "nt:resource"
DATA_PROPERTY: Final = "jcr:data"
CONTENT_NODE: Final = "jcr:content"

_CHUNK_BYTES: Final = 1024 * 1024


class PropertyType(enum.IntEnum):
    """The property types of JCR, with the numbers of `javax.jcr.PropertyType`."""

    STRING = 1
    BINARY = 2
    LONG = 3
    DOUBLE = 4
    DATE = 5
    BOOLEAN = 6
    NAME = 7
    PATH = 8
    REFERENCE = 9
    WEAK_REFERENCE = 10
    URI = 11
    DECIMAL = 12


class Binary:
    """The bytes of a binary value: held inline, or known by digest and length and opened when needed.

    Equality and hash are those of the content. The digest is computed at the first access, where it was not given;
    code that read the content before sets it, and saves that. A binary that is not inline may have no way to be opened
    (`opener` None) where only its identity is known, as in a message.
    """

    __slots__ = ("_digest", "data", "length_bytes", "opener")

    def __init__(
        self,
        data: bytes | None = None,
        *,
        digest: bytes | None = None,
        length_bytes: int | None = None,
        opener: Callable[[], BinaryIO] | None = None,
    ) -> None:
        """Build from `data`, or from `length_bytes` with the `digest` (SHA-256, 32 bytes), an `opener`, or both."""
        if data is None and (length_bytes is None or (digest is None and opener is None)):
            raise ValueError("a binary needs its data, or its length and its digest or a way to open it")
        self.data = data
        self._digest = digest
        self.length_bytes = len(data) if data is not None else int(length_bytes or 0)
        self.opener = opener

    @property
    def digest(self) -> bytes:
        """SHA-256 of the content, 32 bytes; reads it if the digest is unknown. Raises: as the stream."""
        if self._digest is None:
            self._digest = hashlib.sha256(self.data).digest() if self.data is not None else self._read_digest()
        return self._digest

    @property
    def is_digest_known(self) -> bool:
        """Whether the digest costs nothing."""
        return self._digest is not None

    def tell_digest(self, digest: bytes) -> None:
        """All of the content was read, and has this digest."""
        self._digest = digest

    def open(self) -> BinaryIO:
        """A stream over the content, closed by the caller. Raises: ValueError: nothing to open."""
        if self.data is not None:
            return io.BytesIO(self.data)
        if self.opener is None:
            raise ValueError(f"the binary {self.digest.hex()} is known by digest only")
        return self.opener()

    def _read_digest(self) -> bytes:
        total = ContentHash()
        with self.open() as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                total.update(chunk)
        return total.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Binary) and self.length_bytes == other.length_bytes and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        digest = f"{self.digest.hex()[:12]}…" if self.is_digest_known or self.data is not None else "not read yet"
        return f"Binary({digest}, {self.length_bytes} bytes)"


@dataclass(frozen=True, slots=True)
class Property:
    """A typed property, single or multi-valued.

    Attributes:
        name: The JCR name, with its prefix.
        type: The type of all values.
        values: Lexical forms for all types but BINARY, whose values are `Binary`. A single property has exactly one.
            Lexical forms are canonical (`values.py` makes them so): `1`, `true`, `2026-01-02T03:04:05.000Z`.
        is_multiple: A multi-valued property may have any number of values, none included.
    """

    name: str
    values: tuple[str, ...] | tuple[Binary, ...]
    type: PropertyType = PropertyType.STRING
    is_multiple: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        path: Where it is.
        primary_type: `jcr:primaryType`; never stored among the properties.
        mixin_types: `jcr:mixinTypes`, sorted; never among the properties.
        properties: Sorted by name, no name twice.
        child_order: Names of children in order, for a node whose children are ordered; None where the order has no
            meaning (folders). Children that it does not name come after the named ones, by name; names without a
            child are ignored. So a new child needs no write to its parent.
        is_inner: Whether a document of FileVault that begins at a node above says what the node is: of import, and no
            part of the content. Known where a filter `keeps_documents`.
    """

    path: NodePath
    primary_type: str
    mixin_types: tuple[str, ...] = ()
    properties: tuple[Property, ...] = ()
    child_order: tuple[str, ...] | None = None
    is_inner: bool = field(default=False, compare=False)

    def find(self, name: str) -> Property | None:
        """The property of that name, if there is one."""
        return next((candidate for candidate in self.properties if candidate.name == name), None)

    @property
    def data(self) -> Binary | None:
        """The bytes of a plain file: the single binary `jcr:data`; None on any other node."""
        if self.primary_type != FILE_TYPE:
            return None
        found = self.find(DATA_PROPERTY)
        if found is None or found.type is not PropertyType.BINARY or found.is_multiple:
            return None
        value = found.values[0]
        return value if isinstance(value, Binary) else None

    @property
    def is_plain_file(self) -> bool:
        """Whether it is a file and nothing else: no mixins, no property but its bytes."""
        return len(self.properties) == 1 and not self.mixin_types and self.data is not None

    @property
    def is_plain_folder(self) -> bool:
        """Whether it is an nt:folder and nothing else."""
        return (
            self.primary_type == FOLDER_TYPE
            and not self.mixin_types
            and not self.properties
            and self.child_order is None
        )


class NodeRecord(NamedTuple):
    """A node as it travels and is stored: its path and its encoded rest.

    Attributes:
        path: A checked path.
        body: Everything but the path, as canonical protobuf `NodeBody` (`wire/node_bodies.py` encodes and decodes it).
        binaries: The binaries that the body names by digest instead of holding them, each with a way to open it.
        is_inner: See `Node`.
    """

    path: NodePath
    body: bytes
    binaries: tuple[Binary, ...] = ()
    is_inner: bool = False


def file_node(path: NodePath, data: Binary) -> Node:
    """A plain file."""
    return Node(path, FILE_TYPE, properties=(Property(DATA_PROPERTY, (data,), PropertyType.BINARY),))


def folder_node(path: NodePath) -> Node:
    """A plain folder."""
    return Node(path, FOLDER_TYPE)


def ordered_names(child_order: Sequence[str] | None, present: Sequence[str]) -> list[str]:
    """The names in `present` in the parent's order: named ones first, then the others by name."""
    if not child_order:
        return sorted(present)
    rank = {name: index for index, name in enumerate(child_order)}
    last = len(rank)
    return sorted(present, key=lambda name: (rank.get(name, last), name))


__all__ = [
    "CONTENT_NODE",
    "DATA_PROPERTY",
    "FILE_TYPE",
    "FOLDER_TYPE",
    "RESOURCE_TYPE",
    "Binary",
    "Node",
    "NodeRecord",
    "Property",
    "PropertyType",
    "file_node",
    "folder_node",
    "ordered_names",
]
