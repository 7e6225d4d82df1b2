"""What a failed request to an S3 server means, and whether to send it again: pure decisions over botocore's exceptions.

    MISSING, TAKEN     answers, not failures: there is no such key or range, or a conditional request lost
    PASSING            timeouts, cut connections, 5xx, 429, SlowDown, conflicts: send it again after a pause
    EXPIRED            the credentials are no longer good: read them again once, then it is DENIED
    DENIED             a right, a signature or the clock is wrong
    REFUSED            everything else, such as a bucket that does not exist or a profile that AWS's chain does not know

The pause grows from half a second, with full jitter (Source: AWS, "Exponential Backoff And Jitter"); a `Retry-After` of
the server is a lower bound.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  # botocore's own, not an OSError
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from urllib3.exceptions import HTTPError

from mailboat.clock import Backoff
from mailboat.errors import BlobAccessDeniedError, BlobStoreUnavailableError, MailboatError

_BACKOFF: Final = Backoff(0.5, 20.0)
# a `Retry-After` of hours must not hold a request that long
_LONGEST_WISH_SECONDS: Final = 120.0

# InvalidAccessKeyId: a rotation deleted the old key; fresh credentials may have the new one
_EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "InvalidAccessKeyId"}
)
_UNTOLD: Final = frozenset({"400", "403"})  # an answer to HEAD has no body, and so no code: it may be an expired token
_PASSING: Final = frozenset(
    {
        # the bytes were damaged or cut on their way: the checksum in the request is of those that were sent
        "BadDigest",
        "IncompleteBody",
        "XAmzContentSHA256Mismatch",
        # 409: another write to the key was under way; S3 asks to send the request again:
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
        "ConditionalRequestConflict",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "SlowDown",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
    }
)
# The last one is of botocore's transport: of a body it lets through what is neither a timeout nor a cut, such as a
# damaged TLS record.
_CUT: Final = (ConnectionError, HTTPClientError, IncompleteReadError, HTTPError)
_DENIED_STEP: Final = "renew the credentials, and give this user the rights of its role: docs/blobs.md lists them"
_REFUSED_STEP: Final = "check `blobs.s3` in the configuration, and what AWS finds in its variables (AWS_*) and files"
_NO_CREDENTIALS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)


class FailureKind(enum.Enum):
    """See the module."""

    MISSING = "missing"
    TAKEN = "taken"
    PASSING = "passing"
    EXPIRED = "expired"
    DENIED = "denied"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class S3Failure:
    """A failed request.

    Attributes:
        kind: What it means.
        text: For people: the server's words, or what happened to the connection.
        code: The server's code, such as `SlowDown`; None without an answer.
        retry_after_seconds: What the server asks for.
    """

    kind: FailureKind
    text: str
    code: str | None = None
    retry_after_seconds: float | None = None


class RequestAnsweredError(Exception):
    """Not a failure: the answer to a request is that the key is missing, or taken. Never leaves the adapter."""

    def __init__(self, kind: FailureKind) -> None:
        """Carry MISSING or TAKEN."""
        super().__init__(kind)
        self.kind = kind


class NoClientError(Exception):
    """No client can be made, for want of credentials or of settings that fit. Never leaves the adapter."""

    def __init__(self, failure: S3Failure) -> None:
        """Carry what is the matter."""
        super().__init__(failure.text)
        self.failure = failure


def classify(error: Exception) -> S3Failure:
    """What an exception of a request, or of making a client, means."""
    if isinstance(error, NoClientError):
        return error.failure
    if isinstance(error, ClientError):
        return _classify_answer(error.response)
    if isinstance(error, MailboatError):  # the configuration's own credentials can't be read
        return S3Failure(FailureKind.DENIED, error.message)
    if isinstance(error, _NO_CREDENTIALS):
        return S3Failure(FailureKind.DENIED, str(error))
    if isinstance(error, _CUT):
        return S3Failure(FailureKind.PASSING, str(error))
    text = str(error) if isinstance(error, BotoCoreError) else f"{type(error).__name__}: {error}"
    return S3Failure(FailureKind.REFUSED, text)


def decide_pause(failure: S3Failure, attempt: int, max_attempts: int, jitter: random.Random) -> float | None:
    """Seconds until the request is sent again after its n-th attempt failed; None: it isn't."""
    if failure.kind is not FailureKind.PASSING or attempt >= max_attempts:
        return None
    pause = jitter.uniform(0.0, _BACKOFF.pause(attempt))  # full jitter: many clients share the server
    return max(pause, min(failure.retry_after_seconds or 0.0, _LONGEST_WISH_SECONDS))


def as_error(failure: S3Failure, doing: str, store: str) -> BlobStoreUnavailableError:
    """The failure as one of ours."""
    message = f"{doing} at {store} failed: {failure.text}"
    match failure.kind:
        case FailureKind.EXPIRED | FailureKind.DENIED:
            return BlobAccessDeniedError(message, next_step=_DENIED_STEP, code=failure.code)
        case FailureKind.REFUSED:
            return BlobStoreUnavailableError(message, next_step=_REFUSED_STEP, code=failure.code)
        case _:
            return BlobStoreUnavailableError(
                message, retry_after_seconds=failure.retry_after_seconds, code=failure.code
            )


def _classify_answer(response: Mapping[str, Any]) -> S3Failure:
    error = response.get("Error", {})
    meta = response.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
    text = f"{code}: {error.get('Message', '')}".strip(" :")
    wish = _seconds(meta.get("HTTPHeaders", {}).get("retry-after"))
    return S3Failure(_kind_of(code, status), text, code or None, wish)


def _kind_of(code: str, status: int) -> FailureKind:
    if code in {"NoSuchKey", "NoSuchUpload", "404", "InvalidRange", "416"}:
        return FailureKind.MISSING
    if code in {"PreconditionFailed", "412"}:
        return FailureKind.TAKEN
    if code in _EXPIRED or code in _UNTOLD:
        return FailureKind.EXPIRED
    if code in _PASSING or status >= 500 or status in {408, 429}:
        return FailureKind.PASSING
    return FailureKind.DENIED if status in {401, 403} else FailureKind.REFUSED


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
