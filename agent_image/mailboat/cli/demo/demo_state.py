"""What is known of the demo's run at a moment, and what is due next: pure, so that the story can be tested.

The story: a golden subscriber goes first and checks every package, all others are staged behind it. Half way a user
requests a delete by mistake; golden refuses it and blocks, so that no other subscriber gets it until it is dropped by
the API. Meanwhile one process is killed and started again, and one subscriber joins late.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

MEMBERS: Final = 6
"""Subscribers that one process holds. A process costs some 60 MB and most of a second of CPU to start, a subscriber in
it less than 1 MB and four threads; but what kills a process stops all that it holds, so not all are in one."""

AUTHOR: Final = "author"
GOLDEN: Final = "golden"
LATE: Final = "late"
MISTAKE_ID: Final = "demo-mistake"
"""The request id of the mistaken delete."""

BLOCK_SECONDS: Final = 2.0
"""How long the block stays before it is cleared, by default."""

_FEWEST_FOR_A_STORY: Final = 4
"""With fewer packages there is no time for a mistake or a kill on the way."""


@dataclass(slots=True)
class SubscriberProgress:
    """A subscriber as seen from outside.

    Attributes:
        name: Name of the subscriber.
        target: Where it imports into.
        position: Offset that it reads next: the position stored in its target.
        state: What it says of itself.
        error: The last error that it reported.
    """

    name: str
    target: str
    position: int = 0
    state: str = ""
    error: str = ""

    def observe(self, next_offset: int | None, state: str, error: str) -> bool:
        """Note what the status says of it; whether it went on."""
        self.state, self.error = state, error
        is_further = next_offset is not None and next_offset > self.position
        self.position = max(self.position, next_offset or 0)
        return is_further


@dataclass(slots=True)
class DemoProcess:
    """One process of `mailboat agent run` with the subscribers in it; the publisher's has none.

    Attributes:
        name: What its configuration file is called.
        followers: Its subscribers.
        is_late: It joins when three quarters are published.
        is_started: Whether it ever lived.
        is_running: Whether its process lives.
        is_ready: Whether it said that it is ready.
        restarts: How often it was started again.
        note: What happened to it, for people.
    """

    name: str
    followers: list[SubscriberProgress] = field(default_factory=list)
    is_late: bool = False
    is_started: bool = False
    is_running: bool = False
    is_ready: bool = False
    restarts: int = 0
    note: str = ""

    def be_ready(self) -> None:
        self.is_ready = True

    def start(self) -> None:
        """Its process was started, for the first time or after a kill."""
        self.restarts += self.is_started
        self.is_started = self.is_running = True

    def kill(self) -> None:
        self.is_running = self.is_ready = False

    @property
    def was_killed(self) -> bool:
        """Whether its process was killed; it may run again."""
        return self.restarts > 0 or (self.is_started and not self.is_running)

    @property
    def slowest(self) -> int:
        return min((follower.position for follower in self.followers), default=0)

    @property
    def fastest(self) -> int:
        return max((follower.position for follower in self.followers), default=0)


class MistakenDelete(enum.Enum):
    """How far the story of the mistaken delete is."""

    TO_COME = "to come"
    PUBLISHED = "published"
    BLOCKING = "blocking"
    CLEARED = "cleared"


@dataclass(slots=True)
class DemoState:
    """The whole run.

    Attributes:
        portions: How many packages the content is cut into.
        agents: The processes, the publisher's first, golden's second.
        published: Portions published so far.
        published_bytes: Size of their packages.
        seconds: Since all early processes were ready.
        began_at_seconds: How long that took.
        pace_seconds: Between two portions.
        block_seconds: How long the block stays before it is cleared.
        mistake: How far that story is.
        mistaken_package: The package that it became.
        blocked_at_seconds: Since when golden is seen blocked.
        killed_when_published: How many portions were out when a process was killed; None before.
    """

    portions: int
    agents: list[DemoProcess]
    published: int = 0
    published_bytes: int = 0
    seconds: float = 0.0
    began_at_seconds: float = 0.0
    pace_seconds: float = 0.0
    block_seconds: float = BLOCK_SECONDS
    mistake: MistakenDelete = MistakenDelete.TO_COME
    mistaken_package: str | None = None
    blocked_at_seconds: float | None = None
    killed_when_published: int | None = None

    def be_ready(self, agent: DemoProcess, seconds: float) -> None:
        """A process is ready, so many seconds after the demo began; the story's time begins with the last one."""
        agent.be_ready()
        if all(other.is_ready for other in self.agents if other.is_running) and not self.published:
            self.seconds, self.began_at_seconds = 0.0, seconds

    def pass_time(self, seconds: float) -> None:
        """So many seconds have passed since the demo began."""
        self.seconds = seconds - self.began_at_seconds

    def publish(self, package_bytes: int) -> None:
        self.published += 1
        self.published_bytes += package_bytes

    def err(self, package_id: str) -> None:
        """The mistaken delete is published, as this package."""
        self.mistake, self.mistaken_package = MistakenDelete.PUBLISHED, package_id

    def block(self) -> None:
        """The mistake blocks golden."""
        self.mistake, self.blocked_at_seconds = MistakenDelete.BLOCKING, self.seconds

    def clear(self) -> None:
        """The mistake is dropped from golden's queue."""
        self.mistake = MistakenDelete.CLEARED

    def kill(self, agent: DemoProcess) -> None:
        agent.kill()
        self.killed_when_published = self.published

    @property
    def has_story(self) -> bool:
        """Whether there are packages enough for a mistake and a kill on the way."""
        return self.portions >= _FEWEST_FOR_A_STORY

    @property
    def total(self) -> int:
        """Packages in the end: the portions, and the mistake."""
        return self.portions + self.has_story

    @property
    def appended(self) -> int:
        return self.published + (self.mistake is not MistakenDelete.TO_COME)

    @property
    def followers(self) -> Sequence[SubscriberProgress]:
        return [follower for agent in self.agents for follower in agent.followers]

    @property
    def victim(self) -> DemoProcess | None:
        """The process to kill: the second that is neither golden nor late, else the first, else None."""
        groups = [agent for agent in self.agents[2:] if not agent.is_late]
        return groups[min(1, len(groups) - 1)] if groups and self.has_story else None

    @property
    def is_done(self) -> bool:
        """Whether all packages are published and imported, and the clear and the restart are done."""
        return (
            self.published == self.portions
            and (self.mistake is MistakenDelete.CLEARED or not self.has_story)
            and all(agent.is_running for agent in self.agents)
            and (self.victim is None or self.victim.restarts == 1)
            and all(follower.position >= self.total for follower in self.followers)
        )


