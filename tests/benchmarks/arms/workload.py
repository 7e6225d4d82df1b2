"""The content of the benchmarks: pages of three nodes with 200 characters each, the same in every run."""

from __future__ import annotations

from mailboat.composition.package_formats import package_registry
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Node, Property
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageCodec, PackageContents

PAGES = 5_000
"""Different pages; package n holds page n modulo this, so that imports both make and replace nodes."""

WORDS = ("harbour", "ferry", "island", "timetable", "pier", "weather", "season", "ticket", "bridge", "tide", "anchor")


def text_of(number: int, length: int = 200) -> str:
    """A text that depends on the number only."""
    words = []
    while len(" ".join(words)) < length:
        number = (number * 1_103_515_245 + 12_345) % 2**31
        words.append(WORDS[(number >> 16) % len(WORDS)])
    return " ".join(words)[:length]


def page_path(number: int) -> NodePath:
    """Where the page of package `number` is."""
    return NodePath(f"/content/site/p{number % PAGES:05d}")


def page(number: int) -> list[Node]:
    """The three nodes of a page."""
    path = page_path(number)
    title = Property("jcr:title", (f"Page {number}",))
    return [
        Node(path, "nt:unstructured", properties=(title, Property("text", (text_of(number),)))),
        Node(NodePath(f"{path}/a"), "nt:unstructured", properties=(Property("text", (text_of(number + 1),)),)),
        Node(NodePath(f"{path}/b"), "nt:unstructured", properties=(Property("text", (text_of(number + 2),)),)),
    ]


def contents(number: int, *, has_ancestors: bool = False) -> PackageContents:
    """A package with one page."""
    path = page_path(number)
    above = [Node(NodePath(name), "nt:folder") for name in ("/content", "/content/site")] if has_ancestors else []
    return PackageContents(filter=filter_for([path], [path]), nodes=page(number), ancestors=tuple(above))


def codec_for(package_type: str) -> PackageCodec:
    """The codec under test, as agents have it."""
    return package_registry().codec_for(package_type)
