"""One connection to an S3 server, for all threads of a process: a botocore client, and requests that are sent again.

The client is made when it is first needed, and again with fresh credentials when the server says that the old ones
have expired. Where none can be made, or AWS's chain finds no credentials for a request, that is a failure of the store
as well: it may be fixed during the wait. botocore's own retries are off: what is sent again, and when, is decided
in `s3_errors.py`, with time and chance passed in. The body of an object goes on where a cut connection left it.
"""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Mapping
from functools import cache
from traceback import walk_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import botocore.session
from botocore.config import Config as ClientConfig
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader, create_loader
from urllib3.exceptions import HTTPError

from mailboat.blobs.s3_errors import (
    FailureKind,
    NoClientError,
    RequestAnsweredError,
    S3Failure,
    as_error,
    classify,
    decide_pause,
)
from mailboat.clock import Clock
from mailboat.config.storage import S3Config
from mailboat.errors import BlobStoreUnavailableError

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

# an upload (4), a download (4) and a sweep (8) at once; what several downloads use beyond it, urllib3 closes again
CONNECTIONS: Final = 16
# both stay far below half of `LEASE_SECONDS`: a sweeper relies on its delete request ending within that time
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 30.0
# Bounds the memory: a server that ignores `Range` sends all that comes before it.
_DROP_BYTES: Final = 1024 * 1024
_OF_LIBRARIES: Final = (BotoCoreError, ClientError, HTTPError, NoClientError)
_FAILURES: Final = (*_OF_LIBRARIES, OSError, ValueError)
"""Of a request. The last two come from AWS's chain, which reads files and starts programs: bodies are plain bytes.

Raised by our own code they are a defect, which must not look like a store that is down: see `_is_ours`.
"""

_LIBRARIES: Final = frozenset({"botocore"})

_T = TypeVar("_T")


class S3Keys(NamedTuple):
    """Credentials that the configuration names."""

    access_key_id: str
    secret_access_key: str


class S3Connection:
    """Requests to one server."""

    def __init__(
        self, config: S3Config, clock: Clock, jitter: random.Random, read_keys: Callable[[], S3Keys] | None = None
    ) -> None:
        """Connect to nothing yet.

        Args:
            config: The bucket, and how its server is reached. Its `ca_file` is absolute.
            clock: For pauses between attempts.
            jitter: For the length of pauses.
            read_keys: Reads the credentials, again whenever they have expired; None leaves it to AWS's chain.
        """
        self.config: Final = config
        self._read_keys = read_keys
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._client: S3Client | None = None
        self._closing = threading.Event()

    def call(self, doing: str, request: Callable[[S3Client], _T], max_attempts: int | None = None) -> _T:
        """Send a request, again where that may help.

        Args:
            doing: For people, such as `reading sha256:…`.
            request: Sends it once; called from this thread.
            max_attempts: Another number than the configuration's.

        Raises:
            RequestAnsweredError: The key is missing, or taken.
            BlobAccessDeniedError, BlobStoreUnavailableError.
        """
        attempt, is_renewed = 1, False
        while True:
            client: S3Client | None = None
            try:
                client = self._connected()
                return request(client)
            except _FAILURES as error:
                if _is_ours(error):
                    raise
                failure = classify(error)
                if failure.kind in {FailureKind.MISSING, FailureKind.TAKEN}:
                    raise RequestAnsweredError(failure.kind) from error
                # once in a call: credentials that are refused right after they were renewed are wrong, not expired
                if failure.kind is FailureKind.EXPIRED and not is_renewed:
                    is_renewed = True
                    self._forget(client)
                    continue
                if max_attempts is not None and attempt >= max_attempts:
                    raise as_error(failure, doing, self.config.description) from error
                self.pause(failure, attempt, doing, error)
                attempt += 1

    def pause(self, failure: S3Failure, attempt: int, doing: str, cause: Exception) -> None:
        """Wait until the n-th failed attempt may be followed by another. Raises: the failure, when it may not."""
        pause = decide_pause(failure, attempt, self.config.max_attempts, self._jitter)
        # A close ends the wait, and the request fails: a shutdown must not take all attempts.
        if pause is None or self._clock.wait(self._closing, pause):
            raise as_error(failure, doing, self.config.description) from cause

    def body(self, key: str, doing: str, span: tuple[int, int] | None = None) -> ResumingBody:
        """The content of an object: all of it, or from the first to before the last byte. Raises: as `call`."""
        return ResumingBody(self, key, doing, span)

    def close(self) -> None:
        """Release the connections; ends waits for another attempt."""
        self._closing.set()
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _connected(self) -> S3Client:
        """Raises: NoClientError."""
        with self._lock:
            if self._client is None:
                try:
                    self._client = new_client(self.config, self._read_keys)
                except Exception as error:  # botocore lets through what programs, files and variables of others cause
                    raise NoClientError(classify(error)) from error
            return self._client

    def _forget(self, client: S3Client | None) -> None:
        with self._lock:
            # the old client is not closed: requests of other threads may still use it
            if self._client is client:  # else another thread was quicker
                self._client = None


