"""Identifiers: distinct types for the strings and numbers that must never be mixed up; default names of topics."""

from __future__ import annotations

import enum
import re
from typing import Final, NewType

from mailboat.errors import UsageError

AgentName = NewType("AgentName", str)
"""A publisher's or subscriber's name: 1 to 63 letters, digits, `-`, `.` or `_` (fits a Kubernetes name)."""

SlingId = NewType("SlingId", str)
"""The instance that an agent runs in: exactly 36 characters, as agent ids are split by length (SLING-8525)."""

PackageId = NewType("PackageId", str)
"""`dstrpck-<epoch milliseconds>-<uuid4>`, as Sling's builder makes them."""

RequestId = NewType("RequestId", str)
"""What a caller names a request by, so that a retry is not a second package. 1 to 200 printable characters."""

BuildId = NewType("BuildId", str)
"""A build of many packages: 1 to 63 letters, digits, `-`, `.` or `_`, as an agent's name."""

Offset = NewType("Offset", int)
"""A record's place in its topic, from 0, 64 bits, never used twice. Say "next to read" or "last done" in the name."""

TopicName = NewType("TopicName", str)
"""A topic of a journal: 1 to 249 of letters, digits, `.`, `_` or `-` (Kafka's rule)."""

_AGENT_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_DIGITS: Final = re.compile(r"[0-9]+")
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,200}\Z")
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")

SLING_ID_LENGTH: Final = 36


def is_agent_name(text: str) -> bool:
    """Whether an agent may have that name."""
    return _AGENT_NAME.match(text) is not None


def parse_agent_name(text: str) -> AgentName:
    """Check an agent's name. Raises: UsageError."""
    if not is_agent_name(text):
        raise UsageError(
            f"{text!r} is not an agent name: 1 to 63 letters, digits, '.', '_' or '-', no dash at the ends"
        )
    return AgentName(text)


def natural_key(name: str) -> str:
    """A key that sorts names by the numbers in them: `edge-2` before `edge-10`."""
    return _DIGITS.sub(lambda found: f"{len(found[0].lstrip('0')):03}{found[0].lstrip('0')}", name)


def parse_build_id(text: str) -> BuildId:
    """Check a build's id. Raises: UsageError."""
    if not _AGENT_NAME.match(text):
        raise UsageError(f"{text!r} is not a build id: 1 to 63 letters, digits, '.', '_' or '-', no dash at the ends")
    return BuildId(text)


def parse_request_id(text: str) -> RequestId:
    """Check a request id. Raises: UsageError."""
    if not _REQUEST_ID.match(text):
        raise UsageError(f"{text!r} is not a request id: 1 to 200 printable ASCII characters without spaces")
    return RequestId(text)


def parse_topic_name(text: str) -> TopicName:
    """Check a topic's name. Raises: UsageError."""
    if not _TOPIC_NAME.match(text) or text in {".", ".."}:
        raise UsageError(f"{text!r} is not a topic name: 1 to 249 letters, digits, '.', '_' or '-'")
    return TopicName(text)


class FileIdentity(enum.StrEnum):
    """What a file of a folder is recognised by, from one listing to the next."""

    INODE = "inode"
    """Size, times of modification and of change, and inode. Notices everything; the same only on one file system."""
    MTIME = "mtime"
    """Size and time of modification: the same in copies that keep it, on other machines for instance."""
    CONTENT = "content"
    """The content, which is read for each listing: the same in every copy."""
