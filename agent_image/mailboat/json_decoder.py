"""Decoders of JSON: of records, made by one thread at a time, and of values that every parser reads alike.

msgspec (0.22) describes a type when it is first used. Another thread that uses the type meanwhile reads the unfinished
description, and the process ends with SIGSEGV. So `msgspec.json.decode(…, type=…)` is not called anywhere.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

_SHOWN_CHARACTERS: Final = 40
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


def parse_value(text: str | bytes, members: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text without what only some parsers take: NaN, infinities, numbers that are read as one.

    Args:
        text: The JSON text.
        members: Makes the value of an object of its members.

    Raises: ValueError, RecursionError.
    """
    return json.loads(text, object_pairs_hook=members, parse_constant=_refuse_constant, parse_float=_finite_number)


def _finite_number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:_SHOWN_CHARACTERS]} is too large for a number")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
