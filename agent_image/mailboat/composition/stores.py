"""Which blob store a home has: its folder, or a bucket where the configuration names one.

`open_blobs` alone imports the adapters; all other code has the port. Called by the composition.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.clock import Clock
from mailboat.composition.environment import expanded_path, pip_command
from mailboat.composition.journals import ClientMissingError
from mailboat.composition.places import check_folder_place
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.storage import S3Config

if TYPE_CHECKING:
    from mailboat.blobs.port import BlobStore, UserNamed
    from mailboat.composition.home import Home

_SECTION: Final = "blobs.s3"
_HOST_NAME: Final = re.compile(
    r"(?:(?!-)[a-z0-9-]{1,63}(?<!-)\.)*(?!-)[a-z0-9-]{1,63}(?<!-)\.?"
)  # as botocore takes it


def open_blobs(home: Home, clock: Clock, user: UserNamed | None = None) -> BlobStore:
    """The blob store of a home. No request is sent to a bucket before it is needed.

    Args:
        home: Its configuration says which.
        clock: For stamps and pauses.
        user: Whose packages are stored: the identity of the home's log; None for who stores none.

    Raises:
        ClientMissingError: The extra `s3` is not installed.
        ConfigInvalidError: See `s3_mistakes`; or a secret can't be read.
        PlaceUnusableError, StorageFullError, StorageReadOnlyError, RetryableError: Of the folder.
    """
    s3 = home.config.blobs.s3
    if s3 is not None:
        for mistake in s3_mistakes(s3, home.path):
            raise mistake
        try:
            from mailboat.composition.bucket import open_bucket
        except ImportError as error:
            raise ClientMissingError(
                "the configuration names an S3 bucket, but the client library boto3 is not installed",
                next_step=pip_command("mailboat[s3]"),
            ) from error
        return open_bucket(s3, home.path, clock, user)

    check_folder_place(home.blobs_path)
    return DirectoryBlobStore(home.blobs_path.resolve(), clock, user)


def s3_mistakes(s3: S3Config, folder: Path) -> Iterator[ConfigInvalidError]:
    """Mistakes in a bucket's section that can be found without its server and its client library."""
    if (s3.access_key_id is None) is not (s3.secret_access_key is None):
        yield ConfigInvalidError(
            f"{_SECTION} has one of access_key_id and secret_access_key, and needs both or neither", key=_SECTION
        )
    if s3.endpoint_url is not None and not _is_endpoint(s3.endpoint_url):
        shown = s3.endpoint_url.rpartition("@")[2]  # there may be a password before it
        yield ConfigInvalidError(
            f"{_SECTION}.endpoint_url is {shown!r}, not a server address; expected https://HOST or http://HOST:PORT",
            key=f"{_SECTION}.endpoint_url",
        )
    if s3.ca_file is not None and not _file(s3.ca_file, folder).is_file():
        yield ConfigInvalidError(
            f"{_SECTION}.ca_file refers to {_file(s3.ca_file, folder)}, which is not a file", key=f"{_SECTION}.ca_file"
        )


def _file(name: str, folder: Path) -> Path:
    return folder / expanded_path(name)


def _is_endpoint(url: str) -> bool:
    """Whether it has a scheme and a host, and nothing that a store has no use for."""
    try:
        parts = urlsplit(url)
        host, is_port_fine = parts.hostname or "", parts.port != 0
        if ":" in host:
            ipaddress.IPv6Address(host)
    except ValueError:
        return False
    is_host_fine = ":" in host or _HOST_NAME.fullmatch(host) is not None
    is_plain = not (parts.query or parts.fragment or re.search(r"\s", url))
    return parts.scheme in {"http", "https"} and is_host_fine and is_port_fine and is_plain
