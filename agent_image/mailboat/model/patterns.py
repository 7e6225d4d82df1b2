"""Expressions of filters that others wrote: checked before they are compiled, so that none can stall a reader."""

from __future__ import annotations

import re
from typing import Final

from mailboat.errors import LimitExceededError, UntrustedInputError

MAX_PATTERN_LENGTH: Final = 1000


class PatternRefusedError(UntrustedInputError):
    """A filter's expression is not valid, or could take for ever to match. Nothing of the package was imported.

    Write the filter with simpler expressions: no repetition inside a repetition, no references to earlier groups.
    """


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile an expression in Python's syntax. Raises: PatternRefusedError, LimitExceededError."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise LimitExceededError(
            f"the expression {text[:60]!r}… of a filter has {len(text)} characters, the limit is {MAX_PATTERN_LENGTH}",
            limit=MAX_PATTERN_LENGTH,
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternRefusedError(f"{text[:200]!r} is not an expression that a filter can have: {error}") from error
