"""Pages that say what holds name the tests that show it, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^\s*def (test_\w+)\(", flags=re.MULTILINE)


@pytest.mark.parametrize("page", ["docs/interoperability.md", "docs/large-packages.md", "docs/retention.md"])
def test_what_a_page_says_that_holds_is_shown_by_tests_that_are_there(root: Path, page: str) -> None:
    modules = (root / "tests").rglob("test_*.py")
    defined = {name for module in modules for name in DEFINED.findall(module.read_text())}
    _, _, table = (root / page).read_text().partition("and where it is shown\n")
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 14
    assert [row for row in rows if not NAMED.search(row)] == []
    assert sorted(set(NAMED.findall(table)) - defined) == []
