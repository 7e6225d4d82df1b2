"""The blob store in a bucket, of the section `blobs.s3`. Needs the extra `s3`; imported on demand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from mailboat.blobs.port import BlobStore, UserNamed
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys
from mailboat.clock import Clock
from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import expanded_path
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.storage import S3Config

_SECTION: Final = "blobs.s3"


def open_bucket(s3: S3Config, folder: Path, clock: Clock, user: UserNamed | None) -> BlobStore:
    """The store of a section without mistakes; no request is sent. Raises: ConfigInvalidError for secrets."""
    return S3BlobStore(open_connection(s3, folder, clock), clock, user)


def open_connection(s3: S3Config, folder: Path, clock: Clock) -> S3Connection:
    """A connection with the credentials of a section. `folder` is the home, which relative files belong to."""
    read_keys = key_reader(s3, folder)
    if read_keys is not None:
        read_keys()  # a secret that can't be read is reported now, not by the first package
    if s3.ca_file is not None:
        s3 = replace(s3, ca_file=str(folder / expanded_path(s3.ca_file)))
    jitter = random.Random()  # noqa: S311  # pauses need no secrecy
    return S3Connection(s3, clock, jitter, read_keys)


def key_reader(s3: S3Config, folder: Path) -> Callable[[], S3Keys] | None:
    """Reads the credentials that a section names; None if it names none."""
    return None if s3.access_key_id is None else partial(_read_keys, s3, folder)


def _read_keys(s3: S3Config, folder: Path) -> S3Keys:
    if s3.access_key_id is None or s3.secret_access_key is None:
        raise ConfigInvalidError(f"{_SECTION} names no credentials", key=_SECTION)
    return S3Keys(
        read_secret(s3.access_key_id, f"{_SECTION}.access_key_id", folder),
        read_secret(s3.secret_access_key, f"{_SECTION}.secret_access_key", folder),
    )
