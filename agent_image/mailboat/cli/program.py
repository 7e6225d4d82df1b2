"""The application: its commands by name, and the options that precede a command's name.

A command's module is imported when the command is used; help and completion of the program itself need none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from mailboat import __version__
from mailboat.cli.help_page import COMMANDS, PAGE_WIDTH, PagedCommand, PagedGroup, PagedTyper
from mailboat.cli.options import HomeOption, TokenFileOption, UrlOption, VerboseOption
from mailboat.cli.session import Defaults, SharedOptions
from mailboat.errors import UsageError


class _Unloaded(PagedCommand):
    """A command that help and completion list, and whose module is not imported yet."""


class ProgramGroup(PagedGroup):
    """The program: a group that imports a command's module when the command is used."""

    def __init__(self, **settings: Any) -> None:
        """As the framework's, with a placeholder for each command that is not registered."""
        super().__init__(**settings)
        registered = dict(self.commands)
        self.commands = {
            name: registered.get(name) or _Unloaded(name, callback=None, help=entry.summary)
            for name, entry in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the framework, which calls it before it runs or completes a command."""
        name, found, rest = super().resolve_command(ctx, args)
        if isinstance(found, _Unloaded):
            known = str(found.name)
            loaded: Any = typer.main.get_command(application_of([COMMANDS[known].module]))
            self.commands[known] = found = loaded.commands[known]
        return name, found, rest


def build_app() -> typer.Typer:
    """The application with all commands imported, for tests and generated pages."""
    return application_of(dict.fromkeys(entry.module for entry in COMMANDS.values()))


def run_application(arguments: Sequence[str], defaults: Defaults) -> int:
    """Run a command line; its exit code. Raises: KeyboardInterrupt; UsageError; as the command."""
    program = typer.main.get_command(application_of(()))
    try:
        result = program.main(args=list(arguments), prog_name="mailboat", standalone_mode=False, obj=defaults)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except typer.TyperException as error:
        path = getattr(getattr(error, "ctx", None), "command_path", "mailboat")
        words = " ".join(error.format_message().split())
        message = words.replace("': Value error, ", "': ")  # pydantic's prefix
        raise UsageError(message or "invalid command line", next_step=f"{path} --help") from error
    return result if isinstance(result, int) else 0


def application_of(modules: Iterable[str]) -> typer.Typer:
    """The application with its own options and the commands of these modules."""
    app = PagedTyper(
        cls=ProgramGroup,
        name="mailboat",
        help="Distributes content from publishers to subscribers over a persisted log, exactly once.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": PAGE_WIDTH},
    )
    app.callback()(before_command)
    for module in modules:
        app.add_typer(importlib.import_module(f"mailboat.cli.{module}").app)
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"mailboat {__version__}")
        raise typer.Exit


def before_command(
    context: typer.Context,
    home: HomeOption = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    verbose: VerboseOption = False,
    version: Annotated[  # noqa: ARG001  # its callback does it
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Distributes content from publishers to subscribers over a persisted log, exactly once."""
    defaults = context.ensure_object(Defaults)
    defaults.take(SharedOptions(home=home, is_verbose=defaults.is_verbose or verbose, url=url, token_file=token_file))
