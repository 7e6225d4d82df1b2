"""How FileVault lays nodes out in files and folders, read back: one merged tree of places.

A node may be a directory (`name/` or `name.dir/`) with or without `.content.xml`, a document of its own (`name.xml`),
an element in a document further up, a plain file, or several of these together; its children may be in all of them. A
place is where a node may be; expanding it says which node is there, and where its children are. Zips and checkouts
differ only in the files that they offer. Called by `reader.py` and `sources.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from unicodedata import normalize

from mailboat.errors import PackageCorruptError, PathRefusedError, UntrustedInputError
from mailboat.model.filters import ImportMode, WorkspaceFilter
from mailboat.model.nodes import (
    CONTENT_NODE,
    DATA_PROPERTY,
    FILE_TYPE,
    FOLDER_TYPE,
    RESOURCE_TYPE,
    Node,
    NodeRecord,
    ordered_names,
)
from mailboat.model.paths import ROOT, NodePath, child_of, name_of, parse_path, reason_against_name
from mailboat.packages.filevault.attributes import TYPE_ONLY, AttributePlan, plan_attributes
from mailboat.packages.filevault.document_reader import PROBE_BYTES, DocumentReader, Element, is_docview
from mailboat.packages.filevault.elements import (
    DEFAULT_TYPE,
    NodeText,
    PropertyFile,
    Refer,
    build_node,
    build_record,
)
from mailboat.packages.filevault.names import (
    BINARY_SUFFIX,
    CONTENT_XML,
    DIRECTORY_SUFFIX,
    XML_SUFFIX,
    is_ignored,
    repository_name,
    split_property_file,
)
from mailboat.packages.filevault.vault_files import VaultDirectory, VaultFile
from mailboat.packages.tree_order import ALLOW_COLLISIONS

_BINARY_TYPES: Final = ("{Binary}", "{BinaryRef}")


@dataclass(slots=True)
class Place:
    """Where a node may be.

    Attributes:
        path: The path that the node has.
        entry: The entry that the place was found in, for messages.
        element: An element in a document further up.
        directory: A directory of its own.
        document: A document of its own, `name.xml`.
        file: The bytes of a plain file.
        is_resource: It is the jcr:content of a file, whose bytes are `file`.
        expanded: What expanding it gave, where that had to be known before its turn.
        renamed: Prefixes that its document has for another namespace than documents before it.
        around_bytes: Of the documents around its own.
        document_bytes: Of its own document, once that was read.
    """

    path: NodePath
    entry: str
    element: Element | None = None
    directory: VaultDirectory | None = None
    document: VaultFile | None = None
    file: VaultFile | None = None
    is_resource: bool = False
    expanded: Expanded | None = None
    renamed: Collection[str] = ()
    around_bytes: int = 0
    document_bytes: int = 0

    def enter(self, document: VaultFile) -> None:
        """Its own document is about to be read."""
        self.entry, self.document_bytes = document.entry, document.size_bytes


@dataclass(slots=True)
class Expanded:
    """What is at a place.

    Attributes:
        node_text: The node's text; None where there is no node, only something below.
        is_implied: The node is there only because something is below it, or a directory is.
        children: The places below, in the order of the document, then of the directory.
        is_defined: A document or file says what the node is; Jackrabbit chooses the type of a mere directory.
    """

    node_text: NodeText | None
    is_implied: bool
    children: dict[str, Place] = field(default_factory=dict)
    is_defined: bool = True


class Aggregates:
    """Reads nodes from the files of one package or checkout."""

    def __init__(
        self,
        documents: DocumentReader,
        refer: Refer,
        owned: WorkspaceFilter | None,
        *,
        refuse_collisions: bool,
    ) -> None:
        """Read documents with `documents`, and what is referred to with `refer`.

        `owned` is the filter of the package; `refuse_collisions` see `LimitsConfig`.
        """
        self._documents = documents
        self.namespaces = documents.namespaces
        self._resolve = documents.namespaces.resolve
        self.refer = refer
        self._owned = owned
        self.refuse_collisions = refuse_collisions
        self._keeps_documents = owned is not None and owned.keeps_documents

    def node(self, node_text: NodeText) -> Node:
        """Understand a node's text. Raises: PackageCorruptError, ValueRefusedError."""
        return build_node(node_text, self.refer)

    def record(self, node_text: NodeText) -> NodeRecord:
        """The same, encoded. Raises: the same."""
        return build_record(node_text, self.refer)

    def plan(self, element: Element, path: NodePath, entry: str) -> AttributePlan:
        """What the attributes of a node's element mean. Raises: PackageCorruptError."""
        try:
            return self.namespaces.plan(tuple(element.attributes[::2]), entry)
        except PackageCorruptError as error:
            error.with_facts(path=path)
            raise

    def bare_children(self, place: Place) -> list[Place] | None:
        """The places below a mere directory that has no files; None for any other place."""
        directory = place.directory
        if directory is None or place.element is not None or place.file is not None or place.document is not None:
            return None
        if directory.files() or directory.is_explicit or len(directory.directories()) != 1:
            return None
        children: dict[str, Place] = {}
        for platform, below in directory.directories().items():
            if not is_ignored(platform):
                _add_directory(place, children, platform, below)
        return list(children.values())

    def bindings(self) -> Mapping[str, str]:
        """Prefixes met so far that are not generally known, with their namespaces; grows while documents are read."""
        return self._documents.bindings

    def root(self, directory: VaultDirectory) -> Place:
        return Place(ROOT, directory.entry, directory=directory)

    def walk(self, place: Place) -> Iterator[Node]:
        """The nodes at and below a place: parents first, children in their order."""
        expanded = self.expand(place)
        order: tuple[str, ...] | None = None
        if expanded.node_text is not None:
            node = self.node(expanded.node_text)
            order = node.child_order
            yield node
        for name in ordered_names(order, list(expanded.children)):
            yield from self.walk(expanded.children[name])

    def expand(self, place: Place) -> Expanded:
        """What is at a place. Raises: PackageCorruptError, LimitExceededError, PathRefusedError."""
        if place.expanded is not None:
            return place.expanded
        outer, own = place.element, None
        if place.directory is None and place.document is None:
            if outer is None:
                return Expanded(self._plain_file(place), is_implied=False)
            if not outer.children and place.file is None and outer.attributes:
                return Expanded(self._node_text(place, outer, _NOTHING), is_implied=False)
        else:
            own = self.own_document(place)
            if own is not None and outer is not None and own.attributes and outer.attributes:
                self._check_twice(place)
                outer = _order_before(outer, own)
        found = self._around(place, [element for element in (outer, own) if element is not None])
        definition = next((element for element in (own, outer) if element is not None and element.attributes), None)
        return self._expanded(place, definition, found)

    # -------------------------------------------------------------------------------------------- what is around

    def own_document(self, place: Place) -> Element | None:
        """The document of a place; None when it has none of its own. Raises: as `expand`."""
        found = place.directory.files().get(CONTENT_XML) if place.directory is not None else None
        if place.document is not None:
            found = place.document  # FileVault ignores a second one in the directory
        if found is None:
            return None
        place.enter(found)
        try:
            self._documents.check_size(found.size_bytes, found.entry, place.around_bytes)
            element = self._documents.read(found.read(), found.entry)
        except UntrustedInputError as error:
            error.with_facts(path=place.path)
            raise
        place.renamed = self._documents.renamed
        _refuse_renamed(place, [place.path])
        return element

    def _check_twice(self, place: Place) -> None:
        if self._owned is not None and self._owned.mode_of(place.path) is not ImportMode.REPLACE:
            raise PackageCorruptError(
                "a node is defined by two documents, and the mode of the filter merges",
                next_step="define it in one of them, or use the mode replace",
                entry=place.entry,
                path=place.path,
            )

    def _around(self, place: Place, defining: Sequence[Element]) -> _Found:
        children: dict[str, Place] = {}
        binaries: list[PropertyFile] = []
        elements = self._elements(place, defining)
        for name, element in elements.items():
            if element.attributes or element.children:
                _child(place, children, name, place.entry, element)
            else:
                refuse_bad_name(place.path, place.entry, name)
        if place.directory is not None:
            self._list(place, place.directory, children, binaries)
            if place.renamed:
                held = [
                    child.path for child in children.values() if child.element is None or child.directory is not None
                ]
                _refuse_renamed(place, [*held, *(child_of(place.path, binary.name) for binary in binaries)])
        if self.refuse_collisions and len(children) > 1:
            refuse_collisions(place.path, children)
        return _Found(tuple(elements), children, binaries)

    def _elements(self, place: Place, defining: Sequence[Element]) -> dict[str, Element]:
        """The elements within, by the names of nodes; those of one name are one."""
        elements: dict[str, Element] = {}
        repeated: dict[str, list[Element]] = {}
        try:
            for defined in defining:
                for element in defined.children:
                    name = self._resolve(element.name, place.entry)
                    before = elements.setdefault(name, element)
                    if before is not element and (element.attributes or element.children):
                        repeated.setdefault(name, [before]).append(element)
        except PackageCorruptError as error:
            error.with_facts(path=place.path)
            raise
        return elements | {name: _imported_over(same) for name, same in repeated.items()}

    def _list(
        self, place: Place, directory: VaultDirectory, children: dict[str, Place], binaries: list[PropertyFile]
    ) -> None:
        for platform, below in directory.directories().items():
            if not is_ignored(platform):
                _add_directory(place, children, platform, below)
        for platform, file in directory.files().items():
            if platform != CONTENT_XML and not is_ignored(platform):
                self._add_file(place, children, binaries, file)

    def _add_file(
        self, place: Place, children: dict[str, Place], binaries: list[PropertyFile], file: VaultFile
    ) -> None:
        platform = name_in(file.entry)
        split = split_property_file(platform) if platform.endswith(BINARY_SUFFIX) else None
        if split is not None:
            binaries.append(PropertyFile(*split, file.binary()))
            return
        name = repository_name(platform)
        if name.endswith(XML_SUFFIX) and len(name) > len(XML_SUFFIX) and is_docview(file.head(PROBE_BYTES)):
            child = _child(place, children, name.removesuffix(XML_SUFFIX), file.entry)
            is_taken, child.document = child.document is not None, file
        else:
            child = _child(place, children, name, file.entry)
            is_taken, child.file = child.file is not None, file
        if is_taken:
            raise PackageCorruptError("two entries are the same node", entry=file.entry, path=child.path)

    # ---------------------------------------------------------------------------------------------- what it says

    def _plain_file(self, place: Place) -> NodeText:
        kind = RESOURCE_TYPE if place.is_resource else FILE_TYPE
        data = () if place.file is None else (PropertyFile(DATA_PROPERTY, None, place.file.binary()),)
        return NodeText(place.path, place.entry, TYPE_ONLY, (kind,), data)

    def _node_text(self, place: Place, definition: Element, found: _Found) -> NodeText:
        plan = self.plan(definition, place.path, place.entry)
        texts = definition.attributes[1::2]
        is_inner = self._keeps_documents and definition is place.element
        return NodeText(
            place.path, place.entry, plan, texts, found.binaries, found.elements, definition.marks, is_inner
        )

    def _expanded(self, place: Place, definition: Element | None, found: _Found) -> Expanded:
        if definition is not None:
            node_text = self._node_text(place, definition, found)
        elif place.file is not None:
            kind = RESOURCE_TYPE if place.is_resource else FILE_TYPE
            node_text = NodeText(place.path, place.entry, TYPE_ONLY, (kind,), found.binaries, found.elements)
        else:
            return self._implied(place, found)
        if place.file is not None:
            node_text = self._with_data(place.file, node_text, found.children)
        content = found.children.get(CONTENT_NODE)
        if content is not None and _primary_type(node_text) == FILE_TYPE and not _has_data(node_text):
            node_text = self._folded(node_text, content, found.children)
        return Expanded(node_text, is_implied=False, children=found.children)

    def _implied(self, place: Place, found: _Found) -> Expanded:
        node_text = None
        if place.path != ROOT:
            node_text = NodeText(place.path, place.entry, TYPE_ONLY, (FOLDER_TYPE,), found.binaries)
        is_explicit = place.directory is not None and place.directory.is_explicit
        return Expanded(node_text, is_implied=not is_explicit, children=found.children, is_defined=bool(found.binaries))

    def _with_data(self, file: VaultFile, node_text: NodeText, children: dict[str, Place]) -> NodeText:
        """Bytes next to a document belong to the jcr:content of a file, and to any other node itself."""
        content = children.get(CONTENT_NODE)
        if content is None:
            data = PropertyFile(DATA_PROPERTY, None, file.binary())
            # In front: an entry `jcr:data.binary` overrides the bytes of the file, as in FileVault.
            return node_text._replace(binaries=(data, *node_text.binaries))
        if content.file is not None:
            raise PackageCorruptError(
                "two entries have the bytes of the same file", entry=file.entry, path=node_text.path
            )
        content.file, content.is_resource = file, True
        return node_text

    def _folded(self, node_text: NodeText, content: Place, children: dict[str, Place]) -> NodeText:
        """An nt:file whose jcr:content has nothing but its bytes is one node."""
        inner = content.expanded = self.expand(content)
        if inner.node_text is None or inner.children or not _is_mere_data(inner.node_text):
            return node_text
        del children[CONTENT_NODE]
        plan, texts = node_text.plan, node_text.texts
        if DATA_PROPERTY in inner.node_text.plan.names:
            plan = plan_attributes((*plan.names, DATA_PROPERTY))
            texts = [*texts, inner.node_text.texts[inner.node_text.plan.names.index(DATA_PROPERTY)]]
        return node_text._replace(
            plan=plan,
            texts=texts,
            binaries=(*node_text.binaries, *inner.node_text.binaries),
            elements=tuple(name for name in node_text.elements if name != CONTENT_NODE),
        )


