"""What every command is given: where the home is, how to print, and the way to the engine.

Knows nothing of the command line's framework, so that a subscriber can start without it (`quick.py`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mailboat.agent.settings import Settings
from mailboat.cli.rendering import Output, Report, printable, show

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.home import Home


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one command.

    Attributes:
        home_path: Where the home is.
        output: The form of the result.
        is_verbose: Whether errors come with their traces.
        is_home_given: Whether an option said where the home is, not the environment or the default.
    """

    home_path: Path
    output: Output = Output.TABLE
    is_verbose: bool = False
    is_home_given: bool = False

    def home(self) -> Home:
        """The home. Raises: HomeMissingError."""
        from mailboat.agent.home import Home

        return Home(self.home_path)

    def workspace(self) -> Workspace:
        """The home with its journal and blobs opened; to be used as a context manager."""
        from mailboat.agent.composition import Workspace

        return Workspace(self.home())

    def show(self, report: Report) -> None:
        """Print the result in the form that was asked for."""
        show(report, self.output)

    def note(self, line: str) -> None:
        """Tell people something on the side; programs read standard output only."""
        sys.stderr.write(printable(line) + "\n")
        sys.stderr.flush()


class Defaults:
    """The options given before the command's name; those behind it win. One object a process, made by `main`."""

    def __init__(self) -> None:
        """Nothing given."""
        self.home: Path | None = None
        self.is_verbose = False


def session_from(settings: Settings, defaults: Defaults, home: Path | None, output: Output, verbose: bool) -> Session:
    """Decide what holds: behind the command, before it, environment, default."""
    return Session(
        home_path=home or defaults.home or settings.home,
        output=output,
        is_verbose=verbose or defaults.is_verbose or settings.is_verbose,
        is_home_given=home is not None or defaults.home is not None,
    )
