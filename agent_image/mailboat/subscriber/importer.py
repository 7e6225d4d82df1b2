"""Importing records into a batch: decoding, checks, admission, and the change of the target.

There is one way for a package: decode, skip or drop, check, apply, confirm (`Importer._import`). Where nothing departs
from the common case, several small packages take it together: `PackageRuns` finds stretches of a batch that are read
as columns and applied by one call. It refuses nothing; whatever is in doubt goes through `_import`, which reports what
is wrong. Called by `Subscriber` with a batch that it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from mailboat.clock import milliseconds_now
from mailboat.config.document import Undecodable
from mailboat.content.port import Batch
from mailboat.errors import (
    MailboatError,
    MessageCorruptError,
    MessageUndecodableError,
    PackageCorruptError,
    PathRefusedError,
    ProcessorFailedError,
    UnknownPackageTypeError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
)
from mailboat.failpoints import Failpoint
from mailboat.journal.port import Record
from mailboat.model.changes import ChangeCount, Subtrees, TreeChange
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.job_rules import PackageEvent
from mailboat.model.messages import KNOWN_FEATURES, Action, BulkPart, PackageMessage, PackageStatus, StatusMessage
from mailboat.model.paths import ROOT, ancestors_of, parse_paths
from mailboat.packages.port import PackageCodec, ReadTogether
from mailboat.subscriber.admission import Admission, ImportGuard, Roots, StopAskedError
from mailboat.subscriber.golden_watch import AdmissionDecision
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.subscriber_settings import (
    ImportPorts,
    ProcessedPackage,
    Processor,
    SubscriberPorts,
    SubscriberSettings,
    processed_package,
)
from mailboat.wire.headers import PACKAGE_HEADERS, PIECE_HEADERS
from mailboat.wire.messages import decode_message
from mailboat.wire.package_messages import PlainPackage, decode_package, may_be_part, take_plain_package

_AHEAD_RECORDS: Final = 8

SMALL_BYTES: Final = 64 * 1024
"""The largest package that is imported without checking the clock between its records."""

FEW: Final = 4
"""Fewer packages are not worth reading together."""

TRIES: Final = 4
"""After so many runs that were read and came to nothing, the rest of a batch is imported one by one."""


@dataclass(slots=True)
class BatchOutcome:
    """The result of importing records into one batch, which may still be rolled back.

    Attributes:
        done: How many were done, from the first on; all are, unless something failed or the batch grew heavy.
        imported: Packages among them that were imported.
        skipped: Messages among them that mean nothing to this subscriber.
        unfollowed: Publishers of packages among those, which are not followed; "" where a package names none.
        left_out: Their offsets, and those of dropped packages.
        far_bytes: Size of each package that did not travel in its message, by offset.
        dropped: Packages among them that were dropped by a clear or because of the golden subscriber.
        put: Nodes written.
        removed: Nodes removed.
        content_bytes: Bytes written.
        statuses: Confirmations added.
        jobs: Jobs added.
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
    jobs: int = 0
    processed: list[ProcessedPackage] = field(default_factory=list)
    error: Exception | None = None
    message: PackageMessage | None = None
    is_waiting: bool = False

    @property
    def has_effect(self) -> bool:
        """Whether there is anything to commit besides a position."""
        return self.imported + self.dropped > 0

    def count_imported(self, packages: int = 1) -> None:
        self.imported += packages

    def count_skipped(self, offset: Offset) -> None:
        """Count a message that means nothing here."""
        self.skipped += 1
        self.left_out.add(offset)

    def count_dropped(self, offset: Offset) -> None:
        """Count a package that is passed without an import."""
        self.dropped += 1
        self.left_out.add(offset)

    def count_changes(self, count: ChangeCount) -> None:
        self.put += count.put
        self.removed += count.removed
        self.content_bytes += count.content_bytes

    def count_statuses(self, statuses: int) -> None:
        self.statuses += statuses

    def count_jobs(self, jobs: int) -> None:
        self.jobs += jobs

    def ended_at(self, done: int) -> BatchOutcome:
        """End the batch after so many records."""
        self.done = done
        return self

    def waits_at(self, done: int, message: PackageMessage | None) -> BatchOutcome:
        """End the batch before a package that is not to be imported yet."""
        self.done, self.message, self.is_waiting = done, message, True
        return self

    def failed_at(self, done: int, message: PackageMessage | None, error: Exception) -> BatchOutcome:
        """End the batch before a record that failed."""
        self.done, self.message, self.error = done, message, error
        return self


