"""What the commands of `mailboat bulk` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from mailboat.api.records import document_of
from mailboat.cli.output import Block, Report, bytes_text, count_text, seconds_text, time_text
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.clock import moment_of

if TYPE_CHECKING:
    from mailboat.api.records import BuildFollowerView, BuildView
    from mailboat.bulk.build_records import BuildProblem
    from mailboat.bulk.build_registry import Build
    from mailboat.bulk.build_reports import BuildReport
    from mailboat.bulk.cut_summary import CutSummary
    from mailboat.bulk.spark.stages import StageFigures
    from mailboat.bulk.spark.verification import TargetDifference

_SHOWN: Final = 20


def _left_out_lines(problems: Sequence[BuildProblem]) -> Iterator[str]:
    if problems:
        yield f"left out, and not removed anywhere: {count_text(len(problems), 'path')}"
    yield from _problem_lines(problems)
    if len(problems) > _SHOWN:
        yield f"  … {count_text(len(problems) - _SHOWN, 'more path')}"


def _problem_lines(problems: Sequence[BuildProblem]) -> Iterator[str]:
    return (f"  {problem.path}  {problem.name}: {problem.message}" for problem in problems[:_SHOWN])


def _problem_documents(problems: Sequence[BuildProblem]) -> list[dict[str, str]]:
    return [problem._asdict() for problem in problems]


def plan_report(found: CutSummary) -> Report:
    """How a tree would be cut."""
    largest = [
        {"kind": str(package.kind), "first_root": package.roots[0], "roots": len(package.roots), "nodes": package.nodes}
        | {"content_bytes": package.content_bytes}
        for package in found.largest
    ]
    document = {
        "packages": found.packages,
        "skeleton": found.skeleton,
        "content": found.content,
        "nodes": found.nodes,
        "content_bytes": found.content_bytes,
        "largest_bytes": found.largest_bytes,
        "largest": largest,
        "problems": _problem_documents(found.problems),
        "refused": _problem_documents(found.refused),
    }
    return Report(document, [package.roots[0] for package in found.largest], lambda: list(_plan_blocks(found)))


def _plan_blocks(found: CutSummary) -> Iterator[Block]:
    yield (
        f"{count_text(found.packages, 'package')}: {count_text(found.skeleton, 'split folder')},"
        f" {count_text(found.content, 'complete subtree')}; {count_text(found.nodes, 'node')},"
        f" {bytes_text(found.content_bytes)}"
    )
    columns = (
        Column("LARGEST PACKAGES"),
        Column("CONTENT", is_number=True),
        Column("NODES", is_number=True),
        Column("PATHS", is_number=True),
    )
    rows = [
        (package.roots[0], bytes_text(package.content_bytes), f"{package.nodes:,}", f"{len(package.roots):,}")
        for package in found.largest
    ]
    yield Table(columns, rows, empty="nothing to build")
    yield from _left_out_lines(found.problems)
    if found.refused:
        yield "disks that ignore case refuse, and so does a build with limits.refuse_collisions:"
    yield from _problem_lines(found.refused)


def build_report(report: BuildReport, figures: Sequence[StageFigures], start_seconds: float | None = None) -> Report:
    """What a build came to; `start_seconds` of its time Spark took to start."""
    document = asdict(report)
    document["problems"] = _problem_documents(report.problems)
    document["stages"] = [
        {"name": figure.name, "seconds": figure.seconds, "tasks": figure.tasks, "skew": round(figure.skew, 2)}
        for figure in figures
    ]
    document["start_seconds"] = start_seconds
    return Report(document, [report.build_id], lambda: list(_build_lines(report, figures, start_seconds)))


def _build_lines(report: BuildReport, figures: Sequence[StageFigures], start_seconds: float | None) -> Iterator[str]:
    yield f"build {report.build_id} is {report.state}"
    parts = [count_text(report.packages, "package"), f"{report.published:,} published", f"{report.present:,} present"]
    if report.first_offset is not None:
        parts.append(f"offsets {report.first_offset} to {report.last_offset}")
    yield f"  packages  {', '.join(parts)}"
    if report.built:
        content, stored = bytes_text(report.content_bytes), bytes_text(report.stored_bytes)
        yield f"  built     {report.built:,}: {count_text(report.nodes, 'node')}, {content}, {stored} stored"
    times = [f"{name} {seconds_text(seconds)}" for name, seconds in report.stage_seconds.items()]
    if start_seconds is not None:
        times.append(f"{seconds_text(start_seconds)} of it to start Spark")
    if times:
        yield f"  time      {', '.join(times)}"
    worst: dict[str, StageFigures] = {}
    for figure in figures:
        if figure.name not in worst or figure.skew > worst[figure.name].skew:
            worst[figure.name] = figure
    skews = [f"{name} {stage.skew:.1f} over {count_text(stage.tasks, 'task')}" for name, stage in worst.items()]
    if skews:
        yield f"  skew      {', '.join(skews)}"
    yield from _left_out_lines(report.problems)


def status_report(found: Sequence[BuildView], unfinished: Sequence[Build] = ()) -> Report:
    """What the log holds of builds, and those that were begun of which it holds nothing yet."""
    document = {
        "builds": document_of(found),
        "unfinished": [
            {
                "build_id": build.build_id,
                "publisher": build.recipe.publisher,
                "state": build.state.value,
                "packages": build.bins,
                "source": build.recipe.source,
                "created_at": time_text(moment_of(build.created_ms)),
            }
            for build in unfinished
        ],
    }
    names = [*(build.build_id for build in found), *(build.build_id for build in unfinished)]
    return Report(document, names, lambda: list(_status_blocks(found, unfinished)))


def _status_blocks(found: Sequence[BuildView], unfinished: Sequence[Build]) -> Iterator[Block]:
    columns = (
        Column("BUILD"),
        Column("PUBLISHER", can_cut=True),
        Column("STATE"),
        Column("PUBLISHED", is_number=True),
        Column("SIZE", is_number=True),
        Column("IMPORTED", can_fold=True),
    )
    rows = [
        (
            build.build_id,
            build.publisher,
            build.state,
            f"{build.published:,}/{build.total:,}",
            bytes_text(build.package_bytes),
            "; ".join(map(_follower_text, build.subscribers)) or ABSENT,
        )
        for build in found
    ]
    if found or not unfinished:
        yield Table(columns, rows, empty="the log holds no build")
    for build in unfinished:
        yield (
            f"{build.build_id} is unfinished ({build.state}): {count_text(build.bins, 'package')} of "
            f"{build.recipe.source}; run its command again, or: mailboat bulk forget {build.build_id}"
        )


def _follower_text(one: BuildFollowerView) -> str:
    missed = {"skipped": one.skipped, "dropped": one.dropped, "given up": one.given_up, "unknown": one.unknown}
    counts = [f"{one.imported:,}", *(f"{count:,} {name}" for name, count in missed.items() if count)]
    return f"{one.name} {', '.join(counts)} ({one.state})"


def differences_report(found: Sequence[TargetDifference], targets: Sequence[str]) -> Report:
    """Where targets differ from the source."""
    document: dict[str, Any] = {"differences": [difference._asdict() for difference in found], "targets": list(targets)}
    return Report(document, [difference.path for difference in found], lambda: list(_difference_blocks(found, targets)))


def _difference_blocks(found: Sequence[TargetDifference], targets: Sequence[str]) -> Iterator[Block]:
    if not found:
        yield (
            f"{count_text(len(targets), 'target')} equal the source"
            if len(targets) > 1
            else "the target equals the source"
        )
        return
    columns = (Column("TARGET", can_cut=True), Column("DIFFERENCE"), Column("PATH"), Column("DETAILS", can_fold=True))
    rows = [
        (difference.target, difference.kind, difference.path, " ".join(difference.details) or ABSENT)
        for difference in found[:_SHOWN]
    ]
    yield Table(columns, rows)
    if len(found) > _SHOWN:
        yield f"… {count_text(len(found) - _SHOWN, 'more difference')}; all of them with -o json"
