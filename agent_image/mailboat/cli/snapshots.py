"""`mailboat content snapshot` and `restore`: a target with its position in a file or blob, and back."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mailboat.api.archive import RestoreView, SnapshotView
from mailboat.api.confirmations import REMOVE_SNAPSHOT, RESTORE
from mailboat.api.problems import TYPE_PREFIX, Problem, error_of
from mailboat.api.records import document_of
from mailboat.cli.config import configuration
from mailboat.cli.confirmation import ask
from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import remote_command
from mailboat.cli.output import Report, bytes_text, count_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.cli.transfer import TransferProgress, file_bytes, folder_bytes
from mailboat.clock import Clock, Deadline, SystemClock, milliseconds_now, moment_of
from mailboat.composition.configured_roots import roots_of_target
from mailboat.composition.home import Home, HomeMissingError
from mailboat.composition.places import check_file_place
from mailboat.composition.workspace import Workspace
from mailboat.content.locations import parse_target
from mailboat.content.watched_sources import Phases
from mailboat.errors import (
    AgentDefectError,
    AgentUnreachableError,
    RestoreInterruptedError,
    RetryableError,
    UsageError,
)
from mailboat.operations.stored_snapshots import RESTORE_IN_HOME, restore_stored, seed
from mailboat.operations.target_snapshots import RestoreRequest, SnapshotResult, restore_snapshot, take_snapshot

_STORED: Final = "blob:"
_POLL_SECONDS: Final = 0.5
_RESTART_SECONDS: Final = 60.0
"""An agent that stopped answering may be starting again, and its targets keep what was restored."""

app = PagedTyper()


TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="A target: files:DIR, generations:DIR or sqlite:FILE.")
]
PlaceArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="A file, or blob:NAME for the blob store of the home.")
]
IntoOption = Annotated[
    str, typer.Option("--into", metavar="TARGET", help="A new target: files:DIR, generations:DIR or sqlite:FILE.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Configuration file. Default: the home's.")
]


@app.command("snapshot")
@remote_command
def snapshot(
    session: Session,
    target: TargetArgument,
    place: PlaceArgument,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file or snapshot.")] = False,
    config: ConfigOption = None,
) -> None:
    """Write a target's content with its position to a file or the blob store.

    A files: target must be idle. blob:NAME is never replaced by an older snapshot: then nothing is stored, and the exit
    code is 0. With --url, the agent stores its target as blob:NAME.
    """
    if place.startswith(_STORED):
        _store(session, target, place, config, is_forced=force)
        return
    if session.url is not None:
        raise UsageError(
            f"the agent at {session.url} stores snapshots in its blob store only",
            next_step=f"mailboat --url {session.url} content snapshot {shlex.quote(target)} blob:NAME",
        )
    file = Path(place)
    check_file_place(file)
    if file.exists() and not force:
        raise UsageError(f"{file} is there already", next_step=f"another name, or --force to replace {file}")
    home = _home_if_any(session, config)
    roots = None if home is None else roots_of_target(home, target)
    with TransferProgress(sys.stderr) as transfer:
        transfer.begin("copying", _size_of(target) if transfer.is_shown else None)
        taken = take_snapshot(target, file, SystemClock(), transfer.advance if transfer.is_shown else None, roots)
    session.show(_report(taken, place, f"{target}: snapshot {file}, at offset {taken.head.position.next_offset}"))


@app.command("restore", asks=RESTORE)
@remote_command
def restore(
    session: Session,
    place: PlaceArgument,
    into: IntoOption,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing content.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    any_journal: Annotated[
        bool, typer.Option("--any-journal", help="Leave the position check to the subscriber.")
    ] = False,
    seed: Annotated[
        bool,
        typer.Option(
            "--seed",
            help="Exit 0 without changes if the target has a position, or blob:NAME is missing or does not fit.",
        ),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Create a target from a snapshot; its subscriber continues at that position.

    Only `roots` of its subscriber are restored. --replace replaces content, position and error queue in one commit.
    Stop the subscriber first; with --url its agent does, and restores blob:NAME.
    """
    if seed and (any_journal or replace or not place.startswith(_STORED)):
        raise UsageError("--seed takes blob:NAME, looks whether it fits the journal, and replaces nothing")
    if replace:
        ask(RESTORE.question(target=into, snapshot=place), "nothing was replaced", is_sure=yes)
    if session.url is not None:
        if seed or any_journal or config is not None or not place.startswith(_STORED):
            raise UsageError("an agent restores blob:NAME only, without --seed, --any-journal and --config")
        _restore_at_agent(session, session.url, place, into, is_replacing=replace)
        return
    if seed:
        _seed(session, place, into, config)
        return
    request = RestoreRequest(place, milliseconds_now(SystemClock()), replace)
    if place.startswith(_STORED):
        _restore_stored(session, request, into, config, is_checked=not any_journal)
    else:
        _restore_file(session, request, into, config, is_checked=not any_journal)


