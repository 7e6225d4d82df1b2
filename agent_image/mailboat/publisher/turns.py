"""Whose request comes next: deficit round robin over the callers that wait (Shreedhar and Varghese, 1995).

Each caller has a line of its own and takes turns with the others; a turn is worth so much, and what a request costs
more is saved up for over several turns. So a burst, or a request with hundreds of paths, delays its own caller.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Generic, NamedTuple, TypeVar

QUANTUM: Final = 8

_T = TypeVar("_T")


class _Waiting(NamedTuple, Generic[_T]):
    cost: int
    item: _T


class Turns(Generic[_T]):
    """The lines of all callers. Not safe for several threads."""

    def __init__(self, quantum: int = QUANTUM) -> None:
        """Nobody waits."""
        self._quantum = quantum
        self._lines: OrderedDict[str, deque[_Waiting[_T]]] = OrderedDict()
        self._savings: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def line_length(self, caller: str) -> int:
        """How many requests of a caller wait."""
        return len(self._lines.get(caller, ()))

    def put(self, caller: str, item: _T, cost: int = 1) -> None:
        """Stand in the caller's line."""
        self._lines.setdefault(caller, deque()).append(_Waiting(max(1, cost), item))
        self._savings.setdefault(caller, 0)
        self._count += 1

    def take(self, max_items: int) -> list[_T]:
        """The next items, at most so many."""
        taken: list[_T] = []
        while self._lines and len(taken) < max_items:
            caller, line = next(iter(self._lines.items()))
            self._savings[caller] += self._quantum
            while line and len(taken) < max_items and line[0].cost <= self._savings[caller]:
                self._savings[caller] -= line[0].cost
                taken.append(line.popleft().item)
            if line:
                self._lines.move_to_end(caller)
            else:
                del self._lines[caller], self._savings[caller]
        self._count -= len(taken)
        return taken
