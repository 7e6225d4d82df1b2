"""Packages of the `tree` format put together by hand, field by field, and both ways to read them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Final

from mailboat.config.document import LimitsConfig
from mailboat.errors import UnknownRequiredFeatureError, UntrustedInputError
from mailboat.model.changes import Subtrees, TreeChange
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import TreeCodec
from support.handmade import data, number, text, varint

CODEC: Final = TreeCodec()
LIMITS: Final = LimitsConfig()
FOLDER: Final = data(1, text(1, "nt:folder"))


def header(*filters: bytes, version: int = 1, ancestors: bytes = b"") -> bytes:
    """The first record: version, filters, and the fields that stand for nodes above."""
    return data(1, number(1, version) + b"".join(data(2, item) for item in filters or (text(1, "/c"),)) + ancestors)


def node(path: str, body: bytes = FOLDER) -> bytes:
    """A record of a covered node."""
    return data(2, text(1, path) + data(2, body))


def ancestor(path: str, body: bytes = FOLDER) -> bytes:
    """A field of the header: a node above."""
    return data(3, text(1, path) + data(2, body))


def piece(content: bytes, *, is_last: bool = True) -> bytes:
    """A record of a piece of a large binary."""
    return data(3, data(1, content) + (number(2, 1) if is_last else b""))


def namespace(prefix: str, uri: str) -> bytes:
    """A record of a namespace."""
    return data(4, text(1, prefix) + text(2, uri))


def large_file(content: bytes) -> bytes:
    """The body of a file that names its content."""
    named = data(1, hashlib.sha256(content).digest()) + data(2, varint(len(content) + 1))
    return data(1, text(1, "nt:file") + text(6, "jcr:data")) + data(3, named)


def large_files(*contents: bytes) -> bytes:
    """The body of a node that names several contents."""
    named = b"".join(data(1, hashlib.sha256(content).digest()) for content in contents)
    lengths = b"".join(varint(len(content) + 1) for content in contents)
    shape = text(1, "nt:x") + text(6, "x") + data(7, varint(len(contents) + 1))
    return data(1, shape) + data(3, named + data(2, lengths))


def package(*records: bytes, count: int | None = None) -> bytes:
    """The records, and the trailer that belongs behind them."""
    before = b"".join(records)
    nodes = sum(record[:1] == b"\x12" for record in records) if count is None else count
    return before + data(15, number(1, nodes) + data(2, hashlib.sha256(before).digest()))


def read_at_once(payload: bytes, limits: LimitsConfig = LIMITS, *, are_bytes_checked: bool = False) -> TreeChange:
    """Read what is in memory."""
    return CODEC.read_bytes(payload, limits, None, are_bytes_checked=are_bytes_checked)


def read_as_stream(payload: bytes, limits: LimitsConfig = LIMITS, *, are_bytes_checked: bool = False) -> TreeChange:
    """Read from a stream, to its end."""
    reader = CODEC.open(io.BytesIO(payload), limits, None, are_bytes_checked=are_bytes_checked)
    change = reader.change()
    records = list(change.records)
    reader.close()
    if change.filter != reader.filter:
        raise AssertionError(f"{change.filter} is told, and {reader.filter} kept")
    return change._replace(records=records)


READERS: Final = (read_at_once, read_as_stream)
"""Both ways to read, which must agree."""


def written(contents: PackageContents) -> bytes:
    """The bytes that our writer makes of it."""
    into = io.BytesIO()
    CODEC.write(contents, into)
    return into.getvalue()


PAGE: Final = data(1, text(1, "nt:unstructured") + text(3, "text")) + text(2, "grüße")
_BEFORE: Final = package(header(text(1, "/b")), node("/b"), node("/b/x", PAGE))
_BEHIND: Final = package(header(text(1, "/d"), ancestors=b""), node("/d", PAGE))


def read_together(payload: bytes, limits: LimitsConfig = LIMITS, root: str = "/c") -> Subtrees | None:
    """Read a package between two others, all of them at once."""
    roots = [NodePath("/b"), NodePath(root), NodePath("/d")]
    return CODEC.read_together([_BEFORE, payload, _BEHIND], roots, limits)


def outcome_of(read: Callable[..., TreeChange], payload: bytes) -> object:
    """What becomes of a package whose bytes the caller knows: filter and records, or that it is refused."""
    try:
        change = read(payload, are_bytes_checked=True)
    except (UntrustedInputError, UnknownRequiredFeatureError):
        return "refused"
    return change.filter, change.records, dict(change.namespaces)
