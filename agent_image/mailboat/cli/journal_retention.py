"""`mailboat journal retention`: who holds packages back, where the head would go, and its move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from mailboat.api.archive import RetentionView
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report, bytes_text, count_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table

_COLUMNS = (
    Column("SUBSCRIBER"),
    Column("KEPT FOR"),
    Column("POSITION", is_number=True),
    Column("HOLDS", is_number=True),
    Column("LAST SEEN", is_number=True),
)


def register(group: typer.Typer) -> None:
    """Add the command to `mailboat journal`."""
    group.command("retention")(retention)


@remote_command
def retention(
    session: Session,
    apply: Annotated[bool, typer.Option("--apply", help="Move the head there now.")] = False,
) -> None:
    """Show the subscribers that hold packages back, and the first offset that retention by consumption keeps."""
    with session.archive() as archive:
        document = _document(archive.retention(is_applied=apply))
    session.show(Report(document, [str(document["head"])], lambda: [*_lines(document), _table(document)]))


def _document(found: RetentionView) -> dict[str, Any]:
    return {
        "enabled": found.enabled,
        "applied": found.applied,
        "earliest": found.earliest_offset,
        "next": found.next_offset,
        "head": found.head,
        "reason": found.reason,
        "freed_bytes": found.freed_bytes,
        "losers": list(found.losers),
        "dropped": list(found.dropped),
        "subscribers": [
            {
                "name": subscriber.name,
                "durable": subscriber.durable,
                "position": subscriber.next_offset,
                "holds": max(0, found.next_offset - subscriber.next_offset),
                "announced_at": time_text(subscriber.announced_at),
                "silent_seconds": subscriber.silent_seconds,
            }
            for subscriber in found.subscribers
        ],
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    """What was decided, and why."""
    head, earliest = document["head"], document["earliest"]
    count = count_text(head - earliest, "package message")
    moved = "removed" if document["applied"] else "could go"
    yield f"head       {earliest} of {document['next']}: {document['reason']}"
    if head > earliest:
        yield f"{moved:<9}  {count} before {head}, about {bytes_text(document['freed_bytes'])}"
    for name in document["losers"]:
        yield f"loses      {name}: its position is before {head}; it will stop as JournalTrimmed"
    for name in document["dropped"]:
        yield f"dropped    {name}: silent for too long, deregistered"
    if not document["enabled"]:
        yield "config     retention.consumption.policy is off: agents do not apply this automatically"


def _table(document: dict[str, Any]) -> Table:
    rows = [
        [
            holder["name"],
            "ever, it is durable" if holder["durable"] else "as long as it is alive",
            str(holder["position"]),
            str(holder["holds"]) if holder["holds"] else ABSENT,
            f"{seconds_text(holder['silent_seconds'])} ago",
        ]
        for holder in document["subscribers"]
    ]
    return Table(_COLUMNS, rows, empty="no subscriber is known")
