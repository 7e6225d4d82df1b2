"""Space of the file systems that an agent writes to: home, journal, blobs, targets and temporary files.

Sources are not measured: an agent only reads them, and a read-only image or volume is always full.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mailboat.telemetry import catalogue
from mailboat.telemetry.families import Samples

_LOG: Final = logging.getLogger(__name__)
ROUND_SECONDS: Final = 2.0
"""What one scrape waits for a file system that does not answer. Local ones take microseconds; scrapers wait 10 s."""

_NAMED_USES: Final = 3


class WrittenPath(NamedTuple):
    """A path that the agent writes to, or makes, and what for."""

    use: str
    path: Path


class Space(NamedTuple):
    """A file system: its device, its size, and what this process may still write.

    A quota of a folder limits its size, so claims on one device with quotas count as file systems of their own.
    """

    device: int
    total_bytes: int
    free_bytes: int


class FileSystem(NamedTuple):
    """A file system in use."""

    used_by: str
    space: Space


def measured_space(path: Path) -> Space:
    """The file system of a path, or the one on which it would be made. Raises: OSError."""
    for place in (path, *path.parents):
        try:
            device = os.stat(place).st_dev  # noqa: PTH116  # follows links, as writing does
        except (FileNotFoundError, NotADirectoryError):
            continue
        found = os.statvfs(place)
        return Space(device, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
    raise FileNotFoundError(str(path))


class DiskSpace:
    """Measures all places at each scrape. Safe to use from several threads."""

    def __init__(
        self,
        places: Sequence[WrittenPath],
        measure: Callable[[Path], Space] = measured_space,
        round_seconds: float = ROUND_SECONDS,
    ) -> None:
        """Nothing is measured yet."""
        self._places = tuple(places)
        self._measure = measure
        self._round_seconds = round_seconds
        self._lock = threading.Lock()
        self._hanging: dict[WrittenPath, threading.Thread] = {}

    def collect(self, samples: Samples) -> None:
        """Add each file system to a scrape; one that does not answer has no sample."""
        for system in self.file_systems():
            samples.add(catalogue.DISK_BYTES, (system.used_by,), system.space.total_bytes)
            samples.add(catalogue.DISK_FREE, (system.used_by,), system.space.free_bytes)

    def file_systems(self) -> Sequence[FileSystem]:
        """The file systems that answer, each once."""
        found: dict[tuple[int, int], tuple[Space, list[str]]] = {}
        for place, space in self._round():
            found.setdefault((space.device, space.total_bytes), (space, []))[1].append(place.use)
        return [FileSystem(_used_by(uses), space) for space, uses in found.values()]

    def _round(self) -> list[tuple[WrittenPath, Space]]:
        # statvfs on a network file system without its server never returns, and no signal ends it: a thread is left to
        # it, and the next scrapes leave the place out until that thread has returned. So there is at most one for each
        # place, /metrics answers, and the file systems after it are measured.
        with self._lock:
            self._hanging = {place: thread for place, thread in self._hanging.items() if thread.is_alive()}
            started = _Round([place for place in self._places if place not in self._hanging], self._measure)
            thread = threading.Thread(target=started.run, name="disk space", daemon=True)
            thread.start()
            thread.join(self._round_seconds)
            if thread.is_alive() and started.at is not None:
                self._hanging[started.at] = thread
                _LOG.warning("the file system of %s does not answer (%s): not measured", *started.at)
            return list(started.found)  # a copy: the thread may still add to it


class _Round:
    """One measurement of all places."""

    def __init__(self, places: Sequence[WrittenPath], measure: Callable[[Path], Space]) -> None:
        self._places = places
        self._measure = measure
        self.at: WrittenPath | None = None
        self.found: list[tuple[WrittenPath, Space]] = []

    def run(self) -> None:
        """Measure; places that cannot be measured are left out."""
        for place in self._places:
            self.at = place
            with suppress(OSError):
                self.found.append((place, self._measure(place.path)))


def _used_by(uses: Sequence[str]) -> str:
    """A label of bounded length: hundreds of targets may be on one file system."""
    more = len(uses) - _NAMED_USES
    return ", ".join([*uses[:_NAMED_USES], *([f"{more} more"] if more > 0 else [])])
