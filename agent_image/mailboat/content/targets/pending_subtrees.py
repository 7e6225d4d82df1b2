"""Small whole subtrees that a batch has taken and not written yet: many are written by few statements.

No pending subtree lies within another, and what is above a pending one was there before; so it makes no difference that
all rows are put first, and what the subtrees held before goes afterwards. What would need another order `touches` the
pending ones, and they are written before it is taken. Used by `TreeTable` inside of a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from mailboat.content.keys import PAST_SEPARATOR, SEPARATOR

ROW_VALUES: Final = 3
"""Key, stamp and body; pending rows hold nothing besides."""
_FULL_ROWS: Final = 1024
_FULL_BYTES: Final = 1024 * 1024
_ROWS_AT_ONCE: Final = 64
"""In one statement, each costs half of what it does by `executemany`."""
_DELETE_OTHERS: Final = "DELETE FROM nodes WHERE key >= ? AND key < ? AND stamp <> ?"


class PendingSubtrees:
    """Rows to put, and the roots below which all rows of other changes go."""

    def __init__(self) -> None:
        """Nothing is pending."""
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
