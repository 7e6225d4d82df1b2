"""What was last published of each source: path → node digest, and how that compares with the source now.

Only sources that `publish_changed` has seen are followed. What a package will change is staged under its package id and
taken over with its receipt, so that memory and log can't part over a crash, nor over another process that builds for
the same request. Each source remembers its last package, whose loss from the log puts all of it in doubt. All in SQLite
tables, sorted as paths are walked, so a tree of a million nodes needs no memory. Part of `PublisherState`, whose
transactions it uses. `StateFile` says which threads may use which of its methods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Final, NamedTuple, Self

from mailboat.clock import Clock, milliseconds_now
from mailboat.content.keys import key_of, parent_key, path_of, subtree_range
from mailboat.content.port import Source
from mailboat.content.watched_sources import description_of, namespaces_of
from mailboat.model.filters import policy_of
from mailboat.model.identifiers import Offset, PackageId
from mailboat.model.messages import Action
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity
from mailboat.packages.port import AC_HANDLING
from mailboat.packages.prefixes import prefixes_of
from mailboat.publisher.state_file import StateFile, columns_of, translated_failures
from mailboat.sqlite_file import transaction
from mailboat.wire.node_bodies import node_digest

_AC_OF_ALL: Final = frozenset({"overwrite", "clear"})
"""These remove access control lists of the repository also where the package has none."""

_CHUNK: Final = 1000
_PAGE: Final = 500

_TEMPORARY: Final = """
DROP TABLE IF EXISTS temp.current;
DROP TABLE IF EXISTS temp.removal;
DROP TABLE IF EXISTS temp.changed;
CREATE TEMP TABLE current (key TEXT PRIMARY KEY, digest BLOB, bytes INTEGER, is_file) WITHOUT ROWID;
CREATE TEMP TABLE removal (key TEXT PRIMARY KEY, what INTEGER, is_early) WITHOUT ROWID;
CREATE TEMP TABLE changed (rank INTEGER PRIMARY KEY, key TEXT, what INTEGER, bytes INTEGER, is_file);
"""
_PUT_NEW, _PUT_OTHER, _REMOVE_DEEP, _REMOVE_ALONE = range(4)
UNKNOWN_DIGEST: Final = b""
"""The digest of no node: the log may hold a node there, of unknown content."""
_DOUBTED: Final = "X''"
"""The same for SQLite."""
NO_NODE: Final = b"\0"
"""The digest of no node either: the node is gone, and what is below it stays."""

# A package with an intent may be in the log: recovery decides, and still needs what was staged for it.
_UNINTENDED: Final = "package_id NOT IN (SELECT package_id FROM intents)"

# U+0001 separates the names of a key: `char(1)` to `char(2)` is what lies below `c.key`. A node is new, and takes its
# subtree, only if nothing below it was published: else the package would remove what did not change.
_PUTS: Final = f"""
INSERT INTO changed (key, what, bytes, is_file)
SELECT c.key, CASE WHEN ifnull(p.digest, {_DOUBTED}) = {_DOUBTED} AND NOT EXISTS (
    SELECT 1 FROM published AS below WHERE below.source_id = :source_id AND below.digest <> {_DOUBTED}
    AND below.key >= c.key || char(1) AND below.key < c.key || char(2)
) THEN {_PUT_NEW} ELSE {_PUT_OTHER} END, c.bytes, c.is_file
FROM current AS c LEFT JOIN published AS p ON p.source_id = :source_id AND p.key = c.key
WHERE p.digest IS NOT c.digest ORDER BY c.key
"""
_REMOVALS: Final = """
INSERT INTO changed (key, what, bytes, is_file) SELECT key, what, 0, 0 FROM removal WHERE is_early = ? ORDER BY key
"""
_GONE: Final = """
SELECT p.key FROM published AS p WHERE p.source_id = ? AND p.key >= ? AND p.key < ?
AND NOT EXISTS (SELECT 1 FROM current AS c WHERE c.key = p.key) ORDER BY p.key
"""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One difference between the source and what was published.

    Attributes:
        path: Where.
        is_removal: It is gone from the source.
        is_alone: Nothing is said of what is below it. A removal otherwise takes the subtree; a node otherwise is new,
            and so is all below it.
        content_bytes: Bytes of its values and binaries.
        is_file: It is a file, for people.
        is_whole: It travels with all that is below, changed or not, in the place of what was published.
        below: What that is.
    """

    path: NodePath
    is_removal: bool = False
    is_alone: bool = True
    content_bytes: int = 0
    is_file: bool = False
    is_whole: bool = False
    below: tuple[NodePath, ...] = ()


