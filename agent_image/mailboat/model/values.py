"""Lexical forms of property values: checked and made canonical, so that equal values have equal text.

The forms are those of JCR 2.0 (chapter 3.6.4) as FileVault writes them: `{Long}42`, `{Double}1.5`, `{Boolean}true`,
`{Date}2026-01-02T03:04:05.678+01:00`, `{Decimal}1.10`. What Jackrabbit would take with a shrug (`{Long}forty-two`
becomes a String there) is refused here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Final

from mailboat.errors import UntrustedInputError
from mailboat.model.nodes import PropertyType

_DATE: Final = re.compile(
    r"([+-]?\d{4,9})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})(Z|[+-]\d\d:\d\d)\Z"
)  # ISO 8601 as org.apache.jackrabbit.util.ISO8601 demands it
_LONG_RANGE: Final = range(-(2**63), 2**63)
_SPECIAL_DOUBLES: Final = MappingProxyType({"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"})


class ValueRefusedError(UntrustedInputError):
    """A property value does not have the form that its type demands. The message names the type and the value."""


def canonical_value(kind: PropertyType, text: str) -> str:
    """The canonical lexical form of `text` as a value of type `kind` (any but BINARY).

    Raises:
        ValueRefusedError: When the text is no value of that type.
    """
    check = _CHECKS.get(kind)
    if check is None:
        return text
    try:
        return check(text)
    except (ValueError, InvalidOperation) as error:
        raise ValueRefusedError(f"{text[:80]!r} is not a {kind.name} value") from error


def _long(text: str) -> str:
    value = int(text) if text.isascii() and "_" not in text and len(text) <= 20 else None
    if value is None or value not in _LONG_RANGE:
        raise ValueError(text)
    return str(value)


def _double(text: str) -> str:
    special = _SPECIAL_DOUBLES.get(text)
    if special is not None:
        return special
    if not text.isascii() or "_" in text or len(text) > 400:
        raise ValueError(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return repr(value)


def _boolean(text: str) -> str:
    lower = text.lower()
    if lower not in {"true", "false"}:
        raise ValueError(text)
    return lower


def _date(text: str) -> str:
    match = _DATE.match(text)
    if match is None or not text.isascii():
        raise ValueError(text)
    month, day, hour, minute, second = (int(match[group]) for group in range(2, 7))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        raise ValueError(text)
    return text


def _decimal(text: str) -> str:
    if len(text) > 400 or "_" in text or not Decimal(text).is_finite():
        raise ValueError(text)
    return text


_CHECKS: Final[Mapping[PropertyType, Callable[[str], str]]] = MappingProxyType(
    {
        PropertyType.LONG: _long,
        PropertyType.DOUBLE: _double,
        PropertyType.BOOLEAN: _boolean,
        PropertyType.DATE: _date,
        PropertyType.DECIMAL: _decimal,
    }
)