def decode_record(record: Record) -> PackageMessage:
    """The message of a record. Raises: MessageCorruptError, PathRefusedError."""
    if record.headers == PACKAGE_HEADERS:
        return decode_package(record.value)
    message = decode_message(record.headers, record.value)
    if isinstance(message, PackageMessage):
        return message
    raise MessageCorruptError(f"a {type(message).__name__} is on the package topic", offset=record.offset)


def refused_record(record: Record, error: Exception, policy: Undecodable) -> Exception:
    """The error of an undecodable record, or the state in which the subscriber stops."""
    if policy is Undecodable.GIVE_UP or not isinstance(error, UntrustedInputError):
        return error
    stopping = MessageUndecodableError(error.message, offset=record.offset)
    stopping.__cause__ = error
    return stopping


class _NotYetError(Exception):
    """The package waits for another subscriber, or until what is before it is shown. Never leaves this module."""


class Importer:
    """Imports for one subscriber, in its thread."""

    def __init__(
        self,
        settings: SubscriberSettings,
        ports: SubscriberPorts,
        payloads: Payloads,
        guard: ImportGuard,
        admission: Admission | None = None,
        failures_of: Callable[[Offset], int] | None = None,
    ) -> None:
        """Without an `admission`, all that are wanted are admitted.

        `failures_of`: how often the package at an offset failed before, for its confirmation; None: never.
        """
        self._settings = settings
        self._ports = ports
        self._payloads = payloads
        self._guard = guard
        self._admission = admission
        self._failures_of = failures_of
        self._hooks = ports.processors
        self._follow, self._limits, self._codecs = settings.follow, settings.limits, ports.codecs
        self._reach = ports.failpoints.reach
        self._open_any_blob = payloads.opener(())
        self._roots = Roots(settings.roots) if settings.roots else None
        has_hooks = self._hooks.before is not None or self._hooks.after is not None
        # where nothing is decided, called, confirmed or added for single packages, they may be imported together
        is_silent = not settings.is_editable and not settings.job_rules
        self._is_bare = admission is None and not has_hooks and is_silent and not settings.roots

    def import_records(self, batch: Batch, records: Sequence[Record]) -> BatchOutcome:
        """Import into the batch, in order. Failures are part of the outcome; StopAskedError is raised."""
        outcome = BatchOutcome(done=len(records))
        heavy = self._settings.heavy_bytes
        runs = PackageRuns(self._settings, self._ports, records if self._is_bare else ())
        done = 0
        while done < len(records):
            run = runs.run_at(done)
            if run is not None:
                done += self._import_run(batch, run, done, outcome)
                if done == len(records):
                    break
                # the target may take only some of a run: the package behind those goes the general way
            record = records[done]
            is_package = record.headers == PACKAGE_HEADERS
            if not is_package and record.headers == PIECE_HEADERS:
                self._payloads.pieces.take(record, self._follow)
                outcome.count_skipped(record.offset)
                done += 1
                continue
            message = None
            try:
                message = decode_package(record.value) if is_package else decode_record(record)
                self._import(batch, record.offset, message, outcome)
            except StopAskedError:
                raise
            except _NotYetError:
                return outcome.waits_at(done, message)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is this package's failure, to be decided on
                policy = self._settings.config.undecodable
                cause = error if message is not None else refused_record(record, error, policy)
                return outcome.failed_at(done, message, cause)
            done += 1
            admission = self._admission
            # readers wait for the end of a build, so the batch that completes one is committed at once
            is_build_end = admission is not None and self.is_wanted(message) and admission.note_done(record, message)
            # between packages a stop needs no deadline: what is in the batch is committed
            if is_build_end or outcome.content_bytes > heavy or self._guard.is_stopping:
                return outcome.ended_at(done)
            if message.payload_ref is not None or message.binaries:
                # Only now: `expect` drops every fetch that is not for these next records.
                self._expect(records[done : done + _AHEAD_RECORDS])
        return outcome

    def _import_run(self, batch: Batch, run: PackageRun, begin: int, outcome: BatchOutcome) -> int:
        """Import as much of a run as the target takes, from a record on; return how many packages that were."""
        taken, count = batch.apply_subtrees(run.subtrees, begin - run.begin)
        outcome.count_imported(taken)
        outcome.count_changes(count)
        # one for each package, as in the general way: crash tests count them
        for _ in range(taken):
            self._reach(Failpoint.SUBSCRIBER_PACKAGE_APPLIED)
        return taken

    def is_wanted(self, message: PackageMessage) -> bool:
        """Whether the message means anything to this subscriber: no TEST, and of a publisher that it follows."""
        follow = self._follow
        return message.action is not Action.TEST and (follow is None or message.pub_agent_name in follow)

    def message_of(self, record: Record) -> PackageMessage | None:
        """The message of a record; None where it can't be decoded."""
        try:
            return decode_record(record)
        except MailboatError:
            return None

    def last_part(self, records: Sequence[Record]) -> BulkPart | None:
        """The part of the last package among the records that belongs to a bulk build, if it is wanted."""
        for record in reversed(records):
            # the bytes are searched first: decoding every record a second time would cost as much as importing it
            if record.headers != PACKAGE_HEADERS or not may_be_part(record.value):
                continue
            message = self.message_of(record)
            if message is not None and message.bulk is not None and self.is_wanted(message):
                return message.bulk
        return None

    # ---------------------------------------------------------------------------------------------------- one package

    def _import(self, batch: Batch, offset: Offset, message: PackageMessage, outcome: BatchOutcome) -> None:
        """Import, skip or drop one package. Raises: _NotYetError, StopAskedError, and whatever it fails with."""
        if not self.is_wanted(message):
            outcome.count_skipped(offset)
            if message.action is not Action.TEST:
                outcome.unfollowed.add(message.pub_agent_name or "")
            return
        # before anything of the package is checked, so that a clear drops what this version cannot import
        if self._admission is not None and not self._is_admitted(self._admission, batch, offset, message, outcome):
            return
        if message.required_features and not KNOWN_FEATURES.issuperset(message.required_features):
            raise _unknown_feature(offset, message)
        self._reach(Failpoint.SUBSCRIBER_PACKAGE_CHECKED)
        if self._roots is not None:
            # By the message alone: nothing of a package that is refused is fetched.
            self._roots.check(message)
        self._change(batch, offset, message, outcome)
        outcome.count_jobs(self._add_jobs(batch, offset, message))
        if self._settings.is_editable:
            outcome.count_statuses(self.confirm(batch, offset, message))
        outcome.count_imported()
        self._reach(Failpoint.SUBSCRIBER_PACKAGE_APPLIED)

    def _is_admitted(
        self, admission: Admission, batch: Batch, offset: Offset, message: PackageMessage, outcome: BatchOutcome
    ) -> bool:
        passage = admission.decide(offset, message, is_first=not outcome.has_effect)
        if passage is AdmissionDecision.IMPORT:
            return True
        if passage is AdmissionDecision.WAIT:
            raise _NotYetError
        outcome.count_dropped(offset)
        staging = self._settings.staging if passage is AdmissionDecision.SKIP else None
        golden = None if staging is None else AgentName(staging.golden)
        outcome.count_statuses(self.confirm(batch, offset, message, PackageStatus.REMOVED, golden))
        return False

    def _change(self, batch: Batch, offset: Offset, message: PackageMessage, outcome: BatchOutcome) -> None:
        """Call the hook of an admitted package, and change the target."""
        hooks, is_invalidation = self._hooks, message.action is Action.INVALIDATE
        # a roll-back of the batch calls it again
        hook = hooks.invalidate if is_invalidation else hooks.before
        if hook is not None:
            run_hook(hook, processed_package(offset, message))
        if is_invalidation:
            return
        if message.action is Action.DELETE:
            outcome.count_changes(batch.remove(message.paths, offset))
        else:
            outcome.count_changes(self._apply(batch, offset, message))
            if message.payload is None:
                outcome.far_bytes[offset] = message.package_length_bytes
        if hooks.after is not None:
            outcome.processed.append(processed_package(offset, message))

    def _add_jobs(self, batch: Batch, offset: Offset, message: PackageMessage) -> int:
        """Add the jobs that the rules want for a package; return how many were added."""
        if not self._settings.job_rules:
            return 0
        event = PackageEvent(
            "imported",
            self._settings.name,
            offset,
            message.package_id,
            message.action,
            message.pub_agent_name,
            message.paths,
            message.deep_paths,
        )
        jobs = [job for rule in self._settings.job_rules if (job := rule.job(event)) is not None]
        for job in jobs:
            batch.add_job(job)
        return len(jobs)

    def confirm(
        self,
        batch: Batch,
        offset: Offset,
        message: PackageMessage,
        status: PackageStatus = PackageStatus.IMPORTED,
        staged_behind: AgentName | None = None,
    ) -> int:
        """Add the confirmation of a package; return how many were added.

        A subscriber that is not editable confirms only what it did not import: silence means an import.
        """
        if message.pub_agent_name is None:
            return 0
        attempts = 0 if self._failures_of is None else self._failures_of(offset)
        # the attempt that succeeded counts, too
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
                created_ms=milliseconds_now(self._ports.clock),
                staged_behind=staged_behind,
            )
        )
        return 1

    def _apply(self, batch: Batch, offset: Offset, message: PackageMessage) -> ChangeCount:
        """Check the payload, read it and change the target."""
        codec, limits, payload = self._codec(message), self._limits, message.payload
        # Before a byte of it is parsed.
        is_checked = payload is not None and _check_payload(message, payload)
        is_small = payload is not None and len(payload) <= SMALL_BYTES and not message.binaries
        if payload is not None and is_checked and self._is_bare and is_small and not message.required_features:
            # a small package takes no time worth limiting, and most of a backlog are such packages
            change = codec.read_bytes(payload, limits, self._open_any_blob, are_bytes_checked=True)
            _check_owned(message, change)
            return batch.apply(change, offset)
        # Set before the payload is opened: the time-out includes the fetch.
        deadline = self._guard.deadline()
        check = partial(self._guard.check_in_time, deadline)
        opener = self._payloads.opener(message.binaries, check) if message.binaries else self._open_any_blob
        if payload is not None:
            change = codec.read_bytes(payload, limits, opener, are_bytes_checked=is_checked)
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
        codec = self._codecs.get(message.package_type)
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
                message = decode_record(record)
            except MailboatError:
                break  # it is reported when its turn comes
            if self.is_wanted(message):
                coming.append(message)
        self._payloads.expect(coming)


