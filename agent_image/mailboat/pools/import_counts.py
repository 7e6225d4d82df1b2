"""What a member of a shared pool has imported, and how long it claims nothing after failures. From any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Final

from mailboat.clock import Clock
from mailboat.model.identifiers import Offset
from mailboat.model.messages import FailureCause
from mailboat.subscriber.importer import BatchOutcome

_NO_FAILURE: Final[tuple[int, FailureCause | None]] = 0, None


class ImportCounts:
    """What a member has imported; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.imported = self.dropped = self.failed = self.put = self.removed = self.content_bytes = self.commits = 0
        self._failures: dict[Offset, tuple[int, FailureCause]] = {}
        """Attempts and cause by the offset of packages that are tried again."""
        self.given_up: int | None = None

    @property
    def failure(self) -> tuple[int, FailureCause | None]:
        """Attempts and cause of the package that failed most often of those that are tried again; else 0 and None."""
        with self._lock:
            return max(self._failures.values(), key=itemgetter(0), default=_NO_FAILURE)

    def keep_failures(self, unfinished: Collection[Offset]) -> None:
        """Forget the failures of all other packages: another member may be done with them."""
        with self._lock:
            self._failures = {offset: found for offset, found in self._failures.items() if offset in unfinished}

    def count(self, outcome: BatchOutcome) -> None:
        """Count a commit."""
        with self._lock:
            self.commits += 1
            self.imported += outcome.imported
            self.dropped += outcome.dropped
            self.put += outcome.put
            self.removed += outcome.removed
            self.content_bytes += outcome.content_bytes

    def count_given_up(self) -> None:
        """Count a package that was given up."""
        with self._lock:
            self.commits += 1
            self.failed += 1

    def note_failure(self, offset: Offset, cause: FailureCause, attempts: int) -> None:
        """Note that an attempt failed, and how many have that count; it will be repeated."""
        with self._lock:
            self._failures[offset] = attempts, cause

    def note_error_queue(self, given_up: int) -> None:
        """Note how many packages the error queue of the target holds."""
        with self._lock:
            self.given_up = given_up


class ClaimPause:
    """How long a member claims nothing, as journal or storage failed: the next package would fail as well.

    Each claim and each result is a record: claims without a pause would fill the job topic for as long as that lasts.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing has failed yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._ends_at = float("-inf")
        self._failures = 0

    @property
    def holds(self) -> bool:
        """Whether nothing is to be claimed now."""
        return self._clock.monotonic() < self._ends_at

    def begin(self, seconds_after: Callable[[int], float]) -> None:
        """Begin the pause after so many failures in a row. Those of calls that run side by side are one."""
        with self._lock:
            if not self.holds:
                self._failures += 1
                self._ends_at = self._clock.monotonic() + seconds_after(self._failures)

    def succeeded(self) -> None:
        """Note that a package was imported: the next failure is the first one."""
        with self._lock:
            self._failures = 0
