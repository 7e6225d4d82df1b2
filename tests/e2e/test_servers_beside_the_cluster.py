"""An agent in a pod whose journal is a real Kafka broker and whose blobs lie in a real bucket, both outside."""

from __future__ import annotations

from typing import Any

import pytest
from support.s3_server import ADMIN

pytestmark = pytest.mark.timeout(900)


def test_an_agent_that_lost_all_its_volumes_gets_the_tree_from_kafka_and_the_bucket(
    author: Any, site: dict[str, bytes], kafka: str, s3: str
) -> None:
    author.configure(
        f"""
        journal:
          kafka: {{bootstrap_servers: ["{kafka}"], replicas: 1}}
        blobs:
          s3:
            bucket: mailboat
            endpoint_url: {s3}
            region: us-east-1
            path_style: true
            access_key_id: {{file: /run/secrets/mailboat/access-key}}
            secret_access_key: {{file: /run/secrets/mailboat/secret-key}}
        """,
        {"access-key": ADMIN.access_key_id, "secret-key": ADMIN.secret_access_key},
    )
    author.start()
    author.fill(site)
    author.mailboat("publish", "/", "--wait", "120")
    assert author.served() == site

    author.stop()
    author.start()

    assert author.served() == site
