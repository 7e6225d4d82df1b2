"""The control port: the verbs of a distribution system.

Two adapters: `mailboat.control.service` answers from the journal itself, for commands on a home and for the agent's
HTTP server; `mailboat.api.client` asks an agent. The command line uses the port only, so every verb works the same on
both.
Methods may be called from several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from mailboat.api.records import (
    BuildView,
    CommandView,
    DistributionPage,
    DistributionView,
    ForgottenView,
    GivenUpPage,
    PublicationPlan,
    QueuePage,
    QueueView,
    StatusView,
)
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest


class Control(Protocol):
    """What may be asked. Every method raises MailboatError; over HTTP it is the error that the agent met."""

    def status(self) -> StatusView:
        """Journal, publishers, subscribers."""
        ...

    def distribute(self, publisher: str, request: DistributionRequest) -> DistributionView:
        """Publish one request; durable when the call returns.

        Raises:
            AgentMissingError: There is no such publisher here.
            ThrottledError: Subscribers lag, or this caller asks too much; the error says when to try again.
            UsageError, RequestConflictError, SourceMissingError, …: as `Publisher.publish`.
        """
        ...

    def distribute_all(self, publisher: str, requests: Sequence[DistributionRequest]) -> Iterator[DistributionView]:
        """Publish requests in order: reading the iterator publishes; each returned one is durable.

        On a home several share an append.

        Raises: as `distribute`; the fact `published_before` counts the requests published before the error.
        """
        ...

    def publish_changed(
        self, publisher: str, paths: Sequence[NodePath], user_id: str | None = None
    ) -> Iterator[DistributionView]:
        """Publish what changed below paths of the publisher's source since its last publish, deletes included.

        Reading the iterator publishes; each package is durable when it is returned, and none comes when nothing
        changed. After an error, call it again: what was published is not published twice, and the fact
        `published_before` counts it. Raises: as `distribute`.
        """
        ...

    def plan(self, publisher: str, request: DistributionRequest) -> PublicationPlan:
        """What `distribute` would send. Changes nothing. Raises: as `distribute`."""
        ...

    def plan_changed(self, publisher: str, paths: Sequence[NodePath]) -> PublicationPlan:
        """What `publish_changed` would send. Changes nothing. Raises: as `publish_changed`."""
        ...

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:
        """Return the outcome of a package, by its package id or request id.

        Waits at most `wait_seconds` until no subscriber is pending. Raises: DistributionMissingError.
        """
        ...

    def distributions(self, publisher: str, before: int | None = None, max_items: int = 20) -> DistributionPage:
        """A publisher's requests, the newest first, from those before an offset on. Raises: AgentMissingError."""
        ...

    def builds(self, build_id: str | None = None) -> Sequence[BuildView]:
        """The bulk builds in the log, the newest first, or the one of that id. Raises: BuildMissingError."""
        ...

    def queues(self, publisher: str) -> Sequence[QueueView]:
        """All queues of a publisher, with their heads. Raises: AgentMissingError."""
        ...

    def queue(self, publisher: str, name: str, from_offset: int = 0, max_items: int = 100) -> QueuePage:
        """A piece of a queue; `name` is the queue's, or just the subscriber's where that is clear.

        Raises: AgentMissingError, QueueMissingError.
        """
        ...

    def clear(self, publisher: str, name: str, max_items: int | None = None, wait_seconds: float = 0.0) -> CommandView:
        """Drop the first `max_items` packages of a queue, all that it holds now when None.

        The command is durable when the call returns; the subscriber's answer is waited for at most `wait_seconds`.
        Raises: AgentMissingError, QueueMissingError, QueueNotClearableError.
        """
        ...

    def remove(self, publisher: str, name: str, item_ids: Sequence[str], wait_seconds: float = 0.0) -> CommandView:
        """Drop packages from the head of a queue up to the last one named; each must be in the queue.

        One id must be the head's; of several, everything up to the largest goes, as in Sling.
        Raises: as `clear`, and UsageError for an item that isn't there.
        """
        ...

    def command(self, publisher: str | None, command_id: str) -> CommandView:
        """Outcome of a command for a publisher's packages; None: of any. Raises: CommandMissingError."""
        ...

    def errors(self, subscriber: str | None = None, page: str | None = None, max_items: int = 100) -> GivenUpPage:
        """A page of the given-up packages of one subscriber or all; `page`: token of the page before.

        Raises: AgentMissingError; UsageError for a token of another list.
        """
        ...

    def redrive(self, subscriber: str, offsets: Sequence[int], wait_seconds: float = 0.0) -> Sequence[CommandView]:
        """Ask a subscriber to import given-up packages after all. Raises: AgentMissingError, UsageError."""
        ...

    def forget(self, subscriber: str) -> ForgottenView:
        """Deregister a subscriber permanently: retention and queues stop accounting for it.

        Raises: AgentMissingError; UsageError for one that runs.
        """
        ...

    def suspend(self, subscriber: str, seconds: float | None = None, wait_seconds: float = 0.0) -> CommandView:
        """Ask a subscriber to import nothing before it is resumed, or so many seconds have passed.

        The command is durable when the call returns; the answer, which comes when no import runs, is waited for at most
        `wait_seconds`. Raises: AgentMissingError; UsageError where several subscribers have the name.
        """
        ...

    def resume(self, subscriber: str, wait_seconds: float = 0.0) -> CommandView:
        """Ask a suspended subscriber to import again. Raises: as `suspend`."""
        ...


def error_pages(control: Control, subscriber: str | None = None) -> Iterator[GivenUpPage]:
    """All pages of the packages that were given up. Raises: as `Control.errors`."""
    token: str | None = None
    while True:
        page = control.errors(subscriber, token)
        yield page
        token = page.next_page
        if token is None:
            return
