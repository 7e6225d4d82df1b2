"""Small documents beside the blobs of a bucket: objects `<prefix>documents/<name>`, each replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mailboat.blobs.s3_connection import S3Connection
from mailboat.blobs.s3_errors import RequestAnsweredError
from mailboat.model.identifiers import parse_agent_name

_FOLDER: Final = "documents/"


class S3Documents:
    """The port's named documents over a bucket. Safe to use from several threads."""

    def __init__(self, connection: S3Connection) -> None:
        """Send no request yet."""
        self._connection = connection
        self._settings = connection.settings

    def write(self, name: str, document: bytes) -> None:
        """See `NamedDocuments.write`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        place = self._place(name)
        self._connection.call(f"writing {name}", lambda client: client.put_object(**place, Body=document))

    def read(self, name: str) -> bytes | None:
        """See `NamedDocuments.read`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        key = self._place(name)["Key"]
        try:
            with self._connection.body(key, f"reading {name}") as body:
                return b"".join(iter(lambda: body.read(64 * 1024), b""))
        except RequestAnsweredError:
            return None

    def names(self) -> Sequence[str]:
        """See `NamedDocuments.names`; a thousand at most. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        prefix = f"{self._settings.prefix}{_FOLDER}"
        page = self._connection.call(
            "listing the documents",
            lambda client: client.list_objects_v2(Bucket=self._settings.bucket, Prefix=prefix),
        )
        return sorted(found["Key"].removeprefix(prefix) for found in page.get("Contents", []))

    def remove(self, name: str) -> bool:
        """See `NamedDocuments.remove`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        place = self._place(name)
        is_there = name in self.names()
        self._connection.call(f"removing {name}", lambda client: client.delete_object(**place))
        return is_there

    def _place(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._settings.bucket, "Key": f"{self._settings.prefix}{_FOLDER}{parse_agent_name(name)}"}
