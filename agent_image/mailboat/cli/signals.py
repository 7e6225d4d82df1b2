"""SIGTERM and Ctrl-C for commands that run until they are told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[set[int]]:
    """SIGTERM and Ctrl-C end the work in order; a second Ctrl-C ends it at once. Gives the signals received.

    `stop` is called in the signal's handler, so it must only say that the end is wanted.
    """
    received: set[int] = set()

    def receive(number: int, _: object) -> None:
        received.add(number)
        stop()
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
