"""Logs each change of a subscriber's state that may need a person's attention.

Single packages are never logged; success is logged once, when the subscriber has caught up for the first time or
after trouble. The words are those of the states and of the errors.
"""

from __future__ import annotations

import logging
from typing import Final

from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics

_LOG: Final = logging.getLogger(__name__)


class StateLogger:
    """Receives the progress of one subscriber, in its thread."""

    def __init__(self, name: str) -> None:
        """Nothing was logged yet."""
        self._name = name
        self._told: tuple[object, ...] = ()
        self._is_calm = False

    def progressed(self, statistics: SubscriberStatistics) -> None:
        """Apply a snapshot."""
        if statistics.phase is SubscriberPhase.CURRENT:
            if not self._is_calm:
                self._is_calm = True
                _LOG.info("%s has caught up", self._name, extra=self._about(statistics))
            return
        if statistics.phase not in {SubscriberPhase.RETRYING, SubscriberPhase.WAITING}:
            return
        cause = statistics.cause
        news = (statistics.phase, statistics.next_offset, statistics.attempts, None if cause is None else cause.code)
        if news == self._told or cause is None:
            return
        self._told, self._is_calm = news, False
        if statistics.phase is SubscriberPhase.RETRYING:
            text = "%s could not import a package, attempt %d: %s"
            _LOG.warning(text, self._name, statistics.attempts, cause.message, extra=self._about(statistics))
        else:
            _LOG.warning("%s waits: %s", self._name, cause.message, extra=self._about(statistics))

    def given_up(self, statistics: SubscriberStatistics) -> None:
        """Log that a package went to the error queue."""
        self._is_calm = False
        cause = "" if statistics.cause is None else statistics.cause.message
        where = self._about(statistics)
        if statistics.next_offset is not None:
            where["offset"] = statistics.next_offset - 1
        attempts = "1 attempt" if statistics.attempts == 1 else f"{statistics.attempts} attempts"
        _LOG.warning("%s gave a package up after %s: %s", self._name, attempts, cause, extra=where)

    def _about(self, statistics: SubscriberStatistics) -> dict[str, object]:
        cause = statistics.cause
        return {
            "subscriber": self._name,
            "offset": statistics.next_offset,
            "error": None if cause is None else cause.code,
            "path": None if cause is None else cause.path,
        }
