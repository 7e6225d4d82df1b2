"""A directory as a source: its files and folders, and nodes that a target wrote there (`content/disk_layout.py`).

Folders are listed one at a time, so memory holds the names of those on the current path. Files up to the inline limit
are read as they are met, larger ones when they are shipped or their digest is asked for; one that changes in between is
noticed, and nothing of it is published. Hidden files are content; `.mailboat`, `.git` and `lost+found` of
the top folder are not, nor are permissions and times. `folder_entries.py` has the rules for links and odd entries.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, NamedTuple, Protocol, cast

from mailboat.blobs.checked_content import checked_stream
from mailboat.clock import Clock, SystemClock
from mailboat.content.binaries import with_binaries
from mailboat.content.disk_layout import (
    KEPT_AT_TOP,
    MAX_NAMESPACES_BYTES,
    MAX_SIDECAR_BYTES,
    NAMESPACES,
    SIDECAR,
    binary_file,
    name_of_entry,
    name_on_disk,
    names_on_disk,
    read_namespaces,
    read_sidecar,
)
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry, listed_node
from mailboat.content.sources.folder_entries import (
    FileSignature,
    SourceFolders,
    SourceRoot,
    binary_of_file,
    closed_folders,
    readable_source,
    signature_of,
)
from mailboat.errors import (
    PackageCorruptError,
    PathRefusedError,
    SourceChangedError,
    SourceMissingError,
    UsageError,
)
from mailboat.folder_handle import is_same_entry
from mailboat.model.identifiers import FileIdentity
from mailboat.model.namespaces import NO_NAMESPACES, NamespaceTable
from mailboat.model.nodes import Binary, Node, file_node, folder_node, ordered_names
from mailboat.model.paths import NodePath, child_of, parse_path
from mailboat.wire.node_bodies import node_digest

INLINE_BYTES: Final = 64 * 1024
SETTLED_SECONDS: Final = 2.0
"""A file changed more recently could change again within the same tick of its time: its digest isn't remembered."""

MOST_UNREAD: Final = 1024
"""Files that wait to be read; of more, the digests are not remembered."""

_REFUSALS: Final = (PathRefusedError, PackageCorruptError, UsageError)
"""Why one entry can't be published."""

_PLAIN_FOLDER: Final = b"\0" * 32
_FILE_SIGNATURE: Final = Struct(">4Q")
_SIGNATURE_MASK: Final = (1 << 64) - 1
"""Times before 1970 are negative, and those after 2262 need more than 63 bits for their nanoseconds."""


class DigestCache(Protocol):
    """Remembers the SHA-256 of files by their signatures, so that what did not change is not read again."""

    def find(self, path: NodePath, signature: FileSignature) -> bytes | None:
        """The digest stored for the file at `path` with that very signature."""

    def store(self, path: NodePath, signature: FileSignature, digest: bytes) -> None:
        """Remember a digest."""

    def close(self) -> None:
        """Release what it holds."""


class _Unread(NamedTuple):
    """A file whose digest is worth remembering once it was read."""

    path: NodePath
    signature: FileSignature
    binary: Binary


class _Place(NamedTuple):
    """Where a node is on the disk; `entry` is the name that was looked up, which may be a link to `disk`."""

    path: NodePath
    entry: str
    disk: str
    status: os.stat_result


