"""How far a bulk build is, for people: one line that changes in place, or plain lines where there is no terminal."""

from __future__ import annotations

import shutil
from typing import Final, TextIO

from mailboat.cli.output import seconds_text
from mailboat.clock import Clock

_SHOWN_EVERY_SECONDS: Final = 0.1
_BAR_WIDTH: Final = 24
_DOING: Final = {
    "cut": "cutting",
    "build": "building",
    "close": "closing",
    "publish": "publishing",
    "compare": "comparing",
}


class BulkProgress:
    """Shows the stages of a build. See `mailboat.bulk.reports.Progress`."""

    def __init__(self, into: TextIO, clock: Clock) -> None:
        """Show nothing yet."""
        self._into = into
        self._clock = clock
        self._is_terminal = into.isatty()
        self._stage = ""
        self._total: int | None = None
        self._done = 0
        self._began = self._shown_at = clock.monotonic()

    def begin(self, stage: str, total: int | None = None) -> None:
        """A stage begins; the one before it is over."""
        self.end()
        self._stage, self._total, self._done = stage, total, 0
        self._began = self._clock.monotonic()
        self._shown_at = 0.0
        self._show()

    def advance(self, packages: int) -> None:
        """So many more packages of the stage are done."""
        self._done += packages
        self._show()

    def end(self) -> None:
        """The stage is over: what it came to stays to be read."""
        if not self._stage:
            return
        if self._is_terminal:
            self._into.write("\r\x1b[K")
        if self._done or self._total:
            seconds = self._clock.monotonic() - self._began
            self._into.write(f"{self._text()}  {seconds_text(seconds)}\n")
        self._into.flush()
        self._stage = ""

    def _show(self) -> None:
        now = self._clock.monotonic()
        if not self._is_terminal or now - self._shown_at < _SHOWN_EVERY_SECONDS:
            return
        self._shown_at = now
        width = shutil.get_terminal_size().columns - 1
        self._into.write(f"\r\x1b[K{progress_bar(self._done, self._total)}{self._text()}"[: width + 4])
        self._into.flush()

    def _text(self) -> str:
        doing = _DOING.get(self._stage, self._stage)
        of = "" if self._total is None else f" of {self._total:,}"
        noun = "packages" if self._done != 1 or self._total is not None else "package"
        return f"{doing:<10}  {self._done:,}{of} {noun}"


def progress_bar(done: int, total: int | None) -> str:
    """A bar with a space behind it; nothing where the end is not known."""
    if not total:
        return ""
    full = _BAR_WIDTH * min(done, total) // total
    return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] "
