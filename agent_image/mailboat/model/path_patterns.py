"""Patterns of content paths: what the rights of a token are written in.

A pattern is a content path in which a name may have one `*`: any run of characters within that name. It covers the
paths that match and everything below them: `/content/*/news` covers `/content/de/news` and `/content/de/news/2026/a`,
but neither `/content/de` nor `/content/de/newsletter`. Comparison is exact: case and Unicode form matter, nothing is
decoded. A request's paths were checked by `parse_path` before, so they have no dot segments or empty names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mailboat.errors import PathRefusedError
from mailboat.model.paths import ROOT, NodePath, parse_path

_BELOW: Final = "/**"


class PathPattern:
    """A checked pattern. Unchangeable."""

    __slots__ = ("_names", "text")

    def __init__(self, text: str) -> None:
        """Check a pattern. Raises: PathRefusedError: It is not a path, or has two `*` in one name."""
        self.text: Final = parse_path(text)
        self._names: Final = _names_of(self.text)
        for name in self._names:
            if name.count("*") > 1:
                raise PathRefusedError(
                    f"{text!r} is not a path pattern: the name {name!r} has more than one '*'",
                    next_step="a pattern covers everything below it, so '**' is not needed",
                )

    def covers(self, path: NodePath) -> bool:
        """Whether the path matches, or lies below one that does."""
        names = _names_of(path)
        return len(names) >= len(self._names) and all(map(_matches, self._names, names))

    def lies_below(self, path: NodePath) -> bool:
        """Whether something that the pattern covers may lie below the path."""
        names = _names_of(path)
        return len(names) < len(self._names) and all(map(_matches, self._names, names))


def parse_subtree(text: str) -> PathPattern:
    """A pattern as rules and filters have it: `/content/**`, `/**` and `**` mean the same without `/**`.

    Raises: PathRefusedError.
    """
    return PathPattern("/" if text in ("**", _BELOW) else text.removesuffix(_BELOW))


def first_uncovered(paths: Iterable[NodePath], patterns: Iterable[PathPattern]) -> NodePath | None:
    """The first path that no pattern covers; None when all are covered."""
    known = tuple(patterns)
    return next((path for path in paths if not any(pattern.covers(path) for pattern in known)), None)


def _names_of(path: NodePath) -> list[str]:
    return [] if path == ROOT else path[1:].split("/")


def _matches(pattern: str, name: str) -> bool:
    head, star, tail = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail)


EVERYWHERE: Final = (PathPattern("/"),)
"""Covers all paths."""
