r"""Expressions of filters: Java's, as FileVault has them, as Python's, and safe to run.

They come with a package, so they are hostile until checked. Refused is what can take more than quadratic time: a
repetition within a repetition, alternatives under one, back references, more than two repetitions in a row that could
share their text; and what Java and Python understand differently. Lengths and counts are capped. So one match costs at
most the square of a path's length (4,096), whoever wrote the package. `\Q…\E` and `\z` are translated.
"""

from __future__ import annotations

import re
from typing import Final

from mailboat.errors import LimitExceededError, PackageCorruptError

MAX_PATTERN_LENGTH: Final = 1000
MAX_COUNT: Final = 100
MAX_AMBIGUOUS: Final = 2
MAX_NESTED: Final = 50

_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<escape>\\.)"
    r"|(?P<open>\((?:\?(?::|=|!|>|<=|<!|[ims]{1,3}\)|[ims]{1,3}:)|(?!\?)))"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)"
    r"|(?P<repeat>[*+?]|\{(?P<low>\d{1,4})(?:,(?P<high>\d{0,4}))?\})(?P<manner>[+?]?)"
    r"|(?P<literal>[^\\\[(){?*+])",
    re.DOTALL,
)
_KNOWN_ESCAPES: Final = frozenset("dDsSwWbBAtnrf")
_CLASS_TRAPS: Final = re.compile(r"&&|--|\|\||~~|(?<!\\)\[|\\[a-zA-Z0-9](?<!\\[dDsSwWtnrf])")


class _Group:
    """What was seen of an open group."""

    __slots__ = ("has_bar", "has_repeat")

    def __init__(self) -> None:
        self.has_bar = False
        self.has_repeat = False


def compile_java(pattern: str) -> re.Pattern[str]:
    """Translate and check an expression of a filter.

    Raises:
        PackageCorruptError: It is no expression, or one that Java and Python would understand differently.
        LimitExceededError: It could run for too long, or is too long or nested too deep.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise LimitExceededError(
            f"a filter expression has {len(pattern)} characters", pattern=pattern[:80], limit=MAX_PATTERN_LENGTH
        )
    text = _Translation(pattern).text()
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError) as error:
        raise PackageCorruptError(f"a filter expression can't be understood: {error}", pattern=pattern[:200]) from error


def quote_java(text: str) -> str:
    r"""The expression that matches exactly `text`, as Java's `Pattern.quote` makes it: `\Q…\E`."""
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"


def java_form(pattern: re.Pattern[str]) -> str:
    """An expression of the model, which may come from elsewhere, as Java's. Raises: as `compile_java`."""
    text = pattern.pattern.replace("\\Z", "\\z")
    if pattern.flags & re.IGNORECASE and not text.startswith("(?i"):
        text = f"(?i){text}"
    compile_java(text)
    return text


class _Translation:
    """One walk over the tokens: collects Python's form and counts what could repeat itself."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._out: list[str] = []
        self._groups = [_Group()]
        self._closed: _Group | None = None
        self._before: str | None = None
        self._open_repeat: str | None = None
        self._ambiguous = 0

    def text(self) -> str:
        at = 0
        while at < len(self._pattern):
            match = _TOKEN.match(self._pattern, at)
            if match is None:
                raise self._refused(f"it has something unknown at character {at}")
            self._take(match)
            at = match.end()
        return "".join(self._out)

    def _take(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if match["repeat"] is not None:
            self._repeat(match)
        elif match["quoted"] is not None:
            for character in match["quoted"]:
                self._atom(re.escape(character))
        elif kind == "open":
            self._out.append(match[0])
            if not match[0].endswith(")"):
                self._open()
            self._before = None
        elif kind == "close":
            self._close()
        elif kind == "bar":
            self._groups[-1].has_bar = True
            self._out.append("|")
            self._before = None
        else:
            self._atom(self._checked(match))

    def _checked(self, match: re.Match[str]) -> str:
        text = match[0]
        if text in ("\\z", "\\Z"):
            return "\\Z"
        if text[0] == "\\" and text[1].isalnum() and text[1] not in _KNOWN_ESCAPES:
            raise self._refused(f"{text} is not supported")
        if text[0] == "[" and _CLASS_TRAPS.search(text[1:-1]):
            raise self._refused(f"the class {text} means different things in Java and Python")
        return text

    def _atom(self, text: str) -> None:
        if self._open_repeat is not None and text[0] not in "^$" and _may_share(self._open_repeat, text):
            self._count_ambiguous()
        self._open_repeat = None
        self._closed = None
        self._before = text
        self._out.append(text)

    def _open(self) -> None:
        if len(self._groups) > MAX_NESTED:
            raise LimitExceededError(
                "groups of a filter expression are nested too deep", pattern=self._pattern[:200], limit=MAX_NESTED
            )
        self._groups.append(_Group())

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise self._refused("a parenthesis is closed that was not opened")
        self._closed = self._groups.pop()
        if self._closed.has_repeat:
            self._groups[-1].has_repeat = True
        self._before = None
        self._out.append(")")

    def _repeat(self, match: re.Match[str]) -> None:
        low, high = match["low"], match["high"]
        is_bounded = match["repeat"] == "?" or (low is not None and high != "")
        count = max(int(low or 0), int(high or 0))
        if count > MAX_COUNT:
            raise LimitExceededError("a filter expression repeats too often", pattern=self._pattern, limit=MAX_COUNT)
        if not is_bounded or count > 1:
            self._count_repeat()
        self._out.append(match[0])

    def _count_repeat(self) -> None:
        inner = self._closed
        if inner is not None and (inner.has_repeat or inner.has_bar):
            raise LimitExceededError(
                "a filter expression repeats a group that repeats or has alternatives", pattern=self._pattern, limit=1
            )
        self._groups[-1].has_repeat = True
        if self._open_repeat is not None or self._before is None:
            self._count_ambiguous()
        self._open_repeat = self._before

    def _count_ambiguous(self) -> None:
        self._ambiguous += 1
        if self._ambiguous > MAX_AMBIGUOUS:
            raise LimitExceededError(
                "repetitions of a filter expression could share their text in too many ways",
                pattern=self._pattern,
                limit=MAX_AMBIGUOUS,
            )

    def _refused(self, reason: str) -> PackageCorruptError:
        return PackageCorruptError(f"a filter expression can't be understood: {reason}", pattern=self._pattern[:200])


def _may_share(repeated: str, following: str) -> bool:
    """Whether what is repeated could also match what follows: then there are several ways to match."""
    literal = (
        following[1:] if len(following) == 2 and following[0] == "\\" and not following[1].isalnum() else following
    )
    if len(literal) != 1 or literal == ".":
        return True
    return re.fullmatch(repeated, literal) is not None
