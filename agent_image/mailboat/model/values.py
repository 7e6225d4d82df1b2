"""Lexical forms of property values: checked and made canonical, so that equal values have equal text.

The forms are those of JCR 2.0 (chapter 3.6.4) as FileVault writes them: `{Long}42`, `{Double}1.5`, `{Boolean}true`,
`{Date}2026-01-02T03:04:05.678+01:00`, `{Decimal}1.10`. What Jackrabbit would take with a shrug (`{Long}forty-two`
becomes a String there) is refused here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from mailboat.errors import ValueRefusedError
from mailboat.model.nodes import PropertyType

# ISO 8601 as org.apache.jackrabbit.util.ISO8601 demands it; a date without a zone is one of its reader's zone.
_DATE: Final = re.compile(
    r"(?P<year>[+-]?[0-9]{4,9})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?\Z"
)
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]+(?:\.(?P<after>[0-9]*))?|\.(?P<alone>[0-9]+))(?:[eE](?P<exponent>[+-]?[0-9]{1,10}))?\Z"
)
_INT: Final = range(-(2**31), 2**31)
_LONG_RANGE: Final = range(-(2**63), 2**63)
_SPECIAL_DOUBLES: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_GREGORIAN_FROM: Final = 1583  # java.util.GregorianCalendar is Julian before, with a leap year every fourth


def canonical_value(kind: PropertyType, text: str) -> str:
    """The canonical lexical form of `text` as a value of type `kind` (any but BINARY).

    Raises:
        ValueRefusedError: When the text is not a value of that type.
    """
    check = _CHECKS[kind]
    if check is None:
        return text
    try:
        return check(text)
    except (ValueError, ArithmeticError) as error:
        raise ValueRefusedError(f"{text[:80]!r} is not a {kind.name} value") from error


def _long(text: str) -> str:
    value = int(text) if _LONG.match(text) else None
    if value is None or value not in _LONG_RANGE:
        raise ValueError(text)
    return str(value)


def _double(text: str) -> str:
    if text in _SPECIAL_DOUBLES:
        return text
    if not _NUMBER.match(text):
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
    if match is None:
        raise ValueError(text)
    if match["day"] > "28" and int(match["day"]) > _days_of(int(match["year"]), match["month"]):
        raise ValueError(text)
    return text


def _days_of(year: int, month: str) -> int:
    if month == "02":
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0 or year < _GREGORIAN_FROM)
        return 29 if is_leap else 28
    return 30 if month in {"04", "06", "09", "11"} else 31


def _decimal(text: str) -> str:
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(text)
    # As java.math.BigDecimal: exponent and scale have 32 bits, there is no negative zero, and `toString` is the same.
    exponent = int(match["exponent"] or 0)
    if exponent not in _INT or len(match["after"] or match["alone"] or "") - exponent not in _INT:
        raise ValueError(text)
    value = Decimal(text)
    return str(value or value.copy_abs())


# By the number of the type; None where any text is a value.
_CHECKS: Final[Sequence[Callable[[str], str] | None]] = tuple(
    {
        PropertyType.LONG: _long,
        PropertyType.DOUBLE: _double,
        PropertyType.BOOLEAN: _boolean,
        PropertyType.DATE: _date,
        PropertyType.DECIMAL: _decimal,
    }.get(kind)  # type: ignore[call-overload]  # 0 stands for no type
    for kind in range(max(PropertyType) + 1)
)