class _Found(NamedTuple):
    """What an expansion found around a node."""

    elements: tuple[str, ...]
    children: dict[str, Place]
    binaries: Sequence[PropertyFile]


_NOTHING: Final = _Found((), {}, ())


def name_in(entry: str) -> str:
    """The last segment of an entry's path."""
    return entry[entry.rfind("/") + 1 :]


def refuse_collisions(path: NodePath, names: Iterable[str]) -> None:
    """Refuse siblings that a file system could take for one. Raises: PathRefusedError."""
    folded: dict[str, str] = {}
    for name in names:
        plain = name.lower() if name.isascii() else normalize("NFC", normalize("NFC", name).casefold())
        other = folded.setdefault(plain, name)
        if other != name:
            raise PathRefusedError(
                f"{name!r} and {other!r} differ in case or Unicode form only",
                next_step=ALLOW_COLLISIONS,
                path=path,
                limit="limits.refuse_collisions",
            )


def _imported_over(same: Sequence[Element]) -> Element:
    """Elements of one name as FileVault imports them: over the node before, whose children go, whose properties stay.

    The later ones have attributes or children. All are merged at once: one by one would take quadratic time.
    """
    attributes: dict[str, str] = {}
    for element in same:
        attributes |= zip(element.attributes[::2], element.attributes[1::2], strict=True)
    last = same[-1]
    merged = Element(last.name, [text for pair in attributes.items() for text in pair])
    merged.children, merged.marks = last.children, last.marks
    return merged


