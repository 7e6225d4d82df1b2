"""Whether a package is imported, dropped or held, and what ends an import that has begun.

`Admission` decides before the payload of a package is read, and again in every attempt: a clear command drops the
package, a golden subscriber accepts, skips or delays it, a bulk build that begins opens a batch of its own. So a clear
also helps against a package that fails, or that this version cannot read. `Roots` refuses content outside the
subscriber's roots. `ImportGuard` ends an import at the stop deadline, at the package's timeout, or by a clear.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mailboat.clock import Clock, Deadline, milliseconds_now
from mailboat.config.document import Expose, SubscriberConfig
from mailboat.content.port import Batch, Ledger, OpenBuild
from mailboat.errors import ImportTimeoutError, UntrustedInputError
from mailboat.journal.port import Record
from mailboat.model.changes import TreeChange
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.identifiers import AgentName, BuildId, Offset
from mailboat.model.messages import BulkPart, PackageMessage
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath, is_within
from mailboat.subscriber.commands import CommandHandler
from mailboat.subscriber.golden_watch import AdmissionDecision, GoldenWatch
from mailboat.workers import heartbeat

_SLOW_SECONDS: Final = 1.0
_LOG: Final = logging.getLogger(__name__)


# ----------------------------------------------------------------------------------------------- stopping an import


class StopAskedError(Exception):
    """The current batch must not be finished: the stop deadline is over, or a command drops the current package.

    The batch is rolled back. Never leaves the subscriber.
    """


class StopSignal:
    """The request to stop a subscriber, and the wake-up for its pauses. Any thread may set either.

    Attributes:
        stopping: The subscriber is asked to end.
        woken: There is a command, or a request to stop, for a subscriber that pauses.
    """

    def __init__(self) -> None:
        self.stopping: Final = threading.Event()
        self.woken: Final = threading.Event()
        self._deadline: Deadline | None = None

    def stop(self, deadline: Deadline | None) -> None:
        """Ask to stop: at the next package, or in the middle of one when the deadline is over."""
        # the deadline comes first: a thread that sees `stopping` must also see the deadline that belongs to it
        self._deadline = deadline
        self.stopping.set()
        self.woken.set()

    def wake(self) -> None:
        """End the current pause."""
        self.woken.set()

    def remaining_seconds(self, otherwise: float) -> float:
        """What is left to finish what has begun; `otherwise` where there is no deadline."""
        return otherwise if self._deadline is None else self._deadline.remaining_seconds()

    @property
    def is_overdue(self) -> bool:
        """Whether the time to finish the current batch is over."""
        return self._deadline is not None and self._deadline.is_over()


class ImportGuard:
    """Limits the time of one package; asked between its records, in the subscriber's thread."""

    def __init__(
        self,
        clock: Clock,
        timeout_seconds: float | None,
        signal: StopSignal,
        is_cleared: Callable[[], bool] | None = None,
        when_slow: Callable[[], None] | None = None,
    ) -> None:
        """Limit each package to `timeout_seconds`, if any; `when_slow` is called once in a batch that takes over 1 s.

        `is_cleared`: whether a command that just arrived drops the current package; None: no commands are taken.
        """
        self._clock = clock
        self._beat = heartbeat(clock)
        self._timeout_seconds = timeout_seconds
        self._signal = signal
        self._is_cleared = is_cleared
        self._when_slow = when_slow
        self._slow_at: float | None = None

    @property
    def is_stopping(self) -> bool:
        return self._signal.stopping.is_set()

    def begin(self) -> None:
        self._slow_at = self._clock.monotonic() + _SLOW_SECONDS

    def check(self) -> None:
        """Return if the import may go on. Raises: StopAskedError."""
        # First: an import of any length is alive as long as its records come.
        self._beat(0.0)
        if self._signal.is_overdue:
            raise StopAskedError
        # `woken` is a cheap test; only then is the listener asked, which takes its lock
        if self._is_cleared is not None and self._signal.woken.is_set() and self._is_cleared():
            raise StopAskedError
        # Once in a batch: observers and announcements must not be called for each record.
        if self._slow_at is not None and self._clock.monotonic() >= self._slow_at:
            self._slow_at = None
            if self._when_slow is not None:
                self._when_slow()

    def deadline(self) -> Deadline | None:
        """The deadline of a package that begins now; None sets no limit."""
        limit = self._timeout_seconds
        return None if limit is None else Deadline(self._clock, limit)

    def check_in_time(self, deadline: Deadline | None, path: NodePath | None = None) -> None:
        """As `check`, for a package with a deadline. Raises: ImportTimeoutError, StopAskedError."""
        if deadline is not None and deadline.is_over():
            where: dict[str, Any] = {} if path is None else {"path": path}
            raise ImportTimeoutError(f"importing the package took longer than {self._timeout_seconds} seconds", **where)
        self.check()

    def guarded(self, change: TreeChange, deadline: Deadline | None) -> TreeChange:
        """The same change; reading its records raises ImportTimeoutError or StopAskedError at the timeout."""
        return change._replace(records=self._records(change.records, deadline))

    def _records(self, records: Iterable[NodeRecord], deadline: Deadline | None) -> Iterator[NodeRecord]:
        for record in records:
            self.check_in_time(deadline, record.path)
            yield record


