"""Topics of jobs and the patterns that choose them: names joined by dots, `*` for one name, `**` at the end for any."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mailboat.errors import UsageError

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_TOPIC: Final = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,9}}\Z")
_PATTERN: Final = re.compile(rf"(?:\*\*|(?:{_NAME}|\*)(?:\.(?:{_NAME}|\*)){{0,8}}(?:\.\*\*)?)\Z")


def parse_topic(text: str) -> str:
    """Check a job's topic. Raises: UsageError."""
    if not _TOPIC.match(text):
        raise UsageError(f"{text!r} is not a job topic; expected 1 to 10 names joined by dots, such as purge.cdn")
    return text


def parse_pattern(text: str) -> str:
    """Check a pattern of job topics. Raises: UsageError."""
    if not _PATTERN.match(text):
        raise UsageError(f"{text!r} is not a pattern of job topics; expected names, '*' or a last '**', such as purge.*")
    return text


def matches(pattern: str, topic: str) -> bool:
    """Whether the topic is one of those that the pattern names; `**` matches one name or more."""
    parts, names = pattern.split("."), topic.split(".")
    if parts[-1] == "**":
        parts = parts[:-1]
        if len(names) <= len(parts):
            return False
    elif len(names) != len(parts):
        return False
    return all(part in ("*", name) for part, name in zip(parts, names, strict=False))


def matches_any(patterns: Iterable[str], topic: str) -> bool:
    """Whether one of the patterns matches the topic."""
    return any(matches(pattern, topic) for pattern in patterns)
