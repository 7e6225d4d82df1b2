"""Codecs by package type, and by the first bytes of a file."""

from __future__ import annotations

import io

import pytest
from mailboat.errors import UnknownPackageTypeError
from mailboat.packages.codec_registry import PackageRegistry
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.testing.package_contract import deep, written
from mailboat.testing.trees import a_folder

REGISTRY = PackageRegistry([TreeCodec(), FilevaultCodec()])
CONTENTS = PackageContents(deep("/c"), [a_folder("/c")])


def test_codecs_are_known_by_their_type() -> None:
    assert REGISTRY.types == ("filevault", "tree")
    assert isinstance(REGISTRY.codec_for("tree"), TreeCodec)
    assert isinstance(REGISTRY["filevault"], FilevaultCodec)
    assert dict(REGISTRY).keys() == {"tree", "filevault"}
    assert len(REGISTRY) == 2
    assert REGISTRY.get("journal") is None


def test_an_unknown_type_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownPackageTypeError, match=r"'journal'.*filevault, tree"):
        REGISTRY.codec_for("journal")
    with pytest.raises(UnknownPackageTypeError, match="known are none"):
        PackageRegistry([]).codec_for("tree")


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_a_file_is_known_by_its_first_bytes(package_type: str) -> None:
    payload, _ = written(REGISTRY.codec_for(package_type), CONTENTS)
    stream = io.BytesIO(b"before" + payload)
    stream.seek(6)
    assert REGISTRY.codec_of(stream).package_type == package_type
    assert stream.tell() == 6


def test_what_a_file_begins_with_is_told_in_hexadecimal_and_an_empty_one_is_called_empty() -> None:
    with pytest.raises(UnknownPackageTypeError, match=r"starts with the bytes f0 3d 0a, which no package format"):
        REGISTRY.codec_of(io.BytesIO(b"\xf0\x3d\n"))
    with pytest.raises(UnknownPackageTypeError, match="the file is empty; known formats: filevault, tree"):
        REGISTRY.codec_of(io.BytesIO(b""))


@pytest.mark.parametrize("content", [b"PK", b"\x1f\x8b", b"<html>", b"PK\x07\x08"])
def test_a_file_that_is_no_package_is_not_taken_for_one(content: bytes) -> None:
    with pytest.raises(UnknownPackageTypeError, match="no package format does"):
        REGISTRY.codec_of(io.BytesIO(content))
