"""The folder `.mailboat/` in which a target of files keeps lock, state and staged files; and who may have the rest.

A folder becomes a target only when it is empty: nothing of a stranger is ever overwritten or removed. State that was
there and is gone is reported, never begun anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mailboat.content.layout import STATE_FILE, STATE_FOLDER
from mailboat.content.port import Source
from mailboat.content.targets.database import REDO_SCHEMA, create_database, open_database
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.locks import TargetLock
from mailboat.content.targets.path_room import PathRoom
from mailboat.content.targets.staged_intake import StagedIntake
from mailboat.content.targets.staging import Staging
from mailboat.content.targets.tree_target import Showing, TargetParts
from mailboat.errors import TargetCorruptError, UsageError

_LOCK_FILE: Final = "lock"
_STAGING: Final = "staging"
_NO_STRANGERS: Final = frozenset({STATE_FOLDER, "lost+found"})
_OWN: Final = frozenset({_LOCK_FILE, f"{STATE_FILE}.new", f"{STATE_FILE}.new-journal"})
"""What a crash may leave before the state is there."""


@dataclass(frozen=True)
class StateFolder:
    """The open state of a target of files.

    Attributes:
        uri: As a user would give the target.
        root: The target's folder, links resolved.
        lock: Held.
        connection: For batches.
        ledger_connection: Another one, for the ledger.
        durability: Counts what is synchronised.
        staging: In the state folder.
        intake: Over connection and staging.
    """

    uri: str
    root: Path
    lock: TargetLock
    connection: sqlite3.Connection
    ledger_connection: sqlite3.Connection
    durability: Durability
    staging: Staging
    intake: StagedIntake

    def parts(self, showing: Showing, open_source: Callable[[], Source]) -> TargetParts:
        """What the target is made of."""
        return TargetParts(self.uri, self.lock, self.connection, self.ledger_connection, showing, open_source)

    def close(self) -> None:
        """Release everything."""
        self.ledger_connection.close()
        self.connection.close()
        self.lock.release()


def open_state_folder(folder: Path, kind: str, longest_below: str = "") -> StateFolder:
    """Lock and open the state of a target, made if the folder is missing or empty.

    Args:
        folder: The target's folder.
        kind: The target's kind.
        longest_below: The longest path, relative to the folder, of one that content is shown in.

    Raises: OSError, sqlite3.Error, TargetBusyError, UsageError, TargetCorruptError.
    """
    uri = f"{kind}:{folder}"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    own = root / STATE_FOLDER
    if not (own / STATE_FILE).exists():
        _check_is_free(root, uri)
        own.mkdir(exist_ok=True)
    lock = TargetLock(own / _LOCK_FILE, uri)
    try:
        if not (own / STATE_FILE).exists():
            _check_is_new(own, uri)
            create_database(own / STATE_FILE, kind, REDO_SCHEMA)
        durability = Durability(str(root))
        staging = Staging(own / _STAGING, durability)
        room = PathRoom(str(root), longest_below)
        connection, second = open_database(own / STATE_FILE, kind, uri)
    except BaseException:
        lock.release()
        raise
    intake = StagedIntake(connection, staging, room)
    return StateFolder(uri, root, lock, connection, second, durability, staging, intake)


def _check_is_free(root: Path, uri: str) -> None:
    strangers = sorted(entry.name for entry in root.iterdir() if entry.name not in _NO_STRANGERS)
    if not strangers:
        return
    if (root / STATE_FOLDER).exists():
        raise TargetCorruptError(
            f"{uri} has content, but its state {STATE_FOLDER}/{STATE_FILE} is gone",
            next_step=f"restore {root / STATE_FOLDER} from a snapshot, or empty {root} and import everything again",
        )
    raise UsageError(
        f"{root} is not empty and was not made by Mailboat: it holds {strangers[0]!r}"
        + (f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""),
        next_step="choose an empty or a new folder as the target",
    )


def _check_is_new(own: Path, uri: str) -> None:
    left = sorted(entry.name for entry in own.iterdir() if entry.name not in _OWN)
    if left:
        raise TargetCorruptError(
            f"{uri}: {STATE_FILE} is gone from {STATE_FOLDER}, where {left[0]!r} still is",
            next_step=f"restore {own} from a snapshot, or remove it and the content to import everything again",
        )
