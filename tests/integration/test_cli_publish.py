"""`init`, `plan`, `publish`, `delete`, `invalidate`, `ping`: requests from the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mailboat.publisher.appender import Receipt
from mailboat.publisher.publisher import Publisher
from mailboat.testing.wait import PATIENCE_SECONDS


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "en" / "news").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Home</h1>")
    (folder / "en" / "index.html").write_text("<h1>English</h1>")
    (folder / "en" / "news" / "1.html").write_text("<h1>News</h1>")
    (folder / "picture.png").write_bytes(b"\x89PNG" + bytes(range(256)) * 400)
    return folder


def test_init_makes_a_home_once(new_boat: Any) -> None:
    boat = new_boat
    ran = boat.do("init")
    assert f"home     {boat.home}" in ran.lines[0]
    assert {path.name for path in boat.home.iterdir()} >= {"mailboat.yaml", "journal.db", "blobs", "publishers"}
    again = boat.run("init")
    assert (again.code, again.err.split(":")[1].strip()) == (2, "HomeExists")


def test_init_can_print_the_configuration_and_make_nothing(new_boat: Any) -> None:
    assert "max_retries: 10" in new_boat.do("init", "--print").out
    assert not new_boat.home.exists()


def test_a_command_without_a_home_says_how_to_make_one(new_boat: Any, site: Path) -> None:
    ran = new_boat.run("publish", site)
    assert ran.code == 2
    assert f"next  mailboat --home {new_boat.home} init" in ran.err


def test_requests_to_an_agent_load_nothing_of_a_home() -> None:
    """The engine of a home would be a third of the CPU time of such a command."""
    check = (
        "import sys; from mailboat.cli.main import main;"
        "agent = ['--url', 'http://127.0.0.1:9'];"
        "codes = [main([*words.split(), *agent]) for words in sys.argv[1:]];"
        "print(*codes, *sorted(name for name in sys.modules if name.startswith('mailboat')))"
    )
    requests = ["publish /en", "publish --changed", "plan /en", "delete /en", "ping", "blobs ls"]
    ran = subprocess.run([sys.executable, "-c", check, *requests], capture_output=True, text=True, check=True)
    codes, loaded = ran.stdout.split()[: len(requests)], ran.stdout.split()[len(requests) :]
    assert (codes, ran.stderr.count("error: AgentUnreachable: ")) == (["75"] * len(requests), len(requests))
    assert {"mailboat.cli.publish", "mailboat.api.client"} <= set(loaded)
    engine = "content|control|discovery|journal|maintenance|packages|publisher|queues|subscriber|wire"
    assert not [name for name in loaded if re.match(rf"mailboat\.({engine})\b", name)]
    assert len(loaded) <= 65


def test_a_plan_changes_nothing(boat: Any, site: Path) -> None:
    plan = boat.json("plan", site, "/en")
    assert (plan["packages"], plan["nodes"], plan["files"], plan["deletes"], plan["behind"]) == (1, 4, 2, 0, {})
    assert boat.json("plan", site, "--changed")["packages"] >= 1
    assert boat.do("plan", site, "en").lines[0].startswith("2 files, 4 nodes, 0 deletes, ")
    assert boat.json("journal", "topics")[0]["next_offset"] == 0


def test_publish_prints_package_and_offset(boat: Any, site: Path) -> None:
    ran = boat.do("publish", site, "/en", "index.html")
    assert ran.lines[0].startswith("dstrpck-")
    assert "  offset 0  ADD /en /index.html  5 nodes, " in ran.lines[0]
    assert boat.do("publish", site, "/", "-o", "name").out.startswith("dstrpck-")


def test_each_path_can_be_a_package_of_its_own(boat: Any, site: Path) -> None:
    packages = boat.json("publish", site, "/en", "/index.html", "--each")["packages"]
    assert [(package["offset"], package["paths"]) for package in packages] == [(0, ["/en"]), (1, ["/index.html"])]


def test_a_shallow_publish_ships_the_node_alone(boat: Any, site: Path) -> None:
    assert boat.json("publish", site, "/en", "--shallow")["packages"][0]["nodes"] == 1


def test_the_same_request_id_is_published_once(boat: Any, site: Path) -> None:
    first = boat.json("publish", site, "/en", "--request-id", "monday")["packages"][0]
    again = boat.json("publish", site, "/en", "--request-id", "monday")["packages"][0]
    assert (again["offset"], again["package_id"], again["repeated"]) == (first["offset"], first["package_id"], True)
    assert boat.json("journal", "topics")[0]["next_offset"] == 1
    figures = ("nodes", "removed", "package_bytes", "content_bytes", "inline")
    assert [again[name] for name in figures] == [None] * 5
    other = boat.run("publish", site, "/index.html", "--request-id", "monday")
    assert (other.code, "RequestConflict" in other.err) == (2, True)
    assert "published before" in boat.do("publish", site, "/en", "--request-id", "monday").out


def test_a_request_id_stands_for_each_path_of_many(boat: Any, site: Path) -> None:
    words = ("publish", site, "/en", "/index.html", "--each", "--request-id", "r")
    first, again = boat.json(*words)["packages"], boat.json(*words)["packages"]
    assert [item["request_id"] for item in first] == ["r", "r.1"]
    assert [item["offset"] for item in again] == [item["offset"] for item in first] == [0, 1]


def test_what_changed_is_shipped_with_deletes_and_then_nothing(boat: Any, site: Path) -> None:
    assert boat.json("publish", site, "--changed")["packages"]
    assert boat.do("publish", site, "--changed").lines == ["nothing to publish"]
    (site / "en" / "news" / "1.html").unlink()
    (site / "index.html").write_text("<h1>New</h1>")
    packages = boat.json("publish", site, "--changed")["packages"]
    assert sum(package["removed"] for package in packages) == 1
    assert boat.do("plan", site, "--changed").lines == ["nothing to publish"]


def test_what_changed_since_all_of_it_was_published_is_nothing(boat: Any, site: Path) -> None:
    boat.do("publish", site, "/")
    assert boat.do("publish", site, "--changed").lines == ["nothing to publish"]
    (site / "index.html").unlink()
    (package,) = boat.json("publish", site, "--changed")["packages"]
    assert (package["paths"], package["removed"]) == (["/index.html"], 1)


def test_what_was_published_before_a_path_failed_is_said(boat: Any, site: Path) -> None:
    ran = boat.run("publish", site, "/en", "/nope", "--each")
    assert (ran.code, "SourceMissing" in ran.err, "  ADD /en  " in ran.out) == (2, True, True)
    assert "published before  1" in ran.err
    assert boat.json("journal", "topics")[0]["next_offset"] == 1


def test_what_changed_and_was_published_before_a_package_failed_is_said(boat: Any, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for name in (*(f"a{number:03}" for number in range(600)), "zA", "za"):
        (tmp_path / "many" / name).touch()
    configuration = boat.home / "mailboat.yaml"
    configuration.write_text(configuration.read_text().replace("refuse_collisions: false", "refuse_collisions: true"))
    ran = boat.run("publish", tmp_path / "many", "--changed", "-o", "name")
    assert (ran.code, "LimitExceeded" in ran.err) == (4, True)
    assert len(ran.out.splitlines()) == boat.json("journal", "topics")[0]["next_offset"] == 1


@pytest.mark.parametrize("option", ["--shallow", "--each", "--request-id=x"])
def test_changed_cuts_by_itself(boat: Any, site: Path, option: str) -> None:
    ran = boat.run("publish", site, "--changed", option)
    assert (ran.code, "in how many packages" in ran.err) == (2, True)


def test_the_other_requests_are_published(boat: Any) -> None:
    boat.do("delete", "/en", "/de/")
    boat.do("invalidate", "/index.html")
    typo = boat.run("ping", "--publisher", "editor")
    assert (typo.code, "error: AgentMissing: there is no publisher editor here" in typo.err) == (2, True)
    assert [item["name"] for item in boat.json("publishers", "ls")] == ["author"]
    ran = boat.do("ping", "--publisher", "editor", "--new-publisher")
    assert ran.lines[0].endswith("  TEST"), "no path, and no blank for one"
    says = [item["summary"].split("   ")[0] for item in boat.json("journal", "show")]
    assert says == ["DELETE /en /de", "INVALIDATE /index.html", "TEST"]


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (("delete", "/"), 2, "Usage"),
        (("publish", "SITE", "/nothing"), 2, "SourceMissing"),
        (("publish", "/does/not/exist"), 2, "SourceMissing"),
        (("publish", "SITE", "/en", "--publisher", "no spaces please"), 2, "Usage"),
        (("publish", "SITE", "/a/../b"), 4, "PathRefused"),
        (("publish", "SITE", "/", "--request-id", "ü"), 2, "Usage"),
        (("publish",), 2, "Usage"),
        (("publihs",), 2, "Usage"),
    ],
)
def test_what_cannot_be_meant_has_a_name_and_an_exit_code(
    boat: Any, site: Path, words: tuple[str, ...], code: int, name: str
) -> None:
    ran = boat.run(*(str(site) if word == "SITE" else word for word in words))
    assert (ran.code, ran.err.split(":")[1].strip(), ran.out) == (code, name, "")


def test_waiting_is_over_when_the_time_is_and_says_who_is_missing(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    ran = boat.run("publish", site, "/", "--wait", "0.2")
    assert ran.code == 3
    assert ran.lines[-2].startswith("imported by 0/1 after waiting ")
    assert ran.lines[-1] == "  not yet by web: stopped"


def test_waiting_for_no_one_is_over_at_once(boat: Any, site: Path) -> None:
    ran = boat.run("publish", site, "/", "--wait", "600")
    assert (ran.code, ran.lines[-1]) == (3, "no subscriber is known; nothing to wait for")
    followers = boat.run("publish", site, "/", "--wait", "600", "-o", "json").document["followers"]
    assert (followers["imported"], followers["waiting"], followers["seconds"] < PATIENCE_SECONDS) == ([], [], True)


def test_traces_are_printed_when_asked_for(boat: Any, site: Path) -> None:
    assert "Traceback" not in boat.run("publish", site, "/nothing").err
    assert "Traceback" in boat.run("publish", site, "/nothing", "--verbose").err
    assert "Traceback" in boat.run("--verbose", "publish", site, "/nothing").err


@pytest.mark.parametrize("words", [("publish", "SITE"), ("plan", "SITE"), ("publish", "SITE", "--shallow")])
def test_all_of_a_folder_is_never_published_without_being_named(boat: Any, site: Path, words: tuple[str, ...]) -> None:
    ran = boat.run(*(str(site) if word == "SITE" else word for word in words))
    assert (ran.code, "error: Usage: no path is given" in ran.err) == (2, True)
    assert f"mailboat publish --source {site} --changed\n" in ran.err
    assert f"mailboat publish --source {site} /\n" in ran.err
    assert boat.json("journal", "topics")[0]["next_offset"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("publish", "SITE", ""),
        ("publish", "SITE", "--changed", ""),
        ("delete", ""),
        ("plan", "SITE", "/en", ""),
        ("publish", "", "/"),
        ("delete", "/en", "--url", ""),
        ("delete", "/en", "--publisher="),
        ("delete", "/en", "--home="),
    ],
)
def test_an_empty_argument_is_not_taken_for_a_default(boat: Any, site: Path, words: tuple[str, ...]) -> None:
    ran = boat.run(*(str(site) if word == "SITE" else word for word in words))
    assert (ran.code, "is empty\n" in ran.err) == (2, True)


def vault_zip(file: Path, filters: str) -> Path:
    content = '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" jcr:primaryType="nt:unstructured"/>'
    with zipfile.ZipFile(file, "w") as package:
        package.writestr("META-INF/vault/filter.xml", f'<workspaceFilter version="1.0">{filters}</workspaceFilter>')
        for folder in ("content", "content/site", "apps", "apps/site"):
            package.writestr(f"jcr_root/{folder}/.content.xml", content)
    return file


def test_a_filevault_package_publishes_the_roots_of_its_own_filter(boat: Any, site: Path, tmp_path: Path) -> None:
    file = vault_zip(tmp_path / "a.zip", '<filter root="/content/site"/><filter root="/apps/site"/>')
    target = f"files:{tmp_path / 'web'}"
    boat.do("publish", site, "/en")
    plan = boat.do("plan", file).lines
    assert "replaces /apps/site and 1 path more: what subscribers have below and the source has not is removed" in plan
    assert boat.json("publish", file)["packages"][0]["paths"] == ["/content/site", "/apps/site"]
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    paths = [row["path"] for row in boat.json("content", "ls", target, "--deep")]
    assert "/content/site" in paths
    assert "/apps/site" in paths
    assert "/en/news/1.html" in paths


@pytest.mark.parametrize("paths", [(), ("/content/site",)], ids=["no path", "a path"])
def test_a_filter_that_leaves_something_out_is_not_widened(
    boat: Any, site: Path, tmp_path: Path, paths: tuple[str, ...]
) -> None:
    target = f"files:{tmp_path / 'web'}"
    (site / "content" / "site" / "users").mkdir(parents=True)
    (site / "content" / "site" / "gone").mkdir()
    boat.do("publish", site, "/content")
    rules = '<filter root="/content/site"><exclude pattern="/content/site/users(/.*)?"/></filter>'
    package = vault_zip(tmp_path / "a.zip", rules)
    assert boat.do("plan", package, *paths).lines[-2].endswith("is removed, but for what the filter leaves out")
    boat.do("publish", package, *paths)
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    below = {row["path"] for row in boat.json("content", "ls", target, "--deep")}
    assert {"/content/site/users", "/content/site/gone"} & below == {"/content/site/users"}


def test_changes_are_looked_for_within_the_filter_only(boat: Any, site: Path, tmp_path: Path) -> None:
    target = f"files:{tmp_path / 'web'}"
    (site / "content" / "other").mkdir(parents=True)
    (site / "content" / "other" / "a.txt").write_text("a")
    boat.do("publish", site, "/content")
    boat.do("publish", vault_zip(tmp_path / "a.zip", '<filter root="/content/site"/>'), "--changed")
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    paths = [row["path"] for row in boat.json("content", "ls", target, "--deep")]
    assert "/content/other/a.txt" in paths
    assert "/content/site" in paths
    assert "/apps/site" not in paths


def test_changes_within_a_filter_with_rules_are_refused(boat: Any, tmp_path: Path) -> None:
    rules = '<filter root="/content/site" mode="merge"/>'
    for command in ("publish", "plan"):
        ran = boat.run(command, vault_zip(tmp_path / "a.zip", rules), "--changed")
        assert (ran.code, "has rules or a mode for /content/site" in ran.err) == (2, True)


def test_a_checkout_without_a_filter_needs_paths(boat: Any, tmp_path: Path) -> None:
    (tmp_path / "checkout" / "jcr_root").mkdir(parents=True)
    ran = boat.run("publish", tmp_path / "checkout")
    assert (ran.code, "no path is given" in ran.err) == (2, True)


def test_a_folder_that_may_be_a_checkout_is_not_guessed_about(boat: Any, site: Path) -> None:
    boat.do("publish", site, "--changed")
    (site / "jcr_root").mkdir()
    ran = boat.run("publish", site, "--changed")
    assert (ran.code, "may be a FileVault checkout" in ran.err) == (2, True)
    assert boat.json("journal", "topics")[0]["next_offset"] == 1, "nothing was removed"


def test_a_checkout_that_lost_its_content_is_no_empty_site(boat: Any, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "META-INF" / "vault").mkdir(parents=True)
    (checkout / "jcr_root" / "content").mkdir(parents=True)
    (checkout / "jcr_root" / "content" / "a.txt").write_text("a")
    boat.do("publish", checkout, "--changed")
    (checkout / "jcr_root").rename(tmp_path / "elsewhere")
    ran = boat.run("publish", checkout, "--changed")
    assert (ran.code, "no jcr_root" in ran.err) == (2, True)
    (tmp_path / "elsewhere").rename(checkout / "jcr_root")
    assert boat.do("publish", checkout, "--changed").lines == ["nothing to publish"]


def test_a_plan_tells_what_a_deep_request_replaces(boat: Any, site: Path) -> None:
    line = "replaces /: what subscribers have below and the source has not is removed"
    assert line in boat.do("plan", site, "/").lines
    assert boat.json("plan", site, "/")["replaces"] == ["/"]
    assert boat.json("plan", site, "/en", "--shallow")["replaces"] == []
    assert boat.json("plan", site, "--changed")["replaces"] == []


@pytest.mark.parametrize("command", ["publish", "plan"])
def test_a_folder_has_no_node_of_its_own_for_the_root_alone(boat: Any, site: Path, command: str) -> None:
    ran = boat.run(command, site, "/", "--shallow")
    assert (ran.code, "has no node of its own at /" in ran.err) == (2, True)
    assert "publish paths below it" in ran.err
    assert "delete" not in ran.err


def test_a_plan_marks_what_goes_and_what_is_removed(boat: Any, site: Path) -> None:
    boat.do("publish", site, "--changed")
    (site / "en" / "news" / "1.html").unlink()
    (site / "new.html").write_text("new")
    assert boat.do("plan", site, "--changed").lines[1:3] == ["  + /new.html", "  - /en/news/1.html"]
    assert boat.json("plan", site, "--changed")["first_removals"] == ["/en/news/1.html"]


def test_a_package_that_only_removes_says_so(boat: Any, site: Path) -> None:
    boat.do("publish", site, "--changed")
    (site / "index.html").unlink()
    (line,) = boat.do("publish", site, "--changed").lines
    assert "  offset 1  removes /index.html  1 delete" in line


def test_a_link_that_leads_outside_is_named_with_what_to_do(boat: Any, site: Path) -> None:
    (site / "en" / "out").symlink_to("/etc")
    ran = boat.run("publish", site, "--changed")
    assert ran.code == 4
    assert f"'{site}/en/out' is a link that leads outside" in ran.err
    assert "remove the link, or publish other paths" in ran.err
    assert boat.do("publish", site, "/en/news", "/index.html").lines


def test_source_whose_path_is_not_utf_8_is_refused_before_anything_is_read(boat: Any, site: Path) -> None:
    folder = site.rename(Path(os.fsdecode(bytes(site.parent) + b"/caf\xe9")))
    for words in ((folder, "--changed"), (folder, "/en")):
        ran = boat.run("publish", *words)
        assert (ran.code, "is not valid UTF-8" in ran.err) == (2, True)


def test_a_tree_package_is_said_to_be_no_source(boat: Any, site: Path, tmp_path: Path) -> None:
    file = tmp_path / "en.tree"
    boat.do("packages", "build", site, "/en", "--into", file, "--type", "tree")
    ran = boat.run("publish", file, "/en")
    assert (ran.code, "a tree package is not a source" in ran.err) == (2, True)
    assert f"mailboat packages inspect {file}" in ran.err


@pytest.mark.parametrize("verb", ["publish", "plan"])
def test_source_option_leaves_only_content_paths_as_arguments(boat: Any, site: Path, verb: str) -> None:
    assert boat.do(verb, "/en", "--source", site).out.partition("ADD")[2] != "" or verb == "plan"
    assert boat.do(verb, "--source", site, "--changed").code == 0
    ran = boat.run(verb, "/en")
    assert (ran.code, "add --source SOURCE, for example --source ./site" in ran.err) == (2, True)
    ran = boat.run(verb)
    assert (ran.code, "no source is given" in ran.err) == (2, True)


def test_source_option_and_first_word_name_the_same_source(boat: Any, site: Path) -> None:
    first = boat.json("publish", site, "/en", "--request-id", "r-1")["packages"][0]
    again = boat.json("publish", "/en", "--source", site, "--request-id", "r-1")["packages"][0]
    assert (again["repeated"], again["package_id"]) == (True, first["package_id"])


def test_interrupted_publish_prints_the_packages_that_are_published(
    boat: Any, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Publisher, *arguments: Any) -> Iterator[Receipt]:
        yield next(publish_all(self, *arguments))
        raise KeyboardInterrupt

    publish_all = Publisher.publish_all
    monkeypatch.setattr(Publisher, "publish_all", interrupted)
    ran = boat.run("publish", "--source", site, "/en", "/index.html", "--each")
    assert (ran.code, ran.lines[0].split()[1:3]) == (130, ["offset", "0"])
    assert "1 package published; whether one more is in the log: mailboat distributions ls\n" in ran.err
