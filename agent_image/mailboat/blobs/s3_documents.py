"""Small documents next to the blobs of a bucket: objects `<prefix><folder><name>`, each replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mailboat.blobs.s3_connection import S3Connection
from mailboat.blobs.s3_errors import RequestAnsweredError
from mailboat.model.identifiers import parse_agent_name

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import ListObjectsV2OutputTypeDef


class S3Documents:
    """The port's named documents over a bucket. Safe to use from several threads."""

    def __init__(self, connection: S3Connection, folder: str) -> None:
        """Send no request yet. `folder` ends with a slash."""
        self._connection = connection
        self._folder = f"{connection.config.prefix}{folder}"
        self._config = connection.config

    def write(self, name: str, document: bytes) -> None:
        """See `NamedDocuments.write`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        place = self._place(name)
        self._connection.call(f"writing {name}", lambda client: client.put_object(**place, Body=document))

    def create(self, name: str, document: bytes) -> bool:
        """See `NamedDocuments.create`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        place = self._place(name)
        try:
            self._connection.call(
                f"creating {name}", lambda client: client.put_object(**place, Body=document, IfNoneMatch="*")
            )
        except RequestAnsweredError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """See `NamedDocuments.read`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        key = self._place(name)["Key"]
        try:
            with self._connection.body(key, f"reading {name}") as body:
                return b"".join(iter(lambda: body.read(64 * 1024), b""))
        except RequestAnsweredError:
            return None

    def names(self, prefix: str = "") -> Sequence[str]:
        """See `NamedDocuments.names`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        wanted: dict[str, Any] = {"Bucket": self._config.bucket, "Prefix": f"{self._folder}{prefix}"}
        names = list[str]()
        while True:
            page = self._connection.call("listing the documents", partial(_list, wanted))
            names += [found["Key"].removeprefix(self._folder) for found in page.get("Contents", [])]
            if not page.get("IsTruncated"):
                return sorted(names)
            wanted["ContinuationToken"] = page["NextContinuationToken"]

    def remove(self, name: str) -> bool:
        """See `NamedDocuments.remove`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        place = self._place(name)
        # S3 answers a delete of a missing key with success, so a listing says whether it was there
        is_there = name in self.names(name)
        self._connection.call(f"removing {name}", lambda client: client.delete_object(**place))
        return is_there

    def _place(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._config.bucket, "Key": f"{self._folder}{parse_agent_name(name)}"}


def _list(wanted: dict[str, Any], client: S3Client) -> ListObjectsV2OutputTypeDef:
    return client.list_objects_v2(**wanted)
