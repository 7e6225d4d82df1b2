"""Who measures publications: a port, so that the publisher knows no metrics library. Given with `PublisherPorts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mailboat.model.messages import Action


class PublicationMeter(Protocol):
    """Called from the publisher's thread; must neither block nor raise."""

    def built(self, package_bytes: int, seconds: float) -> None:
        """A package was built."""

    def appended(self, actions: Sequence[Action], seconds: float) -> None:
        """Messages are durable in the log, all of one append."""

    def appended_in_pieces(self, pieces: int) -> None:
        """A message is durable whose package travels in so many pieces before it."""

    def repeated(self) -> None:
        """A request was asked for again that stands in the log already."""

    def refused(self, error: Exception) -> None:
        """A request failed; nothing of it was published."""


class SilentMeter:
    """Nobody measures."""

    def built(self, package_bytes: int, seconds: float) -> None:
        """See `PublicationMeter`."""

    def appended(self, actions: Sequence[Action], seconds: float) -> None:
        """See `PublicationMeter`."""

    def appended_in_pieces(self, pieces: int) -> None:
        """See `PublicationMeter`."""

    def repeated(self) -> None:
        """See `PublicationMeter`."""

    def refused(self, error: Exception) -> None:
        """See `PublicationMeter`."""
