"""Trees to test with: hypothesis strategies for nodes and whole trees, and builders for those written by hand.

A tree is a list of nodes in walk order: parents first, children in the order that their parent gives. By default every
tree can be held by every format and target of ours, FileVault included: names are JCR names, no two siblings differ in
case or Unicode form only, texts can stand in XML, plain files have no children. A `TreeShape` widens or narrows that.
Used by the contract suites and by the tests of packages, targets and codecs. Needs hypothesis, a development tool.
"""

from __future__ import annotations

import hashlib
import io
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from mailboat.model.nodes import (
    FILE_TYPE,
    FOLDER_TYPE,
    Binary,
    Node,
    NodeRecord,
    Property,
    PropertyType,
    file_node,
    folder_node,
    ordered_names,
)
from mailboat.model.paths import MAX_NAME_BYTES, NodePath, child_of, name_of, parent_of
from mailboat.wire.node_bodies import encode_node

CONTENT: Final = NodePath("/content")
INLINE_BINARY_BYTES: Final = 64 * 1024
RESERVED_PROPERTIES: Final = frozenset({"jcr:primaryType", "jcr:mixinTypes"})
XML_TEXTS: Final = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cn")), max_size=40)
ANY_TEXTS: Final = st.text(st.characters(codec="utf-8"), max_size=40)

_LOCAL_NAMES: Final = st.one_of(
    st.sampled_from(
        ["a", "b", "en", "news", "index.html", "jcr:content", "0", "b.txt", "Ärger", "a b", "a.b.c", "-_%"]
    ),
    st.text(
        st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="/\\:[]|*"), max_size=12
    ),
)
_PREFIXES: Final = st.sampled_from(["", "", "", "jcr:", "sling:", "cq:"])


# ------------------------------------------------------------------------------------------------------------- parts


def _is_jcr_name(name: str) -> bool:
    local = name.rpartition(":")[2]
    is_short = len(name.encode()) <= MAX_NAME_BYTES
    return is_short and local not in {"", ".", ".."} and local == local.strip() and not local.startswith(".node")


def names() -> st.SearchStrategy[str]:
    """Names that are legal in JCR, in a file system and in a zip: some plain, some with prefixes, spaces, Unicode."""
    made = st.builds(lambda prefix, local: prefix + local if ":" not in local else local, _PREFIXES, _LOCAL_NAMES)
    return made.filter(_is_jcr_name)


def property_names() -> st.SearchStrategy[str]:
    """Names of properties; never those that a node keeps elsewhere."""
    return names().filter(lambda name: name not in RESERVED_PROPERTIES)


def values(kind: PropertyType, texts: st.SearchStrategy[str] = XML_TEXTS) -> st.SearchStrategy[str]:
    """Canonical lexical forms of one type, any but BINARY."""
    return _VALUES.get(kind, texts)


_VALUES: Final[dict[PropertyType, st.SearchStrategy[str]]] = {
    PropertyType.LONG: st.integers(-(2**63), 2**63 - 1).map(str),
    PropertyType.DOUBLE: st.one_of(
        st.floats(allow_nan=False, allow_infinity=False).map(repr), st.sampled_from(["NaN", "Infinity", "-Infinity"])
    ),
    PropertyType.DATE: st.builds(
        lambda at, zone: at.isoformat(timespec="milliseconds") + zone,
        st.datetimes(),
        st.sampled_from(["Z", "+01:00", "-09:30"]),
    ),
    PropertyType.BOOLEAN: st.sampled_from(["true", "false"]),
    PropertyType.NAME: names(),
    PropertyType.PATH: names().map(lambda name: f"/{name}"),
    PropertyType.REFERENCE: st.uuids().map(str),
    PropertyType.WEAK_REFERENCE: st.uuids().map(str),
    PropertyType.URI: st.sampled_from(["https://example.org/a?b=c#d", "urn:x:y"]),
    PropertyType.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
}


def small_binaries(max_size: int = 200) -> st.SearchStrategy[Binary]:
    """Binaries that are held inline."""
    return st.binary(max_size=max_size).map(Binary)


def large_binaries() -> st.SearchStrategy[Binary]:
    """Binaries above the inline limit, named by digest and with an opener. Cheap to draw: a repeated pattern."""
    return st.builds(
        lambda pattern, extra: large_binary(pattern, INLINE_BINARY_BYTES + extra),
        st.binary(min_size=1, max_size=4),
        st.integers(1, 5000),
    )


