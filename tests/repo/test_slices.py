"""`tests/slices.toml` is complete: no long test is outside of the slices, and no source file triggers none of them."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import stages

NEEDS_NO_SLICE = ("tests/e2e/", "tests/kind/")
"""What `make e2e` runs."""
KEYS = {"name", "what", "sources", "select", "minutes", "workers", "pythons", "manual", "programs"}
HAVE_NO_MARKED_TESTS = {
    "spark-versions",
    "coverage-unit",
    "coverage-integration-a-c",
    "coverage-integration-d-z",
    "coverage-faults-k-r",
    "coverage-faults-others",
    "coverage-operator-a-o",
    "coverage-operator-p-z",
    "public-packages-others",
    "python-3.12",
    "python-3.13",
    "lowest",
}
"""Slices that run the tests of `make test` in another way."""


@pytest.fixture(scope="module")
def table(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "tests/slices.toml").read_text())


def matching(root: Path, patterns: list[str]) -> set[str]:
    found = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    done = subprocess.run(
        [*found, *(f":(glob){pattern}" for pattern in patterns)], cwd=root, capture_output=True, check=True
    )
    return set(done.stdout.decode().split("\0")) - {""}


def marked(test_modules: list[Any]) -> dict[str, set[str]]:
    """Which files mark tests for each slice."""
    found = dict[str, set[str]]()
    for module in test_modules:
        for call in (node for node in module.nodes if isinstance(node, ast.Call)):
            if ast.unparse(call.func) == "pytest.mark.long" and isinstance(call.args[0], ast.Constant):
                found.setdefault(str(call.args[0].value), set()).add(module.name)
    return found


def test_slices_have_different_names_and_the_keys_of_the_head_comment(table: dict[str, Any]) -> None:
    names = [slice_["name"] for slice_ in table["slice"]]
    assert len(set(names)) == len(names)
    for slice_ in table["slice"]:
        assert {"name", "what", "sources", "select", "minutes"} <= set(slice_) <= KEYS


def test_every_pattern_matches_a_file(table: dict[str, Any], root: Path) -> None:
    patterns = [
        *table["everything"],
        *table["e2e"]["sources"],
        *(pattern for slice_ in table["slice"] for pattern in slice_["sources"]),
    ]
    assert [pattern for pattern in patterns if not matching(root, [pattern])] == []


def test_every_product_and_test_file_triggers_a_slice(table: dict[str, Any], root: Path) -> None:
    triggers = matching(
        root, [*table["everything"], *(pattern for slice_ in table["slice"] for pattern in slice_["sources"])]
    )
    watched = matching(root, ["agent_image/**/*.py", "operator/**/*.py", "tests/**/*.py", "tests/**/*.java"])
    assert sorted(item for item in watched - triggers if not item.startswith(NEEDS_NO_SLICE)) == []


def test_every_marked_test_is_selected_by_its_slice(table: dict[str, Any], test_modules: list[Any]) -> None:
    selected = {slice_["name"]: slice_["select"] for slice_ in table["slice"]}
    for name, files in marked(test_modules).items():
        assert {f"--long={name}", "--full-length"} & set(selected[name])
        outside = [file for file in files if not any(file.startswith(folder) for folder in selected[name])]
        assert outside == [], f"slice {name} does not select them"


def imported(module: Any) -> set[str]:
    """The modules that a file imports, anywhere in it, as paths from the root of the repository."""
    names = set[str]()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return {
        f"{folder}/{name.replace('.', '/')}.py" for name in names for folder in ("agent_image", "operator", "tests")
    }


def test_modules_that_long_tests_import_trigger_their_slice(
    table: dict[str, Any], test_modules: list[Any], root: Path
) -> None:
    modules, marks = {test_module.name: test_module for test_module in test_modules}, marked(test_modules)
    missing = dict[str, list[str]]()
    for slice_ in table["slice"]:
        files = marks.get(slice_["name"], set())
        used = files.union(*(imported(modules[file]) for file in files))
        # what their support does is part of them
        used |= set[str]().union(*(imported(modules[file]) for file in used & set(modules)))
        known = {file for file in used if (root / file).is_file()}
        missing[slice_["name"]] = sorted(known - matching(root, [*table["everything"], *slice_["sources"]]))
    assert {name: files for name, files in missing.items() if files} == {}


def test_slices_that_share_a_folder_run_each_of_its_files_once(table: dict[str, Any], root: Path) -> None:
    coverage = [slice_["select"] for slice_ in table["slice"] if "--cov" in slice_["select"]]
    for folder in ("integration", "faults", "operator", "fuzz", "unit", "contract", "golden", "repo"):
        for file in (root / "tests" / folder).rglob("test_*.py"):
            selecting = [
                words
                for words in coverage
                if f"tests/{folder}" in words
                and not any(fnmatch(str(file), word.removeprefix("--ignore-glob=")) for word in words)
            ]
            assert len(selecting) == 1, file


def test_slices_of_one_marker_take_complementary_expressions(table: dict[str, Any]) -> None:
    found = dict[str, list[str]]()
    for words in (slice_["select"] for slice_ in table["slice"] if "-k" in slice_["select"]):
        marker = next(word for word in words if word.startswith("--long="))
        found.setdefault(marker, []).append(words[words.index("-k") + 1])
    assert found
    for expression, *others in found.values():
        assert others == [f"not {expression}"]


def test_every_slice_of_marked_tests_has_some(table: dict[str, Any], test_modules: list[Any]) -> None:
    names = {slice_["name"] for slice_ in table["slice"]}
    assert names - set(marked(test_modules)) == HAVE_NO_MARKED_TESTS


def test_the_continuous_check_has_time_for_every_automatic_slice(table: dict[str, Any], root: Path) -> None:
    limit = re.search(r"left > \d+ \? left : (\d+)", (root / ".ci/run").read_text())
    assert limit is not None
    longest = int(limit[1]) / stages.SCATTER
    assert [slice_["name"] for slice_ in table["slice"] if "manual" not in slice_ and slice_["minutes"] > longest] == []


def test_a_slice_is_automatic_or_says_why_it_is_not(table: dict[str, Any]) -> None:
    assert [slice_["name"] for slice_ in table["slice"] if slice_.get("manual") == ""] == []
