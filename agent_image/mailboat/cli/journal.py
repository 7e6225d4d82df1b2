"""`mailboat journal`: inspect, check, truncate, create and measure the log. JSON has the records of the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from mailboat.api.archive import (
    MAX_RECORDS,
    Archive,
    JournalFigures,
    Latency,
    RecordView,
    RetentionView,
    TopicCheck,
    VerificationView,
)
from mailboat.api.orders import BenchOrder
from mailboat.api.records import document_of
from mailboat.cli.confirmation import SureOption, ask
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import Block, Report, bytes_text, count_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.errors import UsageError
from mailboat.model.messages import TopicRole

_RETAINER_COLUMNS: Final = (
    Column("SUBSCRIBER"),
    Column("KEPT FOR"),
    Column("POSITION", is_number=True),
    Column("HOLDS", is_number=True),
    Column("LAST SEEN", is_number=True),
)

TopicOption = Annotated[TopicRole, typer.Option("--topic", help="Which topic.")]

app = command_group("journal")


@app.command("topics")
@remote_command
def topics(session: Session) -> None:
    """List topics: offsets, messages, log id."""
    with session.archive() as archive:
        found = archive.topics()
    columns = (
        Column("TOPIC"),
        Column("OLDEST", is_number=True),
        Column("NEXT", is_number=True),
        Column("MESSAGES", is_number=True),
        Column("IDENTITY"),
    )
    rows = [
        [
            topic.name,
            str(topic.earliest_offset),
            str(topic.next_offset),
            str(topic.next_offset - topic.earliest_offset),
            topic.identity or ABSENT,
        ]
        for topic in found
    ]
    session.show(Report(document_of(found), [topic.name for topic in found], lambda: [Table(columns, rows)]))


@app.command("show")
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
    columns = (Column("OFFSET", is_number=True), Column("APPENDED"), Column("TYPE"), Column("SAYS", can_fold=True))
    rows = [
        [str(record.offset), time_text(record.appended_at) or ABSENT, record.type, record.summary] for record in found
    ]
    table = Table(columns, rows, empty=f"no messages on {topic}")
    session.show(Report(document_of(found), [str(record.offset) for record in found], lambda: [table]))


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


@app.command("verify")
@remote_command
def verify(
    session: Session,
    deep: Annotated[bool, typer.Option("--deep", help="Read all bytes of blobs, too.")] = False,
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


@app.command("truncate")
@remote_command
def truncate(
    session: Session,
    before: Annotated[int | None, typer.Option("--before", min=0, help="First offset to keep.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Remove what is older than the retention.")] = False,
    yes: SureOption = False,
    topic: TopicOption = TopicRole.PACKAGE,
) -> None:
    """Remove the oldest messages. Lists the subscribers that would lose packages, and asks first."""
    if (before is None) is not expired:
        raise UsageError("specify --before OFFSET or --expired")
    with session.archive() as archive:
        if before is None:
            cleaned = archive.remove_expired()
            if cleaned.automatic:
                session.note("this log applies retention itself; the topics have the configured limits")
            removed = count_text(cleaned.removed, "message")
            session.show(Report(document_of(cleaned), [], lambda: [f"{removed} removed"]))
            return
        planned = archive.truncate(topic.value, before)
        if planned.before != before:
            border = planned.before
            session.note(f"{before} is in the midst of a package in pieces, which begins at {border}: it stays whole")
        for subscriber in planned.cut_off:
            where, state = f"is at offset {subscriber.next_offset}", "JournalTrimmed"
            if subscriber.next_offset is None:
                where, state = "has read nothing yet", "JournalIncomplete"
            session.note(f"would be cut off, and stop as {state}: {subscriber.name} {where}")
        question = f"Remove the messages of {planned.topic} before offset {planned.before}?"
        ask(question, "nothing was removed", is_sure=yes)
        found = archive.truncate(topic.value, planned.before, is_dry_run=False)
    lines = [
        f"{found.topic}: {count_text(found.removed, 'message')} removed",
        f"oldest {found.earliest_offset}, next {found.next_offset}",
    ]
    session.show(Report(document_of(found), [found.topic], lambda: lines))


@app.command("ensure")
@remote_command
def ensure(
    session: Session,
    check: Annotated[bool, typer.Option("--check", help="Report differences; change nothing.")] = False,
) -> None:
    """Create missing topics, correct their retention. Exits 1 if one still differs."""
    with session.archive() as archive:
        found = archive.ensure_topics(is_dry_run=check)
    wrong = [topic.topic for topic in found.topics if not topic.is_right]
    document = document_of(found) | {"ok": not wrong}
    session.show(Report(document, wrong, lambda: [f"journal    {found.journal}", "", _checks_table(found.topics)]))
    if not wrong:
        return
    if check:
        session.note("`mailboat journal ensure` makes what is missing, and puts right what differs")
    elif any(difference.name == "replicas" for topic in found.topics for difference in topic.differences):
        session.note("replicas of a topic that exists are changed by Kafka's own kafka-reassign-partitions")
    raise typer.Exit(1)


def _checks_table(found: Sequence[TopicCheck]) -> Table:
    if not any(check.differences for check in found):
        return Table([Column("TOPIC"), Column("STATE")], [[check.topic, check.state] for check in found])
    rows = []
    for check in found:
        cells = [[each.name, each.found or ABSENT, each.wanted] for each in check.differences] or [["", "", ""]]
        rows += [[check.topic, check.state, *cells[0]], *(["", "", *more] for more in cells[1:])]
    return Table([Column(title) for title in ("TOPIC", "STATE", "SETTING", "WAS", "WANTED")], rows)


@app.command("bench")
@remote_command
def bench(
    session: Session,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Size of a message.")] = 1000,
    rounds: Annotated[int, typer.Option("--rounds", min=10, help="Number of messages per latency figure.")] = 200,
    seconds: Annotated[float, typer.Option("--seconds", min=0.05, help="Duration per batch size.")] = 1.0,
) -> None:
    """Measure latency, wake-up and throughput of the journal on a temporary topic."""
    with session.archive() as archive:
        found = archive.bench(BenchOrder(size, rounds, seconds))
    session.show(Report(document_of(found), [found.journal], lambda: _bench_blocks(found)))


def _bench_blocks(found: JournalFigures) -> list[Block]:
    rates = [
        [
            f"{rate.batch:,}",
            f"{rate.messages_per_second:,.0f}",
            f"{bytes_text(round(rate.bytes_per_second))}/s",
            ABSENT if rate.syncs_per_message is None else f"{rate.syncs_per_message:.3g}",
        ]
        for rate in found.rates
    ]
    titles = ("BATCH", "MESSAGES/S", "BYTES", "FSYNCS/MESSAGE")
    return [
        f"journal    {found.journal}   {count_text(found.message_bytes, 'byte')} a message",
        "",
        Table(
            [Column("LATENCY"), Column("P50", is_number=True), Column("P99", is_number=True)],
            [
                ["append, until durable", *_latency_cells(found.append)],
                ["append, until a waiting reader has it", *_latency_cells(found.wakeup)],
            ],
        ),
        "",
        Table([Column(title, is_number=True) for title in titles], rates),
        "",
        f"reading from the beginning   {found.read_per_second:,.0f} messages/s",
    ]


def _latency_cells(latency: Latency) -> list[str]:
    return [f"{latency.p50_ms:.2f} ms", f"{latency.p99_ms:.2f} ms"]


@app.command("retention")
@remote_command
def retention(
    session: Session,
    apply: Annotated[bool, typer.Option("--apply", help="Move the head there now.")] = False,
) -> None:
    """Show the subscribers that hold packages back, and the first offset that retention by consumption keeps."""
    with session.archive() as archive:
        found = archive.retention(is_applied=apply)
    rows = [
        (
            subscriber.name,
            "always: durable" if subscriber.durable else "while it is alive",
            str(subscriber.next_offset),
            str(found.next_offset - subscriber.next_offset) if subscriber.next_offset < found.next_offset else ABSENT,
            f"{seconds_text(subscriber.silent_seconds)} ago",
        )
        for subscriber in found.subscribers
    ]
    table = Table(_RETAINER_COLUMNS, rows, empty="no subscriber is known")
    session.show(Report(document_of(found), [str(found.head)], lambda: [*_retention_lines(found), table]))


def _retention_lines(found: RetentionView) -> Iterator[str]:
    """What was decided, and why."""
    yield f"head       {found.earliest_offset} of {found.next_offset}: {found.reason}"
    if found.head > found.earliest_offset:
        moved = "removed" if found.applied else "could go"
        count = count_text(found.head - found.earliest_offset, "package message")
        yield f"{moved:<9}  {count} before {found.head}, about {bytes_text(found.freed_bytes)}"
    for name in found.losers:
        yield f"loses      {name}: its position is before {found.head}; it will stop as JournalTrimmed"
    for name in found.dropped:
        yield f"dropped    {name}: silent for too long, deregistered"
    if not found.enabled:
        yield "config     retention.consumption.policy is off: agents do not apply this automatically"
