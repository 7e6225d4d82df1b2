"""The restore that an agent shows of a target: the later of its own and the one that the target keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from mailboat.agent.restores import SnapshotRestores, later_of
from mailboat.api.archive import RestoreView
from mailboat.clock import moment_of
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.config.document import Config, SubscriberAgentConfig
from mailboat.errors import SourceMissingError
from mailboat.operations.target_snapshots import check_is_there

NONE = RestoreView("web", "sqlite:/web.db")
FAILED = replace(NONE, state="failed", snapshot="blob:old", begun_at=moment_of(2), error="TargetBusy")
UNREAD = replace(NONE, state="unknown", error="TargetCorrupt")


@pytest.mark.parametrize(
    ("own", "kept_ms", "is_kept_shown"), [(None, 1, True), (FAILED, 1, False), (FAILED, 2, False), (FAILED, 3, True)]
)
def test_the_later_restore_is_shown(own: RestoreView | None, kept_ms: int, is_kept_shown: bool) -> None:
    kept = replace(NONE, state="done", begun_at=moment_of(kept_ms))
    assert later_of(own, kept) == (kept if is_kept_shown else own)
    assert later_of(own, UNREAD) == (own or UNREAD)


def test_a_target_that_cannot_be_read_leaves_its_restore_unknown(tmp_path: Path) -> None:
    home = Home(tmp_path, Config())
    (tmp_path / "web.db").write_bytes(b"no database" * 1000)
    with Workspace(home) as workspace:
        agents = [(SubscriberAgentConfig(name, f"sqlite:{name}.db"), mock.Mock()) for name in ("web", "new")]
        unread, new = SnapshotRestores(workspace, agents).restores()
    assert (unread.state, unread.error, new.state) == ("unknown", "TargetCorrupt", "none")
    assert str(tmp_path / "web.db") in str(unread.message)
    assert unread.next_step


def test_a_place_without_a_target_cannot_be_replaced(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="is not a target yet: there is nothing to replace") as refused:
        check_is_there(f"sqlite:{tmp_path / 'typo.db'}")
    assert refused.value.next_step == "correct its name, or restore without --replace, which creates it"
