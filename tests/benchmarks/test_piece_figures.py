"""What packages in pieces cost: memory, time beside plain producing and consuming, and orphans."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.clock import SystemClock
from mailboat.journal.port import NewRecord
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import AgentName, PackageId, SlingId, TopicName
from mailboat.model.pieces import PieceMessage
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import encode_piece
from support.kafka_broker import KafkaBroker

MEBIBYTE = 1 << 20
ORPHAN_BYTES = 1000


def home_in_pieces(bench: Any, home: Path, journal: dict[str, Any]) -> Path:
    """A home whose large packages travel in pieces; on Kafka its topics are made."""
    bench.execute([*bench.mailboat, "--home", home, "init"])
    document = yaml.safe_load((home / "mailboat.yaml").read_text())
    document["publisher"]["transfer"] = "chunks"
    document["journal"].update(journal)
    (home / "mailboat.yaml").write_text(yaml.safe_dump(document))
    bench.execute([*bench.mailboat, "--home", home, "journal", "ensure"])
    return home


def write_random(file: Path, mebibytes: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        for _ in range(mebibytes):
            stream.write(os.urandom(MEBIBYTE))


@pytest.mark.long("figures")
@pytest.mark.timeout(1800)
def test_a_large_package_in_pieces_costs_little_more_than_its_bytes(bench: Any, kafka_broker: KafkaBroker) -> None:
    size = bench.length(128, 1024)
    folder = bench.folder("chunks")
    write_random(folder / "site/large.bin", size)
    peaks: list[int] = []
    samples: list[float] = []
    seconds: dict[str, list[float]] = {"produce": [], "consume": [], "publish": [], "subscribe": []}
    for turn in range(bench.length(2, 3)):
        servers, copy = kafka_broker.bootstrap_servers, folder / "copy"
        plain = bench.run("floors/plain_kafka.py", servers, f"plain-{turn}-{size}", folder / "site/large.bin", copy)
        copy.unlink()
        journal = {"kafka": {"bootstrap_servers": [servers]}, "topic_prefix": f"chunks{turn}-{size}-"}
        home = home_in_pieces(bench, bench.folder(f"chunks-home{turn}"), journal)
        words, env = ["--home", home], {"TMPDIR": str(folder)}  # what is collected lies in memory, like all else
        publish = bench.run("arms/measured_command.py", *words, "publish", folder / "site", "/large.bin", env=env)
        target = f"sqlite:{home / 'edge.db'}"
        subscribe = bench.run(
            "arms/measured_command.py", *words, "subscribe", "edge", "--into", target, "--until", "caught-up", env=env
        )
        assert not list((home / "blobs").glob("sha256/*/*"))
        (blob,) = (home / "edge.db.blobs").glob("sha256/*/*")
        assert blob.stat().st_size == size * MEBIBYTE
        peaks += [publish["peak_bytes"], subscribe["peak_bytes"]]
        taken = (
            plain["produce_seconds"],
            plain["consume_seconds"],
            publish["wall_seconds"],
            subscribe["wall_seconds"],
        )
        for name, value in zip(seconds, taken, strict=True):
            seconds[name].append(value)
        samples.append((taken[2] + taken[3]) / (taken[0] + taken[1]))
    facts = {name: round(statistics.median(values), 2) for name, values in seconds.items()}
    bench.report_count(
        "chunk-memory", max(peaks) / MEBIBYTE, target=200, unit="MiB at the peak", peaks=[peak >> 20 for peak in peaks]
    )
    bench.report_count(
        "chunk-transfer",
        statistics.median(samples),
        target=1.5,
        gate=3.0 if bench.is_full_length else 5.0,  # a short transfer is mostly the start of two processes
        unit="ratio of wall time to plain producing and consuming",
        mebibytes=size,
        **facts,
    )


@pytest.mark.timeout(1800)
def test_orphans_cost_no_memory_and_keep_no_good_package_away(bench: Any, tmp_path: Path) -> None:
    count = bench.length(20_000, 100_000)
    home = home_in_pieces(bench, tmp_path / "home", {})
    (tmp_path / "site").mkdir()
    (tmp_path / "site/page.html").write_text("arrived")
    target = f"files:{tmp_path / 'edge'}"
    subscribe = ["--home", home, "subscribe", "edge", "--into", target, "--until", "caught-up"]
    bench.execute([*bench.mailboat, "--home", home, "publish", tmp_path / "site", "/"])
    idle = bench.peak(subscribe)
    append_orphans(home, count)
    (tmp_path / "site/good.html").write_text("arrived")
    bench.execute([*bench.mailboat, "--home", home, "publish", tmp_path / "site", "/good.html"])
    started = time.perf_counter()
    peak = bench.peak(subscribe)
    assert (tmp_path / "edge/good.html").read_text() == "arrived"
    bench.report_count(
        "chunk-orphans",
        (peak - idle) / MEBIBYTE,
        target=16,
        gate=32,
        unit="MiB more than without",
        orphans=count,
        seconds=round(time.perf_counter() - started, 2),
    )


def append_orphans(home: Path, count: int) -> None:
    """First pieces of packages whose publisher died."""
    topic, step = TopicName("package"), 1000
    with SqliteJournal(home / "journal.db", SystemClock()) as journal:
        for start in range(0, count, step):
            pieces = [
                PieceMessage(SlingId("d" * 36), AgentName("dead"), PackageId(f"p{number}"), 0, bytes(ORPHAN_BYTES))
                for number in range(start, start + step)
            ]
            journal.append(topic, [NewRecord(encode_piece(piece), PIECE_HEADERS) for piece in pieces])
