"""One target for several members: open only while one of them has its lock.

A member opens the target for each transaction and closes it again. So one process at a time has the database open, also
where the members are on several machines and see the target on a volume that all of them mount: the target's lock is
the only thing that must work between machines.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final, Protocol

from mailboat.clock import Clock
from mailboat.config.document import SubscriberAgentConfig
from mailboat.content.locations import GENERATIONS, parse_target
from mailboat.content.port import Target
from mailboat.errors import TargetBusyError, UsageError
from mailboat.model.identifiers import SlingId
from mailboat.subscriber.admission import StopAskedError
from mailboat.workers import heartbeat

# Members hold the target for one package each: long pauses would leave it free.
_SHORTEST_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.05
_BEGIN: Final = "."
"""In a marker, between the instance and the number of the begin."""


def check_shared(config: SubscriberAgentConfig) -> None:
    """Refuse what the members of a pool cannot do together. Raises: UsageError."""
    name = config.name
    if parse_target(config.target).kind == GENERATIONS:
        raise UsageError(
            f"the pool {name} cannot share a generations: target: each package would become a generation of its own",
            next_step="import into files:DIR or sqlite:FILE, or run one subscriber without --shared",
        )
    if config.staging is not None:
        raise UsageError(
            f"the pool {name} cannot wait for a golden subscriber",
            next_step="remove `staging`, or run one subscriber without --shared",
        )
    if config.hooks.after:
        raise UsageError(
            f"the members of the pool {name} call no hook after an import",
            next_step="add a job instead: jobs.on: [{imported: /**, add: TOPIC}] in the configuration",
        )


def instance_of(marker: str) -> SlingId:
    """The instance that a pool runs in, by the marker of its target: the same however often the pool begins on it."""
    return SlingId(marker.partition(_BEGIN)[0])


def marker_of_begin(marker: str, before: str) -> str:
    """The marker of the target, and of the pool before, with the number of the next begin.

    It fences: members of a former begin find another marker in the target, and change nothing.
    """
    return f"{instance_of(marker)}{_BEGIN}{max(_number_of(marker), _number_of(before)) + 1}"


def _number_of(marker: str) -> int:
    number = marker.partition(_BEGIN)[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


class OpenTarget(Protocol):
    """Opens the target. `is_known`: this process has checked all of it before. Raises: TargetBusyError."""

    def __call__(self, *, is_known: bool) -> Target: ...


class SharedTarget:
    """Opens a target when no other member has it open. From any thread."""

    def __init__(self, open_target: OpenTarget, clock: Clock, chance: random.Random) -> None:
        """Open nothing yet."""
        self._open_target = open_target
        self._clock = clock
        self._chance = chance
        # the threads of this process queue here: only one of them asks for the lock that other processes hold
        self._turn = threading.Lock()
        self._never = threading.Event()
        self._is_known = False
        self._beat = heartbeat(clock)

    @contextmanager
    def opened(self, is_stopping: Callable[[], bool]) -> Iterator[Target]:
        """The open target, as soon as it is free. Raises: StopAskedError; as opening the target."""
        while not self._turn.acquire(timeout=_LONGEST_PAUSE_SECONDS):
            self._beat(0.0)  # another package of this member may take long
            if is_stopping():
                raise StopAskedError
        try:
            with closing(self._await_free(is_stopping)) as target:
                self._is_known = True
                yield target
        finally:
            self._turn.release()

    def _await_free(self, is_stopping: Callable[[], bool]) -> Target:
        longest = _SHORTEST_PAUSE_SECONDS
        while True:
            if is_stopping():
                raise StopAskedError
            try:
                return self._open_target(is_known=self._is_known)
            except TargetBusyError:
                # no queue between processes: random pauses keep one of them from being last each time
                self._beat(longest)
                self._clock.wait(self._never, self._chance.uniform(0.0, longest))
                longest = min(2 * longest, _LONGEST_PAUSE_SECONDS)
