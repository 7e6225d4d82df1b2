"""What a JCR repository can't hold, though our content can: checked where a package is written, never at an import.

Oak refuses a package with one such name, path or value as a whole, and a Sling queue then stays blocked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mailboat.model.filters import WorkspaceFilter
from mailboat.model.nodes import (
    CONTENT_NODE,
    DATA_PROPERTY,
    FILE_TYPE,
    FOLDER_TYPE,
    RESOURCE_TYPE,
    Node,
    Property,
    PropertyType,
)
from mailboat.model.paths import ROOT, NodePath, child_of, is_within, name_of, parent_of
from mailboat.packages.filevault.java_values import URI
from mailboat.packages.filevault.names import PREFIX
from mailboat.packages.prefixes import ContentRefusedError, NamespaceUnresolvedError, unresolved

_FORBIDDEN: Final = re.compile(r"[/\[\]|*\t-\r\x1c-\x1f]")
_PREFIX: Final = re.compile(rf"{PREFIX}\Z")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_DATE: Final = re.compile(r"[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}T")
_NO_DATE: Final = re.compile(r"1582-10-(0[5-9]|1[0-4])T|[+-]?[0-9]{5}")
"""Days between the Julian and the Gregorian calendar, and years of more than four digits: Oak makes Strings of them."""
_LATER_SIBLING: Final = re.compile(r"(.+)\[(?:[2-9]|[1-9][0-9]{1,8})\]\Z", re.DOTALL)
"""All but the first of siblings of one name: importers of Jackrabbit 2 take them, those of Oak leave them out."""
_STEP_INDEX: Final = re.compile(r"\[[1-9][0-9]*\]\Z")
_EXPANDED: Final = re.compile(r"\{(?:[^{}]*:[^{}]*)?\}(?=[^{}])")
"""The namespace of a name that has no prefix for it. Oak looks it up, or keeps the value as a String."""
_EXPANDED_NAME: Final = re.compile(r"\{(?:[^{}]*:[^{}]*|internal)?\}")
"""Of a node or property Oak drops or renames it. `internal` is the namespace of `rep`."""

_LINK_TYPE: Final = "nt:linkedFile"
_NO_HIERARCHY: Final = frozenset({"nt:unstructured", RESOURCE_TYPE, "oak:Unstructured", "oak:Resource"})
"""Built-in types that are not nt:hierarchyNode. Only the repository can decide about others."""

_POLICY_NAMES: Final = frozenset({"rep:policy", "rep:repoPolicy", "rep:cugPolicy", "rep:principalPolicy"})
"""An importer adds the mixin that allows such a child."""

_CREATED: Final = frozenset({"jcr:created", "jcr:createdBy"})
_OF_RESOURCE: Final = frozenset(
    {DATA_PROPERTY, "jcr:mimeType", "jcr:encoding", "jcr:lastModified", "jcr:lastModifiedBy"}
)
_PROPERTIES: Final[Mapping[str, frozenset[str]]] = {
    FOLDER_TYPE: _CREATED,
    FILE_TYPE: _CREATED,
    _LINK_TYPE: _CREATED | {CONTENT_NODE},
    RESOURCE_TYPE: _OF_RESOURCE | {"jcr:uuid"},
    "oak:Resource": _OF_RESOURCE,
}
"""All properties of the built-in types that allow no others, but for those of their mixins."""
_MIXIN_PROPERTIES: Final[Mapping[str, frozenset[str]]] = {
    "mix:created": _CREATED,
    "mix:language": frozenset({"jcr:language"}),
    "mix:lastModified": frozenset({"jcr:lastModified", "jcr:lastModifiedBy"}),
    "mix:lockable": frozenset({"jcr:lockOwner", "jcr:lockIsDeep"}),
    "mix:mimeType": frozenset({"jcr:mimeType", "jcr:encoding"}),
    "mix:referenceable": frozenset({"jcr:uuid"}),
    "mix:title": frozenset({"jcr:title", "jcr:description"}),
    "rep:AccessControllable": frozenset(),
}
"""Built-in mixins. Any other may allow any property and child."""
_DEFINED_TYPES: Final[Mapping[str, PropertyType]] = {
    "jcr:created": PropertyType.DATE,  # protected: an importer ignores its value, but not a wrong type
    "jcr:lastModified": PropertyType.DATE,
    "jcr:lockIsDeep": PropertyType.BOOLEAN,
    CONTENT_NODE: PropertyType.REFERENCE,
    DATA_PROPERTY: PropertyType.BINARY,
}
"""Of these properties; the others are Strings. A String is converted where it has the right form."""
_FORMS: Final = {"jcr:lastModified": _DATE, "jcr:uuid": _UUID, CONTENT_NODE: _UUID}
_REQUIRED: Final[Mapping[str, str]] = {
    RESOURCE_TYPE: DATA_PROPERTY,
    "oak:Resource": DATA_PROPERTY,
    _LINK_TYPE: CONTENT_NODE,
}


class NodeChecker:
    """Refuses nodes that a repository can't hold, also below the nodes that came before."""

    def __init__(self, namespaces: Mapping[str, str], owned: WorkspaceFilter) -> None:
        """`namespaces` by prefix; `owned` is what the package owns."""
        self._namespaces = namespaces
        self._owned = owned
        self._above: dict[NodePath, Node] = {}
        self._orders: list[tuple[NodePath, tuple[str, ...]]] = []
        self._incomplete: set[NodePath] = set()

    def check(self, node: Node) -> None:
        """Refuse a node; parents come first. Raises: ContentRefusedError, NamespaceUnresolvedError."""
        self._leave(node.path)
        check_node(node, self._namespaces, self._first_sibling(node) if self._orders else None)
        if node.child_order and "]" in "".join(node.child_order):
            self._orders.append((node.path, node.child_order))
        above = self._above.get(parent_of(node.path))
        if above is not None:
            self._check_child(above, node)
        if node.primary_type in _PROPERTIES and _are_all_known(node.mixin_types):
            self._above[node.path] = node
            is_whole = node.data is not None or node.primary_type != FILE_TYPE
            if not is_whole and self._has_to_carry(child_of(node.path, CONTENT_NODE)):
                self._incomplete.add(node.path)

    def _first_sibling(self, node: Node) -> str | None:
        """The name of which a node is a later sibling, by its parent's order; None for any other node."""
        while self._orders and not is_within(node.path, self._orders[-1][0]):
            self._orders.pop()
        if not node.path.endswith("]") or not self._orders or node.primary_type == FILE_TYPE:
            return None
        match = _LATER_SIBLING.match(name_of(node.path))
        parent, order = self._orders[-1]
        return match[1] if match and match[1] in order and parent == parent_of(node.path) else None

    def _has_to_carry(self, content: NodePath) -> bool:
        """Whether a file can't be imported without its jcr:content: it is replaced, or a rule leaves it out.

        A file that is owned alone, or merged, may be there already.
        """
        file = parent_of(content)
        is_left_out = self._owned.covers(file) and not self._owned.covers(content)
        return self._owned.replaces(content) or (is_left_out and not self._owned.covers_alone(file))

    def finish(self) -> None:
        """No node follows. Raises: ContentRefusedError."""
        self._leave(None)

    def _check_child(self, above: Node, node: Node) -> None:
        kind, name = above.primary_type, name_of(node.path)
        if name in _POLICY_NAMES:
            return
        if kind == FOLDER_TYPE:
            if node.primary_type in _NO_HIERARCHY:
                raise _refused(node, f"the nt:folder above takes folders, files and pages, but no {node.primary_type}")
        elif kind != FILE_TYPE:
            raise _refused(node, f"the {kind} above takes no children")
        elif name != CONTENT_NODE:
            raise _refused(node, "the nt:file above takes jcr:content only")
        elif above.data is not None:
            raise _refused(node, f"the nt:file above has {DATA_PROPERTY}, which is its jcr:content")
        self._incomplete.discard(above.path)

    def _leave(self, path: NodePath | None) -> None:
        while self._above and (path is None or not is_within(path, next(reversed(self._above)))):
            path_left, left = self._above.popitem()
            if path_left in self._incomplete:
                raise _refused(left, f"an nt:file needs {CONTENT_NODE}")


