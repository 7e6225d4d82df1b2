"""The tree of a target as a table, and the changes of packages to it. All targets share it.

A node is a row: key (see `content/keys.py`), stamp, what the target holds for it besides, and body. The stamp is the
number of the change that put the row last, counted by the target itself: a change numbers its puts, so what it covers
but did not carry is what has another number, removed by one DELETE over a range. No row is ever without a parent. Small
whole subtrees are gathered, see `PendingSubtrees`; filters with rules or modes are applied by `apply_filtered`.

Small whole subtrees are pending until they are written together, by few statements. No pending subtree lies within
another, and what is above a pending one was there before; so it makes no difference that all rows are put first, and
what the subtrees held before goes afterwards. What would need another order `touches` the pending ones, and they are
written before it is taken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import BinaryIO, Final, Protocol

from mailboat.content.keys import (
    PAST_SEPARATOR,
    ROOT_KEY,
    SEPARATOR,
    Key,
    below_range,
    key_of,
    parent_key,
    path_of,
    subtree_range,
)
from mailboat.model.changes import ChangeCount, Subtrees, TreeChange
from mailboat.model.nodes import Node, NodeRecord, folder_node
from mailboat.model.paths import NodePath
from mailboat.wire.node_bodies import decode_node, encode_node

ROW_VALUES: Final = 3
"""Key, stamp and body; pending rows hold nothing besides."""
_FULL_ROWS: Final = 1024
_FULL_BYTES: Final = 1024 * 1024
_ROWS_AT_ONCE: Final = 64
"""In one statement, each costs half of what it does by `executemany`."""


class PendingSubtrees:
    """Rows to put, and the roots below which all rows of other changes go."""

    def __init__(self) -> None:
        self._values: list[object] = []
        self._ranges: list[tuple[str, str, int]] = []
        self._roots: set[str] = set()
        self._above: set[str] = set()
        self._parent: str | None = None
        self._size = 0

    def touches(self, root: str, parent: str) -> bool:
        """Whether a subtree, whose root has this parent, lies within a pending one or has one within it."""
        return root in self._roots or root in self._above or (parent != self._parent and self.holds(parent))

    def holds(self, key: str) -> bool:
        """Whether the node lies within a pending subtree."""
        return not self._roots.isdisjoint(_upwards(key))

    def add_root(self, root: str, parent: str, stamp: int) -> None:
        """Take a subtree that touches none, whose rows are to follow before anything is written."""
        self._ranges.append((root, root + PAST_SEPARATOR, stamp))
        self._roots.add(root)
        if parent != self._parent:
            self._parent = parent
            self._above.update(_upwards(parent))

    def add_values(self, values: list[object], size: int) -> None:
        """Take the values of rows, one after the other, and the bytes of bodies.

        Bodies are `bytearray`: of `bytes`, and of None, `sqlite3` asks its adapters first, which costs more than the
        copy and a sixth of a row.
        """
        self._values += values
        self._size += size

    def add_rows(self, keys: Sequence[str], stamps: Sequence[int], bodies: Sequence[bytes]) -> None:
        """Take rows by column."""
        values: list[object] = [None] * (len(keys) * ROW_VALUES)
        values[0::ROW_VALUES], values[1::ROW_VALUES] = keys, stamps
        values[2::ROW_VALUES] = [bytearray(body) for body in bodies]
        self.add_values(values, sum(map(len, bodies)))

    @property
    def is_full(self) -> bool:
        """Whether so much is pending that it should be written."""
        return self._size >= _FULL_BYTES or len(self._values) >= _FULL_ROWS * ROW_VALUES

    def write(self, connection: sqlite3.Connection) -> int:
        """Write everything; how many rows were removed. All stays pending until `clear`."""
        values = self._values
        for at in range(0, len(values), _ROWS_AT_ONCE * ROW_VALUES):
            some = values[at : at + _ROWS_AT_ONCE * ROW_VALUES]
            connection.execute(_upsert_of(len(some) // ROW_VALUES), some)
        return connection.executemany(_DELETE_OTHERS, self._ranges).rowcount if self._ranges else 0

    def clear(self) -> None:
        """Forget everything: it was written, or the transaction is over."""
        self._values.clear()
        self._ranges.clear()
        self._roots.clear()
        self._above.clear()
        self._parent = None
        self._size = 0


@lru_cache(_ROWS_AT_ONCE)
def _upsert_of(rows: int) -> str:
    return (
        f"INSERT INTO nodes VALUES {', '.join(['(?, ?, NULL, ?)'] * rows)} "
        "ON CONFLICT (key) DO UPDATE SET stamp = excluded.stamp, held = NULL, body = excluded.body"
    )


def _upwards(key: str) -> list[str]:
    """The key and those of its ancestors, without the root's."""
    found = []
    while key:
        found.append(key)
        key = key[: key.rindex(SEPARATOR)]
    return found


