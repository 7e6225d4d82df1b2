"""The target `generations:DIR`: each commit that changes content is a new folder, and `current` a link to the newest.

A generation is a copy of the one before by hard links, changed by replacing files, never by writing into one; so who
resolved `current` once reads one whole tree for as long as that generation is kept. It is built and durable before the
commit; the commit in `state.db` names it; the link is flipped after, by a rename. A crash between the two is finished
when the target is opened next. The name is `<next offset, 20 digits>-<first 8 digits of the tree digest>`, in the way
of git-sync, whose readers know a revision by the name that the link leads to. A commit that changes nothing but the
position makes no generation, so that readers are not told of changes that are none.

While a bulk build is open (`Batch.note_builds`), commits make no generation either: what changed stays noted in `redo`,
its bytes stay staged, and the first commit without an open build shows it all as one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final

from mailboat.content.digest import TreeHash
from mailboat.content.failures import TranslatedFailures
from mailboat.content.keys import path_of
from mailboat.content.layout import STATE_FOLDER
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.disk_tree import DiskTree
from mailboat.content.targets.folder_copy import copy_by_links
from mailboat.content.targets.staged_intake import show_redo
from mailboat.content.targets.staging import Staging
from mailboat.content.targets.state_folder import StateFolder, open_state_folder
from mailboat.content.targets.tree_table import Held, Row
from mailboat.content.targets.tree_target import TreeTarget
from mailboat.errors import TargetCorruptError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath
from mailboat.model.positions import Position

KIND: Final = "generations"
CURRENT: Final = "current"
KEPT_GENERATIONS: Final = 3

_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{8}\Z")
_LONGEST_FOLDER: Final = f"/{0:020d}-{0:08x}"
_BUILDING: Final = "building"
_DISCARDED: Final = "discarded"
_LINKED: Final = "linked"
NOTHING: Final = "nothing"


def open_generations_target(
    folder: Path, failpoints: Failpoints | None = None, kept_generations: int = KEPT_GENERATIONS
) -> TreeTarget:
    """Open `generations:DIR`, and make it if it is missing or empty; what an earlier process left undone is done.

    Args:
        folder: Holds the generations, `current` and the state.
        failpoints: For tests.
        kept_generations: How many there are at most, the current one included; at least 1.

    Raises:
        TargetBusyError: Another process imports into it.
        UsageError: The folder holds something that no target put there.
        TargetCorruptError: The state is damaged, or the current generation is gone.
        StorageFullError, StorageReadOnlyError, StorageFailedError.
    """
    uri = f"{KIND}:{folder}"
    with TranslatedFailures(uri):
        state = open_state_folder(folder, KIND, _LONGEST_FOLDER)
        try:
            generations = _Generations(state, failpoints or NoFailpoints(), max(1, kept_generations))
        except BaseException:
            state.close()
            raise
    return TreeTarget(state.parts(generations, lambda: open_generations_source(state.root)))


def open_generations_source(folder: Path) -> FolderSource:
    """The current generation, which stays the same one for this source; empty where there is none yet.

    Raises:
        SourceMissingError: There is no such target.
    """
    current = folder / CURRENT
    if not current.exists() and (folder / STATE_FOLDER / NOTHING).is_dir():
        current = folder / STATE_FOLDER / NOTHING
    return FolderSource(current, uri=f"{KIND}:{folder}")


class _Generations:
    """The `Showing` of generations."""

    keeps_bodies = False

    def __init__(self, state: StateFolder, failpoints: Failpoints, kept: int) -> None:
        self._state = state
        self._intake = state.intake
        self._root = str(state.root)
        self._own = f"{self._root}/{STATE_FOLDER}"
        self._failpoints = failpoints
        self._kept = kept
        self._names = _stored_generations(state.connection)
        self._built: list[str] | None = None
        self._flipped: str | None = None
        self._was_held_back = False
        os.makedirs(f"{self._own}/{NOTHING}", exist_ok=True)  # noqa: PTH103
        self._recover()

    def rows(self, records: Sequence[NodeRecord], stamp: int) -> list[Row]:
        return self._intake.rows(records, stamp)

    def open_held(self, path: NodePath, held: Held, digest: bytes) -> BinaryIO:
        return self._intake.open_held(path, held, digest)

    def begin(self) -> None:
        self._finish()
        self._was_held_back = self._intake.is_held_back()
        if not self._was_held_back:
            self._state.staging.clear()
        self._intake.begin(f"{self._root}/{self._names[0]}" if self._names else None)

    def prepare(self, position: Position) -> None:
        if self._intake.is_held_back():
            self._intake.seal()
            self._state.durability.sync()
            self._failpoints.reach(Failpoint.TARGET_HELD_BACK)
            return
        if self._names and not self._intake.has_redo():
            return
        name = f"{position.next_offset:020d}-{self._tree_digest().hex()[:8]}"
        if not self._names or name != self._names[0]:
            self._build(name)
            self._built = [name, *(other for other in self._names if other != name)][: self._kept]
            self._state.connection.execute("UPDATE state SET generations = ?", (" ".join(self._built),))
            self._failpoints.reach(Failpoint.TARGET_GENERATION_BUILT)
        self._intake.forget_redo()

    def show(self) -> None:
        if self._built is not None:
            self._names, self._built = self._built, None
            self._finish()
            self._failpoints.reach(Failpoint.TARGET_GENERATION_FLIPPED)

    def discard(self) -> None:
        self._built = None
        self._state.durability.forget()
        self._clear_staging()
        for left in (_BUILDING, _LINKED):
            shutil.rmtree(f"{self._own}/{left}", ignore_errors=True)
        self._prune()

    def statistics(self) -> Mapping[str, int]:
        return {"fsyncs": self._state.durability.fsyncs}

    def close(self) -> None:
        with TranslatedFailures(self._state.uri):
            self._clear_staging()

    def _clear_staging(self) -> None:
        """Remove what is staged, but for what was committed and is held back."""
        if self._intake.is_held_back():
            self._intake.drop_uncommitted()
        else:
            self._state.staging.clear()

    def _recover(self) -> None:
        """Do what a killed process left undone, and undo what it had not committed."""
        for left in (_BUILDING, _DISCARDED, _LINKED):
            shutil.rmtree(f"{self._own}/{left}", ignore_errors=True)
        if self._names and not os.path.isdir(f"{self._root}/{self._names[0]}"):  # noqa: PTH112
            raise TargetCorruptError(
                f"{self._state.uri}: the generation {self._names[0]} is gone",
                next_step="restore the target from a snapshot, or empty it and import everything again",
            )
        self._finish()
        self._prune()

    def _finish(self) -> None:
        """Let `current` lead to the committed generation, and remove those that are kept no longer."""
        if not self._names:
            return
        is_there = _link_target(f"{self._root}/{CURRENT}") == self._names[0]
        if is_there and self._flipped == self._names[0]:
            return
        if not is_there:
            draft = f"{self._own}/{CURRENT}.new"
            Path(draft).unlink(missing_ok=True)
            os.symlink(self._names[0], draft)  # noqa: PTH211
            os.rename(draft, f"{self._root}/{CURRENT}")  # noqa: PTH104
        self._state.durability.touch(self._root)
        self._state.durability.sync()
        self._flipped = self._names[0]
        self._prune()

    def _prune(self) -> None:
        for name in os.listdir(self._root):  # noqa: PTH208
            if _NAME.match(name) and name not in self._names:
                self._throw_away(f"{self._root}/{name}")

    def _build(self, name: str) -> None:
        building = f"{self._own}/{_BUILDING}"
        shutil.rmtree(building, ignore_errors=True)
        os.mkdir(building)  # noqa: PTH102
        durability = self._state.durability
        if self._names:
            copy_by_links(f"{self._root}/{self._names[0]}", building, durability)
        with closing(DiskTree(building, self._state.staging, durability)) as disk:
            self._intake.prepare_redo(disk)
        with closing(DiskTree(building, self._staged(), durability)) as disk:
            for redo in self._intake.redo():
                show_redo(disk, redo)
        durability.touch(building)
        durability.sync()
        shutil.rmtree(f"{self._own}/{_LINKED}", ignore_errors=True)
        self._throw_away(f"{self._root}/{name}")
        os.rename(building, f"{self._root}/{name}")  # noqa: PTH104
        durability.touch(self._root)
        durability.sync()

    def _staged(self) -> Staging:
        """Where files are moved from: links, if some were committed before, as a crash now must leave those."""
        if not self._was_held_back:
            return self._state.staging
        linked = f"{self._own}/{_LINKED}"
        shutil.rmtree(linked, ignore_errors=True)
        os.mkdir(linked)  # noqa: PTH102
        copy_by_links(self._state.staging.folder, linked, self._state.durability)
        return Staging(Path(linked), self._state.durability)

    def _throw_away(self, folder: str) -> None:
        """Remove a generation that may be there, first from sight: never a part of it remains under its name."""
        discarded = f"{self._own}/{_DISCARDED}"
        shutil.rmtree(discarded, ignore_errors=True)
        try:
            os.rename(folder, discarded)  # noqa: PTH104
        except FileNotFoundError:
            return
        shutil.rmtree(discarded)

    def _tree_digest(self) -> bytes:
        """The canonical digest; every binary is named in these bodies, so a node's digest is that of its body."""
        total = TreeHash()
        for key, body in self._state.connection.execute("SELECT key, body FROM nodes ORDER BY key"):
            total.add(path_of(key), hashlib.sha256(body).digest())
        return total.digest()


def _stored_generations(connection: sqlite3.Connection) -> list[str]:
    """The generations that are kept, the current one first."""
    names = str(connection.execute("SELECT generations FROM state").fetchone()[0]).split()
    for name in names:
        if not _NAME.match(name):
            raise TargetCorruptError(f"the state names {name!r:.80}, which is no generation")
    return names


def _link_target(link: str) -> str | None:
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return None
