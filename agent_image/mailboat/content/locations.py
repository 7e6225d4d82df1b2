"""What users write for sources and targets: `./site`, `files:DIR`, `generations:DIR`, `sqlite:FILE`.

A text without one of these words before a colon is a folder, or something that a format opener accepts (a FileVault
checkout or package; those live above this package and are passed in). Called by the command line and the agents.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from mailboat.content.disk_layout import STATE_FILE, STATE_FOLDER
from mailboat.content.port import Source, Target
from mailboat.content.sources.folder import FolderSource
from mailboat.content.sources.sqlite import SqliteSource
from mailboat.content.targets.database import check_database, connect_database
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.generations import open_generations_source, open_generations_target
from mailboat.content.targets.ledger import TargetLedger
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.errors import SourceMissingError, UsageError
from mailboat.failpoints import Failpoints
from mailboat.frozen import Frozen

FILES: Final = "files"
GENERATIONS: Final = "generations"
SQLITE: Final = "sqlite"
TARGET_KINDS: Final = (FILES, GENERATIONS, SQLITE)

SourceOpener = Callable[[Path], Source | None]
"""Opens a path that is of its format; None leaves it to the others."""


class TargetLocation(Frozen):
    """A parsed target: one of `TARGET_KINDS` and where it is."""

    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}"

    @property
    def database(self) -> Path:
        """The file with the target's state."""
        return self.path if self.kind == SQLITE else self.path / STATE_FOLDER / STATE_FILE


def parse_target(text: str) -> TargetLocation:
    """Parse what a user gave as a target. Raises: UsageError, listing the kinds."""
    kind, colon, place = text.partition(":")
    if not colon or kind not in TARGET_KINDS:
        raise UsageError(
            f"{text!r} is not a target: write files:DIR, generations:DIR or sqlite:FILE",
            next_step=f"for a folder of plain files: files:{text}" if text and not colon else None,
        )
    try:
        place.encode()
    except UnicodeEncodeError as error:  # the position is announced with the target's name, in UTF-8
        raise UsageError(f"the name of the target {text!r} is not valid UTF-8") from error
    if not place or "\0" in place:
        raise UsageError(f"{text!r} names no place: write {kind}:" + ("FILE" if kind == SQLITE else "DIR"))
    return TargetLocation(kind, Path(place))


def open_target(text: str, failpoints: Failpoints | None = None, *, is_known: bool = False) -> Target:
    """Open or create a target to import into. Raises: UsageError; as the targets' own openers.

    `is_known`: Skip the integrity check of a `sqlite:` or `files:` target: this process has made it before.
    """
    location = parse_target(text)
    if location.kind == SQLITE:
        return open_sqlite_target(location.path, is_known=is_known)
    if location.kind == FILES:
        return open_files_target(location.path, failpoints, is_known=is_known)
    return open_generations_target(location.path, failpoints)


@contextmanager
def opened_ledger(text: str, *, is_known: bool = False) -> Iterator[TargetLedger]:
    """A target's ledger, also while a subscriber imports into it: for status and redrives.

    `is_known`: Skip the integrity check, which reads the whole file.

    Raises:
        SourceMissingError: There is no such target.
        UsageError, TargetCorruptError.
    """
    location = parse_target(text)
    if not location.database.is_file():
        raise SourceMissingError(f"{text} is not a target yet: {location.database} does not exist")
    check_database(location.database, location.kind, text, is_known=is_known)
    with closing(connect_database(location.database, text)) as connection:
        yield TargetLedger(connection, text)


def open_source(text: str, openers: Iterable[SourceOpener] = ()) -> Source:
    """Open something to read: a target, what an opener supports, or a folder.

    Raises:
        SourceMissingError: There is nothing of that name.
        UsageError: It is a file of an unknown format.
    """
    kind, colon, _ = text.partition(":")
    if colon and kind in TARGET_KINDS:
        location = parse_target(text)
        if kind == SQLITE:
            return SqliteSource(location.path)
        if kind == GENERATIONS:
            return open_generations_source(location.path)
        return FolderSource(location.path, uri=str(location))
    path = Path(text)
    if not text or not path.exists():
        raise SourceMissingError(f"{text!r} does not exist")
    for opener in openers:
        source = opener(path)
        if source is not None:
            return source
    if not path.is_dir():
        raise UsageError(
            f"{text} is a file of no known format: a source is a folder, a FileVault checkout or zip, files:DIR,"
            " generations:DIR or sqlite:FILE; a tree package is not a source",
            next_step=f"what is in a package: mailboat packages inspect {shlex.quote(text)}",
        )
    return FolderSource(path)
