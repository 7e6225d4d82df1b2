"""The publisher: requests in, messages on the package topic out, each request exactly once.

A request with an id is idempotent, also over a crash of the publisher at any instant and between several processes that
share the state. What is appended is durable when the call returns. A request is checked, looked up, prepared (package
built, changes of followed sources staged), appended, and answered with a receipt. `plan_request` and `plan_groups` say
what a publish would ship, and change nothing. Called by the command line, the HTTP API and jobs.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mailboat.api.records import PublicationPlan
from mailboat.content.binaries import content_bytes_of
from mailboat.content.port import Source
from mailboat.content.watched_sources import description_of, unwatched
from mailboat.errors import UsageError
from mailboat.model.filters import filter_for
from mailboat.model.identifiers import Offset, PackageId, RequestId
from mailboat.model.messages import Action
from mailboat.model.nodes import FILE_TYPE, Node
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import DistributionRequest, check_request
from mailboat.publisher.appender import Appender, Placed, Receipt, receipt_of
from mailboat.publisher.builder import PackageBuilder, Publication, Shipment, shipment_of
from mailboat.publisher.bulk_parts import BulkParts
from mailboat.publisher.published import ChangeDigests, StagedNode, Stager
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings
from mailboat.publisher.source_changes import ChangeGroup, ChangeShipper
from mailboat.tracing import parse_trace_parent

_SHOWN: Final = 20

CheckShipment = Callable[[DistributionRequest, Shipment], None]
"""Reads a shipment to its end and refuses what a package of it can't hold: `PackageBuilder.check`."""


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
        self._shipper = ChangeShipper(settings, ports, builder, self._appender)
        self.parts = BulkParts(settings, ports, builder, self._appender)

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
        """Publish many requests in order, several packages per append; yields durable receipts.

        Those that carry content read it from `source`; the others do not use it.
        Where one request fails, those before it are published and had their receipts; the error comes then.
        """
        pending: list[Publication] = []
        with self._ports.state.locks.publication_under_way():
            try:
                for request in requests:
                    if self._is_full(pending, request):
                        yield from self._flush(pending)
                    found = self._found_or_prepared(request, source if request.action is Action.ADD else None)
                    if isinstance(found, Publication):
                        pending.append(found)
                    else:
                        # Those before it first: receipts come in the order of the requests.
                        yield from self._flush(pending)
                        yield found
            except Exception:
                # Requests before the failed one are published and get their receipts.
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
        """Publish changes and deletes below `roots` since the last time, in packages of bounded size.

        Compares with what this publisher last published of the same `source.uri`, so give sources by a uri that stays
        the same (an absolute path). Nothing changed: nothing is yielded. Where the journal lost the source's last
        package, nothing counts as published: the whole source is published again, and a warning says so.

        Args:
            source: What to read.
            roots: What of it. The root alone stands for the roots of the source's own filter, where it has one.
            user_id: The user who asked.
            on_compared: Called with the bytes of content that will be published, before the first package.

        Raises:
            PublisherBusyError: Another process does the same at this time.
            SourceChangedError: The source changed meanwhile; what was yielded is published, call again for the rest.
            UsageError: As `replaced_roots`.
        """
        self._appender.reconcile()
        return self._shipper.ship(source, replaced_roots(source, roots), user_id, on_compared)

    def locate(self, identifier: str) -> Offset | None:
        """Offset of a request id or package id, if this publisher has a receipt. From any thread."""
        return self._ports.state.locate(identifier, self._appender.identity())

    def plan(self, request: DistributionRequest, source: Source | None = None) -> PublicationPlan:
        """What `publish` would ship. Raises: as `publish`, what concerns request and source."""
        check_request(request, self._settings.max_paths)
        check_source(request, source)
        return plan_request(request, source, self._builder.check)

    def plan_changed(self, source: Source, roots: Sequence[NodePath] = (ROOT,)) -> PublicationPlan:
        """What `publish_changed` would ship. Raises: as it, what concerns the source."""
        self._appender.reconcile()
        groups = self._shipper.checked_groups(source, replaced_roots(source, roots))
        return plan_groups(groups)

    def _found_or_prepared(self, request: DistributionRequest, source: Source | None) -> Receipt | Publication:
        """The receipt of a request that was published before, or else its message."""
        try:
            check_request(request, self._settings.max_paths)
            check_source(request, source)
            if request.request_id is not None:
                placed = self._appender.find(request.request_id, request.fingerprint)
                if placed is not None:
                    self._ports.meter.repeated()
                    return _receipt_of_repeat(request, request.request_id, placed)
            return self._prepare(request, source)
        except Exception as error:
            self._ports.meter.refused(error)
            raise

    def _prepare(self, request: DistributionRequest, source: Source | None) -> Publication:
        """Build the message. A request without an id gets one. Raises: as `PackageBuilder.build`."""
        parent = parse_trace_parent(request.trace_parent)
        span = self._ports.tracer.publication(request.action, parent)
        context = span.context or parent
        traced = replace(request, trace_parent=None if context is None else str(context))
        try:
            return self._built(traced, source)._replace(span=span)
        except Exception as error:
            span.end(None, error)
            raise

    def _built(self, request: DistributionRequest, source: Source | None) -> Publication:
        uri = None if source is None else source.uri
        published = self._ports.state.published
        if uri is not None and ROOT in request.deep_paths:
            published.follow(uri, self._appender.identity())  # all of it: what changes from here on is known
        # A source that another process begins to follow after this is put in doubt by the appender.
        source_ids = published.followed(request.action, uri, self._appender.identity())
        package_id = self._builder.new_package_id()
        named = request
        if request.request_id is None:
            chance = uuid.UUID(int=self._ports.random.getrandbits(128), version=4)
            named = replace(request, request_id=RequestId(str(chance)))
        if source is None:
            with published.stager(package_id, source_ids) as staged:
                for path in named.paths if named.action is Action.DELETE else ():
                    staged.add(StagedNode(path, None))
                built = self._builder.build_bare(named, package_id)
        else:
            built = self._build(named, package_id, source, published.stager(package_id, source_ids))
        # Also without an id of the caller: what is staged for a followed source is taken over with a receipt.
        is_named = request.request_id is not None or bool(source_ids)
        return built._replace(is_named=is_named, followed=source_ids, source_uri=uri)

    def _build(
        self, request: DistributionRequest, package_id: PackageId, source: Source, stager: Stager
    ) -> Publication:
        def again() -> Shipment:
            return shipment_of(request, unwatched(source))

        if not stager.is_needed:
            return self._builder.build(request, package_id, shipment_of(request, source), again)
        with stager as staged:
            digests = ChangeDigests(source)
            # Before the nodes: `take_over` keeps this order, and the package replaces the whole subtree.
            for path in request.deep_paths:
                staged.add(StagedNode(path, None))

            def observe(node: Node) -> None:
                staged.add(StagedNode(node.path, digests.of(node)))

            return self._builder.build(request, package_id, shipment_of(request, source, observe), again)

    def _is_full(self, pending: Sequence[Publication], request: DistributionRequest) -> bool:
        messages = [publication.message for publication in pending]
        taken = sum(len(message.payload or b"") + sum(map(len, message.paths)) for message in messages)
        return (
            len(pending) >= self._settings.append_records
            or taken >= self._settings.append_bytes
            # a repetition must find the receipt of the pending request with the same id
            or (
                request.request_id is not None and any(message.request_id == request.request_id for message in messages)
            )
        )

    def _flush(self, pending: list[Publication]) -> Iterator[Receipt]:
        if not pending:
            return
        # Cleared first: after a failure, `publish_all` flushes again and must not repeat this batch.
        batch, pending[:] = list(pending), []
        try:
            placed = self._appender.append(batch)
        except Exception as error:
            for _ in batch:
                self._ports.meter.refused(error)
            raise
        yield from map(receipt_of, batch, placed)


