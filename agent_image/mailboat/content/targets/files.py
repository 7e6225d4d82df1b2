"""The target `files:DIR`: the tree as files and folders in place, with the state in `DIR/.mailboat/`.

Bytes are staged and durable before the commit; the commit in `state.db` carries position, confirmations and the redo
record at once; after it each file is renamed to its place. A crash in between is finished when the target is opened
next. Each file is old or new as a whole; readers may see a package half done, which `generations:` prevents.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.disk_tree import DiskTree
from mailboat.content.targets.staged_intake import show_redo
from mailboat.content.targets.state_folder import StateFolder, open_state_folder
from mailboat.content.targets.tree_target import TreePresenter, TreeTarget
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.model.positions import Position

KIND: Final = "files"


def open_files_target(folder: Path, failpoints: Failpoints | None = None, *, is_known: bool = False) -> TreeTarget:
    """Open `files:DIR`, create it if missing or empty, and finish what an earlier process left undone.

    `is_known`: This process has checked the whole state before.

    Raises:
        TargetBusyError: Another process imports into it.
        UsageError: The folder holds something that no target put there.
        TargetCorruptError: The state is damaged or gone, or a link stands in the way.
        StorageFullError, StorageReadOnlyError, StorageFailedError.
    """
    uri = f"{KIND}:{folder}"
    with TranslatedFailures(uri):
        state = open_state_folder(folder, KIND, is_known=is_known)
        try:
            showing = _InPlace(state, failpoints or NoFailpoints())
        except BaseException:
            state.close()
            raise
    return TreeTarget(state.parts(showing, lambda: FolderSource(Path(state.root.place), uri=uri)))


class _InPlace(TreePresenter):
    """Shows files in place."""

    def __init__(self, state: StateFolder, failpoints: Failpoints) -> None:
        self._state = state
        self._intake = state.intake
        self._failpoints = failpoints
        self._is_shown = False
        self._was_shown = False
        if self._intake.has_redo():
            # the killed process may have renamed files that it did not synchronise
            state.durability.touch_everything()
        self._finish()
        self._show_namespaces()

    def begin(self) -> None:
        self._was_shown = False
        self._finish()
        self._was_shown = True
        self._intake.begin(self._state.root)

    def prepare(self, position: Position) -> None:  # noqa: ARG002  # part of the port
        if self._intake.has_redo():
            # Before the commit: a redo record whose bytes are not durable could not be repeated after a crash.
            with closing(self._disk()) as disk:
                self._intake.prepare_redo(disk)
            self._state.staging.seal()
            self._state.durability.sync()
        # Until the end of `show`: after an interrupt or a failure behind the commit `_finish` repeats the redo record.
        self._is_shown = False

    def show(self) -> None:
        if self._intake.has_redo():
            self._failpoints.reach(Failpoint.TARGET_REDO_STORED)
            with closing(self._disk()) as disk:
                for redo in self._intake.redo():
                    show_redo(disk, redo)
                    self._failpoints.reach(Failpoint.TARGET_FILE_REPLACED)
            self._state.durability.sync()
            self._failpoints.reach(Failpoint.TARGET_REDO_DONE)
        # Not part of the redo record: it is written from the database, at each show and at each start.
        self._show_namespaces()
        self._is_shown = True

    def discard(self) -> None:
        if self._was_shown:  # else an earlier commit still needs what is staged, and what it did is not durable
            # Rolled back: what was touched need not become durable.
            self._is_shown = True
            self._state.durability.forget()
            self._state.staging.clear()

    def statistics(self) -> Mapping[str, int]:
        return {"fsyncs": self._state.durability.fsyncs}

    def close(self) -> None:
        try:
            with TranslatedFailures(self._state.uri):
                self._finish()
        finally:
            self._state.release()

    def _finish(self) -> None:
        """Show what is committed but not shown, then forget the redo record; within whatever transaction is open."""
        if self._intake.has_redo():
            if not self._is_shown:
                self.show()
            self._intake.forget_redo()
        self._state.staging.clear()

    def _show_namespaces(self) -> None:
        if self._state.namespaces.show_in(self._state.root):
            self._state.durability.sync()

    def _disk(self) -> DiskTree:
        return DiskTree(self._state.root, self._state.staging, self._state.durability)
