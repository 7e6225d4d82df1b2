"""`content` and `package`: any source or target, and packages by hand."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

LARGE = bytes(range(256)) * 400
DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0"
    jcr:primaryType="nt:unstructured" title="Home" tags="[a,b]" count="{Long}3"/>
"""
FILTER = '<workspaceFilter version="1.0"><filter root="/content/site"/></workspaceFilter>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "en" / "news").mkdir(parents=True)
    (folder / "en" / "index.html").write_text("<h1>English</h1>")
    (folder / "index.html").write_text("<h1>Home</h1>")
    (folder / "picture.png").write_bytes(LARGE)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A FileVault checkout with one node that is no file."""
    folder = tmp_path / "checkout"
    (folder / "jcr_root" / "content" / "site").mkdir(parents=True)
    (folder / "META-INF" / "vault").mkdir(parents=True)
    (folder / "META-INF" / "vault" / "filter.xml").write_text(FILTER)
    (folder / "jcr_root" / "content" / "site" / ".content.xml").write_text(DOCUMENT)
    return folder


def test_nodes_are_listed_level_by_level_or_deep(new_boat: Any, site: Path) -> None:
    assert new_boat.do("content", "ls", site, "-o", "name").lines == ["/en", "/index.html", "/picture.png"]
    assert new_boat.do("content", "ls", site, "/en", "-o", "name").lines == ["/en", "/en/index.html", "/en/news"]
    assert len(new_boat.json("content", "ls", site, "--deep")) == 5
    assert len(new_boat.json("content", "ls", site, "--deep", "--limit", "2")) == 2
    assert new_boat.do("content", "ls", site).lines == [
        "TYPE          SIZE   PATH",
        "nt:folder      0 B   /en",
        "nt:file       13 B   /index.html",
        "nt:file     102 kB   /picture.png",
    ]


def test_a_file_is_printed_as_its_bytes(new_boat: Any, site: Path) -> None:
    assert new_boat.do("content", "cat", site, "/en/index.html").out == "<h1>English</h1>"


def test_cat_prints_properties_of_non_file_node(new_boat: Any, checkout: Path) -> None:
    node = new_boat.json("content", "cat", checkout, "/content/site")
    assert node["primary_type"] == "nt:unstructured"
    assert node["properties"] == {
        "count": {"type": "long", "value": "3"},
        "tags": {"type": "string", "value": ["a", "b"]},
        "title": {"type": "string", "value": "Home"},
    }
    lines = [line.split() for line in new_boat.do("content", "cat", checkout, "content/site").lines]
    assert ["tags", "string", "a,", "b"] in lines
    assert yaml.safe_load(new_boat.do("content", "cat", checkout, "content/site", "-o", "yaml").out) == node


def test_equal_content_has_one_digest_wherever_it_is(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    digests = {boat.do("content", "digest", site).out}
    for kind in ("files", "generations", "sqlite"):
        target = f"{kind}:{tmp_path / kind}"
        boat.do("subscribe", kind, "--into", target, "--until", "caught-up")
        digests.add(boat.do("content", "digest", target).out)
    assert len(digests) == 1
    part = boat.json("content", "digest", site, "/en")
    assert (part["path"], len(part["digest"])) == ("/en", 64)


def test_only_what_is_there_has_a_digest(new_boat: Any, site: Path, tmp_path: Path) -> None:
    ran = new_boat.run("content", "digest", site, "/nope")
    assert (ran.code, ran.out, f"error: SourceMissing: {site} has no /nope" in ran.err) == (2, "", True)
    (tmp_path / "my site").mkdir()
    assert len(new_boat.do("content", "digest", tmp_path / "my site").out.strip()) == 64
    ran = new_boat.run("content", "digest", tmp_path / "my site", "/nope")
    assert f"  next  mailboat content ls '{tmp_path / 'my site'}'\n" in ran.err


def test_differences_left_out_are_told(new_boat: Any, site: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = ("content", "diff", site, tmp_path / "empty", "--limit")
    assert new_boat.run(*words, "2").lines[-1] == "2 differences shown, more left out: see --limit"
    assert new_boat.run(*words, "5").lines[-1] == "5 differences"
    assert new_boat.run(*words, "2", "-o", "json").document["complete"] is False
    assert new_boat.run(*words, "5", "-o", "json").document["complete"] is True


def test_diff_of_a_path_in_neither_tree_is_refused(new_boat: Any, site: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "fr").mkdir(parents=True)
    ran = new_boat.run("content", "diff", site, tmp_path / "other", "/en/typo")
    assert (ran.code, "error: SourceMissing: neither" in ran.err) == (2, True)
    assert new_boat.run("content", "diff", site, tmp_path / "other", "/fr").code == 1


def test_a_difference_is_told_by_lines_and_exit_code(new_boat: Any, site: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "en").mkdir(parents=True)
    (other / "en" / "index.html").write_text("<h1>Changed</h1>")
    (other / "new.html").write_text("")
    ran = new_boat.run("content", "diff", site, other)
    assert ran.code == 1
    assert ran.lines == [
        "~ /en/index.html",
        "- /en/news",
        "- /index.html",
        "+ /new.html",
        "- /picture.png",
        "5 differences",
    ]
    some = new_boat.run("content", "diff", site, other, "-o", "json", "--limit", "1")
    first = {"path": "/en/index.html", "change": "changed"}
    assert json.loads(some.out) == {"differences": [first], "complete": False}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("ls", "/does/not/exist"), "SourceMissing"),
        (("ls", "SITE", "/nothing"), "SourceMissing"),
        (("cat", "SITE", "/nothing"), "SourceMissing"),
        (("cat", "SITE", "/"), "SourceMissing"),
        (("diff", "SITE", "SITE"), "Usage"),
        (("digest", "sqlite:/does/not/exist"), "SourceMissing"),
        (("digest", "files:"), "Usage"),
        (("ls", "SITE/index.html"), "Usage"),
    ],
)
def test_what_is_not_there_is_said_by_name(new_boat: Any, site: Path, words: tuple[str, ...], name: str) -> None:
    ran = new_boat.run("content", *(word.replace("SITE", str(site)) for word in words))
    assert (ran.code, ran.err.split(":")[1].strip()) == (2, name)


@pytest.mark.parametrize("package_type", ["filevault", "tree"])
def test_a_package_is_built_looked_into_checked_and_installed(
    boat: Any, site: Path, tmp_path: Path, package_type: str
) -> None:
    file, target = tmp_path / "en.package", f"sqlite:{tmp_path / 'db'}"
    built = boat.json("packages", "build", site, "/en", "/picture.png", "--into", file, "--type", package_type)
    assert (built["type"], built["nodes"], built["bytes"]) == (package_type, 4, file.stat().st_size)
    facts = boat.json("packages", "inspect", file)
    assert [item["root"] for item in facts["filter"]] == ["/en", "/picture.png"]
    assert facts["tree_digest"] == built["tree_digest"]
    build = ("packages", "build", site, "/en", "/picture.png", "--into", file, "--type", package_type)
    refused = boat.run(*build)
    assert (refused.code, f"--force to replace {file}" in refused.err) == (2, True)
    again = boat.do(*build, "--force")
    assert again.out.endswith(f"  {built['tree_digest']}\n"), "the digest that all commands on packages show"
    shown = boat.do("packages", "inspect", file).lines
    properties = {"group": "mailboat", "name": "en", "packageType": "content", "version": "1.0"}
    own = properties if package_type == "filevault" else {}
    assert (facts["id"], facts["properties"]) == ("mailboat:en:1.0" if own else None, own)
    assert shown[1 : 4 + bool(own) + len(own)] == [
        f"digest   {built['tree_digest']}",
        *(["id       mailboat:en:1.0"] if own else []),
        *(f"property {key} = {text}" for key, text in own.items()),
        "filter   /en   deep   replace",
        "filter   /picture.png   deep   replace",
    ]
    assert "  /en/index.html" in shown
    assert f"{file}  4 nodes  {built['tree_digest']}  can be imported" in boat.do("packages", "verify", file).out
    assert boat.do("packages", "install", file, "--into", target).lines == [f"{target}  4 nodes put, 0 removed"]
    assert boat.do("content", "diff", site, target, "/en").lines == ["no difference"]
    picture = boat.json("content", "cat", target, "/picture.png")
    assert picture["properties"]["jcr:data"]["value"].endswith(":102400")


def test_packages_work_without_a_home(
    command_line: Any, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAILBOAT_HOME", str(tmp_path / "missing"))
    file = tmp_path / "en.package"
    command_line(None).do("packages", "build", site, "/en", "--into", file)
    assert "can be imported" in command_line(None).do("packages", "verify", file).out


def test_packages_refuse_a_missing_home_that_an_option_names(boat: Any, site: Path, tmp_path: Path) -> None:
    file, missing = tmp_path / "en.package", tmp_path / "missing"
    boat.do("packages", "build", site, "/en", "--into", file)
    ran = boat.run("packages", "inspect", file, "--home", missing)
    assert (ran.code, f"error: HomeMissing: there is no Mailboat home at {missing}" in ran.err) == (2, True), ran.err


def test_installing_again_follows_the_filter(boat: Any, site: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "en.zip", f"files:{tmp_path / 'target'}"
    boat.do("packages", "build", site, "/en", "--into", file)
    boat.do("packages", "install", file, "--into", target)
    (site / "en" / "news").rmdir()
    named = ("--property", "version=2", "--property", "group=me")
    boat.do("packages", "build", site, "/en", "--into", file, "--force", *named)
    assert boat.json("packages", "install", file, "--into", target)["removed"] == 1
    with zipfile.ZipFile(file) as package:
        assert b'<entry key="version">2</entry>' in package.read("META-INF/vault/properties.xml")


def test_a_subscribers_target_takes_no_packages_by_hand(boat: Any, site: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "en.zip", f"sqlite:{tmp_path / 'db'}"
    boat.do("packages", "build", site, "/en", "--into", file)
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    ran = boat.run("packages", "install", file, "--into", target)
    assert (ran.code, "error: TargetOwned:" in ran.err) == (5, True)


def test_a_package_that_is_refused_takes_no_target_from_a_subscriber(boat: Any, tmp_path: Path) -> None:
    file, target = tmp_path / "slip.zip", f"files:{tmp_path / 'target'}"
    with zipfile.ZipFile(file, "w") as package:
        package.writestr("META-INF/vault/filter.xml", FILTER)
        package.writestr("jcr_root/../../passwd", "no")
    assert boat.run("packages", "install", file, "--into", target).code == 4
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")


def test_a_file_that_is_no_package_is_named(boat: Any, tmp_path: Path) -> None:
    file = tmp_path / "empty.zip"
    file.write_bytes(b"")
    ran = boat.run("packages", "verify", file)
    assert "error: UnknownPackageType: the file is empty; known formats: filevault, tree" in ran.err
    assert ran.code == 4
    assert f"  file  {file}" in ran.err


def test_a_zip_is_a_source_as_well(boat: Any, checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "site.zip"
    boat.do("packages", "build", checkout, "/content/site", "--into", file, "--property", "version=3")
    assert boat.do("content", "diff", checkout, file, "/content/site").lines == ["no difference"]
    published = boat.json("publish", file, "/content/site")
    assert published["packages"][0]["nodes"] == 1
    whole = boat.json("packages", "build", file, "--into", tmp_path / "whole.zip")
    assert (whole["nodes"], whole["name"]) == (1, "mailboat:site:3")
    left_out = ["group", "name", "packageType", "version"]
    assert published["unpublished_properties"] == left_out
    assert boat.json("plan", file, "/content/site")["unpublished_properties"] == left_out
    line = f"not published, as importers of content read none of them: {', '.join(left_out)}"
    assert line in boat.do("plan", file, "/content/site").lines
    assert line in boat.do("publish", file, "/content/site").lines


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"hello", b"PK\x03\x04 and then nothing"])
def test_a_file_that_is_no_package_is_refused(boat: Any, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.zip"
    file.write_bytes(content)
    ran = boat.run("packages", "verify", file)
    assert ran.code in {1, 4}
    assert ran.err.startswith("error: ")
    assert "defect" not in ran.err


def test_verify_tells_everything_that_is_wrong_with_a_package_at_once(boat: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", FILTER)
        for name in ("a", "b", "c"):
            archive.writestr(f"jcr_root/content/site/{name}.txt", f"hello {name}")
    file.write_bytes(file.read_bytes().replace(b"hello", b"hallo"))
    ran = boat.run("packages", "verify", file)
    assert ran.code == 4
    assert [ran.err.count(f"jcr_root/content/site/{name}.txt") for name in ("a", "b", "c")] == [1, 1, 1]


def test_verify_finds_a_damaged_entry_that_an_import_passes_over(boat: Any, site: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "en.zip", f"files:{tmp_path / 'target'}"
    boat.do("packages", "build", site, "/en", "--into", file, "--type", "filevault")
    file.write_bytes(file.read_bytes().replace(b"Manifest-Version", b"Manifest_Version"))
    ran = boat.run("packages", "verify", file)
    assert (ran.code, "META-INF/MANIFEST.MF" in ran.err) == (4, True)
    boat.do("packages", "install", file, "--into", target)


def test_a_package_that_leads_outside_is_refused_before_anything_is_written(boat: Any, tmp_path: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as package:
        package.writestr("META-INF/vault/filter.xml", FILTER)
        package.writestr("jcr_root/content/site/../../../escaped", "x")
    file = tmp_path / "slip.zip"
    file.write_bytes(held.getvalue())
    ran = boat.run("packages", "install", file, "--into", f"files:{tmp_path / 'target'}")
    assert ran.code == 4
    assert "escaped" in ran.err
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("words", [("--property", "nothing"), ("--property", "=x")])
def test_a_property_needs_a_name_and_a_value(boat: Any, site: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = boat.run("packages", "build", site, "/en", "--into", tmp_path / "x.zip", *words)
    assert (ran.code, "is not NAME=VALUE" in ran.err) == (2, True)
    assert not (tmp_path / "x.zip").exists()


def test_a_package_that_cannot_be_written_leaves_nothing(boat: Any, site: Path, tmp_path: Path) -> None:
    ran = boat.run("packages", "build", site, "/en", "--into", tmp_path / "none" / "x.zip")
    assert (ran.code, "error: PlaceUnusable: the folder" in ran.err) == (2, True)


def test_a_package_with_blobs_elsewhere_is_read_with_the_home(boat: Any, site: Path) -> None:
    boat.do("publish", site, "/picture.png")
    (record,) = boat.json("journal", "show")
    assert record["type"] == "Package"
    assert boat.do("journal", "verify", "--deep").lines == ["1 message and 1 blob checked, no problems found"]
