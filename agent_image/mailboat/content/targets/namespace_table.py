"""The namespaces that a target keeps next to its nodes, in the transaction of the packages that brought them.

The table is the truth. Targets that show files show it as well, as a file in the top folder of the content, so that a
publisher that reads the folder gets the namespaces. That file is compared with the table at each commit and when a
target is opened, so whatever a crash left undone is done then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from mailboat.content.disk_layout import NAMESPACES, write_namespaces
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.staged_files import Staging
from mailboat.errors import LimitExceededError
from mailboat.folder_handle import FolderHandle
from mailboat.model.namespaces import MAX_KEPT_NAMESPACES, NO_NAMESPACES, NamespaceTable

NAMESPACE_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS namespace (prefix TEXT, uri TEXT, PRIMARY KEY (prefix, uri)) WITHOUT ROWID",
)
"""What version 7 of the schema adds."""

_DRAFT: Final = "namespaces"


def keep_namespaces(connection: sqlite3.Connection, tables: Iterable[NamespaceTable]) -> None:
    """Add namespaces in the open transaction. Raises: LimitExceededError: too many for a target."""
    rows = [(prefix, uri) for table in tables for prefix, uris in table.items() for uri in uris]
    added = connection.executemany("INSERT OR IGNORE INTO namespace VALUES (?, ?)", rows).rowcount
    if added <= 0:
        return
    count = connection.execute("SELECT count(*) FROM namespace").fetchone()[0]
    if count > MAX_KEPT_NAMESPACES:
        raise LimitExceededError(
            f"the target would have {count} namespaces, the limit is {MAX_KEPT_NAMESPACES}", limit=MAX_KEPT_NAMESPACES
        )


def kept_namespaces(connection: sqlite3.Connection) -> NamespaceTable:
    """The namespaces of a target, also of one of an older version, which has none."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'namespace'").fetchone() is None:
        return NO_NAMESPACES
    found: dict[str, tuple[str, ...]] = {}
    for prefix, uri in connection.execute("SELECT prefix, uri FROM namespace ORDER BY prefix, uri"):
        found[prefix] = (*found.get(prefix, ()), uri)
    return found


class ShownNamespaces:
    """The file that shows the table."""

    def __init__(self, connection: sqlite3.Connection, staging: Staging, durability: Durability) -> None:
        """Show the table of `connection`."""
        self._connection = connection
        self._staging = staging
        self._durability = durability

    def is_shown_in(self, folder: FolderHandle | None) -> bool:
        """Whether the file in the top folder says what the table says."""
        table = kept_namespaces(self._connection)
        if not table or folder is None:
            return not table
        with suppress(FileNotFoundError), folder.open_file(NAMESPACES) as file:
            return file.read() == write_namespaces(table)
        return False

    def show_in(self, folder: FolderHandle) -> bool:
        """Write the file where it says something else; whether it was written. The caller makes it durable."""
        if self.is_shown_in(folder):
            return False
        draft = self._staging.write(_DRAFT, write_namespaces(kept_namespaces(self._connection)))
        source = self._staging.folder
        source.move(draft, folder, NAMESPACES)
        self._durability.move(f"{source.place}/{draft}", f"{folder.place}/{NAMESPACES}")
        self._durability.touch(f"{folder.place}/{NAMESPACES}")
        self._durability.touch(folder.place)
        return True
