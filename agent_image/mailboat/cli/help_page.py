"""How help looks: usage, arguments, options, commands by topic, examples. The same style on every page.

The framework's own pages name a type for every flag and have no place for examples. Everything here is plain text that
is as wide as the terminal; headings are bold where colours are wanted. A test parses each example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

from mailboat.api.confirmations import Confirmation
from mailboat.cli.error_report import EXIT_CODES
from mailboat.composition.environment import current_settings

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        "mailboat init",
        "mailboat publish --source ./site --changed",
        "mailboat subscribe web --into generations:web",
        "mailboat status --watch",
    ),
    "init": ("mailboat init", "mailboat --home /srv/mailboat init --kafka broker-1:9092,broker-2:9092"),
    "demo": ("mailboat demo", "mailboat demo ./site --subscribers 5"),
    "plan": ("mailboat plan --source ./site --changed", "mailboat plan --source ./site /news"),
    "publish": (
        "mailboat publish --source ./site --changed",
        "mailboat publish --source ./site /index.html /news --wait 60",
        "mailboat --url http://127.0.0.1:8080 publish /index.html /news",
    ),
    "delete": ("mailboat delete /news/2024",),
    "invalidate": ("mailboat invalidate /news",),
    "ping": ("mailboat ping --wait 10",),
    "bulk plan": ("mailboat bulk plan ./site --budget 4MiB",),
    "bulk build": ("mailboat bulk build ./site --build-id release-42",),
    "bulk status": ("mailboat bulk status release-42",),
    "bulk verify": ("mailboat bulk verify ./site files:web",),
    "bulk forget": ("mailboat bulk forget release-42",),
    "subscribe": (
        "mailboat subscribe web --into generations:web",
        "mailboat subscribe web --until caught-up",
        "mailboat subscribe eu --into files:/srv/eu --follow author",
    ),
    "agent run": ("mailboat agent run --config agent.yaml",),
    "agent health": ("mailboat --home /var/lib/mailboat agent health",),
    "jobs add": (
        'mailboat jobs add purge.cdn --data \'{"keys": ["/news"]}\'',
        "mailboat jobs add mail.report --in 5m --key customer-7 --request-id report-7",
    ),
    "jobs ls": ("mailboat jobs ls --state given-up", "mailboat jobs ls --topic 'purge.*'"),
    "jobs show": ("mailboat jobs show 1042-0",),
    "jobs stop": ("mailboat jobs stop 1042-0",),
    "jobs remove": ("mailboat jobs remove 1042-0",),
    "jobs retry": ("mailboat jobs retry 1042-0",),
    "jobs queues": ("mailboat jobs queues",),
    "jobs set-queue": (
        "mailboat jobs set-queue cdn --topic 'purge.*' --kind keyed --max-parallel 8 --rate 100/1s",
        "mailboat jobs set-queue cdn --topic 'purge.*' --merge 256 --merge-within 2s",
    ),
    "jobs remove-queue": ("mailboat jobs remove-queue cdn",),
    "jobs suspend": ("mailboat jobs suspend cdn --for 1h",),
    "jobs resume": ("mailboat jobs resume cdn",),
    "jobs schedule": (
        "mailboat jobs schedule nightly report.build --cron '0 3 * * *' --zone Europe/Berlin",
        "mailboat jobs schedule sweep upkeep.sweep --every 1h --missed skip",
    ),
    "jobs schedules": ("mailboat jobs schedules",),
    "jobs fire": ("mailboat jobs fire nightly",),
    "jobs unschedule": ("mailboat jobs unschedule nightly",),
    "jobs clear": ("mailboat jobs clear cdn --yes",),
    "worker run": ("mailboat worker run --on 'purge.*=./purge.sh' --slots 8",),
    "status": ("mailboat status --sort attention", "mailboat --url http://127.0.0.1:8080 status --watch --filter edge"),
    "distributions ls": ("mailboat distributions ls --limit 50",),
    "distributions get": ("mailboat distributions get 12", "mailboat distributions get nightly-7 --wait 60"),
    "publishers ls": ("mailboat publishers ls",),
    "queues ls": ("mailboat queues ls",),
    "queues show": ("mailboat queues show web",),
    "queues clear": ("mailboat queues clear web --first 2",),
    "queues remove": ("mailboat queues remove web 12 --yes",),
    "queues command": ("mailboat queues command 3f2b8c1e",),
    "events": ("mailboat events --follow", "mailboat --url http://127.0.0.1:8080 events --follow -o json"),
    "errors ls": ("mailboat errors ls", "mailboat errors ls web"),
    "errors show": ("mailboat errors show web 12",),
    "errors redrive": ("mailboat errors redrive web 12", "mailboat errors redrive web --all"),
    "subscribers ls": ("mailboat subscribers ls",),
    "subscribers forget": ("mailboat subscribers forget web",),
    "subscribers suspend": ("mailboat subscribers suspend web --for 1h",),
    "subscribers resume": ("mailboat subscribers resume web --wait 30",),
    "content ls": ("mailboat content ls ./site /news --deep",),
    "content cat": ("mailboat content cat files:web /index.html",),
    "content digest": ("mailboat content digest ./site", "mailboat content digest sqlite:web.db /news"),
    "content diff": ("mailboat content diff ./site generations:web",),
    "content snapshot": ("mailboat content snapshot sqlite:web.db web.snapshot",),
    "content restore": ("mailboat content restore web.snapshot --into sqlite:new.db",),
    "content snapshots": ("mailboat content snapshots",),
    "content restores": ("mailboat --url http://localhost:8080 content restores",),
    "packages build": ("mailboat packages build ./site /news --into news.zip",),
    "packages inspect": ("mailboat packages inspect news.zip",),
    "packages verify": ("mailboat packages verify news.zip",),
    "packages install": ("mailboat packages install news.zip --into sqlite:web.db",),
    "journal topics": ("mailboat journal topics",),
    "journal show": ("mailboat journal show 12 --limit 5", "mailboat journal show --topic status"),
    "journal verify": ("mailboat journal verify --deep",),
    "journal truncate": ("mailboat journal truncate --expired", "mailboat journal truncate --before 100"),
    "journal ensure": ("mailboat journal ensure --check",),
    "journal bench": ("mailboat journal bench --bytes 4000",),
    "journal retention": ("mailboat journal retention", "mailboat journal retention --apply"),
    "blobs ls": ("mailboat blobs ls --removable",),
    "blobs sweep": ("mailboat blobs sweep", "mailboat blobs sweep --yes"),
    "config check": ("mailboat config check agent.yaml",),
    "config schema": ("mailboat config schema",),
    "explain": ("mailboat explain JournalTrimmed",),
    "completion": ("source <(mailboat completion bash)",),
}
"""Path of the command → command lines; "" is the program itself."""


PAGE_WIDTH: Final = 100
"""Help is not wider than this, however wide the terminal is."""

COMMON_OPTIONS: Final = frozenset({"output", "home", "url", "token_file", "verbose", "help"})
"""Options that mean the same for every command; they stand behind its own."""


class CommandEntry(NamedTuple):
    """A command or group of the program.

    Attributes:
        module: The module of this folder that defines it.
        summary: The first sentence of its help.
        is_remote: Whether all of it works through an agent, so that `kubectl mailboat` offers it.
    """

    module: str
    summary: str
    is_remote: bool = False


TOPICS: Final[Mapping[str, Mapping[str, CommandEntry]]] = {
    "Start": {
        "init": CommandEntry(
            "init", "Create a home: journal (SQLite, or topics on Kafka), blob folder, configuration with comments"
        ),
        "demo": CommandEntry(
            "demo.demo_command",
            "Publish a directory to many subscribers, inject failures, and prove that all end up equal",
        ),
        "config": CommandEntry("config", "Check a configuration; print its JSON Schema"),
        "agent": CommandEntry("agents", "Run the configured publishers and subscribers"),
    },
    "Publish": {
        "plan": CommandEntry("publish", "Show what a publish would send, and the lag of subscribers", is_remote=True),
        "publish": CommandEntry("publish", "Publish paths of a source, or what changed in it", is_remote=True),
        "delete": CommandEntry(
            "publish", "Remove paths, with everything below them, from all subscribers", is_remote=True
        ),
        "invalidate": CommandEntry("publish", "Invalidate caches of these paths on all subscribers", is_remote=True),
        "ping": CommandEntry("publish", "Send a test message that changes no content", is_remote=True),
        "bulk": CommandEntry("bulk", "Build and publish a whole tree as many packages, on Spark"),
        "distributions": CommandEntry("distributions", "Show the outcome of publish requests", is_remote=True),
        "publishers": CommandEntry("publishers", "List the publishers", is_remote=True),
    },
    "Subscribe": {
        "subscribe": CommandEntry("subscribe", "Import everything that is published, in order, into a target"),
        "subscribers": CommandEntry("subscribers", "Manage the subscriber registry", is_remote=True),
        "queues": CommandEntry(
            "queues", "Show pending packages per subscriber; drop the ones that block", is_remote=True
        ),
        "errors": CommandEntry("errors", "List failed packages and retry them", is_remote=True),
        "status": CommandEntry(
            "status", "Show the journal, its publishers, and each subscriber's position and lag", is_remote=True
        ),
        "events": CommandEntry(
            "events", "Show the state of the journal and its subscribers, then each change of it", is_remote=True
        ),
    },
    "Jobs": {
        "jobs": CommandEntry("jobs", "Add jobs for workers; show, stop, remove and retry them", is_remote=True),
        "worker": CommandEntry("worker", "Run jobs", is_remote=True),
    },
    "Content and storage": {
        "content": CommandEntry("content", "List, read, compare and copy sources and targets"),
        "packages": CommandEntry("packages", "Build, inspect, check and install packages by hand"),
        "journal": CommandEntry("journal", "Inspect, check, truncate and measure the log", is_remote=True),
        "blobs": CommandEntry(
            "blobs", "List stored binaries and packages; remove those that nothing refers to", is_remote=True
        ),
    },
    "Help": {
        "explain": CommandEntry("explain", "Explain named errors or states: meaning and next step"),
        "completion": CommandEntry(
            "completion", "Print a shell's completion script: `source <(mailboat completion bash)`"
        ),
    },
}
"""The top-level commands by topic, in the order of the help."""

COMMANDS: Final[Mapping[str, CommandEntry]] = {
    name: entry for entries in TOPICS.values() for name, entry in entries.items()
}

ALIASES: Final[Mapping[str, str]] = {
    "distribution": "distributions",
    "package": "packages",
    "publisher": "publishers",
    "queue": "queues",
    "subscriber": "subscribers",
    "list": "ls",
    "get": "show",
    "show": "get",
}
"""Other spellings of commands, understood everywhere and not listed."""

_COMPLETION_OPTIONS: Final = frozenset({"install_completion", "show_completion"})
_NAMES_WIDTH: Final = 32
_EXIT_USAGE: Final = 2


class PagedCommand(TyperCommand):
    """A command with a help page in our style."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_page(self, ctx, formatter)


