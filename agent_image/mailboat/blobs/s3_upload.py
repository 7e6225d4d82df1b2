"""Uploads of large content in parts, several at a time: all of it becomes visible with its last request, or nothing.

Whatever goes wrong, the parts that were sent are given back; those of a killed process are swept with the blobs.

s3transfer (0.19.3) can't do this: it refuses `IfNoneMatch` for uploads. botocore's own retries are off as well: their
pauses can be neither ended by a stop nor timed by a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from mailboat.blobs.checked_content import CHUNK_BYTES
from mailboat.blobs.s3_connection import S3Connection
from mailboat.blobs.s3_errors import RequestAnsweredError
from mailboat.errors import BlobStoreUnavailableError

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import CompletedPartTypeDef

PARTS_AT_ONCE: Final = 4
_PARTS_OF_ONE_SIZE: Final = 2000  # then they double: 10,000 parts are the most that S3 takes


def read_part(content: BinaryIO, size_bytes: int) -> bytes:
    """The next `size_bytes` of a stream, or what is left of it, in small reads. Raises: what the stream raises."""
    pieces, left = [], size_bytes
    while left > 0 and (piece := content.read(min(CHUNK_BYTES, left))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def parts_of(first: bytes, content: BinaryIO, part_bytes: int) -> Iterator[bytes]:
    """What was read already, then the rest of a stream, in parts."""
    part, number = first, 1
    while part:
        yield part
        size = part_bytes << (number // _PARTS_OF_ONE_SIZE)
        part = read_part(content, size)
        number += 1


class MultipartUpload:
    """One upload to a key. A context manager: leaving it without `complete` gives the parts back."""

    def __init__(self, connection: S3Connection, key: str, metadata: dict[str, str]) -> None:
        """Begin. Raises: BlobStoreUnavailableError."""
        self._connection = connection
        self._place: dict[str, Any] = {"Bucket": connection.config.bucket, "Key": key}
        self._doing = f"storing {key}"
        self._parts: list[CompletedPartTypeDef] = []
        self._pool = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="upload")
        self._sending: deque[Future[CompletedPartTypeDef]] = deque()
        self._is_over = False
        begun = connection.call(
            self._doing, lambda client: client.create_multipart_upload(**self._place, Metadata=metadata)
        )
        self._upload_id = begun["UploadId"]

    def send(self, parts: Iterable[bytes]) -> None:
        """Send all parts. Raises: BlobStoreUnavailableError; what the source raises."""
        for number, part in enumerate(parts, start=1):
            # bounds the memory: the parts being sent, and the next one that was read already
            if len(self._sending) >= PARTS_AT_ONCE:
                self._parts.append(self._sending.popleft().result())
            self._sending.append(self._pool.submit(self._send, number, part))
        while self._sending:
            self._parts.append(self._sending.popleft().result())

    def complete(self, *, is_replacing: bool) -> bool:
        """Make the object visible; False when another one is there already, and is not to be replaced."""
        condition: dict[str, Any] = {} if is_replacing else {"IfNoneMatch": "*"}
        try:
            self._connection.call(
                self._doing,
                lambda client: client.complete_multipart_upload(
                    **self._place, **condition, UploadId=self._upload_id, MultipartUpload={"Parts": self._parts}
                ),
            )
        except RequestAnsweredError:
            return False  # or an answer was lost, and this very upload was stored: its user checks
        self._is_over = True
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._sending:
            future.cancel()
        # waits for the parts being sent: an abort that overtakes one may leave that part stored, see
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_AbortMultipartUpload.html
        self._pool.shutdown(cancel_futures=True)
        if not self._is_over:
            abort_upload(self._connection, self._place["Key"], self._upload_id)

    def _send(self, number: int, part: bytes) -> CompletedPartTypeDef:
        try:
            sent = self._connection.call(
                self._doing,
                lambda client: client.upload_part(
                    **self._place, UploadId=self._upload_id, PartNumber=number, Body=part
                ),
            )
        except RequestAnsweredError as error:
            raise BlobStoreUnavailableError(
                f"{self._doing} failed: the upload was aborted by another process"
            ) from error
        return {"ETag": sent["ETag"], "PartNumber": number}


def abort_upload(connection: S3Connection, key: str, upload_id: str) -> bool:
    """Give the parts of an upload back; whether that worked. What fails is left to the sweeper."""
    bucket = connection.config.bucket
    with suppress(RequestAnsweredError, BlobStoreUnavailableError):
        connection.call(
            f"aborting an upload to {key}",
            lambda client: client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id),
        )
        return True
    return False
