"""The only caller of S3: whether a Journal's bucket is there, and open to the credentials that its agents have.

One signed HEAD of the bucket, as AWS documents it (HeadBucket), by the signer of AWS' own library; its client is not
needed for that, and would be half of the operator's memory. Credentials go into the signature and nowhere else.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx2
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from mailboat.errors import (
    BucketRefusedError,
    BucketUnreachableError,
    SecretMalformedError,
)

from mailboat_operator.agent_client import transport_reason
from mailboat_operator.kinds.journal.spec import S3

_SECONDS: Final = 5.0
_REGION: Final = "us-east-1"
"""AWS's default where no region is given."""
_REGION_HEADER: Final = "x-amz-bucket-region"


async def check_bucket(s3: S3, keys: tuple[str, str], authority: str | None) -> None:
    """Ask for a bucket.

    Args:
        s3: Where it is.
        keys: Access key id and secret access key.
        authority: CA of the server's certificate, in PEM. Default: the image's trust store.

    Raises:
        BucketUnreachableError: Ask again later.
        BucketRefusedError: Naming what is wrong.
        SecretMalformedError: The authority is not a certificate.
    """
    url, region = bucket_url(s3), s3.region or _REGION
    # HEAD changes nothing, and needs no right but to list the bucket
    signed = AWSRequest("HEAD", url)
    S3SigV4Auth(Credentials(*keys), "s3", region).add_auth(signed)
    try:
        async with httpx2.AsyncClient(verify=_trust(s3, authority), timeout=_SECONDS) as client:
            answer = await client.head(url, headers=dict(signed.headers.items()))
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise BucketUnreachableError(
            f"asking {urlsplit(url).netloc} for bucket {s3.bucket}: {transport_reason(error)}"
        ) from error
    _check_answer(s3, region, answer.status_code, answer.headers)


def bucket_url(s3: S3) -> str:
    """Where the bucket is asked for."""
    parts = urlsplit(s3.endpoint_url or f"https://s3.{s3.region or _REGION}.amazonaws.com")
    if s3.path_style:
        return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{s3.bucket}", "", ""))
    return urlunsplit((parts.scheme, f"{s3.bucket}.{parts.netloc}", parts.path or "/", "", ""))


def _check_answer(s3: S3, region: str, code: int, headers: Mapping[str, str]) -> None:
    if code < 300:
        return
    home = headers.get(_REGION_HEADER)
    # AWS names the bucket's region in refusals too
    if home is not None and home != region:
        raise BucketRefusedError(f"bucket {s3.bucket} is in region {home}, not {region}: set spec.blobs.s3.region")
    if code == 404:
        raise BucketRefusedError(f"bucket {s3.bucket} does not exist: create it, the operator creates none")
    if code in {400, 401, 403}:
        raise BucketRefusedError(f"access to bucket {s3.bucket} is denied with these credentials (HTTP {code})")
    if code < 400:
        raise BucketRefusedError(
            f"bucket {s3.bucket} is at another endpoint (HTTP {code}): check endpointUrl and region"
        )
    raise BucketUnreachableError(f"asking for bucket {s3.bucket}: HTTP {code}")


def _trust(s3: S3, authority: str | None) -> ssl.SSLContext:
    if s3.ca_secret_ref is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, TypeError, ValueError) as error:  # a text beyond ASCII is a TypeError
        name = s3.ca_secret_ref.name
        raise SecretMalformedError(f"entry ca.crt of Secret {name} is not a PEM certificate") from error
