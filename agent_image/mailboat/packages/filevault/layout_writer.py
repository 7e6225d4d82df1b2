"""Lays nodes out as entries: plain files, folders, and documents that hold as much of a subtree as fits.

Nodes come as a stream, parents first, and leave as soon as they can: what is open is the chain of nodes down to the
current one, with the texts of their children so far. A document takes children in until it has `DOCUMENT_BYTES`; those
after it get documents of their own in directories below, as Jackrabbit itself nests them. So memory depends on depth,
not on the size of the tree. Marks (`ElementMark`) carry what FileVault's layout can't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mailboat.blobs.references import BlobReference, ReferenceCodec
from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError
from mailboat.model.nodes import (
    CONTENT_NODE,
    DATA_PROPERTY,
    FILE_TYPE,
    RESOURCE_TYPE,
    Binary,
    Node,
    Property,
    PropertyType,
)
from mailboat.model.paths import ROOT, NodePath, ancestors_of, child_of, is_within, name_of, parent_of
from mailboat.packages.filevault.archive_tree import platform_path
from mailboat.packages.filevault.archive_writer import ArchiveWriter
from mailboat.packages.filevault.document_reader import (
    MAX_DOCUMENT_ATTRIBUTES,
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_ELEMENTS,
    MAX_DOCUMENTS_HELD,
    PROBE_BYTES,
    ROOT_NAME,
    ElementMark,
    is_docview,
)
from mailboat.packages.filevault.document_text import (
    attributes_of,
    dedent,
    element_prefixes,
    format_document,
    format_element,
)
from mailboat.packages.filevault.elements import UNORDERED_TYPES
from mailboat.packages.filevault.markup import check_namespaces
from mailboat.packages.filevault.names import (
    CONTENT_XML,
    DIRECTORY_SUFFIX,
    XML_SUFFIX,
    directory_name,
    is_reserved_file,
    platform_name,
    property_file_name,
    xml_name,
)
from mailboat.packages.prefixes import NamespaceUnresolvedError

DOCUMENT_BYTES: Final = 256 * 1024
POLICY_TYPES: Final = frozenset({"rep:ACL", "rep:CugPolicy", "rep:PrincipalPolicy"})
"""An importer that can't apply one drops its whole document, hence one for each, as FileVault exports them."""
MAX_ELEMENT_DEPTH: Final = 3
"""Of elements with entries below: FileVault's validator forgets deeper ones when it reads their directories, and then
takes these for folders (`NodeTypeValidator.finalizeValidationForSiblings` of vault-validation 4.1.4)."""
_DEPTH_AROUND: Final = 4
"""Readers count the document around its root, the child itself, and an element for a name of its order."""
_ATTRIBUTE_BYTES: Final = 8  # what stands around name and text, about


@dataclass(frozen=True)
class LayoutSettings:
    """How binaries travel, and how names are declared.

    Attributes:
        namespaces: What to declare for prefixes.
        references: Writes the texts of binaries that are elsewhere.
        largest_carried_bytes: Binaries up to this size travel in the package; None means all do.
        owns: Whether the package replaces what is at a path. An importer would keep a node of which there is an
            element without anything in it, so those of missing nodes are left out. None keeps all names of an order.
        on_shortened: Called with a node whose order lost names, before any node that is not below it is written.
        max_xml_depth: The deepest nesting of elements that readers accept.
        keeps_documents: Write into one document what the source has in one, whatever its size: see `DocumentMerge`.
        owns_subtrees: Whether the package replaces all that is below what it replaces.
    """

    namespaces: Mapping[str, str]
    references: ReferenceCodec
    largest_carried_bytes: int | None
    owns: Callable[[NodePath], bool] | None = None
    on_shortened: Callable[[Node], None] | None = None
    max_xml_depth: int = LimitsConfig().max_xml_depth
    keeps_documents: bool = False
    owns_subtrees: bool = True


@dataclass(slots=True)
class _Document:
    """A document being written.

    Of its `elements` those for names of an order count twice where the children are elements, too.
    """

    size: int = 0
    prefixes: set[str] = field(default_factory=set)
    elements: int = 0
    attributes: int = 0

    def count(self, node: Node, attributes: Sequence[tuple[str, str]]) -> None:
        self.size += sum(len(key) + len(text) + _ATTRIBUTE_BYTES for key, text in attributes)
        self.elements += _element_count(node)
        self.attributes += _attribute_count(node)

    def is_readable_with(self, node: Node) -> bool:
        """Whether readers still accept the document with the node, see `DocumentReader.read`."""
        return (
            self.attributes + _attribute_count(node) <= MAX_DOCUMENT_ATTRIBUTES
            and self.elements + _element_count(node) <= MAX_DOCUMENT_ELEMENTS
        )


