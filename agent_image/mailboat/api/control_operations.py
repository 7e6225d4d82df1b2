"""The operations on packages, queues, the journal and blobs over HTTP, one request each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
    TruncationView,
    VerificationView,
)
from mailboat.api.operations import Ask, Operation, quoted
from mailboat.api.records import (
    BuildView,
    CommandView,
    DistributionPage,
    DistributionView,
    ForgottenView,
    GivenUpPage,
    PublicationPlan,
    QueuePage,
    StatusView,
)
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest

PACKAGING_SECONDS: Final = 540.0
"""Additional time for an answer that needs the whole source, journal or target to be read."""


class HttpOperations:
    """What `Control` and `Archive` of an agent answer in one request; `HttpControl` adds waits and pages."""

    def __init__(self, ask: Ask) -> None:
        """Send each operation by `ask`."""
        self._ask = ask

    def status(self) -> StatusView:
        return self._ask(Operation("GET", "/status", StatusView))

    def distribute(self, publisher: str, request: DistributionRequest) -> DistributionView:
        return self._ask(
            Operation("POST", f"{publisher_path(publisher)}/distributions", DistributionView, body=_body(request))
        )

    def plan(self, publisher: str, request: DistributionRequest) -> PublicationPlan:
        path = f"{publisher_path(publisher)}/plan"
        return self._ask(Operation("POST", path, PublicationPlan, body=_body(request), wait_seconds=PACKAGING_SECONDS))

    def plan_changed(self, publisher: str, paths: Sequence[NodePath]) -> PublicationPlan:
        path, body = f"{publisher_path(publisher)}/plan/changes", {"paths": list(paths)}
        return self._ask(Operation("POST", path, PublicationPlan, body=body, wait_seconds=PACKAGING_SECONDS))

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:
        path = f"{publisher_path(publisher)}/distributions/{quoted(package_id)}"
        return self._ask(Operation("GET", path, DistributionView, {"wait": wait_seconds}, wait_seconds=wait_seconds))

    def distributions(self, publisher: str, before: int | None = None, max_items: int = 20) -> DistributionPage:
        query = {"max_items": max_items} | ({} if before is None else {"before": before})
        return self._ask(Operation("GET", f"{publisher_path(publisher)}/distributions", DistributionPage, query))

    def build(self, build_id: str) -> BuildView:
        """One bulk build. Raises: BuildMissingError."""
        return self._ask(Operation("GET", f"/builds/{quoted(build_id)}", BuildView))

    def queue(self, publisher: str, name: str, from_offset: int = 0, max_items: int = 100) -> QueuePage:
        return self._ask(
            Operation("GET", _queue(publisher, name), QueuePage, {"from_offset": from_offset, "max_items": max_items})
        )

    def clear(self, publisher: str, name: str, max_items: int | None = None) -> CommandView:
        """As the port says, without a wait."""
        return self._ask(
            Operation("POST", f"{_queue(publisher, name)}/clear", CommandView, body={"max_items": max_items})
        )

    def remove(self, publisher: str, name: str, item_ids: Sequence[str]) -> CommandView:
        """As the port says, without a wait."""
        return self._ask(Operation("DELETE", f"{_queue(publisher, name)}/items", CommandView, {"id": list(item_ids)}))

    def command(self, publisher: str | None, command_id: str, wait_seconds: float = 0.0) -> CommandView:
        path = f"{publisher_path(publisher) if publisher else ''}/commands/{quoted(command_id)}"
        return self._ask(Operation("GET", path, CommandView, {"wait": wait_seconds}, wait_seconds=wait_seconds))

    def errors(self, subscriber: str | None = None, page: str | None = None, max_items: int = 100) -> GivenUpPage:
        query = {"subscriber": subscriber, "page": page, "max_items": max_items}
        return self._ask(
            Operation("GET", "/errors", GivenUpPage, {key: value for key, value in query.items() if value is not None})
        )

    def redrive(self, subscriber: str, offsets: Sequence[int]) -> Sequence[CommandView]:
        """As the port says, without a wait."""
        body = {"subscriber": subscriber, "offsets": list(offsets)}
        return self._ask(Operation("POST", "/errors/redrive", tuple[CommandView, ...], body=body))

    def suspend(self, subscriber: str, seconds: float | None = None) -> CommandView:
        """As the port says, without a wait."""
        return self._ask(
            Operation("POST", f"/subscribers/{quoted(subscriber)}/suspend", CommandView, body={"seconds": seconds})
        )

    def resume(self, subscriber: str) -> CommandView:
        """As the port says, without a wait."""
        return self._ask(Operation("POST", f"/subscribers/{quoted(subscriber)}/resume", CommandView, body={}))

    def forget(self, subscriber: str) -> ForgottenView:
        return self._ask(Operation("DELETE", f"/subscribers/{quoted(subscriber)}", ForgottenView))

    def records(self, role: str, from_offset: int | None = None, max_items: int = 20) -> tuple[RecordView, ...]:
        query = {"max_items": max_items} | ({} if from_offset is None else {"from_offset": from_offset})
        return self._ask(Operation("GET", f"/journal/{quoted(role)}/messages", tuple[RecordView, ...], query))

    def verify(self, *, reads_blobs: bool = False) -> VerificationView:
        """Reading a large journal takes minutes."""
        body = {"read_blobs": reads_blobs}
        return self._ask(
            Operation("POST", "/journal/verify", VerificationView, body=body, wait_seconds=PACKAGING_SECONDS)
        )

    def truncate(self, role: str, before: int, *, is_dry_run: bool = True) -> TruncationView:
        body = {"before": before, "dry_run": is_dry_run}
        path = f"/journal/{quoted(role)}/truncate"
        return self._ask(Operation("POST", path, TruncationView, body=body, wait_seconds=PACKAGING_SECONDS))

    def remove_expired(self) -> ExpiryView:
        return self._ask(Operation("POST", "/journal/expire", ExpiryView, wait_seconds=PACKAGING_SECONDS))

    def retention(self, *, is_applied: bool = False) -> RetentionView:
        method = "POST" if is_applied else "GET"
        return self._ask(Operation(method, "/journal/retention", RetentionView, wait_seconds=PACKAGING_SECONDS))

    def ensure_topics(self, *, is_dry_run: bool = False) -> TopicSetup:
        body = {"dry_run": is_dry_run}
        return self._ask(Operation("POST", "/journal/ensure", TopicSetup, body=body, wait_seconds=PACKAGING_SECONDS))

    def bench(self, plan: BenchPlan) -> JournalFigures:
        body = {"message_bytes": plan.message_bytes, "rounds": plan.rounds, "seconds": plan.seconds}
        return self._ask(Operation("POST", "/journal/bench", JournalFigures, body=body, wait_seconds=PACKAGING_SECONDS))

    def blobs(self, *, is_removable: bool = False, max_items: int | None = None) -> BlobList:
        query = {"removable": is_removable, "max_items": MAX_BLOBS if max_items is None else min(max_items, MAX_BLOBS)}
        return self._ask(Operation("GET", "/blobs", BlobList, query, wait_seconds=PACKAGING_SECONDS))

    def sweep(self, *, is_dry_run: bool = True, forget_journal: str | None = None) -> SweepView:
        body = {"dry_run": is_dry_run, "forget_journal": forget_journal}
        return self._ask(Operation("POST", "/blobs/sweep", SweepView, body=body, wait_seconds=PACKAGING_SECONDS))

    def snapshots(self) -> tuple[SnapshotView, ...]:
        return self._ask(Operation("GET", "/snapshots", tuple[SnapshotView, ...]))

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        body = {"target": target, "name": name, "force": is_forced}
        return self._ask(Operation("POST", "/snapshots", StoredSnapshotView, body=body, wait_seconds=PACKAGING_SECONDS))

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        body = {"target": target, "replace": is_replacing}
        return self._ask(Operation("POST", f"/snapshots/{quoted(name)}/restore", RestoreView, body=body))

    def restores(self) -> tuple[RestoreView, ...]:
        return self._ask(Operation("GET", "/restores", tuple[RestoreView, ...]))


def _body(request: DistributionRequest) -> Mapping[str, Any]:
    return {
        "action": str(request.action),
        "paths": list(request.paths),
        "deep_paths": sorted(request.deep_paths),
        "request_id": request.request_id,
        "user_id": request.user_id,
        "trace_parent": request.trace_parent,
    }


def publisher_path(name: str) -> str:
    """The path of a publisher."""
    return f"/publishers/{quoted(name)}"


def _queue(publisher: str, name: str) -> str:
    return f"{publisher_path(publisher)}/queues/{quoted(name)}"
