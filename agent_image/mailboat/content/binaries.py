"""The binaries of nodes, apart from their nodes: which there are, and the node with others in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count

from mailboat.model.nodes import Binary, Node, Property, PropertyType


def binaries_of(node: Node) -> list[Binary]:
    """All binary values of a node."""
    held = (prop.values for prop in node.properties if prop.type is PropertyType.BINARY)
    return [value for values in held for value in values if isinstance(value, Binary)]


def content_bytes_of(node: Node) -> int:
    """Bytes of a node's values and binaries."""
    # One loop: each node of each package that is written comes through here, and generators take three times as long.
    total = 0
    for prop in node.properties:
        for value in prop.values:
            if isinstance(value, Binary):
                total += value.length_bytes
            else:
                # Most values are ASCII, and `isascii` reads a flag: only the others are encoded to be counted.
                total += len(value) if value.isascii() else len(value.encode())
    return total


def with_binaries(node: Node, exchange: Callable[[Binary], Binary]) -> Node:
    """The node with every binary exchanged for another form of it."""
    if not any(prop.type is PropertyType.BINARY for prop in node.properties):
        return node
    properties = tuple(
        Property(
            prop.name,
            tuple(exchange(value) for value in prop.values if isinstance(value, Binary)),
            prop.type,
            prop.is_multiple,
        )
        if prop.type is PropertyType.BINARY
        else prop
        for prop in node.properties
    )
    return replace(node, properties=properties)


def named(binary: Binary) -> Binary:
    """The binary known by digest and length only."""
    return Binary(digest=binary.digest, length_bytes=binary.length_bytes)


def unread(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes with a digest for each binary, which is not the true one where that costs reading."""
    numbers = count()

    def exchange(binary: Binary) -> Binary:
        if binary.data is not None or binary.is_digest_known:
            return binary
        return Binary(digest=next(numbers).to_bytes(32), length_bytes=binary.length_bytes, opener=binary.open)

    return (with_binaries(node, exchange) for node in nodes)