@dataclass(slots=True)
class _Open:
    """A node whose children may still come.

    `document`: None for a plain folder; `depth` counts the elements around it in its document;
    `file` is the entry that the bytes of its jcr:content may have, next to its directory; `present` has the children
    that came; `whole` is the node with the bytes that `file` or another entry has, `data` bytes that no entry has yet;
    `held_bytes` are those of documents below that lie within each other.
    """

    node: Node
    platform: str
    document: _Document | None
    depth: int
    attributes: list[tuple[str, str]]
    marks: list[str]
    inlined: dict[str, str] = field(default_factory=dict)
    has_entries: bool = False
    file: str | None = None
    present: set[str] = field(default_factory=set)
    whole: Node | None = None
    data: Binary | None = None
    held_bytes: int = 0

    def hold(self, length_bytes: int) -> None:
        """A child is written, whose documents within each other have so many bytes."""
        self.held_bytes = max(self.held_bytes, length_bytes)


class Layout:
    """Turns a stream of nodes into entries."""

    def __init__(self, archive: ArchiveWriter, settings: LayoutSettings) -> None:
        self._archive = archive
        self._settings = settings
        self._open: list[_Open] = []
        self._above_ancestors: set[NodePath] = set()

    def add_ancestor(self, node: Node) -> None:
        """Add a node above the roots: always a document, since Jackrabbit chooses the type of a mere directory.

        The bytes of a file are those of its jcr:content, and no plain entry: an importer would write such an entry over
        a file that is there already.

        Where documents are kept, those below it in its document must follow.
        """
        data, keeps_documents = node.data, self._settings.keeps_documents
        held = tuple(prop for prop in node.properties if data is None or prop.name != DATA_PROPERTY)
        outer = replace(node, properties=held)
        parent = self._parent_of(node.path) if keeps_documents else None
        platform = platform_path(node.path) if parent is None else _below(parent, node)
        document = self._document_for(node, parent)
        if parent is not None and document is not None and node.is_inner and data is None:
            opened = self._opened(outer, platform, document, parent.depth + 1)
        else:
            opened = self._opened(outer, platform, _Document(), 0)
        self._open.append(replace(opened, whole=node, data=data))
        self._open[-1].present.update(node.child_order or ())  # nothing below it is known yet
        if not keeps_documents:
            self._above_ancestors.update(ancestors_of(node.path))
            self._close()

    def write_before(self, path: NodePath) -> None:
        """Write what no node from here on belongs to, as the next one is at `path`."""
        self._parent_of(path)

    def add(self, node: Node, *, has_children: bool) -> None:
        """Add a covered node; its children, if it has any, must follow."""
        parent = self._parent_of(node.path)
        platform = platform_path(node.path) if parent is None else _below(parent, node)
        is_file = not has_children and _is_simple_file(node)
        # A file with children: an access control list, besides the jcr:content that the bytes stand for.
        data = node.data if has_children else None
        is_inner = self._settings.keeps_documents and node.is_inner
        # Directly below the root, Jackrabbit would make a mere directory nt:unstructured.
        is_folder = node.is_plain_folder and parent_of(node.path) != ROOT and not is_inner
        is_unfolded = has_children and node.primary_type == FILE_TYPE and self._may_be_entry(node) and not is_inner
        document = self._document_for(node, parent)
        if (
            not is_file
            and not is_folder
            and not is_unfolded
            and data is None
            and parent is not None
            and document is not None
            and (is_inner if self._settings.keeps_documents else self._takes_in(parent, document, node))
        ):
            self._add_element(node, platform, parent, document)
            return
        self._detach_open()
        if is_file:
            self._add_file(node, platform, parent)
        elif is_folder:
            self._open.append(_Open(node, platform, None, 0, [], []))
        elif data is not None:
            self._open_unfolded(node, platform, data)
        elif is_unfolded:
            self._open.append(self._opened(node, _file_directory(platform, node), _Document(), 0))
            self._open[-1].file = f"{platform[: platform.rfind('/')]}/{platform_name(name_of(node.path))}"
        else:
            self._open.append(self._opened(node, platform, _Document(), 0))

    def _document_for(self, node: Node, parent: _Open | None) -> _Document | None:
        """The parent's document, if readers accept it with the node."""
        if parent is None or parent.document is None or parent.depth + _DEPTH_AROUND > self._settings.max_xml_depth:
            return None
        return parent.document if parent.document.is_readable_with(node) else None

    def _takes_in(self, parent: _Open, document: _Document, node: Node) -> bool:
        """Whether the parent's document should hold the node: if it is small, and its order does not forbid it."""
        if node.primary_type in POLICY_TYPES or document.size >= DOCUMENT_BYTES:
            return False
        order = parent.node.child_order
        is_allowed = order is None or name_of(node.path) in order
        return is_allowed and (parent.depth < MAX_ELEMENT_DEPTH or not self._has_carried(node))

    def finish(self) -> None:
        while self._open:
            self._close()

    # ------------------------------------------------------------------------------------------------------ files

    def _add_file(self, node: Node, platform: str, parent: _Open | None) -> None:
        name, data = name_of(node.path), node.data
        if data is not None and node.is_plain_file and node.child_order is None and not self._is_special(name, data):
            folder = platform[: platform.rfind("/")]
            self._archive.add_binary(f"{folder}/{platform_name(name)}", data)
        elif data is not None:
            self._open_unfolded(node, platform, data)
            self._close()
        if parent is not None:
            parent.has_entries = True

    def _is_special(self, name: str, data: Binary) -> bool:
        """Whether the file can't be an entry of its own name: it would be read as something else, or lies elsewhere."""
        if is_reserved_file(name) or self._is_elsewhere(data):
            return True
        return name.endswith(XML_SUFFIX) and is_docview(_head(data))

    def _may_be_entry(self, node: Node) -> bool:
        """Whether a file with children can have an entry of its name: not where that is a directory of an ancestor."""
        return not is_reserved_file(name_of(node.path)) and node.path not in self._above_ancestors

    def _open_unfolded(self, node: Node, platform: str, data: Binary) -> None:
        """Begin a file as the document of nt:file; where its bytes go is known when its children are."""
        name = name_of(node.path)
        held = tuple(prop for prop in node.properties if prop.name != DATA_PROPERTY)
        file = None
        if node.primary_type == FILE_TYPE and self._may_be_entry(node) and not self._is_special(name, data):
            file = f"{platform[: platform.rfind('/')]}/{platform_name(name)}"
            platform = _file_directory(platform, node)
        outer = Node(node.path, node.primary_type, node.mixin_types, held, node.child_order)
        opened = self._opened(outer, platform, _Document(), 0)
        self._open.append(replace(opened, whole=node, data=data, file=file))

    def _place_bytes(self, closed: _Open, document: _Document, data: Binary) -> None:
        """Write the bytes of a file as those of its jcr:content; as its own property where it has one besides."""
        path = NodePath(f"{closed.node.path}/{CONTENT_NODE}")
        held: tuple[Property, ...] = (Property(DATA_PROPERTY, (data,), PropertyType.BINARY),)
        if CONTENT_NODE in closed.present:
            bare = self._opened(Node(closed.node.path, FILE_TYPE, (), held), closed.platform, document, 0)
            closed.attributes.extend(
                attribute for attribute in bare.attributes if attribute[0] == xml_name(DATA_PROPERTY)
            )
            return
        if closed.file is not None:
            self._archive.add_binary(closed.file, data)
            held = ()
        inner = Node(path, RESOURCE_TYPE, (), held)
        content = self._opened(inner, f"{closed.platform}/{platform_name(CONTENT_NODE)}", document, 1)
        closed.inlined[CONTENT_NODE] = format_element(CONTENT_NODE, content.attributes, (), (), 1)

    def _add_element(self, node: Node, platform: str, parent: _Open, document: _Document) -> None:
        """Write a node into its parent's document; the bytes of a file go next to its directory."""
        whole = node
        if parent.file is not None and name_of(node.path) == CONTENT_NODE:
            name, data = name_of(parent.node.path), _bytes_of(node)
            if data is not None and not self._is_special(name, data):
                self._archive.add_binary(parent.file, data)
                node = replace(node, properties=tuple(prop for prop in node.properties if prop.name != DATA_PROPERTY))
        self._open.append(self._opened(node, platform, document, parent.depth + 1))
        self._open[-1].whole = whole

    # -------------------------------------------------------------------------------------------------- documents

    def _opened(self, node: Node, platform: str, document: _Document, depth: int) -> _Open:
        references = {
            prop.name: self._carry(prop, platform) for prop in node.properties if prop.type is PropertyType.BINARY
        }
        attributes = attributes_of(node, references, document.prefixes)
        document.count(node, attributes)
        return _Open(node, platform, document, depth, attributes, list(_marks(node, self._open)))

    def _detach_open(self) -> None:
        """Give elements whose children are not all elements a document of their own, from the innermost outwards.

        FileVault restores an order only below the root of a document. And only there it notes which children have
        entries (the hints of `Importer.commit` and `DocViewImporter.endDocViewNode`): it removes those of an element
        before it imports them, with all below them that a filter leaves to others. See also `MAX_ELEMENT_DEPTH`.
        The jcr:content of a file stays an element: a document of its own would remove the bytes, which are an entry. So
        it names its children that have entries: see `_named_children`.
        """
        if self._settings.keeps_documents:
            return
        for index in reversed(range(len(self._open))):
            one = self._open[index]
            if one.document is None or not one.depth or self._open[index - 1].file is not None:
                return
            if self._settings.owns_subtrees and one.depth <= MAX_ELEMENT_DEPTH and not one.node.child_order:
                return
            one.document = replace(one.document, prefixes=set(one.document.prefixes))
            one.inlined = {name: dedent(text, one.depth) for name, text in one.inlined.items()}
            one.depth = 0

    def _carry(self, one: Property, platform: str) -> list[str]:
        """Write the values of a binary property that travel as entries. Returns the texts of all values."""
        texts = []
        for index, value in enumerate(one.values):
            if not isinstance(value, Binary):
                raise TypeError("a binary property holds a text")
            if self._is_elsewhere(value):
                texts.append(self._settings.references.format(BlobReference(value.digest, value.length_bytes)))
                continue
            texts.append("")
            file = property_file_name(one.name, index if one.is_multiple else None)
            self._archive.add_binary(f"{platform}/{file}", value)
        return texts

    def _has_carried(self, node: Node) -> bool:
        """Whether binaries of the node travel as entries."""
        values = (value for prop in node.properties if prop.type is PropertyType.BINARY for value in prop.values)
        return any(isinstance(value, Binary) and not self._is_elsewhere(value) for value in values)

    def _is_elsewhere(self, binary: Binary) -> bool:
        largest = self._settings.largest_carried_bytes
        return largest is not None and binary.length_bytes > largest

    def _parent_of(self, path: NodePath) -> _Open | None:
        parent = parent_of(path)
        while self._open:
            last = self._open[-1]
            above = last.node.path
            if path != above and is_within(path, above):
                last.present.add(path[len(above) :].lstrip("/").partition("/")[0])
                return last if above == parent else None
            self._close()
        return None

    def _close(self) -> None:
        closed = self._open.pop()
        parent = self._open[-1] if self._open else None
        held = closed.held_bytes + self._write_closed(closed, parent)
        if held > MAX_DOCUMENTS_HELD * MAX_DOCUMENT_BYTES:
            raise LimitExceededError(
                f"the texts of a node and of nodes below need documents of {held} bytes, which readers refuse",
                path=closed.node.path,
                limit=MAX_DOCUMENTS_HELD * MAX_DOCUMENT_BYTES,
            )
        if parent is not None:
            parent.has_entries = True
            parent.hold(held)

    def _write_closed(self, closed: _Open, parent: _Open | None) -> int:
        """Write what no child is added to any more. Returns the bytes of its own document, 0 without one."""
        if closed.document is None:
            if not closed.has_entries:
                self._archive.add_directory(f"{closed.platform}/")
            return 0
        name = name_of(closed.node.path)
        if closed.data is not None:
            self._place_bytes(closed, closed.document, closed.data)
        self._shorten_order(closed)
        named = self._named_children(closed)
        children, marks = _children_texts(closed, named)
        self._check_readable(closed, len(children))
        tag = xml_name(name) if closed.depth else ROOT_NAME
        closed.document.prefixes |= element_prefixes([name, *(closed.node.child_order or ()), *named])
        text = format_element(tag, closed.attributes, marks, children, closed.depth)
        if closed.depth and parent is not None:
            parent.inlined[name] = text
            return 0
        try:
            document = format_document(text, closed.document.prefixes, self._settings.namespaces)
        except NamespaceUnresolvedError as error:
            error.where["path"] = closed.node.path
            raise
        entry, content = f"{closed.platform}/{CONTENT_XML}", document.encode()
        _check_document(closed.node.path, entry, content)
        self._archive.add(entry, content)
        return len(content)

    def _named_children(self, closed: _Open) -> list[str]:
        """Children that are named only so that an importer keeps what is below them and is not the package's."""
        is_content = closed.depth and self._open and self._open[-1].file is not None
        if not is_content or self._settings.owns_subtrees or closed.node.child_order is not None:
            return []
        return sorted(closed.present - closed.inlined.keys())

    def _check_readable(self, closed: _Open, children: int) -> None:
        """Refuse an order that readers refuse wherever it is written, and any document where they accept none."""
        depth = closed.depth + (3 if children else 2)
        for found, limit, what in (
            (children + 1, MAX_DOCUMENT_ELEMENTS, "children in an order"),
            (depth, self._settings.max_xml_depth, "nested elements"),
        ):
            if found > limit:
                raise LimitExceededError(
                    f"a node needs {found} {what}, which readers refuse", path=closed.node.path, limit=limit
                )

    def _shorten_order(self, closed: _Open) -> None:
        node, owns = closed.node, self._settings.owns
        if not node.child_order or owns is None:
            return
        kept = tuple(
            name
            for name in node.child_order
            if name in closed.present
            or name in closed.inlined
            or (node.primary_type not in POLICY_TYPES and not owns(child_of(node.path, name)))
        )
        if len(kept) == len(node.child_order):
            return
        closed.node = replace(node, child_order=kept)
        if not kept and ElementMark.ORDERED not in closed.marks:
            closed.marks.append(ElementMark.ORDERED)
        if self._settings.on_shortened is not None:
            self._settings.on_shortened(replace(closed.whole or node, child_order=kept))


