"""The application: its commands by name, and the options that precede a command's name.

A command's module is imported when the command is used; help and completion of the program itself need none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import typer

from mailboat import __version__
from mailboat.cli.help_page import PAGE_WIDTH, PagedCommand, PagedGroup, PagedTyper
from mailboat.cli.options import HomeOption, TokenFileOption, UrlOption, VerboseOption
from mailboat.cli.session import Defaults, SharedOptions
from mailboat.errors import MailboatError, UsageError


class Entry(NamedTuple):
    """A command or group: the module of this folder that defines it, and the first sentence of its help."""

    module: str
    summary: str


COMMANDS: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "init": Entry(
            "init", "Create a home: journal (SQLite, or topics on Kafka), blob folder, configuration with comments"
        ),
        "demo": Entry(
            "demo.demo_command",
            "Publish a directory to many subscribers, inject failures, and prove that all end up equal",
        ),
        "plan": Entry("publish", "Show what a publish would send, and the lag of subscribers"),
        "publish": Entry("publish", "Publish paths of a source, or what changed in it"),
        "delete": Entry("publish", "Remove paths, with everything below them, from all subscribers"),
        "invalidate": Entry("publish", "Invalidate caches of these paths on all subscribers"),
        "ping": Entry("publish", "Send a test message that changes no content"),
        "bulk": Entry("bulk", "Build and publish a whole tree as many packages, on Spark"),
        "subscribe": Entry("subscribe", "Import everything that is published, in order, into a target"),
        "agent": Entry("agents", "Run the configured publishers and subscribers"),
        "status": Entry("status", "Show the journal, its publishers, and each subscriber's position and lag"),
        "events": Entry("events", "Show the state of the journal and its subscribers, then each change of it"),
        "distributions": Entry("distributions", "Show the outcome of publish requests"),
        "publishers": Entry("publishers", "List the publishers"),
        "queues": Entry("queues", "Show pending packages per subscriber; drop the ones that block"),
        "errors": Entry("errors", "List failed packages and retry them"),
        "subscribers": Entry("subscribers", "Manage the subscriber registry"),
        "jobs": Entry("jobs", "Add jobs for workers; show, stop, remove and retry them"),
        "worker": Entry("worker", "Run jobs"),
        "content": Entry("content", "List, read, compare and copy sources and targets"),
        "packages": Entry("packages", "Build, inspect, check and install packages by hand"),
        "journal": Entry("journal", "Inspect, check, truncate and measure the log"),
        "blobs": Entry("blobs", "List stored binaries and packages; remove those that nothing refers to"),
        "config": Entry("config", "Check a configuration; print its JSON Schema"),
        "explain": Entry("explain", "Explain named errors or states: meaning and next step"),
        "completion": Entry("completion", "Print a shell's completion script: `source <(mailboat completion bash)`"),
    }
)
"""Every command and group, in the order of the help."""


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
