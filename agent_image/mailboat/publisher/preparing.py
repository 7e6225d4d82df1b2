"""From a checked request to a message that is ready to append; what it changes is staged where a source is followed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from mailboat.content.port import Source
from mailboat.content.watched import namespaces_of
from mailboat.model.identifiers import Offset, PackageId, RequestId
from mailboat.model.messages import Action
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appending import Appender, Prepared
from mailboat.publisher.changes import change_digest
from mailboat.publisher.packaging import BuiltPackage, PackageBuilder, shipment_of
from mailboat.publisher.published import StagedNode, Stager
from mailboat.publisher.settings import PublisherPorts
from mailboat.tracing import PublicationSpan, TracedPackage, parse_trace_parent


@dataclass(frozen=True, slots=True)
class Preparation:
    """A request whose message is ready to append."""

    request: DistributionRequest
    request_id: RequestId
    prepared: Prepared
    built: BuiltPackage
    span: PublicationSpan

    @property
    def message_bytes(self) -> int:
        """About how long the message is."""
        return len(self.built.message.payload or b"") + sum(map(len, self.built.message.paths))


def end_span(preparation: Preparation, offset: Offset | None, error: Exception | None = None) -> None:
    """The publication is over: its package stands at `offset`, or why it does not."""
    message = preparation.built.message
    preparation.span.end(
        TracedPackage(
            message.package_id,
            message.action,
            message.pub_agent_name,
            offset,
            message.paths[0] if message.paths else None,
            message.package_length_bytes,
            message.trace_parent,
        ),
        error,
    )


class RequestPreparer:
    """Prepares the requests of one publisher."""

    def __init__(self, ports: PublisherPorts, builder: PackageBuilder, appender: Appender) -> None:
        """Nothing is read yet."""
        self._ports = ports
        self._builder = builder
        self._appender = appender

    def prepare(self, request: DistributionRequest, source: Source | None) -> Preparation:
        """Build the message. A request without an id gets one. Raises: as `PackageBuilder.build`."""
        parent = parse_trace_parent(request.trace_parent)
        span = self._ports.tracer.publication(request.action, parent)
        context = span.context or parent
        try:
            return self._prepare(replace(request, trace_parent=None if context is None else str(context)), source, span)
        except Exception as error:
            span.end(None, error)
            raise

    def _prepare(self, request: DistributionRequest, source: Source | None, span: PublicationSpan) -> Preparation:
        uri = None if source is None else source.uri
        published = self._ports.state.published
        if uri is not None and ROOT in request.deep_paths:
            published.follow(uri, self._appender.identity())  # all of it: what changes from here on is known
        source_ids = published.followed(request.action, uri, self._appender.identity())
        package_id = self._builder.new_package_id()
        request_id = request.request_id
        if request_id is None:
            request_id = RequestId(str(uuid.UUID(int=self._ports.random.getrandbits(128), version=4)))
        named = replace(request, request_id=request_id)
        if source is None:
            self._stage_removals(named, published.stager(package_id, source_ids))
            built = self._builder.build_bare(named, package_id)
        else:
            built = self._build(named, package_id, source, published.stager(package_id, source_ids))
        is_named = request.request_id is not None or bool(source_ids)
        prepared = Prepared(built.message, request.fingerprint, is_named, source_ids, uri)
        return Preparation(named, request_id, prepared, built, span)

    @staticmethod
    def _stage_removals(request: DistributionRequest, stager: Stager) -> None:
        if request.action is Action.DELETE:
            with stager as staged:
                for path in request.paths:
                    staged.add(StagedNode(path, None))

    def _build(
        self, request: DistributionRequest, package_id: PackageId, source: Source, stager: Stager
    ) -> BuiltPackage:
        if not stager.is_needed:
            return self._builder.build(request, package_id, shipment_of(request, source))
        with stager as staged:
            namespaces = namespaces_of(source)
            for path in request.deep_paths:
                staged.add(StagedNode(path, None))

            def observe(node: Node) -> None:
                staged.add(StagedNode(node.path, change_digest(node, namespaces)))

            return self._builder.build(request, package_id, shipment_of(request, source, observe))
