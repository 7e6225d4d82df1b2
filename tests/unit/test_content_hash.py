"""Hashing beside reading and writing: the same digest, however the content comes."""

from __future__ import annotations

import hashlib
import threading

import pytest
from mailboat.model.content_hash import ContentHash
from mailboat.testing.wait import PATIENCE_SECONDS

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 5 * MEBIBYTE, 1, MEBIBYTE, MEBIBYTE, 0, 7], [200_000] * 60])
def test_the_digest_is_that_of_the_content_however_it_is_cut(sizes: list[int]) -> None:
    total, expected = ContentHash(), hashlib.sha256()
    for number, size in enumerate(sizes):
        data = bytes([number]) * size
        total.update(data)
        expected.update(data)
    assert total.digest() == expected.digest()


def test_more_may_come_after_the_digest_was_asked_for() -> None:
    total = ContentHash()
    for _ in range(2):
        total.update(bytes(8 * MEBIBYTE))
        total.digest()
    assert total.digest() == hashlib.sha256(bytes(16 * MEBIBYTE)).digest()


def test_it_goes_on_with_what_was_hashed_before() -> None:
    total = ContentHash(hashlib.sha256(b"head"))
    total.update(bytes(8 * MEBIBYTE))
    assert total.digest() == hashlib.sha256(b"head" + bytes(8 * MEBIBYTE)).digest()


def test_little_content_starts_no_thread_and_much_content_leaves_none() -> None:
    def started() -> set[threading.Thread]:
        """Those of others, which clients that earlier tests left may start, are none of its business."""
        return {each for each in threading.enumerate() if each.name.startswith("hash")} - before

    before = set(threading.enumerate())
    little, much = ContentHash(), ContentHash()
    little.update(bytes(MEBIBYTE))
    assert started() == set()
    for _ in range(8):
        much.update(bytes(MEBIBYTE))
    (beside,) = started()
    del much
    beside.join(PATIENCE_SECONDS)
    assert not beside.is_alive()
