"""The extremes of trees that bulk builds are made for: a folder with 200,000 children, and a file of 2 GiB.

What is asked is memory: of a process that cuts the one, and of a builder that builds the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.blobs.port import BlobInfo
from mailboat.bulk.bin_builder import BinBuilder
from mailboat.bulk.build_records import BuiltBin, Recipe
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.source_branches import cut_whole
from mailboat.clock import SystemClock
from mailboat.content.sources.folder import FolderSource
from mailboat.model.paths import ROOT
from mailboat.packages.tree import TreeCodec

CHILDREN = 200_000
GIB = 1 << 30
MIB = 1 << 20
MEMORY = Path("/dev/shm")

pytestmark = pytest.mark.timeout(600)

CUT = """
import json, sys
from contextlib import closing
from pathlib import Path
from mailboat.composition.source_openers import open_source
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.source_branches import cut_whole
from mailboat.model.paths import ROOT

with closing(open_source(sys.argv[1])) as source:
    bins = [(len(one.roots), one.nodes) for one in cut_whole(source, [ROOT], Budget()) if isinstance(one, Bin)]
line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"bins": bins, "peak_bytes": int(line.split()[1]) * 1024}))
"""


@pytest.fixture
def hot_site() -> Iterator[Path]:
    """A site with one folder that has nearly everything, in memory where there is some for files."""
    with tempfile.TemporaryDirectory(prefix="mailboat-hot-", dir=MEMORY if MEMORY.is_dir() else None) as site:
        folder = Path(site) / "hot"
        folder.mkdir()
        for number in range(CHILDREN):
            os.mknod(f"{folder}/p{number:06d}.html", 0o644)
        yield Path(site)


@pytest.mark.long("trees-and-demos")
def test_a_folder_with_200_000_children_is_cut_into_even_packages_in_bounded_memory(
    hot_site: Path,
) -> None:
    ran = subprocess.run([sys.executable, "-c", CUT, str(hot_site)], check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(ran.stdout)
    sizes = [nodes for _, nodes in said["bins"]]
    assert sum(sizes) == CHILDREN + 1  # the folder, too; no one owns the root
    assert max(sizes) <= 500
    assert sorted(sizes)[len(sizes) // 2] > 250
    assert said["peak_bytes"] < 100 * MIB + 1_536 * CHILDREN


class Measuring(DirectoryBlobStore):
    """Counts and checks what is stored, and keeps none of it."""

    stored_bytes = 0

    def put(self, content: BinaryIO, expected: bytes | None = None) -> BlobInfo:
        """See `BlobStore.put`."""
        digest, length_bytes = hashlib.sha256(), 0
        while chunk := content.read(MIB):
            digest.update(chunk)
            length_bytes += len(chunk)
        assert expected in {None, digest.digest()}
        self.stored_bytes += length_bytes
        return BlobInfo(digest.digest(), length_bytes, datetime.now(UTC))


@pytest.mark.long("trees-and-demos")
def test_a_file_of_two_gibibytes_is_built_as_a_stream(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    with (tmp_path / "site" / "film.bin").open("wb") as film:
        film.truncate(2 * GIB)
    (tmp_path / "site" / "page.html").write_text("beside it")
    recipe = Recipe(str(tmp_path / "site"), (ROOT,), Budget())
    with closing(FolderSource(tmp_path / "site")) as source:
        bins = [item for item in cut_whole(source, recipe.roots, recipe.budget) if isinstance(item, Bin)]
        blobs = Measuring(tmp_path / "blobs", SystemClock())
        builder = BinBuilder(recipe, source, blobs, {"tree": TreeCodec()})
        tracemalloc.start()
        try:
            built = [builder.build(bin_) for bin_ in bins]
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert all(isinstance(item, BuiltBin) for item in built)
    alone = next(item for item in built if isinstance(item, BuiltBin) and item.binaries)
    assert [(list(alone.roots), binary.length_bytes) for binary in alone.binaries] == [(["/film.bin"], 2 * GIB)]
    assert blobs.stored_bytes >= 2 * GIB
    assert alone.package_bytes < MIB
    assert peak_bytes < 16 * MIB
