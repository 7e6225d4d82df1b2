"""The blob store: its blobs, their sweep, and the snapshots of targets in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Strict, StringConstraints, with_config
from starlette.concurrency import run_in_threadpool

from mailboat.api.archive import MAX_BLOBS, BlobList, RestoreView, SnapshotView, StoredSnapshotView, SweepView
from mailboat.config.document import Verb
from mailboat.http.examples import BLOBS, RESTORE, SNAPSHOT, STORED_SNAPSHOT, SWEEP
from mailboat.http.ports import LONGEST_NAME, CurrentCall, Ports, operation

router = APIRouter(prefix="/api/v1", tags=["storage"])

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]


@with_config(ConfigDict(title="SweepOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class SweepDocument:
    """A request to sweep the blob store.

    Attributes:
        dry_run: Count blobs; remove nothing.
        forget_journal: Id of a journal to treat as deleted; its blobs may be removed.
    """

    dry_run: bool = True
    forget_journal: Name | None = None


@with_config(ConfigDict(title="SnapshotOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class SnapshotDocument:
    """A request to store a snapshot.

    Attributes:
        target: The target of a subscriber of this agent, as its status shows it.
        name: The name of the snapshot.
        force: Replace a snapshot of that name that is as new, or of another journal.
    """

    target: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    name: Name
    force: bool = False


@with_config(ConfigDict(title="RestoreOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class RestoreDocument:
    """A request to restore a snapshot.

    Attributes:
        target: The target of a subscriber of this agent, as `GET /restores` lists it.
        replace: Replace the content of the target; without it, a target with content is refused.
    """

    target: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    replace: Annotated[bool, Strict()] = False


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
async def sweep_blobs(document: SweepDocument, ports: Ports, call: CurrentCall) -> SweepView:
    """Removes blobs that no message refers to and that are older than the grace period. Default: a dry run."""
    call.concerns({"dry_run": document.dry_run})
    return await run_in_threadpool(
        lambda: ports.archive.sweep(is_dry_run=document.dry_run, forget_journal=document.forget_journal)
    )


@router.get("/snapshots", **operation(Verb.VIEW, "List snapshots", example=[SNAPSHOT]))
def list_snapshots(ports: Ports) -> Sequence[SnapshotView]:
    """The snapshots in the blob store."""
    return ports.archive.snapshots()


@router.post("/snapshots", **operation(Verb.ADMIN, "Store a snapshot", example=STORED_SNAPSHOT, also=(409,)))
async def store_snapshot(document: SnapshotDocument, ports: Ports, call: CurrentCall) -> StoredSnapshotView:
    """Copies the target of a subscriber of this agent, with its position, to the blob store."""
    call.concerns({"target": document.target, "snapshot": document.name})
    return await run_in_threadpool(
        lambda: ports.archive.store_snapshot(document.target, document.name, is_forced=document.force)
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
async def restore_snapshot(
    snapshot: SnapshotName, document: RestoreDocument, ports: Ports, call: CurrentCall
) -> RestoreView:
    """Begins a restore into the target of a subscriber of this agent, which is stopped meanwhile.

    Content, position and error queue are replaced in one commit, or stay as they were; then the subscriber imports what
    was published since. `GET /restores` has the outcome.
    """
    call.concerns({"target": document.target, "snapshot": snapshot})
    begun = await run_in_threadpool(
        lambda: ports.archive.restore_snapshot(snapshot, document.target, is_replacing=document.replace)
    )
    call.concerns({"subscriber": begun.subscriber})
    return begun


@router.get("/restores", **operation(Verb.VIEW, "List restores", example=[RESTORE]))
def list_restores(ports: Ports) -> Sequence[RestoreView]:
    """The subscribers of this agent, each with the last restore into its target."""
    return ports.archive.restores()
