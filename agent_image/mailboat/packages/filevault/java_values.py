"""Numbers and dates as Java reads them: what is a value for FileVault, though it is not in the form of ours.

`Double.parseDouble`, `Long.parseLong` and `new BigDecimal` of Java 11, and `org.apache.jackrabbit.util.ISO8601`, whose
fields go through `Integer.parseInt`. All but the first take any decimal digit of Unicode's first plane.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from mailboat.errors import ValueRefusedError
from mailboat.model.nodes import PropertyType
from mailboat.model.values import canonical_value

_DIGIT: Final = re.compile(r"(?![0-9])\d")
_TRIMMED: Final = "".join(map(chr, range(33)))
_DOUBLE: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<special>NaN|Infinity)"
    r"|(?:(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)"
    r"|(?P<decimal>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?)\Z"
)
_LONG: Final = re.compile(r"(?P<sign>[+-]?)(?P<number>[0-9]+)\Z")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<minus>-?)\+?(?P<exponent>[0-9]+))?\Z")
_DATE: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<year>\d{4}|[+-]\d{3})-(?P<month>\d\d|[+-]\d)-(?P<day>\d\d|[+-]\d)"
    r"T(?P<hour>\d\d|[+-]\d):(?P<minute>\d\d|[+-]\d):(?P<second>\d\d|[+-]\d)\.(?P<millis>\d{3}|[+-]\d\d)(?P<zone>.*)\Z"
)
_URI_SET: Final = r"\x00-\x20\"<>\\^`{|}\x7f-\x9f\s#"
_URI_REST: Final = rf"[^{_URI_SET}]*"
_URI_END: Final = rf"(?:#{_URI_REST})?\Z"
_AUTHORITY: Final = rf"(?:(?:[^{_URI_SET}/?\[\]@]*@)?\[[0-9a-fA-F:.]+\](?::[0-9]*)?|[^{_URI_SET}/?\[\]]*)(?=[/?#]|\Z)"
_HIERARCHY: Final = rf"(?!//\Z)(?://{_AUTHORITY})?[^{_URI_SET}?\[\]]*(?:\?{_URI_REST})?{_URI_END}"
_OPAQUE: Final = rf"[^{_URI_SET}/]{_URI_REST}{_URI_END}"
URI: Final = re.compile(
    rf"(?!.*%(?![0-9a-fA-F]{{2}}))(?:[A-Za-z][A-Za-z0-9+.\-]*:(?:(?=/){_HIERARCHY}|{_OPAQUE})|(?![^/?#]*:){_HIERARCHY})"
)
"""What `java.net.URI` takes; it looks more closely at addresses in brackets."""
_MAX_EXPONENT_DIGITS: Final = 10


def read_java(kind: PropertyType, text: str) -> str | None:
    """The canonical form of a number or date; None if Java refuses it.

    Raises: ValueRefusedError: Java takes it and we can't.
    """
    return _READERS[kind](text)


def read_double(text: str) -> str | None:
    """A Double: also `0x1p3`, `1d` and, for `1e999`, infinity."""
    match = _DOUBLE.match(text.strip(_TRIMMED))
    if match is None:
        return None
    if match["special"] == "NaN":
        return "NaN"
    try:
        value = float.fromhex(match["hex"]) if match["hex"] else float(match["decimal"] or "inf")
    except OverflowError:
        value = math.inf
    number = repr(value) if math.isfinite(value) else "Infinity"
    return f"-{number}" if match["sign"] == "-" else number


def _read_long(text: str) -> str | None:
    match = _LONG.match(_with_ascii_digits(text))
    if match is None:
        return None
    try:
        return canonical_value(PropertyType.LONG, match["sign"] + (match["number"].lstrip("0") or "0"))
    except ValueRefusedError:
        return None  # beyond 64 bits


def _read_decimal(text: str) -> str | None:
    number = _with_ascii_digits(text)
    match = _DECIMAL.match(number)
    if match is None:
        return None
    digits = (match["exponent"] or "").lstrip("0") or "0"
    if len(digits) > _MAX_EXPONENT_DIGITS:
        return None
    mantissa = re.split("[eE]", number, maxsplit=1)[0]
    try:
        return canonical_value(PropertyType.DECIMAL, f"{mantissa}e{match['minus'] or ''}{digits}")
    except ValueRefusedError:
        return None


def _read_date(text: str) -> str | None:
    match = _DATE.match(text)
    if match is None or not _has_java_digits(text):
        return None
    fields = [int(match[name]) for name in ("year", "month", "day", "hour", "minute", "second", "millis")]
    if min(fields) < 0:
        return None
    year, month, day, hour, minute, second, millis = fields
    found = f"{match['sign']}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}"
    try:
        return canonical_value(PropertyType.DATE, f"{found}{match['zone']}")
    except ValueRefusedError:
        return None


def _has_java_digits(text: str) -> bool:
    return all(digit[0] <= "\uffff" for digit in _DIGIT.finditer(text))


def _with_ascii_digits(text: str) -> str:
    if text.isascii() or not _has_java_digits(text):
        return text
    return _DIGIT.sub(lambda match: str(int(match[0])), text)


_READERS: Final[Mapping[PropertyType, Callable[[str], str | None]]] = {
    PropertyType.LONG: _read_long,
    PropertyType.DOUBLE: read_double,
    PropertyType.DATE: _read_date,
    PropertyType.DECIMAL: _read_decimal,
}
