"""Looking at a package tells all that is wrong with it."""

from __future__ import annotations

import io
import zipfile

import pytest
from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.model.filters import filter_for
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.inspection import problems_of, read_entries
from mailboat.packages.port import PackageContents
from mailboat.testing import trees

LIMITS = LimitsConfig()


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
    assert [item.where["entry"] for item in found] == ["jcr_root/a", "jcr_root/b", "META-INF/vault/filter.xml"]


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


def test_all_entries_of_a_sound_package_can_be_read() -> None:
    read_entries(sample(), LIMITS)


def test_a_damaged_entry_that_no_import_reads_is_found() -> None:
    broken = io.BytesIO(sample().getvalue().replace(b"Manifest-Version", b"Manifest_Version"))
    for _ in FilevaultCodec().open(broken, LIMITS, None).change().records:
        pass
    with pytest.raises(PackageCorruptError, match="checksum") as caught:
        read_entries(broken, LIMITS)
    assert caught.value.where["entry"] == "META-INF/MANIFEST.MF"


def test_a_bomb_is_refused_before_its_entries_are_read() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/bomb", bytes(4_000_000))
    with pytest.raises(LimitExceededError, match="are packed into"):
        read_entries(into, LIMITS)
