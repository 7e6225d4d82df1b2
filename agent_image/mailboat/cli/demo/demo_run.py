"""Runs the demo: starts the processes, has the publisher asked, and follows the story of `demo_state.py`.

Events come from one queue: children that are ready or end, and what `DemoRequests` requested and observed. Only the
thread that calls `play` changes the state.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mailboat.api.control import Control
from mailboat.api.records import CommandView, DistributionView, QueueItemView, StatusView
from mailboat.cli.demo.demo_state import (
    AUTHOR,
    GOLDEN,
    MISTAKE_ID,
    DemoProcess,
    DemoState,
    MistakenDelete,
    NextStep,
    decide_steps,
)
from mailboat.cli.demo.portions import Portion
from mailboat.cli.demo.processes import Child, Ended, EventPipe, Ready
from mailboat.cli.demo.screen import NAME_WIDTH, Screen
from mailboat.cli.error_report import INTERRUPTED_EXIT_CODE
from mailboat.cli.output import count_text
from mailboat.clock import Clock
from mailboat.errors import DemoFailedError, MailboatError, QueueMissingError, RetryableError
from mailboat.model.requests import DistributionRequest, parse_request

STANDSTILL_SECONDS: Final = 300.0
"""Nothing moved for so long: something is wrong. One package of many gigabytes moves for longer than one may think."""

_TICK_SECONDS: Final = 0.1
_DONE: Final = "done"
_POLL_SECONDS: Final = 0.25
_ANSWER_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 30.0
_BLOCKED: Final = "blocked"
_ATTEMPTS: Final = 10
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Published:
    """The publisher took a portion."""

    view: DistributionView


@dataclass(frozen=True, slots=True)
class Erred:
    """The publisher took the mistaken delete."""

    view: DistributionView


@dataclass(frozen=True, slots=True)
class Cleared:
    """Golden dropped it."""

    answer: CommandView


@dataclass(frozen=True, slots=True)
class Seen:
    """Positions of all subscribers at a moment, and the package that blocks golden's queue, if any."""

    status: StatusView
    blocked: QueueItemView | None


