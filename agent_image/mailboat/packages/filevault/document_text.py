"""DocView documents as text: the writing half.

Attributes are sorted by name, one a line and four spaces deeper than their element, as FileVault writes them, so that
people can compare. Namespaces are declared at the root, those in use only, `jcr` always.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mailboat.model.nodes import Node, Property, PropertyType
from mailboat.packages.filevault.attributes import MIXIN_TYPES, PRIMARY_TYPE
from mailboat.packages.filevault.document_reader import INSTRUCTION, ROOT_NAME
from mailboat.packages.filevault.docview import format_values
from mailboat.packages.filevault.markup import XML_HEAD, escape
from mailboat.packages.filevault.names import PREFIX, xml_name
from mailboat.packages.prefixes import unresolved

_DECLARED_BY_XML: Final = "xml"
_PRIMARY: Final = -1
_MIXINS: Final = -2
_INDENT: Final = "    "
_PREFIXES: Final = re.compile(rf"(?:\A|/)({PREFIX}):")


class AttributeNames(NamedTuple):
    """How the properties of a node are written, the same for all nodes that have the same.

    Attributes:
        order: XML name and place of each property, sorted by XML name; the types have the places -1 and -2.
        prefixes: The prefixes in use.
    """

    order: tuple[tuple[str, int], ...]
    prefixes: frozenset[str]


@lru_cache(1024)
def _attribute_names(names: tuple[str, ...], has_mixins: bool) -> AttributeNames:  # noqa: FBT001  # one caller, below
    placed = [(xml_name(name), place) for place, name in enumerate(names)]
    placed.append((PRIMARY_TYPE, _PRIMARY))
    if has_mixins:
        placed.append((MIXIN_TYPES, _MIXINS))
    prefixes = frozenset([xml.partition(":")[0] for xml, _ in placed if ":" in xml])
    return AttributeNames(tuple(sorted(placed)), prefixes)


def attributes_of(node: Node, references: Mapping[str, Sequence[str]], prefixes: set[str]) -> list[tuple[str, str]]:
    """XML names and texts of a node's attributes, sorted; the prefixes in use are added to `prefixes`.

    `references` has the texts of binaries, by property; empty texts stand for values that travel as entries.
    """
    held = node.properties
    named = _attribute_names(tuple([prop.name for prop in held]), bool(node.mixin_types))
    prefixes |= named.prefixes
    pairs = []
    for xml, place in named.order:
        if place == _PRIMARY:
            text = _types_text(node.primary_type, prefixes)
        elif place == _MIXINS:
            mixins = [_types_text(name, prefixes) for name in sorted(node.mixin_types)]
            text = format_values(PropertyType.STRING, mixins, is_multiple=True)
        else:
            text = _property_text(held[place], references, prefixes)
        pairs.append((xml, text))
    return pairs


def _types_text(name: str, prefixes: set[str]) -> str:
    prefix, colon, _ = name.partition(":")
    if colon:
        prefixes.update(_PREFIXES.findall(f"{prefix}:"))
    return name


def _property_text(one: Property, references: Mapping[str, Sequence[str]], prefixes: set[str]) -> str:
    if one.type is PropertyType.BINARY:
        texts = references[one.name]
        return format_values(one.type, texts, is_multiple=one.is_multiple, is_reference=any(texts))
    if one.type in (PropertyType.NAME, PropertyType.PATH):
        for value in one.values:
            prefixes.update(_PREFIXES.findall(str(value)))
    return format_values(one.type, one.values, is_multiple=one.is_multiple)  # type: ignore[arg-type]  # texts, by type


def format_element(
    name: str, attributes: Iterable[tuple[str, str]], marks: Iterable[str], children: Sequence[str], depth: int = 0
) -> str:
    """The text of an element; `children` are the texts of elements one level deeper."""
    indent = "\n" + _INDENT * (depth + 1)
    lines = [f'{indent}{key}="{escape(text)}"' for key, text in attributes]
    inner = [f"<?{INSTRUCTION} {mark}?>" for mark in marks]
    inner += children
    if not inner:
        return f"<{name}{''.join(lines)}/>"
    return f"<{name}{''.join(lines)}>{indent}{indent.join(inner)}\n{_INDENT * depth}</{name}>"


def dedent(element: str, levels: int) -> str:
    """The text of an element that moves outwards. Within values there are no line breaks, they are escaped."""
    return element.replace("\n" + _INDENT * levels, "\n")


def format_document(root: str, prefixes: Iterable[str], namespaces: Mapping[str, str]) -> str:
    """A whole document from the text of its root element, which lacks the declarations of `prefixes` yet.

    Raises:
        NamespaceUnresolvedError: A prefix has no namespace, or several.
    """
    unknown = sorted(prefix for prefix in prefixes if prefix not in namespaces)
    if unknown:
        raise unresolved(unknown[0], "has no namespace")
    declared = [
        f' xmlns:{prefix}="{escape(namespaces[prefix])}"'
        for prefix in sorted({"jcr", *prefixes})
        if prefix != _DECLARED_BY_XML
    ]
    start = len(ROOT_NAME) + 1
    return f"{XML_HEAD}{root[:start]}{''.join(declared)}{root[start:]}\n"


def element_prefixes(names: Iterable[str]) -> set[str]:
    """The prefixes of elements with these names."""
    return {xml.partition(":")[0] for xml in map(xml_name, names) if ":" in xml}
