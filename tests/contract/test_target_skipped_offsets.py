"""What every target keeps of publishers whose packages were skipped, beside the content."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.content.locations import open_target
from mailboat.content.port import Target
from mailboat.testing.memory_content import MemoryStore, MemoryTarget
from mailboat.testing.target_contract import at
from support.target_scenario import target_in


@pytest.mark.parametrize("kind", ["sqlite", "files", "generations", "memory"])
def test_skipped_publishers_are_stored_with_a_commit_until_forgotten(kind: str, tmp_path: Path) -> None:
    store = MemoryStore()

    def opened() -> Target:
        return MemoryTarget(store) if kind == "memory" else open_target(target_in(tmp_path, kind))

    target = opened()
    with target.batch() as batch:
        batch.pass_over(["lost"])
    with target.batch() as batch:
        batch.pass_over(["bob", "carol"])
        batch.pass_over(["bob", ""])
        batch.commit(at(3))
    assert target.ledger.passed_over == {"bob", "carol", ""}
    target.ledger.reset_position(at(2), ["bob", "dave"])
    target.close()
    target = opened()
    assert target.ledger.passed_over == {"carol", ""}
    target.close()
