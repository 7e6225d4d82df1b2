"""Runs the demo: a publisher in this process, subscribers in processes of their own, and the story of `board.py`.

The publisher works in a thread, so that a package of some gigabytes does not stop the show; children are heard through
a queue. Only the thread that calls `play` changes the board.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.agent.composition import Workspace
from mailboat.cli.demo.board import Act, Actor, Board, decide_acts
from mailboat.cli.demo.cast import Child, Heard
from mailboat.cli.demo.portions import Portion
from mailboat.cli.demo.screen import Screen
from mailboat.content.port import Source
from mailboat.errors import DemoFailedError
from mailboat.model.messages import Action
from mailboat.publisher.requests import DistributionRequest

AUTHOR: Final = "author"
STANDSTILL_SECONDS: Final = 300.0
"""Nothing moved for so long: something is wrong. One package of many gigabytes moves for longer than one may think."""

_TICK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Script:
    """What is played.

    Attributes:
        workspace: The demo's own home, opened.
        source: The tree.
        portions: The requests that make it.
        actors: The subscribers.
        seconds: How long publishing is stretched to, so that there is something to see.
    """

    workspace: Workspace
    source: Source
    portions: Sequence[Portion]
    actors: Sequence[Actor]
    seconds: float = 0.0


class Stage:
    """One run."""

    def __init__(self, script: Script, screen: Screen) -> None:
        """Nothing happens before `play`."""
        self._script = script
        self._screen = screen
        self._clock = script.workspace.clock
        self._board = Board(len(script.portions), list(script.actors))
        self._ears: queue.SimpleQueue[Heard | Exception] = queue.SimpleQueue()
        self._children: dict[str, Child] = {}
        self._stopping = threading.Event()

    def play(self) -> Board:
        """Play it to the end. Raises: DemoFailedError, and whatever the publisher raises."""
        author = threading.Thread(target=self._publish, name=AUTHOR, daemon=True)
        started = moved = self._clock.monotonic()
        try:
            self._act()
            author.start()
            while not self._board.is_done:
                if self._listen():
                    moved = self._clock.monotonic()
                if self._clock.monotonic() - moved > STANDSTILL_SECONDS:
                    raise DemoFailedError(f"nothing moved for {STANDSTILL_SECONDS:.0f} seconds")
                self._board.seconds = self._clock.monotonic() - started
                self._act()
                self._screen.update(self._board)
            self._screen.update(self._board)
        finally:
            self._stopping.set()
            self._send_home()
        return self._board

    def _publish(self) -> None:
        """The publisher's thread."""
        pause = self._script.seconds / max(1, len(self._script.portions))
        try:
            publisher = self._script.workspace.publisher(AUTHOR)
            for portion in self._script.portions:
                paths = (*portion.shallow, *portion.deep)
                receipt = publisher.publish(
                    DistributionRequest(Action.ADD, paths, frozenset(portion.deep)), self._script.source
                )
                self._ears.put(Heard(AUTHOR, {"bytes": receipt.content_bytes, "nodes": receipt.nodes}))
                if self._clock.wait(self._stopping, pause):
                    return
        except Exception as error:  # noqa: BLE001  # whatever it is, the thread that plays has to hear of it
            self._ears.put(error)

    def _listen(self) -> bool:
        """Take in what was heard until now, or within a tick; whether anything was."""
        try:
            heard = self._ears.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            return False
        while True:
            self._take_in(heard)
            try:
                heard = self._ears.get_nowait()
            except queue.Empty:
                return True

    def _take_in(self, heard: Heard | Exception) -> None:
        if isinstance(heard, Exception):
            raise heard
        if heard.name == AUTHOR:
            self._board.published += 1
            self._board.published_bytes += heard.facts["bytes"]
            return
        actor = next(one for one in self._board.actors if one.name == heard.name)
        if heard.exit_code is not None:
            self._take_in_end(actor, heard.exit_code)
        elif actor.is_running:
            _take_in_progress(actor, heard)

    def _take_in_end(self, actor: Actor, exit_code: int) -> None:
        if actor.is_running:  # nobody ended it
            raise DemoFailedError(
                f"{actor.name} ended with exit code {exit_code}",
                target=actor.target,
                said=self._children[actor.name].last_words() or None,
            )

    def _act(self) -> None:
        for act, actor in list(decide_acts(self._board)):
            self._perform(act, actor)

    def _perform(self, act: Act, actor: Actor) -> None:
        if act is Act.KILL:
            actor.is_running = False
            self._children.pop(actor.name).kill()
            self._board.is_killed = True
            self._board.killed_when_published = self._board.published
            actor.note = f"killed (SIGKILL) at {actor.position}"
            return
        if act is Act.RESTART:
            actor.restarts += 1
            actor.note += ", restarted"
        elif self._board.published:
            actor.note = f"joined late, at {self._board.published}"
        home = self._script.workspace.home.path
        self._children[actor.name] = Child(home, actor.name, actor.target, self._ears)
        actor.is_started = actor.is_running = True

    def _send_home(self) -> None:
        for actor in self._board.actors:
            actor.is_running = False
        for child in self._children.values():
            child.stop()


def _take_in_progress(actor: Actor, heard: Heard) -> None:
    facts = heard.facts
    error = facts["error"]
    actor.error = "" if error is None else f"{error['code']}: {error['message']}"
    if facts["failed"]:
        raise DemoFailedError(f"{actor.name} gave a package up", target=actor.target, error=actor.error or None)
    actor.position = max(actor.position, facts["position"] or 0)
