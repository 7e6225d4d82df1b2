"""A short history of packages for the crash tests of targets, and how it is imported until the process dies.

The history has what is hard to interrupt: a file that becomes a folder and back, a file that gets children, large
binaries, removals, a package that changes nothing. `state_at` says what the content is at every position; whoever opens
the target after a crash must find exactly that.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from mailboat.content.locations import open_target
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.model.filters import WorkspaceFilter, filter_for
from mailboat.model.identifiers import Offset
from mailboat.model.nodes import Node, file_node
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity, Position
from mailboat.operations import target_snapshots
from mailboat.testing.target_model import ModelTree, as_change
from mailboat.testing.trees import a_file, a_folder, a_full_node, a_page, large_binary
from support.crashes import KillingFailpoints

LOG: Final = LogIdentity("cluster", "topic")
BATCH_PACKAGES: Final = 2


def _package(root: str, *tree: Node) -> tuple[Sequence[Node], WorkspaceFilter]:
    return tree, filter_for([], [NodePath(root)])


HISTORY: Final = (
    _package("/site", a_folder("/site"), a_file("/site/a"), a_file("/site/b"), a_full_node("/site/page")),
    _package("/film", file_node(NodePath("/film"), large_binary(b"one"))),
    _package("/site/a", a_page("/site/a", None, title="a page now"), a_file("/site/a/below")),
    _package("/film/notes", a_page("/film/notes", None, title="below a file")),
    _package("/none"),
    _package("/site/b"),
    _package("/film", file_node(NodePath("/film"), large_binary(b"two", 200_000))),
    _package("/site/a", a_file("/site/a", b"a file again")),
)


def state_at(next_offset: int) -> list[Node]:
    """The content when the packages before `next_offset` are imported."""
    model = ModelTree()
    for carried, covered in HISTORY[:next_offset]:
        model.apply(carried, covered)
    return model.walk()


def import_history(target_text: str, failpoints: Failpoints) -> None:
    """Import what is not imported yet, two packages a batch."""
    with closing(open_target(target_text, failpoints)) as target:
        position = target.ledger.position()
        start = 0 if position is None else position.next_offset
        for first in range(start, len(HISTORY), BATCH_PACKAGES):
            with target.batch() as batch:
                for offset in range(first, min(first + BATCH_PACKAGES, len(HISTORY))):
                    batch.apply(as_change(*HISTORY[offset]), Offset(offset))
                    failpoints.reach(Failpoint.SUBSCRIBER_PACKAGE_APPLIED)
                batch.commit(Position(LOG, Offset(min(first + BATCH_PACKAGES, len(HISTORY)))))
                failpoints.reach(Failpoint.SUBSCRIBER_COMMITTED)


def import_all(target_text: str) -> list[Node]:
    """Import the rest; what is there then."""
    import_history(target_text, NoFailpoints())
    with closing(open_target(target_text)) as target, closing(target.source()) as source:
        return list(source.walk(NodePath("/")))


def target_in(folder: Path, kind: str) -> str:
    """The text that names a target of a kind within a folder."""
    return f"{kind}:{folder / ('target.db' if kind == 'sqlite' else 'target')}"


def restore_and_die(snapshot: str, target: str, failpoint: Failpoint | None, nth: int) -> None:
    """Replace a target's content by a snapshot, and be killed: at the n-th record, or when a step is reached."""
    of_records = Failpoint.SUBSCRIBER_PACKAGE_APPLIED
    failpoints = KillingFailpoints(failpoint or of_records, nth)

    def applied(_: int) -> None:
        failpoints.reach(of_records)

    with mock.patch.object(target_snapshots, "open_target", partial(open_target, failpoints=failpoints)):
        request = target_snapshots.RestoreRequest(snapshot, 1, is_replacing=True)
        target_snapshots.restore_snapshot(Path(snapshot), target, None, applied, request=request)
    signal.raise_signal(signal.SIGKILL)  # after the commit
