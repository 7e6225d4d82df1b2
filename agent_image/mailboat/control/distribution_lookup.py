"""Outcome of a request: its package is found in the log, and the subscribers' positions say which of them have it."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from mailboat.api.records import CauseView, DistributionPage, DistributionView, FailureView, NotImportedView
from mailboat.clock import moment_of
from mailboat.composition.workspace import Workspace
from mailboat.control.journal_state import JournalState
from mailboat.control.subscriber_directory import SubscriberDirectory, SubscriberStatus, cause_view
from mailboat.errors import DistributionMissingError, PositionOutOfRangeError
from mailboat.journal.port import Edge, ReadLimits, Record, Start, records_of
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import first_paths
from mailboat.publisher.appender import Receipt
from mailboat.queues.entries import readable_package
from mailboat.queues.error_queues import FailurePlace
from mailboat.queues.outcomes import Outcome, OutcomeFacts, OutcomeReason, Verdict, decide_outcome

MAX_SEARCHED_RECORDS: Final = 10_000
"""How many records are searched for an id that this publisher does not remember: the newest, by their offsets."""

_OUR_ID: Final = re.compile(r"dstrpck-([0-9]{1,15})-")
_OFFSET: Final = re.compile(r"(?:(.+)-0@)?([0-9]{1,18})")
_BUILDING_MS: Final = 60_000  # the id is made before the package, the log's clock may be another
_STRETCH_RECORDS: Final = 500
_ONE: Final = ReadLimits(max_records=1)
_SHOWN: Final = 80
_LISTED_RECORDS: Final = 2_000
_DONE_WHILE_FOLLOWED: Final = frozenset({None, OutcomeReason.STAGED})
"""Reasons with which a package counts also for a subscriber that no longer follows the publisher. None: the outcome
has no reason, as that of an import."""
_GIVEN_UP: Final = CauseView("GivenUp", "the subscriber gave the package up without a cause")


class Found(NamedTuple):
    """A package in the log."""

    record: Record
    message: PackageMessage


class Distributions:
    """The requests of all publishers of a process. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, journal_state: JournalState, directory: SubscriberDirectory) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._journal_state = journal_state
        self._directory = directory

    def find(self, publisher: AgentName, identifier: str, place: Offset | None) -> Found:
        """The package of an id or request id, at its publisher's remembered offset, else by a search.

        A queue item's id (`package-0@5`) and an offset (`5`) name a package too, unless a request has that id.

        Raises:
            DistributionMissingError: The log does not hold it, or it is too far back for a search.
        """
        # Closed here: a Ctrl-C that meets the finalizer of a generator is printed and ignored by Python.
        with closing(self._candidates(identifier, place)) as candidates:
            for record in candidates:
                message = readable_package(record)
                if message is None or message.pub_agent_name != publisher:
                    continue
                if identifier in {message.package_id, message.request_id}:
                    return Found(record, message)
        found = self._at_offset(publisher, identifier)
        if found is not None:
            return found
        raise DistributionMissingError(
            f"{publisher} has no package with the package id, request id or offset {identifier[:_SHOWN]!r}",
            next_step="mailboat distributions ls",
            publisher=publisher,
        )

    def page(self, publisher: AgentName, before: int | None, max_items: int) -> DistributionPage:
        """The newest requests below an offset, as far as `_LISTED_RECORDS` records go back."""
        journal, topic = self._workspace.journal, self._workspace.package_topic
        bounds = journal.bounds(topic)
        end = bounds.next_offset if before is None else max(bounds.earliest_offset, min(before, bounds.next_offset))
        earliest, found = bounds.earliest_offset, list[Found]()
        lowest, stride = max(earliest, end - _LISTED_RECORDS), max_items
        while end > lowest and len(found) < max_items:
            begin = Offset(max(lowest, end - stride))
            try:
                found += reversed(list(self._between(publisher, begin, Offset(end))))
            except PositionOutOfRangeError:
                # Retention removed records since the bounds were read.
                earliest = journal.bounds(topic).earliest_offset
                if earliest <= begin:
                    raise
                lowest = max(lowest, earliest)
                continue
            end, stride = begin, stride * 2  # where others' packages stand between: few long reads, not many short ones
        shown = found[:max_items]
        last = shown[-1].record.offset if len(found) >= max_items else end
        views = tuple(_with_shown_paths(self.view(publisher, package)) for package in shown)
        return DistributionPage(views, last if last > earliest else None)

    def _between(self, publisher: AgentName, begin: Offset, end: Offset) -> Iterator[Found]:
        for record in records_of(self._workspace.journal, self._workspace.package_topic, begin, end):
            message = readable_package(record)
            if message is not None and message.pub_agent_name == publisher:
                # Without the package: a page of large inline packages would be held as a whole.
                yield Found(record._replace(value=b""), message._replace(payload=None))

    def _at_offset(self, publisher: AgentName, identifier: str) -> Found | None:
        named = _OFFSET.fullmatch(identifier)
        topic = self._workspace.package_topic
        if named is None or named[1] not in {None, topic}:
            return None
        record = self._workspace.journal.record_at(topic, Offset(int(named[2])))
        message = readable_package(record)
        if record is None or message is None or message.pub_agent_name != publisher:
            return None
        return Found(record, message)

    def view(self, publisher: AgentName, found: Found) -> DistributionView:
        """Outcome of a package; subscribers whose reports may not have been read yet count as waiting."""
        message, offset = found.message, found.record.offset
        by_outcome: dict[Outcome, list[tuple[SubscriberStatus, Verdict]]] = {outcome: [] for outcome in Outcome}
        # the time before the positions: a position announced after it is not settled yet
        heard_at = self._journal_state.statuses_heard_at_seconds()
        for member in self._directory.members():
            verdict = decide_outcome(self._facts(publisher, found, member, heard_at))
            by_outcome[verdict.outcome].append((member, verdict))
        names = {outcome: tuple(member.name for member, _ in those) for outcome, those in by_outcome.items()}
        reasons = {outcome: tuple(_not_imported(*judged) for judged in those) for outcome, those in by_outcome.items()}
        failed = tuple(
            FailureView(member.name, self._failure(FailurePlace(publisher, member.queue_name, offset)))
            for member, _ in by_outcome[Outcome.GIVEN_UP]
        )
        return DistributionView(
            publisher=publisher,
            package_id=message.package_id,
            offset=offset,
            action=str(message.action),
            paths=message.paths,
            deep_paths=message.deep_paths,
            request_id=message.request_id,
            user_id=message.user_id,
            package_bytes=message.package_length_bytes,
            published_at=moment_of(found.record.appended_ms),
            state=_state(
                verdict.outcome
                for those in by_outcome.values()
                for one, verdict in those
                if one.follows(publisher) or verdict.reason in _DONE_WHILE_FOLLOWED
            ),
            imported=names[Outcome.IMPORTED],
            waiting=names[Outcome.PENDING],
            removed=names[Outcome.DROPPED],
            failed=failed,
            skipped=reasons[Outcome.SKIPPED],
            unknown=reasons[Outcome.UNKNOWN],
            path_count=len(message.paths),
        )

    def _facts(self, publisher: AgentName, found: Found, one: SubscriberStatus, heard_at: float) -> OutcomeFacts:
        offset = found.record.offset
        reports = self._journal_state.reports.find(publisher, one.queue_name, offset)
        return OutcomeFacts(
            offset=offset,
            done_to=one.claims.done_to(reports.last, heard_at),
            is_test=found.message.action is Action.TEST,
            follows=one.follows(publisher),
            is_editable=one.is_editable,
            start=one.report_start(publisher),
            reports=reports,
            are_statuses_complete=self._journal_state.status_follower.are_complete_since(found.record.appended_ms),
        )

    def _failure(self, place: FailurePlace) -> CauseView:
        failed = self._journal_state.failed.find(place)
        return (None if failed is None else cause_view(failed.cause)) or _GIVEN_UP

    @staticmethod
    def published(publisher: AgentName, receipt: Receipt, user_id: str | None) -> DistributionView:
        """A request at the moment when it is durable: no subscriber can have it yet."""
        is_built = not receipt.is_repeat
        return DistributionView(
            publisher=publisher,
            package_id=receipt.package_id,
            offset=receipt.offset,
            action=str(receipt.action),
            paths=receipt.paths,
            deep_paths=receipt.deep_paths,
            request_id=receipt.request_id,
            repeated=receipt.is_repeat,
            user_id=user_id,
            package_bytes=receipt.package_bytes,
            path_count=len(receipt.paths),
            nodes=receipt.nodes if is_built else None,
            removed_paths=receipt.removed if is_built or receipt.action is not Action.ADD else None,
            content_bytes=receipt.content_bytes if is_built else None,
            inline=receipt.is_inline if is_built else None,
        )

    def _candidates(self, identifier: str, place: Offset | None) -> Generator[Record]:
        """Where its publisher remembers it; then, as the log may have changed since, what a search finds."""
        if place is not None:
            known = self._workspace.journal.record_at(self._workspace.package_topic, place)
            yield from () if known is None else (known,)
        if identifier:
            yield from self._search(identifier)

    def _search(self, identifier: str) -> Iterator[Record]:
        """Records that may be meant, from where the id says that it was made, else from the end of the log."""
        journal, topic = self._workspace.journal, self._workspace.package_topic
        bounds, wanted = journal.bounds(topic), identifier.encode()
        start = Offset(max(bounds.earliest_offset, bounds.next_offset - MAX_SEARCHED_RECORDS))
        ours = _OUR_ID.match(identifier)
        if ours is not None:
            start = self._first_since(int(ours[1]) - _BUILDING_MS)
        try:
            yield from self._searched(start, wanted)
        except PositionOutOfRangeError:
            # Retention removed the first record since the bounds were read.
            yield from self._searched(Edge.EARLIEST, wanted)

    def _searched(self, start: Start, wanted: bytes) -> Iterator[Record]:
        with closing(records_of(self._workspace.journal, self._workspace.package_topic, start)) as records:
            yield from (record for record in islice(records, MAX_SEARCHED_RECORDS) if wanted in record.value)

    def _first_since(self, since_ms: int) -> Offset:
        """About the first record that the log took at that time or later, by bisection."""
        journal, topic = self._workspace.journal, self._workspace.package_topic
        bounds = journal.bounds(topic)
        low, high = bounds.earliest_offset, bounds.next_offset
        while high - low > _STRETCH_RECORDS:
            middle = Offset((low + high) // 2)
            # Behind a hole stands the next record: without it, a search in a log with holes would go the wrong way.
            record = journal.record_at(topic, middle) or self._first_behind(middle)
            if record is None or record.appended_ms >= since_ms:
                high = middle
            else:
                low = middle
        return low

    def _first_behind(self, offset: Offset) -> Record | None:
        """The first record from an offset on, none of which may be there."""
        topic = self._workspace.package_topic
        with closing(self._workspace.journal.reader(topic, offset)) as reader:
            try:
                found = reader.read(_ONE, 0.0).records
            except PositionOutOfRangeError:  # removed since: the search begins at the first record then
                return None
        return found[0] if found else None


def _with_shown_paths(view: DistributionView) -> DistributionView:
    """For a list: a message may have megabytes of paths, and any program may write one."""
    paths = first_paths(view.paths)
    if len(paths) == len(view.paths):
        return view
    known = frozenset(paths)
    return replace(
        view, paths=paths, deep_paths=tuple(path for path in view.deep_paths if path in known), paths_truncated=True
    )


def _not_imported(one: SubscriberStatus, verdict: Verdict) -> NotImportedView:
    return NotImportedView(one.name, str(verdict.reason), verdict.golden)


def _state(of_subscribers: Iterable[Outcome]) -> str:
    """Over all subscribers that follow the publisher, and what others are known to have done."""
    outcomes = set(of_subscribers)
    if Outcome.GIVEN_UP in outcomes:
        return "failed"
    if Outcome.PENDING in outcomes:
        return "queued"
    return "distributed" if outcomes <= {Outcome.IMPORTED} else "incomplete"
