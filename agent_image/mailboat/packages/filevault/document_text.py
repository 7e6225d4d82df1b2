"""DocView documents as text: the writing half.

Attributes are sorted by name, one a line and four spaces deeper than their element, as FileVault writes them, so that
people can compare. Namespaces are declared at the root, those in use only, `jcr` always.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mailboat.model.nodes import Node, PropertyType
from mailboat.packages.filevault.document import INSTRUCTION, ROOT_NAME
from mailboat.packages.filevault.docview import format_values
from mailboat.packages.filevault.elements import MIXIN_TYPES, PRIMARY_TYPE
from mailboat.packages.filevault.markup import XML_HEAD, escape
from mailboat.packages.filevault.names import xml_name
from mailboat.packages.filevault.namespaces import Namespaces

_DECLARED_BY_XML: Final = "xml"
_INDENT: Final = "    "
_PREFIXES: Final = re.compile(r"(?:\A|/)([A-Za-z][A-Za-z0-9.-]*):")


def attributes_of(node: Node, references: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """XML names and texts of a node's attributes.

    `references` has the texts of binaries, by property; empty texts stand for values that travel as entries.
    """
    pairs = [(PRIMARY_TYPE, format_values(PropertyType.STRING, (node.primary_type,), is_multiple=False))]
    if node.mixin_types:
        pairs.append((MIXIN_TYPES, format_values(PropertyType.STRING, sorted(node.mixin_types), is_multiple=True)))
    for one in node.properties:
        if one.type is PropertyType.BINARY:
            texts = references[one.name]
            text = format_values(one.type, texts, is_multiple=one.is_multiple, is_reference=any(texts))
        else:
            texts = [str(value) for value in one.values]
            text = format_values(one.type, texts, is_multiple=one.is_multiple)
        pairs.append((xml_name(one.name), text))
    return pairs


def format_element(
    name: str, attributes: Iterable[tuple[str, str]], marks: Iterable[str], children: Sequence[str], depth: int = 0
) -> str:
    """The text of an element; `children` are the texts of elements one level deeper."""
    indent = "\n" + _INDENT * (depth + 1)
    lines = [f'{indent}{key}="{escape(text)}"' for key, text in sorted(attributes)]
    inner = [f"<?{INSTRUCTION} {mark}?>" for mark in marks]
    inner += children
    if not inner:
        return f"<{name}{''.join(lines)}/>"
    return f"<{name}{''.join(lines)}>{indent}{indent.join(inner)}\n{_INDENT * depth}</{name}>"


def dedent(element: str, levels: int) -> str:
    """The text of an element that moves outwards. Within values there are no line breaks, they are escaped."""
    return element.replace("\n" + _INDENT * levels, "\n")


def format_document(root: str, prefixes: Iterable[str], namespaces: Namespaces) -> str:
    """A whole document from the text of its root element, which lacks the declarations of `prefixes` yet."""
    declared = [
        f' xmlns:{prefix}="{escape(namespaces.namespace_of(prefix))}"'
        for prefix in sorted({"jcr", *prefixes})
        if prefix != _DECLARED_BY_XML
    ]
    start = len(ROOT_NAME) + 1
    return f"{XML_HEAD}{root[:start]}{''.join(declared)}{root[start:]}\n"


def prefixes_in(node: Node) -> set[str]:
    """The prefixes of a node's properties, types, and of its values that are names or paths."""
    names = [node.primary_type, *node.mixin_types, *[xml_name(one.name) for one in node.properties]]
    for one in node.properties:
        if one.type in (PropertyType.NAME, PropertyType.PATH):
            names += [str(value) for value in one.values]
    return {prefix for name in names if ":" in name for prefix in _PREFIXES.findall(name)}


def element_prefixes(names: Iterable[str]) -> set[str]:
    """The prefixes of elements with these names."""
    return {xml.partition(":")[0] for xml in map(xml_name, names) if ":" in xml}
