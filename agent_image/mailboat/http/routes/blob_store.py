"""The blob store: its blobs, their sweep, and the snapshots of targets in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool

from mailboat.api.archive import MAX_BLOBS, BlobList, RestoreView, SnapshotView, StoredSnapshotView, SweepView
from mailboat.api.orders import LONGEST_NAME, RestoreOrder, SnapshotOrder, SweepOrder
from mailboat.config.document import Verb
from mailboat.http.examples import BLOBS, RESTORE, SNAPSHOT, STORED_SNAPSHOT, SWEEP
from mailboat.http.ports import CurrentCall, Ports, operation

router = APIRouter(prefix="/api/v1", tags=["storage"])

SnapshotName = Annotated[
    str, Path(description="The snapshot's name, without `blob:`.", max_length=LONGEST_NAME, examples=["site"])
]
Removable = Annotated[bool, Query(description="Only blobs that a sweep would remove.")]
MaxBlobs = Annotated[int, Query(description="Maximum number of blobs.", ge=1, le=MAX_BLOBS)]


@router.get("/blobs", **operation(Verb.ADMIN, "List blobs", example=BLOBS))
def list_blobs(*, ports: Ports, removable: Removable = False, max_items: MaxBlobs = 1_000) -> BlobList:
    """Reads the whole package topic to find references. One caller at a time (429)."""
    return ports.archive.blobs(is_removable=removable, max_items=max_items)


@router.post("/blobs/sweep", **operation(Verb.ADMIN, "Sweep the blob store", example=SWEEP))
async def sweep_blobs(order: SweepOrder, ports: Ports, call: CurrentCall) -> SweepView:
    """Removes blobs that no message refers to and that are older than the grace period. Default: a dry run."""
    call.concerns({"dry_run": order.dry_run})
    return await run_in_threadpool(
        lambda: ports.archive.sweep(is_dry_run=order.dry_run, forget_journal=order.forget_journal)
    )


@router.get("/snapshots", **operation(Verb.VIEW, "List snapshots", example=[SNAPSHOT]))
def list_snapshots(ports: Ports) -> Sequence[SnapshotView]:
    """The snapshots in the blob store."""
    return ports.archive.snapshots()


@router.post("/snapshots", **operation(Verb.ADMIN, "Store a snapshot", example=STORED_SNAPSHOT, also=(409,)))
async def store_snapshot(order: SnapshotOrder, ports: Ports, call: CurrentCall) -> StoredSnapshotView:
    """Copies the target of a subscriber of this agent, with its position, to the blob store."""
    call.concerns({"target": order.target, "snapshot": order.name})
    return await run_in_threadpool(
        lambda: ports.archive.store_snapshot(order.target, order.name, is_forced=order.force)
    )


@router.delete("/snapshots/{snapshot}", **operation(Verb.ADMIN, "Remove a snapshot", example={"removed": "site"}))
async def remove_snapshot(snapshot: SnapshotName, ports: Ports, call: CurrentCall) -> dict[str, str]:
    """Removes the name; a sweep then removes the blob. An unknown name is refused (400)."""
    call.concerns({"snapshot": snapshot})
    await run_in_threadpool(ports.archive.remove_snapshot, snapshot)
    return {"removed": snapshot}


@router.post(
    "/snapshots/{snapshot}/restore",
    **operation(Verb.ADMIN, "Restore a snapshot", example=RESTORE, also=(409,), status=202),
)
async def restore_snapshot(snapshot: SnapshotName, order: RestoreOrder, ports: Ports, call: CurrentCall) -> RestoreView:
    """Begins a restore into the target of a subscriber of this agent, which is stopped meanwhile.

    Content, position and error queue are replaced in one commit, or stay as they were; then the subscriber imports what
    was published since. `GET /restores` has the outcome.
    """
    call.concerns({"target": order.target, "snapshot": snapshot})
    begun = await run_in_threadpool(
        lambda: ports.archive.restore_snapshot(snapshot, order.target, is_replacing=order.replace)
    )
    call.concerns({"subscriber": begun.subscriber})
    return begun


@router.get("/restores", **operation(Verb.VIEW, "List restores", example=[RESTORE]))
def list_restores(ports: Ports) -> Sequence[RestoreView]:
    """The subscribers of this agent, each with the last restore into its target."""
    return ports.archive.restores()
