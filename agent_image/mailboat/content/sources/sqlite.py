"""Reading a tree out of a target's table: the committed content, of a sqlite target one snapshot for each walk.

Key order is walk order (`content/keys.py`) except below nodes that order their children, so a walk is one scan of the
table, left for the children of such a node only. Memory holds the children's names of the ordered nodes on the current
path. The bodies are checked as they are read: the file may come from anywhere.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.held_blobs import HeldBlobs
from mailboat.content.keys import SEPARATOR, below_range, key_of, path_of, subtree_range
from mailboat.content.targets.database import check_database, connect_reader
from mailboat.content.targets.namespace_table import kept_namespaces
from mailboat.errors import SourceMissingError
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Node, ordered_names
from mailboat.model.paths import NodePath
from mailboat.wire.node_bodies import body_digest, decode_node


class TableSource:
    """The nodes in the table of a target; where table and binaries are, subclasses know."""

    uri: str

    def node(self, path: NodePath) -> Node | None:
        with self._snapshot() as connection:
            row = connection.execute("SELECT body FROM nodes WHERE key = ?", (key_of(path),)).fetchone()
        return None if row is None else self._node(path, row[0])

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        if not is_deep:
            node = self.node(path)
            if node is not None:
                yield node
            return
        with self._snapshot() as connection:
            yield from self._scan(connection, *subtree_range(key_of(path)))

    def child_names(self, path: NodePath) -> list[str]:
        """See `BranchingSource`; one seek for each child."""
        with self._snapshot() as connection:
            row = connection.execute("SELECT body FROM nodes WHERE key = ?", (key_of(path),)).fetchone()
            order = None if row is None else self._node(path, row[0]).child_order
            return ordered_names(order, list(_child_names(connection, key_of(path))))

    def digests(self, path: NodePath) -> Iterator[tuple[NodePath, bytes]]:
        """Path and `node_digest` of a subtree's nodes, parents first, siblings by name; decodes no node."""
        with self._snapshot() as connection:
            for key, body in _rows(connection, *subtree_range(key_of(path))):
                yield path_of(key), body_digest(path_of(key), body)

    def namespaces(self) -> NamespaceTable:
        """See `NamedSource.namespaces`: as they are now."""
        with self._snapshot() as connection:
            return kept_namespaces(connection)

    def _snapshot(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection with a read transaction."""
        raise NotImplementedError

    def _open(self, path: NodePath, digest: bytes) -> BinaryIO:
        """A binary of the node at `path`."""
        raise NotImplementedError

    def _node(self, path: NodePath, body: bytes) -> Node:
        return decode_node(path, body, partial(self._open, path))

    def _scan(self, connection: sqlite3.Connection, low: str, high: str) -> Iterator[Node]:
        """Nodes of a range in walk order: by key, until a node orders its children; then these, then what follows."""
        while low < high:
            for key, body in _rows(connection, low, high):
                node = self._node(path_of(key), body)
                yield node
                if node.child_order:
                    for name in ordered_names(node.child_order, list(_child_names(connection, key))):
                        yield from self._scan(connection, *subtree_range(_child_key(key, name)))
                    low = subtree_range(key)[1]
                    break
            else:
                return


class SqliteSource(TableSource):
    """The content of a sqlite target, also while a subscriber imports into it."""

    def __init__(self, file: Path) -> None:
        """Open the database.

        Raises:
            SourceMissingError: There is no such file.
            TargetCorruptError, UsageError: see `check_database`.
        """
        self.uri = f"sqlite:{file}"
        if not file.is_file():
            raise SourceMissingError(f"{file} does not exist or is not a file")
        check_database(file, "sqlite", self.uri)
        self._file = file
        self._blobs = HeldBlobs(file)
        self._connections: list[sqlite3.Connection] = []

    def close(self) -> None:
        """See `Source.close`. Walks that were not read to their end end here."""
        while self._connections:
            self._connections.pop().close()

    def _open(self, path: NodePath, digest: bytes) -> BinaryIO:  # noqa: ARG002  # blobs need no path
        return self._blobs.open(digest)

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        with TranslatedFailures(self.uri):
            connection = connect_reader(self._file)
            self._connections.append(connection)
            try:
                # the whole walk sees one commit, whatever a subscriber commits meanwhile
                connection.execute("BEGIN")
                yield connection
            finally:
                # else `close` was quicker, and has closed it
                if connection in self._connections:
                    self._connections.remove(connection)
                connection.close()


def _rows(connection: sqlite3.Connection, low: str, high: str) -> Iterator[tuple[str, bytes]]:
    return iter(connection.execute("SELECT key, body FROM nodes WHERE key >= ? AND key < ? ORDER BY key", (low, high)))


def _child_names(connection: sqlite3.Connection, parent: str) -> Iterator[str]:
    """By one seek for each child, however much is below it."""
    low, high = below_range(parent)
    first = "SELECT key FROM nodes WHERE key >= ? AND key < ? ORDER BY key LIMIT 1"
    prefix = len(_child_key(parent, ""))
    while row := connection.execute(first, (low, high)).fetchone():
        yield row[0][prefix:]
        low = subtree_range(row[0])[1]


def _child_key(parent: str, name: str) -> str:
    return f"{parent.rstrip(SEPARATOR)}{SEPARATOR}{name}"
