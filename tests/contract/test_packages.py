"""Every package format of this distribution passes the suite of the port, and all carry the same trees."""

from __future__ import annotations

import pytest
from hypothesis import given
from mailboat.content.digest import TreeHash
from mailboat.model.nodes import Node
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.port import PackageCodec, PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.testing.package_contract import DigestBlobs, PackageContract, deep, read, relaxed, way, written
from mailboat.testing.trees import CONTENT, trees
from mailboat.wire.node_bodies import body_digest

__all__ = ["way"]


class TestTreePackages(PackageContract):
    @pytest.fixture
    def codec(self) -> PackageCodec:
        return TreeCodec()


class TestFilevaultPackages(PackageContract):
    index_bytes_per_node = 2_000  # a zip is read by its central directory

    @pytest.fixture
    def codec(self) -> PackageCodec:
        return FilevaultCodec()


@relaxed
@given(tree=trees())
def test_both_formats_carry_the_same_tree(tree: list[Node]) -> None:
    contents = PackageContents(deep(CONTENT), tree)
    digests = set()
    for codec in (TreeCodec(), FilevaultCodec()):
        payload, summary = written(codec, contents)
        total = TreeHash()
        for record in read(codec, payload, store=DigestBlobs(tree)).records:
            total.add(record.path, body_digest(record.path, record.body))
        digests |= {total.digest(), summary.tree_digest}
    assert len(digests) == 1
