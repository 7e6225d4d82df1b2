"""Periodic upkeep of a journal and its blob store: retention and sweeps."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mailboat.composition.workspace import Workspace
from mailboat.content.locations import SQLITE, parse_target
from mailboat.content.targets.sqlite import sweep_blobs
from mailboat.errors import MailboatError, StorageFailedError
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.retention.marks import whole_package_border
from mailboat.workers import Worker, WorkerOptions

if TYPE_CHECKING:
    from mailboat.blobs.sweep import SweepDecision
    from mailboat.maintenance.blob_sweep import SweepReport

_LOG: Final = logging.getLogger(__name__)

MAINTENANCE_SECONDS: Final = 3600.0
"""The journal's retention is applied at most this often, by publishers and subscribers."""

# A sweep lists the whole bucket, and may take hours: before that its thread does not count as stuck.
_LONGEST_SWEEP_SECONDS: Final = 6 * 3600.0
_MARK: Final = ".maintained"
_SWEPT_MARK: Final = ".swept"


@dataclass(slots=True)
class UpkeepFigures:
    """Counters of the upkeep of journal and blob store, in this process.

    Attributes:
        expired: Messages that age and size removed; brokers do not report them.
        sweeps: Sweeps that came to their end.
        swept_blobs: Blobs that they removed.
        abandoned_uploads: Unfinished uploads that they removed.
        kept: How many blobs the last sweep kept, by reason; empty before the first.
        kept_bytes: The bytes of those.
    """

    expired: int = 0
    sweeps: int = 0
    swept_blobs: int = 0
    abandoned_uploads: int = 0
    kept: Mapping[SweepDecision, int] = field(default_factory=dict)
    kept_bytes: Mapping[SweepDecision, int] = field(default_factory=dict)

    def count_expired(self, messages: int) -> None:
        """Age and size removed so many messages."""
        self.expired += messages

    def count_sweep(self, report: SweepReport) -> None:
        """A sweep came to its end."""
        self.sweeps += 1
        self.swept_blobs += report.removed
        self.abandoned_uploads += report.abandoned_uploads
        self.kept = {fate: tally.count for fate, tally in report.kept.items()}
        self.kept_bytes = {fate: tally.total_bytes for fate, tally in report.kept.items()}


Sweep = Callable[[Workspace], "SweepReport"]
"""`blob_sweep.sweep`, which processes that only subscribe need not import."""


def maintain(workspace: Workspace, sweep: Sweep | None = None, figures: UpkeepFigures | None = None) -> None:
    """Apply the journal's retention, unless it does so itself, then sweep the blobs; each when its turn has come.

    Args:
        workspace: Whose journal and blob store.
        sweep: Sweeps the store; None for subscribers, which may not remove anything from the shared store.
        figures: Counts what was done.

    Raises:
        SweepBusyError, BlobStoreSharedError: As `blob_sweep.sweep`.
        StorageFailedError: When it was done can't be noted.
        MailboatError: What the journal or the store raise.
    """
    counted = UpkeepFigures() if figures is None else figures

    def expire() -> bool:
        counted.count_expired(remove_expired(workspace))
        return True

    def sweep_store() -> None:
        sweep_seconds = workspace.home.config.blobs.sweep_seconds
        if sweep is not None and sweep_seconds is not None:
            _when_due(workspace, _SWEPT_MARK, sweep_seconds, lambda: _sweep_store(workspace, sweep, counted))

    try:
        if not workspace.journal.upkeep.is_automatic:
            _when_due(workspace, _MARK, MAINTENANCE_SECONDS, expire)
    except MailboatError:
        # On a full disk the journal can't remove anything, and the sweep still can.
        sweep_store()
        raise
    sweep_store()


def sweep_closed_target(workspace: Workspace, name: AgentName, target: str) -> None:
    """Sweep what a target keeps for itself, when its turn has come: it can't be done while a subscriber has it.

    Raises: nothing: what was imported stands, so a failure is only logged.
    """
    sweep_seconds = workspace.home.config.blobs.sweep_seconds
    if sweep_seconds is None or not target.startswith(f"{SQLITE}:"):
        return
    try:
        file = parse_target(target).path
        _when_due(workspace, f"{_SWEPT_MARK}-{name}", sweep_seconds, lambda: not file.is_file() or _is_swept(file))
    except MailboatError as error:
        _LOG.warning("sweep of %s failed: %s", target, error, extra={"subscriber": name})


def _sweep_store(workspace: Workspace, sweep: Sweep, figures: UpkeepFigures) -> bool:
    figures.count_sweep(sweep(workspace))
    return True


def _is_swept(file: Path) -> bool:
    """Sweep the blobs of a closed target; False where they can't be swept now, for example because it is in use."""
    try:
        sweep_blobs(file)
    except MailboatError:
        return False
    return True


def _when_due(workspace: Workspace, name: str, seconds: float, work: Callable[[], bool]) -> None:
    """Do it when no process of this home did it for so long. What fails or is killed is due again after an hour."""
    mark = workspace.home.publishers_path / name
    now = workspace.clock.now().timestamp()
    # two processes may both pass this check: expiring is idempotent, and two sweeps exclude each other
    # a mark from the future was set while the clock was wrong, and may lie years ahead
    if mark.exists() and 0 <= now - mark.stat().st_mtime < seconds:
        return
    # marked before the work, one hour short of done: a failure is retried after an hour, not by every start
    _set_mark(mark, now - max(0.0, seconds - MAINTENANCE_SECONDS))
    if work():
        _set_mark(mark, now)


def _set_mark(mark: Path, seconds: float) -> None:
    try:
        mark.touch()
        os.utime(mark, (seconds, seconds))
    except OSError as error:
        raise StorageFailedError(
            f"{mark}, which notes when upkeep was done, can't be written: {error.strerror}",
            next_step=f"let this user write to {mark.parent}",
        ) from error


def maintenance_worker(
    workspace: Workspace, name: str = "", sweep: Sweep | None = None, figures: UpkeepFigures | None = None
) -> Worker:
    """Applies the retention, and sweeps, now and then: a home whose publishers are silent would keep everything.

    Begin it when the subscriber is current, or it takes away what that has yet to import.

    Args:
        workspace: Whose journal and blob store.
        name: Of the subscriber that it accompanies, if any.
        sweep: As for `maintain`.
        figures: As for `maintain`.
    """

    def turn() -> float:
        maintain(workspace, sweep, figures)
        return MAINTENANCE_SECONDS

    options = WorkerOptions(
        "retention or sweep",
        first_pause_seconds=MAINTENANCE_SECONDS,
        longest_pause_seconds=MAINTENANCE_SECONDS,
        stall_seconds=_LONGEST_SWEEP_SECONDS,
    )
    return Worker(f"maintainer-{name}" if name else "maintainer", turn, workspace.clock, options)


def remove_expired(workspace: Workspace) -> int:
    """Apply the retention that the configuration says now, at borders of whole packages; how many messages went."""

    def border(topic: TopicName, before: Offset) -> Offset:
        if topic != workspace.package_topic:
            return before
        return whole_package_border(workspace.journal, topic, before, workspace.clock)

    workspace.ensure_topics()  # brokers get the retention here, and apply it themselves
    return workspace.journal.remove_expired(border)
