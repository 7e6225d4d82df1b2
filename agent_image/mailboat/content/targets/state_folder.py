"""The folder `.mailboat/` in which a target of files keeps lock, state and staged files; and who may have the rest.

A folder becomes a target only when it is empty: foreign content is never overwritten or removed. State that was
there and is gone is reported, never recreated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mailboat.content.disk_layout import STATE_FILE, STATE_FOLDER
from mailboat.content.port import Source
from mailboat.content.targets.database import REDO_SCHEMA, create_database, open_database
from mailboat.content.targets.disk_names import FoldedNames, PathLimits, folding_of
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.locks import TargetLock
from mailboat.content.targets.namespace_table import ShownNamespaces
from mailboat.content.targets.staged_files import Staging
from mailboat.content.targets.staged_intake import StagedIntake
from mailboat.content.targets.tree_target import TargetParts, TreePresenter
from mailboat.errors import TargetCorruptError, UsageError
from mailboat.folder_handle import PUBLIC_FOLDER, FolderHandle, make_path

_LOCK_FILE: Final = "lock"
_STAGING: Final = "staging"
# mke2fs puts lost+found into the root of each ext4 volume.
_IGNORED_ENTRIES: Final = frozenset({STATE_FOLDER, "lost+found"})
_OWN: Final = frozenset({_LOCK_FILE, f"{STATE_FILE}.new", f"{STATE_FILE}.new-journal"})
"""What a crash may leave before the state is there."""
_MADE_WITH_STATE: Final = frozenset({_STAGING, "building", "discarded", "linked", "nothing", "current.new"})
"""Of `generations.py`, but for the first."""


@dataclass(frozen=True)
class StateFolder:
    """The open state of a target of files.

    Attributes:
        uri: As a user would give the target.
        root: The target's folder, held open, so that it can't be exchanged for a link.
        own: Its folder `.mailboat/`, held open too.
        lock: Held.
        connection: For batches.
        ledger_connection: Another one, for the ledger.
        durability: Counts what is synchronised.
        staging: In the state folder.
        intake: Over connection and staging.
        namespaces: Shows those of the connection.
    """

    uri: str
    root: FolderHandle
    own: FolderHandle
    lock: TargetLock
    connection: sqlite3.Connection
    ledger_connection: sqlite3.Connection
    durability: Durability
    staging: Staging
    intake: StagedIntake
    namespaces: ShownNamespaces

    def parts(self, showing: TreePresenter, open_source: Callable[[], Source]) -> TargetParts:
        """What the target is made of."""
        connections = self.connection, self.ledger_connection
        return TargetParts(self.uri, self.lock, *connections, self.intake, showing, open_source)

    def close(self) -> None:
        self.ledger_connection.close()
        self.connection.close()
        self.lock.release()
        self.release()

    def release(self) -> None:
        """Release the folders, after the target has released the rest."""
        self.staging.close()
        self.own.close()
        self.root.close()


def open_state_folder(folder: Path, kind: str, longest_below: str = "", *, is_known: bool = False) -> StateFolder:
    """Lock and open the state of a target, made if the folder is missing or empty.

    Args:
        folder: The target's folder.
        kind: The target's kind.
        longest_below: The longest path, relative to the folder, of one that content is shown in.
        is_known: This process has checked the whole state before.

    Raises: OSError, sqlite3.Error, TargetBusyError, UsageError, TargetCorruptError.
    """
    uri = f"{kind}:{folder}"
    make_path(folder, PUBLIC_FOLDER)
    with ExitStack() as undo:
        root = undo.enter_context(FolderHandle.open(str(folder.resolve())))
        # before the state folder is made: a refused folder stays as it was
        if not _has_state(root):
            _check_is_free(root, uri)
        own = undo.enter_context(root.make_folder(STATE_FOLDER))
        # locked before the state is checked: of two processes one makes it
        lock = TargetLock(own, _LOCK_FILE, uri)
        undo.callback(lock.release)
        if own.status(STATE_FILE) is None:
            _check_is_new(own, uri)
            create_database(own, STATE_FILE, kind, REDO_SCHEMA)
        durability = Durability(root.place)
        staging = Staging(own.make_folder(_STAGING), durability)
        undo.callback(staging.close)
        connection, second = open_database(own, STATE_FILE, kind, uri, is_known=is_known)
        undo.callback(connection.close)
        undo.callback(second.close)
        fold, room = folding_of(own, staging.folder), PathLimits(root.place, longest_below)
        # from here on the caller closes them
        undo.pop_all()
    folded = None if fold is None else FoldedNames(connection, root.place, fold)
    intake = StagedIntake(connection, staging, room, folded)
    namespaces = ShownNamespaces(connection, staging, durability)
    return StateFolder(uri, root, own, lock, connection, second, durability, staging, intake, namespaces)


def _has_state(root: FolderHandle) -> bool:
    try:
        with root.folder(STATE_FOLDER) as own:
            return own.status(STATE_FILE) is not None
    except FileNotFoundError:
        return False


def _check_is_free(root: FolderHandle, uri: str) -> None:
    is_used = root.status(STATE_FOLDER) is not None
    if is_used:
        _check_is_own(root)
    foreign = sorted(name for name in root.names() if name not in _IGNORED_ENTRIES)
    if not foreign:
        return
    if is_used:
        raise TargetCorruptError(
            f"{uri} has content, but its state {STATE_FOLDER}/{STATE_FILE} is gone",
            next_step=f"restore {root.place}/{STATE_FOLDER} from a snapshot, or empty {root.place} and import "
            "everything again",
        )
    raise UsageError(
        f"{root.place} is not empty and was not made by Mailboat: it holds {foreign[0]!r}"
        + (f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""),
        next_step="choose an empty or a new folder as the target",
    )


def _check_is_own(root: FolderHandle) -> None:
    """See that the state folder has nothing but what a target makes: the home of a command has the same name."""
    with root.folder(STATE_FOLDER) as own:
        names = sorted(own.names())
    others = [name for name in names if not name.startswith((_LOCK_FILE, STATE_FILE)) and name not in _MADE_WITH_STATE]
    if others:
        raise UsageError(
            f"{root.place}/{STATE_FOLDER} is not the state of a target: it holds {others[0]!r}",
            next_step="choose an empty or a new folder as the target",
        )


def _check_is_new(own: FolderHandle, uri: str) -> None:
    left = sorted(name for name in own.names() if name not in _OWN)
    if left:
        raise TargetCorruptError(
            f"{uri}: {STATE_FILE} is gone from {STATE_FOLDER}, where {left[0]!r} still is",
            next_step=f"restore {own.place} from a snapshot, or remove it and the content to import everything again",
        )
