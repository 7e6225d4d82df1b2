"""What a FileVault package of ours looks like, entry by entry: a change of it is seen in review.

Written again by `python tests/golden/test_filevault_sample.py`. The zip's bytes are not compared: zlib builds differ.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from mailboat.model.filters import filter_for
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.port import PackageContents
from mailboat.testing import trees

GOLDEN = Path(__file__).parent / "filevault_sample.txt"
ROOT = NodePath("/content/site")


def shown(*, is_self_contained: bool) -> str:
    """All entries with their texts."""
    into = io.BytesIO()
    above = (Node(NodePath("/content"), "sling:OrderedFolder"),)
    contents = PackageContents(
        filter_for((), [ROOT]), trees.sample_tree(ROOT), above, is_self_contained=is_self_contained
    )
    FilevaultCodec().write(contents, into)
    parts = [f"######## {'self-contained' if is_self_contained else 'binary-less'}\n"]
    with zipfile.ZipFile(into) as archive:
        for entry in archive.infolist():
            content = archive.read(entry)
            is_text = entry.filename.endswith((".xml", ".html", ".MF"))
            text = content.decode() if is_text else f"({len(content)} bytes)\n" if content else ""
            parts.append(f"==== {entry.filename}\n{text}")
    return "".join(parts)


def test_the_sample_is_written_as_it_was() -> None:
    expected = shown(is_self_contained=False) + shown(is_self_contained=True)
    assert GOLDEN.read_bytes().decode() == expected


if __name__ == "__main__":
    GOLDEN.write_bytes((shown(is_self_contained=False) + shown(is_self_contained=True)).encode())
