"""Real trees, published by the command line and imported by every kind of target, through both package formats.

Django's documentation comes from its source distribution, CPython's from Debian's package. Both are fetched by name,
once, into a cache; what was fetched is never committed.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mailboat.bulk.build_run import BuildOrder
from mailboat.bulk.cutter import Budget
from mailboat.subscriber.subscriber import Until
from support.bulk_scenario import recipe_for
from support.bulk_scenario import run as run_build
from support.engines import Engine
from support.machine_cache import filled_once

DJANGO = "5.2.7"
PYTHON_DOC = "python3.11-doc"


LONG = pytest.mark.long("trees-and-demos")


def run(*command: str | Path, folder: Path | None = None) -> str:
    """Run a command that must succeed; what it printed."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[:4]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def fetch_django(into: Path) -> None:
    """Django's source distribution, as pip finds it; only its documentation is kept."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*pip, "--no-binary", ":all:", f"Django=={DJANGO}", folder=into)
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        members = [item for item in opened if "/docs/" in item.name]
        opened.extractall(into, members=members, filter="data")
    (into / archive.name.removesuffix(".tar.gz") / "docs").rename(into / "docs")


def fetch_python(into: Path) -> None:
    """CPython's documentation from Debian's package, unpacked and not installed."""
    tried = subprocess.run(["apt-get", "download", "-q", PYTHON_DOC], cwd=into, capture_output=True, check=False)
    if tried.returncode != 0:
        run("apt-get", "update", "-q")
        run("apt-get", "download", "-q", PYTHON_DOC, folder=into)
    (package,) = into.glob("*.deb")
    run("dpkg", "-x", package, "unpacked", folder=into)
    html = into / "unpacked/usr/share/doc/python3.11/html"
    for link in [path for path in html.rglob("*") if path.is_symlink()]:
        link.unlink()  # they lead to scripts of other packages
    html.rename(into / "docs")
    shutil.rmtree(into / "unpacked")


FETCHERS = {"django": fetch_django, "python": fetch_python}


@pytest.fixture(scope="session", params=["django", pytest.param("python", marks=LONG)])
def tree(request: pytest.FixtureRequest) -> Path:
    """A real tree of documentation."""
    version = {"django": DJANGO, "python": PYTHON_DOC}[request.param]
    return filled_once(f"{request.param}-{version}", FETCHERS[request.param]) / "docs"


def differing_files(left: Path, right: Path) -> list[str]:
    """Files that are in one tree only, or differ, without what the target keeps for itself."""
    compared = filecmp.dircmp(left, right, ignore=[".mailboat"])
    found = [*compared.left_only, *compared.right_only, *compared.funny_files]
    found += filecmp.cmpfiles(left, right, compared.common_files, shallow=False)[1]
    for name in compared.common_dirs:
        found += differing_files(left / name, right / name)
    return found


@pytest.mark.parametrize("package_type", ["tree", pytest.param("filevault", marks=LONG)])
def test_a_real_tree_arrives_whole_in_every_kind_of_target(
    tree: Path, tmp_path: Path, boat: Any, package_type: str
) -> None:
    configuration = boat.home / "mailboat.yaml"
    configuration.write_text(configuration.read_text().replace("package_type: tree", f"package_type: {package_type}"))
    targets = {
        f"files:{tmp_path / 'files'}": tmp_path / "files",
        f"generations:{tmp_path / 'generations'}": tmp_path / "generations/current",
        f"sqlite:{tmp_path / 'target.db'}": None,
    }

    boat.do("publish", tree, "--changed")
    for number, target in enumerate(targets):
        boat.do("subscribe", f"reader-{number}", "--into", target, "--until", "caught-up")

    wanted = boat.do("content", "digest", tree, "-o", "name").out
    assert {target: boat.do("content", "digest", target, "-o", "name").out for target in targets} == dict.fromkeys(
        targets, wanted
    )
    # the digest is ours; the files speak for themselves
    assert [differing_files(tree, folder) for folder in targets.values() if folder] == [[], []]


@LONG
def test_a_real_tree_as_one_request_arrives_whole(tree: Path, tmp_path: Path, boat: Any) -> None:
    boat.do("publish", tree, "/")
    boat.do("subscribe", "reader", "--into", f"files:{tmp_path / 'files'}", "--until", "caught-up")
    assert differing_files(tree, tmp_path / "files") == []


@LONG
def test_a_real_tree_as_the_packages_of_a_bulk_build_arrives_whole(tree: Path, tmp_path: Path) -> None:
    with Engine(tmp_path / "home") as engine:
        report = run_build(engine, BuildOrder(recipe_for(engine, tree, budget=Budget(500_000, 100))))
        assert report.published == report.total > 20
        with closing(engine.target("files")) as target:
            engine.subscriber(target).run(Until.CAUGHT_UP)
    assert differing_files(tree, tmp_path / "home/edge-files") == []
