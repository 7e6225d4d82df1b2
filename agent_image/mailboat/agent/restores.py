"""Restores of stored snapshots into the targets of one process, by the subscribers' own threads.

A restore is done between two runs of its subscriber: the subscriber ends its batch and closes its target, the snapshot
replaces the content in one commit, and the subscriber starts again. Whatever fails, or kills the process, before that
commit leaves the target as it was. The last outcome of each subscriber is kept in memory, and that of a restore that
is done in the target, in the same commit: so it is known after a crash whether the content is that of the restore.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mailboat.api.archive import RestoreView
from mailboat.clock import milliseconds_now, moment_of
from mailboat.composition.workspace import Workspace
from mailboat.config.document import Delivery, SubscriberAgentConfig
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.errors import MailboatError, RestoreInterruptedError, TargetBusyError, UsageError
from mailboat.operations.stored_snapshots import PLACE, RESTORE_IN_HOME, check_stored, restore_stored, stored_snapshot
from mailboat.operations.target_snapshots import RestoreRequest, check_is_empty, check_is_there, last_restore

if TYPE_CHECKING:
    from mailboat.agent.tasks import SubscriberTask

_LOG: Final = logging.getLogger(__name__)


class Restore:
    """One restore and its progress. `run` is called in the subscriber's thread, `view` in any."""

    def __init__(self, name: str, workspace: Workspace, view: RestoreView, *, is_replacing: bool) -> None:
        """Wait for the subscriber's thread; `view` names the subscriber and its target."""
        self._name = name
        self._workspace = workspace
        self._request = request = RestoreRequest(f"{PLACE}{name}", milliseconds_now(workspace.clock), is_replacing)
        # A record that is replaced and never changed: other threads read it without a lock.
        self.view = replace(view, state="waiting", snapshot=request.place, begun_at=moment_of(request.begun_ms))
        """How far it is."""
        # `bool()` is False: no stop is asked for before `run`.
        self._is_stopping: Callable[[], bool] = bool

    def begin(self, phase: str, total_bytes: int | None = None) -> None:
        """See `Phases`."""
        self.view = replace(self.view, phase=phase, done_bytes=0, total_bytes=total_bytes)

    def advance(self, count: int) -> None:
        """See `Phases`. Raises: RestoreInterruptedError when the agent stops."""
        if self._is_stopping():  # also a heartbeat
            raise RestoreInterruptedError(f"the agent stopped while {self.view.snapshot} was restored")
        self.view = replace(self.view, done_bytes=self.view.done_bytes + count)

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Restore now, unless the process stops; a failure is the outcome."""
        self._is_stopping = is_stopping
        subscriber, target, place = self.view.subscriber, self.view.target, self.view.snapshot
        self.view = replace(self.view, state="restoring")
        _LOG.info("restoring %s into %s of the subscriber %s", place, target, subscriber)
        try:
            taken = restore_stored(self._name, target, self._workspace, request=self._request, phases=self)
        except MailboatError as error:
            _LOG.error("%s was not restored into %s: %s", place, target, error)  # a named state needs no trace
            self._fail(error.name, error.message, error.next_step)
        except Exception as error:  # noqa: BLE001  # a defect of a restore must not take the subscriber along
            _LOG.exception("%s was not restored into %s", place, target)
            self._fail("AgentDefect", f"internal error ({type(error).__name__}); the agent's log has the trace", None)
        else:
            head = taken.head
            offset, given_up = head.position.next_offset, len(head.given_up)
            _LOG.info("restored %s: %s goes on at offset %d", place, subscriber, offset)
            self.view = replace(self.view, state="done", phase=None, next_offset=offset, given_up=given_up)

    def _fail(self, error: str, message: str, next_step: str | None) -> None:
        self.view = replace(self.view, state="failed", phase=None, error=error, message=message, next_step=next_step)


class SnapshotRestores:
    """See `Restores`: into the targets of the subscribers of this process."""

    def __init__(self, workspace: Workspace, agents: Sequence[tuple[SubscriberAgentConfig, SubscriberTask]]) -> None:
        self._workspace = workspace
        self._agents = agents
        self._lock = threading.Lock()
        self._is_stopped = False
        self._last: dict[str, Restore] = {}

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        target = self._workspace.home.configured_target(target)
        config, task = self._find(target)
        if config.delivery is Delivery.SHARED:
            raise UsageError(
                f"{config.name} is a shared pool: its members cannot be restored one by one",
                next_step="stop the pool, restore into another place, and let the pool import there",
            )
        # here, not in the subscriber's thread: its caller gets the refusal, and the subscriber is not stopped for it
        check_stored(stored_snapshot(self._workspace.blobs, name), target, self._workspace)
        (check_is_there if is_replacing else check_is_empty)(target)
        restore = Restore(name, self._workspace, RestoreView(config.name, target), is_replacing=is_replacing)
        with self._lock:
            # Check and handover under one lock: after `stop` returned, no subscriber gets a restore.
            if self._is_stopped:
                raise TargetBusyError("the agent is stopping", next_step=RESTORE_IN_HOME)
            task.run_between(restore.run)
            self._last[config.name] = restore
        return restore.view

    def restores(self) -> Sequence[RestoreView]:
        with self._lock:
            # A copy, so that targets are read without the lock, for which `stop` waits.
            last = dict(self._last)
        views = []
        for config, _ in self._agents:
            restore = last.get(config.name)
            own = None if restore is None else restore.view
            if own is None or own.is_over:  # while it runs, the target is being replaced, and is not read
                target = self._workspace.home.resolve(config.target)
                own = later_of(own, _kept(RestoreView(config.name, target)))
            views.append(own)
        return views

    def stop(self) -> None:
        """Begin none any more: when this returns, no subscriber that ended starts again."""
        with self._lock:
            self._is_stopped = True

    def _find(self, target: str) -> tuple[SubscriberAgentConfig, SubscriberTask]:
        home = self._workspace.home
        for config, task in self._agents:
            if target == home.resolve(config.target):
                return config, task
        own = ", ".join(sorted(home.resolve(config.target) for config, _ in self._agents)[:10])
        raise UsageError(
            f"no subscriber of this agent imports into {target[:200]}", next_step=f"use one of: {own or 'none'}"
        )


def later_of(own: RestoreView | None, kept: RestoreView) -> RestoreView:
    """The later of two restores: of this process, and that which the target keeps, perhaps of another process."""
    if own is None:
        return kept
    if own.begun_at is None or kept.begun_at is None:
        return own
    return kept if own.begun_at < kept.begun_at else own


def _kept(view: RestoreView) -> RestoreView:
    """The restore that the target keeps, as that of an earlier process; `unknown` if it cannot be read."""
    try:
        with TranslatedFailures(view.target):
            record = last_restore(view.target)
    except MailboatError as error:
        next_step = error.next_step or f"mailboat explain {error.name}"
        return replace(view, state="unknown", error=error.name, message=error.message, next_step=next_step)
    if record is None:
        return view
    return replace(
        view,
        state="done",
        snapshot=record.snapshot,
        begun_at=moment_of(record.begun_ms),
        next_offset=record.next_offset,
        given_up=record.given_up,
    )
