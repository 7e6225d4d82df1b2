"""`mailboat journal retention`: who holds packages back, where the head would go, and its move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from mailboat.cli.options import command
from mailboat.cli.output import ABSENT, Column, Report, Table, bytes_text, count_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.clock import moment_of
from mailboat.maintenance.retention import is_retention_by_consumption, retention_turn
from mailboat.retention.task import Turn

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


@command
def retention(
    session: Session,
    apply: Annotated[bool, typer.Option("--apply", help="Move the head there now.")] = False,
) -> None:
    """Show the subscribers that hold packages back, and where retention by consumption would put the head."""
    with session.workspace() as workspace:
        turn = retention_turn(workspace, is_applied=apply)
        now_ms = int(workspace.clock.now().timestamp() * 1000)
        is_on = is_retention_by_consumption(workspace)
    document = _document(turn, now_ms, is_applied=apply, is_on=is_on)
    session.show(Report(document, [str(turn.plan.head)], lambda: [*_lines(document), _table(document)]))


def _document(turn: Turn, now_ms: int, *, is_applied: bool, is_on: bool) -> dict[str, Any]:
    return {
        "enabled": is_on,
        "applied": is_applied,
        "earliest": turn.bounds.earliest_offset,
        "next": turn.bounds.next_offset,
        "head": turn.plan.head,
        "reason": str(turn.plan.reason),
        "freed_bytes": turn.freed_bytes,
        "losers": [one.name for one in turn.plan.losers],
        "dropped": [one.name for one in turn.dropped],
        "subscribers": [
            {
                "name": one.name,
                "durable": is_durable,
                "position": one.next_offset,
                "holds": max(0, turn.bounds.next_offset - one.next_offset),
                "announced_at": time_text(moment_of(one.heard_ms)),
                "silent_seconds": max(0, now_ms - one.heard_ms) / 1000,
            }
            for one, is_durable in turn.registrations
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
        yield "config     retention.consumption.policy is off: agents do not apply this by themselves"


def _table(document: dict[str, Any]) -> Table:
    rows = [
        [
            one["name"],
            "ever, it is durable" if one["durable"] else "as long as it is alive",
            str(one["position"]),
            str(one["holds"]) if one["holds"] else ABSENT,
            f"{seconds_text(one['silent_seconds'])} ago",
        ]
        for one in document["subscribers"]
    ]
    return Table(_COLUMNS, rows, empty="no subscriber is known")
