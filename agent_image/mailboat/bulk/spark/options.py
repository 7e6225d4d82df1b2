"""Options of our formats: texts that Spark hands on, read with the option's name in every message."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mailboat.errors import UsageError


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a whole number, or `default`. Raises: UsageError."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} is {text!r}, and wants a number")
    return int(text)


def positive_of(options: Mapping[str, str], name: str, default: int) -> int:
    """The same of an option that can't be 0. Raises: UsageError."""
    found = number_of(options, name, default)
    if found == 0:
        raise UsageError(f"{name} is 0, and wants a number above it")
    return found


def truth_of(options: Mapping[str, str], name: str) -> bool:
    """An option that is `true` or `false`, the latter when it is left out. Raises: UsageError."""
    text = options.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise UsageError(f"{name} is {text!r}, and wants true or false")
    return text == "true"


def texts_of(options: Mapping[str, str], name: str) -> list[str] | None:
    """An option that is a JSON list of texts; None when it is left out. Raises: UsageError."""
    text = options.get(name)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is no JSON list: {error}") from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found) or not found:
        raise UsageError(f'{name} wants a JSON list of texts, such as ["/en", "/de"]')
    return found
