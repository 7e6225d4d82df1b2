"""Looking at a package tells all that is wrong with it."""

from __future__ import annotations

import io
import zipfile

from mailboat.model.filters import filter_for
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.inspection import inspect_package
from mailboat.packages.port import PackageContents, PackageLimits
from mailboat.testing import trees

LIMITS = PackageLimits()


def sample() -> io.BytesIO:
    into = io.BytesIO()
    contents = PackageContents(filter_for((), [NodePath("/content")]), trees.sample_tree(), is_self_contained=True)
    FilevaultCodec().write(contents, into)
    return into


def test_a_sound_package() -> None:
    found = inspect_package(sample(), LIMITS)
    assert found.is_sound
    assert found.node_count == len(trees.sample_tree())
    assert found.filter == filter_for((), [NodePath("/content")])
    assert found.properties["group"] == "mailboat"
    by_name = {one.name: one for one in found.entries}
    assert by_name["jcr_root/content/index.html"].size_bytes == 15
    assert by_name["jcr_root/content/large.bin"].is_packed


def test_what_is_no_zip_is_one_problem() -> None:
    found = inspect_package(io.BytesIO(b"no zip"), LIMITS)
    assert not found.is_sound
    assert "not a zip" in found.problems[0]


def test_every_broken_entry_is_named() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        for name in ("jcr_root/a", "jcr_root/b", "META-INF/vault/filter.xml"):
            archive.writestr(name, b"<hello>")
    broken = into.getvalue().replace(b"<hello>", b"<hallo>")
    found = inspect_package(io.BytesIO(broken), LIMITS)
    assert [name in problem for name, problem in zip(["/a", "/b", "filter"], found.problems, strict=False)] == [
        True
    ] * 3
    assert found.filter is None


def test_content_that_an_import_would_refuse_is_a_problem() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr(
            "META-INF/vault/filter.xml", '<workspaceFilter version="1.0"><filter root="/c"/></workspaceFilter>'
        )
        archive.writestr("jcr_root/c/.content.xml", "<other/>")
    (problem,) = inspect_package(into, LIMITS).problems
    assert "root is not jcr:root" in problem
