"""`mailboat bulk plan`, `build`, `status`, `verify` and `forget`: many packages at once, built on Spark."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from mailboat.bulk.build_claims import BuildClaim, claimed_build, this_driver
from mailboat.bulk.build_records import BuildProblem, BuildRequest
from mailboat.bulk.cut_summary import NameCollisions, summary_of
from mailboat.bulk.cutter import Budget
from mailboat.bulk.identity import checked_build_id
from mailboat.bulk.source_branches import cut_whole, outermost
from mailboat.bulk.spark.spark_errors import SparkMissingError
from mailboat.cli.bulk_reports import build_report, differences_report, plan_report, status_report
from mailboat.cli.help_page import command_group
from mailboat.cli.options import PublisherOption, SourceArgument, command, content_paths, remote_command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.composition.environment import pip_command, variable
from mailboat.composition.home import Home, configured_home
from mailboat.composition.source_openers import absolute_source, open_source
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.section_keys import MEBIBYTE
from mailboat.errors import BuildMissingError, UsageError
from mailboat.model.identifiers import FileIdentity
from mailboat.model.paths import ROOT
from mailboat.model.requests import BULK_CONTENT_BYTES, BULK_NODES
from mailboat.publisher.publisher import replaced_roots

if TYPE_CHECKING:
    from mailboat.bulk.build_registry import Build, BuildRegistry
    from mailboat.cli.spark_driver import SparkDriver

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

    budget: Annotated[str, typer.Option("--budget", metavar="SIZE", help="Maximum content per package.")] = (
        f"{BULK_CONTENT_BYTES // MEBIBYTE}MiB"
    )
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Maximum nodes per package.")] = BULK_NODES
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


app = command_group("bulk")


@app.command("plan")
@command
def plan(session: Session, cutting: CutOptions, source: SourceArgument, paths: RootsArgument = None) -> None:
    """Show how a tree would be cut into packages. Needs no Spark, reads no content, changes nothing."""
    collisions = NameCollisions()
    with closing(open_source(source, identity=cutting.file_identity)) as opened:
        # the paths that are given, else those of a FileVault filter, else all
        roots = outermost(replaced_roots(opened, content_paths(paths or ()) or (ROOT,)))
        budget = Budget(parse_size(cutting.budget), cutting.nodes)
        found = summary_of(cut_whole(opened, roots, budget, collisions.watch), collisions)
    session.show(plan_report(found))
    _end_by_problems(found.problems)


@app.command("build")
@command
def build(  # sets of options
    session: Session,
    cutting: CutOptions,
    naming: BuildNameOptions,
    running: SparkOptions,
    source: SourceArgument,
    paths: RootsArgument = None,
    allow_unreadable: Annotated[
        bool, typer.Option("--allow-unreadable", help="Exit with 0 although unreadable paths were left out.")
    ] = False,
) -> None:
    """Build a tree as many packages and publish them in order. Idempotent: the same command resumes."""
    named = None if naming.build_id is None else checked_build_id(naming.build_id)
    budget = Budget(parse_size(cutting.budget), cutting.nodes)
    request = BuildRequest(source, content_paths(paths or ()) or (ROOT,), budget, cutting.file_identity)
    with _spark(running) as driver, _workspace(session, naming.into) as workspace:
        report = driver.build(workspace, request, naming.publisher, named, is_all=naming.everything)
        session.show(build_report(report, driver.runner.figures, driver.runner.start_seconds))
    if not allow_unreadable:
        _end_by_problems(report.problems)


@app.command("status")
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


@app.command("verify")
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
    roots = outermost(content_paths(paths or ()) or (ROOT,))
    with _spark(running) as driver:
        found = driver.differences(absolute_source(source), tuple(map(absolute_source, targets)), roots)
    session.show(differences_report(found, targets))
    if found:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


@app.command("forget")
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
        registry = _registry_type()
    named = checked_build_id(build_id)
    with _workspace(session, into) as workspace:
        library = registry(workspace.blobs.builds)
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
        registry = _registry_type()
    except ImportError:
        return ()  # manifests need an extra that is not installed
    with session.workspace() as workspace:
        return [build for build in registry(workspace.blobs.builds).builds() if not build.is_complete]


def _registry_type() -> type[BuildRegistry]:
    from mailboat.bulk.build_registry import BuildRegistry

    return BuildRegistry


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
            warnings.simplefilter("ignore")  # users cannot correct what PySpark's imports warn of
            yield
    except ImportError as error:
        raise SparkMissingError(f"bulk builds need Spark: {error}", next_step=pip_command("mailboat[spark]")) from error


@contextmanager
def _spark(running: SparkOptions) -> Iterator[SparkDriver]:
    """Builds and compares in a session that begins with the first stage. Raises: SparkMissingError, UsageError."""
    with _spark_installed():
        from mailboat.cli.spark_driver import spark_driver

    master = None if running.master == SUBMITTED else running.master
    properties = dict(map(_setting_of, running.conf or ()))
    is_quiet = variable("SPARK_CONF_DIR") is None  # who has one may have a logging configuration there
    with spark_driver(master, properties, is_quiet=is_quiet) as driver:
        yield driver


def _setting_of(text: str) -> tuple[str, str]:
    """A setting as a person writes it. Raises: UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise UsageError(f"invalid --conf {text!r}: expected spark.KEY=VALUE")
    return key, value


def parse_size(text: str) -> int:
    """Bytes as people write them: `500000`, `500kB`, `4MiB`, `1Gi`. Raises: UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise UsageError(f"{text!r} is not a size: write 4MiB, 500kB or a number of bytes")
    return int(match[1]) * _UNITS[(match[2] or "").lower().removesuffix("b")]


def _end_by_problems(problems: Sequence[BuildProblem]) -> None:
    if problems:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)