def _are_all_known(mixins: Iterable[str]) -> bool:
    return all(mixin in _MIXIN_PROPERTIES for mixin in mixins)


def check_node(node: Node, namespaces: Mapping[str, str], name: str | None = None) -> None:
    """Refuse a node that a repository can't hold. `name`: without an index.

    Raises: ContentRefusedError, NamespaceUnresolvedError.
    """
    try:
        _check_node(node, namespaces, name_of(node.path) if name is None else name)
    except NamespaceUnresolvedError as error:
        raise NamespaceUnresolvedError(
            f"a JCR repository can't hold {node.path}: {error.message}", next_step=error.next_step, path=node.path
        ) from error


def _check_node(node: Node, namespaces: Mapping[str, str], name: str) -> None:
    reason = None if node.path == ROOT else reason_against_jcr_name(name, namespaces)
    if reason is not None:
        raise _refused(node, f"its name is refused there, as {reason}")
    for kind in (node.primary_type, *node.mixin_types):
        reason = reason_against_jcr_name(kind, namespaces)
        if reason is not None:
            raise _refused(node, f"its type {kind!r} is refused there, as {reason}")
    required = _REQUIRED.get(node.primary_type)
    if required is not None and node.find(required) is None:
        raise _refused(node, f"an {node.primary_type} needs {required}")
    allowed = _allowed_properties(node)
    for prop in node.properties:
        reason = reason_against_jcr_name(prop.name, namespaces)
        if reason is not None:
            raise _refused(node, f"the property name {prop.name!r} is refused there, as {reason}")
        if allowed is not None:
            _check_defined(node, prop, allowed)
        reason = _reason_against_values(prop, namespaces)
        if reason is not None:
            raise _refused(node, f"a value of {prop.name} is refused there, as {reason}")