class DemoRequests:
    """What the demo asks of the publisher's API, in two threads: one asks for packages, one polls the status.

    Both report into the event queue. Asking is one thing after the other, so that the order of packages is what the
    story says.
    """

    def __init__(self, control: Control, events: EventPipe, clock: Clock) -> None:
        self._control = control
        self._events = events
        self._clock = clock
        self._asked = 0
        self._todo: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"demo-{name}", daemon=True)
            for name, work in (("asks", self._ask), ("polls", self._poll))
        ]

    def start(self) -> None:
        """Begin to poll, and be ready to send requests."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads, after what they are at."""
        self._stopping.set()
        self._todo.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_STOP_SECONDS)

    def publish(self, portion: Portion) -> None:
        """Ask for a portion of the content; the publisher reads it from its own source."""
        self._asked += 1
        request = parse_request(
            "ADD", (*portion.shallow, *portion.deep), portion.deep, request_id=f"demo-{self._asked}"
        )
        self._todo.put(lambda: Published(self._distribute(request)))

    def err(self, path: str) -> None:
        request = parse_request("DELETE", (path,), request_id=MISTAKE_ID)
        self._todo.put(lambda: Erred(self._distribute(request)))

    def drop(self, item: QueueItemView) -> None:
        self._todo.put(lambda: Cleared(self._control.remove(AUTHOR, GOLDEN, [item.id], _ANSWER_SECONDS)))

    def _distribute(self, request: DistributionRequest) -> DistributionView:
        """Ask until the publisher has it: an order with an id is published once, however often it is asked for."""
        for _ in range(_ATTEMPTS):
            try:
                return self._control.distribute(AUTHOR, request)
            except RetryableError as error:
                self._clock.wait(self._stopping, error.retry_after_seconds or _PAUSE_SECONDS)
        return self._control.distribute(AUTHOR, request)

    def _ask(self) -> None:
        while (work := self._todo.get()) is not None:
            self._report(work)

    def _poll(self) -> None:
        while not self._clock.wait(self._stopping, _POLL_SECONDS):
            self._report(self._seen)

    def _seen(self) -> Seen | None:
        try:
            head = self._control.queue(AUTHOR, GOLDEN, 0, 1)
            status = self._control.status()
        except (RetryableError, QueueMissingError):  # golden starts after the publisher
            return None
        return Seen(status, head.items[0] if head.queue.state == _BLOCKED and head.items else None)

    def _report(self, work: Callable[[], Any]) -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001  # whatever it is, the thread that plays has to get it
            found = error
        if found is not None:
            self._events.put(found)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What is played.

    Attributes:
        home: The demo's home.
        portions: The requests that make the content.
        mistake: The path whose delete is asked for by mistake.
        agents: The processes.
        pace_seconds: Between two portions, so that there is something to see.
        block_seconds: How long the block stays before it is cleared.
        command: The command line of a process, by its name.
        control: The publisher's API.
    """

    home: Path
    portions: Sequence[Portion]
    mistake: str
    agents: Sequence[DemoProcess]
    pace_seconds: float
    block_seconds: float
    command: Callable[[str], Sequence[str]]
    control: Control


class DemoRun:
    """One run."""

    def __init__(self, plan: DemoPlan, screen: Screen, clock: Clock) -> None:
        self._plan = plan
        self._screen = screen
        self._clock = clock
        self._state = DemoState(
            len(plan.portions), list(plan.agents), pace_seconds=plan.pace_seconds, block_seconds=plan.block_seconds
        )
        self._events: EventPipe = queue.SimpleQueue()
        self._requests = DemoRequests(plan.control, self._events, clock)
        self._is_asking = False
        self._blocked: QueueItemView | None = None
        self._children: dict[str, Child] = {}
        self._began = self._moved = clock.monotonic()

    @contextmanager
    def play(self) -> Iterator[DemoState]:
        """Play the story to its end. The agents run until the context ends.

        Raises: DemoFailedError, and whatever the publisher answers.
        """
        with ExitStack() as ends:
            ends.callback(self._stop_children)
            try:
                while not self._state.is_done:
                    self._state.pass_time(self._clock.monotonic() - self._began)
                    for step, agent in list(decide_steps(self._state)):
                        self._perform(step, agent)
                    self._process_events()
                    self._screen.update(self._state)
                    if self._clock.monotonic() - self._moved > STANDSTILL_SECONDS:
                        raise DemoFailedError(f"nothing moved for {STANDSTILL_SECONDS:.0f} seconds")
            finally:
                self._requests.stop()
            yield self._state

    def stay(self, is_over: Callable[[], bool]) -> None:
        """Wait until `is_over`, within `play`; report agents that end meanwhile."""
        while not is_over():
            try:
                received = self._events.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                continue
            if isinstance(received, Ended) and self._children.get(received.child.name) is received.child:
                del self._children[received.child.name]
                self._report(received.child.name, f"ended with exit code {received.exit_code}")

    def _report(self, name: str, text: str) -> None:
        """Print an event that stays on the screen."""
        self._screen.say(f"{self._clock.monotonic() - self._began:>5.1f} s  {name:<{NAME_WIDTH}} {text}")

    def _process_events(self) -> None:
        """Process the events that arrived until now, or within a tick."""
        try:
            received = self._events.get(timeout=_TICK_SECONDS)
            while True:
                self._process(received)
                received = self._events.get_nowait()
        except queue.Empty:
            return

    def _process(self, received: Any) -> None:
        match received:
            case Exception():
                raise self._explained(received)
            case Ready(child, facts):
                self._process_ready(child, facts)
            case Ended(child, code):
                self._process_end(child, code)
            case Seen():
                self._process_status(received)
            case Published(view):
                self._state.publish(view.package_bytes)
            case Erred(view):
                self._state.err(view.package_id)
                self._report(AUTHOR, f"{view.action} {self._plan.mistake}, by mistake")
            case Cleared(answer):
                if answer.state != _DONE:  # it refused, or did not answer in time
                    raise DemoFailedError(f"golden did not drop the package: {answer.state}", output=answer.message)
                self._state.clear()
                self._report(
                    GOLDEN, f"{count_text(answer.removed or 0, 'package')} dropped through the API (queues remove)"
                )
        if isinstance(received, Published | Erred | Cleared):
            self._is_asking = False
            self._moved = self._clock.monotonic()

    def _explained(self, error: Exception) -> Exception:
        """What the API answered, with what the publisher's process said."""
        author = self._children.get(AUTHOR)
        if isinstance(error, MailboatError) and author is not None and author.last_words():
            error.where.setdefault("output", author.last_words())
        return error

    def _process_ready(self, child: Child, facts: dict[str, Any]) -> None:
        agent = next(agent for agent in self._state.agents if agent.name == child.name)
        if self._children.get(child.name) is not child:
            return
        self._state.be_ready(agent, self._clock.monotonic() - self._began)
        what = (
            f"{count_text(len(agent.followers), 'subscriber')}"
            if agent.followers
            else f"API and dashboard at {facts['url']}"
        )
        late = f", joined late, at {self._state.appended}/{self._state.total}" if agent.is_late else ""
        self._report(child.name, f"{'again ' if agent.restarts else ''}ready: {what}{late}, pid {facts['pid']}")
        if agent.name == AUTHOR:
            self._requests.start()

    def _process_end(self, child: Child, code: int) -> None:
        if self._children.get(child.name) is child:  # it was not ended by the demo
            child.wait()  # until all of its output was read, too
            output = child.last_words() or None
            raise DemoFailedError(f"{child.name} ended with exit code {code}", output=output)

    def _process_status(self, seen: Seen) -> None:
        known = {subscriber.name: subscriber for subscriber in seen.status.subscribers}
        for follower in self._state.followers:
            view = known.get(follower.name)
            error = "" if view is None or view.error is None else view.error.code
            if view is not None and follower.observe(view.next_offset, view.state, error):
                self._moved = self._clock.monotonic()
        if self._state.mistake is MistakenDelete.PUBLISHED and seen.blocked is not None:
            self._process_block(seen.blocked)

    def _process_block(self, item: QueueItemView) -> None:
        if item.package_id != self._state.mistaken_package:
            why = None if item.error is None else item.error.message
            raise DemoFailedError(f"golden is blocked by {item.action} {item.path}, not by the mistake", output=why)
        self._blocked = item
        self._state.block()
        others = len(self._state.followers) - 1
        waiting = f"; {others} wait behind it" if others else ""
        self._report(GOLDEN, f"BLOCKED: its check refuses {item.action} {item.path}{waiting}")

    def _perform(self, step: NextStep, agent: DemoProcess) -> None:
        match step:
            case NextStep.START | NextStep.RESTART:
                command = self._plan.command(agent.name)
                with _interrupts_deferred():
                    self._children[agent.name] = Child(self._plan.home, agent.name, command, self._events)
                agent.start()
            case NextStep.KILL:
                self._state.kill(agent)
                self._children.pop(agent.name).kill()
                self._report(agent.name, f"killed (SIGKILL) with {count_text(len(agent.followers), 'subscriber')}")
            case _ if not self._is_asking:
                self._is_asking = True
                self._ask(step)

    def _ask(self, step: NextStep) -> None:
        if step is NextStep.PUBLISH:
            self._requests.publish(self._plan.portions[self._state.published])
        elif step is NextStep.ERR:
            self._requests.err(self._plan.mistake)
        elif self._blocked is not None:
            self._requests.drop(self._blocked)

    def _stop_children(self) -> None:
        """SIGTERM for all. Raises: DemoFailedError where one does not end well, unless something failed already."""
        children, self._children = list(self._children.values()), {}
        for child in children:
            child.ask_to_stop()
        for child in children:
            code = child.wait()
            if code == INTERRUPTED_EXIT_CODE:  # a terminal sends Ctrl-C to the agents, too
                continue
            if code and self._state.is_done:
                raise DemoFailedError(
                    f"{child.name} ended with exit code {code} after SIGTERM", output=child.last_words() or None
                )


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM at the end: between start and note, they would leave an agent behind."""
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda caught_number, _: received.append(caught_number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for caught in received:
        signal.raise_signal(caught)
