"""Text from outside, made safe for a terminal and for one line of a log."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, which could steer a terminal, and lone surrogates made visible."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
