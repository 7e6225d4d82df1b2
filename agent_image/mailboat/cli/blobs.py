"""`mailboat blobs`: what is in the blob store and why, and away with what nobody needs."""

from __future__ import annotations

import sys
from contextlib import closing
from itertools import islice
from typing import Annotated, Any, Final, TextIO

import typer

from mailboat.blobs.port import BlobInfo
from mailboat.blobs.sweeping import Fate
from mailboat.cli.declaring import command
from mailboat.cli.help_page import command_group
from mailboat.cli.rendering import Block, Column, Report, Table, bytes_text, count_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock, SystemClock
from mailboat.maintenance.blob_sweep import SweepReport, SweepStep, TargetSweep, blobs_with_fates, sweep_targets
from mailboat.maintenance.blob_sweep import sweep as sweep_store

_REFRESH_SECONDS: Final = 0.1
YesOption = Annotated[bool, typer.Option("--yes", help="Remove the blobs. Default: only list them.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("blobs", "List stored binaries and packages; remove those that nothing refers to.")
    group.command("ls")(list_blobs)
    group.command("sweep")(sweep)
    app.add_typer(group)


@command
def list_blobs(
    session: Session,
    removable: Annotated[bool, typer.Option("--removable", help="Only those that a sweep would remove.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of blobs.")] = None,
) -> None:
    """List blobs: digest, size, when they were stored or renewed, what a sweep would do with them."""
    with session.workspace() as workspace, closing(SweepLine(sys.stderr, SystemClock())) as line:
        found = blobs_with_fates(workspace, line.show if line.can_show else None)
        wanted = (pair for pair in found if not removable or pair[1] is Fate.REMOVABLE)
        rows = [_blob(info, fate) for info, fate in islice(wanted, limit)]
    columns = (Column("DIGEST"), Column("SIZE", is_number=True), Column("STORED"), Column("FATE"))
    session.show(
        Report(
            rows,
            [row["digest"] for row in rows],
            lambda: [
                Table(
                    columns,
                    [(row["digest"], bytes_text(row["bytes"]), row["stored_at"], row["fate"]) for row in rows],
                    empty="no blobs",
                )
            ],
        )
    )


def _blob(info: BlobInfo, fate: Fate) -> dict[str, Any]:
    return {
        "digest": info.digest.hex(),
        "bytes": info.length_bytes,
        "stored_at": time_text(info.stored_at),
        "fate": str(fate),
    }


@command
def sweep(
    session: Session,
    yes: YesOption = False,
    forget_journal: Annotated[
        str | None,
        typer.Option("--forget-journal", metavar="ID", help="Treat this journal as deleted; its blobs may be removed."),
    ] = None,
) -> None:
    """Remove blobs that no message of the log names and that are older than the grace period.

    Also those of targets that no node names. A publisher may be storing at the same time: what it needs stays.
    """
    with session.workspace() as workspace, closing(SweepLine(sys.stderr, SystemClock())) as line:
        if forget_journal is not None:
            workspace.blobs.forget_user(forget_journal)
        report = sweep_store(workspace, is_dry_run=not yes, watch=line.show if line.can_show else None)
        targets = sweep_targets(workspace, is_dry_run=not yes)
        store, grace_seconds = workspace.blobs.description, workspace.home.config.blobs.grace_seconds
    document = {
        "store": store,
        "dry_run": not yes,
        "messages": report.messages,
        "references": report.references,
        "blobs": {fate: {"count": tally.count, "bytes": tally.total_bytes} for fate, tally in report.figures.items()},
        "removed": report.removed,
        "abandoned_uploads": report.abandoned_uploads,
        "unreadable": None
        if report.unreadable is None
        else {"offset": report.unreadable.offset, "reason": report.unreadable.reason},
        "targets": [
            {"subscriber": one.name, "target": one.target, "removed": one.removed, "problem": one.problem}
            for one in targets
        ],
    }
    session.show(
        Report(document, [store], lambda: [*_store_blocks(report, store, grace_seconds), *_target_blocks(targets, yes)])
    )
    if not yes and (report.figures[_removable()].count or any(one.removed for one in targets)):
        session.note("nothing was removed; to do so: mailboat blobs sweep --yes")


class SweepLine:
    """How far a sweep is, in one line of a terminal: what is done, how many bytes, and the time left where known."""

    def __init__(self, into: TextIO, clock: Clock) -> None:
        """Show nothing yet."""
        self._line = TerminalLine(into)
        self._clock = clock
        self._phase = ""
        self._began = self._shown = float("-inf")

    @property
    def can_show(self) -> bool:
        """Whether there is a terminal."""
        return self._line.can_show()

    def show(self, step: SweepStep) -> None:
        """Show the step, at most ten times a second."""
        now = self._clock.monotonic()
        if step.phase != self._phase:
            self._phase, self._began = step.phase, now
        elif now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        self._line.show(sweep_text(step, now - self._began))

    def close(self) -> None:
        """Remove the line."""
        self._line.clear()


def sweep_text(step: SweepStep, seconds: float) -> str:
    """How far a phase is that began so many seconds ago."""
    total = "" if step.total is None else f" of {step.total:,}"
    left = None if step.total is None or seconds <= 0 else seconds / step.done * (step.total - step.done)
    eta = "" if left is None else f"  ETA {seconds_text(max(0.0, left))}"
    return f"{step.phase}  {step.done:,}{total}  {bytes_text(step.total_bytes)}{eta}"


def _removable() -> Fate:

    return Fate.REMOVABLE


def _store_blocks(report: SweepReport, store: str, grace_seconds: float) -> list[Block]:

    reasons = {
        Fate.REFERENCED: f"named by the log's {count_text(report.messages, 'message')}"
        + (f" or {count_text(report.snapshots, 'snapshot')}" if report.snapshots else ""),
        Fate.YOUNG: f"younger than {seconds_text(grace_seconds)}",
        Fate.REMOVABLE: "named by none" if report.unreadable is None else "named by none that can be read",
    }
    columns = (Column("FATE"), Column("BLOBS", is_number=True), Column("SIZE", is_number=True), Column("WHY"))
    rows = [
        (str(fate), f"{tally.count:,}", bytes_text(tally.total_bytes), reasons[fate])
        for fate, tally in report.figures.items()
    ]
    blocks: list[Block] = [store, Table(columns, rows)]
    if report.unreadable is not None:
        blocks.append(
            f"everything is kept: the message at {report.unreadable.offset} can't be read, so it might name any blob:"
            f" {report.unreadable.reason}"
        )
    if report.removed or report.abandoned_uploads:
        blocks.append(
            f"removed {count_text(report.removed, 'blob')}"
            + (f" and {count_text(report.abandoned_uploads, 'unfinished upload')}" if report.abandoned_uploads else "")
        )
    return blocks


def _target_blocks(targets: list[TargetSweep], is_done: bool) -> list[Block]:
    verb = "removed" if is_done else "would remove"
    return [
        f"{one.target}: "
        + (f"left alone: {one.problem}" if one.problem else f"{verb} {count_text(one.removed, 'blob')} of its own")
        for one in targets
    ]
