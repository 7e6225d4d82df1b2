"""`mailboat bulk plan`, `build`, `status`, `verify` and `forget`: many packages at once, built on Spark.

How far a bulk build is, for people: one line that changes in place, or plain lines where there is no terminal.
"""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TextIO

import typer

from mailboat.bulk.build_claims import BuildClaim, claimed_build, this_driver
from mailboat.bulk.build_records import Problem
from mailboat.bulk.cut_plan import NameCollisions, plan_of
from mailboat.bulk.cutter import Budget
from mailboat.bulk.identity import checked_build_id
from mailboat.bulk.source_branches import cut_whole, outermost
from mailboat.bulk.spark.spark_errors import SparkMissingError
from mailboat.cli.bulk_reports import build_report, differences_report, plan_report, status_report
from mailboat.cli.help_page import command_group
from mailboat.cli.options import PublisherOption, command, remote_command
from mailboat.cli.output import Report, seconds_text
from mailboat.cli.publish import SourceArgument, content_paths
from mailboat.cli.session import Session
from mailboat.clock import Clock
from mailboat.composition.environment import variable
from mailboat.composition.home import Home, configured_home
from mailboat.composition.source_openers import absolute_source, open_source
from mailboat.composition.workspace import Workspace, prepare
from mailboat.errors import BuildMissingError, UsageError
from mailboat.model.identifiers import FileIdentity
from mailboat.model.paths import ROOT, NodePath
from mailboat.publisher.publisher import replaced_roots

if TYPE_CHECKING:
    from mailboat.bulk.build_registry import Build
    from mailboat.bulk.spark.stages import StageRunner


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
        """Show nothing yet."""
        self._into = into
        self._clock = clock
        self._is_terminal = into.isatty()
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
        if self._is_terminal:
            self._into.write("\r\x1b[K")
        if self._done or self._total:
            seconds = self._clock.monotonic() - self._began
            self._into.write(f"{self._text()}  {seconds_text(seconds)}\n")
        self._into.flush()
        self._stage = ""

    def _show(self) -> None:
        now = self._clock.monotonic()
        if not self._is_terminal or now - self._shown_at < _SHOWN_EVERY_SECONDS:
            return
        self._shown_at = now
        width = shutil.get_terminal_size().columns - 1
        self._into.write(f"\r\x1b[K{progress_bar(self._done, self._total)}{self._text()}"[: width + 4])
        self._into.flush()

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


LEFT_OUT_EXIT_CODE: Final = 1
"""Built and published in part: unreadable nodes are listed and are not treated as removed."""

DIFFERENT_EXIT_CODE: Final = 1
SUBMITTED: Final = "submitted"
"""The master that `spark-submit`, or an operator that calls it, has chosen."""

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmg]i?b?|b)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}

RootsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Content paths. Default: those in the filter of a checkout or zip, else all."),
]


class SparkOptions(NamedTuple):
    """How Spark runs."""

    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="URL",
            help="Spark master: local[*], spark://HOST:PORT, k8s://…; `submitted` under spark-submit.",
        ),
    ] = "local[*]"
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting, such as spark.driver.memory=4g; repeatable."),
    ] = None


class CutOptions(NamedTuple):
    """How the tree is cut."""

    budget: Annotated[str, typer.Option("--budget", metavar="SIZE", help="Maximum content per package.")] = "4MiB"
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Maximum nodes per package.")] = 2000
    file_identity: Annotated[
        FileIdentity,
        typer.Option(
            help="How unchanged files are recognised: by size, times and inode, by size and mtime, or by their bytes."
        ),
    ] = FileIdentity.INODE


class BuildNameOptions(NamedTuple):
    """Where to, and as which build."""

    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="HOME|FILE", help="Home or configuration to publish with."),
    ] = None
    build_id: Annotated[
        str | None,
        typer.Option("--build-id", metavar="ID", help="Build id. Default: derived from what is built."),
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="Publish also what the log has from an earlier build.")] = (
        False
    )
    publisher: PublisherOption = None


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("bulk", "Build and publish a whole tree as many packages, on Spark.")
    group.command("plan")(plan)
    group.command("build")(build)
    group.command("status")(status)
    group.command("verify")(verify)
    group.command("forget")(forget)
    app.add_typer(group)


@command
def plan(session: Session, cutting: CutOptions, source: SourceArgument, paths: RootsArgument = None) -> None:
    """Show how a tree would be cut into packages. Needs no Spark, reads no content, changes nothing."""
    collisions = NameCollisions()
    with closing(open_source(source, identity=cutting.file_identity)) as opened:
        roots = outermost(_roots_of(source, paths))
        found = plan_of(cut_whole(opened, roots, _budget_of(cutting), collisions.watch), collisions)
    session.show(plan_report(found))
    _end_by_problems(found.problems)


@command
def build(  # sets of options
    session: Session,
    cutting: CutOptions,
    naming: BuildNameOptions,
    running: SparkOptions,
    source: SourceArgument,
    paths: RootsArgument = None,
) -> None:
    """Build a tree as many packages and publish them in order. Idempotent: the same command resumes."""
    with _spark_installed():
        from mailboat.bulk import assembly, build_run
        from mailboat.bulk.spark import exchange, pipeline

    named = None if naming.build_id is None else checked_build_id(naming.build_id)
    wish = assembly.BuildRequest(
        source, content_paths(paths or ()) or (ROOT,), _budget_of(cutting), cutting.file_identity
    )
    with _workspace(session, naming.into) as workspace, ExitStack() as opened:
        recipe = assembly.recipe_for(workspace, wish, naming.publisher)
        runner = opened.enter_context(_spark(running))
        progress = BulkProgress(sys.stderr, workspace.clock)
        opened.callback(progress.end)
        stages = pipeline.SparkPipeline(runner, exchange.ExecutorWorkspace.of(workspace.home))
        ports = assembly.ports_for(workspace, stages, naming.publisher, progress)
        report = build_run.BuildRun(build_run.BuildOrder(recipe, named, naming.everything), ports).run()
        progress.end()
        session.show(build_report(report, runner.figures, runner.start_seconds))
    _end_by_problems(report.problems)