# ---------------------------------------------------------------------------------------------------------- admission


class Admission:
    """Decides about the packages of one subscriber; each of its reasons may be absent."""

    def __init__(
        self, commands: CommandHandler | None, golden: GoldenWatch | None, exposure: Exposure | None = None
    ) -> None:
        self._commands = commands
        self._golden = golden
        self._exposure = exposure
        self._current: tuple[Offset, AgentName | None] | None = None

    def decide(self, offset: Offset, message: PackageMessage, *, is_first: bool) -> AdmissionDecision:
        """Decide about a package of a followed publisher. Raises: the journal's errors.

        `is_first`: nothing before it in its batch had an effect.
        """
        # what precedes a build is committed, and so shown to readers, before the build opens
        if not is_first and self._exposure is not None and self._exposure.begins(message):
            return AdmissionDecision.WAIT
        self._current = offset, message.pub_agent_name
        clear = None if self._commands is None else self._commands.covering(offset, message.pub_agent_name)
        if clear is not None and self._commands is not None:
            self._commands.count_dropped(clear)
            return AdmissionDecision.REMOVE
        # after the clears: a package that is dropped must not wait for the golden subscriber
        return AdmissionDecision.IMPORT if self._golden is None else self._golden.decide(offset, message)

    def note_done(self, record: Record, message: PackageMessage) -> bool:
        """Note that a package of a followed publisher is done; True if the batch must end after it."""
        return self._exposure is not None and self._exposure.note_done(record, message)

    def leave(self) -> None:
        """Note that no package of the queue is being imported: a clear interrupts nothing."""
        self._current = None

    def is_cleared(self) -> bool:
        """Whether a clear that was received, and not yet stored, drops the current package."""
        current = self._current
        if current is None or self._commands is None:
            return False
        return self._commands.has_new_clear(*current)


# -------------------------------------------------------------------------------------------------------------- roots


class RootsExceededError(UntrustedInputError):
    """A package would change content outside the subscriber's roots. Nothing of it was imported.

    To import it, add the path to the subscriber's `roots` and redrive it (`mailboat errors redrive`).
    """


class Roots:
    """The roots of one subscriber, at least one: the only content that packages may change in its target.

    A package is imported or refused as a whole, before anything is written. What counts is the paths that the message
    names and the roots of the package's filter, which also say what is removed. Missing folders on the way to a root
    are created empty; what a package says about them is dropped, as it is content outside.
    """

    def __init__(self, roots: tuple[NodePath, ...]) -> None:
        self._roots = roots

    def check(self, message: PackageMessage) -> None:
        """Refuse a package by its message, before its payload is fetched. Raises: RootsExceededError."""
        self._refuse_outside(message.paths, message)

    def limited(self, change: TreeChange, message: PackageMessage) -> TreeChange:
        """The change without records of folders outside. Raises: RootsExceededError: it owns content there."""
        self._refuse_outside((filter_set.root for filter_set in change.filter.sets), message)
        records = (record for record in change.records if self._holds(record.path))
        return change._replace(records=list(records) if isinstance(change.records, list) else records)

    def part_of(self, change: TreeChange) -> TreeChange:
        """The part of a whole tree that lies within the roots, as the change of an empty target."""
        outermost = [
            path for path in self._roots if not any(root != path and is_within(path, root) for root in self._roots)
        ]
        own = WorkspaceFilter(tuple(FilterSet(root) for root in dict.fromkeys(outermost)))
        return change._replace(filter=own, records=(record for record in change.records if self._holds(record.path)))

    def _refuse_outside(self, paths: Iterable[NodePath], message: PackageMessage) -> None:
        for path in paths:
            if not self._holds(path):
                raise RootsExceededError(
                    f"the package would change {path[:200]}, outside the roots {', '.join(self._roots)[:200]}",
                    package=message.package_id,
                    path=path[:200],
                )

    def _holds(self, path: NodePath) -> bool:
        return any(is_within(path, root) for root in self._roots)


