"""The publisher: requests in, messages on the package topic out, each request exactly once.

A request with an id is idempotent, also over a crash of the publisher at any instant and between several processes that
share the state. What is appended is durable when the call returns. Called by the command line, the HTTP API and jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mailboat.content.port import Source
from mailboat.model.paths import ROOT, NodePath
from mailboat.publisher.plan import PublicationPlan
from mailboat.publisher.receipts import Receipt
from mailboat.publisher.requests import DistributionRequest
from mailboat.publisher.settings import PublisherPorts, PublisherSettings


class Publisher:
    """One publisher agent. Use it from one thread; several processes may be the same agent."""

    def __init__(self, settings: PublisherSettings, ports: PublisherPorts) -> None:
        """Nothing is read or written before the first call."""
        self._settings = settings
        self._ports = ports

    def publish(self, request: DistributionRequest, source: Source | None = None) -> Receipt:
        """Publish one request. ADD needs a `source`, the others none.

        Raises:
            UsageError: Empty paths, no source, … (see `check_request`); SourceMissingError for a path that isn't there.
            RequestConflictError: The request id was used for another request.
            LimitExceededError: Too many paths, or the package is too large.
            SourceChangedError, JournalUnavailableError, StorageFullError: Try again with the same request id.
        """
        raise NotImplementedError

    def publish_all(self, requests: Iterable[DistributionRequest], source: Source | None = None) -> Iterator[Receipt]:
        """Publish many requests in order, several packages an append. Receipts come as the appends are durable.

        Where one request fails, those before it are published and had their receipts; the error comes then.
        """
        raise NotImplementedError

    def publish_changed(
        self, source: Source, roots: Sequence[NodePath] = (ROOT,), *, user_id: str | None = None
    ) -> Iterator[Receipt]:
        """Publish what changed below `roots` since the last time, deletes included, in packages of bounded size.

        Compares with what this publisher last published of the same `source.uri`, so give sources by a uri that stays
        the same (an absolute path). Nothing changed: nothing is yielded.
        """
        raise NotImplementedError

    def plan(self, request: DistributionRequest, source: Source | None = None) -> PublicationPlan:
        """What `publish` would ship."""
        raise NotImplementedError

    def plan_changed(self, source: Source, roots: Sequence[NodePath] = (ROOT,)) -> PublicationPlan:
        """What `publish_changed` would ship."""
        raise NotImplementedError
