"""What an expression costs at most: the steps of a matcher that tries one way after another, as Python's does.

Two numbers of each part decide: the steps to find all its matches from one place, and how many these are, as whatever
follows is tried behind each of them. In a row both multiply, under a repetition they are raised to its power. Two facts
keep what packages write: of the places where `[^/]*` could stop, one alone has a `/` behind it; and `.*` at the end of
an expression takes all that is left (no path holds a line break), so nothing is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

CHARACTER: Final = 1
CLASS: Final = 3
STEP_BACK: Final = 8
UNBOUNDED: Final = 10**18

_MANY: Final = 64


class Cost(NamedTuple):
    """What a part of an expression costs.

    Attributes:
        steps: To find all matches from one place.
        ways: How many these are at most.
        ways_apart: How many of them have something behind them that `tail` doesn't match.
        steps_as_end: To find out that no match reaches the end of the text, when the expression ends behind the part.
        first: The character or class that every match begins with, where one is known.
        tail: The character or class whose repetition ends the part, when it does.
        denied: The character or class that must not follow: all that the part says.
    """

    steps: int
    ways: int
    ways_apart: int
    steps_as_end: int
    first: str | None = None
    tail: str | None = None
    denied: str | None = None


NOTHING: Final = Cost(steps=0, ways=1, ways_apart=1, steps_as_end=1)


class CostModel:
    """Costs for texts up to a length."""

    def __init__(self, length: int, groups: int) -> None:
        """Take the length, and the number of groups: what each of them matched is put back at each step back."""
        self._length = length
        self._step_back = STEP_BACK + groups

    def character(self, text: str) -> Cost:
        price = _price(text)
        return Cost(price, 1, 1, price + 1, first=text)

    def assertion(self) -> Cost:
        """What takes no text, as `^`."""
        return Cost(CLASS, 1, 1, CLASS + 1)

    def row(self, parts: Sequence[Cost]) -> Cost:
        """Parts behind each other."""
        return reduce(_then, parts, NOTHING)

    def alternatives(self, branches: Sequence[Cost]) -> Cost:
        """A group: one of its branches."""
        if len(branches) == 1:
            only = branches[0]
            return only._replace(steps=only.steps + CHARACTER, steps_as_end=only.steps_as_end + CHARACTER)
        ways = _ways_of_any(branches)
        changes = self._step_back * len(branches)
        firsts = {branch.first for branch in branches}
        return _bounded(
            Cost(
                steps=sum(branch.steps for branch in branches) + changes,
                ways=ways,
                ways_apart=ways,
                steps_as_end=sum(branch.steps_as_end for branch in branches) + changes,
                first=firsts.pop() if len(firsts) == 1 else None,
            )
        )

    def look_around(self, inner: Cost, denied: str | None = None) -> Cost:
        """A group that takes no text, and is not tried again once it matched; `denied` is what `(?!` has in it."""
        steps = inner.steps + self._step_back
        return _bounded(Cost(steps, 1, 1, steps + 1, denied=denied))

    def repeated_character(self, text: str, low: int, high: int | None) -> Cost:
        """A repetition of a character or class; `high`: None where it has no upper bound."""
        most = self._length if high is None else min(high, self._length)
        ways = max(1, most - low + 1)
        steps = most * _price(text) + ways * self._step_back
        takes_all = text == "." and high is None
        return Cost(
            steps,
            ways,
            ways_apart=1,
            steps_as_end=self._step_back if takes_all else steps + ways,
            first=text if low > 0 else None,
            tail=text,
        )

    def repeated(self, inner: Cost, low: int, high: int | None) -> Cost:
        # One round may match nothing behind those that do: a matcher ends the repetition there.
        most = low + self._length + 1 if high is None else high
        again = _ways_before(inner, inner)
        rounds = _rounds(again, most)
        ends = max(1, rounds - _rounds(again, max(0, low - 1)))
        none = 1 if low == 0 else 0
        ways = none + ends * inner.ways
        steps = rounds * (inner.steps + (inner.ways + 1) * self._step_back) + ways * self._step_back
        at_most_one = high == 1
        return _bounded(
            Cost(
                steps,
                ways,
                ways_apart=none + ends * inner.ways_apart,
                steps_as_end=inner.steps_as_end + 3 * self._step_back if at_most_one else steps + ways,
                first=inner.first if low > 0 else None,
                tail=inner.tail,
            )
        )

    def whole(self, part: Cost) -> int:
        """What the part costs as a whole expression, whether it matches or not."""
        return part.steps_as_end + self._length * CLASS


def literal_of(text: str) -> str | None:
    """The character that an atom of an expression stands for; None for a class."""
    if len(text) == 2 and text[0] == "\\" and not text[1].isalnum():
        return text[1]
    return text if len(text) == 1 and text != "." else None


def _price(text: str) -> int:
    return CLASS if literal_of(text) is None else CHARACTER


def _then(before: Cost, after: Cost) -> Cost:
    if before is NOTHING:
        return after
    ways = _ways_before(before, after)
    tried = ways if after.denied is None else before.ways
    return _bounded(
        Cost(
            steps=before.steps + tried * after.steps,
            ways=ways * after.ways,
            ways_apart=ways * after.ways_apart,
            steps_as_end=before.steps + tried * after.steps_as_end,
            first=before.first,
            tail=after.tail,
        )
    )


def _ways_before(before: Cost, after: Cost) -> int:
    """Behind how many of its matches more than the first step of what follows is tried."""
    if before.tail is not None and before.tail == after.denied:
        return before.ways_apart
    if before.tail is None or after.first is None or _may_share(before.tail, after.first):
        return before.ways
    return before.ways_apart


def _ways_of_any(branches: Sequence[Cost]) -> int:
    """How many matches alternatives have together; those that begin differently never match at the same place."""
    others = 0
    by_first: dict[str, int] = {}
    for branch in branches:
        literal = None if branch.first is None else literal_of(branch.first)
        if literal is None:
            others += branch.ways
        else:
            by_first[literal.lower()] = by_first.get(literal.lower(), 0) + branch.ways
    return others + max(by_first.values(), default=0)


def _may_share(repeated: str, following: str) -> bool:
    """Whether what is repeated could also match what follows, in either case: flags may come from anywhere."""
    literal = literal_of(following)
    return literal is None or re.fullmatch(f"{repeated}|(?i:{repeated})", literal, re.ASCII | re.DOTALL) is not None


def _rounds(ways: int, count: int) -> int:
    """How often a repetition begins a round, when each round ends in so many ways: the sum of their powers."""
    if ways == 1:
        return count
    return UNBOUNDED if count > _MANY else (ways**count - 1) // (ways - 1)


def _bounded(cost: Cost) -> Cost:
    """The cost without numbers that no limit would allow anyway: nested powers have no end."""
    return cost._replace(
        steps=min(cost.steps, UNBOUNDED),
        ways=min(cost.ways, UNBOUNDED),
        ways_apart=min(cost.ways_apart, UNBOUNDED),
        steps_as_end=min(cost.steps_as_end, UNBOUNDED),
    )
