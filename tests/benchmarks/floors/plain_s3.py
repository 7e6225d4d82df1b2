"""Upload a file to a bucket by boto3's own managed transfer, and download it again: what any client must at least do.

Arguments: endpoint, bucket, access key, secret key, file, where to download to.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config


def main(endpoint: str, bucket: str, key: str, secret: str, file: str, into: str) -> None:
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=16),
    )
    transfer = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=4)
    begun, cpu = time.perf_counter(), time.process_time()
    client.upload_file(file, bucket, "plain", Config=transfer)
    uploaded = time.perf_counter()
    client.download_file(bucket, "plain", into, Config=transfer)
    ended = time.perf_counter()
    client.delete_object(Bucket=bucket, Key="plain")
    print(
        json.dumps(
            {
                "up_seconds": uploaded - begun,
                "down_seconds": ended - uploaded,
                "cpu_seconds": time.process_time() - cpu,
                "bytes": Path(into).stat().st_size,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
