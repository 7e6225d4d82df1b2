"""DocView documents as elements: the reading half, on expat.

An element is a node when it has attributes, and only a place in its parent's order when it has none. What an attribute
says is understood later (`elements.py`), when the node is wanted. Comments and text mean nothing, as in FileVault. The
processing instruction `mailboat` says what a DocView can't, and what Jackrabbit passes over: see `ElementMark`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from mailboat.errors import LimitExceededError, MailboatError, PackageCorruptError
from mailboat.model.namespaces import MAX_KEPT_NAMESPACES
from mailboat.packages.filevault.markup import check_namespaces, guarded_parser, parse_all
from mailboat.packages.filevault.names import XML_SUFFIX, is_ignored
from mailboat.packages.filevault.vault_files import VaultDirectory, VaultFile
from mailboat.packages.filevault.xml_namespaces import Namespaces

PROBE_BYTES: Final = 1024
ROOT_NAME: Final = "jcr:root"
INSTRUCTION: Final = "mailboat"

_NAMING: Final = ("{Name}", "{Path}")
_IN_VALUES: Final = re.compile(r"(?<![^\[,/}])([^:\[\],/{}]+):")
"""A prefix in values that are names or paths."""
_TYPE_NAMES: Final = frozenset({"primaryType", "mixinTypes"})

MAX_DOCUMENT_BYTES: Final = 8 * 1024 * 1024
MAX_DOCUMENTS_HELD: Final = 4
"""Documents of the largest size that may lie within each other."""
MAX_DOCUMENT_ELEMENTS: Final = 100_000
"""An element of a few bytes takes some hundreds in memory, so the size of a document alone bounds nothing."""
MAX_DOCUMENT_ATTRIBUTES: Final = 250_000
SurveyPrefixes = Callable[[], Iterable[tuple[str, str]]]


class ElementMark(enum.StrEnum):
    """What a processing instruction within an element says of its node."""

    ORDERED = "ordered"
    """The order of children has a meaning, though its type or the lack of elements would say otherwise."""

    UNORDERED = "unordered"
    """The order of the elements has no meaning."""

    SEPARATE = "separate"
    """This jcr:content is a node of its own, not the unfolded half of a plain file."""


_MARKS: Final = frozenset(ElementMark)


class Element:
    """One element of a document.

    Attributes:
        name: The expanded name, as expat gives it; resolved by `Namespaces`.
        attributes: Expanded names and values in turn.
        children: Elements within, in order.
        marks: What processing instructions say.
    """

    __slots__ = ("attributes", "children", "marks", "name")

    def __init__(self, name: str, attributes: list[str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element] = []
        self.marks: tuple[str, ...] = ()


class DocumentReader:
    """Reads the documents of one package or checkout.

    Attributes:
        namespaces: Known prefixes, and the names resolved with them.
        bindings: Prefixes met so far that are not generally known, with their namespaces.
        renamed: Prefixes that the document read last has for another namespace than names before.
    """

    def __init__(
        self, namespaces: Namespaces, max_depth: int, max_bytes: int, survey: SurveyPrefixes | None = None
    ) -> None:
        """Read with the codec's namespaces; `max_depth` counts nested elements, `max_bytes` one document.

        `survey` gives the declarations of all documents, where some are read alone: else the prefix of a second
        namespace would depend on which document is read first. It is called when a prefix needs it, at most once.
        """
        self.namespaces = namespaces
        self._survey = survey
        self.bindings: dict[str, str] = {}
        self.renamed: set[str] = set()
        self._max_depth = max_depth
        self._max_bytes = max_bytes

    def check_size(self, size_bytes: int, entry: str, around_bytes: int = 0) -> None:
        """Refuse a document before it is unpacked; those around it have so many bytes. Raises: LimitExceededError."""
        if size_bytes > self._max_bytes:
            raise LimitExceededError(f"a document of nodes has {size_bytes} bytes", entry=entry, limit=self._max_bytes)
        # All documents down to the current node are held: each alone may be small enough, and there can be a hundred.
        if around_bytes + size_bytes > MAX_DOCUMENTS_HELD * self._max_bytes:
            raise LimitExceededError(
                f"documents of nodes that lie within each other have {around_bytes + size_bytes} bytes",
                entry=entry,
                limit=MAX_DOCUMENTS_HELD * self._max_bytes,
            )

    def read(self, content: bytes, entry: str) -> Element:
        """The root element. Raises: PackageCorruptError, LimitExceededError."""
        self.check_size(len(content), entry)
        check_namespaces(content, entry)
        namespaces = self.namespaces
        namespaces.trim(len(content))
        parser = guarded_parser(entry, " ", namespaces.interned)
        parser.namespace_prefixes = True
        prefixes = _Prefixes(self._bound, self.bindings, entry)
        elements = _Elements(entry, self._max_depth, prefixes)
        parser.StartElementHandler, parser.EndElementHandler = elements.start, elements.end
        parser.StartNamespaceDeclHandler, parser.EndNamespaceDeclHandler = prefixes.declare, prefixes.end
        parser.ProcessingInstructionHandler = elements.instruct
        parse_all(parser, content, entry)
        self.renamed = prefixes.doubled
        root = elements.root()
        if namespaces.resolve(root.name, entry) != ROOT_NAME:
            raise PackageCorruptError(f"the document's root is not {ROOT_NAME}", entry=entry)
        return root

    def _bound(self, prefix: str, uri: str, entry: str) -> str:
        """Take note of a declaration; see `Namespaces.bound`."""
        if self._survey is not None and not self.namespaces.is_known(uri):
            survey, self._survey = self._survey, None
            for declared, of_namespace in survey():
                self.namespaces.bound(declared, of_namespace, self.bindings, entry)
        return self.namespaces.bound(prefix, uri, self.bindings, entry)


class _Elements:
    """The elements of one document, while it is parsed."""

    def __init__(self, entry: str, max_depth: int, prefixes: _Prefixes) -> None:
        self._entry = entry
        self._max_depth = max_depth
        self._prefixes = prefixes
        self._stack = [Element("", [])]
        self._elements = 0
        self._attributes = 0

    def root(self) -> Element:
        """The element around all others, once the document is parsed."""
        return self._stack[0].children[0]

    def start(self, name: str, attributes: list[str]) -> None:
        self._elements += 1
        self._attributes += len(attributes) // 2
        if self._elements > MAX_DOCUMENT_ELEMENTS:
            raise _too_many("elements", self._entry, MAX_DOCUMENT_ELEMENTS)
        if self._attributes > MAX_DOCUMENT_ATTRIBUTES:
            raise _too_many("attributes", self._entry, MAX_DOCUMENT_ATTRIBUTES)
        if self._prefixes.renamed:
            name, attributes = self._prefixes.element(name, attributes)
        element = Element(name, attributes)
        self._stack[-1].children.append(element)
        self._stack.append(element)
        if len(self._stack) > self._max_depth:
            raise LimitExceededError("a document of nodes is nested too deep", entry=self._entry, limit=self._max_depth)

    def end(self, _: str) -> None:
        self._stack.pop()

    def instruct(self, target: str, data: str) -> None:
        """Take the marks of a processing instruction."""
        if target == INSTRUCTION:
            element = self._stack[-1]
            # Each known mark once: a tuple of all words of a document would take quadratic time.
            element.marks += tuple(_MARKS.intersection(data.split()).difference(element.marks))


class _Prefixes:
    """The prefixes of one document, and those that their namespaces have in the whole package.

    Attributes:
        renamed: Those that differ, at the element that is read.
        doubled: Those that stand for another namespace before.
    """

    def __init__(self, bound: Callable[[str, str, str], str], bindings: dict[str, str], entry: str) -> None:
        self._bound = bound
        self._bindings = bindings
        self._entry = entry
        self._used: dict[tuple[str, str], str] = {}
        self._scopes: dict[str, list[str]] = {}
        self.renamed: dict[str, str] = {}
        self.doubled: set[str] = set()

    def declare(self, declared: str | None, of_namespace: str | None) -> None:
        """Take note of a declaration, which holds until its element ends.

        Raises: PackageCorruptError, LimitExceededError.
        """
        prefix, uri = declared or "", of_namespace or ""
        used = self._used.get((prefix, uri))
        if used is None:
            if max(len(self._used), len(self._bindings)) >= MAX_KEPT_NAMESPACES:
                raise LimitExceededError(
                    f"documents declare more than {MAX_KEPT_NAMESPACES} namespaces",
                    entry=self._entry,
                    limit=MAX_KEPT_NAMESPACES,
                )
            used = self._used[prefix, uri] = self._bound(prefix, uri, self._entry)
        if used == prefix and not self._scopes:
            return
        self._scopes.setdefault(prefix, []).append(used)
        if used != prefix and self._bindings.get(used) == uri:
            self.doubled.add(prefix)
        self._rename(prefix, used)

    def end(self, declared: str | None) -> None:
        """End the latest declaration of a prefix. Those before the first that differs are not among the scopes."""
        prefix = declared or ""
        scopes = self._scopes.get(prefix)
        if scopes:
            scopes.pop()
            self._rename(prefix, scopes[-1] if scopes else prefix)

    def _rename(self, prefix: str, used: str) -> None:
        if used == prefix:
            self.renamed.pop(prefix, None)
        else:
            self.renamed[prefix] = used

    def element(self, name: str, attributes: list[str]) -> tuple[str, list[str]]:
        """An element with all of its names."""
        names = [self._name(attribute) for attribute in attributes[::2]]
        pairs = zip(names, attributes[1::2], strict=True)
        return self._name(name), [text for one, value in pairs for text in (one, self._value(one, value))]

    def _name(self, expanded: str) -> str:
        head, _, prefix = expanded.rpartition(" ")
        used = self.renamed.get(prefix) if " " in head else None
        return expanded if used is None else f"{head} {used}"

    def _value(self, name: str, text: str) -> str:
        if not text.startswith(_NAMING) and name.partition(" ")[2].partition(" ")[0] not in _TYPE_NAMES:
            return text
        return _IN_VALUES.sub(lambda match: f"{self.renamed.get(match[1], match[1])}:", text)


def _too_many(what: str, entry: str, limit: int) -> LimitExceededError:
    """A document that would take more memory than its size lets expect."""
    return LimitExceededError(f"a document of nodes has more than {limit} {what}", entry=entry, limit=limit)


def declarations_in(directory: VaultDirectory) -> Iterable[tuple[str, str]]:
    """Prefixes and namespaces of all documents at and below a directory, by the names of their entries.

    Documents that can't be read declare nothing: they are refused when their nodes are wanted.
    """
    found: dict[tuple[str, str], None] = {}

    def declare(prefix: str | None, uri: str | None) -> None:
        if prefix and uri and len(found) < MAX_KEPT_NAMESPACES:
            found[prefix, uri] = None

    def take(file: VaultFile) -> None:
        if file.size_bytes <= MAX_DOCUMENT_BYTES and is_docview(file.head(PROBE_BYTES)):
            content = file.read()
            check_namespaces(content, file.entry)
            parser = guarded_parser(file.entry, " ")
            parser.StartNamespaceDeclHandler = declare
            parse_all(parser, content, file.entry)

    def visit(place: VaultDirectory) -> None:
        files: Mapping[str, VaultFile] = {}
        directories: Mapping[str, VaultDirectory] = {}
        with suppress(MailboatError):
            files, directories = place.files(), place.directories()
        for name, file in sorted(files.items()):
            if name.endswith(XML_SUFFIX):
                with suppress(MailboatError):
                    take(file)
        for name, below in sorted(directories.items()):
            if not is_ignored(name):
                visit(below)

    visit(directory)
    return found


def is_docview(head: bytes) -> bool:
    """Whether FileVault takes an XML file for a document of nodes, judged as it does by its first 1,024 bytes.

    https://github.com/apache/jackrabbit-filevault/blob/jackrabbit-filevault-4.1.4/vault-core/src/main/java/org/apache/jackrabbit/vault/fs/io/DocViewParser.java
    """
    start = head[:PROBE_BYTES]
    return b"<jcr:root" in start and b'"http://www.jcp.org/jcr/1.0"' in start
