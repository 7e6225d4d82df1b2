"""Packages in pieces: one that is too large for a message travels in the journal itself, cut, before its message.

The pieces come first, each a record of its own; the package's message comes last and says where they stand. So a
message never promises what is not there, a publisher that dies leaves pieces without a message, and a queue shows
one entry. Source: PIP-37, with the roles of first and last turned round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mailboat.errors import PackageCorruptError
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId

_FORM: Final = re.compile(
    r"pieces:(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18}):([1-9][0-9]{0,9}):([1-9][0-9]{0,17})", re.ASCII
)
_LARGEST_OFFSET: Final = 2**63 - 1
_SCHEME: Final = "pieces:"
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class PieceMessage:
    """A piece of a package, on the package topic.

    Attributes:
        pub_sling_id: The publisher's instance.
        pub_agent_name: The publisher agent.
        package_id: The package; no other has it.
        index: Which piece, from 0.
        content: Its bytes, one at least.
    """

    pub_sling_id: SlingId
    pub_agent_name: AgentName
    package_id: PackageId
    index: int
    content: bytes


@dataclass(frozen=True, slots=True)
class PieceRun:
    """Where the pieces of a package stand: what its message says in place of a reference to a blob.

    Attributes:
        first_offset: Of the first piece.
        last_offset: Of the last piece. Records of others may stand between.
        count: How many pieces.
        length_bytes: Of all together: the package.
    """

    first_offset: Offset
    last_offset: Offset
    count: int
    length_bytes: int

    def __str__(self) -> str:
        return f"{_SCHEME}{self.first_offset}:{self.last_offset}:{self.count}:{self.length_bytes}"


def is_run(reference: str) -> bool:
    """Whether a reference to a package means pieces in the journal."""
    return reference.startswith(_SCHEME)


def parse_run(reference: str, message_offset: int) -> PieceRun:
    """The run that a message at an offset names, checked before anything is read or allocated for it.

    Raises:
        PackageCorruptError: It can't be: out of order, beyond the message, more pieces than places or bytes.
    """
    match = _FORM.fullmatch(reference)
    if match is None:
        raise PackageCorruptError(f"{reference[:_SHOWN]!r} is not a reference to pieces", offset=message_offset)
    first, last, count, length = map(int, match.groups())
    if not first <= last < message_offset <= _LARGEST_OFFSET or not count <= min(last - first + 1, length):
        raise PackageCorruptError(
            f"{count} pieces of {length} bytes in all can't stand from {first} to {last}", offset=message_offset
        )
    return PieceRun(Offset(first), Offset(last), count, length)
