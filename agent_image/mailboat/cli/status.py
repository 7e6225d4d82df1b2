"""`mailboat status`: the journal, its publishers, and how far every subscriber is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mailboat.cli.declaring import command
from mailboat.cli.rendering import (
    ABSENT,
    Column,
    Output,
    Report,
    Table,
    bytes_text,
    count_text,
    seconds_text,
    time_text,
)
from mailboat.cli.session import Session
from mailboat.model.identifiers import AgentName, Offset

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.subscribers import SubscriberView

COLUMNS = (
    Column("SUBSCRIBER"),
    Column("STATE"),
    Column("POSITION", is_number=True),
    Column("LAG", is_number=True),
    Column("RATE", is_number=True),
    Column("ETA", is_number=True),
    Column("ATTEMPTS", is_number=True),
    Column("ERROR", can_fold=True),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


@command
def status(
    session: Session,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks of --watch.")] = 1.0,
) -> None:
    """Show the journal, its publishers, and how far every subscriber is."""
    pause = threading.Event()
    with session.workspace() as workspace:
        while True:
            report = status_report(workspace)
            if watch and sys.stdout.isatty() and session.output is Output.TABLE:
                sys.stdout.write("\x1b[H\x1b[2J")
            session.show(report)
            if not watch:
                return
            workspace.clock.wait(pause, every)


def status_report(workspace: Workspace) -> Report:
    """What there is to say now."""
    from mailboat.agent.subscribers import audience
    from mailboat.agent.upkeep import journal_bytes, last_published

    now_ms = int(workspace.clock.now().timestamp() * 1000)
    bounds = workspace.journal.bounds(workspace.package_topic)
    heard, published = audience(workspace), last_published(workspace)
    subscribers = [subscriber_document(view, bounds.next_offset) for view in heard.views]
    document: dict[str, Any] = {
        "journal": {
            "description": workspace.journal.description,
            "oldest": bounds.earliest_offset,
            "next": bounds.next_offset,
            "bytes": journal_bytes(workspace),
            "retention_seconds": workspace.home.config.retention.package_seconds,
        },
        "publishers": [{"name": name, "last_published_at": time_text(at_ms)} for name, at_ms in published.items()],
        "subscribers": subscribers,
        "unreadable_announcements": heard.unreadable,
    }
    return Report(
        document,
        [view.name for view in heard.views],
        lambda: [
            _journal_line(document["journal"]),
            *_publisher_lines(published, now_ms),
            *_unreadable_lines(heard.unreadable),
            _table(subscribers),
        ],
    )


def subscriber_document(view: SubscriberView, next_of_log: Offset) -> dict[str, Any]:
    """A subscriber for JSON and YAML."""
    lag = view.lag(next_of_log)
    cause = view.cause
    return {
        "name": view.name,
        "state": view.state,
        "position": view.next_offset,
        "lag": lag,
        "rate_per_second": None if view.rate_per_second is None else round(view.rate_per_second, 1),
        "eta_seconds": None if not lag or view.rate_per_second is None else round(lag / view.rate_per_second, 1),
        "attempts": view.attempts,
        "max_retries": view.max_retries,
        "target": view.target,
        "heard_at": time_text(view.heard_ms),
        "given_up": view.given_up,
        "error": None if cause is None else {"code": cause.code, "message": cause.message, "path": cause.path},
    }


def _journal_line(journal: dict[str, Any]) -> str:
    kept = journal["retention_seconds"]
    return (
        f"journal    {journal['description']}   oldest {journal['oldest']}   next {journal['next']}   "
        f"{bytes_text(journal['bytes'])}   kept {'for ever' if kept is None else seconds_text(kept)}"
    )


def _publisher_lines(found: Mapping[AgentName, int | None], now_ms: int) -> Sequence[str]:
    width = max((len(name) for name in found), default=0)
    return [
        f"publisher  {name:<{width}}   "
        + ("nothing published lately" if at_ms is None else f"last published {_ago_text(now_ms - at_ms)}")
        for name, at_ms in found.items()
    ]


def _unreadable_lines(count: int) -> Sequence[str]:
    if not count:
        return []
    return [f"discovery  {count_text(count, 'message')} can't be understood: see mailboat journal verify"]


def _ago_text(milliseconds: int) -> str:
    return f"{seconds_text(max(0, milliseconds) / 1000)} ago"


def _table(subscribers: Sequence[dict[str, Any]]) -> Table:
    return Table(COLUMNS, [_row(one) for one in subscribers], empty="no subscriber is known")


def _row(one: dict[str, Any]) -> list[str]:
    rate, eta, error = one["rate_per_second"], one["eta_seconds"], one["error"]
    return [
        one["name"],
        one["state"],
        _number(one["position"]),
        _number(one["lag"]),
        ABSENT if rate is None else f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s",
        ABSENT if eta is None else seconds_text(eta),
        _attempts(one["attempts"], one["max_retries"]),
        "; ".join([*([] if error is None else [error_text(error)]), *_given_up_texts(one)]),
    ]


def _given_up_texts(one: dict[str, Any]) -> Sequence[str]:
    return [given_up_text(one["given_up"], one["name"])] if one["given_up"] else []


def given_up_text(count: int, name: str) -> str:
    """How many packages a subscriber gave up, and where to look."""
    return f"{count} given up: see mailboat errors list {name}"


def _number(value: int | None) -> str:
    return ABSENT if value is None else str(value)


def _attempts(attempts: int, max_retries: int | None) -> str:
    if not attempts:
        return ABSENT
    return str(attempts) if max_retries is None else f"{attempts} of {max_retries + 1}"


def error_text(error: dict[str, Any]) -> str:
    """A cause in one line: code, path, message."""
    path = f"{error['path']}: " if error["path"] else ""
    return f"{error['code']}: {path}{error['message']}"
