"""The operations of the control API: each request as data, and the reading of its answer. No I/O.

`client.py` sends them from a thread, the operator from its event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from mailboat.api.archive import (
    MAX_BLOBS,
    BenchPlan,
    BlobList,
    ExpiryView,
    JournalFigures,
    RecordView,
    RestoreView,
    RetentionView,
    SnapshotView,
    StoredSnapshotView,
    SweepView,
    TopicSetup,
    TopicView,
    TruncationView,
    VerificationView,
)
from mailboat.api.problems import error_of, read_problem
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
from mailboat.errors import AccessDeniedError, AgentDefectError, MailboatError
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest

PREFIX: Final = "/api/v1"
"""The path below which all operations are."""

LONGEST_WAIT_SECONDS: Final = 60.0
"""The longest time that an agent waits in one request; for a longer wait the client asks again."""

_PACKAGING_SECONDS: Final = 540.0
"""Additional time for an answer that needs the whole source, journal or target to be read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicList:
    """The topics in the answer about the journal.

    Attributes:
        topics: All topics.
    """

    topics: tuple[TopicView, ...]


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request to the control API.

    Attributes:
        method: The HTTP method.
        path: The path below `PREFIX`.
        answer: The record that answers it.
        query: The query parameters; a list stands for a repeated one.
        body: The JSON body; None sends none.
        wait_seconds: The time that the agent may wait before it answers.
        answer_seconds: The time for the answer, in addition to the wait; None is the client's.
    """

    method: str
    path: str
    answer: type[T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    wait_seconds: float = 0.0
    answer_seconds: float | None = None


def status() -> Operation[StatusView]:
    """`Control.status`."""
    return Operation("GET", "/status", StatusView)


def distribute(publisher: str, request: DistributionRequest) -> Operation[DistributionView]:
    """`Control.distribute`."""
    return Operation("POST", f"{_publisher(publisher)}/distributions", DistributionView, body=_body(request))


def publish_changed(
    publisher: str, paths: Sequence[NodePath], user_id: str | None = None
) -> Operation[tuple[DistributionView, ...]]:
    """`Control.publish_changed`; comparing and packaging a large source takes minutes."""
    path, body = f"{_publisher(publisher)}/changes", {"paths": list(paths), "user_id": user_id}
    return Operation("POST", path, tuple[DistributionView, ...], body=body, wait_seconds=_PACKAGING_SECONDS)


def plan(publisher: str, request: DistributionRequest) -> Operation[PublicationPlan]:
    """`Control.plan`."""
    path = f"{_publisher(publisher)}/plan"
    return Operation("POST", path, PublicationPlan, body=_body(request), wait_seconds=_PACKAGING_SECONDS)


def plan_changed(publisher: str, paths: Sequence[NodePath]) -> Operation[PublicationPlan]:
    """`Control.plan_changed`."""
    path, body = f"{_publisher(publisher)}/plan/changes", {"paths": list(paths)}
    return Operation("POST", path, PublicationPlan, body=body, wait_seconds=_PACKAGING_SECONDS)


def distribution(publisher: str, package_id: str, wait_seconds: float = 0.0) -> Operation[DistributionView]:
    """`Control.distribution`."""
    path = f"{_publisher(publisher)}/distributions/{_quoted(package_id)}"
    return Operation("GET", path, DistributionView, {"wait": wait_seconds}, wait_seconds=wait_seconds)


def distributions(publisher: str, before: int | None, max_items: int) -> Operation[DistributionPage]:
    """`Control.distributions`."""
    query = {"max_items": max_items} | ({} if before is None else {"before": before})
    return Operation("GET", f"{_publisher(publisher)}/distributions", DistributionPage, query)


def builds() -> Operation[tuple[BuildView, ...]]:
    """`Control.builds`, of all builds."""
    return Operation("GET", "/builds", tuple[BuildView, ...])


def build(build_id: str) -> Operation[BuildView]:
    """`Control.builds`, of one build."""
    return Operation("GET", f"/builds/{_quoted(build_id)}", BuildView)


def queues(publisher: str) -> Operation[tuple[QueueView, ...]]:
    """`Control.queues`, the first page; the header `Link` leads to the next one."""
    return Operation("GET", f"{_publisher(publisher)}/queues", tuple[QueueView, ...])


def queue(publisher: str, name: str, from_offset: int, max_items: int) -> Operation[QueuePage]:
    """`Control.queue`."""
    return Operation("GET", _queue(publisher, name), QueuePage, {"from_offset": from_offset, "max_items": max_items})


def clear(publisher: str, name: str, max_items: int | None) -> Operation[CommandView]:
    """`Control.clear`, without its wait."""
    return Operation("POST", f"{_queue(publisher, name)}/clear", CommandView, body={"max_items": max_items})


def remove(publisher: str, name: str, item_ids: Sequence[str]) -> Operation[CommandView]:
    """`Control.remove`, without its wait."""
    return Operation("DELETE", f"{_queue(publisher, name)}/items", CommandView, {"id": list(item_ids)})


def command(publisher: str | None, command_id: str, wait_seconds: float = 0.0) -> Operation[CommandView]:
    """`Control.command`."""
    path = f"{_publisher(publisher) if publisher else ''}/commands/{_quoted(command_id)}"
    return Operation("GET", path, CommandView, {"wait": wait_seconds}, wait_seconds=wait_seconds)


def errors(subscriber: str | None, page: str | None, max_items: int) -> Operation[GivenUpPage]:
    """`Control.errors`."""
    query = {"subscriber": subscriber, "page": page, "max_items": max_items}
    return Operation("GET", "/errors", GivenUpPage, {key: value for key, value in query.items() if value is not None})


def redrive(subscriber: str, offsets: Sequence[int]) -> Operation[tuple[CommandView, ...]]:
    """`Control.redrive`, without its wait."""
    body = {"subscriber": subscriber, "offsets": list(offsets)}
    return Operation("POST", "/errors/redrive", tuple[CommandView, ...], body=body)


def suspend(subscriber: str, seconds: float | None) -> Operation[CommandView]:
    """`Control.suspend`, without its wait."""
    return Operation("POST", f"/subscribers/{_quoted(subscriber)}/suspend", CommandView, body={"seconds": seconds})


def resume(subscriber: str) -> Operation[CommandView]:
    """`Control.resume`, without its wait."""
    return Operation("POST", f"/subscribers/{_quoted(subscriber)}/resume", CommandView, body={})


def forget(subscriber: str) -> Operation[ForgottenView]:
    """`Control.forget`."""
    return Operation("DELETE", f"/subscribers/{_quoted(subscriber)}", ForgottenView)


def topics() -> Operation[TopicList]:
    """`Archive.topics`."""
    return Operation("GET", "/journal", TopicList)


def records(role: str, from_offset: int | None, max_items: int) -> Operation[tuple[RecordView, ...]]:
    """`Archive.records`."""
    query = {"max_items": max_items} | ({} if from_offset is None else {"from_offset": from_offset})
    return Operation("GET", f"/journal/{_quoted(role)}/messages", tuple[RecordView, ...], query)


def verify(*, reads_blobs: bool) -> Operation[VerificationView]:
    """`Archive.verify`; reading a large journal takes minutes."""
    body = {"read_blobs": reads_blobs}
    return Operation("POST", "/journal/verify", VerificationView, body=body, wait_seconds=_PACKAGING_SECONDS)


def truncate(role: str, before: int, *, is_dry_run: bool) -> Operation[TruncationView]:
    """`Archive.truncate`."""
    body = {"before": before, "dry_run": is_dry_run}
    path = f"/journal/{_quoted(role)}/truncate"
    return Operation("POST", path, TruncationView, body=body, wait_seconds=_PACKAGING_SECONDS)


def remove_expired() -> Operation[ExpiryView]:
    """`Archive.remove_expired`."""
    return Operation("POST", "/journal/expire", ExpiryView, wait_seconds=_PACKAGING_SECONDS)


def retention(*, is_applied: bool) -> Operation[RetentionView]:
    """`Archive.retention`."""
    method = "POST" if is_applied else "GET"
    return Operation(method, "/journal/retention", RetentionView, wait_seconds=_PACKAGING_SECONDS)


def ensure_topics(*, is_dry_run: bool) -> Operation[TopicSetup]:
    """`Archive.ensure_topics`."""
    body = {"dry_run": is_dry_run}
    return Operation("POST", "/journal/ensure", TopicSetup, body=body, wait_seconds=_PACKAGING_SECONDS)


def bench(plan: BenchPlan) -> Operation[JournalFigures]:
    """`Archive.bench`."""
    body = {"message_bytes": plan.message_bytes, "rounds": plan.rounds, "seconds": plan.seconds}
    return Operation("POST", "/journal/bench", JournalFigures, body=body, wait_seconds=_PACKAGING_SECONDS)


def blobs(*, is_removable: bool, max_items: int | None) -> Operation[BlobList]:
    """`Archive.blobs`."""
    query = {"removable": is_removable, "max_items": MAX_BLOBS if max_items is None else min(max_items, MAX_BLOBS)}
    return Operation("GET", "/blobs", BlobList, query, wait_seconds=_PACKAGING_SECONDS)


def sweep(*, is_dry_run: bool, forget_journal: str | None) -> Operation[SweepView]:
    """`Archive.sweep`."""
    body = {"dry_run": is_dry_run, "forget_journal": forget_journal}
    return Operation("POST", "/blobs/sweep", SweepView, body=body, wait_seconds=_PACKAGING_SECONDS)


def snapshots() -> Operation[tuple[SnapshotView, ...]]:
    """`Archive.snapshots`."""
    return Operation("GET", "/snapshots", tuple[SnapshotView, ...])


def store_snapshot(target: str, name: str, *, is_forced: bool) -> Operation[StoredSnapshotView]:
    """`Archive.store_snapshot`."""
    body = {"target": target, "name": name, "force": is_forced}
    return Operation("POST", "/snapshots", StoredSnapshotView, body=body, wait_seconds=_PACKAGING_SECONDS)


def restore_snapshot(name: str, target: str, *, is_replacing: bool) -> Operation[RestoreView]:
    """`Restores.restore_snapshot`."""
    body = {"target": target, "replace": is_replacing}
    return Operation("POST", f"/snapshots/{_quoted(name)}/restore", RestoreView, body=body)


def restores() -> Operation[tuple[RestoreView, ...]]:
    """`Restores.restores`."""
    return Operation("GET", "/restores", tuple[RestoreView, ...])


def remove_snapshot(name: str) -> Operation[dict[str, str]]:
    """`Archive.remove_snapshot`."""
    return Operation("DELETE", f"/snapshots/{_quoted(name)}", dict[str, str])


def read_answer(operation: Operation[T], content: bytes, url: str) -> T:
    """The record in a successful answer; members that this version does not know are ignored.

    Raises: AgentDefectError for an answer that is not such a record.
    """
    try:
        return msgspec.json.decode(content, type=operation.answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise AgentDefectError(f"unexpected response from {url}: not a Mailboat API document") from error


def read_error(status: int, content: bytes, url: str) -> MailboatError:
    """The error in an answer that is not successful: the error of the agent, with its facts, where there is one."""
    problem = read_problem(content)
    known = None if problem is None else error_of(problem, url)
    if known is not None:
        return known
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return AccessDeniedError(
                f"the agent at {url} requires a valid token",
                next_step="pass one with --token-file FILE or in MAILBOAT_TOKEN",
            )
        case HTTPStatus.FORBIDDEN:
            return AccessDeniedError(f"the agent at {url} does not permit this with this token")
    message = f"the agent at {url} answered with status {status} {_phrase(status)}"
    return AgentDefectError(message.rstrip(), incident=None if problem is None else problem.incident)


def _body(request: DistributionRequest) -> Mapping[str, Any]:
    return {
        "action": str(request.action),
        "paths": list(request.paths),
        "deep_paths": sorted(request.deep_paths),
        "request_id": request.request_id,
        "user_id": request.user_id,
        "trace_parent": request.trace_parent,
    }


def _publisher(name: str) -> str:
    return f"/publishers/{_quoted(name)}"


def _queue(publisher: str, name: str) -> str:
    return f"{_publisher(publisher)}/queues/{_quoted(name)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
