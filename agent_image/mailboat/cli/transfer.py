"""Progress of long work on a terminal: bytes, rate and time left, on standard error. Nothing anywhere else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from mailboat.cli.output import rich_module

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class TransferProgress:
    """The progress of one command; a context manager. rich is imported only where a person can see it."""

    def __init__(self, into: TextIO) -> None:
        self._into = into
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._phase = ""

    @property
    def is_shown(self) -> bool:
        return self._into.isatty()

    def begin(self, phase: str, total_bytes: int | None = None) -> None:
        """Begin or continue a phase; without a total no remaining time is shown."""
        if self._progress is None or phase == self._phase:
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._phase = phase
        self._task = self._progress.add_task(phase, total=total_bytes)

    def advance(self, count: int) -> None:
        """So many more bytes of the phase are done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def __enter__(self) -> Self:
        if self.is_shown:
            progress: Progress = rich_module().transfer_progress(self._into)
            progress.start()
            self._progress = progress
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


def file_bytes(file: Path) -> int | None:
    """The size of a file; None where it has none."""
    try:
        return file.stat().st_size
    except OSError:  # the work itself says what is wrong
        return None


def folder_bytes(text: str, paths: Sequence[str] = ()) -> int | None:
    """Size of a folder's files, or of paths in it, without reading them; None for other sources."""
    try:
        place = Path(text).expanduser()
        if not place.is_dir():
            return None
        return sum(_bytes_at(place / path.lstrip("/")) for path in paths or ("/",))
    except (OSError, RuntimeError):  # a size is nice to have; the work itself says what is wrong
        return None


def _bytes_at(place: Path) -> int:
    if not place.is_dir():
        return place.stat().st_size
    total, todo = 0, [str(place)]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif entry.is_file():
                    total += entry.stat().st_size
    return total
