"""`mailboat errors`: the packages that subscribers gave up, why, and their way back in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mailboat.cli.completion import subscriber_names
from mailboat.cli.declaring import command
from mailboat.cli.rendering import ABSENT, Column, Report, Table, count_text, time_text
from mailboat.cli.session import Session
from mailboat.errors import SourceMissingError, UsageError
from mailboat.model.identifiers import AgentName, Offset, parse_agent_name

if TYPE_CHECKING:
    from mailboat.agent.home import Home, KnownSubscriber
    from mailboat.content.port import GivenUp

_TRACE_BEGINS = "Traceback (most recent call last):"

NameArgument = Annotated[str, typer.Argument(help="Name of the subscriber.", autocompletion=subscriber_names)]
OffsetArgument = Annotated[int, typer.Argument(help="Offset of the package, as `errors list` shows it.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(name="errors", help="Packages given up, and their way back in.", no_args_is_help=True)
    group.command("list")(list_errors)
    group.command("show")(show)
    group.command("redrive")(redrive)
    app.add_typer(group)


@command
def list_errors(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(help="One subscriber; all when left out.", autocompletion=subscriber_names)
    ] = None,
) -> None:
    """List the packages that were given up."""
    home = session.home()
    found = [(known.name, entry) for known in _subscribers(home, name) for entry in _entries(known)]
    rows = [_without_trace(error_document(one, entry)) for one, entry in found]
    columns = ("SUBSCRIBER", "OFFSET", "GIVEN UP", "ATTEMPTS", "PATHS", "ERROR")
    session.show(
        Report(
            rows,
            [f"{row['subscriber']}/{row['offset']}" for row in rows],
            lambda: [
                Table(
                    [Column(one, is_number=one in {"OFFSET", "ATTEMPTS"}, can_fold=one == "ERROR") for one in columns],
                    [_row(row) for row in rows],
                    empty="nothing was given up",
                )
            ],
        )
    )


@command
def show(session: Session, name: NameArgument, offset: OffsetArgument) -> None:
    """Show one package that was given up, with the trace of its failure."""
    (known,) = _subscribers(session.home(), name)
    entry = _entry(known, offset)
    document = error_document(known.name, entry)
    trace = document["error"]["trace"] = whole_lines(document["error"]["trace"] or "")
    session.show(
        Report(
            document,
            [entry.package_id],
            lambda: [
                f"package   {entry.package_id} at offset {entry.offset}, from {entry.pub_agent_name or ABSENT}",
                f"paths     {' '.join(entry.paths) or ABSENT}",
                f"given up  {document['given_up_at']} after {count_text(entry.attempts, 'attempt')}",
                f"error     {entry.cause.code}: {entry.cause.message}",
                *([f"path      {entry.cause.path}"] if entry.cause.path else []),
                *(f"          {line}" for line in trace.splitlines()),
                f"next      mailboat errors redrive {known.name} {entry.offset}",
            ],
        )
    )


@command
def redrive(
    session: Session,
    name: NameArgument,
    offsets: Annotated[list[int] | None, typer.Argument(metavar="OFFSET", help="Which packages.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that this subscriber gave up.")] = False,
) -> None:
    """Ask a subscriber to import given-up packages after all. It does so while it runs, or when it starts."""
    if everything is bool(offsets):
        raise UsageError("either offsets or --all says which packages", next_step=f"mailboat errors list {name}")
    (known,) = _subscribers(session.home(), name)
    wanted = [entry.offset for entry in _entries(known)] if everything else [Offset(one) for one in offsets or ()]
    from mailboat.agent.locations import opened_ledger

    with opened_ledger(known.target) as ledger:
        for offset in wanted:
            ledger.request_redrive(offset)
    session.show(
        Report(
            {"subscriber": known.name, "redriven": wanted},
            [f"{known.name}/{offset}" for offset in wanted],
            lambda: [f"{known.name}: {count_text(len(wanted), 'package')} asked for again"],
        )
    )


def _subscribers(home: Home, name: str | None) -> Sequence[KnownSubscriber]:
    """One subscriber, or all. Raises: UsageError for a name that this home does not know."""
    if name is None:
        return home.known_subscribers()
    known = home.known_subscriber(parse_agent_name(name))
    if known is None:
        names = ", ".join(one.name for one in home.known_subscribers())
        raise UsageError(f"no subscriber {name} was started from this home", known=names or "none")
    return [known]


def _entries(known: KnownSubscriber) -> Sequence[GivenUp]:
    from mailboat.agent.locations import opened_ledger

    try:
        with opened_ledger(known.target) as ledger:
            return ledger.given_up()
    except SourceMissingError:  # registered, but its target was never made, or was removed
        return []


def _entry(known: KnownSubscriber, offset: int) -> GivenUp:
    for entry in _entries(known):
        if entry.offset == offset:
            return entry
    raise UsageError(
        f"{known.name} did not give up a package at offset {offset}", next_step=f"mailboat errors list {known.name}"
    )


def error_document(name: AgentName, entry: GivenUp) -> dict[str, Any]:
    """An entry of an error queue for JSON and YAML."""
    return {
        "subscriber": name,
        "offset": entry.offset,
        "package_id": entry.package_id,
        "publisher": entry.pub_agent_name,
        "paths": list(entry.paths),
        "given_up_at": time_text(entry.given_up_ms),
        "attempts": entry.attempts,
        "error": {
            "code": entry.cause.code,
            "message": entry.cause.message,
            "path": entry.cause.path,
            "trace": entry.cause.trace_excerpt,
        },
    }


def _without_trace(document: dict[str, Any]) -> dict[str, Any]:
    """For a list: the trace of one entry is what `errors show` is for."""
    return {**document, "error": {key: value for key, value in document["error"].items() if key != "trace"}}


def whole_lines(excerpt: str) -> str:
    """The end of a trace without the rest of a line that its beginning was cut in."""
    first, _, rest = excerpt.partition("\n")
    return excerpt if first.startswith(_TRACE_BEGINS) or not rest else rest


def _row(row: dict[str, Any]) -> list[str]:
    paths, error = row["paths"], row["error"]
    return [
        row["subscriber"],
        str(row["offset"]),
        row["given_up_at"],
        str(row["attempts"]),
        " ".join(paths[:2]) + (" …" if len(paths) > 2 else ""),
        f"{error['code']}: {error['message']}",
    ]