def _check_payload(message: PackageMessage, payload: bytes) -> bool:
    """Whether the payload was compared with a digest. Raises: PackageCorruptError: it has another one."""
    digest = message.package_digest
    if digest is not None and sha256(payload).digest() != digest:
        raise PackageCorruptError(
            "the package in the message does not have the digest that the message promises", package=message.package_id
        )
    return digest is not None


def _check_owned(message: PackageMessage, change: TreeChange) -> None:
    """Refuse a package that owns what its message does not name: queues and redrives go by the message's paths.

    Only foreign messages name no paths; what their packages own is not known before they are read.
    """
    sets, paths = change.filter.sets, message.paths
    if len(sets) == 1 and len(paths) == 1 and sets[0].root == paths[0]:
        return  # the common case, without a set of paths
    named = set(paths)
    for filter_set in sets if named else ():
        if filter_set.root not in named and named.isdisjoint((ROOT, *ancestors_of(filter_set.root))):
            raise PackageCorruptError(
                f"the package owns {filter_set.root[:200]}, its message names only {', '.join(paths)[:200]}",
                package=message.package_id,
                path=filter_set.root,
            )


def run_hook(hook: Processor, package: ProcessedPackage) -> None:
    """Call a hook before the import. Raises: ProcessorFailedError; Mailboat errors of the hook."""
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


