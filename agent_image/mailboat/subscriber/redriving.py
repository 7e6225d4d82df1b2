"""Trying entries of the error queue again, when a person asks for it, at a batch's border.

An old package that a newer one overlaps is refused: importing it now would bring old content back over new. So is one
of a publisher that is not followed any more. The rest is imported like any package, in a transaction of its own that
also takes the entry out of the queue; the position stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from mailboat.content.port import GivenUp
from mailboat.errors import MailboatError, PermanentError, StopError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import ReadLimits, Record
from mailboat.model.identifiers import Offset
from mailboat.model.messages import Action, FailureCause, PackageMessage
from mailboat.model.paths import ROOT, NodePath, is_within
from mailboat.model.positions import Position
from mailboat.subscriber.failing import cause_of
from mailboat.subscriber.gating import Gate
from mailboat.subscriber.guarding import StopAskedError
from mailboat.subscriber.importing import Importer, Outcome
from mailboat.subscriber.retries import is_infrastructure
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings

_ONE: Final = ReadLimits(max_records=1)
_MANY: Final = ReadLimits(max_records=500)


class PackageGoneError(PermanentError):
    """Retention has removed the package to redrive from the journal. Publish the content again."""

    is_of_package = True


class PackageNotFollowedError(PermanentError):
    """The package to redrive belongs to a publisher that this subscriber does not follow. It stays in the error queue.

    Let the subscriber follow that publisher, and redrive the package again.
    """

    is_of_package = True


class PackageSupersededError(PermanentError):
    """A newer package changed the same paths, so a redrive would bring back old content.

    If the target lacks content, publish these paths again. A newer package counts whichever publisher sent it.
    """

    is_of_package = True


class Redriven(NamedTuple):
    """An entry that was imported after all."""

    offset: Offset
    outcome: Outcome


class StillGivenUp(NamedTuple):
    """An entry that failed again, and stays."""

    offset: Offset
    cause: FailureCause


class Redriver:
    """Re-drives for one subscriber, from its thread."""

    def __init__(
        self, settings: SubscriberSettings, ports: SubscriberPorts, importer: Importer, gate: Gate | None
    ) -> None:
        """Nothing is read yet. The importer has no gate; `gate` is that of the packages in the queue."""
        self._settings = settings
        self._ports = ports
        self._importer = importer
        self._gate = gate

    def redrive(self, position: Callable[[], Position]) -> Iterator[Redriven | StillGivenUp]:
        """Try all entries that somebody asked for; what a stop interrupts is rolled back, and stays asked for.

        Raises: StopError, and RetryableError of an unusable target or journal; the entry stays asked for.
        """
        if self._gate is not None:
            self._gate.leave()
        for entry in self._ports.target.ledger.redrives():
            try:
                yield Redriven(entry.offset, self._import(entry, position()))
            except StopAskedError:
                return
            except StopError:
                raise
            except Exception as error:  # a failure of that package, told beside the entry
                if is_infrastructure(error):
                    raise
                cause = cause_of(error)
                self._ports.target.ledger.refuse_redrive(entry.offset, cause)
                yield StillGivenUp(entry.offset, cause)

    def _import(self, entry: GivenUp, position: Position) -> Outcome:
        record = self._record(entry)
        message = self._importer.decode(record)
        self._refuse_unfollowed(entry, message)
        self._refuse_superseded(entry, message, position)
        with self._ports.target.batch() as batch:
            self._ports.failpoints.reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
            outcome = self._importer.import_records(batch, [record])
            if outcome.error is not None:
                raise outcome.error
            if not outcome.statuses:
                outcome.statuses = self._importer.confirm(batch, record.offset, message)
            batch.resolve(entry.offset)
            if self._ports.processors.after is not None:
                batch.expect_after([one.offset for one in outcome.processed])
            self._ports.failpoints.reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            outcome.count(batch.commit(position))
        self._ports.failpoints.reach(Failpoint.SUBSCRIBER_COMMITTED)
        return outcome

    def _record(self, entry: GivenUp) -> Record:
        bounds = self._ports.journal.bounds(self._settings.package_topic)
        if bounds.earliest_offset <= entry.offset < bounds.next_offset:
            reader = self._ports.journal.reader(self._settings.package_topic, entry.offset)
            try:
                found = reader.read(_ONE, 0.0).records
            finally:
                reader.close()
            if found and found[0].offset == entry.offset:
                return found[0]
        raise PackageGoneError(f"the journal does not hold the package at {entry.offset} any more", offset=entry.offset)

    def _refuse_unfollowed(self, entry: GivenUp, message: PackageMessage) -> None:
        if not self._importer.is_wanted(message):
            publisher = message.pub_agent_name or "a publisher without a name"
            raise PackageNotFollowedError(
                f"{self._settings.name} does not follow {publisher}, whose package this is", offset=entry.offset
            )

    def _refuse_superseded(self, entry: GivenUp, message: PackageMessage, position: Position) -> None:
        failed = {one.offset for one in self._ports.target.ledger.given_up()}
        for offset, newer in self._messages_between(entry.offset, position.next_offset):
            has_content = newer.action is not Action.TEST and offset not in failed
            if has_content and _overlap(message.paths, newer.paths):
                raise PackageSupersededError(
                    f"the package at {offset} is newer and has the same paths", offset=entry.offset, newer=offset
                )

    def _messages_between(self, last_done: Offset, end: Offset) -> Iterator[tuple[Offset, PackageMessage]]:
        start = Offset(last_done + 1)
        if start >= end:
            return
        reader = self._ports.journal.reader(self._settings.package_topic, start)
        try:
            while reader.next_offset < end:
                records = reader.read(_MANY, 0.0).records
                for record in records:
                    if record.offset >= end:
                        return
                    try:
                        yield record.offset, self._importer.decode(record)
                    except MailboatError:
                        continue  # it never changed any content
                if not records:
                    return
        finally:
            reader.close()


def _overlap(some: tuple[NodePath, ...], others: tuple[NodePath, ...]) -> bool:
    """Whether they may concern the same content; a foreign message that names no paths may concern any."""
    return any(is_within(one, other) or is_within(other, one) for one in some or (ROOT,) for other in others or (ROOT,))
