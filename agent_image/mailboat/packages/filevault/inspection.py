"""Looks at a FileVault zip without importing it: what it says of itself, what is in it, and what is wrong with it.

Where a reader stops at the first thing that it refuses, this goes on as far as it can, so that whoever made the package
sees all of it. A pure record; the command line prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from mailboat.errors import MailboatError
from mailboat.model.filters import WorkspaceFilter
from mailboat.packages.filevault.archive import Archive, Entry
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.filters import FILTER_XML, parse_filter
from mailboat.packages.filevault.properties import PROPERTIES_XML, check_properties, parse_properties
from mailboat.packages.filevault.reader import open_archive
from mailboat.packages.port import PackageLimits

PIECE_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class EntryFacts:
    """One entry of the zip."""

    name: str
    size_bytes: int
    packed_bytes: int
    is_packed: bool


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes:
        properties: `properties.xml`, empty where it is missing or broken.
        filter: What the package owns; None where it is missing or broken.
        entries: All entries, in the order of the central directory.
        node_count: Records that an import would get, ancestors included; up to the first problem.
        problems: Everything that an import would refuse, as sentences; empty for a sound package.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    filter: WorkspaceFilter | None = None
    entries: tuple[EntryFacts, ...] = ()
    node_count: int = 0
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether it can be imported."""
        return not self.problems


def inspect_package(stream: BinaryIO, limits: PackageLimits, codec: FilevaultCodec | None = None) -> Inspection:
    """Look at a package that fills a seekable stream; every byte is read. Raises nothing for what is wrong with it."""
    try:
        archive = open_archive(stream, limits)
    except MailboatError as error:
        return Inspection(problems=(str(error),))
    problems: list[str] = []
    for entry in archive.entries.values():
        _read_through(archive, entry, problems)
    properties, workspace = _metadata(archive, problems)
    node_count = 0
    if not problems:
        node_count = _count_nodes(stream, limits, codec or FilevaultCodec(), problems)
    entries = tuple(_facts(entry) for entry in archive.entries.values())
    return Inspection(properties, workspace, entries, node_count, tuple(problems))


def _facts(entry: Entry) -> EntryFacts:
    return EntryFacts(entry.name, entry.size_bytes, entry.packed_bytes, entry.method != 0)


def _read_through(archive: Archive, entry: Entry, problems: list[str]) -> None:
    try:
        with archive.open(entry) as content:
            while content.read(PIECE_BYTES):
                pass
    except MailboatError as error:
        problems.append(str(error))


def _metadata(archive: Archive, problems: list[str]) -> tuple[dict[str, str], WorkspaceFilter | None]:
    properties: dict[str, str] = {}
    workspace: WorkspaceFilter | None = None
    try:
        if PROPERTIES_XML in archive.entries:
            properties = parse_properties(archive.read(archive.entries[PROPERTIES_XML]))
            check_properties(properties)
        if FILTER_XML in archive.entries:
            workspace = parse_filter(archive.read(archive.entries[FILTER_XML]))
    except MailboatError as error:
        problems.append(str(error))
    return properties, workspace


def _count_nodes(stream: BinaryIO, limits: PackageLimits, codec: FilevaultCodec, problems: list[str]) -> int:
    count = 0
    try:
        for _ in codec.open(stream, limits, None).change().records:
            count += 1
    except MailboatError as error:
        problems.append(str(error))
    return count
