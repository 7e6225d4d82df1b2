"""Fetches one thing in a thread of its own, so that nobody has to wait for a store that hangs.

The thread is a daemon: a process may end while it still waits for its store. Who waits for the result looks up now and
then, and may lose patience; what was dropped closes by itself when it comes. Called by `Payloads`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import BinaryIO, Final

_LOOK_SECONDS: Final = 0.1


class FetchDroppedError(Exception):
    """Nobody wants it any more. Never leaves the thread that fetches."""


class Fetch:
    """One fetch, begun at once. Belongs to the thread that made it."""

    def __init__(self, fetch: Callable[[Callable[[], None]], BinaryIO], name: str) -> None:
        """Begin. `fetch` is called in the other thread, with a check to call now and then: it ends what was dropped."""
        self._fetch = fetch
        self._dropped = threading.Event()
        self._future: Future[BinaryIO] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread is still at it, also after it was dropped."""
        return self._thread.is_alive()

    def result(self, check: Callable[[], None]) -> BinaryIO:
        """What was fetched; the caller closes it.

        Args:
            check: Called now and then while there is something to wait for; what it raises drops the fetch.

        Raises: what `fetch` raises.
        """
        try:
            check()
            while not self._future.done():
                self._wait(_LOOK_SECONDS)
                check()
        except BaseException:
            self.drop()
            raise
        return self._future.result()

    def drop(self) -> None:
        """Nobody wants it any more. Does not wait."""
        self._dropped.set()
        self._future.add_done_callback(_close)

    def _wait(self, seconds: float) -> None:
        try:
            self._future.exception(seconds)
        except TimeoutError:
            return

    def _run(self) -> None:
        try:
            self._future.set_result(self._fetch(self._check))
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
            self._future.set_exception(error)

    def _check(self) -> None:
        if self._dropped.is_set():
            raise FetchDroppedError


def _close(done: Future[BinaryIO]) -> None:
    if done.exception() is None:
        done.result().close()