def _check_document(path: NodePath, entry: str, content: bytes) -> None:
    """Refuse a document that readers refuse. Raises: LimitExceededError."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise LimitExceededError(
            f"the texts of a node need a document of {len(content)} bytes, which readers refuse",
            path=path,
            limit=MAX_DOCUMENT_BYTES,
        )
    try:
        check_namespaces(content, entry)
    except LimitExceededError as error:
        next_step = "use a shorter namespace, or have fewer names in one node"
        error.with_facts(path=path).with_next_step(next_step)
        raise


def _below(parent: _Open, node: Node) -> str:
    return f"{parent.platform}/{directory_name(name_of(node.path))}"


def _file_directory(platform: str, node: Node) -> str:
    """The directory of a node whose bytes are an entry of its name."""
    return platform if name_of(node.path).endswith(DIRECTORY_SUFFIX) else platform + DIRECTORY_SUFFIX


def _bytes_of(content: Node) -> Binary | None:
    """The bytes of a jcr:content, where they are one value."""
    for prop in content.properties:
        if prop.name == DATA_PROPERTY and prop.type is PropertyType.BINARY and not prop.is_multiple:
            return prop.values[0] if isinstance(prop.values[0], Binary) else None
    return None


def _is_simple_file(node: Node) -> bool:
    """Whether the bytes of a node without children can be those of its jcr:content."""
    return node.data is not None and CONTENT_NODE not in (node.child_order or ())


def _element_count(node: Node) -> int:
    return 1 + len(node.child_order or ())


def _attribute_count(node: Node) -> int:
    return len(node.properties) + 2  # the types


def _marks(node: Node, around: list[_Open]) -> Iterator[str]:
    order = node.child_order
    if order is not None and (not order or node.primary_type in UNORDERED_TYPES):
        yield ElementMark.ORDERED
    is_content = name_of(node.path) == CONTENT_NODE and node.primary_type == RESOURCE_TYPE
    if is_content and around and _is_file_above(around[-1].node, node):
        yield ElementMark.SEPARATE


def _is_file_above(above: Node, node: Node) -> bool:
    return above.primary_type == FILE_TYPE and above.path == parent_of(node.path)


def _children_texts(closed: _Open, named: Iterable[str]) -> tuple[list[str], list[str]]:
    order = closed.node.child_order
    marks = list(closed.marks)
    if order is None:
        children = [*closed.inlined.values(), *(f"<{xml_name(name)}/>" for name in named)]
        if children and closed.node.primary_type not in UNORDERED_TYPES:
            marks.append(ElementMark.UNORDERED)
        return children, marks
    texts = dict(closed.inlined)
    listed = [texts.pop(name, "") or f"<{xml_name(name)}/>" for name in order]
    return [*texts.values(), *listed], marks


def _head(data: Binary) -> bytes:
    with data.open() as stream:
        return stream.read(PROBE_BYTES)
