"""Lists all defects of a FileVault zip, where a reader stops at the first one.

Called by `operations/package_files.py` for packages that were refused, so that their author sees every defect at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

from mailboat.config.document import LimitsConfig
from mailboat.errors import MailboatError
from mailboat.packages.filevault.archive_reader import ZipArchive, ZipEntry
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.filter_xml import FILTER_XML, MAX_FILTER_BYTES, parse_filter
from mailboat.packages.filevault.properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTIES_XML,
    check_properties,
    parse_properties,
)
from mailboat.packages.filevault.reader import open_archive

PIECE_BYTES: Final = 256 * 1024


def problems_of(stream: BinaryIO, limits: LimitsConfig) -> list[MailboatError]:
    """Everything that an import would refuse in the package that fills a seekable stream.

    Metadata and content are read only if the archive is sound; else they would repeat its defects.
    """
    try:
        archive = open_archive(stream, limits)
    except MailboatError as error:
        return [error]
    found = [problem for entry in archive.entries.values() for problem in _tried(_read_through, archive, entry)]
    found = found or _tried(_read_metadata, archive)
    return found or _tried(_read_content, stream, limits)


def read_entries(stream: BinaryIO, limits: LimitsConfig) -> None:
    """Read every entry of the package that fills a seekable stream, also those that an import passes over.

    Raises:
        PackageCorruptError, LimitExceededError, PathRefusedError: For the first that is damaged.
    """
    archive = open_archive(stream, limits)
    for entry in archive.entries.values():
        _read_through(archive, entry)


def _tried(check: Callable[..., None], *arguments: object) -> list[MailboatError]:
    try:
        check(*arguments)
    except MailboatError as error:
        return [error]
    return []


def _read_through(archive: ZipArchive, entry: ZipEntry) -> None:
    with archive.open(entry) as content:
        while content.read(PIECE_BYTES):
            pass


def _read_metadata(archive: ZipArchive) -> None:
    if PROPERTIES_XML in archive.entries:
        content = archive.read_document(archive.entries[PROPERTIES_XML], MAX_PROPERTIES_BYTES)
        check_properties(parse_properties(content))
    if FILTER_XML in archive.entries:
        parse_filter(archive.read_document(archive.entries[FILTER_XML], MAX_FILTER_BYTES))


def _read_content(stream: BinaryIO, limits: LimitsConfig) -> None:
    for _ in FilevaultCodec().open(stream, limits, None).change().records:
        pass
