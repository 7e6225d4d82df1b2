"""What an element says of its node: types, properties, order of children.

Shared by everything that reads: the attributes of one element, with the binaries that travel beside it, become a
`Node`. Values are checked here, and errors name entry, path and property.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from mailboat.errors import PackageCorruptError, UntrustedInputError
from mailboat.model.nodes import FILE_TYPE, FOLDER_TYPE, Binary, Node, Property, PropertyType
from mailboat.model.paths import NodePath
from mailboat.model.values import ValueRefusedError
from mailboat.packages.filevault.document import Mark
from mailboat.packages.filevault.docview import ParsedValues, parse_values
from mailboat.wire.nodes import MAX_NAME_LENGTH

PRIMARY_TYPE: Final = "jcr:primaryType"
MIXIN_TYPES: Final = "jcr:mixinTypes"
DEFAULT_TYPE: Final = "nt:unstructured"
"""The type of a node that a document gives none, as hand-written ones do."""

UNORDERED_TYPES: Final = frozenset({FILE_TYPE, FOLDER_TYPE, "sling:Folder", "nt:linkedFile"})
_name: Final = attrgetter("name")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


Refer = Callable[[str], Binary]
"""What the text of a `BinaryRef` stands for. Raises: UntrustedInputError."""


class PropertyFile(NamedTuple):
    """A binary value that travels as an entry: which property it belongs to, and where it is."""

    name: str
    value_index: int | None
    binary: Binary


class NodeText(NamedTuple):
    """All that a package says of one node.

    Attributes:
        path: The node's path, checked.
        entry: The entry that says it, for messages.
        attributes: Resolved names and texts in turn.
        binaries: Values that travel as entries.
        elements: Names of the elements within: the order of children, if there is one.
        marks: What processing instructions say, see `document.Mark`.
    """

    path: NodePath
    entry: str
    attributes: Sequence[str]
    binaries: Sequence[PropertyFile] = ()
    elements: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


def build_node(said: NodeText, refer: Refer) -> Node:
    """Understand a node.

    Raises:
        ValueRefusedError, PackageCorruptError: With entry, path and property.
    """
    primary = DEFAULT_TYPE
    mixins: tuple[str, ...] = ()
    properties: list[Property] = []
    pending = _by_property(said)
    for name, text in zip(said.attributes[::2], said.attributes[1::2], strict=True):
        parsed = _parse(said, name, text)
        if name == PRIMARY_TYPE:
            primary = parsed.values[0] if parsed.values else ""
        elif name == MIXIN_TYPES:
            mixins = tuple(sorted(set(parsed.values)))
        elif parsed.type is PropertyType.BINARY:
            properties.append(_binary_property(said, name, parsed, pending.pop(name, {}), refer))
        else:
            properties.append(Property(name, parsed.values, parsed.type, parsed.is_multiple))
    properties += [_unannounced_property(said, name, values) for name, values in pending.items()]
    properties.sort(key=_name)
    _check(said, primary, mixins, properties)
    return Node(said.path, primary, mixins, tuple(properties), child_order(said, primary))


def child_order(said: NodeText, primary_type: str) -> tuple[str, ...] | None:
    """The order of children that a node's elements and marks tell. Raises: PackageCorruptError."""
    if Mark.ORDERED in said.marks:
        return said.elements
    if Mark.UNORDERED in said.marks or not said.elements or primary_type in UNORDERED_TYPES:
        return None
    return said.elements


def _parse(said: NodeText, name: str, text: str) -> ParsedValues:
    try:
        return parse_values(text)
    except ValueRefusedError as error:
        error.where.update(entry=said.entry, path=said.path, property=name)
        raise


def _by_property(said: NodeText) -> dict[str, dict[int | None, Binary]]:
    found: dict[str, dict[int | None, Binary]] = {}
    for name, index, binary in said.binaries:
        found.setdefault(name, {})[index] = binary
    return found


def _binary_property(
    said: NodeText, name: str, parsed: ParsedValues, travelling: dict[int | None, Binary], refer: Refer
) -> Property:
    values = []
    for index, text in enumerate(parsed.values):
        if text:
            values.append(_referred(said, name, parsed, text, refer))
            continue
        found = travelling.get(index if parsed.is_multiple else None)
        if found is None:
            raise _refused(said, f"the binary property {name!r} has no content in the package")
        values.append(found)
    if any(index is None if parsed.is_multiple else index is not None for index in travelling):
        raise _refused(said, f"the binary property {name!r} is both single and multiple")
    if len(travelling) > len(values):
        raise _refused(said, f"the binary property {name!r} has more entries than values")
    return Property(name, tuple(values), PropertyType.BINARY, parsed.is_multiple)


def _referred(said: NodeText, name: str, parsed: ParsedValues, text: str, refer: Refer) -> Binary:
    if not parsed.is_reference:
        raise _refused(said, f"the binary property {name!r} has text where its content should be referred to")
    try:
        return refer(text)
    except UntrustedInputError as error:
        error.where.update(entry=said.entry, path=said.path, property=name)
        raise


def _unannounced_property(said: NodeText, name: str, values: dict[int | None, Binary]) -> Property:
    if set(values) == {None}:
        return Property(name, (values[None],), PropertyType.BINARY)
    if set(values) != set(range(len(values))):
        raise _refused(said, f"the values of the binary property {name!r} are not counted from 0")
    return Property(name, tuple(values[index] for index in range(len(values))), PropertyType.BINARY, is_multiple=True)


def _check(said: NodeText, primary: str, mixins: Iterable[str], properties: Sequence[Property]) -> None:
    for name in (primary, *mixins):
        if is_refused_name(name):
            raise _refused(said, f"{name[:80]!r} is not a node type")
    previous = ""
    for one in properties:
        if one.name == previous:
            raise _refused(said, f"the property {previous!r} stands twice")
        previous = one.name
        if is_refused_name(previous):
            raise _refused(said, f"{previous[:80]!r} is not a property's name")
    if len(set(said.elements)) != len(said.elements):
        raise _refused(said, "two elements within have one name")


def is_refused_name(name: str) -> bool:
    """Whether a text can't name a type or property: the rule of `wire/nodes.py`."""
    return not name or len(name) > MAX_NAME_LENGTH or "/" in name or _CONTROL.search(name) is not None


def _refused(said: NodeText, reason: str) -> PackageCorruptError:
    return PackageCorruptError(reason, entry=said.entry, path=said.path)
