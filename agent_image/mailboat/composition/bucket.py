"""The blob store in a bucket, of the section `blobs.s3`. Needs the extra `s3`; imported on demand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from mailboat.blobs.port import BlobStore, UserNamed
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys, S3Settings
from mailboat.clock import Clock
from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import expanded_path
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.storage import S3Config

_SECTION: Final = "blobs.s3"


def open_bucket(s3: S3Config, folder: Path, clock: Clock, user: UserNamed | None) -> BlobStore:
    """The store of a section without mistakes; no request is sent. Raises: ConfigInvalidError for secrets."""
    settings = s3_settings(s3, folder)
    if settings.read_keys is not None:
        settings.read_keys()  # a secret that can't be read is told now, not by the first package
    jitter = random.Random()  # noqa: S311  # pauses need no secrecy
    return S3BlobStore(S3Connection(settings, clock, jitter), clock, user)


def s3_settings(s3: S3Config, folder: Path) -> S3Settings:
    """The adapter's settings. `folder` is the home, which relative files belong to."""
    return S3Settings(
        bucket=s3.bucket,
        prefix=s3.prefix,
        endpoint_url=s3.endpoint_url,
        region=s3.region,
        path_style=s3.path_style,
        ca_file=None if s3.ca_file is None else str(folder / expanded_path(s3.ca_file)),
        part_bytes=s3.multipart_bytes,
        max_attempts=s3.max_attempts,
        read_keys=None if s3.access_key_id is None else lambda: _read_keys(s3, folder),
    )


def _read_keys(s3: S3Config, folder: Path) -> S3Keys:
    if s3.access_key_id is None or s3.secret_access_key is None:
        raise ConfigInvalidError(f"{_SECTION} names no credentials", key=_SECTION)
    return S3Keys(
        read_secret(s3.access_key_id, f"{_SECTION}.access_key_id", folder),
        read_secret(s3.secret_access_key, f"{_SECTION}.secret_access_key", folder),
    )
