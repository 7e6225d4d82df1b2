"""Importing records into a batch: the hot path, and what departs from it.

A small package of a followed publisher costs one decoding, one digest, one parse and one call of the target; there is
no logging, no formatting and no allocation besides. Whatever departs from that (packages by reference, binaries in the
blob store, hooks, invalidations) takes the longer road below. Called by `Subscriber` with a batch that it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final

from mailboat.content.port import Batch
from mailboat.errors import (
    MailboatError,
    MessageCorruptError,
    MessageUndecodableError,
    PackageCorruptError,
    ProcessorFailedError,
    UnknownPackageTypeError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
)
from mailboat.failpoints import Failpoint
from mailboat.journal.port import Record
from mailboat.model.changes import ChangeCount, TreeChange
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import KNOWN_FEATURES, Action, PackageMessage, PackageStatus, StatusMessage
from mailboat.model.paths import ROOT, ancestors_of
from mailboat.packages.port import PackageCodec
from mailboat.subscriber.exposing import Exposure
from mailboat.subscriber.gating import Gate, Passage
from mailboat.subscriber.guarding import ImportGuard, StopAskedError
from mailboat.subscriber.package_runs import PackageRuns, Reading, Run
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.processors import ProcessedPackage, Processor, processed_package
from mailboat.subscriber.roots import Roots
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings, UndecodablePolicy
from mailboat.wire.headers import PACKAGE_HEADERS, PIECE_HEADERS
from mailboat.wire.messages import decode_message, decode_package

_AHEAD_RECORDS: Final = 8


@dataclass(slots=True)
class Outcome:
    """What became of some records in one batch, which may still be rolled back.

    Attributes:
        done: How many were done, from the first on; all are, unless something failed or the batch grew heavy.
        imported: Packages among them that were imported.
        skipped: Messages among them that mean nothing to this subscriber.
        unfollowed: Publishers of packages among those, which are not followed; "" where a package names none.
        left_out: Their offsets, and those of dropped packages.
        far_bytes: Size of each package that did not travel in its message, by offset.
        dropped: Packages among them that were passed by, because of a clear or of the golden subscriber.
        put: Nodes written.
        removed: Nodes removed.
        content_bytes: Bytes written.
        statuses: Confirmations added.
        processed: For the hooks after the commit.
        error: Why the record after the done ones failed.
        message: That record's message, if it could be decoded.
        is_waiting: The record after the done ones is not to be imported yet; `message` is its message.
    """

    done: int = 0
    imported: int = 0
    skipped: int = 0
    unfollowed: set[str] = field(default_factory=set)
    left_out: set[Offset] = field(default_factory=set)
    far_bytes: dict[Offset, int] = field(default_factory=dict)
    dropped: int = 0
    put: int = 0
    removed: int = 0
    content_bytes: int = 0
    statuses: int = 0
    processed: list[ProcessedPackage] = field(default_factory=list)
    error: Exception | None = None
    message: PackageMessage | None = None
    is_waiting: bool = False

    def skip(self, offset: Offset) -> None:
        """Count a message that means nothing here."""
        self.skipped += 1
        self.left_out.add(offset)

    def count(self, count: ChangeCount) -> None:
        """Add what a package amounted to."""
        self.put += count.put
        self.removed += count.removed
        self.content_bytes += count.content_bytes


class _NotYetError(Exception):
    """The package waits for another subscriber, or until what is before it is shown. Never leaves this module."""


class Importer:
    """Imports for one subscriber, from one thread."""

    def __init__(
        self,
        settings: SubscriberSettings,
        ports: SubscriberPorts,
        payloads: Payloads,
        guard: ImportGuard,
        gate: Gate | None = None,
        exposure: Exposure | None = None,
    ) -> None:
        """Nothing is read yet. Without a gate, everything is imported that is wanted; without an exposure, at once."""
        self._exposure = exposure = None if settings.exposure is None else exposure
        self._gate = gate
        self._settings = settings
        self._ports = ports
        self._payloads = payloads
        self._guard = guard
        self._open_any_blob = payloads.opener(())
        hooks = ports.processors
        self._follow, self._limits, self._codecs = settings.follow, settings.limits, ports.codecs
        self._reading = Reading(settings.follow, settings.limits, ports.codecs, ports.failpoints)
        self._reach = ports.failpoints.reach
        has_hooks = hooks.before is not None or hooks.after is not None
        self._roots = Roots(settings.roots) if settings.roots else None
        is_plain = not settings.is_editable and not settings.roots
        self._is_bare = gate is None and exposure is None and not has_hooks and is_plain
        self.attempts_before: tuple[Offset, int] | None = None

    def import_records(self, batch: Batch, records: Sequence[Record]) -> Outcome:
        """Import into the batch, in order. Failures are told in the outcome; StopAskedError is raised."""
        outcome = Outcome(done=len(records))
        is_stopping, heavy = self._guard.stopping.is_set, self._settings.heavy_bytes
        import_one = self._import_quickly if self._is_bare else self._import_unless_skipped
        runs = PackageRuns(self._reading, records if self._is_bare else ())
        run, index = None, -1
        while (index := index + 1) < len(records):
            run = run or runs.run_at(index)
            if run is not None:
                index, run = self._import_run(batch, run, index, outcome)
                if index == len(records):
                    break
            record = records[index]
            is_package = record.headers == PACKAGE_HEADERS
            if not is_package and record.headers == PIECE_HEADERS:
                self._payloads.pieces.take(record, self._follow)
                outcome.skip(record.offset)
                continue
            message = None
            try:
                message = decode_package(record.value) if is_package else self.decode(record)
                import_one(batch, record.offset, message, outcome)
            except StopAskedError:
                raise
            except _NotYetError:
                outcome.message, outcome.done, outcome.is_waiting = message, index, True
                return outcome
            except Exception as error:  # noqa: BLE001  # whatever it is, it is this package's failure, to be decided on
                outcome.error = error if message is not None else self._undecodable(record, error)
                outcome.message, outcome.done = message, index
                return outcome
            if self._is_complete(record, message) or outcome.content_bytes > heavy or is_stopping():
                outcome.done = index + 1
                return outcome
            if message.payload_ref is not None or message.binaries:
                self._expect(records[index + 1 : index + 1 + _AHEAD_RECORDS])
        return outcome

    def _import_run(self, batch: Batch, run: Run, index: int, outcome: Outcome) -> tuple[int, Run | None]:
        """Import of a run what the target takes; the record behind that, and the run if it goes on behind this one."""
        taken, count = batch.apply_subtrees(run.subtrees, index - run.begin)
        outcome.count(count)
        outcome.imported += taken
        for _ in range(taken):
            self._reach(Failpoint.SUBSCRIBER_PACKAGE_APPLIED)
        index += taken
        return index, run if index + 1 < run.begin + len(run.subtrees.roots) else None

    def _is_complete(self, record: Record, message: PackageMessage) -> bool:
        """Note that the package is done; whether it completes a build that was waited for."""
        return self._exposure is not None and self.is_wanted(message) and self._exposure.pass_by(record, message)

    def is_wanted(self, message: PackageMessage) -> bool:
        """Whether the message means anything to this subscriber: no TEST, and of a publisher that it follows."""
        follow = self._follow
        return message.action is not Action.TEST and (follow is None or message.pub_agent_name in follow)

    def message_of(self, record: Record) -> PackageMessage | None:
        """The message of a record; None where it can't be decoded."""
        try:
            return self.decode(record)
        except MailboatError:
            return None

    def decode(self, record: Record) -> PackageMessage:
        """The message of a record. Raises: MessageCorruptError, PathRefusedError."""
        if record.headers == PACKAGE_HEADERS:
            return decode_package(record.value)
        message = decode_message(record.headers, record.value)
        if isinstance(message, PackageMessage):
            return message
        raise MessageCorruptError(f"a {type(message).__name__} stands on the package topic", offset=record.offset)

    def _undecodable(self, record: Record, error: Exception) -> Exception:
        if self._settings.undecodable is UndecodablePolicy.GIVE_UP or not isinstance(error, UntrustedInputError):
            return error
        stopping = MessageUndecodableError(error.message, offset=record.offset)
        stopping.__cause__ = error
        return stopping

    def _import_quickly(self, batch: Batch, offset: Offset, message: PackageMessage, outcome: Outcome) -> None:
        """The common case: a small package, inline, with a digest, of a followed publisher; all else is handed on."""
        payload = message.payload
        if payload is None or not self._reading.is_quick(message):
            self._import_unless_skipped(batch, offset, message, outcome)
            return
        self._reach(Failpoint.SUBSCRIBER_PACKAGE_CHECKED)
        _check_payload(message, payload)
        codec = self._codecs.get(message.package_type) or self._codec(message)
        change = codec.read_bytes(payload, self._limits, self._open_any_blob, are_bytes_checked=True)
        sets, paths = change.filter.sets, message.paths
        if len(sets) != 1 or len(paths) != 1 or sets[0].root != paths[0]:
            _check_owned(message, change)
        count = batch.apply(change, offset)
        outcome.put += count.put
        outcome.removed += count.removed
        outcome.content_bytes += count.content_bytes
        outcome.imported += 1
        self._reach(Failpoint.SUBSCRIBER_PACKAGE_APPLIED)

    def _import_unless_skipped(self, batch: Batch, offset: Offset, message: PackageMessage, outcome: Outcome) -> None:
        if not self.is_wanted(message):
            outcome.skip(offset)
            if message.action is not Action.TEST:
                outcome.unfollowed.add(message.pub_agent_name or "")
            return
        if outcome.imported + outcome.dropped and self._exposure is not None and self._exposure.begins(message):
            raise _NotYetError
        if self._gate is not None and not self._may_pass(self._gate, batch, offset, message, outcome):
            return
        if message.required_features and not KNOWN_FEATURES.issuperset(message.required_features):
            raise _unknown_feature(offset, message)
        self._reach(Failpoint.SUBSCRIBER_PACKAGE_CHECKED)
        self._import_with_care(batch, offset, message, outcome)
        outcome.imported += 1
        self._reach(Failpoint.SUBSCRIBER_PACKAGE_APPLIED)

    def _may_pass(self, gate: Gate, batch: Batch, offset: Offset, message: PackageMessage, outcome: Outcome) -> bool:
        match gate.decide(offset, message):
            case Passage.IMPORT:
                return True
            case Passage.WAIT:
                raise _NotYetError
            case Passage.REMOVE | Passage.SKIP as passage:
                outcome.dropped += 1
                outcome.left_out.add(offset)
                staging = self._settings.staging if passage is Passage.SKIP else None
                golden = None if staging is None else staging.golden
                outcome.statuses += self.confirm(batch, offset, message, PackageStatus.REMOVED, golden)
        return False

    def _import_with_care(self, batch: Batch, offset: Offset, message: PackageMessage, outcome: Outcome) -> None:
        if self._roots is not None:
            self._roots.check(message)
        hooks = self._ports.processors
        package = processed_package(offset, message)
        match message.action:
            case Action.INVALIDATE:
                _run_hook(hooks.invalidate, package)
            case Action.DELETE:
                _run_hook(hooks.before, package)
                outcome.count(batch.remove(message.paths, offset))
            case _:
                _run_hook(hooks.before, package)
                outcome.count(self._apply(batch, offset, message))
                if message.payload is None:
                    outcome.far_bytes[offset] = message.package_length_bytes
        if hooks.after is not None and message.action is not Action.INVALIDATE:
            outcome.processed.append(package)
        if self._settings.is_editable:
            outcome.statuses += self.confirm(batch, offset, message)

    def confirm(
        self,
        batch: Batch,
        offset: Offset,
        message: PackageMessage,
        status: PackageStatus = PackageStatus.IMPORTED,
        staged_behind: AgentName | None = None,
    ) -> int:
        """Add the confirmation of a package; how many were added.

        A subscriber that is not editable confirms only what it did not import: silence means an import.
        """
        if message.pub_agent_name is None:
            return 0
        before = self.attempts_before
        attempts = before[1] if before is not None and before[0] == offset else 0
        attempts += status is PackageStatus.IMPORTED
        batch.add_status(
            StatusMessage(
                self._settings.sling_id,
                self._settings.name,
                message.pub_agent_name,
                offset,
                status,
                message.package_id,
                attempts=attempts,
                created_ms=int(self._ports.clock.now().timestamp() * 1000),
                staged_behind=staged_behind,
            )
        )
        return 1

    def _apply(self, batch: Batch, offset: Offset, message: PackageMessage) -> ChangeCount:
        codec, limits, deadline = self._codec(message), self._settings.limits, self._guard.deadline()
        check = partial(self._guard.check_in_time, deadline)
        opener = self._payloads.opener(message.binaries, check) if message.binaries else self._open_any_blob
        if message.payload is not None:
            is_checked = _check_payload(message, message.payload)
            change = codec.read_bytes(message.payload, limits, opener, are_bytes_checked=is_checked)
            return batch.apply(self._guard.guarded(self._permitted(message, change), deadline), offset)
        with self._payloads.open(message, offset, check) as stream:
            reader = codec.open(stream, limits, opener, are_bytes_checked=True)
            try:
                change = self._permitted(message, reader.change())
                return batch.apply(self._guard.guarded(change, deadline), offset)
            finally:
                reader.close()

    def _permitted(self, message: PackageMessage, change: TreeChange) -> TreeChange:
        """The change, as far as it may be applied. Raises: PackageCorruptError, RootsExceededError."""
        _check_owned(message, change)
        return change if self._roots is None else self._roots.limited(change, message)

    def _codec(self, message: PackageMessage) -> PackageCodec:
        codec = self._ports.codecs.get(message.package_type)
        if codec is None:
            raise UnknownPackageTypeError(
                f"there is no codec for packages of the type {message.package_type[:40]!r}",
                package=message.package_id,
            )
        return codec

    def _expect(self, records: Sequence[Record]) -> None:
        coming = []
        for record in records:
            try:
                message = self.decode(record)
            except MailboatError:
                break  # it is reported when its turn comes
            if self.is_wanted(message):
                coming.append(message)
        self._payloads.expect(coming)


