"""`mailboat publishers`: the publishers of a home or an agent."""

from __future__ import annotations

from typing import Final

import typer

from mailboat.api.records import PublisherView, document_of
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table, state_style

_COLUMNS: Final = (
    Column("PUBLISHER"),
    Column("QUEUES", style=state_style),
    Column("LAST PUBLISHED"),
    Column("HELD BACK", is_number=True),
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("publishers")
    group.command("ls")(list_publishers)
    app.add_typer(group)


@remote_command
def list_publishers(session: Session) -> None:
    """List the publishers with the state of their queues and their last publication."""
    with session.control() as control:
        found = control.status().publishers
    table = Table(_COLUMNS, [_row(publisher) for publisher in found], empty="no publisher is known")
    session.show(Report(document_of(found), [publisher.name for publisher in found], lambda: [table]))


def _row(one: PublisherView) -> list[str]:
    return [
        one.name,
        ABSENT if one.state is None else one.state,
        time_text(one.last_published_at) or ABSENT,
        seconds_text(one.delay_seconds) if one.delay_seconds else ABSENT,
    ]
