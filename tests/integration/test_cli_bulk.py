"""`mailboat bulk plan`, `status` and `forget`, sizes, and a machine without Spark. Builds have tests of their own."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mailboat.bulk.assembly import ports_for, recipe_for
from mailboat.bulk.build_records import BinResult, BuildRequest, Recipe
from mailboat.bulk.build_reports import BuildReport
from mailboat.bulk.build_run import BuildOrder, BuildRun
from mailboat.bulk.cutter import Bin, Budget
from mailboat.cli.bulk import parse_size
from mailboat.cli.spark_driver import BulkProgress, progress_bar
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.errors import BlobMissingError, UsageError
from mailboat.model.identifiers import BuildId
from mailboat.model.paths import ROOT
from mailboat.testing.clocks import ManualClock
from support.bulk_scenario import LocalStages
from support.engines import write_site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site that is cut into some packages."""
    files: dict[str, str | bytes] = {f"{letter}/{number}.html": letter * 600 for letter in "ab" for number in range(9)}
    write_site(tmp_path / "site", {**files, "big.bin": b"x" * 100_000})
    return tmp_path / "site"


def build(boat: Any, site: Path, build_id: str = "release-7") -> BuildReport:
    """A build without Spark, into the home of command lines."""
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(site), [ROOT], Budget(3_000, 4)))
        ports = ports_for(workspace, LocalStages(workspace.blobs, workspace.codecs))
        return BuildRun(BuildOrder(recipe, BuildId(build_id)), ports).run()


def test_a_plan_needs_no_home_and_tells_how_the_tree_would_be_cut(new_boat: Any, site: Path) -> None:
    plan = new_boat.json("bulk", "plan", site, "--budget", "3kB", "--nodes", "4")
    assert plan["packages"] == plan["skeleton"] + plan["content"]
    assert (plan["skeleton"], plan["nodes"], plan["content_bytes"]) == (1, 21, 110_800)
    assert plan["largest"][0] == {
        "kind": "content",
        "first_root": "/big.bin",
        "roots": 1,
        "nodes": 1,
        "content_bytes": 100_000,
    }
    shown = new_boat.do("bulk", "plan", site)
    assert shown.lines[0] == "1 package: 0 split folders, 1 complete subtree; 21 nodes, 111 kB"
    assert new_boat.do("bulk", "plan", site, "/a", "-o", "name").lines == ["/a"]


def test_a_plan_names_what_can_not_be_read_and_ends_with_1(new_boat: Any, site: Path) -> None:
    (site / "a/outside").symlink_to("/")
    ran = new_boat.run("bulk", "plan", site)
    assert ran.code == 1
    assert "left out, and not removed anywhere: 1 path" in ran.out
    assert "/a/outside  PathRefused: " in ran.out


def test_a_build_that_left_something_out_ends_with_1_unless_that_is_allowed(boat: Any, site: Path) -> None:
    (site / "a/outside").symlink_to("/")
    left_out = "left out, and not removed anywhere: 1 path"
    for _ in range(2):  # a repetition lists the tree again, and comes to the same
        ran = boat.run("bulk", "build", site, "--build-id", "release-7")
        assert (ran.code, left_out in ran.out) == (1, True)
    assert left_out in boat.do("bulk", "build", site, "--build-id", "release-7", "--allow-unreadable").out


def test_a_plan_names_what_only_a_strict_build_refuses_and_ends_with_0(new_boat: Any, site: Path) -> None:
    (site / "Big.bin").write_text("differs in case only")
    shown = new_boat.do("bulk", "plan", site)
    assert "so does a build with limits.refuse_collisions" in shown.out
    assert [each["path"] for each in new_boat.json("bulk", "plan", site)["refused"]] == ["/big.bin"]


def test_status_tells_of_each_build_what_is_published_and_who_has_it(boat: Any, site: Path, tmp_path: Path) -> None:
    assert boat.do("bulk", "status").lines == ["the log holds no build"]
    report = build(boat, site)
    (one,) = boat.json("bulk", "status")["builds"]
    assert (one["build_id"], one["state"], one["published"], one["total"]) == (
        "release-7",
        "published",
        report.total,
        report.total,
    )
    assert (one["first_offset"], one["last_offset"], one["subscribers"]) == (0, report.total - 1, [])
    boat.do("subscribe", "edge", "--into", f"files:{tmp_path / 'edge'}", "--until", "caught-up")
    (one,) = boat.json("bulk", "status", "release-7")["builds"]
    assert one["state"] == "distributed"
    assert [(each["name"], each["imported"]) for each in one["subscribers"]] == [("edge", report.total)]
    assert boat.do("bulk", "status", "-o", "name").lines == ["release-7"]
    assert boat.run("bulk", "status", "none").code == 2


class SlowStages(LocalStages):
    """When the tree is built, two hours have passed, and a sweep has removed the first package."""

    def __init__(self, workspace: Workspace, clock: ManualClock) -> None:
        super().__init__(workspace.blobs, workspace.codecs)
        self._swept = workspace.blobs
        self._clock = clock

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        yield from super().build(recipe, bins)
        self._clock.advance(7200.0)
        self._swept.delete(next(iter(self._swept.list())).digest)


def test_a_build_that_takes_longer_than_blobs_are_kept_publishes_nothing(boat: Any, site: Path) -> None:
    configuration, clock = boat.home / "mailboat.yaml", ManualClock()
    configuration.write_text(re.sub(r"grace_seconds: .*", "grace_seconds: 3600", configuration.read_text()))
    with Workspace(Home(boat.home), clock) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(site), [ROOT], Budget(3_000, 4)))
        with pytest.raises(BlobMissingError, match="nothing more was published"):
            BuildRun(BuildOrder(recipe), ports_for(workspace, SlowStages(workspace, clock))).run()
    assert boat.json("bulk", "status")["builds"] == []