class SourceNode(NamedTuple):
    """A source's node for comparison; `content_bytes` are those of values and binaries."""

    path: NodePath
    digest: bytes
    content_bytes: int
    is_file: bool


class StagedNode(NamedTuple):
    """What a package changes: the node's new digest; None removes the subtree, `NO_NODE` the node alone."""

    path: NodePath
    digest: bytes | None


PackageChanges = Sequence[tuple[PackageId, Sequence[StagedNode]]]
"""What several packages change."""


class ChangeDigests:
    """Digests of the nodes of a source, with what else of it changes what importers make of a node."""

    def __init__(self, source: Source) -> None:
        """Use what the source says of its prefixes and of access control, which may grow while nodes are read."""
        self._namespaces = namespaces_of(source)
        described = description_of(source)
        self._handling = None if described is None else described.package_properties().get(AC_HANDLING)

    def of(self, node: Node) -> bytes:
        """Digest of a node, of what its prefixes stand for, and of how its access control is imported."""
        namespaces, facts = self._namespaces, list[tuple[str, ...]]()
        if namespaces:
            facts = sorted((prefix, *namespaces[prefix]) for prefix in prefixes_of(node) if prefix in namespaces)
        if self._handling is not None and (self._handling.lower() in _AC_OF_ALL or policy_of(node.path) is not None):
            facts.append((AC_HANDLING, self._handling))
        digest = node_digest(node)
        if not facts:
            return digest
        return hashlib.sha256(digest + "\0".join("\t".join(fact) for fact in facts).encode()).digest()


class SourceEnd(NamedTuple):
    """Where the last package that changed what is known of a source stands in the log."""

    source_id: int
    uri: str
    offset: Offset
    package_id: PackageId


class Stager:
    """Collects what a package changes and notes it in portions; a failure forgets them."""

    def __init__(self, trees: PublishedTrees, package_id: PackageId, source_ids: Sequence[int]) -> None:
        self._trees = trees
        self._package_id = package_id
        self._source_ids = source_ids
        self._nodes: list[StagedNode] = []

    @property
    def is_needed(self) -> bool:
        return bool(self._source_ids)

    def add(self, node: StagedNode) -> None:
        """Note one change; the order counts."""
        self._nodes.append(node)
        if len(self._nodes) >= _CHUNK:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        elif self._source_ids:
            self._trees.discard(self._package_id)

    def _flush(self) -> None:
        if self._nodes and self._source_ids:
            self._trees.stage([(self._package_id, self._nodes)], self._source_ids, is_continued=True)
        self._nodes = []


