"""Which packages of a pool may be imported at the same time. Pure.

Packages that touch the same content are imported in the order of the log. Two packages touch the same content if a path
of one is a path of the other, or lies above or below one. A package gets the key of the unfinished packages that it
touches, and the queue of the pool keeps the order within each key:

    it touches none                     a key of its own
    it touches packages of one key      that key
    it touches packages of several      it waits, with all behind it, until the packages of all but one key are done
    its message names no path           it touches all

So order is kept whatever the paths are: they are compared with what is unfinished, and no prefix of a fixed length is
cut off. Packages that do not touch each other may share a key for as long as that has unfinished packages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from mailboat.errors import MailboatError, MessageCorruptError
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import DEFAULT_LEASE_MS, MAX_BATCH, Feed, JobId, NewJob, pool_topic
from mailboat.model.paths import ROOT, NodePath, ancestors_of, common_ancestor, parse_path

MAX_UNFINISHED: Final = 1_024
"""Packages of a pool that are in its queue and not done. More wait in the log, where they cost nothing."""

MAX_PATHS: Final = 64
MAX_PATH_BYTES: Final = 8 * 1024
"""Of the paths that a job names; a package with more touches what their common ancestor holds."""

MAX_FEED_BYTES: Final = 512 * 1024
"""Of the payloads in one record: well below what a broker takes by default."""


class Package(NamedTuple):
    """A package as its pool sees it.

    Attributes:
        offset: Of its message.
        paths: What it touches, each with all below it.
    """

    offset: Offset
    paths: tuple[NodePath, ...]


class QueuedPackage(NamedTuple):
    """What the payload of a job says.

    Attributes:
        log: The package topic.
        target: Marker of the target that it is for; empty in jobs of versions that did not name it.
        package: The package.
    """

    log: str
    target: str
    package: Package


def touched(paths: Collection[NodePath]) -> tuple[NodePath, ...]:
    """The subtrees that a package with these paths touches, bounded in number and in bytes."""
    named = set(paths)
    if not named or ROOT in named:
        return (ROOT,)
    outermost = sorted(path for path in named if named.isdisjoint(ancestors_of(path)))
    if len(outermost) <= MAX_PATHS and sum(len(path.encode()) for path in outermost) <= MAX_PATH_BYTES:
        return tuple(outermost)
    top = common_ancestor(outermost)
    return (top if len(top.encode()) <= MAX_PATH_BYTES else ROOT,)


class OpenPackages:
    """The packages of a pool that are in its queue and not done, by what they touch."""

    def __init__(self) -> None:
        self._packages: dict[JobId, tuple[Package, str]] = {}
        self._at: dict[NodePath, Counter[str]] = {}
        self._below: dict[NodePath, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._packages)

    @property
    def jobs(self) -> AbstractSet[JobId]:
        """The jobs that are known."""
        return self._packages.keys()

    @property
    def offsets(self) -> AbstractSet[Offset]:
        """The offsets of the packages."""
        return {package.offset for package, _ in self._packages.values()}

    def first_offset(self) -> Offset | None:
        """The offset of the oldest package; None if absent."""
        return min((package.offset for package, _ in self._packages.values()), default=None)

    def add(self, job: JobId, package: Package, key: str) -> None:
        """Add a package."""
        self._packages[job] = package, key
        self._count(package, key, 1)

    def remove(self, job: JobId) -> None:
        """Remove a package that is there."""
        package, key = self._packages.pop(job)
        self._count(package, key, -1)

    def keys_of(self, paths: Iterable[NodePath]) -> set[str]:
        """The keys of the packages that touch the same content as these paths."""
        found: set[str] = set()
        for path in paths:
            # At the path or below it, then at each ancestor: other content can't overlap.
            found.update(self._below.get(path, ()))
            for above in (ROOT, *ancestors_of(path)):
                found.update(self._at.get(above, ()))
        return found

    def _count(self, package: Package, key: str, change: int) -> None:
        for path in package.paths:
            _add(self._at, path, key, change)
            # a path counts as below itself, so that one lookup finds it and what is under it
            for above in {path, ROOT, *ancestors_of(path)}:
                _add(self._below, above, key, change)


def _add(index: dict[NodePath, Counter[str]], path: NodePath, key: str, change: int) -> None:
    keys = index.setdefault(path, Counter())
    keys[key] += change
    if not keys[key]:
        del keys[key]
        if not keys:
            del index[path]


def plan_feed(
    feed: Feed, unfinished: OpenPackages, packages: Iterable[Package], lease_ms: int = DEFAULT_LEASE_MS
) -> list[NewJob]:
    """The jobs of the next packages, one for each and in their order; they end before one that has to wait."""
    jobs: list[NewJob] = []
    # removed again below: whether the record counts is decided by its place in the log
    added: list[JobId] = []
    room, size = MAX_UNFINISHED - len(unfinished), 0
    for package in packages:
        keys = unfinished.keys_of(package.paths)
        # Two keys: it must wait for packages of both, and a job has one key. It stays in the log until one key is left.
        if len(jobs) == min(room, MAX_BATCH) or len(keys) > 1:
            break
        key = next(iter(keys), str(package.offset))
        payload = encode_queued(feed, package)
        size += len(payload)
        if jobs and size > MAX_FEED_BYTES:
            break
        jobs.append(NewJob(pool_topic(feed.pool), payload, key, lease_ms=lease_ms))
        # Negative numbers: no job of the log has one.
        added.append(JobId(-1 - len(added)))
        unfinished.add(added[-1], package, key)
    for job in added:
        unfinished.remove(job)
    return jobs


def encode_queued(feed: Feed, package: Package) -> bytes:
    """The payload of the job that imports a package."""
    document = {"log": str(feed.log), "target": feed.target, "offset": package.offset, "paths": package.paths}
    return json.dumps(document, ensure_ascii=False).encode()


def decode_queued(payload: bytes) -> QueuedPackage:
    """What a payload says. Raises: MessageCorruptError."""
    try:
        document = json.loads(payload)
        log, target, offset, paths = document["log"], document.get("target", ""), document["offset"], document["paths"]
        if not isinstance(log, str) or not isinstance(target, str) or not isinstance(offset, int) or offset < 0:
            raise ValueError("a field has an invalid value")
        if not 0 < len(paths) <= MAX_PATHS:
            raise ValueError("the number of paths is invalid")
        return QueuedPackage(log, target, Package(Offset(offset), tuple(parse_path(path) for path in paths)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, MailboatError) as error:
        raise MessageCorruptError(f"the payload is not a package of a pool: {error!r:.200}") from error
