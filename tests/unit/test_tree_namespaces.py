"""Namespaces in `tree` packages: who carries them, which, and what readers of both versions make of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.model.filters import filter_for
from mailboat.model.namespaces import MAX_NAMESPACES, NamespaceTable
from mailboat.model.nodes import Node, Property
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageContents
from mailboat.packages.prefixes import NamespaceUnresolvedError
from mailboat.packages.tree import TreeCodec
from support.handmade_trees import (
    READERS,
    header,
    namespace,
    node,
    package,
    read_at_once,
    read_together,
    written,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tree"
C = NodePath("/c")
BOTH = pytest.mark.parametrize("read", READERS)
ONE_URI = {"acme": ("urn:acme",)}


def contents(*names: str, table: NamespaceTable | None, text: str = "x") -> PackageContents:
    """A package of one node with properties of these names."""
    one = Node(C, "nt:unstructured", (), tuple(Property(name, (text,)) for name in names))
    return PackageContents(filter_for([], [C]), [one], namespaces=table)


def version_of(payload: bytes) -> int:
    """What the header says; short ones only."""
    assert payload[:1] + payload[2:3] == b"\x0a\x08"
    return payload[3]


VERSIONS: dict[str, tuple[PackageContents, NamespaceTable]] = {
    "version-1": (contents("title", "cq:tags", table=None), {}),
    "version-2": (contents("acme:a", "cq:tags", table={"acme": ("urn:a", "urn:b")}), {"acme": ("urn:a", "urn:b")}),
}


@BOTH
@pytest.mark.parametrize("name", VERSIONS)
def test_the_golden_packages_are_written_and_read(name: str, read) -> None:  # type: ignore[no-untyped-def]
    kept = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    of, table = VERSIONS[name]
    assert written(of) == kept
    change = read(kept)
    assert [record.path for record in change.records] == ["/c"]
    assert change.namespaces == table


def test_a_package_without_namespaces_stays_of_version_1() -> None:
    plain = written(contents("title", "cq:tags", table=None))
    assert version_of(plain) == 1
    assert written(contents("title", "cq:tags", table={})) == plain
    assert written(contents("title", "cq:tags", table=ONE_URI)) == plain


def test_a_namespace_that_all_readers_know_is_not_carried() -> None:
    known = {"cq": ("http://www.day.com/jcr/cq/1.0",)}
    assert version_of(written(contents("cq:tags", table=known))) == 1


def test_text_that_looks_like_a_prefix_is_none() -> None:
    assert version_of(written(contents("title", table=ONE_URI, text="acme:x"))) == 1


@BOTH
def test_every_namespace_of_a_prefix_is_carried(read) -> None:  # type: ignore[no-untyped-def]
    payload = written(contents("acme:a", table={"acme": ("urn:a", "urn:b"), "zoo": ("urn:z",)}))
    assert version_of(payload) == 2
    assert read(payload).namespaces == {"acme": ("urn:a", "urn:b")}


def test_packages_with_namespaces_are_read_together_with_others() -> None:
    payload = written(contents("acme:a", table=ONE_URI))
    subtrees = read_together(payload)
    assert subtrees is not None
    assert list(subtrees.namespaces) == [ONE_URI]


def test_a_namespace_in_version_1_is_not_read_together() -> None:
    assert read_together(package(header(), node("/c"), namespace("a", "urn:a"))) is None
    assert read_together(package(header(version=4), node("/c"))) is None


@BOTH
def test_a_long_package_says_at_its_beginning_that_namespaces_may_follow(read) -> None:  # type: ignore[no-untyped-def]
    growing: dict[str, tuple[str, ...]] = {}

    def nodes():  # type: ignore[no-untyped-def]
        for number in range(20):
            if number == 19:
                growing["late"] = ("urn:late",)
            name = "late:x" if number == 19 else "x"
            yield Node(NodePath(f"/c/{number:02}"), "nt:unstructured", (), (Property(name, ("t" * 50_000,)),))

    payload = written(PackageContents(filter_for([], [C]), nodes(), namespaces=growing))
    assert b"\x08\x02" in payload[:10]
    change = read(payload)
    assert [record.path for record in change.records] == [f"/c/{number:02}" for number in range(20)]
    assert change.namespaces == {"late": ("urn:late",)}


def test_bytes_do_not_depend_on_what_a_source_knows_besides() -> None:
    more = {**ONE_URI, "other": ("urn:other",)}
    assert written(contents("acme:a", table=more)) == written(contents("acme:a", table=ONE_URI))


def test_the_configuration_names_what_the_source_does_not_know() -> None:
    codec = TreeCodec({"acme": "urn:acme"})
    payload = _written_by(codec, contents("acme:a", table=None))
    assert read_at_once(payload).namespaces == ONE_URI


def test_the_configuration_decides_between_namespaces_of_the_source() -> None:
    codec = TreeCodec({"acme": "urn:b"})
    payload = _written_by(codec, contents("acme:a", table={"acme": ("urn:a", "urn:b")}))
    assert read_at_once(payload).namespaces == {"acme": ("urn:b",)}


def test_the_configuration_does_not_contradict_the_source() -> None:
    with pytest.raises(NamespaceUnresolvedError, match="urn:acme in the source, and for urn:x by the configuration"):
        _written_by(TreeCodec({"acme": "urn:x"}), contents("acme:a", table=ONE_URI))


def test_more_namespaces_than_a_reader_takes_are_not_written() -> None:
    table = {f"p{number}": ("urn:x",) for number in range(MAX_NAMESPACES + 1)}
    assert (
        len(read_at_once(written(contents(*(f"{item}:a" for item in list(table)[1:]), table=table))).namespaces) == 1000
    )
    with pytest.raises(LimitExceededError, match="more than 1000 namespaces"):
        written(contents(*(f"{item}:a" for item in table), table=table))


def test_namespaces_are_under_the_digest_of_the_trailer() -> None:
    payload = written(contents("acme:a", table=ONE_URI))
    with pytest.raises(PackageCorruptError, match="digest"):
        read_at_once(payload.replace(b"urn:acme", b"urn:acne"))


def _written_by(codec: TreeCodec, of: PackageContents) -> bytes:
    into = io.BytesIO()
    codec.write(of, into)
    return into.getvalue()