def _order_before(outer: Element, own: Element) -> Element:
    """What stays of an element whose node has a document, too, which FileVault imports later and in its place.

    Children that only the element names, and that are not removed as they have documents, keep their place.
    """
    named = {child.name for child in own.children}
    rest = Element(outer.name, [])
    rest.children.extend(Element(child.name, []) for child in outer.children if child.name not in named)
    return rest


def _child(place: Place, children: dict[str, Place], name: str, entry: str, element: Element | None = None) -> Place:
    child = children.get(name)
    if child is None:
        if "/" in name:
            raise PathRefusedError(f"the name {name[:80]!r} has a slash", entry=entry, path=place.path)
        try:
            path = parse_path(child_of(place.path, name))
        except PathRefusedError as error:
            error.with_facts(entry=entry)
            raise
        renamed = () if element is None else place.renamed
        around = place.around_bytes + place.document_bytes
        child = children[name] = Place(path, entry, element, renamed=renamed, around_bytes=around)
    return child


def _add_directory(place: Place, children: dict[str, Place], platform: str, directory: VaultDirectory) -> None:
    child = _child(place, children, repository_name(platform).removesuffix(DIRECTORY_SUFFIX), directory.entry)
    if child.directory is not None:
        raise PackageCorruptError("two directories are the same node", entry=directory.entry, path=child.path)
    child.directory = directory