@remote_command
def status(
    session: Session,
    build_id: Annotated[str | None, typer.Argument(metavar="ID", help="One build. Default: all.")] = None,
) -> None:
    """Show the progress of each build: published, and imported per subscriber."""
    unfinished = _unfinished(session)
    try:
        with session.control() as control:
            found = control.builds(build_id)
    except BuildMissingError:
        if all(build.build_id != build_id for build in unfinished):
            raise
        found = ()
    published = {build.build_id for build in found}
    others = [build for build in unfinished if build.build_id not in published and build_id in {None, build.build_id}]
    session.show(status_report(found, others))


@command
def verify(
    session: Session,
    running: SparkOptions,
    source: SourceArgument,
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET", help="Targets to compare with the source, for example files:DIR.")
    ],
    paths: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="PATH", help="Compare only this path and everything below; repeatable."),
    ] = None,
) -> None:
    """Compare targets with a source node by node, on Spark. Exit code 1 when they differ."""
    with _spark_installed():
        from mailboat.bulk.spark.verification import Comparison, find_differences

    roots = outermost(content_paths(paths or ()) or (ROOT,))
    comparison = Comparison(absolute_source(source), tuple(map(absolute_source, targets)), roots)
    with _spark(running) as runner:
        found = sorted(find_differences(runner, comparison))
    session.show(differences_report(found, targets))
    if found:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


@command
def forget(
    session: Session,
    build_id: Annotated[str, typer.Argument(metavar="ID", help="The build.")],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="HOME|FILE", help="Home or configuration of the build.")
    ] = None,
) -> None:
    """Remove a build and its manifest. Published packages stay; unpublished ones are swept."""
    with _spark_installed():
        from mailboat.bulk.build_registry import BuildRegistry

    named = checked_build_id(build_id)
    with _workspace(session, into) as workspace:
        library = BuildRegistry(workspace.blobs.builds)
        with BuildClaim(library.documents, claimed_build(named), this_driver(), workspace.clock).held():
            known = library.ids()
            if named not in known:
                others = ", ".join(known) or "none"
                raise BuildMissingError(f"there is no manifest of a build {named}; builds: {others}", build=named)
            library.forget(named)
    session.show(Report({"build_id": named, "forgotten": True}, [named], lambda: [f"{named} is forgotten"]))


def _unfinished(session: Session) -> Sequence[Build]:
    """The builds that were begun and not ended, as their manifests say; none of an agent behind a URL."""
    if session.url is not None:
        return ()
    try:
        from mailboat.bulk.build_registry import BuildRegistry, BuildState
    except ImportError:
        return ()  # manifests need an extra that is not installed
    with session.workspace() as workspace:
        return [
            record
            for record in BuildRegistry(workspace.blobs.builds).builds()
            if record.state is not BuildState.COMPLETE
        ]


@contextmanager
def _workspace(session: Session, into: Path | None) -> Iterator[Workspace]:
    """What is published with: the session's home, another one, or a configuration with its state in the home."""
    if into is not None and into.is_file():
        home = configured_home(into, session.home_path if session.is_home_given else None)
        prepare(home)
    else:
        home = session.home() if into is None else Home(into)
    with Workspace(home) as workspace:
        yield workspace


@contextmanager
def _spark_installed() -> Iterator[None]:
    """Raises: SparkMissingError instead of the interpreter's own error, where the extra is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PySpark's imports say is not the user's to mend
            yield
    except ImportError as error:
        raise SparkMissingError(
            f"bulk builds need Spark: {error}", next_step='pip install "mailboat[spark]"'
        ) from error


@contextmanager
def _spark(running: SparkOptions) -> Iterator[StageRunner]:
    """Runs stages in a session that begins with the first of them."""
    with _spark_installed():
        from mailboat.bulk.spark import session, stages

    settings = session.SessionSettings(
        master=None if running.master == SUBMITTED else session.checked_master(running.master),
        properties=dict(map(_setting_of, running.conf or ())),
        is_quiet=variable("SPARK_CONF_DIR") is None,  # who has one may have a logging configuration there
    )
    with ExitStack() as opened:
        yield stages.StageRunner(lambda: opened.enter_context(session.open_session(settings)))


def _setting_of(text: str) -> tuple[str, str]:
    """A setting as a person writes it. Raises: UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise UsageError(f"invalid --conf {text!r}: expected spark.KEY=VALUE")
    return key, value


def _roots_of(source: str, paths: Sequence[str] | None) -> tuple[NodePath, ...]:
    """What is meant: the paths that are given, else those of a FileVault filter, else all."""
    with closing(open_source(source)) as opened:
        return tuple(replaced_roots(opened, content_paths(paths or ()) or (ROOT,)))


def _budget_of(cutting: CutOptions) -> Budget:

    return Budget(parse_size(cutting.budget), cutting.nodes)


def parse_size(text: str) -> int:
    """Bytes as people write them: `500000`, `500kB`, `4MiB`, `1Gi`. Raises: UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise UsageError(f"{text!r} is not a size: write 4MiB, 500kB or a number of bytes")
    return int(match[1]) * _UNITS[(match[2] or "").lower().removesuffix("b")]


def _end_by_problems(problems: Sequence[Problem]) -> None:
    if problems:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)
