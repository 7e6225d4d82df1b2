"""What an S3 server always answers, checked for every request: an endpoint may be something else.

A captive portal, a proxy or a wrong port answers 200 with a page. botocore reads it as an answer without fields, so a
blob would count as stored that never was, or a field would be missed far from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from mailboat.errors import BlobStoreUnavailableError

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
