"""Calls of the hook `after`: noted with the import, made in order, and tried again with growing pauses.

A call is noted in the transaction that imports its package and forgotten when the hook has succeeded, so neither a
crash nor a failure loses one; a crash in between repeats it. A call that fails holds back the calls behind it, and
nothing else. When its attempts are used up it is set aside, and the calls behind it go on; a redrive or the next
start tries it again. What waits is read from the log again, so a long backlog costs a row for each call and no memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from mailboat.model.identifiers import Offset
from mailboat.model.messages import AfterCall, FailureCause, HookCalls
from mailboat.queues.entries import readable_package
from mailboat.subscriber.admission import StopAskedError
from mailboat.subscriber.failures import GiveUp, TryAgain, decide_retry
from mailboat.subscriber.subscriber_settings import (
    ProcessedPackage,
    SubscriberPorts,
    SubscriberSettings,
    processed_package,
)

_LOG: Final = logging.getLogger(__name__)
_CALLS_A_TURN: Final = 20
"""Calls of a backlog between two batches of imports."""

_GONE: Final = FailureCause("PackageGone", "the journal no longer holds the package, so the hook cannot be called")


class AfterCalls:
    """The calls of one subscriber, made in its thread; `figures` may be read from any thread."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        self._settings = settings
        self._ports = ports
        self._hook = ports.processors.after
        self._ledger = ports.target.ledger.hook_calls
        self._waiting = 0
        self._set_aside = 0
        self._cause: FailureCause | None = None
        self._due = float("-inf")

    @property
    def figures(self) -> HookCalls | None:
        """How the calls are now; None where there are none."""
        is_any = self._waiting or self._set_aside
        return HookCalls(self._waiting, self._set_aside, self._cause) if is_any else None

    @property
    def is_wanted(self) -> bool:
        """Whether there is a hook, so that calls are to be noted."""
        return self._hook is not None

    def load(self, *, is_replayed: bool) -> None:
        """Read an earlier run's calls; drops those of packages that the log lost at its end."""
        if is_replayed:
            # The offsets are given to other packages: a call would be made for another one.
            for is_set_aside in (False, True):
                while calls := self._ledger.calls(1_000, is_set_aside=is_set_aside):
                    _LOG.error("the log lost its end: %d calls of the hook after an import are dropped", len(calls))
                    self._ledger.forget([call.offset for call in calls])
        if self._hook is not None:
            # Each start tries again what was set aside.
            self._ledger.resume()
        self._waiting, self._set_aside = self._ledger.counts()
        if self._waiting and self._hook is None:
            _LOG.warning("no hook `after` is configured; %d calls of one wait in the target", self._waiting)

    def committed(self, packages: Sequence[ProcessedPackage]) -> None:
        """These packages are imported, and their calls noted: make them, unless older ones wait."""
        if self._hook is None or not packages:
            return
        has_backlog = self._waiting > 0
        self._waiting += len(packages)
        # The calls keep their order: behind a backlog they are left to `turn`.
        if has_backlog:
            return
        made = []
        for package in packages:
            if not self._call(package, AfterCall(package.offset)):
                break
            made.append(package.offset)
        # One write for all of them; a crash before it repeats these calls.
        self._forget(made)

    def retry(self, offset: Offset) -> bool:
        """Retry the call of a package with all its attempts; whether there is such a call, and a hook."""
        if self._hook is None or not self._ledger.retry(offset):
            return False
        self._waiting, self._set_aside = self._ledger.counts()
        self._due = float("-inf")
        return True

    def turn(self) -> None:
        """Make some of the calls that wait, if it is time."""
        if self._hook is None or not self._waiting or self._ports.clock.monotonic() < self._due:
            return
        for call in self._ledger.calls(_CALLS_A_TURN):
            message = readable_package(self._ports.journal.record_at(self._settings.package_topic, call.offset))
            if message is None:
                self._put_aside(AfterCall(call.offset, call.attempts, _GONE, is_set_aside=True))
            elif self._call(processed_package(call.offset, message), call):
                self._forget([call.offset])
            else:
                # The calls behind it wait: they keep the order of the packages.
                return

    def _call(self, package: ProcessedPackage, call: AfterCall) -> bool:
        """Whether the hook succeeded; the failed attempt is stored otherwise."""
        if self._hook is None:
            raise ValueError("there is no hook")
        try:
            self._hook.process(package)
        except StopAskedError:
            return False  # the next start makes the call
        except Exception as error:  # noqa: BLE001  # a hook is foreign code, and the content is in place
            self._failed(error, call)
            return False
        self._cause = None
        return True

    def _failed(self, error: Exception, call: AfterCall) -> None:
        policy, attempts = self._settings.config, call.attempts + 1
        self._cause = FailureCause.of_error(error)
        decision = decide_retry(error, attempts, policy, self._ports.random)
        if isinstance(decision, GiveUp):
            self._put_aside(AfterCall(call.offset, attempts, self._cause, is_set_aside=True))
            return
        # A decision to stop, too: the content is in place, so a hook never stops the subscriber.
        pause = decision.pause_seconds if isinstance(decision, TryAgain) else policy.longest_pause_seconds
        # Stored before the pause, so that a restart does not reset the count of attempts.
        self._ledger.store(AfterCall(call.offset, attempts, self._cause))
        self._due = self._ports.clock.monotonic() + pause
        where = {"offset": call.offset, "attempts": attempts}
        _LOG.warning("the hook after an import failed, and is called again in %.0f s: %s", pause, error, extra=where)

    def _put_aside(self, call: AfterCall) -> None:
        self._ledger.store(call)
        self._waiting -= 1
        self._set_aside += 1
        self._cause = call.cause
        where = {"offset": call.offset, "attempts": call.attempts}
        _LOG.error("the hook after an import is set aside until it is redriven: %s", call.cause, extra=where)

    def _forget(self, offsets: Sequence[Offset]) -> None:
        if offsets:
            self._ledger.forget(offsets)
            self._waiting -= len(offsets)
