"""Paths near the bound of the operating system: all that a target takes it can also copy, read and remove."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.locations import open_target
from mailboat.content.targets.disk_names import PathLimits
from mailboat.errors import PathRefusedError
from mailboat.model.identifiers import Offset
from mailboat.model.paths import NodePath
from mailboat.testing.target_contract import at, content_of, deep, publish
from mailboat.testing.target_model import as_change
from mailboat.testing.trees import a_file, a_full_node

BESIDE_BYTES = len("/.node..bin") + 64


def path_of(path_bytes: int) -> str:
    """A path of that length."""
    return "".join(f"/{name:02}{'n' * 238}" for name in range(17))[: path_bytes - 1] + "n"


@pytest.mark.parametrize("kind", ["files", "generations"])
def test_the_longest_path_taken_leaves_room_for_what_lies_beside_it(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "web"
    folder_bytes = 1 + 20 + 1 + 8 if kind == "generations" else 0
    room = os.pathconf(tmp_path, "PC_PATH_MAX") - 1 - len(os.fsencode(root)) - folder_bytes - BESIDE_BYTES
    with closing(open_target(f"{kind}:{root}")) as target:
        with target.batch() as batch, pytest.raises(PathRefusedError, match=f"room for paths of {room} bytes"):
            batch.apply(as_change([a_file(path_of(room + 1))], deep(path_of(room + 1))), Offset(0))
        longest = a_full_node(path_of(room))
        publish(target, [longest], deep(longest.path))
        publish(target, [a_file("/innocent")], deep("/innocent"), 1)
        assert longest in content_of(target)
        publish(target, [], deep(longest.path[:241]), 2)
        assert content_of(target) == [a_file("/innocent")]
        assert target.ledger.position() == at(3)


def test_the_reserved_prefix_counts_as_it_is_written(tmp_path: Path) -> None:
    room = PathLimits(str(tmp_path), "x" * (os.pathconf(tmp_path, "PC_PATH_MAX") - 200 - len(str(tmp_path))))
    room.check(NodePath("/.node." + "n" * 106))
    with pytest.raises(PathRefusedError, match="has 125 bytes"):
        room.check(NodePath("/.node." + "n" * 107))


def test_a_name_that_the_file_system_is_too_small_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pathconf", lambda _, name: {"PC_PATH_MAX": 4096, "PC_NAME_MAX": 143}[name])
    room = PathLimits(str(tmp_path), "")
    room.check(NodePath("/" + "é" * 71))
    with pytest.raises(PathRefusedError, match="a name of 144 bytes"):
        room.check(NodePath("/" + "é" * 72))
