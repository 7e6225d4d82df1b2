"""Namespaces: what the prefixes of names stand for in JCR and XML.

Names in the model have prefixes (`acme:title`), and nothing but FileVault packages needs more. So namespaces travel
with the nodes, once for each package, and targets keep them. Where packages give one prefix different namespaces, all
are kept: only writing a FileVault package needs the one that is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from mailboat.errors import PackageCorruptError

NamespaceTable = Mapping[str, tuple[str, ...]]
"""By prefix the namespaces that it stands for, sorted; more than one where packages disagree."""

NO_NAMESPACES: Final[NamespaceTable] = MappingProxyType({})

MAX_NAMESPACES: Final = 1_000
"""Of one package."""
MAX_KEPT_NAMESPACES: Final = 10_000
"""Of one target."""
MAX_URI: Final = 2_048

_MAX_PREFIX: Final = 255
_PREFIX: Final = re.compile(r"[^\W\d][\w.-]*\Z")
_NOT_IN_URI: Final = re.compile(r"[\x00-\x20\x7f]")


class SingleNamespaces(Mapping[str, tuple[str, ...]]):
    """A table over a mapping of prefixes to one namespace each, which may grow."""

    def __init__(self, by_prefix: Mapping[str, str]) -> None:
        """Show the mapping as it is whenever it is asked."""
        self._by_prefix = by_prefix

    def __getitem__(self, prefix: str) -> tuple[str, ...]:
        return (self._by_prefix[prefix],)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_prefix)

    def __len__(self) -> int:
        return len(self._by_prefix)


def reason_against(prefix: str, uri: str) -> str | None:
    """Why this can't be a prefix and its namespace; None when it can."""
    if len(prefix) > _MAX_PREFIX or not _PREFIX.match(prefix):
        return f"{prefix[:40]!r} is not a prefix"
    if not uri or len(uri) > MAX_URI or _NOT_IN_URI.search(uri):
        return f"{uri[:80]!r} is not the URI of a namespace"
    return None


def table_of(pairs: Iterable[tuple[str, str]]) -> NamespaceTable:
    """The table of sorted pairs of prefix and URI. Raises: PackageCorruptError."""
    found: dict[str, tuple[str, ...]] = {}
    before = ("", "")
    for pair in pairs:
        check_pair(pair, before)
        found[pair[0]] = (*found.get(pair[0], ()), pair[1])
        before = pair
    return MappingProxyType(found)


def check_pair(pair: tuple[str, str], before: tuple[str, str]) -> None:
    """Check a prefix with its namespace, and its order after the last. Raises: PackageCorruptError."""
    reason = reason_against(*pair)
    if reason is None and pair <= before:
        reason = f"the namespaces of {pair[0][:40]!r} are out of order or repeated"
    if reason is not None:
        raise PackageCorruptError(f"the package's namespaces are not valid: {reason}")
