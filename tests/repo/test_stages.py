"""The runner of `make test` and `make test-long` decides what is due and what is too much."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import build_compiled
import property_constants
import pytest
import rewritten_tests
import stages
import yardstick
from hypothesis.configuration import storage_directory


def test_a_slice_that_never_passed_is_due() -> None:
    assert stages.plan_due({"spark": "1"}, {}) == [("spark", "never passed here")]


def test_changed_slices_run_before_the_one_in_rotation() -> None:
    passed = {
        "spark": stages.Record("1", "2026-01-03", 60),
        "java": stages.Record("1", "2026-01-02", 60),
        "figures": stages.Record("1", "2026-01-01", 60),
    }
    due = stages.plan_due({"spark": "2", "java": "1", "figures": "1"}, passed)
    assert due == [("spark", "its sources changed"), ("figures", "in rotation")]


def test_slices_that_passed_longest_ago_run_first() -> None:
    passed = {name: stages.Record("1", at, 60) for name, at in (("a", "2026-01-02"), ("b", "2026-01-01"))}
    assert [name for name, _ in stages.plan_due({"a": "2", "b": "2", "c": "2"}, passed)] == ["c", "b", "a"]


@pytest.mark.parametrize(("first", "expected"), [(0, "abc"), (1, "bca"), (5, "cab")])
def test_slices_without_records_begin_where_the_commit_says(first: int, expected: str) -> None:
    assert "".join(name for name, _ in stages.plan_due(dict.fromkeys("abc", "1"), {}, first)) == expected


def test_the_first_slice_is_not_moved_before_those_that_the_limit_ended() -> None:
    records = {"a": stages.Record(seconds=60, is_unfinished=True), "b": stages.Record("1", "2026-01-01")}
    due = stages.plan_due(dict.fromkeys("abc", "1"), records, 2)
    assert [name for name, _ in due] == ["a", "c", "b"]


def test_the_commit_chooses_a_slice() -> None:
    assert stages.commit_number() == stages.commit_number() > 0


def test_e2e_runs_again_when_its_sources_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = list[str]()

    def run(stage: stages.Stage) -> stages.Cost:
        ran.append(" ".join(stage.command))
        return stages.Cost(stage.name, 1.0, 2.0, len(ran) - 1)  # the first run passes

    monkeypatch.setattr(stages, "RECORDS", tmp_path / "slices.json")
    monkeypatch.setattr(stages, "run", run)
    monkeypatch.setattr(stages, "read_table", lambda: {"e2e": {"sources": ["Makefile"]}})
    assert [stages.run_e2e(), stages.run_e2e(), len(ran)] == [0, 0, 1]
    assert "it passed on these sources" in capsys.readouterr().out
    monkeypatch.setattr(stages, "read_table", lambda: {"e2e": {"sources": ["Makefile", "README.md"]}})
    assert [stages.run_e2e(), stages.run_e2e(), len(ran)] == [1, 1, 3], "what failed is not recorded"


@pytest.mark.parametrize(
    ("cpu", "wall", "others", "expected"),
    [
        (1.0, 1.0, 0.0, ""),
        (1.1, 0.5, 0.0, "CPU"),
        (1.1, 0.5, 0.9, "CPU"),
        (0.5, 1.1, 0.0, "time"),
        (0.5, 1.1, 0.4, ""),
    ],
)
def test_time_is_limited_on_a_quiet_machine_and_cpu_on_every_one(
    cpu: float, wall: float, others: float, expected: str
) -> None:
    found = stages.excess(cpu * stages.CPU_BUDGET_SECONDS, wall * stages.WALL_BUDGET_SECONDS, others)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_the_digest_of_a_slice_follows_its_sources() -> None:
    assert stages.digest_of(["tools/*.py"]) != stages.digest_of(["tools/*.py", "Makefile"])
    assert stages.digest_of(["Makefile", "README.md"]) == stages.digest_of(["README.md", "Makefile"])


def test_what_decides_about_compiled_code_is_the_listed_modules_and_their_imports(root: Path) -> None:
    modules = build_compiled.listed_modules()
    files = {path.relative_to(root / "agent_image").as_posix() for path in build_compiled.imported_files(modules)}
    assert set(modules) <= files
    assert "mailboat/model/paths.py" in files
    assert not any(name.startswith("mailboat/cli/") for name in files)


def test_budgets_grow_on_a_slower_machine() -> None:
    cpu, wall = 1.4 * stages.CPU_BUDGET_SECONDS, 1.4 * stages.WALL_BUDGET_SECONDS
    assert stages.excess(cpu, wall, 0.0, slow=1.5) == ""
    assert stages.excess(cpu, wall, 0.0, slow=1.3).startswith("CPU")


OLD = stages.Record("same", "2026-01-01T00:00:00+00:00", 100.0)
NEW = stages.Record("same", "2026-02-01T00:00:00+00:00", 100.0)


def test_a_slice_that_the_limit_ended_runs_first() -> None:
    records = {"a": NEW, "b": stages.Record("1", OLD.at), "c": stages.Record("same", NEW.at, 5.0, is_unfinished=True)}
    due = stages.plan_due(dict.fromkeys("abc", "same"), records)
    assert due == [("c", "not finished last time"), ("b", "its sources changed"), ("a", "in rotation")]


@pytest.mark.parametrize(
    ("record", "minutes", "left_seconds", "starts"),
    [
        pytest.param(OLD, 60, 119.0, False, id="passed-and-too-little-time"),
        pytest.param(OLD, 60, 120.0, True, id="passed-and-enough-time"),
        pytest.param(OLD, 1, 72.0, True, id="passed-on-a-busy-machine"),
        pytest.param(stages.Record(), 10, 719.0, False, id="unknown-and-too-little-time"),
        pytest.param(stages.Record(), 10, 720.0, True, id="unknown-and-enough-time"),
        pytest.param(stages.Record(seconds=300.0, is_unfinished=True), 1, 300.0, False, id="ended-after-as-long"),
        pytest.param(stages.Record(seconds=300.0, is_unfinished=True), 60, 301.0, True, id="ended-sooner"),
    ],
)
def test_a_slice_starts_only_where_it_has_time(
    record: stages.Record, minutes: float, left_seconds: float, starts: bool
) -> None:
    assert stages.has_time(record, minutes, left_seconds) is starts


def test_the_table_of_slices_shows_when_each_passed_and_what_is_left() -> None:
    names = ("a", "b", "kubernetes-versions")
    known = {name: stages.Slice(name, "", (), (), 1.0, manual="too long" if name == "b" else "") for name in names}
    records = {"a": stages.Record("", "", 300.0, True), "kubernetes-versions": OLD}
    assert stages.state_of(known, dict.fromkeys(names, "same"), records).splitlines() == [
        "SLICE                LAST PASSED                SINCE THEN",
        "a                    never on this machine      not finished within 5 min",
        "b                    never on this machine      not automatic: too long",
        "kubernetes-versions  2026-01-01T00:00:00+00:00  unchanged",
    ]


@pytest.mark.parametrize("words", [["long", "--workers", "3", "spark"], ["long", "spark", "--workers", "3"]])
def test_slices_are_named_before_or_after_options(words: list[str]) -> None:
    options = stages.options_of(words)
    assert (options.run, options.slices, options.workers) == ("long", ["spark"], 3)


@pytest.mark.parametrize(
    ("changes", "builds"),
    [({}, ["programs", "compile"]), ({"pythons": ("3.12",)}, ["programs"]), ({"select": ("--cov",)}, ["programs"])],
)
def test_only_slices_of_compiled_tests_compile(changes: dict[str, Any], builds: list[str]) -> None:
    one = replace(stages.Slice("a", "", (), ("tests",), 1.0), **changes)
    assert [stage.name for stage in stages.preparations_of(one)] == [f"a {name}" for name in builds]


def test_a_stage_is_ended_at_its_limit() -> None:
    assert stages.run(stages.Stage("sleeper", ("sleep", "60")), 0.1).code is None


@pytest.mark.parametrize(
    ("codes", "is_changed", "expected"),
    [
        ([0, 0], False, stages.Record("new", "now", 60.0)),
        ([0, 0], True, None),
        ([0, 1], False, None),
        ([0, None], False, replace(OLD, seconds=60.0, is_unfinished=True)),
        ([0, None], True, replace(OLD, seconds=60.0, is_unfinished=True)),
    ],
)
def test_a_slice_is_recorded_as_passed_if_all_passed_on_the_same_sources(
    codes: list[int | None], is_changed: bool, expected: stages.Record | None
) -> None:
    costs = [stages.Cost("a", 1.0, 1.0, code) for code in codes]
    passed = stages.Record("new", "now", 60.0)
    assert stages.record_after(OLD, costs, passed, is_changed=is_changed) == expected


def test_a_slice_is_due_again_where_the_floor_of_coverage_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"name": "part", "what": "a part", "sources": ["README.md"], "select": ["--cov"], "minutes": 1}
    codes = [2, 0]
    monkeypatch.setattr(stages, "RECORDS", tmp_path / "slices.json")
    monkeypatch.setattr(stages, "run", lambda stage, _limit=None: stages.Cost(stage.name, 1.0, 1.0, 0))
    monkeypatch.setattr(stages, "read_table", lambda: {"everything": ["Makefile"], "slice": [part]})
    monkeypatch.setattr(stages, "check_coverage", lambda *_: stages.Cost("floor", 1.0, 1.0, codes.pop(0)))
    assert stages.run_long([], only_due=False, minutes=None, workers=1) == 1
    assert stages.read_records() == {}
    assert stages.run_long([], only_due=False, minutes=None, workers=1) == 0
    assert set(stages.read_records()) == {"part"}


def test_coverage_of_old_sources_is_removed(tmp_path: Path) -> None:
    for name, changed in (("newest", 3), ("oldest", 0), ("new", 1), ("newer", 2)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (changed, changed))
    stages.remove_old_folders(tmp_path, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "newer", "newest"}


def test_the_pace_of_a_machine_is_measured_while_others_work() -> None:
    with yardstick.Pace(interval_seconds=0.001) as pace:
        yardstick.work(rounds=20)
    assert 1.0 <= pace.slowness < 20.0


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([2.0] * 20, 2.0, id="slow-all-the-time"),
        pytest.param([1.0] * 10 + [2.0] * 10, 1.5, id="slow-half-of-the-time"),
        pytest.param([1.0, 1.1, 1.2, 1.3, 7.5], 1.2, id="one-false-sample-of-five"),
        pytest.param([1.0] * 8 + [7.5] * 2, 1.0, id="a-fifth-of-the-samples-false"),
        pytest.param([0.5] * 5, 1.0, id="a-faster-machine"),
    ],
)
def test_the_pace_follows_lasting_slowness_and_no_single_sample(samples: list[float], expected: float) -> None:
    seconds = [sample * yardstick.REFERENCE_SECONDS for sample in samples]
    assert yardstick.slowness_of(seconds) == pytest.approx(expected)
    assert yardstick.slowness_of(seconds) <= max(1.0, statistics.fmean(samples) + 1e-9)


def test_a_block_too_short_for_samples_takes_them_at_its_end() -> None:
    ahead = iter([7.5, 1.5, 1.5, 1.5, 1.5])
    with yardstick.Pace(60.0, lambda: next(ahead) * yardstick.REFERENCE_SECONDS) as pace:
        pass
    assert pace.slowness == pytest.approx(1.5)
    assert pace.cpu_seconds == pytest.approx(13.5 * yardstick.REFERENCE_SECONDS)


def test_assertions_are_rewritten_once_for_each_text_of_a_module(tmp_path: Path) -> None:
    module = tmp_path / "test_some.py"
    module.write_text("def test_it() -> None:\n    assert 1\n")
    assert [rewritten_tests.rewrite_stale(module) for _ in range(2)] == [True, False]
    module.write_text("def test_it() -> None:\n    assert 2\n")
    assert rewritten_tests.rewrite_stale(module)


def test_constants_of_a_module_are_kept_by_its_text(tmp_path: Path) -> None:
    module = tmp_path / "some.py"
    module.write_text('PLACE = "a text of this test"\n')
    assert property_constants.keep_constants(module) == 1
    digest = hashlib.sha1(module.read_bytes(), usedforsecurity=False).hexdigest()[:16]
    assert (storage_directory("constants").path / digest).exists()


def test_what_is_rewritten_is_taken_by_pytest(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    module = tmp_path / "test_some.py"
    module.write_text("def test_it() -> None:\n    assert 1\n")
    rewritten_tests.rewrite_stale(module)
    (kept,) = (tmp_path / "__pycache__").iterdir()
    before = kept.stat()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (after,) = (tmp_path / "__pycache__").glob("test_some*")
    assert (after.name, after.stat().st_ino) == (kept.name, before.st_ino), "pytest has rewritten it again"
