"""`mailboat subscribers`: the subscriber registry."""

from __future__ import annotations

from typing import Annotated

import typer

from mailboat.api.confirmations import FORGET, SUSPEND
from mailboat.api.records import document_of
from mailboat.cli.command_results import AnswerOption, show_commands
from mailboat.cli.completion import SubscriberArgument
from mailboat.cli.help_page import command_group
from mailboat.cli.options import parse_duration_ms, remote_command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.cli.status_board import subscriber_table

app = command_group("subscribers")


@app.command("ls")
@remote_command
def list_subscribers(session: Session) -> None:
    """List the known subscribers: state, position, lag."""
    with session.control() as control:
        found = control.status().subscribers
    session.show(
        Report(document_of(found), [subscriber.name for subscriber in found], lambda: [subscriber_table(found)])
    )


@app.command("suspend", asks=SUSPEND)
@remote_command
def suspend(
    session: Session,
    name: SubscriberArgument,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Resume after this time, such as 1h. Default: when resumed."),
    ] = None,
    wait: AnswerOption = 0.0,
) -> None:
    """Suspend a subscriber's imports."""
    seconds = None if duration is None else parse_duration_ms(duration) / 1000
    with session.control() as control:
        answer = control.suspend(name, seconds, wait)
    show_commands(session, [answer], wait)


@app.command("resume")
@remote_command
def resume(session: Session, name: SubscriberArgument, wait: AnswerOption = 0.0) -> None:
    """Resume a subscriber's imports."""
    with session.control() as control:
        answer = control.resume(name, wait)
    show_commands(session, [answer], wait)


@app.command("forget", asks=FORGET)
@remote_command
def forget(session: Session, name: SubscriberArgument) -> None:
    """Deregister a subscriber permanently."""
    with session.control() as control:
        found = control.forget(name)
    target = f"; its target {found.target} is untouched" if found.target else ""
    session.show(Report(document_of(found), [found.name], lambda: [f"{found.name} is forgotten{target}"]))