CHUNK_RECORDS: Final = 500
KNOWN_KEYS: Final = 1000
SMALL_RECORDS: Final = 16

Held = bytes | int | None
"""What a target holds for a node besides the body: digests of blobs, or the number of a staged file."""

Row = tuple[str, int, Held, bytes]
"""Key, stamp, held, body."""

Covers = Callable[[NodePath], bool]

_UPSERT: Final = (
    "INSERT INTO nodes VALUES (?, ?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET stamp = excluded.stamp, held = excluded.held, body = excluded.body"
)
_INSERT_MISSING: Final = "INSERT INTO nodes VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_DELETE_OTHERS: Final = "DELETE FROM nodes WHERE key >= ? AND key < ? AND stamp <> ?"
_DELETE_RANGE: Final = "DELETE FROM nodes WHERE key >= ? AND key < ?"
_FOLDER_BODY: Final = encode_node(folder_node(NodePath("/a"))).body


class Intake(Protocol):
    """How a target takes the binaries of records into its own keeping before their rows are written.

    Attributes:
        keeps_bodies: Whether the rows of records that bring no binaries along hold their bodies as they are.
    """

    keeps_bodies: bool

    def compare_held(self, *, is_wanted: bool) -> None:
        """From now on, compare binaries that are held already by content, and replace damaged ones; or trust them."""

    def rows(self, records: Sequence[NodeRecord], stamp: int) -> list[Row]:
        """The rows for the records, whose binaries are held durably by the time of the commit."""

    def open_held(self, path: NodePath, held: Held, digest: bytes) -> BinaryIO:
        """A binary of a node that is there."""


