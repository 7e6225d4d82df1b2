"""An endpoint that is no S3 server is named, and a mistake of our own is not taken for a store that is down."""

from __future__ import annotations

import io
import random
from types import SimpleNamespace

import pytest
from mailboat.blobs.s3_answers import answer_check, check_answer
from mailboat.blobs.s3_connection import S3Connection, S3Settings
from mailboat.errors import BlobStoreUnavailableError
from mailboat.testing.clocks import ManualClock


@pytest.mark.parametrize(
    "operation", ["PutObject", "GetObject", "HeadObject", "ListObjectsV2", "CreateMultipartUpload", "UploadPart"]
)
def test_answer_without_its_fields_is_not_of_an_s3_server(operation: str) -> None:
    with pytest.raises(BlobStoreUnavailableError, match="does not answer like an S3 server") as raised:
        check_answer(operation, {"ResponseMetadata": {"HTTPStatusCode": 200}}, "s3://b on http://portal")
    assert "blobs.s3.endpoint_url" in str(raised.value.next_step)


def test_answer_with_its_fields_passes() -> None:
    check_answer("PutObject", {"ETag": '"e"'}, "s3://b")
    check_answer("DeleteObject", {}, "s3://b")


def test_body_of_a_refused_answer_is_closed() -> None:
    body = io.BytesIO(b"<html>")
    answer = {"ResponseMetadata": {"HTTPStatusCode": 200}, "Body": body}
    with pytest.raises(BlobStoreUnavailableError):
        answer_check("s3://b")(parsed=answer, model=SimpleNamespace(name="GetObject"))
    assert body.closed


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError("a bug")])
def test_mistake_of_our_own_request_is_not_a_store_that_is_down(error: Exception) -> None:
    connection = S3Connection(
        S3Settings("bucket", region="us-east-1", endpoint_url="http://127.0.0.1:9"), ManualClock(), random.Random(0)
    )

    def request(_: object) -> None:
        raise error

    with pytest.raises(type(error), match="a bug"):
        connection.call("testing", request)
    connection.close()
