"""What a failed request means, and whether it is sent again."""

from __future__ import annotations

import random

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from mailboat.blobs.s3_errors import FailureKind, S3Failure, as_error, classify, decide_pause
from mailboat.errors import BlobAccessDeniedError, BlobStoreUnavailableError


def answer(code: str, status: int, **headers: str) -> ClientError:
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return ClientError({"Error": {"Code": code, "Message": "said so"}, "ResponseMetadata": meta}, "PutObject")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NoSuchKey", 404, FailureKind.MISSING),
        ("404", 404, FailureKind.MISSING),
        ("NoSuchUpload", 404, FailureKind.MISSING),
        ("NoSuchBucket", 404, FailureKind.REFUSED),
        ("PreconditionFailed", 412, FailureKind.TAKEN),
        ("ConditionalRequestConflict", 409, FailureKind.PASSING),
        ("SlowDown", 503, FailureKind.PASSING),
        ("Whatever", 500, FailureKind.PASSING),
        ("Whatever", 429, FailureKind.PASSING),
        ("RequestTimeout", 400, FailureKind.PASSING),
        ("BadDigest", 400, FailureKind.PASSING),
        ("IncompleteBody", 400, FailureKind.PASSING),
        ("XAmzContentSHA256Mismatch", 400, FailureKind.PASSING),
        ("ExpiredToken", 400, FailureKind.EXPIRED),
        ("403", 403, FailureKind.EXPIRED),
        ("400", 400, FailureKind.EXPIRED),
        ("AccessDenied", 403, FailureKind.DENIED),
        ("RequestTimeTooSkewed", 403, FailureKind.DENIED),
        ("EntityTooLarge", 400, FailureKind.REFUSED),
    ],
)
def test_an_answer_is_understood_by_code_and_status(code: str, status: int, kind: FailureKind) -> None:
    failure = classify(answer(code, status))
    assert failure.kind is kind
    assert failure.code == code


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectTimeoutError(endpoint_url="http://x"), FailureKind.PASSING),
        (ReadTimeoutError(endpoint_url="http://x"), FailureKind.PASSING),
        (EndpointConnectionError(endpoint_url="http://x"), FailureKind.PASSING),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), FailureKind.PASSING),
        (NoCredentialsError(), FailureKind.DENIED),
        (ParamValidationError(report="bucket"), FailureKind.REFUSED),
    ],
)
def test_what_is_no_answer_is_understood_by_its_kind(error: Exception, kind: FailureKind) -> None:
    assert classify(error).kind is kind  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.PASSING])
def test_only_passing_failures_are_tried_again(kind: FailureKind) -> None:
    assert decide_pause(S3Failure(kind, "x"), 1, 5, random.Random(1)) is None


def test_pauses_grow_and_end_with_the_last_attempt() -> None:
    jitter = random.Random(1)
    failure = S3Failure(FailureKind.PASSING, "x")
    for attempt, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (9, 20.0), (60, 20.0)):
        pauses = [decide_pause(failure, attempt, 100, jitter) for _ in range(200)]
        numbers = [pause for pause in pauses if pause is not None]
        assert len(numbers) == 200
        assert 0.0 <= min(numbers) < longest / 4
        assert longest * 3 / 4 < max(numbers) <= longest
    assert decide_pause(failure, 5, 5, jitter) is None


def test_a_retry_after_of_the_server_is_a_lower_bound_with_a_limit() -> None:
    wish = classify(answer("SlowDown", 503, **{"retry-after": "30"}))
    assert decide_pause(wish, 1, 5, random.Random(1)) == 30
    long = classify(answer("SlowDown", 503, **{"retry-after": "99999"}))
    assert decide_pause(long, 1, 5, random.Random(1)) == 120
    date = classify(answer("SlowDown", 503, **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}))
    assert date.retry_after_seconds is None


def test_errors_name_place_and_code() -> None:
    denied = as_error(classify(answer("AccessDenied", 403)), "storing x", "s3://b")
    assert type(denied) is BlobAccessDeniedError
    assert str(denied) == "BlobAccessDenied: storing x at s3://b failed: AccessDenied: said so (code=AccessDenied)"
    assert type(as_error(classify(answer("SlowDown", 503)), "storing x", "s3://b")) is BlobStoreUnavailableError
