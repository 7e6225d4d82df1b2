"""Few tests may cost more than `tests/budgets.toml` allows, and each says why."""

from __future__ import annotations

import ast
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from costs import Costs, excess, folders_beyond
from support.machine_cache import MADE, MAKING

COSTLY_TESTS = 7
"""To mark another test, make one of these cheap."""
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


@pytest.mark.parametrize(
    ("spent", "limit", "slowness", "expected"),
    [
        pytest.param(5.0, 5.0, 1.0, "", id="at-its-limit"),
        pytest.param(5.1, 5.0, 1.0, "5.10 CPU seconds where 5.00 are allowed", id="beyond-its-limit"),
        pytest.param(8.9, 5.0, 1.8, "", id="within-its-limit-on-a-slower-machine"),
        pytest.param(9.1, 5.0, 1.8, "9.10 CPU seconds where 9.00 are allowed", id="grown-on-a-slower-machine"),
        pytest.param(99.0, 0.0, 1.0, "", id="without-a-limit"),
    ],
)
def test_a_test_may_cost_its_limit_at_the_pace_of_the_machine(
    spent: float, limit: float, slowness: float, expected: str
) -> None:
    found = excess(spent, limit, slowness)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_a_folder_may_cost_its_budget_at_the_pace_of_the_machine() -> None:
    budgets = {"unit": 70.0, "operator": 345.0}
    costs = {"unit": 100.0, "operator": 500.0, "servers": 30.0}
    assert folders_beyond(costs, budgets, 1.0) == budgets
    assert folders_beyond(costs, budgets, 1.43) == {"operator": 345.0 * 1.43}
    assert folders_beyond(costs, budgets, 1.45) == {}


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_what_is_made_once_on_a_machine_costs_no_test() -> None:
    costs = Costs(cast("Any", SimpleNamespace()))
    with costs.measuring(cast("Any", SimpleNamespace(nodeid="tests/contract/test_x.py::test_y"))):
        compute(0.05)
        costs.audit(MAKING, ())
        compute(0.2)
        costs.audit(MAKING, ())  # one needs another
        compute(0.2)
        costs.audit(MADE, ())
        costs.audit(MADE, ())
    assert 0.05 <= costs.phase < 0.2
