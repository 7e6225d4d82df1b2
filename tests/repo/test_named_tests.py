"""The list of promises names the tests that show them, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^\s*def (test_\w+)\(", flags=re.MULTILINE)


def test_each_promise_is_shown_by_tests_that_are_there(root: Path) -> None:
    modules = [*(root / "tests").rglob("test_*.py"), *(root / "agent_image/mailboat/testing").glob("*_contract.py")]
    defined = {name for module in modules for name in DEFINED.findall(module.read_text())}
    text = (root / "tests/promises.md").read_text()
    tables = [section.splitlines() for section in text.split("\n## ")[1:]]
    rows = [[line for line in lines if line.startswith("| ")][1:] for lines in tables]
    assert [len(table) > 14 for table in rows] == [True] * 4
    assert [row for table in rows for row in table if not NAMED.search(row)] == []
    assert sorted(set(NAMED.findall(text)) - defined) == []