class NextStep(enum.Enum):
    """What can happen next."""

    START = "start"
    PUBLISH = "publish"
    ERR = "err"
    CLEAR = "clear"
    KILL = "kill"
    RESTART = "restart"


def decide_steps(state: DemoState) -> Iterator[tuple[NextStep, DemoProcess]]:
    """What is due now. The stage does each at once, or has it done and takes its outcome in."""
    author = state.agents[0]
    for agent in state.agents:
        if not agent.is_started and _is_start_due(agent, state):
            yield NextStep.START, agent
    if not all(agent.is_ready or agent.is_late or agent.was_killed for agent in state.agents):
        return
    if state.has_story and state.mistake is MistakenDelete.TO_COME and state.published >= state.portions // 2:
        yield NextStep.ERR, author
    elif state.published < state.portions and state.seconds >= state.published * state.pace_seconds:
        yield NextStep.PUBLISH, author
    since = state.blocked_at_seconds  # people are to see the block
    if state.mistake is MistakenDelete.BLOCKING and since is not None and state.seconds - since >= state.block_seconds:
        yield NextStep.CLEAR, author
    yield from _steps_of_the_victim(state)


def _is_start_due(agent: DemoProcess, state: DemoState) -> bool:
    """The publisher starts first, so that its dashboard shows how the others join."""
    author = state.agents[0]
    if agent.is_late:
        return state.published >= state.portions * 3 // 4
    return agent is author or author.is_ready


def _steps_of_the_victim(state: DemoState) -> Iterator[tuple[NextStep, DemoProcess]]:
    victim = state.victim
    if victim is None or victim.restarts:
        return
    killed = state.killed_when_published
    if killed is None:
        if victim.is_running and victim.slowest >= state.portions // 4:
            yield NextStep.KILL, victim
    elif state.published >= min(state.portions, killed + state.portions // 4):
        yield NextStep.RESTART, victim


def processes_of(subscribers: int) -> list[tuple[str, list[str]]]:
    """The processes with the names of their subscribers: golden, groups, and one that joins late."""
    edges = [f"edge-{number}" for number in range(1, subscribers)]
    late = edges[-1:]
    early = edges[:-1]
    groups = [early[at : at + MEMBERS] for at in range(0, len(early), MEMBERS)]
    named = [(f"group-{number}", names) for number, names in enumerate(groups, 1)]
    return [(GOLDEN, [GOLDEN]), *named, *([(LATE, late)] if late else [])]