def test_a_forgotten_build_has_no_manifest_and_keeps_what_it_published(boat: Any, site: Path) -> None:
    build(boat, site)
    assert boat.do("bulk", "forget", "release-7").lines == ["release-7 is forgotten"]
    assert list((boat.home / "blobs/builds").iterdir()) == []
    ran = boat.run("bulk", "forget", "release-7")
    assert ran.code == 2
    assert "BuildMissing" in ran.err
    assert boat.do("bulk", "status", "-o", "name").lines == ["release-7"]


def test_a_build_of_which_nothing_can_be_read_is_forgotten_as_any_other(boat: Any, site: Path) -> None:
    build(boat, site)
    build(boat, site, "release-8")
    record = boat.home / "blobs/builds/release-7.build"
    record.write_bytes(record.read_bytes()[:100])
    ran = boat.run("bulk", "forget", "release-9")
    assert ran.code == 2
    assert "builds: release-7, release-8" in ran.err
    assert boat.do("bulk", "forget", "release-8").lines == ["release-8 is forgotten"]
    assert boat.do("bulk", "forget", "release-7").lines == ["release-7 is forgotten"]
    assert list((boat.home / "blobs/builds").iterdir()) == []


def test_a_mistyped_publisher_publishes_nothing(boat: Any, site: Path) -> None:
    with Workspace(Home(boat.home)) as workspace:
        wish = BuildRequest(str(site), [ROOT])
        with pytest.raises(UsageError, match=r"unknown publisher 'nobody' \(publishers: author\)"):
            recipe_for(workspace, wish, "nobody")
        assert recipe_for(workspace, wish, "author").publisher == "author"


def test_a_small_build_starts_no_spark_and_an_unfinished_one_is_shown(
    boat: Any, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.bulk.spark.spark_session.open_session", lambda _: pytest.fail("a session was opened"))
    assert boat.json("bulk", "build", site, "--budget", "3kB")["published"] > 3
    (site / "Big.bin").write_text("differs in case only")
    configuration = boat.home / "mailboat.yaml"
    configuration.write_text(configuration.read_text().replace("refuse_collisions: false", "refuse_collisions: true"))
    ran = boat.run("bulk", "build", site, "--build-id", "release-8")
    assert ran.code == 1
    assert "build  release-8" in ran.err
    assert "release-8 is unfinished (building): 1 package of" in boat.do("bulk", "status").lines[-1]
    assert boat.json("bulk", "status", "release-8")["unfinished"][0]["state"] == "building"


@pytest.mark.parametrize("source", ["s3a://bucket/prefix", "jdbc:postgresql://db"])
def test_what_is_no_source_is_refused_with_what_is(new_boat: Any, source: str) -> None:
    ran = new_boat.run("bulk", "plan", source)
    assert ran.code == 2
    assert "expected a folder, a FileVault checkout or zip, files:DIR, generations:DIR or sqlite:FILE" in ran.err


def test_a_setting_of_spark_needs_a_key_and_a_value(boat: Any, site: Path) -> None:
    ran = boat.run("bulk", "build", site, "--conf", "driver.memory")
    assert ran.code == 2
    assert "invalid --conf 'driver.memory': expected spark.KEY=VALUE" in ran.err


def test_a_publisher_whose_packages_travel_in_the_log_can_not_build_in_bulk(boat: Any, site: Path) -> None:
    configuration = boat.home / "mailboat.yaml"
    configuration.write_text(re.sub(r"transfer: \w+", "transfer: chunks", configuration.read_text()))
    with pytest.raises(UsageError, match="travel through the blob store"):
        build(boat, site)


def test_without_pyspark_the_extra_is_named(boat: Any, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def lacking(name: str, *arguments: Any, **words: Any) -> Any:
        if name == "mailboat.cli.spark_driver" or name.startswith("pyspark"):
            raise ImportError("No module named 'pyspark'")
        return real(name, *arguments, **words)

    monkeypatch.setattr(builtins, "__import__", lacking)
    ran = boat.run("bulk", "build", site)
    assert ran.code == 2
    assert "SparkMissing" in ran.err
    assert f"next  {sys.executable} -m pip install 'mailboat[spark]'\n" in ran.err


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("500kB", 500_000), ("4MiB", 4 * 1024**2), ("1Gi", 1024**3), ("2 m", 2_000_000), ("7B", 7)],
)
def test_sizes_are_written_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "4XB", "1.5MB", "MiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)


class Screen:
    """A stream that says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self.text = ""

    def isatty(self) -> bool:
        return self._is_terminal

    def fileno(self) -> int:
        raise OSError

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing is held back."""


def shown_on(screen: Any) -> str:
    clock = ManualClock()
    progress = BulkProgress(screen, clock)
    progress.begin("cut")
    clock.advance(1)
    progress.advance(40)
    progress.begin("build", 40)
    clock.advance(1)
    progress.advance(10)
    clock.advance(1)
    progress.advance(30)
    progress.end()
    text: str = screen.text
    return text


def test_elsewhere_than_on_a_terminal_each_stage_is_one_line() -> None:
    assert shown_on(Screen(is_terminal=False)).splitlines() == [
        "cutting     40 packages  1.0 s",
        "building    40 of 40 packages  2.0 s",
    ]


def test_a_terminal_shows_a_bar_that_fills() -> None:
    text = shown_on(Screen(is_terminal=True))
    assert f"[{'#' * 6}{'.' * 18}] building    10 of 40 packages" in text
    assert text.endswith("building    40 of 40 packages  2.0 s\n")
    assert progress_bar(3, None) == progress_bar(0, 0) == ""
