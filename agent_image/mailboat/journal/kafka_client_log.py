"""What librdkafka has to say: its log lines at a bearable rate, and its last error as the reason of a time-out.

A client whose broker is down writes a line every few milliseconds, and passes the reason of a failure (a refused
password, a refused connection) only in a callback, while the call itself just times out. Both end up here.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from confluent_kafka import KafkaError

from mailboat.clock import Clock
from mailboat.journal.kafka_errors import is_refusal

_LOGGER: Final = logging.getLogger(__name__)
_ROUTINE: Final = frozenset({"GETPID"})
"""Kinds of lines about a transient condition that every new producer meets on brokers that have just started."""

_THREAD: Final = re.compile(r"^(?:\[thrd:[^\]]*\]: )?(?:\S+/bootstrap: )?")
"""What the library puts before a line, of interest to its authors only."""

_REFUSAL_SECONDS: Final = 10.0
"""How long a refusal stands although other errors follow. Several clients share one log, and the library does not
repeat an error of a broker, so the next error of another client must not hide the refusal from the request that waits.
"""

_SUMMARIES: Final = frozenset({KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001 - the library's public constants


class ClientLog:
    """The `logger` and `error_cb` of all clients of one journal. Safe to use from several threads."""

    def __init__(self, clock: Clock, interval_seconds: float = 30.0) -> None:
        """Let one line of a kind pass every `interval_seconds`, with the number of those left out."""
        self._clock = clock
        self._interval_seconds = interval_seconds
        # Each thread that polls one of the clients calls `log` and `note`.
        self._lock = threading.Lock()
        self._next_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self._last_error: KafkaError | None = None
        self._last_refusal: tuple[KafkaError, float] | None = None

    def log(self, level: int, form: str, *details: str) -> None:
        """What the library calls for each of its lines; the first detail is the kind of line."""
        kind = details[0] if details else form
        with self._lock:
            now = self._clock.monotonic()
            if now < self._next_at.get(kind, now):
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            # The kind limits the rate, not the text: lines of one kind differ in broker and milliseconds.
            self._next_at[kind] = now + self._interval_seconds
            left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} more of this kind since the last)" if left_out else ""
        line = _THREAD.sub("", details[-1] if details else form)
        # never an error: librdkafka goes on trying
        level = logging.DEBUG if kind in _ROUTINE else min(level, logging.WARNING)
        _LOGGER.log(level, "Kafka client: %s%s", line, more, extra={"error": kind})

    def note(self, error: KafkaError) -> None:
        """What the library calls for errors of a client as a whole, such as a lost connection."""
        with self._lock:
            # "All brokers are down" follows the error of each broker: it must not replace that error.
            if error.code() not in _SUMMARIES or self._last_error is None:
                self._last_error = error
            if is_refusal(error):
                self._last_refusal = error, self._clock.monotonic() + _REFUSAL_SECONDS

    def reason(self) -> KafkaError | None:
        """The last error noted since the last success."""
        with self._lock:
            return self._last_error

    def refusal(self) -> KafkaError | None:
        """The last error, if it says that one side refuses who the other is: repeating does not help."""
        error = self.reason()
        return error if error is not None and is_refusal(error) else None

    def recent_refusal(self) -> KafkaError | None:
        """The refusal of the last seconds, even if another error followed. For read-only requests."""
        with self._lock:
            if self._last_refusal is None or self._clock.monotonic() > self._last_refusal[1]:
                return None
            return self._last_refusal[0]

    def succeeded(self) -> None:
        """A request was answered: errors noted before it explain nothing any more."""
        with self._lock:
            self._last_error = self._last_refusal = None
