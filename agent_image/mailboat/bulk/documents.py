"""Documents of builds: JSON that becomes a record only where every field has the type that the record says.

A field missing in a document has its default, and what a document has besides the fields of the record was added by a
later version. A record within another one has all its fields, or their defaults, and no others.
"""

from __future__ import annotations

import enum
import json
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R")


def record_of(kind: type[R], document: bytes) -> R:
    """The record in a document.

    Raises:
        ValueError: The document is not JSON, or does not fit the record.
    """
    try:
        record: R = _record(kind, json.loads(document), may_say_more=True)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return record


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _record(kind: Any, found: object, *, may_say_more: bool = False) -> Any:
    hints = _hints(kind)
    if not isinstance(found, dict):
        raise TypeError(f"{found!r:.40} is not a mapping")
    strange = found.keys() - hints.keys()
    if strange and not may_say_more:
        raise ValueError(f"unknown fields {sorted(strange)!r:.40}")
    return kind(**{name: _value(hints[name], value) for name, value in found.items() if name in hints})


def _value(hint: Any, found: Any) -> Any:
    """What JSON says, as a value of the type of a field."""
    kind: Any = getattr(hint, "__supertype__", hint)
    if get_origin(kind) in {Union, UnionType}:
        (other,) = [one for one in get_args(kind) if one is not NoneType]
        return None if found is None else _value(other, found)
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind), found)
    if is_dataclass(kind):
        return _record(kind, found)
    if issubclass(kind, tuple):
        return kind(*_tuple(tuple(_hints(kind).values()), found))
    if kind is bytes or issubclass(kind, enum.StrEnum):
        return bytes.fromhex(found) if kind is bytes else kind(found)
    if type(found) is not kind or (kind is int and not 0 <= found < 1 << 63):
        raise ValueError(f"{found!r:.40} is no {kind.__name__} that stands there")
    return found


def _tuple(hints: tuple[Any, ...], found: object) -> tuple[object, ...]:
    if not isinstance(found, list):
        raise TypeError(f"{found!r:.40} is not a list")
    expected = hints[:1] * len(found) if hints[-1] is Ellipsis else hints
    return tuple(_value(hint, value) for hint, value in zip(expected, found, strict=True))
