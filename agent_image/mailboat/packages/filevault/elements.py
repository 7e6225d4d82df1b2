"""What an element says of its node: types, properties, order of children.

Shared by everything that reads: the attributes of one element, with the binaries that travel with it, become a
`Node`, or a record straight away. Values are checked here, and errors name entry, path and property.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from mailboat.errors import PackageCorruptError, UntrustedInputError, ValueRefusedError
from mailboat.model.nodes import (
    DATA_PROPERTY,
    FILE_TYPE,
    FOLDER_TYPE,
    RESOURCE_TYPE,
    Binary,
    Node,
    NodeRecord,
    Property,
    PropertyType,
)
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.attributes import MIXIN_TYPES, PRIMARY_TYPE, AttributePlan, is_refused_name
from mailboat.packages.filevault.document_reader import ElementMark
from mailboat.packages.filevault.docview import ParsedValues, parse_values
from mailboat.wire.node_bodies import MAX_NAME_LENGTH, encode_node, encode_texts
from mailboat.wire.shapes import Columns

DEFAULT_TYPE: Final = "nt:unstructured"
"""The type of a node that a document gives none, as hand-written ones do."""

UNORDERED_TYPES: Final = frozenset({FILE_TYPE, FOLDER_TYPE, "sling:Folder", "nt:linkedFile"})
_TYPES_WITH_DATA: Final = frozenset({FILE_TYPE, RESOURCE_TYPE, "oak:Resource"})
_name: Final = attrgetter("name")
_SYNTAX: Final = frozenset("{[\\")
_TYPED: Final = frozenset("{[")


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
        plan: The names of its attributes.
        texts: Their texts, in the same order.
        binaries: Values that travel as entries.
        elements: Names of the elements within: the order of children, if there is one.
        marks: What processing instructions say, see `ElementMark`.
        is_inner: Whether the document of a node above says it, where that matters: see `Node`.
    """

    path: NodePath
    entry: str
    plan: AttributePlan
    texts: Sequence[str]
    binaries: Sequence[PropertyFile] = ()
    elements: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    is_inner: bool = False


def build_node(node_text: NodeText, refer: Refer) -> Node:
    """Understand a node.

    Raises:
        ValueRefusedError, PackageCorruptError: With entry, path and property.
    """
    pending: dict[str, dict[int | None, Binary]] = {}
    for name, index, binary in node_text.binaries:
        pending.setdefault(name, {})[index] = binary
    properties: list[Property] = []
    for place in node_text.plan.order:
        name = node_text.plan.names[place]
        parsed = parse_text(node_text, name, node_text.texts[place])
        if parsed.type is PropertyType.BINARY and _is_left_out(node_text, name, parsed, pending):
            continue
        if parsed.type is PropertyType.BINARY:
            properties.append(_binary_property(node_text, name, parsed, pending.pop(name, {}), refer))
        elif parsed.is_multiple or None not in pending.get(name, ()):
            # FileVault sets what an entry has in place of the one value of an attribute; Oak refuses it for a list
            properties.append(Property(name, parsed.values, parsed.type, parsed.is_multiple))
    if pending:
        properties += [_unannounced_property(node_text, name, values) for name, values in pending.items()]
        properties.sort(key=_name)
        _check_names(node_text, properties)
    primary, mixins = types_of(node_text)
    return Node(node_text.path, primary, mixins, tuple(properties), child_order(node_text, primary), node_text.is_inner)


def build_record(node_text: NodeText, refer: Refer) -> NodeRecord:
    """The same node as a record: the hot path of imports, straight from the texts where there is no binary.

    It equals `encode_node` of what `build_node` gives; a test holds the two together. Raises: as `build_node`.
    """
    found = None if node_text.binaries else _columns(node_text)
    if found is None:
        return encode_node(build_node(node_text, refer))
    primary, mixins = types_of(node_text)
    columns, values = found
    body = encode_texts(primary, mixins, columns, values, child_order(node_text, primary))
    return NodeRecord(node_text.path, body, (), node_text.is_inner)


def _columns(node_text: NodeText) -> tuple[Columns, Sequence[str]] | None:
    """The properties as columns; None when there is a binary among them."""
    texts = node_text.texts
    values = [texts[place] for place in node_text.plan.order]
    for text in values:
        if text[:1] in _TYPED or "\\" in text:
            return _typed_columns(node_text, values)
    return node_text.plan.strings, values


def _typed_columns(node_text: NodeText, texts: Sequence[str]) -> tuple[Columns, Sequence[str]] | None:
    names = node_text.plan.strings.names
    types, counts, values = bytearray(), [], list[str]()
    for name, text in zip(names, texts, strict=True):
        parsed = parse_text(node_text, name, text)
        if parsed.type is PropertyType.BINARY:
            return None
        types.append(parsed.type)
        counts.append(len(parsed.values) + 1 if parsed.is_multiple else 0)
        values += parsed.values
    return Columns(names, bytes(types), tuple(counts) if any(counts) else ()), values


