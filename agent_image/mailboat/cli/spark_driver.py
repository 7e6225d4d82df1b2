"""What `mailboat bulk build` and `verify` do on Spark, in the driver, and the line that shows how far a build is.

The line changes in place; where there is no terminal, each stage has a line of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TextIO

from mailboat.bulk.assembly import ports_for, recipe_for
from mailboat.bulk.build_records import BuildRequest
from mailboat.bulk.build_reports import BuildReport
from mailboat.bulk.build_run import BuildOrder, BuildRun
from mailboat.bulk.spark.exchange import ExecutorWorkspace
from mailboat.bulk.spark.pipeline import SparkPipeline
from mailboat.bulk.spark.spark_session import SessionSettings, checked_master, open_session
from mailboat.bulk.spark.stages import StageRunner
from mailboat.bulk.spark.verification import Comparison, TargetDifference, find_differences
from mailboat.cli.output import seconds_text
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock
from mailboat.composition.workspace import Workspace
from mailboat.model.identifiers import BuildId
from mailboat.model.paths import NodePath

_SHOWN_EVERY_SECONDS: Final = 0.1
_BAR_WIDTH: Final = 24
_DOING: Final = {
    "cut": "cutting",
    "build": "building",
    "close": "closing",
    "publish": "publishing",
    "compare": "comparing",
}


class BulkProgress:
    """Shows the stages of a build. See `mailboat.bulk.build_reports.Progress`."""

    def __init__(self, into: TextIO, clock: Clock) -> None:
        self._into = into
        self._clock = clock
        self._line = TerminalLine(into)
        self._stage = ""
        self._total: int | None = None
        self._done = 0
        self._began = self._shown_at = clock.monotonic()

    def begin(self, stage: str, total: int | None = None) -> None:
        """A stage begins; the one before it is over."""
        self.end()
        self._stage, self._total, self._done = stage, total, 0
        self._began = self._clock.monotonic()
        self._shown_at = 0.0
        self._show()

    def advance(self, packages: int) -> None:
        """So many more packages of the stage are done."""
        self._done += packages
        self._show()

    def end(self) -> None:
        """The stage is over: what it came to stays to be read."""
        if not self._stage:
            return
        self._line.clear()
        if self._done or self._total:
            seconds = self._clock.monotonic() - self._began
            self._into.write(f"{self._text()}  {seconds_text(seconds)}\n")
        self._into.flush()
        self._stage = ""

    def _show(self) -> None:
        now = self._clock.monotonic()
        if now - self._shown_at >= _SHOWN_EVERY_SECONDS:
            self._shown_at = now
            self._line.show(f"{progress_bar(self._done, self._total)}{self._text()}")

    def _text(self) -> str:
        doing = _DOING.get(self._stage, self._stage)
        of = "" if self._total is None else f" of {self._total:,}"
        noun = "packages" if self._done != 1 or self._total is not None else "package"
        return f"{doing:<10}  {self._done:,}{of} {noun}"


def progress_bar(done: int, total: int | None) -> str:
    """A bar with a space behind it; nothing where the end is not known."""
    if not total:
        return ""
    full = _BAR_WIDTH * min(done, total) // total
    return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] "


class SparkDriver:
    """Builds and compares trees in one session of Spark.

    Attributes:
        runner: Runs the stages, and has their figures.
    """

    def __init__(self, runner: StageRunner) -> None:
        self.runner = runner

    def build(
        self,
        workspace: Workspace,
        request: BuildRequest,
        publisher: str | None,
        build_id: BuildId | None,
        *,
        is_all: bool,
    ) -> BuildReport:
        """Build and publish a tree. Raises: as `recipe_for` and `BuildRun.run`."""
        recipe = recipe_for(workspace, request, publisher)
        stages = SparkPipeline(self.runner, ExecutorWorkspace.of(workspace.home))
        progress = BulkProgress(sys.stderr, workspace.clock)
        ports = ports_for(workspace, stages, publisher, progress)
        try:
            return BuildRun(BuildOrder(recipe, build_id, is_all), ports).run()
        finally:
            progress.end()

    def differences(
        self, source: str, targets: tuple[str, ...], roots: tuple[NodePath, ...]
    ) -> Sequence[TargetDifference]:
        """What differs between a source and targets, in order; arguments as in `Comparison`."""
        return sorted(find_differences(self.runner, Comparison(source, targets, roots)))


@contextmanager
def spark_driver(master: str | None, properties: Mapping[str, str], *, is_quiet: bool) -> Iterator[SparkDriver]:
    """A driver whose session begins with the first stage and ends with the context.

    Without a master it is left to `spark-submit`. Raises: UsageError for a master of unknown form.
    """
    settings = SessionSettings(
        master=None if master is None else checked_master(master), properties=properties, is_quiet=is_quiet
    )
    with ExitStack() as opened:
        yield SparkDriver(StageRunner(lambda: opened.enter_context(open_session(settings))))