def properties(
    texts: st.SearchStrategy[str] = XML_TEXTS, binaries: st.SearchStrategy[Binary] | None = None
) -> st.SearchStrategy[Property]:
    """One property of any type, single or multiple (which may have no value at all)."""
    of_binaries = small_binaries() if binaries is None else binaries

    @st.composite
    def draw_property(draw: st.DrawFn) -> Property:
        name = draw(property_names())
        kind = draw(st.sampled_from(PropertyType))
        is_multiple = draw(st.booleans())
        low, high = (0, 3) if is_multiple else (1, 1)
        if kind is PropertyType.BINARY:
            held = draw(st.lists(of_binaries, min_size=low, max_size=high))
            return Property(name, tuple(held), kind, is_multiple)
        drawn = draw(st.lists(values(kind, texts), min_size=low, max_size=high))
        return Property(name, tuple(drawn), kind, is_multiple)

    return draw_property()


# ------------------------------------------------------------------------------------------------------------- trees


@dataclass(frozen=True)
class TreeShape:
    """What drawn trees look like.

    Attributes:
        root: The path of the tree's top node, which is always there.
        max_nodes: Nodes at most, the top included.
        node_names: Names of nodes.
        texts: Values of type STRING.
        binaries: Bytes of files and binary properties; None is mostly small, sometimes large.
        has_only_files: Plain files and folders only, as in a directory.
        may_files_have_children: Also below plain files there may be nodes.
    """

    root: NodePath = CONTENT
    max_nodes: int = 12
    node_names: st.SearchStrategy[str] = field(default_factory=names)
    texts: st.SearchStrategy[str] = XML_TEXTS
    binaries: st.SearchStrategy[Binary] | None = None
    has_only_files: bool = False
    may_files_have_children: bool = False


def nodes(path: NodePath, shape: TreeShape | None = None) -> st.SearchStrategy[Node]:
    """One node at `path`: a plain file, a plain folder or (unless the shape forbids) one with properties."""
    wanted = shape or TreeShape()
    binaries = wanted.binaries
    if binaries is None:
        binaries = st.one_of(small_binaries(), small_binaries(), large_binaries())
    plain = st.one_of(st.builds(file_node, st.just(path), binaries), st.just(folder_node(path)))
    return plain if wanted.has_only_files else st.one_of(plain, _rich_nodes(path, wanted.texts, binaries))


def _rich_nodes(
    path: NodePath, texts: st.SearchStrategy[str], binaries: st.SearchStrategy[Binary]
) -> st.SearchStrategy[Node]:
    held = st.lists(properties(texts, binaries), max_size=4, unique_by=lambda one: one.name)
    return st.builds(
        lambda kind, mixins, props: Node(path, kind, mixins, tuple(sorted(props, key=lambda one: one.name))),
        st.sampled_from(["nt:unstructured", "cq:Page", "sling:Folder", "nt:resource"]),
        st.lists(
            st.sampled_from(["mix:title", "mix:versionable", "rep:AccessControllable"]), unique=True, max_size=2
        ).map(lambda mixins: tuple(sorted(mixins))),
        held,
    )


@st.composite
def trees(draw: st.DrawFn, shape: TreeShape | None = None) -> list[Node]:
    """A whole tree in walk order; its top is `shape.root` and may have children whatever it is (never a file)."""
    wanted = shape or TreeShape()
    top = draw(nodes(wanted.root, wanted).filter(lambda node: node.primary_type != FILE_TYPE))
    drawn, taken = {top.path: top}, {top.path: set[str]()}
    for _ in range(draw(st.integers(0, wanted.max_nodes - 1))):
        parent = draw(st.sampled_from(list(taken)))
        name = draw(wanted.node_names)
        if folded_name(name) in taken[parent]:
            continue
        taken[parent].add(folded_name(name))
        node = draw(nodes(child_of(parent, name), wanted))
        drawn[node.path] = node
        if wanted.may_files_have_children or node.primary_type != FILE_TYPE:
            taken[node.path] = set()
    return in_walk_order([draw(_with_order(node, drawn)) for node in drawn.values()])


@st.composite
def _with_order(draw: st.DrawFn, node: Node, drawn: dict[NodePath, Node]) -> Node:
    if node.primary_type in {FILE_TYPE, FOLDER_TYPE} or draw(st.booleans()):
        return node
    present = [name_of(path) for path in drawn if path != "/" and parent_of(path) == node.path]
    order = draw(st.permutations(present))
    return Node(node.path, node.primary_type, node.mixin_types, node.properties, tuple(order))


