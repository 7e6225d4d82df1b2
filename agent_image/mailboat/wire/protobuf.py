"""Protobuf bytes to messages of one type, and their times, with errors that say what is wrong."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from mailboat.clock import LAST_MS
from mailboat.errors import MessageCorruptError

P = TypeVar("P", bound=Protobuf)

MAX_NAME_CHARACTERS: Final = 256
"""Of any name or id in a status, an announcement or a command: readers keep them for as long as they know the agent."""


def parse(kind: type[P], value: bytes) -> P:
    """Parse protobuf of one type. Raises: MessageCorruptError, naming the required fields that are missing."""
    try:
        message = kind.FromString(value)
    except DecodeError as error:
        raise MessageCorruptError(f"{len(value)} bytes are not a {kind.DESCRIPTOR.name}: {error}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]  # not in the stubs
        raise MessageCorruptError(f"a {kind.DESCRIPTOR.name} lacks the required fields {missing}", fields=missing)
    return message


def wall_ms(value: int) -> int | None:
    """A field with milliseconds since 1970 UTC; None if it is not set. Raises: MessageCorruptError."""
    if not 0 <= value <= LAST_MS:
        raise MessageCorruptError(f"{value} ms is not a valid time")
    return value or None


def name(value: str) -> str:
    """A name or an id. Raises: MessageCorruptError: it is longer than any can be."""
    if len(value) > MAX_NAME_CHARACTERS:
        raise MessageCorruptError(
            f"a name has {len(value)} characters, at most {MAX_NAME_CHARACTERS} are allowed: {value[:40]!r}",
            limit=MAX_NAME_CHARACTERS,
        )
    return value


def cut(value: str, characters: int) -> str:
    """A text for people, cut to so many characters; one that was cut ends in `…`."""
    return value if len(value) <= characters else value[: characters - 1] + "…"
