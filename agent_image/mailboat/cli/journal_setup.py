"""`mailboat journal ensure` and `journal bench`: the topics as the configuration wants them, and what the log gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from mailboat.cli.options import command
from mailboat.cli.output import ABSENT, Block, Column, Report, Table, bytes_text, count_text
from mailboat.cli.session import Session
from mailboat.maintenance.topic_check import TopicReport, check_topics, ensure_topics
from mailboat.operations.journal_bench import BenchPlan, JournalFigures, Latency, measure_journal


def register(group: typer.Typer) -> None:
    """Add the commands to the group `journal`."""
    group.command("ensure")(ensure)
    group.command("bench")(bench)


@command
def ensure(
    session: Session,
    check: Annotated[bool, typer.Option("--check", help="Report differences; change nothing.")] = False,
) -> None:
    """Create the five topics, or correct their retention. Exit code 1 if something still differs."""
    with session.workspace() as workspace:
        found = check_topics(workspace) if check else ensure_topics(workspace)
        journal = workspace.journal.description
    session.show(_topics_report(journal, found))
    if not all(one.is_right for one in found):
        _say_what_remains(session, found, is_check=check)
        raise typer.Exit(1)


def _say_what_remains(session: Session, found: Sequence[TopicReport], *, is_check: bool) -> None:
    if is_check:
        session.note("`mailboat journal ensure` makes what is missing, and puts right what differs")
    elif any(difference.name == "replicas" for one in found for difference in one.differences):
        session.note("replicas of a topic that exists are changed by Kafka's own kafka-reassign-partitions")


def _topics_report(journal: str, found: Sequence[TopicReport]) -> Report:
    topics = [
        {
            "topic": one.topic,
            "role": str(one.role),
            "state": str(one.state),
            "differences": [difference._asdict() for difference in one.differences],
        }
        for one in found
    ]
    return Report(
        {"journal": journal, "ok": all(one.is_right for one in found), "topics": topics},
        [one.topic for one in found if not one.is_right],
        lambda: [f"journal    {journal}", "", _topics_table(found)],
    )


def _topics_table(found: Sequence[TopicReport]) -> Table:
    if not any(one.differences for one in found):
        return Table([Column("TOPIC"), Column("STATE")], [[one.topic, str(one.state)] for one in found])
    rows = []
    for one in found:
        cells = [[each.name, each.found or ABSENT, each.wanted] for each in one.differences] or [["", "", ""]]
        rows += [[one.topic, str(one.state), *cells[0]], *(["", "", *more] for more in cells[1:])]
    return Table([Column(title) for title in ("TOPIC", "STATE", "SETTING", "WAS", "WANTED")], rows)


@command
def bench(
    session: Session,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Size of a message.")] = 1000,
    rounds: Annotated[int, typer.Option("--rounds", min=10, help="Number of messages per latency figure.")] = 200,
    seconds: Annotated[float, typer.Option("--seconds", min=0.05, help="Duration per batch size.")] = 1.0,
) -> None:
    """Measure the journal, on a topic of its own that is removed afterwards: latency, wake-up, throughput."""
    with session.workspace() as workspace:
        prefix = workspace.home.config.journal.topic_prefix
        found = measure_journal(workspace.journal, prefix, BenchPlan(size, rounds, seconds), workspace.clock)
    session.show(Report(_document(found), [found.journal], lambda: _bench_blocks(found)))


def _document(found: JournalFigures) -> dict[str, Any]:
    document = asdict(found)
    document["rates"] = list(document["rates"])
    return document


def _bench_blocks(found: JournalFigures) -> list[Block]:
    rates = [
        [
            f"{one.batch:,}",
            f"{one.messages_per_second:,.0f}",
            f"{bytes_text(round(one.bytes_per_second))}/s",
            ABSENT if one.syncs_per_message is None else f"{one.syncs_per_message:.3g}",
        ]
        for one in found.rates
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
