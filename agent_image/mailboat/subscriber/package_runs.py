"""Runs of small packages in a batch that are read together: what most of a backlog consists of.

A run is what can be checked and read by a few calls for all of it: packages of a followed publisher, inline, with a
digest, each of one subtree. Nothing is refused here: where anything is doubtful there is no run, and `Importer` takes
the records one by one. Called by `Importer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from mailboat.errors import PathRefusedError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.journal.port import Record
from mailboat.model.changes import Subtrees
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import parse_paths
from mailboat.packages.port import PackageCodec, PackageLimits
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.plain_packages import PlainPackage, take_plain_package

SMALL_BYTES: Final = 64 * 1024
"""The largest package of the quick ways."""
FEW: Final = 4
"""Fewer are not worth it."""
TRIES: Final = 4
"""After so many runs that came to nothing, the rest of a batch is imported one by one."""


class Run(NamedTuple):
    """Packages that were read together: records of a batch from one on."""

    begin: int
    subtrees: Subtrees


class Reading(NamedTuple):
    """What a subscriber reads, and how.

    Attributes:
        follow: The publishers that it follows; None follows all.
        limits: What it accepts of a package.
        codecs: By package type.
        failpoints: For tests.
    """

    follow: frozenset[AgentName] | None
    limits: PackageLimits
    codecs: Mapping[str, PackageCodec]
    failpoints: Failpoints

    def is_quick(self, message: PackageMessage) -> bool:
        """Whether it is a small package, inline, with a digest, of a followed publisher, and needs nothing besides."""
        payload, follow = message.payload, self.follow
        return (
            payload is not None
            and message.package_digest is not None
            and message.action is Action.ADD
            and not message.binaries
            and not message.required_features
            and len(payload) <= SMALL_BYTES
            and (follow is None or message.pub_agent_name in follow)
        )


class PackageRuns:
    """Finds the runs of one batch."""

    def __init__(self, reading: Reading, records: Sequence[Record]) -> None:
        """Nothing is read yet."""
        self._reading = reading
        self._records = records
        self._tries = TRIES
        self._next = 0

    def run_at(self, begin: int) -> Run | None:
        """The run that begins with a record; None where it is to be imported by itself."""
        if begin < self._next or not self._tries or len(self._records) - begin < FEW:
            return None
        packages = self._packages_from(begin)
        self._next = begin + len(packages)
        subtrees = None if len(packages) < FEW else self._read(packages)
        if subtrees is None:
            self._tries -= 1
            return None
        return Run(begin, subtrees)

    def _packages_from(self, begin: int) -> list[PlainPackage]:
        """The packages of the records that may be a run."""
        packages: list[PlainPackage] = []
        follow, reach = self._reading.follow, self._reading.failpoints.reach
        kind = None
        for record in self._records[begin:]:
            package = take_plain_package(record.value) if record.headers == PACKAGE_HEADERS else None
            if package is None:
                break  # what is wrong is reported when its turn comes
            _, payload, digest, package_type, publisher = package
            if len(payload) > SMALL_BYTES or (follow is not None and publisher not in follow):
                break
            kind = kind or package_type
            if package_type != kind or sha256(payload).digest() != digest:
                break
            reach(Failpoint.SUBSCRIBER_PACKAGE_CHECKED)
            packages.append(package)
        return packages

    def _read(self, packages: Sequence[PlainPackage]) -> Subtrees | None:
        codec = self._reading.codecs.get(packages[0].package_type)
        if codec is None:
            return None
        try:
            roots = parse_paths([package.path for package in packages])
        except PathRefusedError:
            return None
        return codec.read_together([package.payload for package in packages], roots, self._reading.limits)
