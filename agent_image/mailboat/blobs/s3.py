"""Blobs in a bucket of an S3 server: keys `<prefix>sha256/ab/<64 hex digits>`; small documents next to them.

An object becomes visible as a whole, by a conditional request (`If-None-Match`), and its bytes are hashed on their way
out and in. What is small is stored by one request, the rest in parts. Storing a blob again renews it by copying it
onto itself, which renews `Last-Modified`: the time that a sweeper's grace period counts from. Every `put` ends with a
check of what sweepers have announced (`s3_sweep.py`), so that the blob is there when it returns.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import quote, unquote

from mailboat.blobs.checked_content import (
    CHUNK_BYTES,
    blob_corrupt,
    blob_missing,
    check_digest,
    check_document,
    check_expected,
    checked_stream,
    digest_named,
    document_names,
)
from mailboat.blobs.disk_errors import mapped_disk_errors, read_chunk
from mailboat.blobs.port import BlobInfo, Digest, NamedDocuments, UserNamed
from mailboat.blobs.s3_connection import ResumingBody, S3Connection
from mailboat.blobs.s3_download import FIRST_RANGE, PARALLEL_FROM_BYTES, RangedBody
from mailboat.blobs.s3_errors import RequestAnsweredError
from mailboat.blobs.s3_sweep import abandon_uploads, await_sweep, remove_unrenewed
from mailboat.blobs.s3_upload import MultipartUpload, parts_of, read_part
from mailboat.clock import Clock
from mailboat.config.section_keys import GIBIBYTE
from mailboat.errors import BlobCorruptError, BlobStoreUnavailableError
from mailboat.model.content_hash import ContentHash
from mailboat.model.identifiers import parse_agent_name

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import HeadObjectOutputTypeDef, ListObjectsV2OutputTypeDef, ObjectTypeDef

_FOLDER: Final = "sha256/"
_USERS: Final = "journals/"
"""Below it, an object for each log that uses the bucket, so that no sweep of one harms another."""
_DIGEST_NOTE: Final = "sha256"
_COPY_BYTES: Final = 5 * GIBIBYTE  # the most that S3 copies by one request
# each attempt may lose its object to a sweep that was announced before it
_ROUNDS: Final = 3


class _Stored(NamedTuple):
    length_bytes: int
    is_sound: bool
    stored_at: datetime


class S3BlobStore:
    """The blob store port over a bucket. Safe to use from several threads; one serves a whole process."""

    def __init__(self, connection: S3Connection, clock: Clock, user: UserNamed | None = None) -> None:
        """Use the connection, which it owns from now on. No request is sent yet.

        Args:
            connection: To the server.
            clock: For waiting.
            user: Whose packages `put` is for; None where that is of no interest.
        """
        self._connection = connection
        self._bucket = connection.config.bucket
        self._clock = clock
        self._user = user

    @property
    def description(self) -> str:
        return self._connection.config.description

    @property
    def documents(self) -> NamedDocuments:
        return S3Documents(self._connection, "documents/")

    @property
    def builds(self) -> NamedDocuments:
        return S3Documents(self._connection, "builds/")

    def put(self, content: BinaryIO, expected: Digest | None = None) -> BlobInfo:
        """See `BlobStore.put`. Content of unknown digest is spooled to disk first, as its key is its digest.

        Raises:
            BlobStoreUnavailableError: Also when the stream can't be read again though a sweeper made that necessary.
        """
        if expected is None:
            return self._put_unknown(content)
        named = self._user  # read once: two first puts at once may both note the user
        if named is not None:
            place = self._user_place(named())
            self._connection.call("noting the journal", lambda client: client.put_object(**place, Body=b""))
            self._user = None
        start = content.tell() if _is_seekable(content) else None
        for _ in range(_ROUNDS):
            length_bytes = self._store(content, check_digest(expected))
            # after the store: a sweep announced before it is awaited here, one announced later sees the new age
            await_sweep(self._connection, expected, self._clock)
            found = self._head(expected)
            if found is not None and found.length_bytes == length_bytes:
                return BlobInfo(expected, length_bytes, found.stored_at)
            if start is None:
                break
            content.seek(start)
        raise BlobStoreUnavailableError(f"the blob sha256:{expected.hex()} was swept while it was stored; try again")

    def open(self, digest: Digest, length_bytes: int) -> BinaryIO:
        """See `BlobStore.open`. A connection that is cut in the middle goes on with the rest.

        Large content comes by several requests at a time.
        """
        key, doing = self._key(check_digest(digest)), f"reading sha256:{digest.hex()}"
        body: ResumingBody | RangedBody
        try:
            is_large = length_bytes >= PARALLEL_FROM_BYTES
            body = first = self._connection.body(key, doing, FIRST_RANGE if is_large else None)
            if not first.is_whole:  # else it is all that comes, also from a server without ranges
                body = RangedBody(self._connection, key, doing, first)
        except RequestAnsweredError:
            # not missing in any case: of an empty object S3 refuses every range
            found = self._head(digest)
            if found is None:
                raise blob_missing(digest, self.description) from None
            raise _other_length(digest, found.length_bytes, length_bytes) from None
        if body.length_bytes != length_bytes:
            body.close()
            raise _other_length(digest, body.length_bytes, length_bytes)
        return checked_stream(cast("BinaryIO", body), digest, length_bytes)

    def stat(self, digest: Digest) -> BlobInfo | None:
        found = self._head(check_digest(digest))
        return None if found is None else BlobInfo(digest, found.length_bytes, found.stored_at)

    def list(self) -> Iterator[BlobInfo]:
        """See `BlobStore.list`. Keys without a blob's name are skipped."""
        for found in _listed(self._connection, "listing the blobs", f"{self._connection.config.prefix}{_FOLDER}"):
            digest = digest_named(found["Key"].rpartition("/")[2])
            if digest is not None and found["Key"] == self._key(digest):
                # HEAD answers a date in whole seconds, listings of some servers have fractions: make both equal
                yield BlobInfo(digest, found["Size"], found["LastModified"].replace(microsecond=0))

    def delete(self, digest: Digest) -> bool:
        if self._head(check_digest(digest)) is None:
            return False
        self._connection.call(
            f"deleting sha256:{digest.hex()}",
            lambda client: client.delete_object(Bucket=self._bucket, Key=self._key(digest)),
        )
        return True

    def remove_unrenewed(self, digests: Sequence[Digest], stored_before: datetime) -> int:
        return remove_unrenewed(
            self._connection, {self._key(digest): digest for digest in digests}, stored_before, self._clock
        )

    def abandon_uploads(self, begun_before: datetime) -> int:
        return abandon_uploads(self._connection, _FOLDER, begun_before, self._clock)

    def users(self) -> Sequence[str]:
        prefix = f"{self._connection.config.prefix}{_USERS}"
        found = _listed(self._connection, "listing the journals", prefix)
        # without a name it is the marker that some tools make of a folder
        return sorted(unquote(name) for entry in found if (name := entry["Key"].removeprefix(prefix)))

    def forget_user(self, user: str) -> None:
        place = self._user_place(user)
        self._connection.call("forgetting a journal", lambda client: client.delete_object(**place))

    def close(self) -> None:
        self._connection.close()

    def _key(self, digest: Digest) -> str:
        name = digest.hex()
        return f"{self._connection.config.prefix}{_FOLDER}{name[:2]}/{name}"

    def _user_place(self, user: str) -> dict[str, Any]:
        # a journal's identity has a slash, which would make folders
        return {"Bucket": self._bucket, "Key": f"{self._connection.config.prefix}{_USERS}{quote(user, safe='')}"}

    def _head(self, digest: Digest) -> _Stored | None:
        try:
            found: HeadObjectOutputTypeDef = self._connection.call(
                f"looking for sha256:{digest.hex()}",
                lambda client: client.head_object(Bucket=self._bucket, Key=self._key(digest)),
            )
        except RequestAnsweredError:
            return None
        # noted with each upload of ours: what something else has put under the key is replaced, and never renewed
        is_ours = found.get("Metadata", {}).get(_DIGEST_NOTE) == digest.hex()
        return _Stored(found["ContentLength"], is_ours, found["LastModified"].replace(microsecond=0))

    # -------------------------------------------------------------------------------------------------------- storing

    def _put_unknown(self, content: BinaryIO) -> BlobInfo:
        total = ContentHash()
        part_bytes = self._connection.config.multipart_bytes
        with mapped_disk_errors("the folder for temporary files"), SpooledTemporaryFile(part_bytes) as spool:
            while chunk := read_chunk(content):
                total.update(chunk)
                spool.write(chunk)
            spool.seek(0)
            return self.put(cast("BinaryIO", spool), total.digest())

    def _store(self, content: BinaryIO, digest: Digest) -> int:
        """Store or renew; the content's length."""
        part_bytes = self._connection.config.multipart_bytes
        first = read_part(content, part_bytes)
        if len(first) < part_bytes:
            check_expected(hashlib.sha256(first).digest(), digest)
            self._store_small(digest, first)
            return len(first)
        return self._store_large(digest, first, content)

    def _store_small(self, digest: Digest, content: bytes) -> None:
        # the conditional request first: most small content is new, and this stores it with one request
        if self._put_object(digest, content, is_replacing=False):
            return
        found = self._head(digest)
        is_sound = found is not None and found.is_sound and found.length_bytes == len(content)
        if not is_sound or not self._renew(digest):
            self._put_object(digest, content, is_replacing=True)

    def _store_large(self, digest: Digest, first: bytes, content: BinaryIO) -> int:
        found = self._head(digest)
        # renewing needs the digest of the whole stream first; a stream that can't be read twice is uploaded again
        if found is not None and found.is_sound and found.length_bytes <= _COPY_BYTES and _is_seekable(content):
            start = content.tell()
            total = _Measured(parts_of(first, content, CHUNK_BYTES))
            check_expected(total.read(), digest)
            if found.length_bytes == total.length_bytes and self._renew(digest):
                return total.length_bytes
            content.seek(start)
        total = _Measured(parts_of(first, content, self._connection.config.multipart_bytes))
        with MultipartUpload(self._connection, self._key(digest), {_DIGEST_NOTE: digest.hex()}) as upload:
            upload.send(total)
            check_expected(total.read(), digest)
            if not upload.complete(is_replacing=found is not None):
                # another process was quicker: its object may be old enough for a sweep by now
                self._renew(digest)
        return total.length_bytes

    def _put_object(self, digest: Digest, content: bytes, *, is_replacing: bool) -> bool:
        """One request; the server compares the digest. False when there is an object that is not to be replaced."""
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Key": self._key(digest),
            "Body": content,
            "ChecksumSHA256": base64.b64encode(digest).decode(),
            "Metadata": {_DIGEST_NOTE: digest.hex()},
            **({} if is_replacing else {"IfNoneMatch": "*"}),
        }
        try:
            self._connection.call(
                f"storing sha256:{digest.hex()}",
                lambda client: client.put_object(**request),
            )
        except RequestAnsweredError:
            return False
        return True

    def _renew(self, digest: Digest) -> bool:
        """Copy the object onto itself; False when it is gone."""
        key = self._key(digest)
        try:
            self._connection.call(
                f"renewing sha256:{digest.hex()}",
                # S3 refuses a copy onto the same key that changes nothing; REPLACE counts as a change:
                # https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html
                lambda client: client.copy_object(
                    Bucket=self._bucket,
                    Key=key,
                    CopySource={"Bucket": self._bucket, "Key": key},
                    MetadataDirective="REPLACE",
                    Metadata={_DIGEST_NOTE: digest.hex()},
                ),
            )
        except RequestAnsweredError:
            return False
        return True


