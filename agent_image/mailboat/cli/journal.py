"""`mailboat journal`: look into the log, check it, cut it; `journal_setup` makes and measures it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from mailboat.api.archive import MAX_RECORDS, Archive, RecordView, TopicView, TruncationView, VerificationView
from mailboat.api.records import document_of
from mailboat.cli import journal_retention, journal_setup
from mailboat.cli.confirmation import ask
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report, count_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.errors import UsageError
from mailboat.model.messages import TopicRole

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


@remote_command
def topics(session: Session) -> None:
    """List the topics with their offsets, size and log id."""
    with session.archive() as archive:
        rows = [_topic(topic) for topic in archive.topics()]
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


def _topic(one: TopicView) -> dict[str, Any]:
    return {
        "topic": one.name,
        "role": one.role,
        "earliest": one.earliest_offset,
        "next": one.next_offset,
        "messages": one.next_offset - one.earliest_offset,
        "identity": one.identity or ABSENT,
    }


@remote_command
def show(
    session: Session,
    offset: Annotated[
        int | None, typer.Argument(metavar="OFFSET", help="First offset to show. Default: the last messages.")
    ] = None,
    topic: TopicOption = TopicRole.PACKAGE,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")] = 20,
) -> None:
    """Show messages: offset, time, content."""
    with session.archive() as archive:
        found = list(_records(archive, topic, offset, limit))
    rows = [{**document_of(record), "appended_at": time_text(record.appended_at)} for record in found]
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
                    empty=f"no messages on {topic}",
                )
            ],
        )
    )


def _records(archive: Archive, topic: TopicRole, offset: int | None, limit: int) -> Iterator[RecordView]:
    """The messages, asked for in pieces that an agent gives in one answer."""
    if offset is None and limit > MAX_RECORDS:
        end = next((view for view in archive.topics() if view.role == topic), None)
        if end is None or end.next_offset == end.earliest_offset:
            return
        offset = max(end.earliest_offset, end.next_offset - limit)
    while limit > 0:
        wanted = min(limit, MAX_RECORDS)
        found = archive.records(topic.value, offset, wanted)
        yield from found
        limit -= len(found)
        if len(found) < wanted or limit <= 0:
            return
        offset = found[-1].offset + 1
        if offset >= next(view.next_offset for view in archive.topics() if view.role == topic):
            return


@remote_command
def verify(
    session: Session,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every blob as well.")] = False,
) -> None:
    """Check the whole journal: identity, order, digests, referenced blobs. Exits 1 if it finds a problem."""
    with session.archive() as archive:
        found = archive.verify(reads_blobs=deep)
    session.show(_verification(found))
    if found.problem_count:
        raise typer.Exit(1)


def _verification(found: VerificationView) -> Report:
    checked = f"{count_text(found.messages, 'message')} and {count_text(found.blobs, 'blob')} checked"
    if found.blobs and not found.blobs_read:
        checked += " (of blobs that they are there; their bytes are read by --deep)"
    columns = (Column("TOPIC"), Column("OFFSET", is_number=True), Column("PROBLEM", can_fold=True))
    cells = [
        [problem.topic, ABSENT if problem.offset is None else str(problem.offset), problem.problem]
        for problem in found.problems
    ]
    more = found.problem_count - len(found.problems)
    checked += f"; {count_text(more, 'problem')} more" if more else ""
    return Report(
        document_of(found),
        [f"{problem.topic}/{ABSENT if problem.offset is None else problem.offset}" for problem in found.problems],
        lambda: [Table(columns, cells), checked] if cells else [f"{checked}, no problems found"],
    )


@remote_command
def truncate(
    session: Session,
    before: Annotated[int | None, typer.Option("--before", min=0, help="First offset to keep.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Remove what is older than the retention.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    topic: TopicOption = TopicRole.PACKAGE,
) -> None:
    """Remove the oldest messages. Lists the subscribers that would lose packages, and asks first."""
    if (before is None) is not expired:
        raise UsageError("specify --before OFFSET or --expired")
    with session.archive() as archive:
        if before is None:
            _remove_expired(session, archive)
            return
        planned = archive.truncate(topic.value, before)
        if planned.before != before:
            border = planned.before
            session.note(f"{before} is in the midst of a package in pieces, which begins at {border}: it stays whole")
        for subscriber in planned.cut_off:
            session.note(
                f"would be cut off, and stop as JournalTrimmed: {subscriber.name} is at offset {subscriber.next_offset}"
            )
        question = f"Remove the messages of {planned.topic} before offset {planned.before}?"
        ask(question, "nothing was removed", is_sure=yes)
        _show_truncation(session, archive.truncate(topic.value, planned.before, is_dry_run=False))


def _remove_expired(session: Session, archive: Archive) -> None:
    found = archive.remove_expired()
    if found.automatic:
        session.note("this log applies retention itself; the topics have the configured limits")
    removed = count_text(found.removed, "message")
    session.show(Report({"removed": found.removed}, [], lambda: [f"{removed} removed"]))


def _show_truncation(session: Session, found: TruncationView) -> None:
    document = {
        "topic": found.topic,
        "removed": found.removed,
        "earliest": found.earliest_offset,
        "next": found.next_offset,
        "cut_off": [subscriber.name for subscriber in found.cut_off],
    }
    session.show(
        Report(
            document,
            [found.topic],
            lambda: [
                f"{found.topic}: {count_text(found.removed, 'message')} removed",
                f"oldest {found.earliest_offset}, next {found.next_offset}",
            ],
        )
    )
