"""Counts the packages of publishers that other processes serve, for the lag of subscribers that follow them."""

from __future__ import annotations

import threading
from collections.abc import Set as AbstractSet
from typing import Final

from mailboat.composition.workspace import Workspace
from mailboat.model.identifiers import AgentName, Offset
from mailboat.queues.log_follower import LogFollower, count_past
from mailboat.queues.log_view import LogView

MOST_COUNTED: Final = 5_000
"""Messages of the past that are read to count packages; a larger lag is an upper bound."""


class OtherPublishers:
    """A view of the last part of the log, made when a subscriber first needs it. Safe to use from several threads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._followed: tuple[LogView, LogFollower] | None = None

    def count_from(self, offset: Offset, publishers: AbstractSet[AgentName], known: AbstractSet[AgentName]) -> int:
        """The number of packages of some publishers from an offset on, which is near the end of the log.

        Args:
            offset: A subscriber's position.
            publishers: The publishers that it follows.
            known: Those that any subscriber follows: one view counts them all.
        """
        with self._lock:
            view, follower = self._followed_of(publishers | known)
            while follower.follow(0.0):
                pass
            while view.known_from > max(offset, view.bounds.earliest_offset):
                if not count_past(view, self._workspace.journal):
                    break
            return sum(view.size_after(name, offset - 1).count for name in publishers)

    def close(self) -> None:
        """Release the reader."""
        with self._lock:
            followed, self._followed = self._followed, None
        if followed is not None:
            followed[1].close()

    def _followed_of(self, wanted: AbstractSet[AgentName]) -> tuple[LogView, LogFollower]:
        if self._followed is not None:
            if self._followed[0].publishers >= wanted:
                return self._followed
            self._followed[1].close()
        journal, topic = self._workspace.journal, self._workspace.package_topic
        view = LogView(topic, wanted, journal.bounds(topic), self._workspace.home.config.publisher.queue_cache_bytes)
        self._followed = view, LogFollower(view, journal)
        return self._followed