def _allowed_properties(node: Node) -> frozenset[str] | None:
    """The names of properties that the types of a node allow; None where they may allow any."""
    allowed = _PROPERTIES.get(node.primary_type)
    if allowed is None or not node.properties or not _are_all_known(node.mixin_types):
        return None
    if node.data is not None:
        allowed |= {DATA_PROPERTY}
    return allowed.union(*(_MIXIN_PROPERTIES[type_] for type_ in node.mixin_types))


def _check_defined(node: Node, one: Property, allowed: frozenset[str]) -> None:
    if one.name not in allowed:
        types = ", ".join((node.primary_type, *node.mixin_types))
        raise _refused(node, f"{types} does not allow the property {one.name}")
    if one.is_multiple:
        raise _refused(node, f"{one.name} has one value there, not a list")
    expected = _DEFINED_TYPES.get(one.name, PropertyType.STRING)
    if one.type not in (expected, PropertyType.STRING):
        raise _refused(node, f"{one.name} is of type {expected.name} there, not {one.type.name}")
    form = _FORMS.get(one.name)
    if form is not None and not form.match(str(one.values[0])):
        raise _refused(node, f"{one.name} can't be {str(one.values[0])!r:.80} there")


def reason_against_jcr_name(name: str, namespaces: Mapping[str, str]) -> str | None:
    """Why a name can't be one of JCR; None when it can. Raises: NamespaceUnresolvedError."""
    found = _FORBIDDEN.search(name)
    if found is not None:
        return f"it has {found[0]!r}"
    if name in ("", ".", ".."):
        return f"it is {name!r}" if name else "it is empty"  # Oak would store a String instead
    if _EXPANDED_NAME.match(name):
        return "it has a namespace in braces, where a repository has a prefix"
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
    if one.type is PropertyType.URI:
        found = next((value for value in one.values if not URI.match(str(value))), None)
        return None if found is None else f"{found!r:.80} is not a URI"
    if one.type is PropertyType.DATE:
        found = next((value for value in one.values if _NO_DATE.match(str(value))), None)
        return None if found is None else f"the day of {found} is not in the calendar"
    return None


def _reason_against_path(path: str, namespaces: Mapping[str, str]) -> str | None:
    if path in (ROOT, "."):
        return None
    for step in _EXPANDED.sub("", path).removeprefix("/").split("/"):
        if step in (".", ".."):
            return f"the path {path!r:.80} has the step {step!r}"
        reason = "it has an empty step" if not step else reason_against_jcr_name(_STEP_INDEX.sub("", step), namespaces)
        if reason is not None:
            return f"of the path {path!r:.80} {reason}"
    return None


def _refused(node: Node, reason: str) -> ContentRefusedError:
    return ContentRefusedError(
        f"a JCR repository can't hold {node.path}: {reason}",
        next_step="change it in the source, leave its path out, or use the format `tree`"
        " (`publisher.package_type`, `packages build --type`)",
        path=node.path,
    )
