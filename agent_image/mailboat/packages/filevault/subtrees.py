"""Documents that nothing is nested in, read straight into records: the usual package is one of them.

Gives what walking the places of `aggregates.py` gives, without making a place for each element; a test holds the two
together. Only for subtrees that are covered as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mailboat.errors import UntrustedInputError
from mailboat.model.nodes import FILE_TYPE, NodeRecord
from mailboat.model.paths import NodePath, parse_path
from mailboat.packages.filevault.aggregates import Aggregates, Place, refuse_bad_name, refuse_collisions
from mailboat.packages.filevault.document_reader import Element
from mailboat.packages.filevault.elements import NodeText
from mailboat.packages.filevault.names import CONTENT_XML
from mailboat.packages.filevault.node_records import build_record

_NO_NAMES: Final[tuple[str, ...]] = ()


class SubtreeReader:
    """Reads whole subtrees of one package."""

    def __init__(self, aggregates: Aggregates) -> None:
        """Read as `aggregates` does."""
        self._aggregates = aggregates
        self._plan = aggregates.plan
        self._resolve = aggregates.namespaces.resolve

    def records(self, place: Place) -> list[NodeRecord] | None:
        """The records at and below a place that is one element or one document; None when it is more than that."""
        element = place.element
        if place.file is not None or place.document is not None:
            return None
        if place.directory is not None:
            if element is not None or place.directory.directories() or list(place.directory.files()) != [CONTENT_XML]:
                return None
            element = self._aggregates.own_document(place)
        if element is None or not element.attributes:
            return None
        taken: list[NodeRecord] = []
        try:
            self._take(element, place.path, place.entry, taken)
        except UntrustedInputError as error:
            error.with_facts(entry=place.entry, path=place.path)
            raise
        return taken

    def _take(self, element: Element, path: NodePath, entry: str, taken: list[NodeRecord]) -> None:
        attributes = element.attributes
        plan, texts = self._plan(element, path, entry), attributes[1::2]
        if not element.children:
            node_text = NodeText(path, entry, plan, texts, (), _NO_NAMES, element.marks)
            taken.append(build_record(node_text, self._aggregates.refer))
            return
        if plan.primary is None or FILE_TYPE in texts[plan.primary]:
            taken += self._take_place(Place(path, entry, element))
            return
        try:
            names = tuple([self._resolve(child.name, entry) for child in element.children])
        except UntrustedInputError as error:
            error.with_facts(path=path)  # the parent: the name of the child is what cannot be read
            raise
        if len(set(names)) != len(names):
            taken += self._take_place(Place(path, entry, element))
            return
        node_text = NodeText(path, entry, plan, texts, (), names, element.marks)
        taken.append(build_record(node_text, self._aggregates.refer))
        self._take_children(element, names, path, entry, taken)

    def _take_children(
        self, element: Element, names: tuple[str, ...], path: NodePath, entry: str, taken: list[NodeRecord]
    ) -> None:
        present = [
            name for name, child in zip(names, element.children, strict=True) if child.attributes or child.children
        ]
        if len(present) > 1 and self._aggregates.refuse_collisions:
            refuse_collisions(path, present)
        above = path.rstrip("/")
        for name, child in zip(names, element.children, strict=True):
            if "/" in name or not (child.attributes or child.children):
                refuse_bad_name(path, entry, name)
            if child.attributes:
                self._take(child, parse_path(f"{above}/{name}"), entry, taken)
            elif child.children:
                taken += self._take_place(Place(parse_path(f"{above}/{name}"), entry, child))

    def _take_place(self, place: Place) -> Iterator[NodeRecord]:
        expanded = self._aggregates.expand(place)
        if expanded.node_text is not None:
            yield self._aggregates.record(expanded.node_text)
        for child in expanded.children.values():
            yield from self._take_place(child)