def _refuse_renamed(place: Place, named: Iterable[NodePath]) -> None:
    """Refuse names of files and directories whose prefix the document has for another namespace."""
    for path in named:
        prefix, colon, _ = name_of(path).partition(":")
        if colon and prefix in place.renamed:
            raise PackageCorruptError(
                f"the prefix {prefix!r} has two namespaces in the package, and is in the name of a file or directory",
                next_step="use another prefix for one of the namespaces in its documents",
                entry=place.entry,
                path=path,
            )


def refuse_bad_name(path: NodePath, entry: str, name: str) -> None:
    """Refuse an element that can't name a node. Raises: PathRefusedError."""
    reason = "it has a slash" if "/" in name else reason_against_name(name)
    if reason is not None:
        raise PathRefusedError(f"an element within can't name a node: {reason}", entry=entry, path=path)


def _primary_type(node_text: NodeText) -> str:
    place = node_text.plan.primary
    return DEFAULT_TYPE if place is None else node_text.texts[place].removeprefix("{Name}")


def _has_data(node_text: NodeText) -> bool:
    return DATA_PROPERTY in node_text.plan.names or any(binary.name == DATA_PROPERTY for binary in node_text.binaries)


def _is_mere_data(node_text: NodeText) -> bool:
    if node_text.marks or node_text.elements or _primary_type(node_text) != RESOURCE_TYPE:
        return False
    if any((binary.name, binary.value_index) != (DATA_PROPERTY, None) for binary in node_text.binaries):
        return False
    names = node_text.plan.names
    if DATA_PROPERTY not in names:
        return len(names) == 1 and bool(node_text.binaries)
    text = node_text.texts[names.index(DATA_PROPERTY)]
    return len(names) == 2 and text.startswith(_BINARY_TYPES) and "}[" not in text
