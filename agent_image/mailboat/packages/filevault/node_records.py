"""Nodes as records, straight from their texts where there is no binary: the hot path of imports.

What it gives equals `encode_node` of the node that `elements.py` builds; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mailboat.model.nodes import NodeRecord, PropertyType
from mailboat.packages.filevault.elements import NodeText, Refer, build_node, child_order, parse_text, types_of
from mailboat.wire.node_bodies import encode_node, encode_texts
from mailboat.wire.shapes import Columns

_SYNTAX: Final = frozenset("{[")


def build_record(node_text: NodeText, refer: Refer) -> NodeRecord:
    """Encode a node. Raises: as `build_node`."""
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
        if text[:1] in _SYNTAX or "\\" in text:
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