class PagedGroup(TyperGroup):
    """A group with a help page in our style; it understands the aliases of its commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_page(self, ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options without the framework's for completion: `mailboat completion` is the one way to it."""
        return [param for param in super().get_params(ctx) if param.name not in _COMPLETION_OPTIONS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or of the name that it is an alias of."""
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the framework; a group without a command names those that it has, the program prints its help."""
        if not args and not ctx.resilient_parsing:
            if ctx.parent is None:
                typer.echo(ctx.get_help())
                ctx.exit(_EXIT_USAGE)
            ctx.fail(f"missing command; choose one of: {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)


class PagedTyper(typer.Typer):
    """An application or group whose commands have pages in our style."""

    def __init__(self, cls: type[PagedGroup] = PagedGroup, **settings: Any) -> None:
        """As the framework's; `cls` is the group that is made of it."""
        super().__init__(cls=cls, rich_markup_mode=None, **settings)

    def command(
        self, name: str | None = None, *, asks: Confirmation | None = None, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a command; its help has the consequences of what it `asks`."""

        def register(function: CommandFunctionType) -> CommandFunctionType:
            text = None if asks is None else asks.help_of(function.__doc__)
            return super(PagedTyper, self).command(name, cls=PagedCommand, help=text, **settings)(function)

        return register


def command_group(name: str) -> PagedTyper:
    """One of `COMMANDS` as a group, to be filled with commands."""
    return PagedTyper(name=name, help=f"{COMMANDS[name].summary}.")


def value_name(option: Any, context: Any) -> str:
    """What stands for an option's value: capitals, or the words to choose from; nothing for a flag."""
    if option.is_flag:
        return ""
    kind = str(option.display_type(context)).strip("<>")
    fallback = "N" if kind.startswith("int") else option.name.upper().replace("_", "-")
    return str(option.metavar or (kind if "|" in kind else fallback))


def argument_name(argument: Any) -> str:
    """`SOURCE`, `[PATH]`, `[PATH]...`, `ITEM...`."""
    name = str(argument.metavar or argument.name.upper())
    return f"{name if argument.required else f'[{name}]'}{'...' if argument.nargs == -1 else ''}"


def default_text(parameter: Any) -> str:
    """The default of an option or argument; nothing where it goes without saying."""
    default = parameter.default
    if callable(default) or default in (None, False, (), []) or not isinstance(default, str | int | float):
        return ""
    return str(getattr(default, "value", default))


def visible_parameters(command: Any, context: Any) -> Iterator[Any]:
    """Arguments and options of a command, those that all commands have at the end."""
    found = [param for param in command.get_params(context) if not getattr(param, "hidden", False)]
    yield from sorted(found, key=lambda one: one.name in COMMON_OPTIONS)


def topics_of(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The names by topic; of a group, all under one heading."""
    if set(names) <= COMMANDS.keys() and len(names) > len(TOPICS):
        yield from ((topic, [member for member in members if member in names]) for topic, members in TOPICS.items())
    else:
        yield "Commands", list(names)


def _write_page(command: Any, context: Any, formatter: Any) -> None:
    parameters = list(visible_parameters(command, context))
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    words = ["[OPTIONS]", *(["COMMAND"] if hasattr(command, "commands") else map(argument_name, arguments))]
    formatter.write_usage(context.command_path, " ".join(words))
    formatter.write_paragraph()
    formatter.write_text(_unfolded(command.help or ""))
    _write_rows(
        formatter,
        "Arguments",
        [(argument.metavar or argument.name.upper(), _meaning(argument)) for argument in arguments],
    )
    if hasattr(command, "commands"):
        for topic, names in topics_of(command.list_commands(context)):
            rows = [(name, summary_of_command(command.commands[name])) for name in names]
            _write_rows(formatter, topic, rows)
    common = [option for option in options if option.name in COMMON_OPTIONS and context.parent is not None]
    own = [option for option in options if option not in common]
    _write_rows(formatter, "Options", [(_option_names(option, context), _meaning(option)) for option in own])
    _write_rows(
        formatter,
        "Common options" if own else "Options",
        [(_option_names(option, context), _meaning(option)) for option in common],
    )
    if examples := EXAMPLES.get(_canonical(context)):
        with formatter.section(_heading("Examples")):
            formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in examples))
    if context.parent is None:
        _write_rows(formatter, "Exit codes", [(str(code), meaning) for code, meaning in EXIT_CODES])


def _canonical(context: Any) -> str:
    """The command's path without the program, in the names that are listed."""
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, context.command.name)
        context = context.parent
    return " ".join(words)


def _write_rows(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(_heading(title)):
            formatter.write_dl(rows, col_max=_NAMES_WIDTH)


def _heading(title: str) -> str:
    return typer.style(title, bold=True) if current_settings().is_colour_wanted else title


def _option_names(option: Any, context: Any) -> str:
    short = [opt for opt in option.opts if not opt.startswith("--")]
    names = ", ".join([*short, *(opt for opt in option.opts if opt not in short), *option.secondary_opts])
    return f"{names} {value_name(option, context)}".rstrip()


def _meaning(parameter: Any) -> str:
    default = default_text(parameter)
    text = "Show this page." if parameter.name == "help" else str(getattr(parameter, "help", "") or "")
    return f"{text} Default: {default}." if default and "Default:" not in text else text


def summary_of_command(command: Any) -> str:
    """The first sentence of a command's help."""
    text = " ".join(_unfolded(command.help or "").split("\n\n")[0].split())
    head, end, _ = text.partition(". ")
    return head if end else text.removesuffix(".")


def _unfolded(text: str) -> str:
    """Paragraphs without the line breaks of the source."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