def folded_name(name: str) -> str:
    """What a file system that folds case and Unicode forms would take the name for."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


# ---------------------------------------------------------------------------------------------------------- builders


def large_binary(pattern: bytes = b"large", length_bytes: int = INLINE_BINARY_BYTES + 1) -> Binary:
    """A binary named by digest, whose bytes repeat a pattern."""
    data = (pattern * (length_bytes // len(pattern) + 1))[:length_bytes]
    return Binary(digest=hashlib.sha256(data).digest(), length_bytes=length_bytes, opener=lambda: io.BytesIO(data))


def a_file(path: str, data: bytes = b"hello") -> Node:
    """A plain file; inline whatever its size."""
    return file_node(NodePath(path), Binary(data))


def a_folder(path: str) -> Node:
    """A plain folder."""
    return folder_node(NodePath(path))


def a_page(path: str, order: Sequence[str] | None = (), **texts: str) -> Node:
    """An `nt:unstructured` node with text properties; in names, `_` after a known prefix stands for a colon."""
    held = (Property(name.replace("jcr_", "jcr:"), (text,)) for name, text in texts.items())
    ordered = None if order is None else tuple(order)
    return Node(NodePath(path), "nt:unstructured", (), tuple(sorted(held, key=lambda one: one.name)), ordered)


def a_full_node(path: str) -> Node:
    """A node with a single and a multiple property of every type, mixins and an order of children."""
    texts = {
        PropertyType.STRING: 'text with "quotes", <tags> & {Long}1, [a,b] and \\',
        PropertyType.LONG: "42",
        PropertyType.DOUBLE: "1.5",
        PropertyType.DATE: "2026-01-02T03:04:05.678+01:00",
        PropertyType.BOOLEAN: "true",
        PropertyType.NAME: "jcr:content",
        PropertyType.PATH: "/content/en",
        PropertyType.REFERENCE: "5f2d7c9c-0b4e-4a52-8a8e-2f6f0f6f2f0e",
        PropertyType.WEAK_REFERENCE: "5f2d7c9c-0b4e-4a52-8a8e-2f6f0f6f2f0e",
        PropertyType.URI: "https://example.org/?a=b&c",
        PropertyType.DECIMAL: "1.10",
    }
    held = [Property("no-values", (), PropertyType.STRING, is_multiple=True)]
    for kind, text in texts.items():
        held.append(Property(f"one-{kind.name}", (text,), kind))
        held.append(Property(f"two-{kind.name}", (text, text), kind, is_multiple=True))
    held.append(Property("one-binary", (Binary(b"\x00\xff"),), PropertyType.BINARY))
    held.append(Property("two-binaries", (Binary(b""), large_binary(b"two")), PropertyType.BINARY, is_multiple=True))
    held.sort(key=lambda one: one.name)
    return Node(NodePath(path), "nt:unstructured", ("mix:title", "mix:versionable"), tuple(held), ("z", "a"))


def sample_tree(root: str = "/content") -> list[Node]:
    """A tree by hand with everything in it once: files small, large and empty, folders, pages, all types, an order."""
    return in_walk_order(
        [
            a_folder(root),
            a_file(f"{root}/empty.txt", b""),
            a_file(f"{root}/index.html", b"<h1>Hello</h1>\n"),
            file_node(NodePath(f"{root}/large.bin"), large_binary()),
            a_folder(f"{root}/no-children"),
            a_full_node(f"{root}/node"),
            a_page(f"{root}/node/a", jcr_title="A"),
            a_page(f"{root}/node/m", None),
            a_file(f"{root}/node/z", b"last in name, first in order"),
            a_page(f"{root}/Ünïcode %41 name", jcr_title="Grüße"),
        ]
    )


def in_walk_order(tree: Iterable[Node]) -> list[Node]:
    """The same nodes, parents first, children in their order. Parents may be missing."""
    by_path = {node.path: node for node in tree}
    children: dict[str, set[str]] = {}
    for path in by_path:
        above = path
        while above != "/":
            children.setdefault(parent_of(above), set()).add(name_of(above))
            above = parent_of(above)
    walked: list[Node] = []
    todo = [NodePath("/")]
    while todo:
        path = todo.pop()
        node = by_path.get(path)
        if node is not None:
            walked.append(node)
        order = node.child_order if node is not None else None
        below = ordered_names(order, list(children.get(path, ())))
        todo += [child_of(path, name) for name in reversed(below)]
    return walked


def records(tree: Iterable[Node]) -> list[NodeRecord]:
    """The nodes as packages give them to targets."""
    return [encode_node(node) for node in tree]
