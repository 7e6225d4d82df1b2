"""Memory does not grow with what is published: a tree of 2 GiB passes through small processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

MEBIBYTE = 1024 * 1024


def make_sparse_tree(folder: Path, files: int, length_bytes: int) -> None:
    """Files that take no room on the disk, each with a beginning of its own, and some small ones."""
    for number in range(files):
        path = folder / f"large/{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(b"file %d\n" % number)
            os.truncate(file.fileno(), length_bytes)
    for number in range(2_000):
        path = folder / f"small/{number % 40}/{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"small file {number}\n" * 20)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_a_large_tree_passes_through_small_processes(bench: Any, tmp_path: Path, package_type: str) -> None:
    length = bench.length(256, 2048) * MEBIBYTE
    make_sparse_tree(tmp_path / "site", 4, length // 4)
    home = tmp_path / "home"
    peaks = {"init": bench.peak(["--home", home, "init"])}
    configuration = home / "mailboat.yaml"
    configuration.write_text(configuration.read_text().replace("package_type: tree", f"package_type: {package_type}"))
    peaks["publish"] = bench.peak(["--home", home, "publish", tmp_path / "site", "/"])
    for target in (
        f"sqlite:{tmp_path / 'target.db'}",
        f"files:{tmp_path / 'files'}",
        f"generations:{tmp_path / 'generations'}",
    ):
        name = target.partition(":")[0]
        peaks[name] = bench.peak(["--home", home, "subscribe", name, "--into", target, "--until", "caught-up"])
    assert (tmp_path / "files/large/3.bin").stat().st_size == length // 4
    mebibytes = {key: round(value / MEBIBYTE, 1) for key, value in peaks.items()}
    bench.report_count(
        f"memory-{package_type}", max(mebibytes.values()), target=200, unit="MiB", tree_bytes=length, **mebibytes
    )
