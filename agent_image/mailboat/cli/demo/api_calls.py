"""What the demo asks of the publisher's API: two threads, one that asks for packages, one that polls the status.

Both report into the event queue. Asking is one thing after the other, so that the order of packages
is what the story says.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mailboat.api.control import Control
from mailboat.api.records import CommandView, DistributionView, QueueItemView, StatusView
from mailboat.cli.demo.demo_state import AUTHOR, GOLDEN, MISTAKE_ID
from mailboat.cli.demo.portions import Portion
from mailboat.cli.demo.processes import EventPipe
from mailboat.clock import Clock
from mailboat.errors import QueueMissingError, RetryableError
from mailboat.model.requests import DistributionRequest, parse_request

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
    """Asks the API in threads of its own."""

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