class ResumingBody(io.RawIOBase):
    """The bytes of one object, or of a span of it. A connection that is cut is reopened, and asked for the rest.

    A server without ranges sends the whole object, whatever it is asked for: then what was not asked for is read
    and dropped, and a span that begins with the object's first byte becomes the whole object.

    Attributes:
        length_bytes: What is to be read.
        object_bytes: What the server says that the object has.
        is_whole: All of the object is to be read.
    """

    def __init__(self, connection: S3Connection, key: str, doing: str, span: tuple[int, int] | None = None) -> None:
        """Open it: all of it, or from the first to before the last. Raises: as `S3Connection.call`."""
        super().__init__()
        self._connection = connection
        self._key = key
        self._doing = doing
        self._span = span
        self._position = 0
        self._failures = 0
        self._etag: str | None = None
        self._unwanted_bytes = 0  # that the server sends before those that were asked for
        self._stream: StreamingBody | io.BytesIO = io.BytesIO()  # what io closes if opening fails
        response = self._get()
        self._etag = response["ETag"]
        self.length_bytes = response["ContentLength"]
        # `ContentRange` ends with the length of the whole object; a server without ranges sends none
        self.object_bytes = int(response.get("ContentRange", "").rpartition("/")[2] or self.length_bytes)
        if span is not None and not _is_partial(response):
            first, end = span
            self._span = None if first == 0 else span
            self.length_bytes = self.object_bytes if first == 0 else min(end, self.object_bytes) - first
        self.is_whole = self._span is None
        self._stream = response["Body"]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, or all that is left. Raises: as `S3Connection.call`."""
        wanted = None if size < 0 else size
        if not self.is_whole:
            left = self.length_bytes - self._position
            wanted = left if wanted is None else min(wanted, left)
        while True:
            try:
                self._drop_unwanted()
                data: bytes = self._stream.read(wanted)
            # botocore reports a cut body as ResponseStreamingError, IncompleteReadError or ReadTimeoutError, and lets
            # urllib3's SSLError of a damaged TLS record through
            except (BotoCoreError, HTTPError) as error:
                # Counted over reopened connections: a server that always cuts at the same byte ends the read.
                self._failures += 1
                self._connection.pause(classify(error), self._failures, self._doing, error)
                self._reopen()
                continue
            self._position += len(data)
            # only failures in a row count: a long download may be cut many times
            if data:
                self._failures = 0
            return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def _reopen(self) -> None:
        self._stream.close()
        if self._position >= self.length_bytes:  # it was cut behind its last byte
            self._stream = io.BytesIO()
            return
        try:
            self._stream = self._get()["Body"]
        except RequestAnsweredError as error:
            raise vanished(self._doing) from error

    def _get(self) -> GetObjectOutputTypeDef:
        place: dict[str, Any] = {"Bucket": self._connection.config.bucket, "Key": self._key}
        if self._span is not None:
            place["Range"] = f"bytes={self._span[0] + self._position}-{self._span[1] - 1}"
        elif self._position:
            place["Range"] = f"bytes={self._position}-"
        if self._etag is not None:
            place["IfMatch"] = self._etag  # the rest of another object would follow the beginning of this one
        response = self._connection.call(self._doing, lambda client: client.get_object(**place))
        start = self._position if self._span is None else self._span[0] + self._position
        self._unwanted_bytes = 0 if _is_partial(response) else start
        return response

    def _drop_unwanted(self) -> None:
        while self._unwanted_bytes and (dropped := self._stream.read(min(self._unwanted_bytes, _DROP_BYTES))):
            self._unwanted_bytes -= len(dropped)


def _is_partial(response: GetObjectOutputTypeDef) -> bool:
    return "ContentRange" in response


def vanished(doing: str) -> BlobStoreUnavailableError:
    """The object was there when it was opened; the next attempt finds its new state."""
    return BlobStoreUnavailableError(f"{doing}: it was removed or replaced meanwhile; try again")


@cache
def _service_models(search_path: str | None) -> Loader:
    """Return botocore's reader of service descriptions, which keeps what it parsed: 0.14 s for each client without."""
    return create_loader(search_path)


