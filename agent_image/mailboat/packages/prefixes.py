"""Which namespaces a package declares, and where they come from: its properties, the configuration, the source.

A package carries the namespaces of the prefixes that its names use, and no others: so its bytes depend on its contents
alone, whatever else a source has read before. Shared by the codecs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mailboat.errors import LimitExceededError, UntrustedInputError, UsageError
from mailboat.model.namespaces import MAX_NAMESPACES, NO_NAMESPACES, NamespaceTable, SingleNamespaces, reason_against
from mailboat.model.nodes import Node, PropertyType
from mailboat.model.paths import NodePath
from mailboat.packages.port import NAMESPACE_KEY, PackageContents
from mailboat.wire.node_bodies import decode_node

MAX_SEARCHED: Final = 100
"""Prefixes to look for in bodies: to look for more takes longer than to decode a node."""


class ContentRefusedError(UntrustedInputError):
    """The source has a node that a JCR repository cannot hold, so no package of the format `filevault` is written.

    Change the node that the message names, leave its path out, or use the format `tree` if no repository imports the
    content.
    """


class NamespaceUnresolvedError(UntrustedInputError):
    """A prefix in the content has no namespace, or more than one, so a FileVault package can't declare it.

    Add the prefix with its namespace to `publisher.namespaces`; for a package built by hand, pass
    `packages build --property xmlns:PREFIX=URI`.
    """


class Declarations(Mapping[str, str]):
    """What to declare for prefixes. A prefix that packages gave several namespaces can't be looked up."""

    def __init__(self, contents: PackageContents, configured: Mapping[str, str]) -> None:
        """Decide by the contents' properties first, then by the configuration, then by the source."""
        given = contents.properties.items()
        self._given = {key.removeprefix(NAMESPACE_KEY): uri for key, uri in given if key.startswith(NAMESPACE_KEY)}
        for prefix, uri in self._given.items():
            reason = reason_against(prefix, uri)
            if reason is not None:
                raise UsageError(f"the property {NAMESPACE_KEY}{prefix} names no namespace: {reason}")
        self._configured = configured
        self._of_source = contents.namespaces
        self._resolved: dict[str, str] = {}

    @property
    def can_grow(self) -> bool:
        """Whether the contents may come to use a prefix with a namespace, as far as is known before they are read."""
        return bool(self._given or self._configured or self._of_source is not None)

    def tables(self) -> tuple[NamespaceTable, ...]:
        """All prefixes that are known from anywhere."""
        own = SingleNamespaces(self._given), SingleNamespaces(self._configured)
        return (*own, NO_NAMESPACES if self._of_source is None else self._of_source)

    def candidates(self, prefix: str) -> tuple[str, ...]:
        """The namespaces that a prefix may stand for. Raises: NamespaceUnresolvedError."""
        given, configured = self._given.get(prefix), self._configured.get(prefix)
        if given is not None:
            return (given,)
        found = () if self._of_source is None else self._of_source.get(prefix, ())
        if configured is None:
            return found
        if found and configured not in found:
            raise NamespaceUnresolvedError(
                f"the prefix {prefix!r} stands for {' and '.join(found)} in the source, and for {configured} by the"
                " configuration",
                next_step="correct `publisher.namespaces` of the configuration; for one package,"
                f" `packages build --property {NAMESPACE_KEY}{prefix}=URI`",
            )
        return (configured,)

    def __getitem__(self, prefix: str) -> str:
        """Raises: KeyError, NamespaceUnresolvedError."""
        known = self._resolved.get(prefix)
        if known is None:
            found = self.candidates(prefix)
            if not found:
                raise KeyError(prefix)
            if len(found) > 1:
                raise unresolved(prefix, f"has several namespaces: {', '.join(found)}"[:1000])
            known = self._resolved[prefix] = found[0]
        return known

    def __iter__(self) -> Iterator[str]:
        return iter({prefix for table in self.tables() for prefix in table})

    def __len__(self) -> int:
        return sum(1 for _ in self)


class UsedNamespaces:
    """The namespaces that the names of nodes use; `found` grows while nodes are noted."""

    def __init__(self, tables: Iterable[NamespaceTable]) -> None:
        """Look for the prefixes of these tables, which may grow, too; earlier tables go first."""
        self._tables = tuple(tables)
        self._size = 0
        self._waiting: dict[str, bytes] = {}
        self.found: dict[str, tuple[str, ...]] = {}

    def note(self, path: NodePath, body: bytes, node: Node | None = None) -> None:
        """Note a node's names; `body` is its encoded form with all names, searched before it is decoded.

        Raises: LimitExceededError: More namespaces than a package may have.
        """
        size = sum(map(len, self._tables))
        if size != self._size:
            self._size = size
            self._wait_for_new()
        waiting = self._waiting
        if len(waiting) <= MAX_SEARCHED and not any(
            needle in body or f"{one}:" in path for one, needle in waiting.items()
        ):
            return
        used = prefixes_of(decode_node(path, body) if node is None else node)
        for prefix in sorted(prefix for prefix in used if prefix in waiting):
            del waiting[prefix]
            self.found[prefix] = next(table[prefix] for table in self._tables if prefix in table)
        if len(self.found) > MAX_NAMESPACES:
            raise LimitExceededError(
                f"a package uses more than {MAX_NAMESPACES} namespaces", path=path, limit=MAX_NAMESPACES
            )

    def _wait_for_new(self) -> None:
        for table in self._tables:
            for prefix, uris in table.items():
                is_valid = all(reason_against(prefix, uri) is None for uri in uris)
                if is_valid and prefix not in self.found:
                    self._waiting[prefix] = f"{prefix}:".encode()


def prefixes_of(node: Node) -> set[str]:
    """The prefixes in a node's path, types, names of properties and children, and in values that are names."""
    names = [*node.path.split("/"), node.primary_type, *node.mixin_types, *(node.child_order or ())]
    for prop in node.properties:
        names.append(prop.name)
        if prop.type in (PropertyType.NAME, PropertyType.PATH):
            names += [name for value in prop.values for name in str(value).split("/")]
    return {name.partition(":")[0] for name in names if ":" in name}


def unresolved(prefix: str, reason: str) -> NamespaceUnresolvedError:
    """The error for a prefix that can't be declared."""
    return NamespaceUnresolvedError(
        f"the prefix {prefix!r} {reason}",
        next_step="add it to `publisher.namespaces` of the configuration; for one package,"
        f" `packages build --property {NAMESPACE_KEY}{prefix}=URI`",
    )