class PublishedTrees:
    """The published trees of one publisher."""

    def __init__(self, file: StateFile, clock: Clock) -> None:
        self._clock = clock
        self._file = file
        self._connection = file.connection

    def source_id(self, uri: str, identity: LogIdentity) -> int | None:
        """The number of a source that is followed in that log; None when it isn't."""
        rows = self._file.rows(
            "SELECT id FROM sources WHERE uri = ? AND cluster_id = ? AND topic_id = ?", (uri, *columns_of(identity))
        )
        return int(rows[0][0]) if rows else None

    def followed(self, action: Action, uri: str | None, identity: LogIdentity) -> Sequence[int]:
        """The sources of which a package changes what is published: its own, or for a DELETE all."""
        if action is Action.DELETE:
            rows = self._file.rows("SELECT id FROM sources WHERE cluster_id = ? AND topic_id = ?", columns_of(identity))
            return [int(row[0]) for row in rows]
        found = None if uri is None else self.source_id(uri, identity)
        return () if found is None else (found,)

    def ends(self, identity: LogIdentity) -> Sequence[SourceEnd]:
        """The last packages of all sources that are followed in that log and have any."""
        rows = self._file.rows(
            "SELECT id, uri, at_offset, package_id FROM sources"
            " WHERE cluster_id = ? AND topic_id = ? AND package_id IS NOT NULL",
            columns_of(identity),
        )
        return [SourceEnd(row[0], row[1], Offset(row[2]), PackageId(row[3])) for row in rows]

    def doubt(self, source_id: int, paths: Sequence[NodePath] = ()) -> None:
        """Count a source, or `paths`, as unpublished; keeps that they were published, for removals.

        Inside the state's transaction.
        """
        self._connection.execute(f"UPDATE published SET digest = {_DOUBTED} WHERE source_id = ?", (source_id,))
        self._connection.execute("UPDATE sources SET at_offset = NULL, package_id = NULL WHERE id = ?", (source_id,))
        self._connection.executemany(
            f"INSERT OR REPLACE INTO published VALUES (?, ?, {_DOUBTED})", [(source_id, key_of(path)) for path in paths]
        )

    def follow(self, uri: str, identity: LogIdentity) -> int:
        """Follow a source from now on; its number."""
        self._file.execute(
            # Several processes may follow the source at once.
            "INSERT OR IGNORE INTO sources (uri, cluster_id, topic_id) VALUES (?, ?, ?)",
            (uri, *columns_of(identity)),
        )
        found = self.source_id(uri, identity)
        assert found is not None, uri  # noqa: S101  # it was made one line above
        return found

    def packages(self, source_id: int) -> int:
        """How many packages of the source were published so far: makes the request ids of changes unlike."""
        ((count,),) = self._file.rows("SELECT packages FROM sources WHERE id = ?", (source_id,))
        return int(count)

    def stager(self, package_id: PackageId, source_ids: Sequence[int]) -> Stager:
        """Notes what a package changes in some sources; nothing counts before `take_over`."""
        return Stager(self, package_id, source_ids)

    def stage(self, changes: PackageChanges, source_ids: Sequence[int], *, is_continued: bool = False) -> None:
        """Note what several packages change, in one durable step.

        Unless it is continued, it takes the place of what was noted for them before.
        """
        staged_ms = milliseconds_now(self._clock)
        rows = (
            (package_id, source_id, key_of(node.path), node.digest, staged_ms)
            for package_id, nodes in changes
            for node in nodes
            for source_id in source_ids
        )
        with self._file.transaction() as connection:
            if not is_continued:
                stale = [(package_id,) for package_id, _ in changes]
                connection.executemany("DELETE FROM staged WHERE package_id = ?", stale)
            connection.executemany(
                "INSERT INTO staged (package_id, source_id, key, digest, staged_ms) VALUES (?, ?, ?, ?, ?)", rows
            )

    def take_over(self, package_id: PackageId, offset: Offset) -> None:
        """What was staged for the package is published now. Inside the state's transaction."""
        # In the order of staging: a subtree is removed before the nodes that replace it are put.
        staged = self._connection.execute(
            "SELECT source_id, key, digest FROM staged WHERE package_id = ? ORDER BY rank", (package_id,)
        )
        source_ids = set()
        for source_id, key, digest in staged:
            source_ids.add(source_id)
            if digest is None:
                self._connection.execute(
                    "DELETE FROM published WHERE source_id = ? AND key >= ? AND key < ?",
                    (source_id, *subtree_range(key)),
                )
            elif digest == NO_NODE:
                self._connection.execute("DELETE FROM published WHERE source_id = ? AND key = ?", (source_id, key))
            else:
                self._connection.execute("INSERT OR REPLACE INTO published VALUES (?, ?, ?)", (source_id, key, digest))
        for source_id in source_ids:
            self._connection.execute(
                "UPDATE sources SET packages = packages + 1, at_offset = ?, package_id = ? WHERE id = ?",
                (offset, package_id, source_id),
            )
        self.discard(package_id)

    def discard(self, package_id: PackageId) -> None:
        """Forget what was staged for the package, unless an intent needs it."""
        self._file.execute(f"DELETE FROM staged WHERE package_id = ? AND {_UNINTENDED}", (package_id,))

    def discard_strays(self, before_ms: int) -> None:
        """Forget what was staged before that time by processes that died without an intent."""
        self._file.execute(f"DELETE FROM staged WHERE staged_ms < ? AND {_UNINTENDED}", (before_ms,))

    def compare(self, source_id: int | None, roots: Sequence[NodePath], nodes: Iterable[SourceNode]) -> int:
        """Compare the present `nodes` below `roots` with what was published; then see `changes`.

        Returns:
            The bytes of content of the differences.
        """
        with translated_failures(self._file.path):
            self._connection.executescript(_TEMPORARY)
        rows = ((key_of(node.path), node.digest, node.content_bytes, node.is_file) for node in nodes)
        # Read outside of `translated_failures`: a failure of the source is not one of this file.
        while chunk := list(islice(rows, _CHUNK)):
            with translated_failures(self._file.path), transaction(self._connection, "BEGIN"):
                self._connection.executemany("INSERT OR REPLACE INTO current VALUES (?, ?, ?, ?)", chunk)
        with translated_failures(self._file.path), transaction(self._connection, "BEGIN"):
            # No source has the number -1: nothing counts as published, so every node is new.
            self._rank_changes(-1 if source_id is None else source_id, roots)
            (total,) = self._connection.execute("SELECT coalesce(sum(bytes), 0) FROM changed").fetchone()
        return int(total)

    def changes(self) -> Iterator[SourceChange]:
        """The differences that the last `compare` found, in the order in which they are to be published."""
        last = 0
        while True:
            page = self._file.rows(
                "SELECT rank, key, what, bytes, is_file FROM changed WHERE rank > ? ORDER BY rank LIMIT ?",
                (last, _PAGE),
            )
            for rank, key, what, content_bytes, is_file in page:
                last = rank
                yield SourceChange(
                    path_of(key),
                    is_removal=what in {_REMOVE_DEEP, _REMOVE_ALONE},
                    is_alone=what in {_PUT_OTHER, _REMOVE_ALONE},
                    content_bytes=content_bytes,
                    is_file=bool(is_file),
                )
            if len(page) < _PAGE:
                return

    def _rank_changes(self, source_id: int, roots: Sequence[NodePath]) -> None:
        for root in roots:
            removals = (
                (key, what, self._is_parent_changed(source_id, key)) for key, what in self._gone(source_id, root)
            )
            self._connection.executemany("INSERT OR IGNORE INTO removal VALUES (?, ?, ?)", removals)
        # The order of publication: removals below changed parents, puts, all other removals. So new pages come before
        # old ones go.
        self._connection.execute(_REMOVALS, (True,))
        self._connection.execute(_PUTS, {"source_id": source_id})
        self._connection.execute(_REMOVALS, (False,))

    def _gone(self, source_id: int, root: NodePath) -> Iterator[tuple[str, int]]:
        past_top = ""
        for (key,) in self._connection.execute(_GONE, (source_id, *subtree_range(key_of(root)))):
            if key < past_top:
                continue
            low, past = subtree_range(key)
            # Removed as a whole only if the source has nothing below: else nodes that stay would go, too.
            current = self._connection.execute("SELECT 1 FROM current WHERE key >= ? AND key < ? LIMIT 1", (low, past))
            is_deep = current.fetchone() is None
            past_top = past if is_deep else ""
            yield key, _REMOVE_DEEP if is_deep else _REMOVE_ALONE

    def _is_parent_changed(self, source_id: int, key: str) -> bool:
        row = self._connection.execute(
            "SELECT c.digest, p.digest FROM current AS c LEFT JOIN published AS p ON p.source_id = ? AND p.key = c.key"
            " WHERE c.key = ?",
            (source_id, parent_key(key)),
        ).fetchone()
        return row is not None and row[0] != row[1]