def new_client(config: S3Config, read_keys: Callable[[], S3Keys] | None) -> S3Client:
    """A plain client, which tries nothing again.

    Raises: BotoCoreError, ClientError; what `read_keys` raises; OSError and others of AWS's chain.
    """
    keys = None if read_keys is None else read_keys()
    # a session of its own: the chain reads files and instance roles again, and stores share no credentials
    session = botocore.session.get_session()
    session.register_component("data_loader", _service_models(session.get_config_variable("data_path")))
    client = session.create_client(
        "s3",
        endpoint_url=config.endpoint_url,
        region_name=config.region,
        aws_access_key_id=None if keys is None else keys.access_key_id,
        aws_secret_access_key=None if keys is None else keys.secret_access_key,
        verify=config.ca_file,
        config=ClientConfig(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            # `call` counts attempts: botocore would neither read expired keys again nor end its pauses at a close
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path" if config.path_style else "auto"},
            response_checksum_validation="when_required",  # every blob is checked by its SHA-256
        ),
    )
    client.meta.events.register("after-call.s3", answer_check(config.description))
    return cast("S3Client", client)


def _is_ours(error: Exception) -> bool:
    """Whether a ValueError or OSError was raised without botocore taking part: by a mistake of our own code."""
    if isinstance(error, _OF_LIBRARIES):
        return False
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return not any(str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES for frame in frames)


# ------------------------------------------------------------------------------------------------ answers of a server


# A captive portal, a proxy or a wrong port answers 200 with a page. botocore reads it as an answer without fields, so a
# blob would count as stored that never was, or a field would be missed far from here.
_ALWAYS_THERE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "CompleteMultipartUpload": ("ETag",),
        "CopyObject": ("CopyObjectResult",),
        "CreateMultipartUpload": ("UploadId",),
        "GetObject": ("ETag", "LastModified", "ContentLength"),
        "HeadObject": ("LastModified", "ContentLength"),
        "ListMultipartUploads": ("IsTruncated",),
        "ListObjectsV2": ("IsTruncated",),
        "PutObject": ("ETag",),
        "UploadPart": ("ETag",),
    }
)
_STEP: Final = "check `blobs.s3.endpoint_url` and the network: a proxy, a login page or another server may answer there"


def check_answer(operation: str, answer: Mapping[str, Any], store: str) -> None:
    """See whether a successful answer has what the operation always answers with. Raises: BlobStoreUnavailableError."""
    missing = [name for name in _ALWAYS_THERE.get(operation, ()) if name not in answer]
    if missing:
        raise BlobStoreUnavailableError(
            f"{store} does not answer like an S3 server: {operation} without {missing[0]}", next_step=_STEP
        )


def answer_check(store: str) -> Callable[..., None]:
    """A handler for botocore's event `after-call`, which comes with every answer, also with refusals."""

    def check(*, parsed: Mapping[str, Any], model: Any, **_: object) -> None:
        if parsed["ResponseMetadata"]["HTTPStatusCode"] < 300:
            try:
                check_answer(model.name, parsed, store)
            except BlobStoreUnavailableError:
                # the caller never gets the body of GetObject, and its connection would stay open until it is collected
                if "Body" in parsed:
                    parsed["Body"].close()
                raise

    return check
