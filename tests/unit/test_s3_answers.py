"""An endpoint that is no S3 server is named, and a mistake of our own is not taken for a store that is down."""

from __future__ import annotations

import io
import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError, IncompleteReadError
from mailboat.blobs.s3 import S3BlobStore, S3Documents
from mailboat.blobs.s3_connection import S3Connection, answer_check, check_answer
from mailboat.blobs.s3_sweep import read_announcement
from mailboat.config.storage import S3Config
from mailboat.errors import BlobStoreUnavailableError
from mailboat.testing.clocks import ManualClock, SkippingClock
from urllib3.exceptions import SSLError


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
        S3Config("bucket", region="us-east-1", endpoint_url="http://127.0.0.1:9"), ManualClock(), random.Random(0)
    )

    def request(_: object) -> None:
        raise error

    with pytest.raises(type(error), match="a bug"):
        connection.call("testing", request)
    connection.close()


class Bucket:
    """Has one document, which is replaced when its body is cut after two bytes."""

    def __init__(self) -> None:
        self.requests: list[dict[str, object]] = []

    def get_object(self, **request: object) -> dict[str, object]:
        self.requests.append(request)
        tag = '"old"' if len(self.requests) == 1 else '"new"'
        if request.get("IfMatch", tag) != tag:
            raise ClientError({"Error": {"Code": "PreconditionFailed"}}, "GetObject")
        body = CutBody(b"ol") if len(self.requests) == 1 else io.BytesIO(b"w!")
        return {"ETag": tag, "ContentLength": 4, "ContentRange": "bytes 0-3/4", "Body": body}

    def close(self) -> None:
        pass


class CutBody(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if not data:
            raise IncompleteReadError(actual_bytes=2, expected_bytes=4)
        return data


def test_document_replaced_while_it_is_read_is_not_a_mixture_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.blobs.s3_connection.new_client", lambda *_: Bucket())
    connection = S3Connection(S3Config("bucket"), SkippingClock(), random.Random(0))
    with pytest.raises(BlobStoreUnavailableError, match="replaced meanwhile"):
        S3Documents(connection, "documents/").read("users")
    connection.close()


class DamagedBody(io.BytesIO):
    def read(self, _: int | None = -1, /) -> bytes:
        raise SSLError("[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]")  # as urllib3 does, and botocore passes it on


def test_body_whose_tls_record_was_damaged_goes_on_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = iter([DamagedBody(), io.BytesIO(b"edge")])
    answer = {"ETag": '"e"', "ContentLength": 4}
    bucket = SimpleNamespace(get_object=lambda **_: {**answer, "Body": next(bodies)}, close=lambda: None)
    monkeypatch.setattr("mailboat.blobs.s3_connection.new_client", lambda *_: bucket)
    with closing(S3Connection(S3Config("bucket"), SkippingClock(), random.Random(0))) as connection:
        assert S3Documents(connection, "documents/").read("users") == b"edge"


class Markers:
    """A bucket in which a tool has marked the folders."""

    def list_objects_v2(self, **request: str) -> dict[str, object]:
        keys = ("documents/", "documents/a/", "documents/edge", "journals/", "journals/cluster%2Ftopic")
        found = [{"Key": key} for key in keys if key.startswith(request["Prefix"])]
        return {"IsTruncated": False, "Contents": found}

    def close(self) -> None:
        pass


def test_marker_of_a_folder_is_neither_a_document_nor_a_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.blobs.s3_connection.new_client", lambda *_: Markers())
    clock = SkippingClock()
    with closing(S3BlobStore(S3Connection(S3Config("bucket"), clock, random.Random(0)), clock)) as store:
        assert store.documents.names() == ["edge"]
        assert store.users() == ["cluster/topic"]


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANSWERED = {"HTTPStatusCode": 200, "HTTPHeaders": {"date": format_datetime(NOW, usegmt=True)}}


class Swept:
    """A bucket with one blob and one upload, both begun an hour ago by the server's clock."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def put_object(self, **_: object) -> dict[str, object]:
        return {}

    def head_object(self, **_: object) -> dict[str, object]:
        return {"LastModified": NOW - timedelta(hours=1), "ResponseMetadata": ANSWERED}

    def list_multipart_uploads(self, **_: object) -> dict[str, object]:
        upload = {"Key": "upload", "UploadId": "1", "Initiated": NOW - timedelta(hours=1)}
        return {"Uploads": [upload], "IsTruncated": False, "ResponseMetadata": ANSWERED}

    def delete_objects(self, **_: object) -> dict[str, object]:
        self.removed.append("blob")
        return {}

    def abort_multipart_upload(self, **_: object) -> None:
        self.removed.append("upload")

    def delete_object(self, **_: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(days=7)], ids=["right", "a week ahead"])
@pytest.mark.parametrize(("grace", "removed"), [(timedelta(hours=2), []), (timedelta(minutes=30), ["blob", "upload"])])
def test_sweep_by_a_wrong_clock_keeps_what_is_young_by_that_of_the_server(
    monkeypatch: pytest.MonkeyPatch, ahead: timedelta, grace: timedelta, removed: list[str]
) -> None:
    bucket, clock = Swept(), SkippingClock(NOW + ahead)
    monkeypatch.setattr("mailboat.blobs.s3_connection.new_client", lambda *_: bucket)
    with closing(S3BlobStore(S3Connection(S3Config("bucket"), clock, random.Random(0)), clock)) as store:
        assert store.remove_unrenewed([bytes(32)], clock.now() - grace) == removed.count("blob")
        assert store.abandon_uploads(clock.now() - grace) == removed.count("upload")
    assert bucket.removed == removed


def test_announcement_that_no_sweep_wrote_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    body = io.BytesIO(b"x")
    bucket = SimpleNamespace(get_object=lambda **_: {"ContentLength": 5 << 30, "Body": body}, close=lambda: None)
    monkeypatch.setattr("mailboat.blobs.s3_connection.new_client", lambda *_: bucket)
    connection = S3Connection(S3Config("bucket"), SkippingClock(), random.Random(0))
    with closing(connection), pytest.raises(BlobStoreUnavailableError, match="no sweep wrote"):
        read_announcement(connection)
    assert body.closed
