"""Removing objects so that a publisher that stores the same content at the same time does not lose it.

S3 has no delete that fails when the object was written since it was checked: equal content has an equal ETag. So both
sides take turns, by one more object that says what is about to go, the announcement `<prefix>sweeping`:

    sweeper    announce (If-None-Match) → read each object's age → delete the old ones → take the announcement back
    publisher  store or renew → is the content announced? then wait until it is not → is the object there? else again

S3 is strongly consistent, so one of two things holds. Either the publisher reads the key before the announcement:
then the sweeper reads the age after the renewal, and the object stays. Or it reads it after: then it waits until
no delete can follow, and sees whether the object is there. Two sweepers can't announce at once. An announcement is
good for `LEASE_SECONDS` by the server's own clock: a sweeper deletes in the first half of it, by single attempts with
time-outs that end within the second half, and what a killed one left is removed by the next.
Source: docs/decisions/0009-blob-sweeps.md.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mailboat.blobs.port import Digest
from mailboat.blobs.s3_connection import S3Connection
from mailboat.blobs.s3_errors import RequestAnsweredError
from mailboat.blobs.s3_upload import abort_upload
from mailboat.blobs.sweep import SweepBusyError
from mailboat.clock import Clock, Deadline
from mailboat.errors import BlobStoreUnavailableError

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import (
        GetObjectOutputTypeDef,
        ListMultipartUploadsOutputTypeDef,
        ResponseMetadataTypeDef,
    )

ANNOUNCEMENT: Final = "sweeping"
LEASE_SECONDS: Final = 180.0
AT_ONCE: Final = 1000  # the most that S3 deletes by one request
_ANNOUNCEMENT_BYTES: Final = 128 * 1024  # a thousand digests take half of it
_POLL_SECONDS: Final = 0.25
# Part of `CONNECTIONS`: with more, urllib3 would open connections and throw them away.
_CHECK_THREADS: Final = 8
_DATE_STEP: Final = "have the server, or the proxy before it, send the header `Date`"


class Announcement(NamedTuple):
    """What a sweeper is about to delete.

    Attributes:
        sweeper: Who; an id of one turn.
        digests: In hexadecimal.
        etag: The object's.
        age_seconds: By the server's clock.
    """

    sweeper: str
    digests: frozenset[str]
    etag: str
    age_seconds: float

    @property
    def is_expired(self) -> bool:
        """Whether nothing can be deleted in its name any more."""
        return self.age_seconds > LEASE_SECONDS


def await_sweep(connection: S3Connection, digest: Digest, clock: Clock) -> None:
    """Return when no sweeper can be about to delete the blob. Raises: BlobStoreUnavailableError."""
    # two leases: the announced sweep, and one that announces right behind it
    deadline = Deadline(clock, 2 * LEASE_SECONDS)
    while (found := read_announcement(connection)) is not None:
        if found.is_expired or digest.hex() not in found.digests:
            return
        if deadline.is_over():
            raise BlobStoreUnavailableError(f"sweepers have announced the blob sha256:{digest.hex()} again and again")
        clock.wait(threading.Event(), _POLL_SECONDS)


def remove_unrenewed(
    connection: S3Connection, keys: Mapping[str, Digest], stored_before: datetime, clock: Clock
) -> int:
    """Delete those of the objects that are older; how many.

    Raises:
        SweepBusyError: Another sweeper is at it.
        BlobStoreUnavailableError: What was not deleted yet is left to another sweep.
    """
    names = list(keys)
    return sum(
        _Turn(connection, clock).remove({key: keys[key] for key in names[start : start + AT_ONCE]}, stored_before)
        for start in range(0, len(names), AT_ONCE)
    )


def abandon_uploads(connection: S3Connection, folder: str, begun_before: datetime, clock: Clock) -> int:
    """Abort the uploads of killed processes; how many."""
    place: dict[str, Any] = {"Bucket": connection.config.bucket, "Prefix": f"{connection.config.prefix}{folder}"}
    count = 0
    while True:
        page = connection.call("listing unfinished uploads", partial(_list_uploads, place))
        for upload in page.get("Uploads", []):
            # Younger ones may be under way in another process.
            if _is_older(upload["Initiated"], begun_before, server_time(connection, page["ResponseMetadata"]), clock):
                count += abort_upload(connection, upload["Key"], upload["UploadId"])
        if not page["IsTruncated"]:
            return count
        place |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _list_uploads(place: dict[str, Any], client: S3Client) -> ListMultipartUploadsOutputTypeDef:
    return client.list_multipart_uploads(**place)


def read_announcement(connection: S3Connection) -> Announcement | None:
    """What is announced at this moment. Raises: BlobStoreUnavailableError."""
    try:
        found, body = connection.call("looking for a sweep", lambda client: _read(client, connection))
    except RequestAnsweredError:
        return None
    sweeper, *digests = body.decode(errors="replace").split("\n")
    # Both times are the server's: clocks of sweepers and publishers may differ by more than a lease.
    age = server_time(connection, found["ResponseMetadata"]) - found["LastModified"]
    return Announcement(sweeper, frozenset(digests), found["ETag"], age.total_seconds())


def server_time(connection: S3Connection, metadata: ResponseMetadataTypeDef) -> datetime:
    """When the server answered, by its own clock. Raises: BlobStoreUnavailableError."""
    try:
        return parsedate_to_datetime(metadata["HTTPHeaders"]["date"])
    except (KeyError, TypeError, ValueError) as error:
        raise BlobStoreUnavailableError(
            f"{connection.config.description} answers without a time, which sweeps need", next_step=_DATE_STEP
        ) from error


def _is_older(stored_at: datetime, limit: datetime, server_now: datetime, clock: Clock) -> bool:
    """Whether something is older than the limit, by this process' clock and by the server's.

    By the first alone, all that was just stored would be old where it is ahead.
    """
    return stored_at < limit and server_now - stored_at > clock.now() - limit


class _Turn:
    """From an announcement to its end."""

    def __init__(self, connection: S3Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._bucket = connection.config.bucket
        self._place: dict[str, Any] = {
            "Bucket": self._bucket,
            "Key": f"{connection.config.prefix}{ANNOUNCEMENT}",
        }
        self._sweeper = uuid.uuid4().hex
        # both begin before the announcement is sent, so they end before it expires by the server's clock
        self._lease = Deadline(clock, LEASE_SECONDS)
        self._deleting = Deadline(clock, LEASE_SECONDS / 2)

    def remove(self, keys: Mapping[str, Digest], stored_before: datetime) -> int:
        self._announce(keys.values())
        with ThreadPoolExecutor(_CHECK_THREADS, thread_name_prefix="sweep") as pool:
            # after the announcement: this sees a renewal before it, and a publisher that renews after it waits
            are_old = pool.map(lambda key: self._is_old(key, stored_before), keys)
        old = list(compress(keys, are_old))
        if self._deleting.is_over():
            self._take_back()
            raise BlobStoreUnavailableError("the blob store was too slow for a sweep; nothing was deleted this time")
        # a failure leaves the announcement: the request may still be on its way, until the lease is over
        refused = self._delete(old) if old else []
        self._take_back()
        if refused:
            raise BlobStoreUnavailableError(f"{len(refused)} of {len(old)} blobs were not deleted, first: {refused[0]}")
        return len(old)

    def _announce(self, digests: Iterable[Digest]) -> None:
        body = "\n".join([self._sweeper, *(digest.hex() for digest in digests)])
        if self._store(body, {"IfNoneMatch": "*"}):
            return
        found = read_announcement(self._connection)
        if found is not None and found.sweeper == self._sweeper:
            return  # it was stored, and the answer was lost
        # takes over the expired announcement of a killed sweeper; IfMatch lets one of several sweepers win
        if found is None or not found.is_expired or not self._store(body, {"IfMatch": found.etag}):
            raise SweepBusyError(f"another sweep of {self._connection.config.description} is under way")

    def _store(self, body: str, condition: dict[str, Any]) -> bool:
        try:
            self._connection.call(
                "announcing a sweep",
                lambda client: client.put_object(**self._place, **condition, Body=body.encode()),
            )
        except RequestAnsweredError:
            return False
        return True

    def _is_old(self, key: str, stored_before: datetime) -> bool:
        try:
            found = self._connection.call(
                f"looking for {key}", lambda client: client.head_object(Bucket=self._bucket, Key=key)
            )
        except RequestAnsweredError:
            return False
        server_now = server_time(self._connection, found["ResponseMetadata"])
        return _is_older(found["LastModified"], stored_before, server_now, self._clock)

    def _delete(self, keys: Sequence[str]) -> list[str]:
        answer = self._connection.call(
            "deleting blobs",
            lambda client: client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            ),
            # a second attempt could reach the server after the lease has expired
            max_attempts=1,
        )
        return [f"{failure.get('Key')}: {failure.get('Message')}" for failure in answer.get("Errors", [])]

    def _take_back(self) -> None:
        if not self._lease.is_over():  # else it may be another's by now
            self._connection.call("ending a sweep", lambda client: client.delete_object(**self._place))


def _read(client: S3Client, connection: S3Connection) -> tuple[GetObjectOutputTypeDef, bytes]:
    config = connection.config
    found = client.get_object(Bucket=config.bucket, Key=f"{config.prefix}{ANNOUNCEMENT}")
    # any program may write it
    if found["ContentLength"] > _ANNOUNCEMENT_BYTES:
        found["Body"].close()
        raise BlobStoreUnavailableError(
            f"{config.description}: {ANNOUNCEMENT} has {found['ContentLength']} bytes, which no sweep wrote",
            next_step="find out what else writes to the bucket, and remove the object",
        )
    return found, found["Body"].read()
