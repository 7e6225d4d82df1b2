"""`mailboat content snapshot` and `restore`: a target with its position in one file, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mailboat.cli.declaring import command
from mailboat.cli.rendering import Report, bytes_text, count_text, time_text
from mailboat.cli.session import Session
from mailboat.errors import UsageError

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.snapshots import Taken


def register(group: typer.Typer) -> None:
    """Add the commands to the group of content."""
    group.command("snapshot")(snapshot)
    group.command("restore")(restore)


@command
def snapshot(
    session: Session,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A target: files:DIR, generations:DIR or sqlite:FILE.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The snapshot to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a target's content with its position to one file, also while a subscriber imports into it.

    A files: target can't be copied while a subscriber runs on it; it says so.
    """
    from mailboat.agent.snapshots import take_snapshot
    from mailboat.clock import SystemClock

    if file.exists() and not force:
        raise UsageError(f"{file} is there already", next_step=f"another name, or --force to replace {file}")
    taken = take_snapshot(target, file, SystemClock())
    session.show(_report(taken, file, f"{target} at {taken.head.position.next_offset} is in {file}"))


@command
def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A snapshot.")],
    into: Annotated[
        str, typer.Option("--into", metavar="TARGET", help="A new target: files:DIR, generations:DIR or sqlite:FILE.")
    ],
    any_journal: Annotated[
        bool, typer.Option("--any-journal", help="Leave it to the subscriber's start whether the position fits.")
    ] = False,
) -> None:
    """Make a new target of a snapshot: a subscriber on it goes on where the snapshot stands.

    The position must fit the journal of the home, if there is one.
    """
    from mailboat.agent.snapshots import restore_snapshot

    with _journal_to_fit(session, is_wanted=not any_journal) as workspace:
        taken = restore_snapshot(file, into, workspace)
    offset = taken.head.position.next_offset
    session.show(_report(taken, file, f"{into} has what {file} held, and goes on at {offset}"))
    if workspace is None:
        session.note("whether the position fits the journal is seen when a subscriber starts on it")
    if taken.head.given_up:
        session.note(
            f"it lacks {count_text(len(taken.head.given_up), 'package')} that had been given up:"
            " mailboat errors ls, once its subscriber runs"
        )


@contextmanager
def _journal_to_fit(session: Session, *, is_wanted: bool) -> Iterator[Workspace | None]:
    from mailboat.agent.home import HomeMissingError

    if not is_wanted:
        yield None
        return
    try:
        workspace = session.workspace()
    except HomeMissingError:
        if session.is_home_given:
            raise
        yield None
        return
    with workspace:
        yield workspace


def _report(taken: Taken, file: Path, line: str) -> Report:
    position = taken.head.position
    document: dict[str, Any] = {
        "snapshot": str(file),
        "bytes": taken.total_bytes,
        "target": taken.head.target,
        "taken_at": time_text(taken.head.taken_ms),
        "next_offset": position.next_offset,
        "identity": str(position.identity),
        "nodes": taken.tail.node_count,
        "tree_digest": taken.tail.tree_digest,
        "given_up": len(taken.head.given_up),
    }
    figures = (
        f"{count_text(taken.tail.node_count, 'node')}, {bytes_text(taken.total_bytes)},"
        f" digest {taken.tail.tree_digest[:8]}, taken {document['taken_at']}"
    )
    return Report(document, [str(file)], lambda: [line, figures])
