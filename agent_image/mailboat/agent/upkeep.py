"""What a journal needs now and then, and what can be told of it: retention, damage, publishers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from mailboat.agent.composition import Workspace
from mailboat.clock import Deadline
from mailboat.errors import MailboatError
from mailboat.model.identifiers import AgentName, TopicName

if TYPE_CHECKING:
    from mailboat.agent.inspection import Finding

MAINTENANCE_SECONDS: Final = 3600.0
"""The journal's retention is applied at most this often, by whoever publishes or subscribes."""

_LOG: Final = logging.getLogger(__name__)
_MARK: Final = ".maintained"
_SWEPT_MARK: Final = ".swept"


def maintain(workspace: Workspace, *, is_sweeping: bool = True) -> None:
    """Apply the journal's retention, unless it does so itself, then sweep the blobs; each when its turn has come.

    Args:
        workspace: Whose journal and blob store.
        is_sweeping: False for who only subscribes: it has no right to remove anything from the shared store.
    """

    def sweep_store() -> bool:
        from mailboat.agent.sweeping import sweep

        sweep(workspace)
        return True

    if not workspace.journal.upkeep.is_automatic:
        _when_due(workspace, _MARK, MAINTENANCE_SECONDS, lambda: remove_expired(workspace) >= 0)
    sweep_seconds = workspace.home.config.blobs.sweep_seconds
    if is_sweeping and sweep_seconds is not None:
        _when_due(workspace, _SWEPT_MARK, sweep_seconds, sweep_store)


def sweep_closed_target(workspace: Workspace, name: AgentName, target: str) -> None:
    """Sweep what a target keeps for itself, when its turn has come: it can't be done while a subscriber has it."""
    sweep_seconds = workspace.home.config.blobs.sweep_seconds
    if sweep_seconds is None or not target.startswith("sqlite:"):
        return

    def sweep_it() -> bool:
        from mailboat.agent.sweeping import sweep_target

        swept = sweep_target(name, target)
        return swept is None or swept.problem is None

    _when_due(workspace, f"{_SWEPT_MARK}-{name}", sweep_seconds, sweep_it)


def _when_due(workspace: Workspace, name: str, seconds: float, work: Callable[[], bool]) -> None:
    """Do it when nobody of this home did it for so long. What fails or is killed is due again after an hour."""
    mark = workspace.home.publishers_path / name
    now = workspace.clock.now().timestamp()
    if mark.exists() and now - mark.stat().st_mtime < seconds:
        return
    mark.touch()
    tried = now - max(0.0, seconds - MAINTENANCE_SECONDS)
    os.utime(mark, (tried, tried))
    if work():
        os.utime(mark, (now, now))


class Maintainer:
    """Applies the retention, and sweeps, from a thread of its own, now and then, while a subscriber runs.

    A home whose publishers are silent would keep everything for ever. A failure is no reason to stop: it is logged, and
    the next turn comes in its time. Begin when the subscriber is current, or it takes away what it has yet to import.
    """

    def __init__(self, workspace: Workspace, *, is_sweeping: bool = True) -> None:
        """Nothing is done before `begin`; `is_sweeping` as for `maintain`."""
        self._workspace = workspace
        self._is_sweeping = is_sweeping
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintainer", daemon=True)

    def begin(self) -> None:
        """Look after the journal now and from now on; again it does nothing. From one thread."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self, deadline: Deadline) -> None:
        """End the thread after what it does at the moment, if that ends within the deadline. Again it only waits."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(deadline.remaining_seconds())

    def _run(self) -> None:
        while True:
            try:
                maintain(self._workspace, is_sweeping=self._is_sweeping)
            except (MailboatError, OSError) as error:
                _LOG.warning("retention or sweep did not come to its end: %s", error)
            except Exception:  # noqa: BLE001  # a defect must not end the thread for good
                _LOG.exception("retention or sweep failed by a defect; it is tried again in its time")
            if self._workspace.clock.wait(self._stopping, MAINTENANCE_SECONDS):
                return


def remove_expired(workspace: Workspace) -> int:
    """Apply the retention that the configuration says now; how many messages went."""
    workspace.ensure_topics()
    return workspace.journal.remove_expired()


def journal_damage(workspace: Workspace) -> Sequence[Finding]:
    """What the journal itself finds wrong with its storage."""
    from mailboat.agent.inspection import Finding

    return [Finding(TopicName("*"), None, text) for text in workspace.journal.upkeep.find_damage()]
