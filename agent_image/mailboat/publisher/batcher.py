"""Batches the requests of many threads: group commit for one publisher.

A thread that finds the publisher idle publishes for all threads that wait, in one durable append where possible, and
hands out the receipts; the others wait for theirs. So the cost of a durable append is shared, and no thread of ours is
needed. `http.publish_turns` decides which callers get threads, and bounds their number.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from mailboat.content.port import Source
from mailboat.errors import (
    BlobStoreUnavailableError,
    JournalAccessDeniedError,
    JournalUnavailableError,
    MailboatError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
    UsageError,
)
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Action
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appender import Receipt
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.state_file import PublisherBusyError

_MAX_REMEMBERED: Final = 10_000

_FAILURES_OF_ALL: Final = (
    JournalUnavailableError,
    JournalAccessDeniedError,
    BlobStoreUnavailableError,
    StorageFullError,
    StorageReadOnlyError,
    StorageFailedError,
    PublisherBusyError,
)
"""What the next request would meet as well, so it is not tried one by one; all else is one request's own trouble."""

OpenSource = Callable[[], Source]


@dataclass(slots=True)
class _Ticket:
    """One request in line, and its answer."""

    request: DistributionRequest
    answer: Receipt | BaseException | None = None

    def resolve(self, answer: Receipt | BaseException) -> None:
        self.answer = answer

    def result(self) -> Receipt:
        if isinstance(self.answer, Receipt):
            return self.answer
        assert self.answer is not None  # noqa: S101  # a caller leaves its loop when the ticket is answered
        raise self.answer


class PublishBatcher:
    """Publishes for one publisher agent. Safe to use from several threads."""

    def __init__(self, name: AgentName, publisher: Publisher, open_source: OpenSource | None) -> None:
        """Publish with `publisher`, which has no other user; without a source an ADD is refused."""
        self._name = name
        self._publisher = publisher
        self._open_source = open_source
        self._changed = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._is_busy = False
        self._places: OrderedDict[str, Offset] = OrderedDict()

    def publish(self, request: DistributionRequest) -> Receipt:
        """Publish one request; durable when it returns. Raises: UsageError, …: as `Publisher.publish`."""
        if request.action is Action.ADD and self._open_source is None:
            raise self._source_missing()
        ticket = _Ticket(request)
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(lambda: ticket.answer is not None or not self._is_busy)
            if ticket.answer is None:
                self._serve()
        return ticket.result()

    @contextmanager
    def alone(self) -> Iterator[Publisher]:
        """The publisher, between two batches of requests: requests wait until the context is left."""
        with self._changed:
            # The flag keeps other servers out, not the lock: requests can queue up while the work runs.
            self._changed.wait_for(lambda: not self._is_busy)
            self._is_busy = True
        try:
            yield self._publisher
        finally:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def open_source(self) -> Source:
        """Open the source of the publisher. Raises: UsageError without one, and what opening it raises."""
        if self._open_source is None:
            raise self._source_missing()
        return self._open_source()

    def locate(self, identifier: str) -> Offset | None:
        """Where the package of that id, or of that request id, stands, if this publisher remembers."""
        with self._changed:
            place = self._places.get(identifier)
        return self._publisher.locate(identifier) if place is None else place

    def _source_missing(self) -> UsageError:
        return UsageError(
            f"the publisher {self._name} has no source, so an ADD has nothing to read",
            next_step="set `source` of this publisher in the agent's configuration",
        )

    def _serve(self) -> None:
        """Publish the next batch; the lock is free meanwhile, so that others can wait for the one after it."""
        batch, self._waiting = self._waiting, []
        self._is_busy = True
        self._changed.release()  # within the `with` of `publish`, which expects the lock held when this returns
        try:
            self._publish(batch)
        except BaseException as error:
            # The other callers of the batch wait on the condition: without an answer they would wait without end.
            _answer_all(batch, error)
            raise
        finally:
            self._changed.acquire()
            self._is_busy = False
            self._remember(batch)
            self._changed.notify_all()

    def _publish(self, batch: Sequence[_Ticket]) -> None:
        """Publish in the order of the line; the source is opened once for all that read content."""
        adds = [ticket for ticket in batch if ticket.request.action is Action.ADD]
        if not adds or self._open_source is None:
            self._publish_together(batch, None)
            return
        try:
            source = self._open_source()
        except MailboatError as error:
            _answer_all(adds, error)
            self._publish_together([ticket for ticket in batch if ticket.answer is None], None)
            return
        with closing(source):
            self._publish_together(batch, source)

    def _publish_together(self, batch: Sequence[_Ticket], source: Source | None) -> None:
        """Publish several; a request that can't be published fails alone."""
        waiting = list(batch)
        try:
            for receipt in self._publisher.publish_all([ticket.request for ticket in batch], source):
                # Receipts come in the order of the requests, so the first one without an answer gets this one.
                waiting.pop(0).resolve(receipt)
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets it
            if len(waiting) == 1 or isinstance(error, _FAILURES_OF_ALL):
                _answer_all(waiting, error)
                return
            # It is not known which request failed: each of the rest is tried alone.
            for request in waiting:
                self._publish_together([request], source)

    def _remember(self, batch: Sequence[_Ticket]) -> None:
        for ticket in batch:
            if isinstance(ticket.answer, Receipt):
                self._places[ticket.answer.package_id] = ticket.answer.offset
                self._places[ticket.answer.request_id] = ticket.answer.offset
        while len(self._places) > _MAX_REMEMBERED:
            self._places.popitem(last=False)


def _answer_all(tickets: Sequence[_Ticket], error: BaseException) -> None:
    for ticket in tickets:
        if ticket.answer is None:
            ticket.resolve(error)
