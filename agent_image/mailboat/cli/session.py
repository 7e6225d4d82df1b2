"""What every command is given: the options that all of them share, and the way to the home.

`@command` adds `--home`, `-o/--output` and `--verbose` to a function whose first parameter is a `Session`, so that
they mean the same everywhere and can stand behind the command as well as before it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from mailboat.agent.settings import Settings, current_settings
from mailboat.cli.rendering import Output, Report, printable, show

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.home import Home

P = ParamSpec("P")

HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder of the embedded home; MAILBOAT_HOME, or .mailboat here.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Print traces of errors; MAILBOAT_VERBOSE=1.")]


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


def command(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Add the shared options to a command."""

    @functools.wraps(function)
    def run(context: typer.Context, **values: Any) -> None:
        home, output, verbose = (values.pop(name) for name in ("home", "output", "verbose"))
        defaults = context.obj if isinstance(context.obj, Defaults) else Defaults()
        session = session_from(current_settings(), defaults, home, output, verbose)
        if session.is_verbose:
            defaults.is_verbose = True
        function(session, **values)  # type: ignore[call-arg]  # typer made the values of the very same signature

    own = inspect.signature(function, eval_str=True).parameters
    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in list(own.values())[1:]]
    shared = [
        _parameter("context", typer.Context),
        *kept,
        _parameter("output", OutputOption, Output.TABLE),
        _parameter("home", HomeOption, None),
        _parameter("verbose", VerboseOption, False),
    ]
    run.__signature__ = inspect.Signature(shared)  # type: ignore[attr-defined]  # what inspect.signature reads first
    run.__annotations__ = {one.name: one.annotation for one in shared}
    return run


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
