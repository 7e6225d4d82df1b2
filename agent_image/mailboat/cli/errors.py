"""`mailboat errors`: the packages that subscribers gave up, why, and how to redrive them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from mailboat.api.confirmations import REDRIVE
from mailboat.api.control import error_pages
from mailboat.api.records import GivenUpView, document_of
from mailboat.cli.command_results import AnswerOption, show_commands
from mailboat.cli.completion import SubscriberArgument, subscriber_names
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report, count_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.errors import UsageError

_REDRIVEN_AT_ONCE: Final = 1_000
_IMPORT: Final = "import"
_RETRYING: Final = "hook-retrying"
_KINDS: Final = {"hook": "imported; hook failed", _RETRYING: "imported; hook is retried"}
_TRACE_BEGINS: Final = "Traceback (most recent call last):"
COLUMNS: Final = (
    Column("SUBSCRIBER"),
    Column("OFFSET", is_number=True),
    Column("STATUS"),
    Column("ATTEMPTS", is_number=True),
    Column("PATHS"),
    Column("ERROR", can_fold=True),
)

app = command_group("errors")


@app.command("ls")
@remote_command
def list_errors(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One subscriber. Default: all.", autocompletion=subscriber_names),
    ] = None,
) -> None:
    """List the packages in the error queues, and the failed calls of the hook `after`."""
    with session.control() as control:
        pages = list(error_pages(control, name))
        found = [item for page in pages for item in page.items]
    if pages[-1].dropped:
        session.note(f"{count_text(pages[-1].dropped, 'entry')} dropped to bound the agent's memory: not listed here")
    documents = [document_of(entry) for entry in found]
    for document in documents:
        if document["error"] is not None:
            del document["error"]["trace"]  # the trace of one entry is what `errors show` is for
    session.show(
        Report(
            documents,
            [f"{entry.subscriber}/{entry.offset}" for entry in found],
            lambda: [Table(COLUMNS, [row_of(entry) for entry in found], empty="nothing was given up")],
        )
    )


@app.command("show")
@remote_command
def show(
    session: Session,
    name: SubscriberArgument,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="Offset of the package, see `errors ls`.")],
) -> None:
    """Show one package of an error queue with the traceback of its failure."""
    with session.control() as control:
        found = [item for page in error_pages(control, name) for item in page.items if item.offset == offset]
    if not found:
        raise UsageError(
            f"{name} has no error-queue entry and no failed hook call at offset {offset}",
            next_step=f"mailboat errors ls {name}",
        )
    one = min(found, key=lambda item: item.kind != _IMPORT)
    document = document_of(one)
    trace = "" if one.error is None else whole_lines(one.error.trace or "")
    if one.error is not None:
        document["error"]["trace"] = trace
    session.show(Report(document, [one.package_id or str(offset)], lambda: list(_lines(one, trace))))


def _lines(one: GivenUpView, trace: str) -> Iterator[str]:
    yield f"package   {one.package_id or ABSENT} at offset {one.offset}, from {one.publisher or ABSENT}"
    hidden = one.path_count - len(one.paths)
    more = f" … {hidden:,} more" if hidden > 0 else ""
    yield f"paths     {' '.join(one.paths) or ABSENT}{more}"
    yield f"status    {_status_text(one)}" + (f" after {count_text(one.attempts, 'attempt')}" if one.attempts else "")
    if one.error is not None:
        yield f"error     {one.error.code}: {one.error.message}"
        yield from ([f"path      {one.error.path}"] if one.error.path else [])
    yield from (f"          {line}" for line in trace.splitlines())
    if one.kind != _RETRYING:
        yield f"next      mailboat errors redrive {one.subscriber} {one.offset}"


@app.command("redrive", asks=REDRIVE)
@remote_command
def redrive(
    session: Session,
    name: SubscriberArgument,
    offsets: Annotated[list[int] | None, typer.Argument(metavar="OFFSET", help="Offsets of the packages.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All entries that `errors ls NAME` lists.")] = False,
    wait: AnswerOption = 0.0,
) -> None:
    """Retry failed packages and hook calls of a subscriber."""
    if everything is bool(offsets):
        raise UsageError("specify offsets or --all", next_step=f"mailboat errors ls {name}")
    with session.control() as control:
        pages = list(error_pages(control, name)) if everything else []
        wanted = [item.offset for page in pages for item in page.items if item.kind != _RETRYING] or list(offsets or ())
        answers = [
            answer
            for start in range(0, len(wanted), _REDRIVEN_AT_ONCE)
            for answer in control.redrive(name, wanted[start : start + _REDRIVEN_AT_ONCE], wait)
        ]
    show_commands(session, answers, wait, empty="nothing was given up")


def whole_lines(excerpt: str) -> str:
    """The end of a trace without the rest of a line that its beginning was cut in."""
    first, _, rest = excerpt.partition("\n")
    return excerpt if first.startswith(_TRACE_BEGINS) or not rest else rest


def row_of(one: GivenUpView) -> list[str]:
    """The columns of a package in the table of `errors ls`."""
    return [
        one.subscriber,
        str(one.offset),
        _status_text(one),
        ABSENT if one.attempts is None else str(one.attempts),
        " ".join(one.paths[:2]) + (" …" if max(len(one.paths), one.path_count) > 2 else ""),
        ABSENT if one.error is None else f"{one.error.code}: {one.error.message}",
    ]


def _status_text(one: GivenUpView) -> str:
    return _KINDS.get(one.kind) or f"given up {time_text(one.given_up_at) or ''}".rstrip()
