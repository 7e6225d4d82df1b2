"""The publisher: requests in, messages on the package topic out, each request exactly once.

A request with an id is idempotent, also over a crash of the publisher at any instant and between several processes that
share the state. What is appended is durable when the call returns. Called by the command line, the HTTP API and jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mailboat.api.records import PublicationPlan
from mailboat.content.port import Source
from mailboat.errors import UsageError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import DistributionRequest, check_request
from mailboat.publisher.appending import Appender
from mailboat.publisher.packaging import PackageBuilder
from mailboat.publisher.parts import PartShipper
from mailboat.publisher.plan import plan_groups, plan_request
from mailboat.publisher.preparing import Preparation, RequestPreparer, end_span
from mailboat.publisher.receipts import Receipt, receipt_of
from mailboat.publisher.settings import PublisherPorts, PublisherSettings
from mailboat.publisher.shipping import ChangeShipper


class Publisher:
    """One publisher agent. Use it from one thread; several processes may be the same agent.

    Attributes:
        parts: Publishes the packages of bulk builds.
    """

    def __init__(self, settings: PublisherSettings, ports: PublisherPorts) -> None:
        """Nothing is read or written before the first call."""
        self._settings = settings
        self._ports = ports
        self._builder = builder = PackageBuilder(settings, ports)
        self._appender = Appender(settings, ports, builder)
        self._preparer = RequestPreparer(ports, builder, self._appender)
        self._shipper = ChangeShipper(settings, ports, builder, self._appender)
        self.parts = PartShipper(settings, ports, builder, self._appender)

    def publish(self, request: DistributionRequest, source: Source | None = None) -> Receipt:
        """Publish one request. ADD needs a `source`, the others none.

        Raises:
            UsageError: Empty paths, no source, … (see `check_request`); SourceMissingError for a path that isn't there.
            RequestConflictError: The request id was used for another request.
            LimitExceededError: Too many paths, or the package is too large.
            SourceChangedError, JournalUnavailableError, StorageFullError: Try again with the same request id.
        """
        check_source(request, source)
        return next(self.publish_all([request], source))

    def publish_all(self, requests: Iterable[DistributionRequest], source: Source | None = None) -> Iterator[Receipt]:
        """Publish many requests in order, several packages an append. Receipts come as the appends are durable.

        Those that carry content read it from `source`; the others do not look at it.
        Where one request fails, those before it are published and had their receipts; the error comes then.
        """
        with self._ports.state.locks.publication_under_way():
            yield from self._publish_all(requests, source)

    def _publish_all(self, requests: Iterable[DistributionRequest], source: Source | None) -> Iterator[Receipt]:
        pending: list[Preparation] = []
        try:
            for request in requests:
                if self._is_full(pending, request):
                    yield from self._flush(pending)
                found, prepared = self._found_or_prepared(request, source if request.action is Action.ADD else None)
                if prepared is not None:
                    pending.append(prepared)
                elif found is not None:
                    yield from self._flush(pending)
                    yield found
        except Exception:
            yield from self._flush(pending)
            raise
        yield from self._flush(pending)

    def publish_changed(
        self,
        source: Source,
        roots: Sequence[NodePath] = (ROOT,),
        *,
        user_id: str | None = None,
        on_compared: Callable[[int], None] | None = None,
    ) -> Iterator[Receipt]:
        """Publish what changed below `roots` since the last time, deletes included, in packages of bounded size.

        Compares with what this publisher last published of the same `source.uri`, so give sources by a uri that stays
        the same (an absolute path). Nothing changed: nothing is yielded. Where the journal lost the source's last
        package, nothing counts as published: the whole source is published again, and a warning says so.

        Args:
            source: What to read.
            roots: What of it.
            user_id: The user who asked.
            on_compared: Called with the bytes of content that will be published, before the first package.

        Raises:
            PublisherBusyError: Another process does the same at this time.
            SourceChangedError: The source changed meanwhile; what was yielded is published, call again for the rest.
        """
        self._appender.reconcile()
        return self._shipper.ship(source, roots, user_id, on_compared)

    def locate(self, identifier: str) -> Offset | None:
        """Where the message of a request id or package id stands, if this publisher has a receipt. From any thread."""
        return self._ports.state.locate(identifier, self._appender.identity())

    def plan(self, request: DistributionRequest, source: Source | None = None) -> PublicationPlan:
        """What `publish` would ship. Raises: as `publish`, what concerns request and source."""
        check_request(request, self._settings.max_paths)
        check_source(request, source)
        refuses = self._settings.are_collisions_refused
        return plan_request(request, source, self._builder.checker, are_collisions_refused=refuses)

    def plan_changed(self, source: Source, roots: Sequence[NodePath] = (ROOT,)) -> PublicationPlan:
        """What `publish_changed` would ship. Raises: as it, what concerns the source."""
        self._appender.reconcile()
        groups = self._shipper.checked_groups(source, roots)
        return plan_groups(groups, are_collisions_refused=self._settings.are_collisions_refused)

    def _found_or_prepared(
        self, request: DistributionRequest, source: Source | None
    ) -> tuple[Receipt | None, Preparation | None]:
        """The receipt of a request that was published before, or else its message."""
        try:
            found = self._find(request, source)
            if found is None:
                return None, self._preparer.prepare(request, source)
        except Exception as error:
            self._ports.meter.refused(error)
            raise
        self._ports.meter.repeated()
        return found, None

    def _find(self, request: DistributionRequest, source: Source | None) -> Receipt | None:
        check_request(request, self._settings.max_paths)
        check_source(request, source)
        if request.request_id is None:
            return None
        placed = self._appender.find(request.request_id, request.fingerprint)
        return None if placed is None else receipt_of(request, request.request_id, placed)

    def _is_full(self, pending: Sequence[Preparation], request: DistributionRequest) -> bool:
        taken = sum(one.message_bytes for one in pending)
        return (
            len(pending) >= self._settings.append_records
            or taken >= self._settings.append_bytes
            or (request.request_id is not None and any(one.request_id == request.request_id for one in pending))
        )

    def _flush(self, pending: list[Preparation]) -> Iterator[Receipt]:
        if not pending:
            return
        batch, pending[:] = list(pending), []
        try:
            placed = self._appender.append([one.prepared for one in batch])
        except Exception as error:
            for one in batch:
                self._ports.meter.refused(error)
                end_span(one, None, error)
            raise
        for one, place in zip(batch, placed, strict=True):
            end_span(one, place.offset)
            yield receipt_of(one.request, one.request_id, place, one.built)


def check_source(request: DistributionRequest, source: Source | None) -> None:
    """Require a source for an ADD, and none for other actions. Raises: UsageError."""
    if request.action is Action.ADD and source is None:
        raise UsageError("an ADD needs a source to read the content from")
    if request.action is not Action.ADD and source is not None:
        raise UsageError(f"{request.action} carries no content, so it takes no source")