def _check_payload(message: PackageMessage, payload: bytes) -> bool:
    digest = message.package_digest
    if digest is not None and sha256(payload).digest() != digest:
        raise _wrong_digest(message)
    return digest is not None


def _wrong_digest(message: PackageMessage) -> PackageCorruptError:
    return PackageCorruptError(
        "the package in the message does not have the digest that the message promises", package=message.package_id
    )


def _check_owned(message: PackageMessage, change: TreeChange) -> None:
    """Refuse a package that owns what its message does not name: queues and re-drives go by the message's paths.

    Only foreign messages name no paths; what their packages own is not known before they are read.
    """
    named = set(message.paths)
    for one in change.filter.sets if named else ():
        if one.root not in named and named.isdisjoint((ROOT, *ancestors_of(one.root))):
            raise PackageCorruptError(
                f"the package owns {one.root[:200]}, its message names only {', '.join(message.paths)[:200]}",
                package=message.package_id,
                path=one.root,
            )


def _run_hook(hook: Processor | None, package: ProcessedPackage) -> None:
    if hook is None:
        return
    try:
        hook.process(package)
    except (MailboatError, StopAskedError):
        raise
    except Exception as error:
        raise ProcessorFailedError(
            f"the hook before the import failed: {error!r}", package=package.package_id, offset=package.offset
        ) from error


def _unknown_feature(offset: Offset, message: PackageMessage) -> UnknownRequiredFeatureError:
    unknown = ", ".join(sorted(set(message.required_features) - KNOWN_FEATURES))[:200]
    return UnknownRequiredFeatureError(
        f"the package at {offset} needs what this version does not have: {unknown}",
        next_step="upgrade this subscriber",
        offset=offset,
        package=message.package_id,
    )
