"""Reads a target's content, position and error queue as one, to copy it, also while a subscriber imports into it.

    idle              any kind: the target is locked while it is read
    sqlite, busy      one read transaction sees the content and the position of one commit
    generations, busy the committed generation, which stays as it is for as long as it is kept
    files, busy       TargetBusy: its files change in place

Where generations wait for the end of a bulk build, the position is that of the generation that is shown, and what was
given up since is left out: who goes on from such a copy imports the rest again.

Called to take snapshots.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mailboat.content.disk_layout import STATE_FOLDER
from mailboat.content.locations import FILES, GENERATIONS, TargetLocation, open_target, parse_target
from mailboat.content.port import GivenUp, Ledger, Source
from mailboat.content.sources.folder import FolderSource
from mailboat.content.sources.sqlite import SqliteSource
from mailboat.content.targets.database import check_database, connect_reader, is_held_back
from mailboat.content.targets.generations import NOTHING, stored_generations
from mailboat.content.targets.ledger import TargetLedger
from mailboat.errors import SourceChangedError, SourceMissingError, TargetBusyError, UsageError
from mailboat.model.identifiers import Offset
from mailboat.model.positions import Position


@dataclass(frozen=True, slots=True)
class TargetView:
    """What one commit of a target left.

    Attributes:
        source: The content.
        position: Where it stands.
        given_up: The packages that it lacks.
        passed_over: The publishers whose packages it lacks, as they were not followed.
    """

    source: Source
    position: Position
    given_up: tuple[GivenUp, ...]
    passed_over: frozenset[str]


@contextmanager
def opened_view(text: str) -> Iterator[TargetView]:
    """Open a target to copy it.

    Raises:
        SourceMissingError: There is no such target.
        UsageError: Nothing was imported into it yet.
        TargetBusyError: A subscriber imports into it, and its kind can't be read meanwhile.
        TargetCorruptError, StorageFailedError.
    """
    location = parse_target(text)
    if not location.database.is_file():
        raise SourceMissingError(f"{text} is not a target yet: {location.database} does not exist")
    try:
        target = open_target(text)
    except TargetBusyError as error:
        if location.kind == FILES:
            error.advise(f"{error.next_step}; generations: and sqlite: can be copied meanwhile")
            raise
    else:
        with closing(target), closing(target.source()) as source, closing(connect_reader(location.database)) as reader:
            yield _view(source, target.ledger, text, _held_back_at(location, reader))
        return
    check_database(location.database, location.kind, text)
    with closing(connect_reader(location.database)) as connection:
        # One read transaction from here: generation, position and content shown are of the same commit.
        connection.execute("BEGIN")
        folder = None
        if location.kind == GENERATIONS:
            folder = location.path / (_shown(connection) or f"{STATE_FOLDER}/{NOTHING}")
        source = FolderSource(folder, uri=text) if folder else _PinnedSqlite(location.path, connection)
        with closing(source):
            yield _view(source, TargetLedger(connection, text), text, _held_back_at(location, connection))
        # looked for at the end: of a generation that was pruned meanwhile some files may have been missing
        if folder is not None and not folder.is_dir():
            raise SourceChangedError(f"{text} changed so fast that the generation being read was removed")


def _view(source: Source, ledger: Ledger, text: str, held_back_at: Offset | None) -> TargetView:
    position, given_up = ledger.position(), tuple(ledger.given_up())
    if position is None:
        raise UsageError(f"nothing was imported into {text} yet, so it has no position to go on from")
    if held_back_at is not None:
        position = Position(position.identity, held_back_at)
        given_up = tuple(entry for entry in given_up if entry.offset < held_back_at)
    return TargetView(source, position, given_up, ledger.passed_over)


def _held_back_at(location: TargetLocation, connection: sqlite3.Connection) -> Offset | None:
    """Where the generation stands that is shown while a bulk build is open; None where all is shown.

    Raises: UsageError.
    """
    if location.kind != GENERATIONS or not is_held_back(connection):
        return None
    shown = _shown(connection)
    if shown is None:
        raise UsageError(
            f"{location} shows nothing yet: it waits for the end of its first bulk build",
            next_step="mailboat bulk status   (shows the progress of the build)",
        )
    return Offset(int(shown.partition("-")[0]))


def _shown(connection: sqlite3.Connection) -> str | None:
    return next(iter(stored_generations(connection)), None)


class _PinnedSqlite(SqliteSource):
    """All walks see one transaction."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        super().__init__(file)
        self._pinned = connection

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        yield self._pinned