def check_source(request: DistributionRequest, source: Source | None) -> None:
    """Require a source for an ADD, and none for other actions. Raises: UsageError."""
    if request.action is Action.ADD and source is None:
        raise UsageError("an ADD needs a source to read the content from")
    if request.action is not Action.ADD and source is not None:
        raise UsageError(f"{request.action} carries no content, so it takes no source")


def _receipt_of_repeat(request: DistributionRequest, request_id: RequestId, placed: Placed) -> Receipt:
    """The receipt of a request that stands in the log already; figures of its package are not known."""
    removed = len(request.paths) if request.action is Action.DELETE else 0
    deep = tuple(path for path in request.paths if path in request.deep_paths)
    place = placed.package_id, placed.offset
    return Receipt(request.action, request.paths, *place, request_id, is_repeat=True, removed=removed, deep_paths=deep)


# ------------------------------------------------------------------------------------------------------------- plans


def plan_request(request: DistributionRequest, source: Source | None, check: CheckShipment) -> PublicationPlan:
    """What publishing a checked request would ship.

    Raises:
        UsageError: The format of the packages can't hold a node.
        LimitExceededError: Publishing would exceed a limit, or names collide.
        SourceMissingError, and what the source raises.
    """
    shown = request.paths[:_SHOWN]
    if source is None:
        deletes = len(request.paths) if request.action is Action.DELETE else 0
        removed = shown if deletes else ()
        return PublicationPlan(packages=1, deletes=deletes, first_paths=shown, first_removals=removed)
    nodes = files = content_bytes = 0

    def count(node: Node) -> None:
        nonlocal nodes, files, content_bytes
        nodes += 1
        files += node.primary_type == FILE_TYPE
        content_bytes += content_bytes_of(node)

    shipment = shipment_of(request, source, count)
    check(request, shipment)
    removed = tuple(path for path in shown if path in shipment.emptied)
    return PublicationPlan(1, nodes, files, content_bytes, len(shipment.emptied), content_bytes, shown, removed)


