"""`mailboat journal`: look into the log, check it, cut it; `journal_setup` makes and measures it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from mailboat.cli import journal_retention, journal_setup
from mailboat.cli.declaring import command
from mailboat.cli.help_page import command_group
from mailboat.cli.questions import ask
from mailboat.cli.rendering import ABSENT, Column, Report, Table, count_text, time_text
from mailboat.cli.session import Session
from mailboat.clock import moment_of
from mailboat.composition.workspace import Workspace
from mailboat.control.subscriber_directory import Member, members_below, position_findings
from mailboat.errors import MailboatError, UsageError
from mailboat.journal.port import Record, Start
from mailboat.maintenance.schedule import remove_expired
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import TopicRole
from mailboat.operations.inspection import (
    Finding,
    Verification,
    decode_record,
    journal_damage,
    records_of,
    summary_of,
    verify_journal,
)
from mailboat.retention.borders import whole_package_border

TopicOption = Annotated[TopicRole, typer.Option("--topic", help="Which topic.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("journal", "Inspect, check, truncate and measure the log.")
    group.command("topics")(topics)
    group.command("show")(show)
    group.command("verify")(verify)
    group.command("truncate")(truncate)
    journal_setup.register(group)
    journal_retention.register(group)
    app.add_typer(group)


@command
def topics(session: Session) -> None:
    """List the topics with their offsets, size and log id."""
    with session.workspace() as workspace:
        rows = [_topic(workspace, role) for role in TopicRole]
    columns = ("TOPIC", "OLDEST", "NEXT", "MESSAGES", "IDENTITY")
    session.show(
        Report(
            rows,
            [row["topic"] for row in rows],
            lambda: [
                Table(
                    [Column(title, is_number=title in {"OLDEST", "NEXT", "MESSAGES"}) for title in columns],
                    [[str(row[key]) for key in ("topic", "earliest", "next", "messages", "identity")] for row in rows],
                )
            ],
        )
    )


def _topic(workspace: Workspace, role: TopicRole) -> dict[str, Any]:
    topic = workspace.topic(role)
    bounds = workspace.journal.bounds(topic)
    return {
        "topic": topic,
        "role": str(role),
        "earliest": bounds.earliest_offset,
        "next": bounds.next_offset,
        "messages": bounds.count,
        "identity": str(workspace.journal.identity(topic)),
    }


@command
def show(
    session: Session,
    offset: Annotated[
        int | None, typer.Argument(metavar="OFFSET", help="First offset to show. Default: the last messages.")
    ] = None,
    topic: TopicOption = TopicRole.PACKAGE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")] = 20,
) -> None:
    """Show messages: offset, time, content."""
    with session.workspace() as workspace:
        name = workspace.topic(topic)
        found = _records(workspace, name, _start(workspace, name, offset, limit), limit)
    rows = [_message(record, is_event=topic is TopicRole.EVENT) for record in found]
    session.show(
        Report(
            rows,
            [str(row["offset"]) for row in rows],
            lambda: [
                Table(
                    (
                        Column("OFFSET", is_number=True),
                        Column("APPENDED"),
                        Column("TYPE"),
                        Column("SAYS", can_fold=True),
                    ),
                    [[str(row[key]) for key in ("offset", "appended_at", "type", "summary")] for row in rows],
                    empty=f"no messages on {name}",
                )
            ],
        )
    )


def _start(workspace: Workspace, topic: TopicName, offset: int | None, limit: int) -> Start:
    bounds = workspace.journal.bounds(topic)
    if offset is not None:
        if not bounds.earliest_offset <= offset < bounds.next_offset:
            held = f"offsets {bounds.earliest_offset} to {bounds.next_offset - 1}" if bounds.count else "no messages"
            raise UsageError(
                f"there is no message at offset {offset}: {topic} holds {held}", next_step="mailboat journal show"
            )
        return Offset(offset)
    return Offset(max(bounds.earliest_offset, bounds.next_offset - limit))


def _records(workspace: Workspace, topic: TopicName, start: Start, limit: int) -> list[Record]:

    return list(islice(records_of(workspace.journal, topic, start), limit))


def _message(record: Record, *, is_event: bool) -> dict[str, Any]:

    try:
        message = decode_record(record, is_event=is_event)
        kind, summary = type(message).__name__.removesuffix("Message"), summary_of(message)
    except MailboatError as error:
        kind, summary = "unreadable", str(error)
    return {
        "offset": record.offset,
        "appended_at": time_text(moment_of(record.appended_ms)),
        "type": kind,
        "bytes": len(record.value),
        "summary": summary,
    }


@command
def verify(
    session: Session,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every blob as well.")] = False,
) -> None:
    """Check the whole journal: identity, order, digests, blobs referred to. Exit code 1 when something does not fit."""
    with session.workspace() as workspace:
        found = verify_journal(
            workspace.journal,
            [workspace.topic(role) for role in TopicRole],
            workspace.blobs,
            event_topic=workspace.topic(TopicRole.EVENT),
            reads_blobs=deep,
        )
        findings = [*found.findings, *journal_damage(workspace.journal), *position_findings(workspace)]
    session.show(_verification(found, findings, is_deep=deep))
    if findings:
        raise typer.Exit(1)


def _verification(found: Verification, findings: list[Finding], *, is_deep: bool) -> Report:
    rows = [{"topic": one.topic, "offset": one.offset, "problem": one.problem} for one in findings]
    checked = f"{count_text(found.records, 'message')} and {count_text(found.blobs, 'blob')} checked"
    if found.blobs and not is_deep:
        checked += " (of blobs that they are there; their bytes are read by --deep)"
    columns = (Column("TOPIC"), Column("OFFSET", is_number=True), Column("PROBLEM", can_fold=True))
    cells = [[one.topic, ABSENT if one.offset is None else str(one.offset), one.problem] for one in findings]
    return Report(
        {"messages": found.records, "blobs": found.blobs, "blobs_read": is_deep, "problems": rows},
        [f"{one.topic}/{ABSENT if one.offset is None else one.offset}" for one in findings],
        lambda: [Table(columns, cells), checked] if findings else [f"{checked}, no problems found"],
    )


@command
def truncate(
    session: Session,
    before: Annotated[int | None, typer.Option("--before", min=0, help="First offset to keep.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Remove what is older than the retention.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    topic: TopicOption = TopicRole.PACKAGE,
) -> None:
    """Remove the oldest messages, after listing the subscribers that would lose packages and asking."""
    if (before is None) is not expired:
        raise UsageError("either --before OFFSET or --expired says what to remove")
    with session.workspace() as workspace:
        if before is None:
            removed = remove_expired(workspace)
            if workspace.journal.upkeep.is_automatic:
                session.note("this log removes what expired by itself; the topics are told how long to keep it")
            session.show(Report({"removed": removed}, [], lambda: [f"{count_text(removed, 'message')} removed"]))
            return
        _truncate(session, workspace, topic, Offset(before), is_sure=yes)


def _truncate(session: Session, workspace: Workspace, role: TopicRole, before: Offset, *, is_sure: bool) -> None:

    name = workspace.topic(role)
    end = workspace.journal.bounds(name).next_offset
    if before > end:
        raise UsageError(
            f"offset {before} is beyond the end of {name}, {end}", next_step=f"--before {end} removes all messages"
        )
    behind: Sequence[Member] = ()
    if role is TopicRole.PACKAGE:
        border = whole_package_border(workspace.journal, name, before, workspace.clock)
        if border != before:
            session.note(f"{before} is in the midst of a package in pieces, which begins at {border}: it stays whole")
        before, behind = border, members_below(workspace, border)
    _ask(session, [f"{one.name} stands at {one.next_offset}" for one in behind], name, before, is_sure=is_sure)
    old = workspace.journal.bounds(name)
    new = workspace.journal.truncate(name, before)
    removed = new.earliest_offset - old.earliest_offset
    document = {
        "topic": name,
        "removed": removed,
        "earliest": new.earliest_offset,
        "next": new.next_offset,
        "cut_off": [one.name for one in behind],
    }
    session.show(
        Report(
            document,
            [name],
            lambda: [
                f"{name}: {count_text(removed, 'message')} removed",
                f"oldest {new.earliest_offset}, next {new.next_offset}",
            ],
        )
    )


def _ask(session: Session, behind: list[str], topic: str, before: int, *, is_sure: bool) -> None:
    """Say who would be cut off, and go on only when a person says so. Raises: as `ask`."""
    for one in behind:
        session.note(f"would be cut off, and stop as JournalTrimmed: {one}")
    ask(f"Remove the messages of {topic} before offset {before}?", "nothing was removed", is_sure=is_sure)
