"""What the commands of `mailboat bulk` print, word by word."""

from __future__ import annotations

import io
import json
from pathlib import Path

from mailboat.api.records import BuildFollowerView, BuildView
from mailboat.bulk.build_records import BuildProblem, Recipe
from mailboat.bulk.build_registry import Build
from mailboat.bulk.build_reports import BuildReport
from mailboat.bulk.cut_summary import CutSummary, NameCollisions, summary_of
from mailboat.bulk.cutter import Bin, BinKind, Budget
from mailboat.bulk.source_branches import cut_whole
from mailboat.bulk.spark.stages import StageFigures
from mailboat.bulk.spark.verification import TargetDifference
from mailboat.cli.bulk_reports import build_report, differences_report, plan_report, status_report
from mailboat.cli.output import Output, Report, show
from mailboat.content.listed_nodes import UnlistedEntry
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import PathRefusedError
from mailboat.model.identifiers import BuildId, Offset
from mailboat.model.paths import ROOT, NodePath
from support.engines import write_site

BUILT = BuildReport(
    BuildId("release-7"),
    "complete",
    packages=1_102,
    total=1_001,
    published=1_001,
    present=101,
    built=1_001,
    nodes=20_000,
    content_bytes=67_000_000,
    stored_bytes=17_000_000,
    first_offset=Offset(5),
    last_offset=Offset(1_005),
    stage_seconds={"cut": 0.2, "build": 95.0, "close": 0.01, "publish": 1.5},
)
EDGE = BuildFollowerView("edge-1", 40, "current")
WEST = BuildFollowerView("west", 37, "new", dropped=2)


def lines_of(report: Report) -> list[str]:
    """What people read."""
    into = io.StringIO()
    show(report, Output.TABLE, into)
    return [line.rstrip() for line in into.getvalue().splitlines()]


def problems(count: int) -> tuple[BuildProblem, ...]:
    return tuple(BuildProblem(NodePath(f"/p{number}"), "PathRefused", "a socket") for number in range(count))


def test_a_plan_shows_its_largest_packages_and_what_is_left_out() -> None:
    bins = [
        Bin(BinKind.SKELETON, (NodePath("/"),), 0, 1, b"s" * 32),
        Bin(BinKind.CONTENT, (NodePath("/a"), NodePath("/b")), 2_000_000, 1_500, b"a" * 32),
        Bin(BinKind.CONTENT, (NodePath("/c"),), 3_000, 2, b"c" * 32),
    ]
    summary = summary_of([*bins, UnlistedEntry(NodePath("/odd"), PathRefusedError("a pipe"))])
    assert lines_of(plan_report(summary)) == [
        "3 packages: 1 split folder, 2 complete subtrees; 1,503 nodes, 2.0 MB",
        "LARGEST PACKAGES   CONTENT   NODES   PATHS",
        "/a                  2.0 MB   1,500       2",
        "/c                  3.0 kB       2       1",
        "/                      0 B       1       1",
        "left out, and not removed anywhere: 1 path",
        "  /odd  PathRefused: a pipe",
    ]


def test_a_plan_of_nothing_says_so() -> None:
    assert lines_of(plan_report(CutSummary(0, 0, 0, 0, 0, (), ())))[-1] == "nothing to build"


def test_a_build_tells_packages_bytes_times_and_skew() -> None:
    figures = [
        StageFigures("cut", 0.2, 8, 0.1, 0.1),
        StageFigures("build", 50.0, 8, 6.0, 5.0),
        StageFigures("build", 45.0, 8, 9.0, 5.0),
    ]
    assert lines_of(build_report(BUILT, figures, 4.2)) == [
        "build release-7 is complete",
        "  packages  1,102 packages, 1,001 published, 101 present, offsets 5 to 1005",
        "  built     1,001: 20,000 nodes, 67 MB, 17 MB stored",
        "  time      cut 200 ms, build 95 s, close 10 ms, publish 1.5 s, 4.2 s of it to start Spark",
        "  skew      cut 1.0 over 8 tasks, build 1.8 over 8 tasks",
    ]


def test_a_build_that_had_nothing_to_do_is_short() -> None:
    again = BuildReport(BuildId("release-7"), "complete", packages=3, present=3, stage_seconds={"cut": 0.1})
    assert lines_of(build_report(again, [])) == [
        "build release-7 is complete",
        "  packages  3 packages, 0 published, 3 present",
        "  time      cut 100 ms",
    ]
    named = BuildReport(BuildId("release-7"), "complete", packages=3, present=3)
    assert lines_of(build_report(named, [])) == lines_of(build_report(again, []))[:2]


