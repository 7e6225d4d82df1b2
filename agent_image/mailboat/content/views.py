"""A target's content, position and error queue as one, to copy it: also while a subscriber imports into it.

    nobody imports    any kind: the target is locked while it is read
    sqlite, busy      one read transaction sees the content and the position of one commit
    generations, busy the committed generation, which stays as it is for as long as it is kept
    files, busy       TargetBusy: its files change in place

Called by whoever takes snapshots.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mailboat.content.layout import STATE_FOLDER
from mailboat.content.locations import FILES, GENERATIONS, TargetLocation, open_target, parse_target
from mailboat.content.port import GivenUp, Ledger, Source
from mailboat.content.sources.folder import FolderSource
from mailboat.content.sources.sqlite import SqliteSource
from mailboat.content.targets.database import check_database, connect_reader
from mailboat.content.targets.generations import NOTHING
from mailboat.content.targets.ledger import TargetLedger
from mailboat.errors import SourceChangedError, SourceMissingError, TargetBusyError, UsageError
from mailboat.model.positions import Position


@dataclass(frozen=True, slots=True)
class TargetView:
    """What one commit of a target left.

    Attributes:
        source: The content.
        position: Where it stands.
        given_up: The packages that it lacks.
    """

    source: Source
    position: Position
    given_up: tuple[GivenUp, ...]


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
        raise SourceMissingError(f"{text} is no target yet: {location.database} does not exist")
    try:
        target = open_target(text)
    except TargetBusyError as error:
        if location.kind == FILES:
            error.next_step = f"{error.next_step}; generations: and sqlite: can be copied meanwhile"
            raise
    else:
        with closing(target), closing(target.source()) as source:
            yield _view(source, target.ledger, text)
        return
    check_database(location.database, location.kind, text)
    with closing(connect_reader(location.database)) as connection:
        connection.execute("BEGIN")
        folder = _generation(location, connection)
        source = FolderSource(folder, uri=text) if folder else _PinnedSqlite(location.path, connection)
        with closing(source):
            yield _view(source, TargetLedger(connection, text), text)
        if folder is not None and not folder.is_dir():
            raise SourceChangedError(f"{text} went on so fast that the generation being read was thrown away")


def _view(source: Source, ledger: Ledger, text: str) -> TargetView:
    position = ledger.position()
    if position is None:
        raise UsageError(f"nothing was imported into {text} yet, so it has no position to go on from")
    return TargetView(source, position, tuple(ledger.given_up()))


def _generation(location: TargetLocation, connection: sqlite3.Connection) -> Path | None:
    """The folder of the committed generation; None for another kind."""
    if location.kind != GENERATIONS:
        return None
    names = str(connection.execute("SELECT generations FROM state").fetchone()[0]).split()
    return location.path / names[0] if names else location.path / STATE_FOLDER / NOTHING


class _PinnedSqlite(SqliteSource):
    """All walks see one transaction."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        super().__init__(file)
        self._pinned = connection

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        yield self._pinned
