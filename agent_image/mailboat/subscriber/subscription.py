"""The subscriber: reads the package topic from its position and imports every package, in order, once.

One thread does it all: what the journal has ready is read (never waiting for more), imported in one transaction with
position and confirmations, committed, confirmed. So a lone package waits for nobody, and a backlog is imported in large
batches; docs/decisions/0006-delivery.md says why no second thread is used. Called by the agent and the command line.
"""

from __future__ import annotations

import enum

from mailboat.clock import Deadline
from mailboat.errors import MailboatError
from mailboat.journal.port import JournalReader
from mailboat.subscriber.commanding import CommandDesk
from mailboat.subscriber.guarding import ImportGuard
from mailboat.subscriber.progress import SubscriberStatistics
from mailboat.subscriber.reporting import Reporter
from mailboat.subscriber.running import ImportRun
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings


class Until(enum.Enum):
    """When `Subscriber.run` returns by itself."""

    CAUGHT_UP = "caught-up"
    """When everything is done that the log held at the start."""

    FOREVER = "forever"
    """Only when it is stopped."""


class Subscriber:
    """One subscriber agent on one target. `run` from one thread, once; `stop` and `statistics` from any."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        """Nothing is read or written before `run`."""
        self._settings = settings
        self._ports = ports
        self._guard = ImportGuard(ports.clock, settings.package_timeout_seconds)
        self._reporter = Reporter(settings, ports, self._guard)
        self._commands = CommandDesk(settings, ports, self._guard)
        self._reader: JournalReader | None = None

    def prepare(self) -> None:
        """Store where commands to a new target begin; call it before anybody can hear of the subscriber.

        Raises: the journal's and the target's errors; `run` does it, too.
        """
        self._ports.target.ledger.claim(self._settings.name)
        self._commands.claim_position()

    def run(self, until: Until = Until.FOREVER) -> SubscriberStatistics:
        """Import until asked to stop, or until caught up. Returns the last snapshot.

        Raises:
            StopError: A named state (JournalIncomplete, JournalTrimmed, JournalReplaced, JournalShorter,
                UnknownRequiredFeature, TargetCorrupt, …): the position stands before what could not be done; a person
                decides.
        """
        work = ImportRun(self._settings, self._ports, self._guard, self._reporter, self._commands)
        try:
            work.run(self._keep_reader, is_endless=until is Until.FOREVER)
        except MailboatError as error:
            self._reporter.stopped(error)
            raise
        finally:
            self._reader = None
            work.close()
        return self._reporter.stopped(None)

    def stop(self, deadline: Deadline | None = None) -> None:
        """Ask `run` to return: the batch at hand is finished, or rolled back when the deadline is over."""
        self._guard.stop(deadline)
        reader = self._reader
        if reader is not None:
            reader.interrupt()

    def statistics(self) -> SubscriberStatistics:
        """A snapshot."""
        return self._reporter.statistics

    def _keep_reader(self, reader: JournalReader) -> None:
        self._reader = reader
        if self._guard.stopping.is_set():
            reader.interrupt()
