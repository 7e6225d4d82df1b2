"""The page of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^\s*def (test_\w+)\(", flags=re.MULTILINE)


def test_every_test_that_the_page_of_faults_names_is_there(root: Path) -> None:
    modules = [*(root / "tests").rglob("test_*.py"), *(root / "agent_image/mailboat/testing").glob("*_contract.py")]
    defined = {name for module in modules for name in DEFINED.findall(module.read_text())}
    named = NAMED.findall((root / "docs/faults.md").read_text())
    assert len(named) > 50
    assert sorted(set(named) - defined) == []


def test_every_row_of_the_page_of_faults_names_a_test(root: Path) -> None:
    rows = [line for line in (root / "docs/faults.md").read_text().splitlines() if re.match(r"\| (?!fault)", line)]
    assert len(rows) > 26
    assert [row for row in rows if not NAMED.search(row)] == []
