r"""Expressions of filters: Java's, as FileVault has them, as Python's, and safe to run.

They come with a package, so they are hostile until checked. Nothing stops a match that runs, so its steps are bounded
beforehand: `pattern_cost.py` says how many an expression could need for the longest path, and what could need more than
a small multiple of that length's square is refused. So are back references, atomic groups, possessive repetitions of
groups, and what Java and Python understand differently. Lengths and counts are capped. `\Q…\E`, `\z`, `\p{Lower}` and
its kind, `[a-z&&[^b]]`, and possessive repetitions of a character or class are translated.
"""

from __future__ import annotations

import re
from typing import Final

from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.model.paths import MAX_PATH_BYTES
from mailboat.packages.filevault.pattern_cost import NOTHING, Cost, CostModel
from mailboat.wire.node_bodies import MAX_NAME_LENGTH

MAX_PATTERN_LENGTH: Final = 1000
MAX_COUNT: Final = 100
MAX_NESTED: Final = 50
MAX_TEXT: Final = MAX_PATH_BYTES + 1 + MAX_NAME_LENGTH  # the path of a property
MAX_STEPS: Final = 100 * MAX_TEXT**2

_INTERSECTION: Final = r"\[(?!\^)(?:\\.|[^\[\]\\&])+&&\[(?:\\.|[^\[\]\\&])+\]\]"
TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    rf"|(?P<class>{_INTERSECTION}|\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<escape>\\[pP]\{\w+\}|\\.)"
    r"|(?P<open>\((?:\?(?::|=|!|>|<=|<!|[ims]{1,3}\)|[ims]{1,3}:)|(?!\?)))"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)"
    r"|(?P<repeat>[*+?]|\{(?P<low>\d{1,4})(?:,(?P<high>\d{0,4}))?\})(?P<manner>[+?]?)"
    r"|(?P<literal>[^\\\[(){?*+])",
    re.DOTALL,
)
_KNOWN_ESCAPES: Final = frozenset("dDsSwWbBAtnrf")
_ENDS: Final = frozenset(("$", "\\Z"))
ASSERTIONS: Final = frozenset(("^", "\\A", "\\b", "\\B"))
LOOKS_AROUND: Final = frozenset(("(?=", "(?!", "(?<=", "(?<!"))
_CLASS_TRAPS: Final = re.compile(r"&&|--|\|\||~~|(?<!\\)\[|\\[a-zA-Z0-9](?<!\\[dDsSwWtnrf])")
_CLASS_PART: Final = re.compile(r"\\[pP]\{\w+\}|\\.|.", re.DOTALL)
_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "ASCII": " -~",  # no path has control characters, which XML and so filter.xml couldn't hold either
    "Blank": " \\t",
    "Space": "\\s",
}
"""What Java's `\\p{…}` of ASCII has, written as both languages read it. Categories of Unicode differ by version."""
_CASED: Final = frozenset(("Lower", "Upper"))
"""Those that Java ignores case in since 15 only."""


class _Group:
    """What was seen of an open group: `atom` or `repeated` if a character, or its repetition, was the last of it."""

    __slots__ = ("atom", "branches", "opening", "repeated", "row")

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.branches: list[Cost] = []
        self.row: list[Cost] = []
        self.atom: str | None = None
        self.repeated: str | None = None


def compile_java(pattern: str) -> re.Pattern[str]:
    """Translate and check an expression of a filter.

    Raises:
        PackageCorruptError: The text is not an expression, or one that Java and Python would understand differently.
        LimitExceededError: It could run for too long, or is too long or nested too deep.
    """
    steps, compiled = _judged(pattern, MAX_TEXT)
    if steps > MAX_STEPS:
        raise LimitExceededError(
            "a filter expression could take too long to match; write it with fewer repetitions and alternatives that "
            "could share their text",
            pattern=pattern[:200],
            limit=MAX_STEPS,
        )
    return compiled


def steps_of(pattern: str, length: int) -> int:
    """How many steps a match of an expression takes at most, for texts up to a length. Raises: as `compile_java`."""
    return _judged(pattern, length)[0]