class TreeTable:
    """The table `nodes` of one connection, inside of whatever transaction is open there."""

    def __init__(self, connection: sqlite3.Connection, intake: Intake) -> None:
        """Work on a connection whose database has the schema of `targets/database.py`."""
        self._connection = connection
        self._intake = intake
        # The empty key is above the root and needs no row: the walk upwards ends there.
        self._known: set[str] = {""}
        self._pending = PendingSubtrees()
        self._removed = 0

    def gather(self, change: TreeChange, stamp: int) -> ChangeCount | None:
        """The hot path: take a small package with one whole subtree below a known node, and write it later.

        None where it is not that simple: `flush` then, and apply it otherwise. What it removes, `take_removed` counts.
        """
        covered, records, _ = change
        sets = covered.sets
        if not covered.is_simple or len(sets) != 1 or sets[0].is_shallow or not isinstance(records, list):
            return None
        if not self._intake.keeps_bodies or len(records) > SMALL_RECORDS:
            return None
        low = sets[0].root.replace("/", SEPARATOR)
        parent = low[: low.rindex(SEPARATOR)]
        # All rows are put before ranges are cleared: those of a subtree within another one would go with it.
        if self._pending.touches(low, parent):
            self.flush()
        if parent not in self._known or low == ROOT_KEY:
            return None
        values, size = self._flatten(records, low, stamp)
        if not values:
            return None
        self._pending.add_root(low, parent, stamp)
        self._pending.add_values(values, size)
        if self._pending.is_full:
            self.flush()
        return ChangeCount(len(values) // ROW_VALUES, 0, size)

    def gather_subtrees(self, subtrees: Subtrees, first: int, stamp: int) -> tuple[int, ChangeCount]:
        """The same for many, from one on and up to the first that does not lie below a known node.

        How many were taken, which are stamped by numbers from `stamp` on, and what they amounted to.
        """
        if not self._intake.keeps_bodies:
            return 0, ChangeCount()
        keys = "\n".join(subtrees.paths).replace("/", SEPARATOR).split("\n")
        pending, stamps, next_stamp = self._pending, list[int](), stamp
        end = unwritten = start = sum(subtrees.counts[:first])
        for count in subtrees.counts[first:]:
            low = keys[end]
            parent = low[: low.rindex(SEPARATOR)]
            if pending.touches(low, parent):
                pending.add_rows(keys[unwritten:end], stamps, subtrees.bodies[unwritten:end])
                stamps, unwritten = [], end
                self.flush()
            if parent not in self._known or low == ROOT_KEY:
                break
            pending.add_root(low, parent, next_stamp)
            stamps += [next_stamp] * count
            next_stamp += 1
            end += count
        pending.add_rows(keys[unwritten:end], stamps, subtrees.bodies[unwritten:end])
        if pending.is_full:
            self.flush()
        return next_stamp - stamp, ChangeCount(end - start, 0, sum(map(len, subtrees.bodies[start:end])))

    def flush(self) -> None:
        """Write what was gathered. To be called before anything else is done to the table."""
        removed = self._pending.write(self._connection)
        if removed:
            self._removed += removed
            # Nodes within replaced subtrees may be gone: known is only what a later package may skip to look up.
            self._known = {key for key in self._known if not self._pending.holds(key)}
        self._pending.clear()

    def take_removed(self) -> int:
        """How many nodes the gathered packages have removed since this was asked last."""
        removed, self._removed = self._removed, 0
        return removed

    def apply_simple(self, change: TreeChange, stamp: int) -> ChangeCount:
        """Put and remove what a change with a simple filter says."""
        sets, covers = change.filter.sets, change.filter.covers
        shallow = sorted(
            (key_of(filter_set.root) for filter_set in sets if filter_set.is_shallow), reverse=True
        )  # the deepest first
        put = size = 0
        alone = frozenset(shallow)
        uncarried, new_files = set(alone), list[NodePath]()
        stream = iter(change.records)
        while chunk := list(islice(stream, CHUNK_RECORDS)):
            covered = [record for record in chunk if covers(record.path)]
            if len(covered) != len(chunk):
                put += sum(self.make_ancestor(record, stamp, covers) for record in chunk if not covers(record.path))
            new_files += [record.path for record in covered if self.is_new_file(record, alone)]
            rows = self.put(covered, stamp, covers)
            put += len(rows)
            size += _size(covered)
            if uncarried:
                uncarried.difference_update(row[0] for row in rows)
        # After the rows: what still has another stamp is what the package covers and does not contain.
        deep = sorted(subtree_range(key_of(filter_set.root)) for filter_set in sets if not filter_set.is_shallow)
        removed = sum(self._delete(_DELETE_OTHERS, low, high, stamp) for low, high in deep)
        removed += sum(self.delete_alone(key) for key in shallow if key in uncarried)
        removed += sum(self.delete_below(path, stamp) for path in new_files)
        return ChangeCount(put, removed, size)

    def is_new_file(self, record: NodeRecord, alone: Collection[Key]) -> bool:
        """Whether a node that its package covers alone becomes a plain file that it was not before."""
        key = key_of(record.path)
        if key not in alone or key == ROOT_KEY or not decode_node(record.path, record.body).is_plain_file:
            return False
        row = self._connection.execute("SELECT body FROM nodes WHERE key = ?", (key,)).fetchone()
        return row is None or not decode_node(record.path, row[0]).is_plain_file

    def delete_below(self, path: NodePath, stamp: int) -> int:
        """Remove what lay below a node, but for what the same change put there. How many were removed.

        For a folder that became a file, and an access control list that another one replaces.
        """
        return sum(self.delete_alone(key) for key in self.uncarried(key_of(path), stamp))

    def remove(self, paths: Iterable[NodePath]) -> ChangeCount:
        return ChangeCount(removed=sum(self._delete(_DELETE_RANGE, *subtree_range(key_of(path))) for path in paths))

    def put(self, records: Sequence[NodeRecord], stamp: int, covers: Covers) -> list[Row]:
        """Put nodes as they are, and make the folders above them that are missing."""
        rows = self._intake.rows(records, stamp)
        self._connection.executemany(_UPSERT, rows)
        keys = {row[0] for row in rows}
        for key in {key[: key.rindex(SEPARATOR)] for key in keys} - keys:
            # A covered ancestor needs this stamp although it is known to exist: else `_DELETE_OTHERS` removes it.
            if key not in self._known or covers(path_of(key)):
                self._keep_ancestors(key, stamp, covers)
        return rows

    def make_ancestor(self, record: NodeRecord, stamp: int, covers: Covers) -> int:
        """Create a missing node that the filter does not cover, but never the root; return the count."""
        key = key_of(record.path)
        if key == ROOT_KEY or key in self._known:
            return 0
        made = self._connection.executemany(_INSERT_MISSING, self._intake.rows([record], stamp)).rowcount
        self._keep_ancestors(parent_key(key), stamp, covers)
        self._remember(key)
        return made

    def node(self, key: Key) -> Node | None:
        """A node that is there, with its binaries."""
        row = self._connection.execute("SELECT held, body FROM nodes WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        path, held = path_of(key), row[0]
        return decode_node(path, row[1], lambda digest: self._intake.open_held(path, held, digest))

    def has(self, key: Key) -> bool:
        return self._connection.execute("SELECT 1 FROM nodes WHERE key = ?", (key,)).fetchone() is not None

    def is_uncarried(self, key: Key, stamp: int) -> bool:
        """Whether the node is there and another change put it last."""
        row = self._connection.execute("SELECT stamp FROM nodes WHERE key = ?", (key,)).fetchone()
        return row is not None and row[0] != stamp

    def uncarried(self, root: Key, stamp: int) -> Iterator[Key]:
        """Keys within a root that other changes wrote last, descendants first; rows may vanish meanwhile."""
        low, high = subtree_range(root)
        select = "SELECT key FROM nodes WHERE key >= ? AND key < ? AND stamp <> ? ORDER BY key DESC LIMIT ?"
        while page := self._connection.execute(select, (low, high, stamp, CHUNK_RECORDS)).fetchall():
            for (key,) in page:
                yield Key(key)
            # Keys come in descending order: the next page ends below the last key, whether or not its row still exists.
            high = page[-1][0]

    def delete_alone(self, key: Key) -> int:
        """Remove one node, unless others that are not to be removed lie below it. How many were removed.

        The root goes in any case: nothing needs a node there.
        """
        below = self._connection.execute("SELECT 1 FROM nodes WHERE key >= ? AND key < ? LIMIT 1", below_range(key))
        if key != ROOT_KEY and below.fetchone():
            return 0
        self._known.discard(key)
        return self._connection.execute("DELETE FROM nodes WHERE key = ?", (key,)).rowcount

    def abandon(self) -> None:
        """The transaction was rolled back: drop what was gathered, and what was known to be there."""
        self._pending.clear()
        self._removed = 0
        self._known = {""}

    def _flatten(self, records: Iterable[NodeRecord], low: str, stamp: int) -> tuple[list[object], int]:
        """The values of all rows, one after the other, and the size of the bodies; nothing unless all is simple.

        The root comes first, but for ancestors known to be there, and the parent of every other node before it: so all
        lie within the root. One loop over plain locals: this is where the import of a small package spends its time.
        """
        values: list[object] = []
        seen: set[str] = set()
        size = 0
        for path, body, binaries, _ in records:
            key = path.replace("/", SEPARATOR)
            if binaries or (key[: key.rindex(SEPARATOR)] not in seen and key != low):
                if key in self._known and low.startswith(key + SEPARATOR):
                    continue
                return [], 0
            seen.add(key)
            values += (key, stamp, bytearray(body))
            size += len(body)
        return values, size

    def _keep_ancestors(self, key: str, stamp: int, covers: Covers) -> None:
        """See to it that a node's ancestors are there, and stay when the change removes what it did not carry."""
        while key not in {"", ROOT_KEY}:
            is_covered = covers(path_of(key))
            row = self._connection.execute("SELECT stamp FROM nodes WHERE key = ?", (key,)).fetchone()
            if row is None:
                self._connection.execute(_UPSERT, (key, stamp, None, _FOLDER_BODY))
            # It exists, so its own ancestors exist, and the change does not delete here.
            elif not is_covered:
                self._remember(key)
                return
            elif row[0] != stamp:
                self._connection.execute("UPDATE nodes SET stamp = ? WHERE key = ?", (stamp, key))
            self._remember(key)
            key = parent_key(key)

    def _remember(self, key: str) -> None:
        if len(self._known) >= KNOWN_KEYS:
            # Forgetting costs look-ups only, so the bound needs no order of use.
            self._known = {""}
        self._known.add(key)

    def _delete(self, sql: str, low: str, high: str, *stamp: int) -> int:
        """Delete rows of a range; how many they were."""
        removed = self._connection.execute(sql, (low, high, *stamp)).rowcount
        if removed:
            self._known = {key for key in self._known if not low <= key < high}
        return removed


def _size(records: Sequence[NodeRecord]) -> int:
    size = 0
    for _, body, binaries, _ in records:
        size += len(body)
        if binaries:
            size += sum(binary.length_bytes for binary in binaries)
    return size
