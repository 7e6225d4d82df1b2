"""Reads a target's content, position and error queue as one, to copy it, also while a subscriber imports into it.

    idle              any kind: the target is locked while it is read
    sqlite, busy      one read transaction sees the content and the position of one commit
    generations, busy the committed generation, which stays as it is for as long as it is kept
    files, busy       TargetBusy: its files change in place

The table has the nodes, as of sqlite targets; the folder that shows it has the bytes, which are compared with
their digests. So a copy has what was imported, not what others did to the files, and none is made of a damaged target.

Where generations wait for the end of a bulk build, the copy is of the generation that is shown, with its position, and
what was given up since is left out: who goes on from such a copy imports the rest again.

Called to take snapshots.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from mailboat.blobs.checked_content import checked_stream
from mailboat.content.disk_layout import STATE_FOLDER
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.held_blobs import HeldBlobs
from mailboat.content.locations import FILES, GENERATIONS, SQLITE, TargetLocation, open_target, parse_target
from mailboat.content.port import GivenUp, Ledger, Source
from mailboat.content.sources.folder import FolderSource
from mailboat.content.sources.sqlite import TableSource
from mailboat.content.targets.database import check_database, connect_reader, is_held_back
from mailboat.content.targets.generations import NOTHING, stored_generations
from mailboat.content.targets.ledger import TargetLedger
from mailboat.content.targets.staged_intake import open_shown
from mailboat.errors import (
    BlobCorruptError,
    BlobMissingError,
    SourceChangedError,
    SourceMissingError,
    TargetBusyError,
    TargetCorruptError,
    UsageError,
)
from mailboat.folder_handle import FolderHandle, FolderTrail
from mailboat.model.identifiers import Offset
from mailboat.model.paths import ROOT, NodePath
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
        TargetCorruptError: Its state, or what it shows, is damaged; also while the content is read.
        SourceChangedError: The generation was removed while it was read.
        StorageFailedError.
    """
    location = parse_target(text)
    if not location.database.is_file():
        raise SourceMissingError(f"{text} is not a target yet: {location.database} does not exist")
    with ExitStack() as opened:
        try:
            opened.enter_context(closing(open_target(text)))
        except TargetBusyError as error:
            if location.kind == FILES:
                error.advise(f"{error.next_step}; generations: and sqlite: can be copied meanwhile")
                raise
            check_database(location.database, location.kind, text)
        connection = opened.enter_context(closing(connect_reader(location.database)))
        # One read transaction from here: generation, position and content shown are of the same commit.
        connection.execute("BEGIN")
        held_back_at = _held_back_at(location, connection)
        source = opened.enter_context(_opened_source(location, connection, is_held_back=held_back_at is not None))
        yield _view(source, TargetLedger(connection, text), text, held_back_at)


@contextmanager
def _opened_source(location: TargetLocation, connection: sqlite3.Connection, *, is_held_back: bool) -> Iterator[Source]:
    uri = str(location)
    if location.kind == SQLITE:
        blobs = HeldBlobs(location.path)
        yield _CommittedSource(uri, connection, lambda _, digest: blobs.open(digest))
        return
    folder = location.path
    if location.kind == GENERATIONS:
        folder /= _shown(connection) or f"{STATE_FOLDER}/{NOTHING}"
    if is_held_back:  # the table is ahead of what is shown
        with closing(FolderSource(folder, uri=uri)) as source:
            yield source
        return
    try:
        root = FolderHandle.open(str(folder.resolve()))
    except FileNotFoundError as error:
        raise _removed(uri) from error
    with root, closing(FolderTrail(root)) as folders:
        shown = _ShownBinaries(uri, folders)
        try:
            yield _CommittedSource(uri, connection, shown.open)
        except (BlobMissingError, BlobCorruptError, SourceChangedError) as error:
            if not folder.is_dir():
                raise _removed(uri) from error
            raise TargetCorruptError(
                f"{uri}: what was imported at {shown.path} is lost or damaged on the disk: {error.message}",
                next_step="restore an earlier snapshot, or remove the target and import everything again",
                path=shown.path,
            ) from error


def _removed(uri: str) -> SourceChangedError:
    return SourceChangedError(f"{uri} changed so fast that the generation being read was removed")


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


class _CommittedSource(TableSource):
    """The nodes that one read transaction sees."""

    def __init__(
        self, uri: str, connection: sqlite3.Connection, open_binary: Callable[[NodePath, bytes], BinaryIO]
    ) -> None:
        """Read by a connection, which stays the caller's; `open_binary` opens a binary of the node at a path."""
        self.uri = uri
        self._connection = connection
        self._open_binary = open_binary

    def close(self) -> None:
        """Nothing is held."""

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        with TranslatedFailures(self.uri):
            yield self._connection

    def _open(self, path: NodePath, digest: bytes) -> BinaryIO:
        return self._open_binary(path, digest)


class _ShownBinaries:
    """The binaries of a target that shows them in a folder, where others may have changed them.

    Attributes:
        path: The node of which one was opened last.
    """

    def __init__(self, uri: str, folders: FolderTrail) -> None:
        """Read below the root of `folders`, which stay the caller's; `uri` is for messages."""
        self._uri = uri
        self._folders = folders
        self.path: NodePath = ROOT

    def open(self, path: NodePath, digest: bytes) -> BinaryIO:
        """A stream that compares what it reads with the digest. Raises: BlobMissingError, BlobCorruptError."""
        self.path = path
        with TranslatedFailures(self._uri):
            file = open_shown(self._folders, path, digest)
        return checked_stream(cast("BinaryIO", file), digest, os.fstat(file.fileno()).st_size)
