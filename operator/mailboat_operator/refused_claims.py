"""Claims that the API server does not enlarge: it is not asked again while nothing has changed.

The answer depends on the storage class, quota and rights, which are not watched. Used from one event loop.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mailboat_operator.manifests.children import Manifest

_LASTS: Final = timedelta(hours=1)
_MOST: Final = 1_000


class _Refusal(NamedTuple):
    """The claim's version and the requested size, the API server's message, and the time of it."""

    question: tuple[str, str]
    message: str
    at: datetime


class Refusals:
    """Refused requests of the last hour."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], _Refusal] = {}

    def note(self, claim: Manifest, size: str, message: str, now: datetime) -> None:
        """Keep a refusal; beyond 1,000 claims the oldest is dropped."""
        self._kept.pop(_place(claim), None)
        self._kept[_place(claim)] = _Refusal(_question(claim, size), message, now)
        while len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]

    def of(self, claim: Manifest, size: str, now: datetime) -> str | None:
        """Return the message of the last refusal; None if the claim or the size changed, or after an hour."""
        known = self._kept.get(_place(claim))
        if known is None or known.question != _question(claim, size) or now - known.at >= _LASTS:
            return None
        return known.message


def _place(claim: Manifest) -> tuple[str, str]:
    return claim["metadata"]["namespace"], claim["metadata"]["name"]


def _question(claim: Manifest, size: str) -> tuple[str, str]:
    return claim["metadata"]["resourceVersion"], size