# ------------------------------------------------------------------------------------------- bulk builds as a whole


class BuildKey(NamedTuple):
    """Identifies a build: two publishers may use the same id."""

    publisher: AgentName
    build_id: BuildId


OpenBuilds = Mapping[BuildKey, OpenBuild]
NO_BUILDS: Final[OpenBuilds] = MappingProxyType({})


def plan_open_builds(builds: OpenBuilds, publisher: AgentName, part: BulkPart, appended_ms: int) -> OpenBuilds:
    """Return the builds that are open after one more package, be it imported, given up or cleared.

    The last package of a build closes it, any other one opens it, or keeps it open. So a subscriber that joins in the
    middle of a build, or meets it again after its wait timed out, waits for its end.
    """
    key = BuildKey(publisher, part.build_id)
    if part.is_last:
        return {other: build for other, build in builds.items() if other != key}
    return {**builds, key: OpenBuild(publisher, part.build_id, part.sequence + 1, part.total, appended_ms)}


def plan_quiet_builds(builds: OpenBuilds, now_ms: int, quiet_seconds: float | None) -> OpenBuilds:
    """The builds without a package for so long that, at the log's end, no further one is expected."""
    if quiet_seconds is None:
        return NO_BUILDS
    return {key: one for key, one in builds.items() if now_ms - one.last_ms >= quiet_seconds * 1000}


class Exposure:
    """The open bulk builds of one target, which readers see as a whole or not at all.

    Content is committed as usual, package by package, with position and confirmations. The open builds are noted in
    the same transactions, and while there is one, the target shows its readers the content of before
    (`Batch.note_builds`). A batch ends before the package that opens a build, and after the one that completes it. The
    notes belong to the target, so they survive a crash. Used in the subscriber's thread.
    """

    def __init__(self, config: SubscriberConfig, ledger: Ledger, clock: Clock) -> None:
        """Nothing is read yet. If packages are exposed one by one, the builds of earlier runs are shown."""
        self._is_whole: Final = config.expose is Expose.BUILD
        self._quiet_seconds = config.expose_seconds
        self._ledger = ledger
        self._clock = clock
        self._stored = NO_BUILDS
        self._planned = NO_BUILDS
        self._settled: OpenBuilds | None = None

    @property
    def held_back(self) -> int:
        """How many builds the target waits for."""
        return len(self._stored)

    def load(self) -> None:
        self._stored = {BuildKey(build.publisher, build.build_id): build for build in self._ledger.open_builds}
        self.begin()

    def begin(self) -> None:
        """Note that a batch begins: what a batch that was rolled back had planned is forgotten."""
        self._settled = None
        self._planned = self._stored if self._is_whole else NO_BUILDS

    def begins(self, message: PackageMessage) -> bool:
        """Whether no build is open so far, and one is with this package."""
        part = self._part(message)
        return part is not None and not self._planned and not part.is_last

    def note_done(self, record: Record, message: PackageMessage) -> bool:
        """Note that a package of a followed publisher is done; True if it completes its build."""
        part, publisher = self._part(message), message.pub_agent_name
        if part is None or publisher is None:
            return False
        self._planned = plan_open_builds(self._planned, publisher, part, record.appended_ms)
        return part.is_last

    def settle(self, batch: Batch) -> None:
        """Add what has changed to the batch that is committed next."""
        if self._planned != self._stored:
            batch.note_builds(list(self._planned.values()))
            # Stored only with `committed`: the batch may still be rolled back.
            self._settled = self._planned

    def committed(self) -> None:
        self._stored = self._stored if self._settled is None else self._settled
        self._settled = None

    def drop_quiet(self, *, is_at_end: bool) -> bool:
        """Plan to close quiet builds, or all without the setting; True if there is one to close.

        Commit a batch then, though it imports nothing. `is_at_end` says that the log has no further records now.
        """
        self.begin()
        if self._is_whole and is_at_end and self._stored:
            now_ms = milliseconds_now(self._clock)
            quiet = plan_quiet_builds(self._stored, now_ms, self._quiet_seconds)
            self._planned = {key: one for key, one in self._stored.items() if key not in quiet}
            for build in quiet.values():
                _LOG.warning(
                    "build %s of %s is at package %s of %s, and no package of it came for %.0f "
                    "s: imported content becomes visible now",
                    build.build_id,
                    build.publisher,
                    f"{build.done:,}",
                    f"{build.total:,}",
                    (now_ms - build.last_ms) / 1000,
                )
        return self._planned != self._stored

    def _part(self, message: PackageMessage) -> BulkPart | None:
        return message.bulk if self._is_whole and message.pub_agent_name is not None else None
