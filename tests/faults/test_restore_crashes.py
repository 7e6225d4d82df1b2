"""Agents killed in the middle of a restore: the content is the old or the new, and the outcome shown is true."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from mailboat.api.archive import RestoreView
from mailboat.cli.snapshots import followed
from mailboat.clock import Deadline, SystemClock
from mailboat.content.locations import open_target
from mailboat.errors import RestoreInterruptedError
from mailboat.failpoints import Failpoint
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.forks import preload, run_child
from support.restored_fleet import (
    AT_BEGIN,
    AT_FETCH,
    AT_OUTCOME,
    AT_RECORD,
    BEGUN,
    Fleet,
    restore_and_die,
)

OLD, NEW = (2, ["/a.html", "/b.html"]), (1, ["/a.html"])
STEPS = [
    ("sqlite", AT_BEGIN, OLD),
    ("sqlite", AT_FETCH, OLD),
    ("sqlite", AT_RECORD, OLD),
    ("sqlite", AT_OUTCOME, NEW),
    ("files", AT_RECORD, OLD),
    ("files", Failpoint.TARGET_REDO_STORED, NEW),
    ("files", Failpoint.TARGET_FILE_REPLACED, NEW),
    ("files", Failpoint.TARGET_REDO_DONE, NEW),
    ("generations", Failpoint.TARGET_GENERATION_BUILT, OLD),
    ("generations", Failpoint.TARGET_GENERATION_FLIPPED, NEW),
    ("generations", AT_OUTCOME, NEW),
]

preload("support.restored_fleet")


class Shown:
    """Takes progress, and keeps none."""

    def begin(self, phase: str, total_bytes: int | None = None) -> None:
        """See `Phases`."""

    def advance(self, count: int) -> None:
        """See `Phases`."""


@pytest.mark.parametrize(("kind", "failpoint", "found"), STEPS)
def test_an_agent_killed_during_a_restore_says_afterwards_whether_it_was_done(
    tmp_path: Path, kind: str, failpoint: Failpoint, found: tuple[int, list[str]]
) -> None:
    fleet = Fleet(tmp_path, kind)
    with fleet.agent(is_publishing=False):
        wait_until(lambda: fleet.position() == 2)
    assert run_child(restore_and_die, fleet, failpoint) == -signal.SIGKILL
    with closing(open_target(fleet.target)):
        pass  # files and generations finish here what was committed
    assert (fleet.position(), fleet.names()) == found
    begun = msgspec.json.decode((tmp_path / BEGUN).read_bytes(), type=RestoreView)
    with fleet.agent(is_publishing=False) as process:
        if found == NEW:
            view = followed(process.restores.restores, begun, Shown(), SystemClock(), "http://agent")
            assert (view.state, view.snapshot, view.next_offset, view.given_up) == ("done", "blob:old", 1, 0)
        else:
            with pytest.raises(RestoreInterruptedError, match=r"before blob:old was restored: .* is as it"):
                followed(process.restores.restores, begun, Shown(), SystemClock(), "http://agent")
        wait_until(lambda: process.readiness().ready)
        wait_until(lambda: fleet.names() == OLD[1])
        assert process.stop(Deadline(SystemClock(), PATIENCE_SECONDS)) == 0