@app.command("snapshots")
@remote_command
def snapshots(
    session: Session,
    remove: Annotated[
        str | None,
        typer.Option("--remove", metavar="NAME", help=f"Forget this one. {REMOVE_SNAPSHOT.consequences}"),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """List the snapshots in the blob store."""
    with session.archive(_home_of(session, config)) as archive:
        if remove is not None:
            name = remove.removeprefix(_STORED)  # the list shows it with that
            archive.remove_snapshot(name)
            session.show(Report({"removed": name}, [name], lambda: [f"{_STORED}{name} is forgotten"]))
            return
        found = archive.snapshots()
    columns = [Column("SNAPSHOT"), Column("NEXT", is_number=True), Column("SIZE", is_number=True), Column("TAKEN")]
    rows = [
        [
            stored.snapshot,
            ABSENT if stored.next_offset is None else str(stored.next_offset),
            ABSENT if stored.bytes is None else bytes_text(stored.bytes),
            time_text(stored.taken_at) or ABSENT,
            _origin(stored),
        ]
        for stored in found
    ]
    table = Table([*columns, Column("OF")], rows, empty="no snapshots")
    session.show(Report(document_of(found), [stored.snapshot for stored in found], lambda: [table]))
    for stored in found:
        if stored.error is not None:
            session.note(f"{stored.snapshot} cannot be read: {stored.next_step}")


@app.command("restores")
@remote_command
def restores(session: Session) -> None:
    """List the last restore into each target of the agent at --url."""
    if session.url is None:
        raise UsageError("restores are listed by an agent", next_step="mailboat --url URL content restores")
    with session.agent(session.url) as agent:
        views = agent.restores()
    columns = [Column("SUBSCRIBER"), Column("STATE"), Column("SNAPSHOT"), Column("BEGUN"), Column("OUTCOME")]
    rows = [
        [
            view.subscriber,
            view.state,
            view.snapshot or ABSENT,
            time_text(view.begun_at) or ABSENT,
            _outcome(view),
        ]
        for view in views
    ]
    table = Table(columns, rows, empty="the agent runs no subscriber")
    session.show(Report(document_of(views), [f"{view.subscriber} {view.state}" for view in views], lambda: [table]))


def _outcome(view: RestoreView) -> str:
    if view.error is not None:
        return f"{view.error}: {view.message}"
    return ABSENT if view.next_offset is None else f"offset {view.next_offset}"


def _size_of(target: str) -> int | None:
    """About how many bytes a target holds."""
    place = parse_target(target)
    match place.kind:
        case "sqlite":
            return file_bytes(place.path)
        case "generations":
            return folder_bytes(str(place.path / "current"))
        case _:
            return folder_bytes(str(place.path))


def _store(session: Session, target: str, place: str, config: Path | None, *, is_forced: bool) -> None:
    home = _home_of(session, config)
    with TransferProgress(sys.stderr) as transfer:
        transfer.begin("copying", _size_of(target) if transfer.is_shown and home is not None else None)
        with session.archive(home, phases=transfer if transfer.is_shown else None) as archive:
            kept = archive.store_snapshot(target, place.removeprefix(_STORED), is_forced=is_forced)
    taken = kept.snapshot
    line = (
        f"{target} at {taken.next_offset} is {place}"
        if kept.stored
        else f"{place} is current: it is at offset {taken.next_offset}; nothing was stored"
    )
    figures = f"{bytes_text(taken.bytes or 0)}, taken {time_text(taken.taken_at)}"
    document = document_of(taken) | {"stored": kept.stored}
    session.show(Report(document, [place], lambda: [line, figures]))


def _home_of(session: Session, config: Path | None) -> Home | None:
    """The home of the configuration; None for an agent. Raises: UsageError for --config with --url."""
    if session.url is None:
        return configuration(session, config)
    if config is not None:
        raise UsageError("--config and --url can't be combined: the agent has its own configuration")
    return None


def _seed(session: Session, place: str, into: str, config: Path | None) -> None:
    with Workspace(configuration(session, config)) as workspace, TransferProgress(sys.stderr) as transfer:
        seeded = seed(place.removeprefix(_STORED), into, workspace, transfer if transfer.is_shown else None)
    if seeded.taken is None:
        document = {"snapshot": place, "target": into, "restored": False, "reason": seeded.reason}
        session.show(Report(document, [], lambda: [f"{into} is left as it is: {seeded.reason}"]))
        return
    _show_restored(session, seeded.taken, place, into)


def _restore_stored(
    session: Session, request: RestoreRequest, into: str, config: Path | None, *, is_checked: bool
) -> None:
    name = request.place.removeprefix(_STORED)
    with Workspace(configuration(session, config)) as workspace, TransferProgress(sys.stderr) as transfer:
        phases = transfer if transfer.is_shown else None
        taken = restore_stored(name, into, workspace, is_checked=is_checked, request=request, phases=phases)
    _show_restored(session, taken, request.place, into)


def _restore_at_agent(session: Session, url: str, place: str, into: str, *, is_replacing: bool) -> None:
    with session.agent(url) as agent, TransferProgress(sys.stderr) as transfer:
        try:
            begun = agent.restore_snapshot(place.removeprefix(_STORED), into, is_replacing=is_replacing)
        except AgentUnreachableError as error:
            raise AgentUnreachableError(error.message, next_step=RESTORE_IN_HOME) from error
        try:
            view = followed(agent.restores, begun, transfer, SystemClock(), url)
        except KeyboardInterrupt:
            session.note(f"the agent goes on with the restore: mailboat --url {url} content restores")
            raise
    if view.error is not None:
        name, message = view.error, view.message
        problem = Problem(f"{TYPE_PREFIX}{name}", name, 500, message, next_step=view.next_step)
        raise error_of(problem, url) or AgentDefectError(f"{into} was not restored: {message}")
    line = f"{into}: restored {place}, at offset {view.next_offset}"
    session.show(Report(document_of(view), [place], lambda: [line]))
    _note_given_up(session, view.given_up or 0)


def followed(
    restores: Callable[[], Sequence[RestoreView]], begun: RestoreView, phases: Phases, clock: Clock, url: str
) -> RestoreView:
    """The restore that was begun, once it is over.

    Raises:
        RestoreInterruptedError: Its outcome is lost.
        AgentUnreachableError: The agent at the URL has not answered for a minute.
    """
    view, shown, patience = begun, 0, Deadline(clock, _RESTART_SECONDS)
    while not view.is_over:
        clock.wait(threading.Event(), _POLL_SECONDS)
        try:
            views = restores()
        except RetryableError as error:
            if patience.is_over():
                raise AgentUnreachableError(
                    f"{error.message}; whether {begun.snapshot} was restored into {begun.target} is not known",
                    next_step=f"once the agent runs again: mailboat --url {url} content restores",
                ) from error
            continue
        patience = Deadline(clock, _RESTART_SECONDS)
        found = next(filter(begun.is_same_restore, views), None)
        if found is None:
            raise _reason_of_the_end(begun, views)
        if found.phase is not None:
            shown = shown if found.phase == view.phase else 0
            phases.begin(found.phase, found.total_bytes)
            phases.advance(found.done_bytes - shown)
            shown = found.done_bytes
        view = found
    return view


def _reason_of_the_end(begun: RestoreView, views: Sequence[RestoreView]) -> RestoreInterruptedError:
    """Why a restore is not among those of its agent: a target keeps the last one that was done."""
    place, target = begun.snapshot, begun.target
    known = next((view for view in views if view.target == target), None)
    if known is None:
        return RestoreInterruptedError(
            f"the agent started again and has no subscriber of {target} any more; whether {place} was restored is"
            " not known",
            next_step=f"mailboat status   (in the home that has {target} now)",
        )
    if known.state == "unknown":
        return RestoreInterruptedError(
            f"the agent started again, and whether {place} was restored into {target} is not known: {known.error}:"
            f" {known.message}",
            next_step=known.next_step,
        )
    if known.begun_at is not None and begun.begun_at is not None and begun.begun_at < known.begun_at:
        return RestoreInterruptedError(
            f"another restore into {target} began after that of {place}: the agent's log has both"
        )
    return RestoreInterruptedError(f"the agent ended before {place} was restored: {target} is as it was before")


def _restore_file(
    session: Session, request: RestoreRequest, into: str, config: Path | None, *, is_checked: bool
) -> None:
    file, home = Path(request.place), _home_if_any(session, config)
    roots = () if home is None else roots_of_target(home, into)
    with ExitStack() as opened:
        workspace = opened.enter_context(Workspace(home)) if home is not None and is_checked else None
        transfer = opened.enter_context(TransferProgress(sys.stderr))
        transfer.begin("restoring", file_bytes(file))
        watch = transfer.advance if transfer.is_shown else None
        taken = restore_snapshot(file, into, workspace, watch, roots, request)
    _show_restored(session, taken, request.place, into)
    if workspace is None:
        session.note("whether the position fits the journal is seen when a subscriber starts on it")


def _show_restored(session: Session, taken: SnapshotResult, place: str, into: str) -> None:
    offset = taken.head.position.next_offset
    below = f" below {', '.join(taken.roots)}" if taken.roots else ""
    session.show(_report(taken, place, f"{into}: restored {place}{below}, at offset {offset}"))
    _note_given_up(session, len(taken.head.given_up))


def _note_given_up(session: Session, count: int) -> None:
    if count:
        lacking = count_text(count, "package")
        session.note(f"it lacks {lacking} that had been given up: mailboat errors ls, once its subscriber runs")


def _home_if_any(session: Session, config: Path | None) -> Home | None:
    """The home, or what the configuration says; None without either, unless one was named."""
    try:
        return configuration(session, config)
    except HomeMissingError:
        if session.is_home_given:
            raise
        return None


def _origin(one: SnapshotView) -> str:
    if one.error is not None:
        return f"{one.error}: {one.message}"
    return f"{one.target}, below {', '.join(one.roots)} only" if one.roots else str(one.target)


def _report(taken: SnapshotResult, place: str, line: str) -> Report:
    position = taken.head.position
    document: dict[str, Any] = {
        "snapshot": place,
        "bytes": taken.total_bytes,
        "target": taken.head.target,
        "taken_at": time_text(moment_of(taken.head.taken_ms)),
        "next_offset": position.next_offset,
        "identity": str(position.identity),
        "nodes": taken.tail.node_count,
        "tree_digest": taken.tail.tree_digest,
        "given_up": len(taken.head.given_up),
        "roots": list(taken.roots),
    }
    figures = (
        f"{'of the snapshot: ' if taken.roots else ''}"
        f"{count_text(taken.tail.node_count, 'node')}, {bytes_text(taken.total_bytes)},"
        f" digest {taken.tail.tree_digest[:8]}, taken {document['taken_at']}"
    )
    return Report(document, [place], lambda: [line, figures])
