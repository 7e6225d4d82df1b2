"""Each fault of the page of faults has tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^\s*def (test_\w+)\(", flags=re.MULTILINE)


def test_every_test_that_the_page_of_faults_names_is_there(root: Path) -> None:
    modules = [*(root / "tests").rglob("test_*.py"), *(root / "agent_image/mailboat/testing").glob("*_contract.py")]
    defined = {name for module in modules for name in DEFINED.findall(module.read_text())}
    named = NAMED.findall((root / "tests/faults.md").read_text())
    assert len(named) > 50
    assert sorted(set(named) - defined) == []


def test_every_fault_of_the_page_has_a_test(root: Path) -> None:
    table, _, rarer = (root / "tests/faults.md").read_text().partition("## Rarer faults")
    rows = re.findall(r"^\| (?!fault)(.+?) \| (`test_.*) \|$", table, re.MULTILINE)
    shown, left_out = (
        re.findall(r"- \*\*(.+?)\*\*: ", " ".join(text.split()))
        for text in ((root / "docs/faults.md").read_text(), rarer)
    )
    assert len(shown) > 26
    assert len(left_out) > 15
    assert sorted(fault for fault, _ in rows) == sorted([*shown, *left_out])
