"""Bulk builds without Spark, for tests of everything but Spark: the stages in this process, and crashing drivers.

`LocalStages` does what executors do, one bin after the other. `build` is the whole of a child process that builds a
site, until it is done or dies at a failpoint.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from mailboat.blobs.port import BlobStore
from mailboat.bulk.assembly import source_of
from mailboat.bulk.bin_builder import BinBuilder
from mailboat.bulk.build_claims import BuildBusyError, this_driver
from mailboat.bulk.build_records import BinResult, Recipe
from mailboat.bulk.build_reports import BuildReport
from mailboat.bulk.build_run import BuildOrder, BuildRun, DriverPorts
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.publication import resume_seconds_of
from mailboat.bulk.source_branches import cut_whole
from mailboat.content.listed_nodes import UnlistedEntry
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.model.identifiers import BuildId
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageCodec
from mailboat.packages.tree import TreeCodec
from mailboat.testing.wait import PATIENCE_SECONDS
from support.crashes import KillingFailpoints
from support.engines import PACKAGES, Engine, EngineParts, write_site

BUDGET: Final = Budget(max_content_bytes=3_000, max_nodes=4)
STEP_PARTS: Final = 3
"""Parts that the lane appends in one step at most: a build of a site takes several, and the last is not full."""
BUSY_EXIT_CODE: Final = 75


class LocalStages:
    """The stages of a build in this process.

    Attributes:
        built: The bins that were built, in order.
    """

    def __init__(self, blobs: BlobStore, codecs: Mapping[str, PackageCodec] | None = None) -> None:
        """Store what is built in `blobs`."""
        self._blobs = blobs
        self._codecs = codecs or {"tree": TreeCodec()}
        self.built = list[Bin]()

    def cut(self, recipe: Recipe) -> Iterator[Bin | UnlistedEntry]:
        """See `BuildStages`."""
        with closing(source_of(recipe)) as source:
            yield from cut_whole(source, recipe.roots, recipe.budget)

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """See `BuildStages`; the last bin comes first, as no order is promised."""
        with closing(source_of(recipe)) as source:
            builder = BinBuilder(recipe, source, self._blobs, self._codecs)
            for bin_ in reversed(list(bins)):
                self.built.append(bin_)
                yield builder.build(bin_)


class ChangingStages(LocalStages):
    """While the tree is built, a file of it changes."""

    def __init__(self, engine: Engine, file: Path) -> None:
        """Change this one."""
        super().__init__(engine.blobs)
        self._file = file

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """See `BuildStages`."""
        self._file.write_text("changed under the reader")
        yield from super().build(recipe, bins)


def recipe_for(engine: Engine, site: Path, roots: Sequence[str] = ("/",), budget: Budget = BUDGET) -> Recipe:
    """How a site is built for an engine; packages above 1,000 bytes are stored as blobs."""
    return Recipe(
        str(site),
        tuple(map(NodePath, roots)),
        budget,
        inline_package_bytes=1_000,
        log=str(engine.journal.identity(PACKAGES)),
        publisher=engine.publishing.name,
    )


def run(
    engine: Engine, order: BuildOrder, stages: LocalStages | None = None, grace_seconds: float = 86_400.0
) -> BuildReport:
    """One attempt at a build with the parts of an engine."""
    ports = DriverPorts(
        stages or LocalStages(engine.blobs),
        engine.publisher(engine.publishing_with(append_records=STEP_PARTS)).parts,
        engine.blobs,
        TreeCodec(),
        this_driver(),
        engine.parts.clock,
        failpoints=engine.parts.failpoints,
        resume_seconds=resume_seconds_of(grace_seconds),
    )
    return BuildRun(order, ports).run()


def prepare(folder: Path) -> None:
    """Make a site that was built once, and has changed since: pages are new, different, and gone."""
    files: dict[str, str | bytes] = {f"{letter}/{number}.html": letter * 600 for letter in "abc" for number in range(9)}
    write_site(folder / "site", {**files, "index.html": "home", "big.bin": bytes(range(256)) * 500})
    with Engine(folder / "home") as engine:
        run(engine, BuildOrder(recipe_for(engine, folder / "site")))
    write_site(folder / "site", {f"d/{number}.html": "d" * 700 for number in range(9)})
    write_site(folder / "site", {"a/1.html": "different", "index.html": "new"})
    for gone in ("b/1.html", "c/3.html"):
        (folder / "site" / gone).unlink()


def build(folder: str, build_id: str | None, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Build the site; at the n-th time that `failpoint` is reached, die."""
    failpoints = NoFailpoints() if failpoint is None else KillingFailpoints(failpoint, count)
    with Engine(Path(folder) / "home", EngineParts(failpoints=failpoints)) as engine:
        recipe = recipe_for(engine, Path(folder) / "site")
        run(engine, BuildOrder(recipe, None if build_id is None else BuildId(build_id)))


def build_when_all_are_ready(folder: str, barrier: threading.Barrier) -> None:
    """A child that builds when all are ready; it ends with `BUSY_EXIT_CODE` where another is at it."""
    barrier.wait(PATIENCE_SECONDS)
    try:
        build(folder, None)
    except BuildBusyError:
        sys.exit(BUSY_EXIT_CODE)
