"""What all targets are made of: a locked database with the tree and the ledger, and steps that show the tree elsewhere.

A batch is one SQLite transaction. Its commit is the commit of the target. What a target shows on disk
(`TreePresenter`) is prepared before the commit, so that only renames remain to be done after it. Steps that a crash
interrupts are repeated when the target is opened. A `sqlite:` target consists of its database alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from types import TracebackType
from typing import Final, Self

from mailboat.content.foreign_failures import ForeignFailure, translate_failure
from mailboat.content.keys import Key, key_of, path_of
from mailboat.content.merge_rules import DocumentMerge, merge_node, recreates_files
from mailboat.content.port import NOTHING_DONE, RestoreRecord, Source
from mailboat.content.targets.ledger import LedgerAdditions, TargetLedger
from mailboat.content.targets.locks import TargetLock
from mailboat.content.targets.namespace_table import keep_namespaces
from mailboat.content.targets.tree_table import Intake, TreeTable
from mailboat.errors import UsageError
from mailboat.frozen import Frozen
from mailboat.model.changes import ChangeCount, Subtrees, TreeChange
from mailboat.model.filters import ImportMode, WorkspaceFilter
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import Token
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath, paths_above
from mailboat.model.positions import Position
from mailboat.wire.node_bodies import decode_node, encode_node


class TreePresenter:
    """How a target shows its tree outside of its database: this one does not. Called from the batch's thread."""

    def begin(self) -> None:
        """A transaction is open now; also finishes what an earlier commit left undone."""

    def prepare(self, position: Position) -> None:
        """The transaction is about to commit: make durable what `show` will need."""

    def show(self) -> None:
        """The transaction is committed: make the disk look like it."""

    def discard(self) -> None:
        """The transaction was rolled back."""

    def statistics(self) -> Mapping[str, int]:
        """Counts, for people and tests."""
        return {}

    def close(self) -> None:
        """Finish and release."""


class TargetParts(Frozen):
    """What one target is made of.

    Attributes:
        uri: As a user would give it.
        lock: Held until the target is closed.
        connection: To the target's database, for batches.
        ledger_connection: Another one, for the ledger.
        intake: Keeps the binaries.
        showing: Shows the tree.
        open_source: Opens the committed content.
    """

    uri: str
    lock: TargetLock
    connection: sqlite3.Connection
    ledger_connection: sqlite3.Connection
    intake: Intake
    showing: TreePresenter
    open_source: Callable[[], Source] = field(repr=False)


class TreeTarget:
    """An open target; see `Target`."""

    def __init__(self, parts: TargetParts) -> None:
        """Serve the parts, which it owns from now on."""
        self.uri: Final = parts.uri
        self.ledger: Final = TargetLedger(parts.ledger_connection, parts.uri)
        self._parts = parts
        self._table = TreeTable(parts.connection, parts.intake)
        self._commits = 0
        self._is_closed = False

    def batch(self, *, restored: RestoreRecord | None = None) -> TreeBatch:
        """See `Target.batch`.

        Raises: StorageFullError, StorageReadOnlyError, StorageFailedError, TargetCorruptError.
        """
        return TreeBatch(self._parts, self._table, self._count_commit, restored)

    def source(self) -> Source:
        return self._parts.open_source()

    def statistics(self) -> Mapping[str, int]:
        return {"commits": self._commits, **self._parts.showing.statistics()}

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._parts.showing.close()
        finally:
            self._parts.ledger_connection.close()
            self._parts.connection.close()
            # last: the next process must not meet an open connection of this one
            self._parts.lock.release()

    def _count_commit(self) -> None:
        self._commits += 1


