"""How the targets that show files take nodes in: bytes to the staging folder, names of bytes to the table.

In their tables every binary is named by its digest, so the body alone says what the node is, and a put of an
unchanged node costs a comparison and no file. The triggers of `targets/database.py` note each node that changes in
`redo`; before the commit `prepare_redo` makes sure that everything the redo needs is staged and nothing stands in its
way.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from io import FileIO
from typing import BinaryIO, Final, NamedTuple, cast

from mailboat.content.binaries import binaries_of, named, with_binaries
from mailboat.content.disk_layout import binary_file, names_on_disk
from mailboat.content.keys import Key, below_range, key_of, parent_key, path_of
from mailboat.content.targets.database import is_held_back
from mailboat.content.targets.disk_names import FoldedNames, PathLimits
from mailboat.content.targets.disk_tree import DiskTree, is_shown_as_file
from mailboat.content.targets.staged_files import Staging
from mailboat.content.targets.tree_table import Held, Row
from mailboat.errors import BlobMissingError
from mailboat.folder_handle import FolderHandle, FolderTrail, ForeignEntryError
from mailboat.model.nodes import Binary, Node, NodeRecord
from mailboat.model.paths import NodePath
from mailboat.wire.node_bodies import decode_node, encode_node

# A staged file's number has the change in its upper bits and a count in these: see `drop_uncommitted`.
_NUMBER_BITS: Final = 32


class Redo(NamedTuple):
    """A node whose place on disk may differ from the table: `node`: None where the node was removed."""

    path: NodePath
    node: Node | None
    number: int | None
    has_children: bool


class StagedIntake:
    """See `Intake`."""

    keeps_bodies = False

    def __init__(
        self, connection: sqlite3.Connection, staging: Staging, room: PathLimits, folded: FoldedNames | None
    ) -> None:
        """Stage for the table of `connection`; `folded`: None on a disk that distinguishes all names."""
        self._connection = connection
        self._staging = staging
        self._room = room
        self._folded = folded
        self._shown_in: FolderHandle | None = None
        self._compares_shown = False
        self._stamp = 0
        self._count = 0

    def compare_held(self, *, is_wanted: bool) -> None:
        """See `Intake`: a restore removes all nodes first, and of their files leaves those in place that are right."""
        self._compares_shown = is_wanted

    def begin(self, shown_in: FolderHandle | None) -> None:
        """A transaction begins, whose committed tree is shown in that folder; None where nothing is shown yet."""
        self._shown_in = shown_in
        if self._folded is not None:
            self._folded.begin()
        committed = self._committed_changes()
        if self._stamp <= committed:  # never a number under which something is staged that is committed
            self._stamp, self._count = committed + 1, 0

    def seal(self) -> None:
        """Make durable what is staged, for a commit that does not show it yet."""
        self._staging.seal()

    def drop_uncommitted(self) -> None:
        """Remove what a transaction staged that was not committed, and keep what committed ones still need."""
        self._staging.drop_above((self._committed_changes() + 1 << _NUMBER_BITS) - 1)

    def is_held_back(self) -> bool:
        """Whether a build is open, so that what is committed is not to be shown yet."""
        return is_held_back(self._connection)

    def rows(self, records: Sequence[NodeRecord], stamp: int) -> list[Row]:
        if stamp != self._stamp:
            self._stamp, self._count = stamp, 0
        if self._folded is not None:
            self._folded.trim()  # not between two rows: those before are put into the table with the last one
        return [self._row(record, stamp) for record in records]

    def open_held(self, path: NodePath, held: Held, digest: bytes) -> BinaryIO:
        # The staged file is the newer one where a commit is held back and not shown yet.
        if isinstance(held, int):
            with suppress(FileNotFoundError):
                return cast("BinaryIO", self._staging.open(held, digest))
        if self._shown_in is None:
            raise _gone(path, digest)
        with closing(FolderTrail(self._shown_in)) as folders:
            return cast("BinaryIO", open_shown(folders, path, digest))

    def redo(self) -> Iterator[Redo]:
        """All nodes that changed, in key order."""
        rows = self._connection.execute(
            "SELECT redo.key, held, body FROM redo LEFT JOIN nodes ON nodes.key = redo.key ORDER BY redo.key"
        )
        for key, held, body in rows:
            path = path_of(key)
            node = None if body is None else decode_node(path, body)
            yield Redo(path, node, held, node is not None and self._has_children(key))

    def has_redo(self) -> bool:
        return self._connection.execute("SELECT 1 FROM redo LIMIT 1").fetchone() is not None

    def forget_redo(self) -> None:
        """The disk looks like the table."""
        self._connection.execute("DELETE FROM redo")

    def prepare_redo(self, disk: DiskTree) -> None:
        """Check the way to every changed node, and stage the bytes of files that get children, or lose the last one.

        With children a file is shown as a folder. Raises: TargetCorruptError, OSError.
        """
        parents: set[Key] = set()
        last, is_file = "", False
        for key, is_there in self._connection.execute(
            "SELECT redo.key, nodes.key IS NOT NULL FROM redo LEFT JOIN nodes ON nodes.key = redo.key ORDER BY redo.key"
        ):
            disk.check(path_of(key))
            parent = parent_key(key)
            if parent != last:
                row = self._connection.execute("SELECT body FROM nodes WHERE key = ?", (parent,)).fetchone()
                last, is_file = parent, row is not None and decode_node(path_of(parent), row[0]).is_plain_file
            if is_file and (is_there or not self._has_children(parent)):
                parents.add(parent)
        for key in sorted(parents):
            self._stage_again(key)

    def _row(self, record: NodeRecord, stamp: int) -> Row:
        path, body, outside, _ = record
        self._room.check(path)
        if self._folded is not None:
            self._folded.check(path)
        key = key_of(path)
        by_digest = {binary.digest: binary for binary in outside}
        node = decode_node(path, body, lambda digest: by_digest[digest].open())
        binaries = {binary.digest: binary for binary in binaries_of(node)}
        if not binaries:
            return key, stamp, None, body
        named_body = encode_node(with_binaries(node, named)).body
        present = self._connection.execute("SELECT held, body FROM nodes WHERE key = ?", (key,)).fetchone()
        # Equal bodies name equal digests, so the bytes are in place: nothing to stage, and the trigger notes no redo.
        if present is not None and present[1] == named_body:
            return key, stamp, present[0], named_body
        number = self._next_number()
        for digest, binary in binaries.items():
            if not self._compares_shown or not self._is_shown(node, digest):
                self._staging.add(number, by_digest.get(digest, binary))
        return key, stamp, number, named_body

    def _is_shown(self, node: Node, digest: bytes) -> bool:
        """Whether a binary is where `DiskTree.show` looks for it, were it not staged."""
        names = names_on_disk(node.path)
        # with children it is next to the sidecar: `prepare_redo` stages it where these come or go
        place = names if is_shown_as_file(node) else [*names, binary_file(digest)]
        if self._shown_in is None:
            return False
        try:
            with closing(FolderTrail(self._shown_in)) as trail, trail.enter(place[:-1]).open_file(place[-1]) as file:
                return hashlib.file_digest(file, "sha256").digest() == digest
        except OSError:
            return False

    def _stage_again(self, key: Key) -> None:
        """A file that was shown as a file will be shown as a folder, or again as a file: its bytes must survive."""
        path = path_of(key)
        held, body = self._connection.execute("SELECT held, body FROM nodes WHERE key = ?", (key,)).fetchone()
        for binary in binaries_of(decode_node(path, body)):
            if held is not None and self._staging.has(held, binary.digest):
                continue
            held = self._next_number()
            with self.open_held(path, None, binary.digest) as shown:
                self._staging.add(
                    held, Binary(digest=binary.digest, length_bytes=binary.length_bytes, opener=lambda: shown)
                )
        self._connection.execute("UPDATE nodes SET held = ? WHERE key = ?", (held, key))
        # the trigger fires for a changed body only, and this changed `held`
        self._connection.execute("INSERT OR IGNORE INTO redo VALUES (?)", (key,))

    def _has_children(self, key: str) -> bool:
        sql = "SELECT 1 FROM nodes WHERE key >= ? AND key < ? LIMIT 1"
        return self._connection.execute(sql, below_range(key)).fetchone() is not None

    def _committed_changes(self) -> int:
        return int(self._connection.execute("SELECT changes FROM state").fetchone()[0])

    def _next_number(self) -> int:
        self._count += 1
        return (self._stamp << _NUMBER_BITS) + self._count


def open_shown(folders: FolderTrail, path: NodePath, digest: bytes) -> FileIO:
    """A binary of a node as `DiskTree` shows it below the folders' root; its bytes are not compared.

    Raises: BlobMissingError, OSError.
    """
    names = names_on_disk(path)
    for place in filter(None, (names, [*names, binary_file(digest)])):
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, ForeignEntryError):
            return folders.enter(place[:-1]).open_file(place[-1])
    raise _gone(path, digest)


def _gone(path: NodePath, digest: bytes) -> BlobMissingError:
    return BlobMissingError(f"the bytes {digest.hex()} of {path} are gone", path=path)


def show_redo(disk: DiskTree, redo: Redo) -> None:
    """Make one node's place on disk look like the table. Raises: as `DiskTree.show`."""
    if redo.node is None:
        disk.remove(redo.path)
    else:
        disk.show(redo.node, redo.number, has_children=redo.has_children)