def types_of(node_text: NodeText) -> tuple[str, tuple[str, ...]]:
    """Primary type and mixins. Raises: PackageCorruptError."""
    primary, plan = DEFAULT_TYPE, node_text.plan
    mixins: tuple[str, ...] = ()
    if plan.primary is not None:
        text = node_text.texts[plan.primary]
        primary = text if text[:1] not in _SYNTAX else "".join(parse_text(node_text, PRIMARY_TYPE, text).values)
    if plan.mixins is not None:
        mixins = tuple(sorted(set(parse_text(node_text, MIXIN_TYPES, node_text.texts[plan.mixins]).values)))
    for name in (primary, *mixins):
        if len(name) > MAX_NAME_LENGTH or is_refused_name(name):
            raise refused(node_text, f"{name[:80]!r} is not a node type")
    return primary, mixins


def parse_text(node_text: NodeText, name: str, text: str) -> ParsedValues:
    """Understand an attribute. Raises: ValueRefusedError with entry, path and property."""
    try:
        return parse_values(text)
    except ValueRefusedError as error:
        error.where.update(entry=node_text.entry, path=node_text.path, property=name)
        raise


def child_order(node_text: NodeText, primary_type: str) -> tuple[str, ...] | None:
    """Return the order of children by a node's elements and marks. Raises: PackageCorruptError."""
    if ElementMark.ORDERED in node_text.marks:
        return node_text.elements
    if ElementMark.UNORDERED in node_text.marks or not node_text.elements or primary_type in UNORDERED_TYPES:
        return None
    return node_text.elements


def _is_left_out(
    node_text: NodeText, name: str, parsed: ParsedValues, pending: Mapping[str, Mapping[int | None, Binary]]
) -> bool:
    """Whether FileVault sets no property, as nothing has the bytes. A file can't be made without its bytes.

    Of a single value it leaves what the target has, which a record can't say: that is refused.
    """
    if parsed.is_reference or not parsed.is_multiple or not parsed.values or any(parsed.values) or name in pending:
        return False
    return name != DATA_PROPERTY or types_of(node_text)[0] not in _TYPES_WITH_DATA


def _binary_property(
    node_text: NodeText, name: str, parsed: ParsedValues, travelling: dict[int | None, Binary], refer: Refer
) -> Property:
    values = []
    for index, text in enumerate(parsed.values):
        if text:
            values.append(_referred(node_text, name, parsed, text, refer))
            continue
        found = travelling.get(index if parsed.is_multiple else None)
        if found is None:
            raise PackageCorruptError(
                f"the binary property {name!r} has no content in the package",
                next_step="add its bytes as an entry, or remove the attribute",
                entry=node_text.entry,
                path=node_text.path,
            )
        values.append(found)
    if any(index is None if parsed.is_multiple else index is not None for index in travelling):
        raise refused(node_text, f"the binary property {name!r} is both single and multiple")
    if len(travelling) > len(values):
        raise refused(node_text, f"the binary property {name!r} has more entries than values")
    return Property(name, tuple(values), PropertyType.BINARY, parsed.is_multiple)


def _referred(node_text: NodeText, name: str, parsed: ParsedValues, text: str, refer: Refer) -> Binary:
    if not parsed.is_reference:
        raise refused(node_text, f"the binary property {name!r} has text where its content should be referred to")
    try:
        return refer(text)
    except UntrustedInputError as error:
        error.where.update(entry=node_text.entry, path=node_text.path, property=name)
        raise


def _unannounced_property(node_text: NodeText, name: str, values: dict[int | None, Binary]) -> Property:
    if set(values) == {None}:
        return Property(name, (values[None],), PropertyType.BINARY)
    if set(values) != set(range(len(values))):
        raise refused(node_text, f"the values of the binary property {name!r} are not counted from 0")
    return Property(name, tuple(values[index] for index in range(len(values))), PropertyType.BINARY, is_multiple=True)


def _check_names(node_text: NodeText, properties: Sequence[Property]) -> None:
    previous = ""
    for prop in properties:
        name = prop.name
        if len(name) > MAX_NAME_LENGTH or is_refused_name(name) or name in (previous, PRIMARY_TYPE, MIXIN_TYPES):
            raise refused(node_text, f"{name[:80]!r} is not a property's name, or a duplicate")
        previous = name


def refused(node_text: NodeText, reason: str) -> PackageCorruptError:
    """That a node can't be as its text says."""
    return PackageCorruptError(reason, entry=node_text.entry, path=node_text.path)
