"""Spark's own connectors, in the versions of tests/spark/pom.xml: our package topic by `kafka`, a bucket by `s3a`."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.kafka_broker import KafkaBroker
from support.s3_server import ADMIN, S3Server

TESTS = Path(__file__).parents[1]
pytestmark = [pytest.mark.long("spark"), pytest.mark.timeout(900)]

JOB = """
import json, sys
from mailboat.bulk.spark.spark_session import SessionSettings, open_session

jars, servers, topic, bucket, url, key, secret = sys.argv[1:]
properties = {
    "spark.jars": jars,
    "spark.hadoop.fs.s3a.endpoint": url,
    "spark.hadoop.fs.s3a.access.key": key,
    "spark.hadoop.fs.s3a.secret.key": secret,
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
}
properties["spark.driver.extraJavaOptions"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
with open_session(SessionSettings("local[1]", properties=properties)) as spark:
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    kafka.selectExpr("offset", "length(value) AS length").write.mode("overwrite").parquet(bucket)
    rows = spark.read.parquet(bucket).orderBy("offset").collect()
    print(json.dumps([[row.offset, row.length] for row in rows]))
"""


def test_the_versions_in_the_docs_read_our_topic_and_write_to_a_bucket(
    spark_connectors: list[Path],
    kafka_broker: KafkaBroker,
    s3_server: S3Server,
    tmp_path: Path,
    command_line: Callable[..., Any],
) -> None:
    name = f"spark-{uuid.uuid4().hex[:8]}"
    boat = command_line(tmp_path / "boat")
    boat.do("init", "--kafka", kafka_broker.bootstrap_servers)
    config = boat.home / "mailboat.yaml"
    config.write_text(config.read_text().replace('topic_prefix: ""', f'topic_prefix: "{name}-"'))
    boat.do("journal", "ensure")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "page.html").write_text("page")
    boat.do("publish", tmp_path / "site", "/page.html")
    place = f"s3a://{s3_server.bucket}/{name}/rows"
    keys = (ADMIN.access_key_id, ADMIN.secret_access_key)
    words = (
        ",".join(map(str, spark_connectors)),
        kafka_broker.bootstrap_servers,
        f"{name}-package",
        place,
        s3_server.url,
    )
    ran = subprocess.run([sys.executable, "-c", JOB, *words, *keys], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    ((offset, length),) = json.loads(ran.stdout)
    assert (offset, length > 50) == (0, True)