class FolderSource:
    """A directory. See `Source`."""

    def __init__(
        self,
        folder: Path,
        *,
        digests: DigestCache | None = None,
        clock: Clock | None = None,
        uri: str | None = None,
        identity: FileIdentity = FileIdentity.INODE,
    ) -> None:
        """Read `folder`; a link to a folder is resolved once, so a generation stays the same one.

        Files are listed with signatures by `identity`.

        Raises:
            SourceMissingError: There is no such folder.
        """
        self.uri = uri or str(folder)
        self._clock = clock or SystemClock()
        self._top = SourceRoot(folder, self._clock)
        self._root = self._top.place
        self._folders = SourceFolders(self._root)
        self._identity = identity
        self._digests = digests
        self._unread: deque[_Unread] = deque()
        if not os.path.isdir(self._root):  # noqa: PTH112  # a text from here on
            raise SourceMissingError(f"{folder} does not exist or is not a folder")

    def node(self, path: NodePath) -> Node | None:
        return next(self.walk(path, is_deep=False), None)

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        for place in self._places(path, is_deep=is_deep):
            node = self._node_at(place)
            if node is not None:
                yield node

    def digests(self, path: NodePath) -> Iterator[tuple[NodePath, bytes]]:
        """Path and `node_digest` of every node, see `DigestedSource`; files known by signature are not read."""
        for place in self._places(path, is_deep=True, is_by_name=True):
            is_folder = stat.S_ISDIR(place.status.st_mode)
            node = self._folder_at(place) if is_folder else file_node(place.path, self._large(place))
            if node is not None:
                digest = node_digest(node)
                self._remember()
                yield place.path, digest

    def child_names(self, path: NodePath) -> list[str]:
        with self._walking():
            place = self._find(path)
            if place is None or not stat.S_ISDIR(place.status.st_mode):
                return []
            names = self._names(place, is_by_name=False)
            self._check_kept(place, is_first=True)
            return names

    def listed(self, path: NodePath, *, is_deep: bool = True) -> Iterator[ListedNode | UnlistedEntry]:
        """See `ListedSource`: files are listed with their status and not read."""
        with self._walking():
            try:
                first = self._find(path)
            except _REFUSALS as error:
                yield UnlistedEntry(path, error)
                return
            todo: list[Iterator[_Place | UnlistedEntry]] = [iter([] if first is None else [first])]
            trail: list[_Place] = []
            while todo:
                place = next(todo[-1], None)
                if place is None:
                    todo.pop()
                    if trail:
                        yield from self._unlisted_rest(trail.pop(), is_first=not trail)
                elif isinstance(place, UnlistedEntry):
                    yield place
                else:
                    item, entries = self._listed_at(place, trail, is_deep=is_deep)
                    if item is not None:
                        yield item
                    if entries is not None:
                        trail.append(place)
                        todo.append(self._listed_children(place, entries))

    def namespaces(self) -> NamespaceTable:
        """See `NamedSource.namespaces`: what `.node.namespaces.json` in the top folder says now."""
        place = f"{self._root}/{NAMESPACES}"
        with closed_folders(self._root) as folders:
            content = _own_file(folders, place, MAX_NAMESPACES_BYTES, NodePath("/"))
        return NO_NAMESPACES if content is None else read_namespaces(content, place)

    def folder_of(self, file: Path) -> NodePath | None:
        """The path of the folder that a file is in, or is about to be; None where that is not in the source."""
        place, top = f"{os.path.realpath(file.parent)}/", f"{self._root.rstrip('/')}/"
        names = place.removeprefix(top).rstrip("/")
        is_content = place.startswith(top) and names.partition("/")[0] not in KEPT_AT_TOP
        return NodePath(f"/{names}") if is_content else None

    def close(self) -> None:
        """See `Source.close`; closes the digests, too."""
        self._folders.release()
        if self._digests is not None:
            self._remember(is_last=True)
            self._digests.close()

    @contextmanager
    def _walking(self) -> Iterator[None]:
        """Folders are entered again for each walk: an earlier one may have been exchanged for another since."""
        self._folders.release()
        try:
            yield
            # A folder that is being removed lists what is left of it, without an error: it must not pass for a source
            # of fewer nodes.
            with readable_source(self._root):
                self._folders.check_root()
            self._top.check()
        finally:
            self._folders.release()

    def _unlisted_rest(self, folder: _Place, *, is_first: bool) -> Iterator[UnlistedEntry]:
        """The folder as unlisted, if it was exchanged or removed while its entries were listed."""
        try:
            self._check_kept(folder, is_first=is_first)
        except (SourceChangedError, *_REFUSALS) as error:
            yield UnlistedEntry(folder.path, error)

    def _listed_at(
        self, place: _Place, trail: Sequence[_Place], *, is_deep: bool
    ) -> tuple[ListedNode | UnlistedEntry | None, Sequence[str] | None]:
        """What is listed of a place, and the entries in it that are to be listed."""
        is_folder = stat.S_ISDIR(place.status.st_mode)
        try:
            if is_folder:
                _refuse_loop(place, trail)
            node = self._listed_folder(place) if is_folder else self._listed_file(place)
            return node, self._entries(place) if is_folder and is_deep else None
        except SourceChangedError as error:
            # What was removed is as good as never having been there. What was exchanged is there, and who compares must
            # not take it for removed.
            return UnlistedEntry(place.path, error) if self._is_there(place.path) else None, None
        except _REFUSALS as error:
            return UnlistedEntry(place.path, error), None

    def _places(self, path: NodePath, *, is_deep: bool, is_by_name: bool = False) -> Iterator[_Place]:
        """What lies at and below a path, in walk order, or siblings by name."""
        with self._walking():
            first = self._find(path)
            todo = [iter([] if first is None else [first])]
            trail: list[_Place] = []
            while todo:
                place = next(todo[-1], None)
                if place is None:
                    todo.pop()
                    if trail:
                        self._check_kept(trail.pop(), is_first=not trail)
                    continue
                yield place
                if is_deep and stat.S_ISDIR(place.status.st_mode):
                    _refuse_loop(place, trail)
                    trail.append(place)
                    todo.append(self._children(place, is_by_name=is_by_name))

    def _check_kept(self, folder: _Place, *, is_first: bool) -> None:
        """See that a folder that was listed is still there; the first of a walk with all that leads to it.

        Raises: SourceChangedError, PathRefusedError, UsageError.
        """
        # One that was moved away and is being removed lists what is left of it, without an error: that must not pass
        # for nodes that were deleted.
        if is_first:
            now = self._find(folder.path)
        else:
            with readable_source(folder.entry):
                now = _Place(folder.path, folder.entry, *self._folders.resolve(folder.entry))
        self._top.note(_checked_same(folder, now).status)

    def _names(self, place: _Place, *, is_by_name: bool) -> list[str]:
        entries = self._entries(place)
        found = (name_of_entry(entry, folder=place.disk, is_at_top=place.path == "/") for entry in entries)
        names = [name for name in found if name is not None]
        # only walks need the order of children, which is in the sidecar
        node = self._sidecar_node(place) if SIDECAR in entries and not is_by_name else None
        return ordered_names(None if node is None else node.child_order, names)

    def _children(self, place: _Place, *, is_by_name: bool) -> Iterator[_Place]:
        is_top = place.path == "/"
        for name in self._names(place, is_by_name=is_by_name):
            yield self._place(parse_path(child_of(place.path, name)), place.disk, name_on_disk(name, is_at_top=is_top))

    def _listed_folder(self, place: _Place) -> ListedNode | None:
        node = self._sidecar_node(place)
        if node is not None:
            return listed_node(node)
        return None if place.path == "/" else ListedNode(place.path, 0, _PLAIN_FOLDER)

    def _entries(self, place: _Place) -> Sequence[str]:
        with readable_source(place.disk):
            return self._folders.entries(place.disk, place.status)

    def _listed_children(self, place: _Place, entries: Sequence[str]) -> Iterator[_Place | UnlistedEntry]:
        for entry in sorted(entries):
            shown = child_of(place.path, entry.encode(errors="backslashreplace").decode())
            try:
                name = name_of_entry(entry, folder=place.disk, is_at_top=place.path == "/")
                if name is not None:
                    yield self._place(parse_path(child_of(place.path, name)), place.disk, entry)
            except SourceChangedError:
                continue  # removed meanwhile
            except _REFUSALS as error:
                yield UnlistedEntry(shown, error)

    def _place(self, path: NodePath, folder: str, entry: str) -> _Place:
        disk = f"{folder}/{entry}"
        with readable_source(disk):
            return _Place(path, disk, *self._folders.resolve(disk))

    def _find(self, path: NodePath) -> _Place | None:
        with readable_source(self._root):
            place = _Place(NodePath("/"), self._root, *self._folders.resolve(self._root))
        names = names_on_disk(parse_path(path))  # here a path becomes names on the disk, so it is checked again
        for entry, name in zip(names, path[1:].split("/"), strict=False):
            above = place
            try:
                place = self._place(child_of(above.path, name), above.disk, entry)
            except SourceChangedError:
                # Missing is only what is not in a folder that stays: that may have been exchanged in between.
                _checked_same(above, self._find(above.path))
                return None
        return place

    def _is_there(self, path: NodePath) -> bool:
        try:
            return self._find(path) is not None
        except (SourceChangedError, *_REFUSALS):
            return True

    def _node_at(self, place: _Place) -> Node | None:
        if stat.S_ISDIR(place.status.st_mode):
            node = self._folder_at(place)
            return None if node is None else with_binaries(node, _inlined)
        with readable_source(place.disk):
            small = self._folders.read(place.disk, INLINE_BYTES, place.status)
        return file_node(place.path, self._large(place) if small is None else small)

    def _folder_at(self, place: _Place) -> Node | None:
        node = self._sidecar_node(place)
        if node is None and place.path != "/":
            return folder_node(place.path)
        return node

    def _sidecar_node(self, place: _Place) -> Node | None:
        content = _own_file(self._folders, f"{place.disk}/{SIDECAR}", MAX_SIDECAR_BYTES, place.path)
        return None if content is None else read_sidecar(place.path, content, partial(self._open_beside, place))

    def _listed_file(self, place: _Place) -> ListedNode:
        with readable_source(place.disk):
            is_readable = self._folders.is_readable(place.disk)
        # A listing reads no file: without this check a build fails at this file much later.
        if not is_readable:
            with readable_source(place.disk):
                self._folders.resolve(place.disk)  # also "unreadable": what was removed since its folder was listed
            raise UsageError(f"{place.disk!a} can't be read: {os.strerror(errno.EACCES)}")
        if self._identity is FileIdentity.CONTENT:
            return listed_node(file_node(place.path, self._large(place)))
        signature = signature_of(place.status)
        if self._identity is FileIdentity.MTIME:
            # Copies of a source on several machines agree in size and time only.
            signature = signature._replace(changed_ns=0, inode=0)
        packed = _FILE_SIGNATURE.pack(*(number & _SIGNATURE_MASK for number in signature))
        return ListedNode(place.path, signature.length_bytes, packed)

    def _open_beside(self, place: _Place, digest: bytes) -> BinaryIO:
        disk = f"{place.disk}/{binary_file(digest)}"
        with readable_source(disk), closed_folders(self._root) as folders:
            file = folders.open(folders.resolve(disk)[0])  # the stream closes it
            return checked_stream(cast("BinaryIO", file), digest, os.fstat(file.fileno()).st_size)

    def _large(self, place: _Place) -> Binary:
        signature = signature_of(place.status)
        known = None if self._digests is None else self._digests.find(place.path, signature)
        binary = binary_of_file(self._root, place.disk, signature, known)
        settled_at = max(signature.modified_ns, signature.changed_ns) / 1e9 + SETTLED_SECONDS
        if known is None and self._digests is not None and settled_at < self._clock.now().timestamp():
            self._remember()
            self._unread.append(_Unread(place.path, signature, binary))
        return binary

    def _remember(self, *, is_last: bool = False) -> None:
        """Store the digests that became known meanwhile; no file is read for that alone."""
        unread = self._unread
        while unread and (is_last or len(unread) >= MOST_UNREAD or unread[0].binary.is_digest_known):
            path, signature, binary = unread.popleft()
            if self._digests is not None and binary.is_digest_known:
                self._digests.store(path, signature, binary.digest)


