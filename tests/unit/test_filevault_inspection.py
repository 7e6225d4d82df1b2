"""Looking at a package tells all that is wrong with it."""

from __future__ import annotations

import io
import zipfile

from mailboat.model.filters import filter_for
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.inspection import problems_of
from mailboat.packages.port import PackageContents, PackageLimits
from mailboat.testing import trees

LIMITS = PackageLimits()


def sample() -> io.BytesIO:
    into = io.BytesIO()
    contents = PackageContents(filter_for((), [NodePath("/content")]), trees.sample_tree(), is_self_contained=True)
    FilevaultCodec().write(contents, into)
    return into


def test_a_sound_package_has_no_problem() -> None:
    assert problems_of(sample(), LIMITS) == []


def test_what_is_no_zip_is_one_problem() -> None:
    (problem,) = problems_of(io.BytesIO(b"no zip"), LIMITS)
    assert "not a zip" in problem.message


def test_every_broken_entry_is_named() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        for name in ("jcr_root/a", "jcr_root/b", "META-INF/vault/filter.xml"):
            archive.writestr(name, b"<hello>")
    broken = into.getvalue().replace(b"<hello>", b"<hallo>")
    found = problems_of(io.BytesIO(broken), LIMITS)
    assert [one.where["entry"] for one in found] == ["jcr_root/a", "jcr_root/b", "META-INF/vault/filter.xml"]


def test_metadata_that_an_import_would_refuse_is_a_problem() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", "<workspaceFilter")
    (problem,) = problems_of(into, LIMITS)
    assert problem.where["entry"] == "META-INF/vault/filter.xml"


def test_content_that_an_import_would_refuse_is_a_problem() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr(
            "META-INF/vault/filter.xml", '<workspaceFilter version="1.0"><filter root="/c"/></workspaceFilter>'
        )
        archive.writestr("jcr_root/c/.content.xml", "<other/>")
    (problem,) = problems_of(into, LIMITS)
    assert "root is not jcr:root" in problem.message