def test_of_very_many_problems_the_first_are_shown_and_all_are_in_the_document() -> None:
    report = BuildReport(BuildId("b"), "complete", packages=1, stage_seconds={"cut": 0.1}, problems=problems(25))
    lines = lines_of(build_report(report, []))
    assert lines[3] == "left out, and not removed anywhere: 25 paths"
    assert lines[4] == "  /p0  PathRefused: a socket"
    assert lines[-1] == "  … 5 more paths"
    into = io.StringIO()
    show(build_report(report, [StageFigures("build", 2.0, 4, 1.5, 1.0)], 4.0), Output.JSON, into)
    document = json.loads(into.getvalue())
    assert document["problems"][24] == {"path": "/p24", "name": "PathRefused", "message": "a socket"}
    assert document["stages"] == [{"name": "build", "seconds": 2.0, "tasks": 4, "skew": 1.5}]
    assert (document["build_id"], document["start_seconds"]) == ("b", 4.0)


def test_status_shows_each_build_and_how_far_everyone_is() -> None:
    builds = [
        BuildView("release-7", "author", "published", 40, 40, 3_000_000, 0, 39, 1, 2, (EDGE,)),
        BuildView("release-9", "author", "incomplete", 40, 40, 90, 0, 39, 1, 2, (EDGE, WEST)),
        BuildView("release-8", "author", "publishing", 1_200, 4_000, 90, 40, 1_239, 3, 4),
    ]
    assert lines_of(status_report(builds)) == [
        "BUILD       PUBLISHER   STATE          PUBLISHED     SIZE   IMPORTED",
        "release-7   author      published          40/40   3.0 MB   edge-1 40 (current)",
        "release-9   author      incomplete         40/40     90 B   edge-1 40 (current); west 37, 2 dropped (new)",
        "release-8   author      publishing   1,200/4,000     90 B   -",
    ]
    assert lines_of(status_report([])) == ["the log holds no build"]


def test_differences_are_a_table_or_one_line() -> None:
    assert lines_of(differences_report([], ["files:/a"])) == ["the target equals the source"]
    assert lines_of(differences_report([], ["files:/a", "files:/b"])) == ["2 targets equal the source"]
    found = [TargetDifference("files:/a", f"/p{number:02}", "changed", ("type",)) for number in range(22)]
    found[1] = TargetDifference("files:/a", "/p01", "missing")
    lines = lines_of(differences_report(found, ["files:/a"]))
    assert lines[:3] == [
        "TARGET     DIFFERENCE   PATH   DETAILS",
        "files:/a   changed      /p00   type",
        "files:/a   missing      /p01   -",
    ]
    assert lines[-1] == "… 2 more differences; all of them with -o json"


def test_a_plan_shows_names_that_differ_in_case(tmp_path: Path) -> None:
    write_site(
        tmp_path,
        {"a/Readme.txt": "x", "a/README.txt": "y", "b/one": "1", "B/two": "2", "c/e\u0301": "1", "c/\u00e9": "2"},
    )
    found = summary_of_folder(tmp_path, Budget())
    assert [item.path for item in found.refused] == ["/a/Readme.txt", "/b", "/c/\u00e9"]
    assert lines_of(plan_report(found))[-4:] == [
        "disks that ignore case refuse, and so does a build with limits.refuse_collisions:",
        "  /a/Readme.txt  LimitExceeded: 'README.txt' and 'Readme.txt' differ in case or Unicode form only",
        "  /b  LimitExceeded: 'B' and 'b' differ in case or Unicode form only",
        "  /c/\u00e9  LimitExceeded: 'e\u0301' and '\u00e9' differ in case or Unicode form only",
    ]
    assert summary_of_folder(tmp_path, Budget(1, 1)).refused == ()


def summary_of_folder(folder: Path, budget: Budget) -> CutSummary:
    collisions = NameCollisions()
    return summary_of(cut_whole(FolderSource(folder), [ROOT], budget, collisions.watch), collisions)


def test_status_shows_builds_that_were_begun_and_not_ended() -> None:
    recipe = Recipe("/srv/site", (ROOT,), publisher="author")
    report = status_report([], [Build(BuildId("release-8"), recipe, 5, bins=39)])
    (line,) = lines_of(report)
    assert line.startswith("release-8 is unfinished (building): 39 packages of /srv/site; run its command again")
    assert report.document["unfinished"][0] == {
        "build_id": "release-8",
        "publisher": "author",
        "state": "building",
        "packages": 39,
        "source": "/srv/site",
        "created_at": "1970-01-01T00:00:00.005Z",
    }