def _own_file(folders: SourceFolders, disk: str, limit_bytes: int, path: NodePath) -> bytes | None:
    """The bytes of a file that says what the node at `path` is, also through a link; None if it is missing.

    Raises: SourceChangedError, PathRefusedError, UsageError.
    """
    with readable_source(disk):
        found = folders.find(disk)
        if found is None:
            return None
        if stat.S_ISDIR(found[1].st_mode):
            reason = f"{disk!a} is a folder: that name is for a file of Mailboat"
            raise PathRefusedError(reason, next_step="rename it", path=path)
        content = folders.read(found[0], limit_bytes)
    if content is None:
        raise PathRefusedError(f"{disk!a} is larger than {limit_bytes} bytes", path=path)
    return content.data or b""


def _refuse_loop(place: _Place, trail: Sequence[_Place]) -> None:
    """Refuse a link, which is followed within the root, to a folder above it: that would never end."""
    if any(is_same_entry(place.status, above.status) for above in trail):
        raise PathRefusedError(f"{place.disk!a} is a link to a folder that it lies in", path=place.path)


def _checked_same(before: _Place, now: _Place | None) -> _Place:
    """The place, if it still leads to the same entry. Raises: SourceChangedError."""
    if now is None or not is_same_entry(before.status, now.status):
        raise SourceChangedError(f"{before.entry!a} was exchanged while the source was read")
    return now


def _inlined(value: Binary) -> Binary:
    """The binary with its bytes, read and checked, when it is small."""
    if value.length_bytes > INLINE_BYTES:
        return value
    with value.open() as stream:
        data = stream.read(INLINE_BYTES + 1)
    if len(data) != value.length_bytes:
        raise SourceChangedError(f"a binary has {len(data)} bytes, but its node has {value.length_bytes}")
    return Binary(data)
