"""`mailboat journal ensure` and `journal bench`: the topics as the configuration wants them, and what the log gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from mailboat.api.archive import BenchPlan, JournalFigures, Latency, TopicCheck, TopicSetup
from mailboat.api.records import document_of
from mailboat.cli.options import remote_command
from mailboat.cli.output import Block, Report, bytes_text, count_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table


def register(group: typer.Typer) -> None:
    """Add the commands to the group `journal`."""
    group.command("ensure")(ensure)
    group.command("bench")(bench)


@remote_command
def ensure(
    session: Session,
    check: Annotated[bool, typer.Option("--check", help="Report differences; change nothing.")] = False,
) -> None:
    """Create the five topics, or correct their retention. Exit code 1 if something still differs."""
    with session.archive() as archive:
        found = archive.ensure_topics(is_dry_run=check)
    session.show(_topics_report(found))
    if not all(topic.is_right for topic in found.topics):
        _say_what_remains(session, found.topics, is_check=check)
        raise typer.Exit(1)


def _say_what_remains(session: Session, found: Sequence[TopicCheck], *, is_check: bool) -> None:
    if is_check:
        session.note("`mailboat journal ensure` makes what is missing, and puts right what differs")
    elif any(difference.name == "replicas" for check in found for difference in check.differences):
        session.note("replicas of a topic that exists are changed by Kafka's own kafka-reassign-partitions")


def _topics_report(found: TopicSetup) -> Report:
    return Report(
        {
            "journal": found.journal,
            "ok": all(topic.is_right for topic in found.topics),
            "topics": document_of(found.topics),
        },
        [topic.topic for topic in found.topics if not topic.is_right],
        lambda: [f"journal    {found.journal}", "", _topics_table(found.topics)],
    )


def _topics_table(found: Sequence[TopicCheck]) -> Table:
    if not any(check.differences for check in found):
        return Table([Column("TOPIC"), Column("STATE")], [[check.topic, check.state] for check in found])
    rows = []
    for check in found:
        cells = [[each.name, each.found or ABSENT, each.wanted] for each in check.differences] or [["", "", ""]]
        rows += [[check.topic, check.state, *cells[0]], *(["", "", *more] for more in cells[1:])]
    return Table([Column(title) for title in ("TOPIC", "STATE", "SETTING", "WAS", "WANTED")], rows)


@remote_command
def bench(
    session: Session,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Size of a message.")] = 1000,
    rounds: Annotated[int, typer.Option("--rounds", min=10, help="Number of messages per latency figure.")] = 200,
    seconds: Annotated[float, typer.Option("--seconds", min=0.05, help="Duration per batch size.")] = 1.0,
) -> None:
    """Measure the journal, on a topic of its own that is removed afterwards: latency, wake-up, throughput."""
    with session.archive() as archive:
        found = archive.bench(BenchPlan(size, rounds, seconds))
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
