"""The operations on packages, queues, the journal and blobs over HTTP, one request each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from mailboat.api.archive import (
    MAX_BLOBS,
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
from mailboat.api.orders import (
    ApiOrder,
    BenchOrder,
    ChangeOrder,
    ClearOrder,
    DistributionOrder,
    EnsureOrder,
    RedriveOrder,
    RestoreOrder,
    ResumeOrder,
    SnapshotOrder,
    SubscriberSuspendOrder,
    SweepOrder,
    TruncateOrder,
    VerifyOrder,
)
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

T = TypeVar("T")


class HttpOperations:
    """What `Control` and `Archive` of an agent answer in one request; `HttpControl` adds waits and pages."""

    def __init__(self, ask: Ask) -> None:
        """Send each operation by `ask`."""
        self._ask = ask

    def status(self) -> StatusView:
        return self._ask(Operation("GET", "/status", StatusView))

    def distribute(self, publisher: str, request: DistributionRequest) -> DistributionView:
        path = f"{publisher_path(publisher)}/distributions"
        return self._ask(Operation("POST", path, DistributionView, body=DistributionOrder.of(request)))

    def plan(self, publisher: str, request: DistributionRequest) -> PublicationPlan:
        return self._work(f"{publisher_path(publisher)}/plan", PublicationPlan, DistributionOrder.of(request))

    def plan_changed(self, publisher: str, paths: Sequence[NodePath]) -> PublicationPlan:
        return self._work(f"{publisher_path(publisher)}/plan/changes", PublicationPlan, ChangeOrder(tuple(paths)))

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> DistributionView:
        path = f"{publisher_path(publisher)}/distributions/{quoted(package_id)}"
        return self._ask(Operation("GET", path, DistributionView, {"wait": wait_seconds}, wait_seconds=wait_seconds))

    def distributions(self, publisher: str, before: int | None = None, max_items: int = 20) -> DistributionPage:
        query = {"before": before, "max_items": max_items}
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
        return self._ask(Operation("POST", f"{_queue(publisher, name)}/clear", CommandView, body=ClearOrder(max_items)))

    def remove(self, publisher: str, name: str, item_ids: Sequence[str]) -> CommandView:
        """As the port says, without a wait."""
        return self._ask(Operation("DELETE", f"{_queue(publisher, name)}/items", CommandView, {"id": list(item_ids)}))

    def command(self, publisher: str | None, command_id: str, wait_seconds: float = 0.0) -> CommandView:
        path = f"{publisher_path(publisher) if publisher else ''}/commands/{quoted(command_id)}"
        return self._ask(Operation("GET", path, CommandView, {"wait": wait_seconds}, wait_seconds=wait_seconds))

    def errors(self, subscriber: str | None = None, page: str | None = None, max_items: int = 100) -> GivenUpPage:
        query = {"subscriber": subscriber, "page": page, "max_items": max_items}
        return self._ask(Operation("GET", "/errors", GivenUpPage, query))

    def redrive(self, subscriber: str, offsets: Sequence[int]) -> Sequence[CommandView]:
        """As the port says, without a wait."""
        order = RedriveOrder(subscriber, tuple(offsets))
        return self._ask(Operation("POST", "/errors/redrive", tuple[CommandView, ...], body=order))

    def suspend(self, subscriber: str, seconds: float | None = None) -> CommandView:
        """As the port says, without a wait."""
        order = SubscriberSuspendOrder(seconds)
        return self._ask(Operation("POST", f"/subscribers/{quoted(subscriber)}/suspend", CommandView, body=order))

    def resume(self, subscriber: str) -> CommandView:
        """As the port says, without a wait."""
        return self._ask(
            Operation("POST", f"/subscribers/{quoted(subscriber)}/resume", CommandView, body=ResumeOrder())
        )

    def forget(self, subscriber: str) -> ForgottenView:
        return self._ask(Operation("DELETE", f"/subscribers/{quoted(subscriber)}", ForgottenView))

    def records(self, role: str, from_offset: int | None = None, max_items: int = 20) -> tuple[RecordView, ...]:
        query = {"from_offset": from_offset, "max_items": max_items}
        return self._ask(Operation("GET", f"/journal/{quoted(role)}/messages", tuple[RecordView, ...], query))

    def verify(self, *, reads_blobs: bool = False) -> VerificationView:
        """Reading a large journal takes minutes."""
        return self._work("/journal/verify", VerificationView, VerifyOrder(reads_blobs))

    def truncate(self, role: str, before: int, *, is_dry_run: bool = True) -> TruncationView:
        return self._work(f"/journal/{quoted(role)}/truncate", TruncationView, TruncateOrder(before, is_dry_run))

    def remove_expired(self) -> ExpiryView:
        return self._work("/journal/expire", ExpiryView)

    def retention(self, *, is_applied: bool = False) -> RetentionView:
        method = "POST" if is_applied else "GET"
        return self._ask(Operation(method, "/journal/retention", RetentionView, wait_seconds=PACKAGING_SECONDS))

    def ensure_topics(self, *, is_dry_run: bool = False) -> TopicSetup:
        return self._work("/journal/ensure", TopicSetup, EnsureOrder(is_dry_run))

    def bench(self, order: BenchOrder) -> JournalFigures:
        return self._work("/journal/bench", JournalFigures, order)

    def blobs(self, *, is_removable: bool = False, max_items: int | None = None) -> BlobList:
        query = {"removable": is_removable, "max_items": MAX_BLOBS if max_items is None else min(max_items, MAX_BLOBS)}
        return self._ask(Operation("GET", "/blobs", BlobList, query, wait_seconds=PACKAGING_SECONDS))

    def sweep(self, *, is_dry_run: bool = True, forget_journal: str | None = None) -> SweepView:
        return self._work("/blobs/sweep", SweepView, SweepOrder(is_dry_run, forget_journal))

    def snapshots(self) -> tuple[SnapshotView, ...]:
        return self._ask(Operation("GET", "/snapshots", tuple[SnapshotView, ...]))

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        return self._work("/snapshots", StoredSnapshotView, SnapshotOrder(target, name, is_forced))

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        order = RestoreOrder(target, is_replacing)
        return self._ask(Operation("POST", f"/snapshots/{quoted(name)}/restore", RestoreView, body=order))

    def restores(self) -> tuple[RestoreView, ...]:
        return self._ask(Operation("GET", "/restores", tuple[RestoreView, ...]))

    def _work(self, path: str, answer: type[T], order: ApiOrder | None = None) -> T:
        """Ask for what needs the whole source, journal or target."""
        return self._ask(Operation("POST", path, answer, body=order, wait_seconds=PACKAGING_SECONDS))


def publisher_path(name: str) -> str:
    """The path of a publisher."""
    return f"/publishers/{quoted(name)}"


def _queue(publisher: str, name: str) -> str:
    return f"{publisher_path(publisher)}/queues/{quoted(name)}"
