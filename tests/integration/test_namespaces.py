"""Namespaces of a FileVault source reach FileVault packages that are made of any target, over `tree` packages."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0" xmlns:acme="{uri}"
    jcr:primaryType="nt:unstructured" acme:title="Home"/>
"""
FILTER = '<workspaceFilter version="1.0"><filter root="/content/{name}"/></workspaceFilter>'
DECLARED = b'xmlns:acme="https://acme.example/ns"'
ENTRY = "jcr_root/content/site/.content.xml"


def checkout(folder: Path, name: str = "site", uri: str = "https://acme.example/ns") -> Path:
    (folder / "META-INF/vault").mkdir(parents=True)
    (folder / "META-INF/vault/filter.xml").write_text(FILTER.format(name=name))
    (folder / f"jcr_root/content/{name}").mkdir(parents=True)
    (folder / f"jcr_root/content/{name}/.content.xml").write_text(DOCUMENT.format(uri=uri))
    return folder


@pytest.mark.parametrize("kind", ["sqlite", "files", "generations"])
def test_a_package_of_a_target_declares_the_namespaces_of_the_source(boat: Any, tmp_path: Path, kind: str) -> None:
    boat.do("publish", checkout(tmp_path / "source"))
    target, copy = f"{kind}:{tmp_path / 'target'}", f"files:{tmp_path / 'copy'}"
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    boat.do("packages", "build", target, "/content/site", "--into", tmp_path / "x.zip")
    assert DECLARED in zipfile.ZipFile(tmp_path / "x.zip").read(ENTRY)
    boat.do("content", "snapshot", target, tmp_path / "x.snap")
    boat.do("content", "restore", tmp_path / "x.snap", "--into", copy)
    boat.do("packages", "build", tmp_path / "copy", "/content/site", "--into", tmp_path / "y.zip")
    assert DECLARED in zipfile.ZipFile(tmp_path / "y.zip").read(ENTRY)


def test_packages_that_disagree_are_imported_and_refused_in_filevault(boat: Any, tmp_path: Path) -> None:
    target = f"sqlite:{tmp_path / 'target'}"
    boat.do("publish", checkout(tmp_path / "one"))
    boat.do("publish", checkout(tmp_path / "two", "other", "urn:other"))
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    build = "packages", "build", target, "/content/site", "--into", tmp_path / "x.zip"
    refused = boat.run(*build)
    assert refused.code == 4
    assert "'acme' has several namespaces: https://acme.example/ns, urn:other" in refused.err
    boat.do(*build, "--property", "xmlns:acme=https://acme.example/ns")
    assert DECLARED in zipfile.ZipFile(tmp_path / "x.zip").read(ENTRY)
    boat.do("packages", "build", target, "/content/site", "--into", tmp_path / "x.tree", "--type", "tree")
    boat.do("packages", "install", tmp_path / "x.tree", "--into", f"files:{tmp_path / 'copy'}")
    assert '"urn:other"' in (tmp_path / "copy/.node.namespaces.json").read_text()


def test_a_folder_names_its_namespaces_and_a_wrong_file_is_named(boat: Any, tmp_path: Path) -> None:
    (tmp_path / "site/page").mkdir(parents=True)
    named = tmp_path / "site/.node.namespaces.json"
    named.write_text('{"acme": "https://acme.example/ns"}')
    (tmp_path / "site/page/.node.json").write_text('{"primaryType": "acme:Page"}')
    boat.do("packages", "build", tmp_path / "site", "/page", "--into", tmp_path / "x.zip")
    assert DECLARED in zipfile.ZipFile(tmp_path / "x.zip").read("jcr_root/page/.content.xml")
    named.write_text('{"acme": "not a uri"}')
    refused = boat.run("packages", "build", tmp_path / "site", "/page", "--into", tmp_path / "y.zip")
    assert refused.code == 4
    assert ".node.namespaces.json does not name namespaces" in refused.err


@pytest.mark.parametrize("kind", ["filevault", "tree"])
def test_inspect_shows_the_namespaces_of_a_package(boat: Any, tmp_path: Path, kind: str) -> None:
    source, file = checkout(tmp_path / "source"), tmp_path / "x.package"
    boat.do("packages", "build", source, "/content/site", "--into", file, "--type", kind)
    shown = boat.run("packages", "inspect", file, "-o", "json").document
    assert shown["namespaces"] == {"acme": ["https://acme.example/ns"]}
    assert "prefix   acme   https://acme.example/ns" in boat.run("packages", "inspect", file).lines


def test_a_difference_in_namespaces_is_shown(boat: Any, tmp_path: Path) -> None:
    one, other = checkout(tmp_path / "one"), checkout(tmp_path / "two", uri="urn:other")
    found = boat.run("content", "diff", one, other, "-o", "json").document["differences"]
    assert found == [{"path": "/", "change": "namespaces", "prefixes": ["acme"]}]
    assert boat.run("content", "diff", one, other).lines == ["~ namespaces of acme", "1 difference"]
