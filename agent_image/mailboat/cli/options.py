"""How commands are declared: the options that all of them share.

`@command` adds `--home`, `-o/--output` and `--verbose` to a function whose first parameter is a `Session`, so that
they mean the same everywhere and can stand behind the command as well as before it. `@remote_command` adds `--url` and
`--token-file` too: such a command does the same on a home and on an agent.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from mailboat.cli.completion import publisher_names
from mailboat.cli.error_report import BROKEN_PIPE_EXIT_CODE, leave_broken_pipe
from mailboat.cli.output import Output
from mailboat.cli.session import Defaults, Session, SharedOptions, session_from
from mailboat.composition.environment import current_settings
from mailboat.errors import UsageError
from mailboat.model.paths import NodePath, parse_path

P = ParamSpec("P")

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="Folder of the home. Default: MAILBOAT_HOME, or .mailboat."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", metavar="FORMAT", help="table, json, yaml or name.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Print traces of errors. Default: MAILBOAT_VERBOSE.")]


UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask this agent instead of a home. Default: MAILBOAT_URL."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File with the bearer token for --url. Default: the token MAILBOAT_TOKEN."
    ),
]
PublisherOption = Annotated[
    str | None, typer.Option("--publisher", metavar="NAME", help="Publisher name. Default: the configured publisher.")
]

PackagePublisherOption = Annotated[
    str | None,
    typer.Option(
        "--publisher",
        metavar="NAME",
        help="Publisher of the packages. Default: the configured or only publisher.",
        autocompletion=publisher_names,
    ),
]
SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A folder, a FileVault checkout or zip, or sqlite:FILE.")
]
OptionalPaths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Content paths. Default: those in the filter of a checkout or zip."),
]
ShallowOption = Annotated[bool, typer.Option("--shallow", help="Only these nodes, without their children.")]
WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="Wait for all subscribers. Exits 1 if one gave it up, dropped or skipped it, 3 on timeout or if none is"
        " known.",
    ),
]


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS: Final = 36_500 * 86_400_000
"""A hundred years: added to the time of today it is a time, and it fits into all records."""


def parse_duration_ms(text: str, longest_ms: int = _LONGEST_MS) -> int:
    """Read a duration such as `500ms`, `30s`, `5m`, `2h` or `1d`. Raises: UsageError."""
    found = _DURATION.match(text)
    if found is None:
        raise UsageError(f"{text!r} is not a duration; expected a number with ms, s, m, h or d, such as 30s")
    milliseconds = float(found[1]) * _UNITS_MS[found[2]]
    if milliseconds > longest_ms:
        raise UsageError(f"{text!r} is too long; at most {longest_ms // _UNITS_MS['d']}d")
    return int(milliseconds)


def duration_text(seconds: float) -> str:
    """A duration as `parse_duration_ms` reads it, in the largest unit that gives it exactly: `90m`."""
    milliseconds = round(seconds * 1000)
    name, size = next(unit for unit in reversed(_UNITS_MS.items()) if milliseconds % unit[1] == 0)
    return f"{milliseconds // size}{name}"


def content_paths(texts: Iterable[str]) -> tuple[NodePath, ...]:
    """Content paths as users type them: a missing first slash is added, a last one dropped.

    Raises:
        UsageError: One is empty, as an unset variable of a shell gives it: that must not be taken for the root.
        PathRefusedError: A path is malformed.
    """
    given = tuple(texts)
    if "" in given:
        raise UsageError("a path is empty", next_step="write / when the root is meant")
    return tuple(parse_path("/" + text.strip("/")) for text in given)


def command(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Add the shared options to a command that works on the files of a home."""
    return _declared(function, is_remote=False)


def remote_command(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Add the shared options to a command that works on a home, or on an agent with `--url`."""
    return _declared(function, is_remote=True)


def _declared(function: Callable[Concatenate[Session, P], None], *, is_remote: bool) -> Callable[..., None]:
    own = _Own(function)

    @functools.wraps(function)
    def run(context: typer.Context, **values: Any) -> None:
        given = SharedOptions(*(values.pop(name, None) for name in ("home", "output", "verbose", "url", "token_file")))
        defaults = context.obj if isinstance(context.obj, Defaults) else Defaults()
        if not is_remote and defaults.given.url is not None:
            raise UsageError(
                f"`{context.command_path}` works on the files of a home; an agent behind --url can't do it",
                next_step=f"leave --url out: {context.command_path} --home DIR",
            )
        session = session_from(current_settings(), defaults, given)
        if session.is_verbose:
            defaults.be_verbose()
        try:
            function(session, **own.gathered(values))  # type: ignore[call-arg]  # of the very same signature
        except BrokenPipeError as error:  # the framework would make a failure of it
            leave_broken_pipe()
            raise typer.Exit(BROKEN_PIPE_EXIT_CODE) from error

    shared = [_parameter("context", typer.Context), *own.parameters()]
    shared += [_parameter("output", OutputOption, Output.TABLE), _parameter("home", HomeOption, None)]
    if is_remote:
        shared += [_parameter("url", UrlOption, None), _parameter("token_file", TokenFileOption, None)]
    shared.append(_parameter("verbose", VerboseOption, False))
    run.__signature__ = inspect.Signature(shared)  # type: ignore[attr-defined]  # what inspect.signature reads first
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shared}
    return run


class _Own:
    """A command's own parameters. One whose type is a NamedTuple stands for its fields: options that commands share."""

    def __init__(self, function: Callable[..., None]) -> None:
        declared = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        self._plain = [parameter for parameter in declared if not hasattr(parameter.annotation, "_fields")]
        self._sets: dict[str, Any] = {
            parameter.name: parameter.annotation for parameter in declared if parameter not in self._plain
        }

    def parameters(self) -> Iterator[inspect.Parameter]:
        for kind in self._sets.values():
            for name, annotation in typing.get_type_hints(kind, include_extras=True).items():
                default = kind._field_defaults.get(name, inspect.Parameter.empty)
                yield _parameter(name, annotation, default)
        yield from (parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in self._plain)

    def gathered(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values with each set made of its fields."""
        sets = {name: kind(**{field: values[field] for field in kind._fields}) for name, kind in self._sets.items()}
        return {**{parameter.name: values[parameter.name] for parameter in self._plain}, **sets}


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
