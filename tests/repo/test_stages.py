"""The runner of `make test` and `make test-long` decides what is due and what is too much."""

from __future__ import annotations

from pathlib import Path

import build_compiled
import pytest
import stages


def test_a_slice_that_never_passed_is_due() -> None:
    assert stages.plan_due({"spark": "1"}, {}) == [("spark", "never passed here")]


def test_changed_slices_run_before_the_one_in_rotation() -> None:
    passed = {
        "spark": stages.Passed("1", "2026-01-03", 60),
        "java": stages.Passed("1", "2026-01-02", 60),
        "figures": stages.Passed("1", "2026-01-01", 60),
    }
    due = stages.plan_due({"spark": "2", "java": "1", "figures": "1"}, passed)
    assert due == [("spark", "its sources changed"), ("figures", "in rotation")]


def test_slices_that_passed_longest_ago_run_first() -> None:
    passed = {name: stages.Passed("1", at, 60) for name, at in (("a", "2026-01-02"), ("b", "2026-01-01"))}
    assert [name for name, _ in stages.plan_due({"a": "2", "b": "2", "c": "2"}, passed)] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("cpu", "wall", "others", "expected"),
    [
        (1.0, 1.0, 0.0, ""),
        (1.1, 0.5, 0.0, "CPU"),
        (1.1, 0.5, 0.4, ""),
        (1.4, 0.5, 0.4, "CPU"),
        (0.5, 1.1, 0.0, "time"),
        (0.5, 1.1, 0.4, ""),
    ],
)
def test_budgets_grow_with_what_other_processes_use(cpu: float, wall: float, others: float, expected: str) -> None:
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
