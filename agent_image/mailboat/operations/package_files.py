"""Packages as files: made, looked into, checked and installed by hand, also those that others made.

A package that is built here carries all of its binaries. One that refers to binaries in a blob store is read with the
blobs of the home, if there is one. Called by `mailboat packages`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from mailboat.composition.home import translated_writes
from mailboat.config.document import LimitsConfig
from mailboat.content.digest import TreeHash
from mailboat.content.port import DescribedSource, Source, Target
from mailboat.content.sources.folder import FolderSource
from mailboat.content.watched_sources import Watch, description_of, unwatched, watched_records
from mailboat.durable_file import replaced_file
from mailboat.errors import (
    BlobMissingError,
    MailboatError,
    PlaceUnusableError,
    SourceMissingError,
    UnknownPackageTypeError,
    UntrustedInputError,
    UsageError,
)
from mailboat.folder_handle import PUBLIC_FILE, open_regular_file
from mailboat.model.changes import ChangeCount
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import is_within
from mailboat.model.positions import LogIdentity, Position
from mailboat.model.requests import DistributionRequest, add_request, check_request
from mailboat.packages.codec_registry import FILEVAULT, PackageRegistry
from mailboat.packages.filevault.inspection import problems_of, read_entries
from mailboat.packages.filevault.layout_writer import POLICY_TYPES
from mailboat.packages.filevault.properties import package_id
from mailboat.packages.port import (
    AC_HANDLING,
    PackageCodec,
    PackageReader,
    PackageSummary,
    refusals_of,
)
from mailboat.publisher.builder import Shipment, shipment_of
from mailboat.wire.node_bodies import body_digest

BY_HAND: Final = AgentName("package-install")
"""Whose target it is that packages are installed into by hand."""

BY_HAND_IDENTITY: Final = LogIdentity("by-hand", "package-install")
"""Stands for a missing log: the position counts packages."""

_CHUNK_BYTES: Final = 1024 * 1024
_MERGING: Final = frozenset({"merge", "merge_preserve"})
"""Values of `acHandling` that act like its default, `ignore`, where a package has no access control list."""


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """What is in a package.

    Attributes:
        package_type: Its format.
        length_bytes: Size of the file.
        filter: What it owns.
        nodes: Nodes that it carries and owns.
        ancestors: Nodes above them, made where they are missing.
        binaries: Binaries that are not inline, how many and how large.
        binary_bytes: Their size.
        tree_digest: Canonical digest of the nodes owned.
        first_paths: The first nodes' paths.
        namespaces: What the prefixes in names stand for, but for the predefined prefixes.
        id: `group:name:version`; None if it has no name.
        properties: What it says of itself.
    """

    package_type: str
    length_bytes: int
    filter: WorkspaceFilter
    nodes: int
    ancestors: int
    binaries: int
    binary_bytes: int
    tree_digest: bytes
    first_paths: tuple[str, ...]
    namespaces: NamespaceTable
    id: str | None
    properties: Mapping[str, str]


class PackageFiles:
    """Works with package files. The blobs of a home are asked for binaries that a package only names."""

    def __init__(
        self, codecs: PackageRegistry, limits: LimitsConfig, open_blob: Callable[[bytes], BinaryIO] | None = None
    ) -> None:
        """Nothing is opened yet."""
        self._codecs = codecs
        self._limits = limits
        self._open_blob = open_blob or _no_blobs

    def build(
        self, request: DistributionRequest, source: Source, file: Path, package_type: str, properties: dict[str, str]
    ) -> PackageSummary:
        """Write a self-contained package; the file appears when it is complete.

        Its name, group and version are those given, else the source's, else from the name of the file. A whole source
        with a name keeps that it has no group or version.

        Raises: SourceMissingError, SourceChangedError, UsageError, PlaceUnusableError, StorageFullError,
                StorageReadOnlyError, StorageFailedError.
        """
        check_request(request)
        if properties and package_type != FILEVAULT:
            raise UsageError(
                f"a package of type {package_type} has no properties: {', '.join(sorted(properties))}",
                next_step=f"leave out --property, or build with --type {FILEVAULT}",
            )
        _check_place(file, request, source)
        shipment = shipment_of(request, source)
        contents = replace(
            shipment.contents(package_type, self._limits),
            is_self_contained=True,
            properties=_properties_of(shipment, source, file, properties),
        )
        codec = self._codecs.codec_for(package_type)
        with translated_writes(file), replaced_file(file, PUBLIC_FILE) as stream:
            return codec.write(contents, stream)

    def inspect(self, file: Path, *, reads_binaries: bool, examples: int = 10) -> PackageFacts:
        """Read a package as an import would, and check it; `reads_binaries` reads every byte of large binaries, too.

        Raises: SourceMissingError, UnknownPackageTypeError, and whatever an import of it would.
        """
        with self._opened(file) as (package_type, reader):
            total = _Total(reader.filter, examples)
            change = reader.change()
            for record in change.records:
                total.add(record)
                if reads_binaries:
                    _read_binaries(record)
        return PackageFacts(
            package_type,
            file.stat().st_size,
            total.filter,
            total.nodes,
            total.ancestors,
            total.binaries,
            total.binary_bytes,
            total.hash.digest(),
            tuple(total.paths),
            change.namespaces,
            package_id({"group": "", "version": "", **reader.properties}) if "name" in reader.properties else None,
            reader.properties,
        )

    def verify(self, file: Path) -> PackageFacts:
        """The same with every byte of large binaries, and of what an import of a FileVault zip passes over.

        The error for such a zip lists all that is wrong with it. Raises: as `inspect`.
        """
        try:
            facts = self.inspect(file, reads_binaries=True)
            with refusals_of(file):
                self._read_entries(file)
        except UntrustedInputError as error:
            problems = [problem.with_facts(file=str(file)) for problem in self._problems_of(file)]
            others = "\n".join(_described(problem) for problem in problems if str(problem) != str(error))
            if others:
                error.where["also"] = others
            raise
        return facts

    def _read_entries(self, file: Path) -> None:
        with io.BufferedReader(open_regular_file(file)) as stream:
            if self._codecs.codec_of(stream).package_type == FILEVAULT:
                read_entries(stream, self._limits)

    def _problems_of(self, file: Path) -> Sequence[MailboatError]:
        with io.BufferedReader(open_regular_file(file)) as stream:
            try:
                is_zip = self._codecs.codec_of(stream).package_type == FILEVAULT
            except UnknownPackageTypeError:
                return ()
            return problems_of(stream, self._limits) if is_zip else ()

    def install(self, file: Path, target: Target, watch: Watch | None = None) -> ChangeCount:
        """Import a package into a target that no subscriber owns, in one transaction.

        Args:
            file: The package.
            target: Where to.
            watch: Receives the bytes of content processed.

        Raises:
            TargetOwnedError: The target is a subscriber's; publish the content instead.
        """
        ledger = target.ledger
        with self._opened(file) as (_, reader):
            ledger.claim(BY_HAND)
            before = ledger.position()
            stamp = Offset(0 if before is None else before.next_offset)
            with target.batch() as batch:
                change = reader.change()
                records = change.records if watch is None else watched_records(change.records, watch)
                count = batch.apply(change._replace(records=records), stamp)
                return count + batch.commit(Position(BY_HAND_IDENTITY, Offset(stamp + 1)))

    def _codec_of(self, file: Path, stream: BinaryIO) -> PackageCodec:
        try:
            return self._codecs.codec_of(stream)
        except UnknownPackageTypeError as error:
            error.where["file"] = str(file)
            raise

    @contextmanager
    def _opened(self, file: Path) -> Iterator[tuple[str, PackageReader]]:
        if not file.is_file():
            raise SourceMissingError(f"{file} does not exist or is not a file", file=file)
        with io.BufferedReader(open_regular_file(file)) as stream:
            codec = self._codec_of(file, stream)
            with refusals_of(file), closing(codec.open(stream, self._limits, self._open_blob)) as reader:
                yield codec.package_type, reader


def _check_place(file: Path, request: DistributionRequest, source: Source) -> None:
    """Refuse a file that would be in the package itself. Raises: PlaceUnusableError."""
    plain = unwatched(source)
    folder = plain.folder_of(file) if isinstance(plain, FolderSource) else None
    if folder is not None and any(is_within(folder, path) for path in request.deep_paths):
        raise PlaceUnusableError(
            f"{file} lies in the content of the package", next_step="name a file outside of the source", path=file
        )


def _described(problem: MailboatError) -> str:
    """A further problem of a file that the first one names."""
    problem.where.pop("file", None)
    return str(problem)


def _properties_of(shipment: Shipment, source: Source, file: Path, given: dict[str, str]) -> dict[str, str]:
    """The properties of a package of a source. Raises: UsageError."""
    own = {"name": file.stem, "group": "mailboat", "version": "1.0"}
    described = description_of(source)
    if described is None:
        return own | given
    kept = {key: text for key, text in shipment.properties.items() if key != "name" or text.strip()}
    if _is_whole(shipment.filter, described):
        absent = {"group": "", "version": ""} if "name" in kept else {}
        return own | absent | kept | given
    made = own | _properties_of_part(kept, shipment.filter, source) | given
    if "name" not in given and all(made[key] == kept.get(key, "") for key in ("name", "group")):
        raise UsageError(
            f"a part of a package would have the name of the whole, {package_id(kept)}, and replace it where it is"
            " installed",
            next_step="write it to a file of another name, or pass --property name=NAME",
            file=file,
        )
    return made


def _is_whole(owned: WorkspaceFilter, described: DescribedSource) -> bool:
    """Whether a package owns all of its source, also if it has none of the roots that change nothing."""
    if described.filter is None or not described.filter.sets:
        return True
    everything = add_request([filter_set.root for filter_set in described.filter.sets]).filter
    whole = described.filter, described.filter_within(everything)
    return any(frozenset(owned.sets) == frozenset(one.sets) for one in whole)


def _properties_of_part(kept: dict[str, str], owned: WorkspaceFilter, source: Source) -> dict[str, str]:
    """The source's properties for a part of it: without its name, and without an `acHandling` that has no effect.

    Package managers take packages of one name for one package: a part would take the place of the whole.
    FileVault's validator reports `merge` and `merge_preserve` without an access control list as an error. `overwrite`
    and `clear` stay: they remove lists of the repository that the package does not have.
    """
    kept = {key: text for key, text in kept.items() if key != "name"}
    if kept.get(AC_HANDLING, "").lower() not in _MERGING:
        return kept
    plain = unwatched(source)
    nodes = (
        node for filter_set in owned.sets for node in plain.walk(filter_set.root, is_deep=not filter_set.is_shallow)
    )
    if any(node.primary_type in POLICY_TYPES and owned.covers(node.path) for node in nodes):
        return kept
    return {key: text for key, text in kept.items() if key != AC_HANDLING}


class _Total:
    """Adds up records."""

    def __init__(self, owned: WorkspaceFilter, examples: int) -> None:
        self.filter = owned
        self.nodes = self.ancestors = self.binaries = self.binary_bytes = 0
        self.hash = TreeHash()
        self.paths: list[str] = []
        self._examples = examples

    def add(self, record: NodeRecord) -> None:
        if not self.filter.covers(record.path):
            self.ancestors += 1
            return
        self.nodes += 1
        self.binaries += len(record.binaries)
        self.binary_bytes += sum(binary.length_bytes for binary in record.binaries)
        self.hash.add(record.path, body_digest(record.path, record.body))
        if len(self.paths) < self._examples:
            self.paths.append(record.path)


def _read_binaries(record: NodeRecord) -> None:
    for binary in record.binaries:
        with binary.open() as stream:
            while stream.read(_CHUNK_BYTES):
                pass


def _no_blobs(digest: bytes) -> BinaryIO:
    raise BlobMissingError(
        f"the package names the binary {digest.hex()} instead of carrying it",
        next_step="name the home whose blob store has it: --home DIR",
    )


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` pairs. Raises: UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found
