"""Showing bulk builds as a whole: which builds are open, and where batches end so that readers see no half of one.

What is imported is committed as ever, package by package, with position and confirmations. The builds that have begun
and not ended are noted in the same transactions, and while any is, the target shows its readers what was there before
(`Batch.note_builds`). A batch ends before the package that opens a build, and with the one that completes it, so that
what came before is shown before, and the build when it is whole. The notes are the target's, so a crash forgets none.
Called by `ImportRun`, `Importer` and `FailureDesk`, in the subscriber's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from mailboat.clock import Clock
from mailboat.content.port import Batch, Ledger, OpenBuild
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, BuildId
from mailboat.model.messages import BulkPart, PackageMessage
from mailboat.subscriber.settings import ExposureSettings

_LOG: Final = logging.getLogger(__name__)


class BuildKey(NamedTuple):
    """Which build: two publishers may use the same id."""

    publisher: AgentName
    build_id: BuildId


OpenBuilds = Mapping[BuildKey, OpenBuild]
NO_BUILDS: Final[OpenBuilds] = MappingProxyType({})


def plan_open_builds(builds: OpenBuilds, publisher: AgentName, part: BulkPart, appended_ms: int) -> OpenBuilds:
    """Which builds are open when one more package is done, whatever became of it: imported, given up or cleared.

    The last package of a build closes it, any other one opens it, or keeps it open. So a subscriber that comes in the
    middle of a build, or finds it going on after it was waited for no more, waits for its end.
    """
    key = BuildKey(publisher, part.build_id)
    if part.is_last:
        return {other: build for other, build in builds.items() if other != key}
    return {**builds, key: OpenBuild(publisher, part.build_id, part.sequence + 1, part.total, appended_ms)}


def plan_quiet_builds(builds: OpenBuilds, now_ms: int, quiet_seconds: float | None) -> OpenBuilds:
    """Those whose last package is so old that, at the log's end, no more of them can be expected."""
    if quiet_seconds is None:
        return NO_BUILDS
    return {key: one for key, one in builds.items() if now_ms - one.last_ms >= quiet_seconds * 1000}


class Exposure:
    """The open builds of one target."""

    def __init__(self, settings: ExposureSettings | None, ledger: Ledger, clock: Clock) -> None:
        """Nothing is read yet. Without settings nothing is opened, and what an earlier run has opened is shown."""
        self._settings = settings
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
        """Read what the target says."""
        self._stored = {BuildKey(one.publisher, one.build_id): one for one in self._ledger.open_builds}
        self.begin()

    def begin(self) -> None:
        """A batch begins."""
        self._settled = None
        self._planned = NO_BUILDS if self._settings is None else self._stored

    def begins(self, message: PackageMessage) -> bool:
        """Whether readers are waited for no build so far, and are with this package."""
        part = self._part(message)
        return part is not None and not self._planned and not part.is_last

    def pass_by(self, record: Record, message: PackageMessage) -> bool:
        """Note that a package of a followed publisher is done; whether the batch is to end with it."""
        part, publisher = self._part(message), message.pub_agent_name
        if part is None or publisher is None:
            return False
        self._planned = plan_open_builds(self._planned, publisher, part, record.appended_ms)
        return part.is_last

    def settle(self, batch: Batch) -> None:
        """Add what has changed to the batch, which is committed next."""
        if self._planned != self._stored:
            batch.note_builds(list(self._planned.values()))
            self._settled = self._planned

    def committed(self) -> None:
        """A batch is committed."""
        self._stored = self._stored if self._settled is None else self._settled
        self._settled = None

    def drop_vain(self, *, is_at_end: bool) -> bool:
        """Wait no more for builds that have gone quiet, or for any if none is to be waited for; whether there were.

        Then commit a batch, though nothing is imported in it. `is_at_end` says that the log has no more to bring.
        """
        self.begin()
        if self._settings is not None and is_at_end and self._stored:
            now_ms = int(self._clock.now().timestamp() * 1000)
            quiet = plan_quiet_builds(self._stored, now_ms, self._settings.quiet_seconds)
            self._planned = {key: one for key, one in self._stored.items() if key not in quiet}
            for one in quiet.values():
                _LOG.warning(
                    "build %s of %s stands at %s of %s, and nothing of it came for %.0f s: readers wait for it no more",
                    one.build_id,
                    one.publisher,
                    f"{one.done:,}",
                    f"{one.total:,}",
                    (now_ms - one.last_ms) / 1000,
                )
        return self._planned != self._stored

    def _part(self, message: PackageMessage) -> BulkPart | None:
        is_named = self._settings is not None and message.pub_agent_name is not None
        return message.bulk if is_named else None