class _Measured:
    """Parts of a stream as they go by, with their digest and length."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._hash = ContentHash()
        self.length_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self._hash.update(part)
            self.length_bytes += len(part)
            yield part

    def read(self) -> Digest:
        """Read what is left; the digest of the whole stream."""
        for _ in self:
            pass
        return self._hash.digest()


def _listed(connection: S3Connection, doing: str, prefix: str) -> Iterator[ObjectTypeDef]:
    """All objects whose keys begin so, by one request for a thousand. Raises: as `S3Connection.call`."""
    place: dict[str, Any] = {"Bucket": connection.config.bucket, "Prefix": prefix}
    while True:
        page = connection.call(doing, partial(_page_at, place))
        yield from page.get("Contents", [])
        if not page["IsTruncated"]:
            return
        place["ContinuationToken"] = page["NextContinuationToken"]


def _page_at(place: dict[str, Any], client: S3Client) -> ListObjectsV2OutputTypeDef:
    return client.list_objects_v2(**place)


def _is_seekable(content: BinaryIO) -> bool:
    return bool(getattr(content, "seekable", bool)())


def _other_length(digest: Digest, found_bytes: int, promised_bytes: int) -> BlobCorruptError:
    return blob_corrupt(digest, f"has {found_bytes} bytes, not the {promised_bytes} promised")


class S3Documents:
    """The port's named documents over a bucket. Safe to use from several threads."""

    def __init__(self, connection: S3Connection, folder: str) -> None:
        """Send no request yet. `folder` ends with a slash."""
        self._connection = connection
        self._folder = f"{connection.config.prefix}{folder}"

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
                check_document(name, body.length_bytes)
                return b"".join(iter(lambda: body.read(64 * 1024), b""))
        except RequestAnsweredError:
            return None

    def names(self, prefix: str = "") -> Sequence[str]:
        """See `NamedDocuments.names`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        found = _listed(self._connection, "listing the documents", f"{self._folder}{prefix}")
        return document_names(entry["Key"].removeprefix(self._folder) for entry in found)

    def remove(self, name: str) -> bool:
        """See `NamedDocuments.remove`. Raises: BlobStoreUnavailableError, BlobAccessDeniedError."""
        place = self._place(name)
        # S3 answers a delete of a missing key with success, so a listing says whether it was there
        is_there = name in self.names(name)
        self._connection.call(f"removing {name}", lambda client: client.delete_object(**place))
        return is_there

    def _place(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._connection.config.bucket, "Key": f"{self._folder}{parse_agent_name(name)}"}
