"""What building a small package costs beyond the least that its format needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpc_tools import protoc

STEADY = {"MALLOC_MMAP_THRESHOLD_": "268435456", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""Both sides keep the memory that they free, as a process does that has run for a while. A fresh one gives the state of
each packer, 256 KiB, back to the system and takes it again with every entry: page faults that have nothing to do with
either side, but weigh on the one that packs more."""


def test_a_tree_package_costs_little_more_than_its_serialisation(bench: Any) -> None:
    folder, count = bench.folder("build-tree"), bench.length(10_000, 30_000)
    proto = Path(__file__).parents[2] / "proto/mailboat/v1"
    descriptors = folder / "tree.binpb"
    assert protoc.main(["protoc", f"-I{proto}", f"--descriptor_set_out={descriptors}", str(proto / "tree.proto")]) == 0
    bench.run("arms/build.py", "tree", 1, folder / "sample")
    sides = (
        lambda: bench.run("floors/build_tree.py", folder / "sample", count, descriptors, env=STEADY),
        lambda: bench.run("arms/build.py", "tree", count, env=STEADY),
    )
    # the least of each side: the median of pairs was 3.84 alone, and 4.88 beside another program
    bench.report_least("build-tree", sides, target=2.0, gate=4.2, count=count)


def test_a_filevault_package_costs_little_more_than_its_zip(bench: Any) -> None:
    folder, count = bench.folder("build-filevault"), bench.length(2_000, 6_000)
    bench.run("arms/build.py", "filevault", 1, folder / "sample")
    sides = (
        lambda: bench.run("floors/build_filevault.py", folder / "sample", count, env=STEADY),
        lambda: bench.run("arms/build.py", "filevault", count, env=STEADY),
    )
    bench.report_least("build-filevault", sides, target=1.5, gate=2.0, count=count)
