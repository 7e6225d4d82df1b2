"""Durations (`30s`, `7d`) and sizes (`5Gi`) as manifests write them; inside they are seconds and bytes.

A duration is one number with one unit, so that each has one way to be read. Sizes follow Kubernetes' quantities without
exponents. Called by the decoder and the encoder.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import Final

_HOURS: Final = "([1-9][0-9]{0,4}|1[0-9]{5}|2[0-6][0-9]{4})h"
_DAYS: Final = "([1-9][0-9]{0,3}|1(0[0-9]{3}|1[0-4][0-9]{2}))d"
_FROM_A_SECOND: Final = rf"[1-9][0-9]{{0,6}}(s|m)|{_HOURS}|{_DAYS}"
"""Below `LARGEST_NUMBER` seconds (31 years), the most that agents take."""

DURATION_PATTERN: Final = rf"^([1-9][0-9]{{0,6}}ms|{_FROM_A_SECOND})$"
DURATION_OF_SECONDS_PATTERN: Final = rf"^([1-9][0-9]{{3,6}}ms|{_FROM_A_SECOND})$"
DURATION_OR_ZERO_PATTERN: Final = rf"^(0s|[1-9][0-9]{{0,6}}ms|{_FROM_A_SECOND})$"
RETENTION_PATTERN: Final = r"^([1-9][0-9]{3,6}ms|[1-9][0-9]{0,6}(s|m|h|d))$"
SIZE_PATTERN: Final = r"^[1-9]([0-9]{0,11}(Ki|Mi|k|M)?|[0-9]{0,8}(Gi|G)|[0-9]{0,5}(Ti|T))$"
"""What fits into 64 bits: Kafka and volumes count so far, and so does a retention in milliseconds."""

AGENT_SIZE_PATTERN: Final = r"^[1-9]([0-9]{0,11}(Ki|k)?|[0-9]{0,8}(Mi|M)|[0-9]{0,5}(Gi|G)|[0-9]{0,2}(Ti|T))$"
"""Below `LARGEST_INTEGER`, the most that agents take."""

_LARGEST_DURATION: Final = 9_999_999  # of each unit, as the retention's pattern says; so are the largest sizes
_LARGEST_SIZES: Final = MappingProxyType(
    {1: 10**12 - 1, 1 << 10: 10**12 - 1, 1 << 20: 10**12 - 1, 1 << 30: 10**9 - 1, 1 << 40: 10**6 - 1}
)

_SECONDS: Final = MappingProxyType({"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0})
_BINARY: Final = MappingProxyType({"Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20, "Ki": 1 << 10})
_DECIMAL: Final = MappingProxyType({"T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3})
_PARTS: Final = re.compile(r"([0-9]+)([A-Za-z]*)\Z")


def parse_duration(text: str) -> float:
    """Seconds of a text that fits one of the patterns. Raises: ValueError."""
    number, unit = _parts_of(text)
    return number / 1000 if unit == "ms" else number * _SECONDS[unit]


def format_duration(seconds: float) -> str:
    """The shortest text of a duration of whole milliseconds: `parse_duration` gives it back."""
    if seconds != int(seconds):
        return f"{round(seconds * 1000)}ms"
    for unit, length in _SECONDS.items():
        if seconds >= length and seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    return "0s"


def writable_duration(seconds: float) -> float:
    """The shortest writable retention of at least so many seconds, or the longest writable one."""
    for length in (0.001, *sorted(_SECONDS.values())):
        number = math.ceil(round(seconds / length, 6))
        if number <= _LARGEST_DURATION:
            return number / 1000 if length < 1 else number * length
    return _LARGEST_DURATION * _SECONDS["d"]


def writable_size(size_bytes: int) -> int:
    """The smallest size of at least so many bytes that a manifest can write, or the largest that it can."""
    for length, largest in _LARGEST_SIZES.items():
        number = -(-size_bytes // length)
        if number <= largest:
            return number * length
    return _LARGEST_SIZES[1 << 40] << 40


def format_seconds(seconds: float) -> str:
    """The text of whole seconds."""
    return f"{int(seconds)}s"


def parse_size(text: str) -> int:
    """Bytes of a text that fits `SIZE_PATTERN`. Raises: ValueError."""
    number, unit = _parts_of(text)
    return number * {**_BINARY, **_DECIMAL, "": 1}[unit]


def format_size(size_bytes: int) -> str:
    """The shortest text of a size: `parse_size` gives it back."""
    for unit, length in (*_BINARY.items(), *_DECIMAL.items()):
        if size_bytes >= length and size_bytes % length == 0:
            return f"{size_bytes // length}{unit}"
    return str(size_bytes)


def _parts_of(text: str) -> tuple[int, str]:
    match = _PARTS.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit")
    return int(match[1]), match[2]
