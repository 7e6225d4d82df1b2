"""`mailboat blobs`: list stored blobs and their references, and remove unreferenced ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from mailboat.api.archive import MAX_BLOBS, Archive, SweepView, TargetSweepView
from mailboat.api.confirmations import SWEEP
from mailboat.api.records import document_of
from mailboat.blobs.sweep import SweepDecision
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import Block, Report, bytes_text, count_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock, SystemClock

if TYPE_CHECKING:
    from mailboat.maintenance.blob_sweep import SweepStep  # with the engine of a home

_REFRESH_SECONDS: Final = 0.1
YesOption = Annotated[bool, typer.Option("--yes", help="Remove the blobs. Default: only list them.")]

app = command_group("blobs")


@app.command("ls")
@remote_command
def list_blobs(
    session: Session,
    removable: Annotated[bool, typer.Option("--removable", help="Only those that a sweep would remove.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of blobs.")] = None,
) -> None:
    """List blobs: digest, size, when they were stored or renewed, what a sweep would do with them."""
    with _archive(session) as archive:
        found = archive.blobs(is_removable=removable, max_items=limit)
    columns = (Column("DIGEST"), Column("SIZE", is_number=True), Column("STORED"), Column("STATUS"))
    rows = [
        (item.digest, bytes_text(item.bytes), time_text(item.stored_at) or ABSENT, item.fate) for item in found.items
    ]
    table = Table(columns, rows, empty="no blobs")
    session.show(Report(document_of(found.items), [item.digest for item in found.items], lambda: [table]))
    if not found.complete and (limit is None or len(rows) < limit):
        session.note(f"an agent lists at most {MAX_BLOBS:,} blobs; `mailboat --home DIR blobs ls` lists all")


@contextmanager
def _archive(session: Session) -> Iterator[Archive]:
    with (
        closing(SweepLine(sys.stderr, SystemClock())) as line,
        session.archive(watch=line.show if line.can_show else None) as archive,
    ):
        yield archive


@app.command("sweep", asks=SWEEP)
@remote_command
def sweep(
    session: Session,
    yes: YesOption = False,
    forget_journal: Annotated[
        str | None,
        typer.Option("--forget-journal", metavar="ID", help="Treat this journal as deleted; its blobs may be removed."),
    ] = None,
) -> None:
    """Remove unreferenced blobs."""
    with _archive(session) as archive:
        found = archive.sweep(is_dry_run=not yes, forget_journal=forget_journal)
    session.show(
        Report(document_of(found), [found.store], lambda: [*_store_blocks(found), *_target_blocks(found.targets, yes)])
    )
    removable = found.blobs.get(SweepDecision.REMOVABLE)
    if not yes and forget_journal is not None:  # also where no blob is old enough yet
        command = f"mailboat blobs sweep --yes --forget-journal {forget_journal}"
        session.note(f"nothing was removed, and the journal is still registered; to do both: {command}")
    elif not yes and ((removable and removable.count) or any(target.removed for target in found.targets)):
        session.note("nothing was removed; to do so: mailboat blobs sweep --yes")


class SweepLine:
    """Progress of a sweep in one terminal line: blobs, bytes and, if known, the time left."""

    def __init__(self, into: TextIO, clock: Clock) -> None:
        self._line = TerminalLine(into)
        self._clock = clock
        self._phase = ""
        self._began = self._shown = float("-inf")

    @property
    def can_show(self) -> bool:
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
        self._line.clear()


def sweep_text(step: SweepStep, seconds: float) -> str:
    """How far a phase is that began so many seconds ago."""
    total = "" if step.total is None else f" of {step.total:,}"
    left = None if step.total is None or seconds <= 0 else seconds / step.done * (step.total - step.done)
    eta = "" if left is None else f"  ETA {seconds_text(max(0.0, left))}"
    return f"{step.phase}  {step.done:,}{total}  {bytes_text(step.total_bytes)}{eta}"


def _store_blocks(found: SweepView) -> list[Block]:
    reasons = {
        SweepDecision.REFERENCED: f"referenced by the log's {count_text(found.messages, 'message')}"
        + (f" or {count_text(found.snapshots, 'snapshot')}" if found.snapshots else ""),
        SweepDecision.YOUNG: f"younger than {seconds_text(found.grace_seconds)}",
        SweepDecision.REMOVABLE: "not referenced" if found.unreadable is None else "no readable message refers to it",
    }
    whys = {str(fate): why for fate, why in reasons.items()}
    columns = (Column("STATUS"), Column("BLOBS", is_number=True), Column("SIZE", is_number=True), Column("WHY"))
    rows = [
        (fate, f"{tally.count:,}", bytes_text(tally.bytes), whys.get(fate, ABSENT))
        for fate, tally in found.blobs.items()
    ]
    blocks: list[Block] = [found.store, Table(columns, rows)]
    if found.unreadable is not None:
        blocks.append(
            f"everything is kept: the message at {found.unreadable.offset} can't be read, so it might name any blob:"
            f" {found.unreadable.reason}"
        )
    if found.removed or found.abandoned_uploads:
        blocks.append(
            f"removed {count_text(found.removed, 'blob')}"
            + (f" and {count_text(found.abandoned_uploads, 'unfinished upload')}" if found.abandoned_uploads else "")
        )
    return blocks


def _target_blocks(targets: Sequence[TargetSweepView], is_done: bool) -> list[Block]:
    verb = "removed" if is_done else "would remove"
    return [
        f"{target.target}: "
        + (
            f"left alone: {target.problem}"
            if target.problem
            else f"{verb} {count_text(target.removed, 'blob')} of its own"
        )
        for target in targets
    ]