# ------------------------------------------------------------------------------------------ packages read together


class PackageRun(NamedTuple):
    """Packages that were read together: consecutive records of a batch, from one on."""

    begin: int
    subtrees: Subtrees


class PackageRuns:
    """Finds the runs of one batch: what most of a backlog consists of.

    A run is what can be checked and read by a few calls for all of it: packages of a followed publisher, inline, with a
    digest, each of one subtree. Nothing is refused here: where anything is in doubt there is no run.
    """

    def __init__(self, settings: SubscriberSettings, ports: ImportPorts, records: Sequence[Record]) -> None:
        self._follow, self._limits, self._codecs = settings.follow, settings.limits, ports.codecs
        self._reach = ports.failpoints.reach
        self._records = records
        self._tries = TRIES
        self._run: PackageRun | None = None
        self._next = 0

    def run_at(self, begin: int) -> PackageRun | None:
        """The run that a record is in; None where it is imported alone."""
        if begin < self._next:
            # a run goes on behind the part that the target took; records that were no run are not tried again
            return self._run
        if not self._tries or len(self._records) - begin < FEW:
            return None
        packages = self._packages_from(begin)
        self._run, self._next = None, begin + len(packages)
        subtrees = None if len(packages) < FEW else self._read(packages)
        if subtrees is None:
            # a batch made to look like runs, and to fail as such, must not be read twice as a whole; where nothing
            # was read, as of formats that are read alone, other packages may follow that are a run
            self._tries -= bool(packages)
            return None
        self._run = PackageRun(begin, subtrees)
        return self._run

    def _packages_from(self, begin: int) -> list[PlainPackage]:
        """The packages of the records that may be a run."""
        packages: list[PlainPackage] = []
        follow, reach = self._follow, self._reach
        for record in self._records[begin:]:
            package = take_plain_package(record.value) if record.headers == PACKAGE_HEADERS else None
            if package is None:
                break  # what is wrong is reported when its turn comes
            _, payload, digest, package_type, publisher = package
            if len(payload) > SMALL_BYTES or (follow is not None and publisher not in follow):
                break
            if package_type != packages[0].package_type if packages else self._read_together(package_type) is None:
                break  # before its payload is checked, which is done again when it is read alone
            if sha256(payload).digest() != digest:
                break
            reach(Failpoint.SUBSCRIBER_PACKAGE_CHECKED)
            packages.append(package)
        return packages

    def _read(self, packages: Sequence[PlainPackage]) -> Subtrees | None:
        read_together = self._read_together(packages[0].package_type)
        try:
            roots = parse_paths([package.path for package in packages])
        except PathRefusedError:
            return None
        payloads = [package.payload for package in packages]
        return read_together(payloads, roots, self._limits) if read_together else None

    def _read_together(self, package_type: str) -> ReadTogether | None:
        return self._codecs[package_type].read_together if package_type in self._codecs else None
