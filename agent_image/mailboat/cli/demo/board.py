"""What is known of the demo's run at a moment, and what to do next: pure, so that the story can be tested."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_FEWEST_FOR_A_KILL: Final = 2
"""There is no half way in one package."""


@dataclass(slots=True)
class Actor:
    """A subscriber as seen from outside.

    Attributes:
        name: Its name.
        target: Where it imports into.
        position: Offset that it reads next: what its target holds for good.
        restarts: How often it was started again.
        is_running: Whether its process lives.
        is_started: Whether it ever lived.
        note: What happened to it, for people.
        error: The last error that it reported.
    """

    name: str
    target: str
    position: int = 0
    restarts: int = 0
    is_running: bool = False
    is_started: bool = False
    note: str = ""
    error: str = ""


@dataclass(slots=True)
class Board:
    """The whole run.

    Attributes:
        total: How many packages there will be.
        actors: The subscribers.
        published: Packages appended so far.
        published_bytes: Their content.
        seconds: Since the first package.
        is_killed: Whether the kill has happened.
        killed_when_published: How many packages were out then.
    """

    total: int
    actors: list[Actor]
    published: int = 0
    published_bytes: int = 0
    seconds: float = 0.0
    is_killed: bool = False
    killed_when_published: int = 0

    @property
    def is_done(self) -> bool:
        """Whether everything is published, the kill has happened, and everybody has imported everything."""
        return (
            self.published == self.total
            and (self.is_killed or self.total < _FEWEST_FOR_A_KILL)
            and all(one.is_running and one.position >= self.total for one in self.actors)
        )

    @property
    def victim(self) -> Actor:
        """Who is killed: the second one, but never the last, who joins late, unless it is the only one."""
        return self.actors[min(1, max(0, len(self.actors) - 2))]


class Act(enum.Enum):
    """What can happen to a subscriber."""

    START = "start"
    KILL = "kill"
    RESTART = "restart"


def decide_acts(board: Board) -> Iterator[tuple[Act, Actor]]:
    """What is due now: early ones start, the victim dies half way and comes back later, the last one joins late."""
    late_from = board.total * 3 // 4
    for number, actor in enumerate(board.actors):
        is_late = number == len(board.actors) - 1 and number > 0
        if not actor.is_started:
            if not is_late or board.published >= late_from:
                yield Act.START, actor
        elif actor is board.victim:
            yield from _fate_of_the_victim(board, actor)


def _fate_of_the_victim(board: Board, actor: Actor) -> Iterator[tuple[Act, Actor]]:
    is_half_way = board.total >= _FEWEST_FOR_A_KILL and actor.position >= board.total / 2
    if not board.is_killed and actor.is_running and is_half_way:
        yield Act.KILL, actor
    elif board.is_killed and not actor.is_running and board.published >= _comes_back_at(board):
        yield Act.RESTART, actor


def _comes_back_at(board: Board) -> int:
    """It misses a quarter of the packages, or all that are left."""
    return min(board.total, board.killed_when_published + board.total // 4)