class TreeBatch(LedgerAdditions):
    """One transaction of a `TreeTarget`; see `Batch`."""

    def __init__(
        self, parts: TargetParts, table: TreeTable, when_committed: Callable[[], None], restored: RestoreRecord | None
    ) -> None:
        """Begin the transaction."""
        super().__init__(restored)
        self._parts = parts
        self._table = table
        self._when_committed = when_committed
        self._is_open = False
        self._has_failed = False
        parts.intake.compare_held(is_wanted=restored is not None)
        try:
            # IMMEDIATE waits for the write lock now; a transaction that reads first can fail at its first write
            parts.connection.execute("BEGIN IMMEDIATE")
            self._is_open = True
            parts.showing.begin()
            self._changes = int(parts.connection.execute("SELECT changes FROM state").fetchone()[0])
        except BaseException as error:
            self._roll_back()
            self._translate(error)
            raise

    def apply(self, change: TreeChange, stamp: Offset) -> ChangeCount:
        """See `Batch.apply`. The offset is for messages; rows have the target's own count of changes."""
        # A number of its own for each change, also of one that fails: its stamp distinguishes its rows.
        self._changes += 1
        try:
            count = self._table.gather(change, self._changes)
            if count is None:
                self._table.flush()
                if change.filter.is_simple:
                    count = self._table.apply_simple(change, self._changes)
                else:
                    count = apply_filtered(self._table, change, self._changes)
            if change.namespaces:
                keep_namespaces(self._parts.connection, (change.namespaces,))
        except BaseException as error:
            self._has_failed = True
            self._translate(error, stamp)
            raise
        return count

    def apply_subtrees(self, subtrees: Subtrees, first: int) -> tuple[int, ChangeCount]:
        try:
            taken, count = self._table.gather_subtrees(subtrees, first, self._changes + 1)
            if taken and subtrees.namespaces:
                keep_namespaces(self._parts.connection, subtrees.namespaces)
        except BaseException as error:
            self._has_failed = True
            self._translate(error)
            raise
        self._changes += taken
        return taken, count

    def remove(self, paths: Sequence[NodePath], stamp: Offset) -> ChangeCount:
        # also here: what is staged for files that lose their last child is numbered by the change
        self._changes += 1
        try:
            self._table.flush()
            return self._table.remove(paths)
        except BaseException as error:
            self._has_failed = True
            self._translate(error, stamp)
            raise

    def commit(self, position: Position, done: Mapping[Offset, Token] = NOTHING_DONE) -> ChangeCount:
        """See `Batch.commit`.

        Raises:
            UsageError: Something failed in this batch before, or it is over.
            StorageFullError, StorageReadOnlyError, StorageFailedError: Ask the ledger for the position before going
                on: it says whether the failure struck before or after the transaction was committed.
        """
        if self._has_failed or not self._is_open:
            raise UsageError(f"a batch of {self._parts.uri} was committed that had failed or was over")
        try:
            self._table.flush()
            # Position, confirmations and error queue in the content's transaction: this is the exactly-once effect.
            self._write_ledger(self._parts.connection, position, self._changes, done)
            self._parts.showing.prepare(position)
            self._execute_commit()
            # committed: a failure of `show` is not rolled back, the next batch or start shows what is missing
            self._when_committed()
            self._parts.showing.show()
        except BaseException as error:
            self._has_failed = True
            self._translate(error)
            raise
        return ChangeCount(removed=self._table.take_removed())

    def _execute_commit(self) -> None:
        # Before, not after: Python raises the KeyboardInterrupt of a Ctrl-C during the commit right behind it.
        self._is_open = False
        try:
            self._parts.connection.execute("COMMIT")
        except sqlite3.Error:
            self._is_open = True
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._roll_back()

    def _roll_back(self) -> None:
        if not self._is_open and not self._parts.connection.in_transaction:
            return
        self._is_open = False
        self._table.abandon()
        # SQLite has rolled back already after some errors, such as a full disk: a second ROLLBACK would fail.
        if self._parts.connection.in_transaction:
            self._parts.connection.execute("ROLLBACK")
        try:
            self._parts.showing.discard()
        except OSError as error:
            self._translate(error)
            raise

    def _translate(self, error: BaseException, offset: Offset | None = None) -> None:
        if isinstance(error, ForeignFailure):
            translated = translate_failure(error, self._parts.uri)
            if offset is not None:
                translated.where["offset"] = offset
            raise translated from error


# ------------------------------------------------------------------------------------------------- filters with rules


def apply_filtered(table: TreeTable, change: TreeChange, stamp: int) -> ChangeCount:
    """Put and remove what a change says, whatever its filter is."""
    put = size = 0
    emptied: list[NodePath] = []  # nodes below which nothing stays that the change does not carry
    keeps_documents = change.filter.keeps_documents
    documents = DocumentMerge(change.filter, lambda path: table.has(key_of(path)))
    for record in change.records:
        if keeps_documents and documents.leaves_alone(record):
            continue
        if not change.filter.covers(record.path):
            put += table.make_ancestor(record, stamp, change.filter.covers)
            continue
        merged = _merged(table, record, change.filter)
        if recreates_files(record.path, change.filter) and table.is_new_file(merged, (key_of(record.path),)):
            emptied.append(record.path)
        if change.filter.imports_list(record.path):
            emptied.append(record.path)
        table.put([merged], stamp, change.filter.covers)
        put += 1
        size += len(merged.body) + sum(binary.length_bytes for binary in record.binaries)
    removed = _remove_uncarried(table, change.filter, stamp, documents)
    removed += sum(table.delete_below(path, stamp) for path in emptied)
    return ChangeCount(put, removed, size)


def _merged(table: TreeTable, record: NodeRecord, owned: WorkspaceFilter) -> NodeRecord:
    above = owned.sets_above(record.path)
    if above[0].mode is ImportMode.REPLACE and not any(filter_set.property_rules for filter_set in above):
        return record
    by_digest = {binary.digest: binary for binary in record.binaries}
    incoming = decode_node(record.path, record.body, lambda digest: by_digest[digest].open())
    return encode_node(merge_node(table.node(key_of(record.path)), incoming, owned))


def _remove_uncarried(table: TreeTable, workspace_filter: WorkspaceFilter, stamp: int, documents: DocumentMerge) -> int:
    def is_removed(key: Key) -> bool:
        path = path_of(key)
        return workspace_filter.replaces(path) and not documents.keeps(path)

    whole, alone = _replaced_roots(workspace_filter)
    below = (key for root in whole for key in table.uncarried(root, stamp))
    single = (root for root in alone if table.is_uncarried(root, stamp))
    # Those of shallow roots last and deepest first: a node stays as long as another is below it.
    return sum(table.delete_alone(key) for key in chain(below, single) if is_removed(key))


def _replaced_roots(workspace_filter: WorkspaceFilter) -> tuple[list[Key], list[Key]]:
    """Where nodes can be that the filter removes: disjoint subtrees, and single nodes outside them.

    The mode of a path is that of the first root above it, also where another filter set covers the path: a shallow
    root that replaces counts with all below it, if a deep root is above or below it.
    """
    deep = workspace_filter.deep_roots
    above_deep = {above for root in deep for above in paths_above(root)}
    replacing = [filter_set for filter_set in workspace_filter.sets if filter_set.mode is ImportMode.REPLACE]
    related = deep | above_deep
    whole = {
        filter_set.root
        for filter_set in replacing
        if filter_set.root in related or not deep.isdisjoint(paths_above(filter_set.root))
    }
    # Disjoint, so that no node is visited twice.
    outermost = [root for root in whole if whole.isdisjoint(paths_above(root))]
    alone = {filter_set.root for filter_set in workspace_filter.sets if filter_set.is_shallow} - whole
    return [key_of(root) for root in outermost], sorted(map(key_of, alone), reverse=True)