def _judged(pattern: str, length: int) -> tuple[int, re.Pattern[str]]:
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise LimitExceededError(
            f"a filter expression has {len(pattern)} characters", pattern=pattern[:80], limit=MAX_PATTERN_LENGTH
        )
    translation = _Translation(pattern, length)
    try:
        text = translation.text()
        return translation.steps(), re.compile(text, re.ASCII)
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
    """One walk over the tokens: collects Python's form and what it costs."""

    def __init__(self, pattern: str, length: int) -> None:
        self._pattern = pattern
        self._out: list[str] = []
        self._model = CostModel(length, pattern.count("("))
        self._groups = [_Group("")]
        self._ignores_case = False
        self._is_repeated = False

    def steps(self) -> int:
        """What the text costs at most, once it is translated."""
        return self._model.whole(self._cost_of(self._groups[0]))

    def text(self) -> str:
        self._walk(self._pattern)
        return "".join(self._out)

    def _walk(self, pattern: str) -> None:
        at = 0
        while at < len(pattern):
            match = TOKEN.match(pattern, at)
            if match is None:
                raise self._refused(f"it has something unknown at character {at}")
            self._take(match)
            self._is_repeated = match["repeat"] is not None
            at = match.end()

    def _take(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if match["repeat"] is not None:
            self._repeat(match)
        elif match["quoted"] is not None:
            for character in match["quoted"]:
                self._atom(re.escape(character))
        elif kind == "open":
            if match[0] == "(?>":  # Python 3.11.7 finds no `/` with (?>(?:a*|/)*), and possessive groups are the same
                raise self._refused("atomic groups are not supported: Python fails on some")
            self._ignores_case = self._ignores_case or "i" in match[0]
            self._out.append(match[0])
            if not match[0].endswith(")"):
                self._open(match[0])
        elif kind == "close":
            self._close()
        elif kind == "bar":
            self._end_branch(self._groups[-1])
            self._out.append("|")
        else:
            self._atom(self._checked(match))

    def _checked(self, match: re.Match[str]) -> str:
        text = match[0]
        if text in ("\\z", "\\Z"):
            return "\\Z"
        if text[:2] in ("\\p", "\\P"):
            return f"[{'^' * (text[1] == 'P')}{self._posix(text)}]"
        if text[0] == "\\" and text[1].isalnum() and text[1] not in _KNOWN_ESCAPES:
            raise self._refused(f"{text} is not supported")
        if text[0] == "[":
            return self._intersection(text) if re.fullmatch(_INTERSECTION, text) else self._class(text)
        return text

    def _intersection(self, text: str) -> str:
        """The characters of ASCII that both classes have, where the first has no others: `[a-z&&[^aeiou]]`."""
        first, second = text[:-1].split("&&")
        if self._ignores_case or not text.isascii() or re.search(r"\\[DSWP]", first):
            raise self._refused(f"the class {text} is not supported")
        both = [re.compile(self._class(text), re.ASCII) for text in (f"{first}]", second)]
        common = [character for character in map(chr, range(0x20, 0x7F)) if all(part.match(character) for part in both)]
        if not common:
            raise self._refused(f"the class {text} has no character")
        return f"[{''.join(map(re.escape, common))}]"

    def _class(self, text: str) -> str:
        parts = _CLASS_PART.findall(text)
        first = 2 if parts[1] == "^" else 1
        for at, part in enumerate(parts):
            if not part.startswith("\\p{"):
                continue
            if parts[at - 1] == "-" and at > first + 1:
                raise self._refused(f"a range of {text} ends with {part}")
            parts[at] = self._posix(part)
        translated = "".join(parts)
        if _CLASS_TRAPS.search(translated[1:-1]):
            raise self._refused(f"the class {translated} means different things in Java and Python")
        return translated

    def _posix(self, text: str) -> str:
        name = text[3:-1]
        if name not in _POSIX or (name in _CASED and self._ignores_case):
            reason = f"{text} is not supported{' where case is ignored' if name in _POSIX else ''}"
            raise self._refused(reason).with_next_step("name the characters in the filter, as in [a-zà-ÿ]")
        return _POSIX[name]

    def _atom(self, text: str) -> None:
        self._out.append(text)
        if text in _ENDS:
            return  # only takes ways away, and at the end of an expression no more than its end does
        if text in ASSERTIONS:
            self._add(self._model.assertion())
        else:
            self._add(self._model.character(text), text)

    def _add(self, cost: Cost, atom: str | None = None, repeated: str | None = None) -> None:
        group = self._groups[-1]
        group.row.append(cost)
        group.atom, group.repeated = atom, repeated

    def _open(self, opening: str) -> None:
        if len(self._groups) > MAX_NESTED:
            raise LimitExceededError(
                "groups of a filter expression are nested too deep", pattern=self._pattern[:200], limit=MAX_NESTED
            )
        self._groups.append(_Group(opening))

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise self._refused("a parenthesis is closed that was not opened")
        group = self._groups.pop()
        is_one = group.opening == "(?!" and len(group.row) == 1 and not group.branches
        # By atoms next to each other: the same text elsewhere may have other flags.
        denied = group.atom if is_one and group.atom == self._groups[-1].repeated else None
        cost = self._cost_of(group)
        self._add(self._model.look_around(cost, denied) if group.opening in LOOKS_AROUND else cost)
        self._out.append(")")

    def _end_branch(self, group: _Group) -> None:
        group.branches.append(self._model.row(group.row))
        group.row = []
        group.atom = group.repeated = None

    def _cost_of(self, group: _Group) -> Cost:
        self._end_branch(group)
        return self._model.alternatives(group.branches)

    def _repeat(self, match: re.Match[str]) -> None:
        low, high = range_of(match)
        if max(low, high or 0) > MAX_COUNT:
            raise LimitExceededError("a filter expression repeats too often", pattern=self._pattern, limit=MAX_COUNT)
        group = self._groups[-1]
        if self._is_repeated:
            raise self._refused(f"{match[0]} repeats a repetition")
        if match["manner"] == "+":
            if group.atom is None:
                raise self._refused(f"the possessive {match[0]} of a group is not supported: Python fails on some")
            group.row.pop()
            self._walk(_possessive(self._out.pop(), low, high))
            return
        self._out.append(match[0])
        inner = group.row.pop() if group.row else NOTHING
        if group.atom is not None:
            self._add(self._model.repeated_character(group.atom, low, high), repeated=group.atom)
        else:
            self._add(self._model.repeated(inner, low, high))

    def _refused(self, reason: str) -> PackageCorruptError:
        return PackageCorruptError(f"a filter expression can't be understood: {reason}", pattern=self._pattern[:200])


def _possessive(atom: str, low: int, high: int | None) -> str:
    """A repetition of one character that takes all it can, as an expression that says where it has to stop."""
    if high is None:
        return f"{atom}{{{low},}}(?!{atom})"
    if low == high:
        return f"{atom}{{{low}}}"
    return f"(?:{atom}{{{high}}}|{atom}{{{low},{high - 1}}}(?!{atom}))"


def range_of(repeat: re.Match[str]) -> tuple[int, int | None]:
    """The least and the greatest count; None where there is no greatest."""
    if repeat["low"] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat["repeat"]]
    low = int(repeat["low"])
    if repeat["high"] is None:
        return low, low
    return low, int(repeat["high"]) if repeat["high"] else None
