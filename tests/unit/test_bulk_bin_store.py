"""The shelf of bins: taken in any order, given in the order of publication, one by one from the disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.bulk.bin_store import BinStore
from mailboat.bulk.build_manifest import BUCKET_ROWS, borders_of
from mailboat.bulk.cutter import Bin, BinKind, Budget, revision_of
from mailboat.bulk.source_branches import cut_if_small, cut_whole
from mailboat.errors import SourceMissingError
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath
from mailboat.testing.memory_content import MemorySource


def one_bin(number: int, roots: int = 1, kind: BinKind = BinKind.CONTENT) -> Bin:
    """A bin; those of lower numbers come first."""
    paths = tuple(NodePath(f"/{number:06d}-\u00e9/{root}") for root in range(roots))
    return Bin(kind, paths, number, roots, number.to_bytes(32))


@given(st.permutations(range(40)), st.sets(st.integers(0, 39)))
def test_bins_come_back_as_they_were_and_in_order(numbers: Sequence[int], missing: set[int]) -> None:
    with closing(BinStore()) as shelf:
        for number in numbers:
            shelf.put(one_bin(number, 1 + number % 3, list(BinKind)[number % 2]))
        found = shelf.arranged()
        bins = sorted(found.bins(found.signatures), key=lambda one: one.order)
        assert [bin_.signature for bin_ in bins] == found.signatures
        assert {bin_.content_bytes: bin_ for bin_ in bins} == {
            number: one_bin(number, 1 + number % 3, list(BinKind)[number % 2]) for number in numbers
        }
        assert found.revision == revision_of((bin_.order, bin_.signature) for bin_ in bins)
        assert [bin_.signature for bin_ in found.bins({number.to_bytes(32) for number in missing})] == [
            signature for signature in found.signatures if int.from_bytes(signature) in missing
        ]
        assert len(found) == 40


def test_the_borders_of_a_manifest_are_those_of_its_bins() -> None:
    with closing(BinStore()) as shelf:
        bins = [one_bin(number) for number in range(BUCKET_ROWS + 1)]
        for bin_ in reversed(bins):
            shelf.put(bin_)
        assert list(shelf.arranged().borders) == borders_of(bin_.order for bin_ in bins)


def source_of(paths: Sequence[str]) -> MemorySource:
    """A tree of nodes without content."""
    return MemorySource([Node(NodePath(path), "nt:folder") for path in paths])


def test_a_tree_is_cut_here_when_it_is_small_and_left_to_others_when_not() -> None:
    source = source_of(["/", "/a", "/a/b", "/a/c", "/d"])
    budget = Budget(100, 2)
    whole = list(cut_whole(source, [ROOT], budget))
    assert cut_if_small(source, [ROOT], budget, 5) == whole
    assert cut_if_small(source, [ROOT], budget, 4) is None
    assert cut_if_small(source, [NodePath("/a"), NodePath("/d")], budget, 3) is None
    assert cut_if_small(source, [NodePath("/a"), NodePath("/d")], budget, 4) is not None
    with pytest.raises(SourceMissingError):
        cut_if_small(source, [NodePath("/z")], budget, 5)
