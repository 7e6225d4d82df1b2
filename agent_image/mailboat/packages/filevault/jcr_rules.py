"""What a JCR repository can't hold, though our content can: names, paths and values that Oak refuses.

A package with one such node is refused as a whole where it is imported, and a Sling queue then stays blocked. So
it is refused when it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mailboat.errors import UsageError
from mailboat.model.nodes import CONTENT_NODE, DATA_PROPERTY, RESOURCE_TYPE, Node, Property, PropertyType
from mailboat.model.paths import ROOT, NodePath, is_within, name_of, parent_of
from mailboat.packages.filevault.names import PREFIX
from mailboat.packages.prefixes import NamespaceUnresolvedError, unresolved

_FORBIDDEN: Final = re.compile(r"[/\[\]|*\t-\r\x1c-\x1f]")
_PREFIX: Final = re.compile(rf"{PREFIX}\Z")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_IN_GAP: Final = re.compile(r"1582-10-(0[5-9]|1[0-4])T")
"""The days between the Julian and the Gregorian calendar, which Java's does not have."""
_STEP_INDEX: Final = re.compile(r"\[[1-9][0-9]*\]\Z")


_EXPANDED: Final = re.compile(r"\{(?:[^{}]*:[^{}]*)?\}(?=[^{}])")
"""The namespace of a name that has no prefix for it. Oak looks it up, or keeps the value as a String."""
_HOLDS_HIERARCHY: Final = "nt:folder"
_HOLDS_CONTENT: Final = "nt:file"
_NO_HIERARCHY: Final = frozenset({"nt:unstructured", "nt:resource", "oak:Unstructured", "oak:Resource"})
"""Built-in types that are not nt:hierarchyNode. Only the repository can decide about others."""


class NodeChecker:
    """Refuses nodes that a repository can't hold, also below the nodes that came before."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        """`namespaces` by prefix."""
        self._namespaces = namespaces
        self._above: dict[NodePath, str] = {}

    def check(self, node: Node) -> None:
        """Refuse a node; parents come first. Raises: UsageError, NamespaceUnresolvedError."""
        check_node(node, self._namespaces)
        self._leave(node.path)
        parent = self._above.get(parent_of(node.path))
        if parent == _HOLDS_HIERARCHY and node.primary_type in _NO_HIERARCHY:
            raise _refused(node, f"the nt:folder above takes folders, files and pages, but no {node.primary_type}")
        if parent == _HOLDS_CONTENT and name_of(node.path) != CONTENT_NODE:
            raise _refused(node, "the nt:file above takes jcr:content only")
        # A mixin may allow more.
        if node.primary_type in (_HOLDS_HIERARCHY, _HOLDS_CONTENT) and not node.mixin_types:
            self._above[node.path] = node.primary_type

    def _leave(self, path: NodePath) -> None:
        while self._above and not is_within(path, next(reversed(self._above))):
            self._above.popitem()


def check_node(node: Node, namespaces: Mapping[str, str]) -> None:
    """Refuse a node that a repository can't hold. Raises: UsageError, NamespaceUnresolvedError."""
    try:
        _check_node(node, namespaces)
    except NamespaceUnresolvedError as error:
        raise NamespaceUnresolvedError(
            f"a JCR repository can't hold {node.path}: {error.message}", next_step=error.next_step, path=node.path
        ) from error


def _check_node(node: Node, namespaces: Mapping[str, str]) -> None:
    reason = None if node.path == ROOT else reason_against_jcr_name(name_of(node.path), namespaces)
    if reason is not None:
        raise _refused(node, f"its name is refused there, as {reason}")
    for name in (node.primary_type, *node.mixin_types):
        reason = reason_against_jcr_name(name, namespaces)
        if reason is not None:
            raise _refused(node, f"its type {name!r} is refused there, as {reason}")
    if node.primary_type == RESOURCE_TYPE and node.find(DATA_PROPERTY) is None:
        raise _refused(node, f"an nt:resource needs {DATA_PROPERTY}")
    for one in node.properties:
        reason = reason_against_jcr_name(one.name, namespaces)
        if reason is not None:
            raise _refused(node, f"the property name {one.name!r} is refused there, as {reason}")
        reason = _reason_against_values(one, namespaces)
        if reason is not None:
            raise _refused(node, f"a value of {one.name} is refused there, as {reason}")


def reason_against_jcr_name(name: str, namespaces: Mapping[str, str]) -> str | None:
    """Why a name can't be one of JCR; None when it can. Raises: NamespaceUnresolvedError."""
    found = _FORBIDDEN.search(name)
    if found is not None:
        return f"it has {found[0]!r}"
    if not name:
        return "it is empty"  # Oak would store a String instead
    prefix, colon, local = name.partition(":")
    if not colon:
        local = prefix
    elif not _PREFIX.match(prefix) or not local or ":" in local:
        return "a colon is allowed between prefix and name only"
    elif prefix not in namespaces:
        raise unresolved(prefix, "has no namespace")
    if local[0].isspace() or local[-1].isspace():
        return "it begins or ends with a space"
    return None


def _reason_against_values(one: Property, namespaces: Mapping[str, str]) -> str | None:
    if one.type is PropertyType.NAME:
        names = (_EXPANDED.sub("", str(value), count=1) for value in one.values)
        reasons = (reason_against_jcr_name(name, namespaces) for name in names)
        return next((reason for reason in reasons if reason is not None), None)
    if one.type is PropertyType.PATH:
        reasons = (_reason_against_path(str(value), namespaces) for value in one.values)
        return next((reason for reason in reasons if reason is not None), None)
    if one.type in (PropertyType.REFERENCE, PropertyType.WEAK_REFERENCE):
        found = next((value for value in one.values if not _UUID.match(str(value))), None)
        return None if found is None else f"{found!r:.80} is not a UUID"
    if one.type is PropertyType.DATE:
        found = next((value for value in one.values if _IN_GAP.match(str(value))), None)
        return None if found is None else f"the day of {found} is not in the calendar"
    return None


def _reason_against_path(path: str, namespaces: Mapping[str, str]) -> str | None:
    if path == ROOT:
        return None
    for step in _EXPANDED.sub("", path).removeprefix("/").split("/"):
        if step in (".", ".."):
            return f"the path {path!r:.80} has the step {step!r}"
        reason = "it has an empty step" if not step else reason_against_jcr_name(_STEP_INDEX.sub("", step), namespaces)
        if reason is not None:
            return f"of the path {path!r:.80} {reason}"
    return None


def _refused(node: Node, reason: str) -> UsageError:
    return UsageError(
        f"a JCR repository can't hold {node.path}: {reason}",
        next_step="rename it in the source, leave its path out, or publish with `package_type: tree`",
        path=node.path,
    )
