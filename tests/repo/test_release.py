"""Workflows call what the repository has and pin what they take from others; releases fit the repository."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_plugin
import pytest
import release
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FOLDERS = ("agent_image/", "operator/", "tools/", "helm/", "docs/", "requirements/", "tests/", ".ci/")
CHART = {"version": "1.2.3", "appVersion": "1.2.3"}
CHANGELOG = "## [Unreleased]\n\n## [1.2.3] - 2026-01-01\n\n### Added\n\n- A thing.\n\n## [1.2.2]\n\n- Another.\n"


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    """The steps of all jobs."""
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        yield from job["steps"]


def commands(workflow: Path) -> str:
    """All scripts of a workflow."""
    return "\n".join(step["run"] for step in steps(workflow) if "run" in step)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_make_targets_and_files_that_exist(workflow: Path) -> None:
    script = commands(workflow)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*re.findall(r"\bmake ([a-z-]+)", script)} <= {*targets}
    words = re.findall(r"[\w./-]+", script + workflow.read_text().split("\njobs:")[1])
    files = {word for word in words if word.startswith(FOLDERS)}
    assert files
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_start_without_rights_and_pin_actions_by_commit(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}
    lines = [line.strip() for line in workflow.read_text().splitlines() if "uses:" in line]
    pinned = re.compile(r"- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_the_images_of_a_release_have_arguments_and_targets_of_the_dockerfiles() -> None:
    bake = (ROOT / "docker-bake.hcl").read_text()
    targets = dict(re.findall(r'^target "([\w-]+)" {$(.*?)^}$', bake, re.DOTALL | re.MULTILINE))
    shared = targets.pop("image")
    assert {"type=sbom", "type=provenance,mode=max"} == {*re.findall(r'"(type=[^"]+)"', shared)}
    arguments = re.findall(r"\b([A-Z]+) = ", re.findall(r"args += {(.*)}", shared)[0])
    assert arguments == ["VERSION", "REVISION"]
    assert targets.keys() == {"mailboat", "mailboat-spark", "mailboat-operator"}
    for name, target in targets.items():
        assert 'inherits   = ["image"]' in target
        assert f'tags       = ["${{REGISTRY}}/{name}:${{VERSION}}"]' in target
        dockerfile = (ROOT / re.findall(r'dockerfile = "(.*)"', target)[0]).read_text()
        for stage in re.findall(r'target += "(.*)"', target):
            assert re.search(rf"^FROM .* AS {stage}$", dockerfile, re.MULTILINE)
        for argument in arguments:
            assert re.search(rf"^ARG {argument}\b", dockerfile, re.MULTILINE)
    assert re.search(r"docker buildx bake --push (?!.*--(file|set))", commands(ROOT / ".github/workflows/release.yml"))


def foreign_images(dockerfile: str) -> list[str]:
    """What a Dockerfile is built from and does not make itself; arguments stand for their defaults."""
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE))
    found = re.findall(r"^FROM (?:--\S+ )?(\S+)(?: AS (\S+))?$", dockerfile, re.MULTILINE)
    copied = re.findall(r"^COPY --from=(\S+)", dockerfile, re.MULTILINE)
    named = [re.sub(r"\$\{(\w+)\}", lambda argument: defaults[argument[1]], image) for image, _ in found]
    own = {stage for _, stage in found}
    return [image for image in (*named, *copied) if image not in own]


@pytest.mark.parametrize("folder", [".devcontainer", "agent_image", "operator"])
def test_dockerfiles_name_base_images_by_digest(folder: str) -> None:
    images = foreign_images((ROOT / folder / "Dockerfile").read_text())
    # the operator's is made from the agent's image, which the same release builds and names by digest
    expected = [] if folder == "operator" else images
    pinned = [image for image in images if re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)]
    assert images
    assert pinned == expected
    assert folder != "operator" or {*images} == {"mailboat"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_containers_of_workflows_are_named_by_digest(workflow: Path) -> None:
    images = re.findall(r"^ +image: (\S+)$", workflow.read_text(), re.MULTILINE)
    assert [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []


def test_base_images_and_actions_are_kept_pinned_by_renovate() -> None:
    document = json.loads((ROOT / ".github/renovate.json").read_text())
    assert {"docker:pinDigests", "helpers:pinGitHubActionDigests"} <= {*document["extends"]}
    assert {"dockerfile", "github-actions"} <= {*document["enabledManagers"]}


def test_a_published_chart_names_the_images_of_its_release() -> None:
    (expression,) = re.findall(r"s\|(\^  repository: mailboat)\|", commands(ROOT / ".github/workflows/release.yml"))
    values = (ROOT / "helm/mailboat/values.yaml").read_text()
    assert len(re.findall(expression, values, re.MULTILINE)) == len(re.findall(r"repository:", values)) == 3


def test_a_release_has_the_version_of_its_tag_everywhere() -> None:
    assert list(release.problems("v1.2.3", "1.2.3", CHART, CHANGELOG)) == []
    assert list(release.problems("v1.2.4", "1.2.4", {**CHART, "appVersion": "1.2.4"}, CHANGELOG)) == [
        "helm/mailboat/Chart.yaml has version 1.2.3, not 1.2.4",
        "CHANGELOG.md has no section [1.2.4] with a text",
    ]
    assert "is not v followed by a version" in next(iter(release.problems("1.2.3", "1.2.3", CHART, CHANGELOG)))
    assert len(list(release.problems("v1.2.2", "1.2.3", CHART, CHANGELOG))) == 3


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    assert release.notes("1.2.3", CHANGELOG) == "### Added\n\n- A thing."
    assert release.notes("1.2", CHANGELOG) == ""


def test_the_krew_manifest_has_the_digests_of_the_archives(tmp_path: Path) -> None:
    archives = {name: tmp_path / build_plugin.archive_name("1.2.3", name) for name in build_plugin.PLATFORMS}
    for name, archive in archives.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kubectl-mailboat").write_text(build_plugin.LAUNCHER + name)
        build_plugin.pack(folder, archive)
    manifest = build_plugin.krew_manifest("1.2.3", archives)
    spec = manifest["spec"]
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (manifest["kind"], manifest["metadata"]["name"], spec["version"]) == ("Plugin", "mailboat", "v1.2.3")
    assert "\n" not in spec["shortDescription"]
    assert len(spec["shortDescription"]) <= 50  # krew's guide for names and descriptions
    found = {platform["selector"]["matchLabels"]["arch"]: platform for platform in spec["platforms"]}
    assert found.keys() == {"amd64", "arm64"}
    for name, one in found.items():
        assert one["selector"]["matchLabels"]["os"] == "linux"
        assert one["sha256"] == hashlib.sha256(archives[name].read_bytes()).hexdigest()
        assert one["uri"] == f"{build_plugin.REPOSITORY}/releases/download/v1.2.3/{archives[name].name}"
        assert one["bin"] == "kubectl-mailboat"


def test_an_archive_of_the_same_files_has_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "kubectl-mailboat").write_text("x")
    build_plugin.pack(folder, tmp_path / "one.tar.gz")
    (folder / "kubectl-mailboat").touch()
    build_plugin.pack(folder, tmp_path / "two.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_packages_that_are_the_same_for_all_pythons_are_kept_once(tmp_path: Path) -> None:
    for python in ("3.11", "3.12"):
        (tmp_path / python / "same").mkdir(parents=True)
        (tmp_path / python / "same" / "a.py").write_text("a")
        (tmp_path / python / "compiled").mkdir()
        (tmp_path / python / "compiled" / "a.py").write_text(python)
    build_plugin.share([tmp_path / "3.11", tmp_path / "3.12"], tmp_path / "common")
    assert [path.name for path in (tmp_path / "common").iterdir()] == ["same"]
    assert [path.name for path in (tmp_path / "3.12").iterdir()] == ["compiled"]


def test_the_devcontainer_has_what_the_checks_install() -> None:
    wanted = re.findall(r"^require \S+ (\S+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    installed = (ROOT / ".devcontainer/Dockerfile").read_text().split()
    assert len(wanted) > 5
    assert [package for package in wanted if package not in installed] == []
    built_by = re.search(r"^go (1\.\d+)", (ROOT / "tests/kind/modules/kubebox/go.mod").read_text(), re.MULTILINE)
    assert built_by
    assert any(word.startswith(f"golang:{built_by[1]}-") for word in installed)
