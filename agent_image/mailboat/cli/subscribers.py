"""`mailboat subscribers`: the subscriber registry."""

from __future__ import annotations

from typing import Annotated

import typer

from mailboat.api.records import document_of
from mailboat.cli.completion import subscriber_names
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.cli.status_board import subscriber_table


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("subscribers", "Manage the subscriber registry.")
    group.command("ls")(list_subscribers)
    group.command("forget")(forget)
    app.add_typer(group)


@remote_command
def list_subscribers(session: Session) -> None:
    """List the known subscribers: state, position, lag."""
    with session.control() as control:
        found = control.status().subscribers
    session.show(Report(document_of(found), [one.name for one in found], lambda: [subscriber_table(found)]))


@remote_command
def forget(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the subscriber.", autocompletion=subscriber_names)
    ],
) -> None:
    """Deregister a subscriber permanently: retention and queues stop waiting for it. Its target is kept."""
    with session.control() as control:
        found = control.forget(name)
    target = f"; its target {found.target} is untouched" if found.target else ""
    session.show(Report(document_of(found), [found.name], lambda: [f"{found.name} is forgotten{target}"]))
