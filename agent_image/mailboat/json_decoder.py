"""Decoders of JSON, made by one thread at a time.

msgspec (0.22) describes a type when it is first used. Another thread that uses the type meanwhile reads the unfinished
description, and the process ends with SIGSEGV. So `msgspec.json.decode(…, type=…)` is not called anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_DESCRIBING: Final = threading.Lock()
"""One for all types: two records may share a third one."""


def make_decoder(record: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of any type that msgspec takes, safe to share between threads. Raises: TypeError."""
    with _DESCRIBING:
        return msgspec.json.Decoder(record)


_kept: Final[Callable[[Any], msgspec.json.Decoder[Any]]] = cache(make_decoder)


def decoder_of(record: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a record of ours, which is kept."""
    found: msgspec.json.Decoder[T] = _kept(record)
    return found
