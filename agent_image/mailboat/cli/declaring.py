"""How commands are declared: the options that all of them share.

`@command` adds `--home`, `-o/--output` and `--verbose` to a function whose first parameter is a `Session`, so that
they mean the same everywhere and can stand behind the command as well as before it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from mailboat.agent.settings import current_settings
from mailboat.cli.failures import BROKEN_PIPE_EXIT_CODE, leave_broken_pipe
from mailboat.cli.rendering import Output
from mailboat.cli.session import Defaults, Session, session_from

P = ParamSpec("P")

HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder of the embedded home; MAILBOAT_HOME, or .mailboat here.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Print traces of errors; MAILBOAT_VERBOSE=1.")]


def command(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Add the shared options to a command."""

    @functools.wraps(function)
    def run(context: typer.Context, **values: Any) -> None:
        home, output, verbose = (values.pop(name) for name in ("home", "output", "verbose"))
        defaults = context.obj if isinstance(context.obj, Defaults) else Defaults()
        session = session_from(current_settings(), defaults, home, output, verbose)
        if session.is_verbose:
            defaults.is_verbose = True
        try:
            function(session, **values)  # type: ignore[call-arg]  # typer made the values of the very same signature
        except BrokenPipeError as error:  # the framework would make a failure of it
            leave_broken_pipe()
            raise typer.Exit(BROKEN_PIPE_EXIT_CODE) from error

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
