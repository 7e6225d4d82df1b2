"""Which logs use a bucket: an object `<prefix>journals/<identity>` for each, so that no sweep of one harms another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from mailboat.blobs.s3_connection import S3Connection

_FOLDER: Final = "journals/"


def note_user(connection: S3Connection, user: str) -> None:
    """A publisher of this log is about to store something. Raises: BlobStoreUnavailableError."""
    place = _place(connection, user)
    connection.call("noting the journal", lambda client: client.put_object(**place, Body=b""))


def list_users(connection: S3Connection) -> Sequence[str]:
    """The logs; a thousand at most, of which one suffices to stop a sweep. Raises: BlobStoreUnavailableError."""
    settings = connection.settings
    prefix = f"{settings.prefix}{_FOLDER}"
    page = connection.call(
        "listing the journals", lambda client: client.list_objects_v2(Bucket=settings.bucket, Prefix=prefix)
    )
    return sorted(unquote(found["Key"].removeprefix(prefix)) for found in page.get("Contents", []))


def forget_user(connection: S3Connection, user: str) -> None:
    """Forget a log that was deleted. Raises: BlobStoreUnavailableError."""
    place = _place(connection, user)
    connection.call("forgetting a journal", lambda client: client.delete_object(**place))


def _place(connection: S3Connection, user: str) -> dict[str, Any]:
    settings = connection.settings
    return {"Bucket": settings.bucket, "Key": f"{settings.prefix}{_FOLDER}{quote(user, safe='')}"}
