"""What large packages and large stores cost: memory, time beside a plain transfer, requests of a sweep."""

from __future__ import annotations

import hashlib
import io
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.blobs.s3 import S3BlobStore
from mailboat.clock import SystemClock
from support.fault_proxy import FaultProxy
from support.s3_server import ADMIN, S3Server

MEBIBYTE = 1 << 20


def home_in_bucket(bench: Any, folder: Path, server: S3Server, prefix: str) -> Path:
    """A home whose blobs are in the bucket."""
    home = folder / "home"
    bench.execute([*bench.mailboat, "--home", home, "init"])
    (home / "key").write_text(ADMIN.access_key_id)
    (home / "secret").write_text(ADMIN.secret_access_key)
    document = yaml.safe_load((home / "mailboat.yaml").read_text()) or {}
    document["blobs"] = {
        "s3": {
            "bucket": server.bucket,
            "prefix": prefix,
            "endpoint_url": server.url,
            "region": "us-east-1",
            "path_style": True,
            "access_key_id": {"file": "key"},
            "secret_access_key": {"file": "secret"},
        }
    }
    (home / "mailboat.yaml").write_text(yaml.safe_dump(document))
    return home


def write_random(file: Path, mebibytes: int) -> None:
    with file.open("wb") as stream:
        for _ in range(mebibytes):
            stream.write(os.urandom(MEBIBYTE))


@pytest.mark.long("figures")
@pytest.mark.timeout(1800)
def test_a_large_package_by_reference_costs_little_more_than_its_transfer(bench: Any, s3_server: S3Server) -> None:
    size = bench.length(128, 1024)
    folder = bench.folder("large")
    (folder / "site").mkdir()
    peaks: list[int] = []
    samples: list[float] = []
    seconds: dict[str, list[float]] = {"plain up": [], "plain down": [], "publish": [], "subscribe": []}
    for turn in range(bench.length(2, 3)):
        write_random(folder / "site/large.bin", size)
        plain = bench.run(
            "floors/plain_s3.py", s3_server.url, s3_server.bucket, *ADMIN, folder / "site/large.bin", folder / "copy"
        )
        (folder / "copy").unlink()
        home = home_in_bucket(bench, bench.folder(f"large/turn{turn}"), s3_server, f"large{turn}/")
        words = ["--home", home]
        publish = bench.run("arms/measured_command.py", *words, "publish", folder / "site", "/large.bin")
        target = f"sqlite:{home / 'edge.db'}"
        subscribe = bench.run(
            "arms/measured_command.py", *words, "subscribe", "edge", "--into", target, "--until", "caught-up"
        )
        peaks += [publish["peak_bytes"], subscribe["peak_bytes"]]
        for name, value in zip(
            seconds,
            (plain["up_seconds"], plain["down_seconds"], publish["wall_seconds"], subscribe["wall_seconds"]),
            strict=True,
        ):
            seconds[name].append(value)
        samples.append(
            (publish["wall_seconds"] + subscribe["wall_seconds"]) / (plain["up_seconds"] + plain["down_seconds"])
        )
        (blob,) = (home / "edge.db.blobs").glob("sha256/*/*")
        assert blob.stat().st_size == size * MEBIBYTE
    facts = {name: round(statistics.median(values), 2) for name, values in seconds.items()}
    bench.report_count(
        "blob-memory",
        max(peaks) / MEBIBYTE,
        target=200,
        unit="MiB at the peak",
        mebibytes=size,
        peaks=[p >> 20 for p in peaks],
    )
    bench.report_count(
        "blob-transfer",
        statistics.median(samples),
        target=1.5,
        gate=1.5 if bench.is_full_length else 6.0,  # a short transfer is mostly the start of two processes
        unit="ratio of wall time to a plain upload and download",
        mebibytes=size,
        **facts,
    )


@pytest.mark.long("figures")
@pytest.mark.timeout(1800)
def test_a_sweep_lists_a_thousand_at_a_time_in_bounded_memory(bench: Any, s3_server: S3Server, tmp_path: Path) -> None:
    count = bench.length(3_000, 100_000)
    home = home_in_bucket(bench, tmp_path, s3_server, "sweep/")
    (tmp_path / "site").mkdir()
    client = s3_server.client()
    put_many(client, s3_server.bucket, count)
    with FaultProxy(s3_server.port) as proxy:
        document = yaml.safe_load((home / "mailboat.yaml").read_text())
        document["blobs"]["s3"]["endpoint_url"] = proxy.url
        (home / "mailboat.yaml").write_text(yaml.safe_dump(document))
        idle = bench.peak(["--home", home, "blobs", "ls", "--limit", "1"])
        proxy.requests.clear()
        dry = bench.run("arms/sweep_at_once.py", "--home", home, "blobs", "sweep")["peak_bytes"]
        lists = proxy.requests["LIST"]
        begun = time.perf_counter()
        peak = bench.run("arms/sweep_at_once.py", "--home", home, "blobs", "sweep", "--yes")["peak_bytes"]
        seconds = time.perf_counter() - begun
        requests = dict(proxy.requests)
    store = S3BlobStore(s3_server.connection(s3_server.section("sweep/")), SystemClock())
    assert list(store.list()) == []
    store.put(io.BytesIO(b"the store still works"))
    store.close()
    client.close()
    bench.report_count(
        "sweep-lists",
        lists - count / 1000,
        target=2,
        unit="list requests beyond a thousandth of the blobs",
        blobs=count,
    )
    bench.report_count(
        "sweep-memory",
        (max(peak, dry) - idle) / MEBIBYTE,
        target=48,
        unit="MiB more than to list one blob",
        blobs=count,
        seconds=round(seconds, 1),
        requests=requests,
    )


def put_many(client: Any, bucket: str, count: int) -> None:
    """Tiny objects with the names of blobs; what they hold is of no interest to a sweep."""

    def put(number: int) -> None:
        name = hashlib.sha256(b"%d" % number).hexdigest()
        client.put_object(Bucket=bucket, Key=f"sweep/sha256/{name[:2]}/{name}", Body=b"x")

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(put, range(count)):
            pass


@pytest.mark.timeout(1800)
def test_a_snapshot_of_a_large_target_is_taken_and_restored_in_small_processes(bench: Any, tmp_path: Path) -> None:
    size = bench.length(128, 1024)
    (tmp_path / "site").mkdir()
    write_random(tmp_path / "site/large.bin", size)
    for number in range(2_000):
        (tmp_path / f"site/page{number}.txt").write_text(f"page {number}\n" * 50)
    words = ["--home", tmp_path / "home"]
    bench.execute([*bench.mailboat, *words, "init"])
    bench.execute([*bench.mailboat, *words, "publish", tmp_path / "site", "/"])
    source = f"generations:{tmp_path / 'edge'}"
    bench.execute([*bench.mailboat, *words, "subscribe", "edge", "--into", source, "--until", "caught-up"])
    peaks = {
        "snapshot": bench.peak([*words, "content", "snapshot", source, tmp_path / "snap"]),
        "restore": bench.peak([*words, "content", "restore", tmp_path / "snap", "--into", f"sqlite:{tmp_path}/new.db"]),
    }
    mebibytes = {name: round(peak / MEBIBYTE, 1) for name, peak in peaks.items()}
    assert (tmp_path / "snap").stat().st_size > size * MEBIBYTE
    bench.report_count(
        "snapshot-memory", max(mebibytes.values()), target=200, unit="MiB at the peak", content=size, **mebibytes
    )
