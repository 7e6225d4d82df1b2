"""`mailboat publishers`: the publishers of a home or an agent."""

from __future__ import annotations

from typing import Final

from mailboat.api.records import document_of
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

app = command_group("publishers")


@app.command("ls")
@remote_command
def list_publishers(session: Session) -> None:
    """List the publishers with the state of their queues and their last publication."""
    with session.control() as control:
        found = control.status().publishers
    rows = [
        (
            publisher.name,
            publisher.state or ABSENT,
            time_text(publisher.last_published_at) or ABSENT,
            seconds_text(publisher.delay_seconds) if publisher.delay_seconds else ABSENT,
        )
        for publisher in found
    ]
    table = Table(_COLUMNS, rows, empty="no publisher is known")
    session.show(Report(document_of(found), [publisher.name for publisher in found], lambda: [table]))