def plan_groups(groups: Iterable[ChangeGroup]) -> PublicationPlan:
    """What publishing these groups would ship."""
    packages = nodes = files = content_bytes = deletes = largest = 0
    shown: list[NodePath] = []
    removed: set[NodePath] = set()
    for group in groups:
        packages += 1
        nodes += len(group.puts)
        files += group.files
        content_bytes += group.content_bytes
        deletes += len(group.removals)
        largest = max(largest, group.content_bytes)
        first = group.roots[: _SHOWN - len(shown)]
        shown += first
        removed |= {removal.path for removal in group.removals}.intersection(first)
    return PublicationPlan(
        packages, nodes, files, content_bytes, deletes, largest, tuple(shown), tuple(sorted(removed))
    )


def own_roots(source: Source) -> tuple[NodePath, ...]:
    """The roots of a FileVault source's filter; empty without one, or for other sources."""
    described = description_of(source)
    found = None if described is None else described.filter
    return () if found is None else tuple(dict.fromkeys(filter_set.root for filter_set in found.sets))


def replaced_roots(source: Source, roots: Sequence[NodePath]) -> Sequence[NodePath]:
    """The roots that a comparison or bulk build replaces, within a FileVault source's filter.

    Content outside of that filter is not the source's: it must not be deleted.

    Raises:
        UsageError: The filter leaves parts of the roots out, or merges, and only whole packages carry that.
    """
    described = description_of(source)
    if described is None or described.filter is None:
        return roots
    owned = described.filter_within(filter_for(roots, roots))
    for filter_set in owned.sets:
        if filter_set.is_shallow or not filter_set.is_simple:
            raise UsageError(
                f"the filter of {source.uri} has rules or a mode for {filter_set.root}, "
                "which only whole packages carry",
                next_step=f"mailboat publish --source {shlex.quote(source.uri)} {filter_set.root}",
            )
    replaced = [filter_set.root for filter_set in owned.sets]
    return tuple(filter_set.root for filter_set in filter_for(replaced, replaced).sets)
