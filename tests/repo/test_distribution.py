"""What a package index shows: the metadata that the build backend makes of `pyproject.toml`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager


@pytest.fixture(scope="module")
def metadata(root: Path) -> ProjectMetadata:
    return ProjectMetadata(str(root), PluginManager())


def test_long_description_has_no_relative_link(metadata: ProjectMetadata) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.core.readme)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_long_description_links_lead_to_files_of_the_repository(root: Path, metadata: ProjectMetadata) -> None:
    address = f"{metadata.core.urls['Source']}/blob/main/"
    ours = [link for link in re.findall(r"\]\(([^)\s]+)\)", metadata.core.readme) if link.startswith(address)]
    assert ours
    assert [link for link in ours if not (root / link.removeprefix(address)).exists()] == []


def test_metadata_names_authors_links_and_python_versions(metadata: ProjectMetadata) -> None:
    core = metadata.core
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} <= set(core.urls)
    assert core.authors
    assert core.keywords
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.13"} <= set(core.classifiers)


def test_both_packages_are_marked_as_typed(root: Path) -> None:
    for package in ("agent_image/mailboat", "operator/mailboat_operator"):
        assert (root / package / "py.typed").is_file()
