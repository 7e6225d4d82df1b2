"""Entries in columns: a sealed block holds up to 256 neighbours in arrays instead of objects.

An entry as an object costs 400 to 700 bytes, in columns about 60 and its first path. A block covers a stretch of the
log without gaps: what is not in it does not concern these publishers, so a walk through blocks misses nothing.
"""

from __future__ import annotations

import re
import struct
import sys
import uuid
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action
from mailboat.queues.entries import QueueEntry

BLOCK_OFFSETS: Final = 256
"""Blocks begin and end at multiples of this number, so that a distance within fits into a byte."""

_ACTIONS: Final = tuple(Action)
_PACKED_ID: Final = struct.Struct(">q16s")
# Only forms that packing gives back exactly: leading zeros or capitals would be lost.
_OUR_ID: Final = re.compile(r"dstrpck-(0|[1-9][0-9]{0,14})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_PLAIN_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IS_PLAIN_UUID: Final = -1
_IS_OTHER_TEXT: Final = -2
_OBJECT_BYTES: Final = 450  # the block itself, and its place in a dictionary


def block_end(offset: int) -> int:
    """Where the block that holds an offset ends at the latest."""
    return (offset // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS


class EntryBlock:
    """The entries between two offsets, immutable.

    Attributes:
        covers_from: The first offset covered.
        covers_to: The first offset not covered any more.
        size_bytes: What the block costs.
    """

    __slots__ = (
        "_actions",
        "_appended_ms",
        "_distances",
        "_ids",
        "_lengths",
        "_other_ids",
        "_path_counts",
        "_publisher_numbers",
        "_publishers",
        "_text_ends",
        "_texts",
        "_user_numbers",
        "_users",
        "covers_from",
        "covers_to",
        "size_bytes",
    )

    def __init__(self, entries: Sequence[QueueEntry], covers_from: int, covers_to: int) -> None:
        """Pack the entries, in order, all of them covered, over at most `BLOCK_OFFSETS` offsets."""
        self.covers_from = covers_from
        self.covers_to = covers_to
        self._distances = bytes(entry.offset - covers_from for entry in entries)
        self._appended_ms = array("q", [entry.appended_ms for entry in entries])
        self._lengths = array("q", [entry.length_bytes for entry in entries])
        self._actions = bytes(_ACTIONS.index(entry.action) for entry in entries)
        self._path_counts = array("I", [entry.path_count for entry in entries])
        self._publishers, self._publisher_numbers = _numbered([entry.publisher for entry in entries])
        self._users, self._user_numbers = _numbered([entry.user_id for entry in entries])
        self._other_ids: dict[int, PackageId] = {}
        self._ids = b"".join(self._packed_id(row, entry.package_id) for row, entry in enumerate(entries))
        texts = [entry.first_path.encode() for entry in entries]
        self._texts = b"".join(texts)
        # 16 bits: 256 texts of at most `MAX_TEXT_BYTES`.
        self._text_ends = array("H", _running_total(texts))
        self.size_bytes = self._measure()

    def __len__(self) -> int:
        return len(self._distances)

    def entries(self, publisher: AgentName, from_offset: int) -> Iterator[QueueEntry]:
        """The entries of a publisher from an offset on, unpacked one by one."""
        if publisher not in self._publishers:
            return
        number = self._publishers.index(publisher)
        first_distance = from_offset - self.covers_from
        for row, distance in enumerate(self._distances):
            if distance >= first_distance and self._publisher_numbers[row] == number:
                yield self._entry(row)

    def all_entries(self) -> Iterator[QueueEntry]:
        """All entries, unpacked one by one."""
        return map(self._entry, range(len(self)))

    def _entry(self, row: int) -> QueueEntry:
        begin = self._text_ends[row - 1] if row else 0
        return QueueEntry(
            Offset(self.covers_from + self._distances[row]),
            AgentName(self._publishers[self._publisher_numbers[row]]),
            self._package_id(row),
            _ACTIONS[self._actions[row]],
            self._lengths[row],
            self._appended_ms[row],
            self._texts[begin : self._text_ends[row]].decode(),
            self._path_counts[row],
            self._users[self._user_numbers[row]],
        )

    def _packed_id(self, row: int, package_id: PackageId) -> bytes:
        ours = _OUR_ID.fullmatch(package_id)
        if ours is not None:
            return _PACKED_ID.pack(int(ours[1]), uuid.UUID(ours[2]).bytes)
        if _PLAIN_UUID.fullmatch(package_id):
            return _PACKED_ID.pack(_IS_PLAIN_UUID, uuid.UUID(package_id).bytes)
        self._other_ids[row] = package_id
        return _PACKED_ID.pack(_IS_OTHER_TEXT, b"")

    def _package_id(self, row: int) -> PackageId:
        created_ms, unique = _PACKED_ID.unpack_from(self._ids, row * _PACKED_ID.size)
        if created_ms == _IS_OTHER_TEXT:
            return self._other_ids[row]
        text = str(uuid.UUID(bytes=unique))
        return PackageId(text if created_ms == _IS_PLAIN_UUID else f"dstrpck-{created_ms}-{text}")

    def _measure(self) -> int:
        columns = (
            self._distances,
            self._actions,
            self._ids,
            self._texts,
            self._appended_ms,
            self._lengths,
            self._path_counts,
            self._text_ends,
            self._publisher_numbers,
            self._user_numbers,
            self._publishers,
            self._users,
            self._other_ids,
            *self._users,
            *self._other_ids.values(),
        )
        return _OBJECT_BYTES + sum(map(sys.getsizeof, columns))


def _numbered(texts: Sequence[str]) -> tuple[tuple[str, ...], bytes]:
    """The different texts, and for each row the number of its text; 256 rows have no more than 256 texts."""
    different = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    # Interned: the blocks of a log have the same few names.
    return tuple(map(sys.intern, different)), bytes(different[text] for text in texts)


def _running_total(texts: Sequence[bytes]) -> list[int]:
    ends: list[int] = []
    end = 0
    for text in texts:
        end += len(text)
        ends.append(end)
    return ends
