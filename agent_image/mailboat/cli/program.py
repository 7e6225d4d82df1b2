"""The application: its commands by name, and the options that precede a command's name.

A command's module is imported when the command is used; help and completion of the program itself need none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from mailboat import __version__
from mailboat.cli.help_page import COMMANDS, PAGE_WIDTH, PagedCommand, PagedGroup, PagedTyper
from mailboat.cli.options import HomeOption, TokenFileOption, UrlOption, VerboseOption
from mailboat.cli.session import Defaults, SharedOptions
from mailboat.errors import MailboatError, UsageError


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
            self.commands[str(found.name)] = found = _loaded(str(found.name))
        return name, found, rest


def _loaded(name: str) -> Any:
    app = new_application()
    importlib.import_module(f"mailboat.cli.{COMMANDS[name].module}").register(app)
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def build_app() -> typer.Typer:
    """The application with all commands imported, for tests and generated pages."""
    app = new_application()
    for module in dict.fromkeys(entry.module for entry in COMMANDS.values()):
        importlib.import_module(f"mailboat.cli.{module}").register(app)
    return app


def run_application(arguments: Sequence[str], defaults: Defaults) -> int:
    """Run a command line; its exit code. Raises: KeyboardInterrupt; UsageError; as the command."""
    program = typer.main.get_command(new_application())
    try:
        result = program.main(args=list(arguments), prog_name="mailboat", standalone_mode=False, obj=defaults)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except typer.TyperException as error:
        raise _usage_error(error) from error
    return result if isinstance(result, int) else 0


def _usage_error(error: typer.TyperException) -> MailboatError:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "mailboat")
    words = " ".join(error.format_message().split())
    message = words.replace("': Value error, ", "': ")  # pydantic's prefix
    return UsageError(message or "invalid command line", next_step=f"{path} --help")


def new_application() -> typer.Typer:
    """Return an application with its own options and without commands."""
    app = PagedTyper(
        cls=ProgramGroup,
        name="mailboat",
        help="Distributes content from publishers to subscribers over a persisted log, exactly once.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": PAGE_WIDTH},
    )
    app.callback()(before_command)
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
