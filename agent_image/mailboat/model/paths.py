"""Paths of content: absolute, slash-separated, checked once at the border and trusted afterwards.

A path is `/` or `/name/name…`. A name is not empty, not `.` or `..`, at most 255 bytes of UTF-8, without `/`, NUL,
other control characters, backslash or lone surrogates. A path is at most 4,096 bytes and 100 names deep. These are the
names that a file system, a zip and a JCR repository can all hold; what one of them must write differently is mapped
in that format's room (`packages/filevault/names.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Final, NewType, TypeVar

from mailboat.errors import PathRefusedError

NodePath = NewType("NodePath", str)

_Text = TypeVar("_Text", bound=str)

ROOT: Final = NodePath("/")
MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4096
MAX_DEPTH: Final = 100

MAX_SHOWN_PATHS: Final = 100
"""Of one package in a record or a list: a message may have megabytes of them, and a list has many packages."""

MAX_SHOWN_BYTES: Final = 16_000
"""Of all paths of one package in a record or a list."""

_PLAIN_LENGTH: Final = 2 * MAX_DEPTH  # a path of this length can be neither too deep nor have a name too long
# One C-level match decides the common case: every name plain, short and not made of dots alone.
_PLAIN: Final = re.compile(
    rf"(?:/(?!\.{{1,2}}(?:/|\Z))[^/\\\x00-\x1f\x7f\ud800-\udfff]{{1,{MAX_NAME_BYTES // 4}}}){{1,{MAX_DEPTH}}}\Z"
)


def parse_path(text: str) -> NodePath:
    """Check a path.

    Raises:
        PathRefusedError: With the path and the rule that it breaks.
    """
    if text == "/" or (_PLAIN.match(text) and len(text) <= MAX_PATH_BYTES // 4):
        return NodePath(text)
    reason = _reason_against(text)
    if reason is not None:
        raise PathRefusedError(f"{text[:200]!r} is not a content path: {reason}", path=text[:200])
    return NodePath(text)


def parse_paths(texts: list[str]) -> list[NodePath]:
    """Check many paths; the common case takes a few calls for all. Raises: PathRefusedError."""
    if len(texts) == 1:
        return [parse_path(texts[0])]
    together = "\\".join(texts)  # no path holds a backslash: so there is one between each two, and a slash behind it
    is_plain = (
        together.isascii()
        and together.isprintable()
        and together.startswith("/")
        and together.count("\\") == together.count("\\/") == len(texts) - 1
        and not together.endswith("/")
        and "//" not in together
        and "/\\" not in together
        and "/." not in together
        and (len(together) <= _PLAIN_LENGTH or max(map(len, texts)) <= _PLAIN_LENGTH)
    )
    if not is_plain:
        return [parse_path(text) for text in texts]
    return texts  # type: ignore[return-value]  # NodePath is str, and these are checked


def _reason_against(text: str) -> str | None:
    if not text.startswith("/"):
        return "it does not start with '/'"
    names = text[1:].split("/")
    if len(names) > MAX_DEPTH:
        return f"it is {len(names)} names deep, the limit is {MAX_DEPTH}"
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        return "it has a lone surrogate"
    if length > MAX_PATH_BYTES:
        return f"it has {length} bytes, the limit is {MAX_PATH_BYTES}"
    for name in names:
        reason = reason_against_name(name)
        if reason is not None:
            return reason
    return None


def reason_against_name(name: str) -> str | None:
    """Why `name` can't name a node; None when it can. Lone surrogates are the caller's to refuse."""
    if name in {"", ".", ".."}:
        return f"the name {name!r} is not allowed"
    if any(character < " " or character in "\\\x7f" for character in name):
        return f"the name {name!r} has a control character or a backslash"
    if len(name) > MAX_NAME_BYTES or len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        return f"the name {name[:40]!r}… is longer than {MAX_NAME_BYTES} bytes"
    return None


def first_paths(paths: Sequence[_Text]) -> tuple[_Text, ...]:
    """Return the first paths of a package, as far as a record or a list has room for them."""
    shown: list[_Text] = []
    room = MAX_SHOWN_BYTES
    for path in paths[:MAX_SHOWN_PATHS]:
        room -= len(path.encode())
        if room < 0:
            break
        shown.append(path)
    return tuple(shown)


def parent_of(path: NodePath) -> NodePath:
    """The path one name shorter; the root's parent is the root."""
    return NodePath(path[: path.rfind("/")] or "/")


def name_of(path: NodePath) -> str:
    """The last name; empty for the root."""
    return path[path.rfind("/") + 1 :]


def child_of(parent: NodePath, name: str) -> NodePath:
    """The path of the child `name`, which must have been checked."""
    return NodePath(f"/{name}" if parent == "/" else f"{parent}/{name}")


def is_within(path: NodePath, root: NodePath) -> bool:
    """Whether `path` is `root` or lies below it."""
    return root in ("/", path) or path.startswith(root + "/")


def ancestors_of(path: NodePath) -> list[NodePath]:
    """The paths from the root's child down to the parent of `path`, without the root itself."""
    names = path.split("/")[1:-1]
    return [NodePath("/" + "/".join(names[: depth + 1])) for depth in range(len(names))]


def paths_above(path: NodePath) -> list[NodePath]:
    """All paths above, the root first; none above the root."""
    return [] if path == ROOT else [ROOT, *ancestors_of(path)]


def common_ancestor(paths: Collection[NodePath]) -> NodePath:
    """The deepest path at or above all of them; there is at least one."""
    # the first and the last in order differ where any two do
    first, last = min(paths).split("/"), max(paths).split("/")
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return NodePath("/".join(first[:shared]) or ROOT)


def folded_name(name: str) -> str:
    """What a file system that folds case and Unicode forms (HFS+, APFS, NTFS) would take the name for."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
