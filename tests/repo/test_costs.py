"""Few tests may cost more than `tests/budgets.toml` allows, and each says why."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

COSTLY_TESTS = 7
"""Whoever marks another test makes one of these cheap."""
NOT_LIMITED = {"e2e"}
"""Runs where nothing else does."""


def reasons(test_modules: list[Any]) -> list[str]:
    calls = (call for module in test_modules for call in module.nodes if isinstance(call, ast.Call))
    return [ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "pytest.mark.costly"]


def test_few_tests_are_costly_and_each_has_a_reason(test_modules: list[Any]) -> None:
    found = reasons(test_modules)
    assert all(len(reason.split()) > 3 for reason in found), found
    assert len(found) == COSTLY_TESTS


def test_every_folder_with_tests_has_a_limit_and_a_budget(root: Path) -> None:
    budgets = tomllib.loads((root / "tests/budgets.toml").read_text())
    folders = {path.parent.name for path in (root / "tests").glob("*/test_*.py")} - NOT_LIMITED
    assert set(budgets["limits"]) == set(budgets["folders"]) == folders
