"""The target `generations:DIR`: each commit that changes content is a new folder, and `current` a link to the newest.

A generation is a copy of the one before by hard links, changed by replacing files, never by writing into one; so who
resolved `current` once reads one whole tree for as long as that generation is kept. It is built and durable before the
commit; the commit in `state.db` names it; the link is flipped after, by a rename. A crash between the two is finished
when the target is opened next. The name is `<next offset, 20 digits>-<first 8 digits of the tree digest>`, in the way
of git-sync, whose readers know a revision by the name that the link leads to; a restore of the same content has other
digits. A commit that changes nothing but the position makes no generation, so that readers see only real changes.

While a bulk build is open (`Batch.note_builds`), commits make no generation either: what changed stays noted in `redo`,
its bytes stay staged, and the first commit without an open build shows it all as one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from mailboat.content.digest import TreeHash
from mailboat.content.disk_layout import STATE_FOLDER
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.keys import path_of
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.disk_tree import DiskTree
from mailboat.content.targets.durability import Durability
from mailboat.content.targets.staged_files import Staging
from mailboat.content.targets.staged_intake import show_redo
from mailboat.content.targets.state_folder import StateFolder, open_state_folder
from mailboat.content.targets.tree_target import TreePresenter, TreeTarget
from mailboat.durable_file import NO_LINKS
from mailboat.errors import SourceChangedError, SourceMissingError, TargetCorruptError, UsageError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.folder_handle import PUBLIC_FILE, PUBLIC_FOLDER, FolderHandle
from mailboat.model.positions import Position


def copy_by_links(existing: FolderHandle, new: FolderHandle, durability: Durability) -> None:
    """Fill the empty folder `new` with hard links to all files in `existing`; follows no link.

    Raises: OSError.
    """
    # only the names are new: a linked file shares bytes that are durable already
    durability.touch(new.place)
    with os.scandir(existing.descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                with existing.folder(entry.name) as inner, new.make_folder(entry.name, PUBLIC_FOLDER) as copy:
                    copy_by_links(inner, copy, durability)
            elif entry.is_file(follow_symlinks=False):
                _link(existing, new, entry.name)


def _link(existing: FolderHandle, new: FolderHandle, name: str) -> None:
    try:
        os.link(name, name, src_dir_fd=existing.descriptor, dst_dir_fd=new.descriptor, follow_symlinks=False)
    except OSError as error:
        # ext4 takes 65,000 links to a file (EMLINK); some file systems take none
        if error.errno not in {errno.EMLINK, *NO_LINKS}:
            raise
        with existing.open_file(name) as source, new.create_file(name, PUBLIC_FILE) as copy:
            shutil.copyfileobj(source, copy)
            # a link shares durable bytes with its original file, a copy has bytes of its own
            os.fsync(copy.fileno())


KIND: Final = "generations"
CURRENT: Final = "current"
KEPT_GENERATIONS: Final = 3

_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{8}\Z")
_LONGEST_FOLDER: Final = f"/{0:020d}-{0:08x}"
_BUILDING: Final = "building"
_DISCARDED: Final = "discarded"
_LINKED: Final = "linked"
_DRAFT: Final = f"{CURRENT}.new"
_IN_USE: Final = frozenset({errno.ENOTEMPTY, errno.EBUSY})
NOTHING: Final = "nothing"


def open_generations_target(
    folder: Path, failpoints: Failpoints | None = None, kept_generations: int = KEPT_GENERATIONS
) -> TreeTarget:
    """Open `generations:DIR`, create it if missing or empty, and finish an earlier process's work.

    At most `kept_generations` are kept, the current one included; at least 1.

    Raises:
        TargetBusyError: Another process imports into it.
        UsageError: The folder holds something that no target put there, or its disk has no symbolic links.
        TargetCorruptError: The state is damaged, or the current generation is gone.
        StorageFullError, StorageReadOnlyError, StorageFailedError.
    """
    uri = f"{KIND}:{folder}"
    with TranslatedFailures(uri):
        state = open_state_folder(folder, KIND, _LONGEST_FOLDER)
        try:
            generations = _Generations(state, failpoints or NoFailpoints(), max(1, kept_generations))
        except BaseException:
            # the state holds the lock of the target: unreleased, this process would find itself busy
            state.close()
            raise
    return TreeTarget(state.parts(generations, lambda: open_generations_source(Path(state.root.place))))


def open_generations_source(folder: Path) -> FolderSource:
    """The current generation, which stays the same one for this source; empty if nothing was imported yet.

    Raises:
        SourceMissingError: There is no such target.
        SourceChangedError: There are generations, and no `current`.
        TargetCorruptError: `current` is not a link, or leads to something that is not a generation.
        StorageReadOnlyError, StorageFailedError.
    """
    uri = f"{KIND}:{folder}"
    with TranslatedFailures(uri):
        name = _link_target(f"{folder}/{CURRENT}")
        if name is None:
            return _empty_source(folder, uri)
    if not _NAME.match(name):
        raise TargetCorruptError(
            f"{folder}/{CURRENT} leads to {name!r}, which is not a generation",
            next_step=f"remove {folder}/{CURRENT}; the subscriber makes it again when it starts",
        )
    return FolderSource(folder.resolve() / name, uri=uri)


def _empty_source(folder: Path, uri: str) -> FolderSource:
    empty = folder / STATE_FOLDER / NOTHING
    if not empty.is_dir():
        raise SourceMissingError(f"there is no target {uri}")
    # The first one is about to be shown, or the link was lost, as copies of a target lose it: neither is an empty tree.
    if any(_NAME.match(entry.name) for entry in folder.iterdir()):
        raise SourceChangedError(
            f"{uri} has generations, and no link {CURRENT} to one of them",
            next_step="start its subscriber, which creates the link; then try again",
        )
    return FolderSource(empty, uri=uri)


class _Generations(TreePresenter):
    """Shows generations."""

    def __init__(self, state: StateFolder, failpoints: Failpoints, kept: int) -> None:
        self._state = state
        self._intake = state.intake
        self._root = state.root
        self._own = state.own
        self._failpoints = failpoints
        self._kept = kept
        self._names = stored_generations(state.connection)
        self._built: list[str] | None = None
        self._flipped: str | None = None
        self._was_held_back = False
        self._current: FolderHandle | None = None
        self._own.make_folder(NOTHING).close()
        if not self._names:
            self._check_links()
        self._recover()

    def begin(self) -> None:
        if self._built is not None:  # interrupted right behind its commit, which `show` did not follow
            self._names, self._built = stored_generations(self._state.connection), None
        self._finish()
        # While a build is open, staged files belong to earlier commits; otherwise the folder is scratch.
        self._was_held_back = self._intake.is_held_back()
        if not self._was_held_back:
            self._state.staging.clear()
        self._leave_current()
        self._current = self._root.folder(self._names[0]) if self._names else None
        self._intake.begin(self._current)

    def prepare(self, position: Position) -> None:
        if self._intake.is_held_back():
            # Committed but not shown: these bytes must survive a crash until a later commit shows them.
            self._intake.seal()
            self._state.durability.sync()
            self._failpoints.reach(Failpoint.TARGET_HELD_BACK)
            return
        # Content did not change: a new link would only make readers reload.
        if self._names and not self._intake.has_redo() and self._state.namespaces.is_shown_in(self._current):
            return
        name = self._name(position)
        self._build(name)
        self._built = [name, *(other for other in self._names if other != name)][: self._kept]
        # The folder is complete and durable before the transaction names it; `show` only flips the link.
        self._state.connection.execute("UPDATE state SET generations = ?", (" ".join(self._built),))
        self._failpoints.reach(Failpoint.TARGET_GENERATION_BUILT)
        self._intake.forget_redo()

    def _name(self, position: Position) -> str:
        total = TreeHash()
        # every binary is named in these bodies, so a node's digest is that of its body
        for key, body in self._state.connection.execute("SELECT key, body FROM nodes ORDER BY key"):
            total.add(path_of(key), hashlib.sha256(body).digest())
        digest = total.digest()
        while (name := f"{position.next_offset:020d}-{digest.hex()[:8]}") in self._names:
            # A restore writes the same content again. Generations that readers may have open stay as they are.
            digest = hashlib.sha256(digest).digest()
        return name

    def show(self) -> None:
        if self._built is not None:
            # After the commit, which names the generation: a crash from here on is finished by `_recover`.
            self._names, self._built = self._built, None
            self._finish()
            self._failpoints.reach(Failpoint.TARGET_GENERATION_FLIPPED)

    def discard(self) -> None:
        self._built = None
        self._state.durability.forget()
        self._clear_staging()
        for left in (_BUILDING, _LINKED):
            self._own.remove(left)
        # A generation that was built already is not named by the rolled-back transaction, so `_prune` removes it.
        self._prune()

    def statistics(self) -> Mapping[str, int]:
        return {"fsyncs": self._state.durability.fsyncs}

    def close(self) -> None:
        try:
            with TranslatedFailures(self._state.uri):
                self._clear_staging()
        finally:
            self._leave_current()
            self._state.release()

    def _clear_staging(self) -> None:
        """Remove what is staged, but for what was committed and is held back."""
        if self._intake.is_held_back():
            self._intake.drop_uncommitted()
        else:
            self._state.staging.clear()

    def _recover(self) -> None:
        """Do what a killed process left undone, and undo what it had not committed."""
        for left in (_BUILDING, _LINKED):
            self._own.remove(left)
        self._remove_discarded()
        newest = self._root.status(self._names[0]) if self._names else None
        if self._names and (newest is None or not stat.S_ISDIR(newest.st_mode)):
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
        is_there = _link_target(CURRENT, self._root) == self._names[0]
        if is_there and self._flipped == self._names[0]:
            return
        if not is_there:
            # a link can't be changed in place: a second one is made and renamed over it, so readers always find one
            self._draft_link(self._names[0])
            self._own.move(_DRAFT, self._root, CURRENT)
        self._state.durability.touch(self._root.place)
        self._state.durability.sync()
        # the link is durable before older generations go: after a crash it must not lead to a removed one
        self._flipped = self._names[0]
        self._prune()

    def _draft_link(self, name: str) -> None:
        # Left by a process that was killed between `symlink` and `move`.
        self._own.remove(_DRAFT)
        os.symlink(name, _DRAFT, dir_fd=self._own.descriptor)

    def _check_links(self) -> None:
        """See that the disk has symbolic links. Raises: UsageError."""
        # Before the first commit, which would find that out when it is too late.
        try:
            self._draft_link(NOTHING)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            raise UsageError(
                f"the disk of {self._root.place} has no symbolic links: {error.strerror}",
                next_step="choose files: or sqlite:, or another disk",
            ) from error
        self._own.remove(_DRAFT)

    def _prune(self) -> None:
        for name in self._root.names():
            if _NAME.match(name) and name not in self._names:
                self._throw_away(name)

    def _build(self, name: str) -> None:
        self._own.remove(_BUILDING)
        durability = self._state.durability
        with self._own.make_folder(_BUILDING, PUBLIC_FOLDER) as building:
            if self._names:
                with self._root.folder(self._names[0]) as newest:
                    copy_by_links(newest, building, durability)
            with closing(DiskTree(building, self._state.staging, durability)) as disk:
                self._intake.prepare_redo(disk)
            with self._staged() as staging, closing(DiskTree(building, staging, durability)) as disk:
                for redo in self._intake.redo():
                    show_redo(disk, redo)
            self._state.namespaces.show_in(building)
            durability.touch(building.place)
            durability.sync()
        self._own.remove(_LINKED)
        # a killed process may have left a generation of this name that it had not committed
        self._throw_away(name)
        # Complete and durable before it gets its name: under this name a reader never finds a part of it.
        self._own.move(_BUILDING, self._root, name)
        durability.touch(self._root.place)
        durability.sync()

    @contextmanager
    def _staged(self) -> Iterator[Staging]:
        """Where files are moved from: links, if some were committed before, as a crash now must leave those."""
        if not self._was_held_back:
            yield self._state.staging
            return
        self._own.remove(_LINKED)
        with closing(Staging(self._own.make_folder(_LINKED), self._state.durability)) as linked:
            copy_by_links(self._state.staging.folder, linked.folder, self._state.durability)
            yield linked

    def _throw_away(self, name: str) -> None:
        """Remove a generation that may be there, first from sight: never a part of it remains under its name."""
        with self._own.make_folder(_DISCARDED) as discarded, suppress(FileNotFoundError):
            self._root.move(name, discarded, name)
        self._remove_discarded()

    def _remove_discarded(self) -> None:
        try:
            self._own.remove(_DISCARDED)
        except OSError as error:
            # NFS keeps a file that a reader on this machine has open, and its folder: they go with a later generation
            if error.errno not in _IN_USE:
                raise
            with self._own.folder(_DISCARDED) as discarded:  # the others need not wait for it
                for name in discarded.names():
                    try:
                        discarded.remove(name)
                    except OSError as kept:
                        if kept.errno not in _IN_USE:
                            raise

    def _leave_current(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


def stored_generations(connection: sqlite3.Connection) -> list[str]:
    """The generations that are kept, the current one first. Raises: TargetCorruptError."""
    names = str(connection.execute("SELECT generations FROM state").fetchone()[0]).split()
    for name in names:
        if not _NAME.match(name):
            raise TargetCorruptError(f"the state names {name!r:.80}, which is not a generation")
    return names


def _link_target(link: str, folder: FolderHandle | None = None) -> str | None:
    """Where a link leads; None if it is missing. Raises: TargetCorruptError: Something else has its name; OSError."""
    try:
        return os.readlink(link, dir_fd=None if folder is None else folder.descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        place = link if folder is None else f"{folder.place}/{link}"
        raise TargetCorruptError(
            f"{place} is not a link to a generation",
            next_step=f"remove {place}; the subscriber makes it again when it starts",
        ) from error
