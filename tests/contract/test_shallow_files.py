"""A folder that a shallow package makes a file has no children any more, alike in every target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.locations import TARGET_KINDS, open_target
from mailboat.content.port import Target
from mailboat.testing.target_contract import content_of, deep, publish, shallow
from mailboat.testing.trees import a_file, a_folder


@pytest.fixture(params=TARGET_KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A target of each kind."""
    with closing(open_target(f"{request.param}:{tmp_path / 'web'}")) as opened:
        yield opened


def test_folder_that_a_shallow_package_makes_a_file_loses_its_children(target: Target) -> None:
    folder = [a_folder("/p"), a_file("/p/a"), a_folder("/p/d"), a_file("/p/d/b"), a_file("/pa")]
    publish(target, folder, deep("/"))
    count = publish(target, [a_file("/p", b"file now")], shallow("/p"), 1)
    assert (count.put, count.removed) == (1, 3)
    assert content_of(target) == [a_file("/p", b"file now"), a_file("/pa")]
    publish(target, [a_folder("/p"), a_file("/p/a")], shallow("/p", "/p/a"), 2)
    assert content_of(target) == [a_folder("/p"), a_file("/p/a"), a_file("/pa")]


def test_file_with_children_keeps_them_when_a_shallow_package_changes_its_bytes(target: Target) -> None:
    publish(target, [a_file("/f", b"old"), a_file("/f/child")], deep("/"))
    publish(target, [a_file("/f", b"new")], shallow("/f"), 1)
    assert content_of(target) == [a_file("/f", b"new"), a_file("/f/child")]


def test_children_that_the_same_package_carries_stay_below_the_file(target: Target) -> None:
    publish(target, [a_folder("/p"), a_file("/p/a"), a_file("/p/b")], deep("/"))
    publish(target, [a_file("/p", b"file now"), a_file("/p/b")], shallow("/p", "/p/b"), 1)
    assert content_of(target) == [a_file("/p", b"file now"), a_file("/p/b")]
