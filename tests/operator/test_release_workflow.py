"""The release workflow, step by step, from a clone with the version of the next release.

Each of its scripts runs as on GitHub, with a registry of this machine. A BuildKit of this machine builds the images and
pushes them with their SBOM and provenance. What would log in or upload (docker, helm, gh, git, uv) is a stand-in that
records its arguments; the chart is pushed to the registry afterwards, and krew installs the plug-in. Not made here are
signatures, and images for arm64.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from buildkit import BuildKit, buildkit, write_override
from mailboat import __version__
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {
    "mailboat": ("agent",),
    "mailboat-spark": ("agent", "spark"),
    "mailboat-operator": ("agent", "operator"),
}
"""What is installed in each image."""
pytestmark = [pytest.mark.long("release"), pytest.mark.timeout(1800)]

STAND_IN = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
name, words = Path(sys.argv[0]).name, sys.argv[1:]
real = os.environ.get("REAL_" + name.upper())
if real and words[:1] not in (["login"], ["push"], ["registry"], ["publish"]):
    os.execv(real, words if name == "docker" else [name, *words])  # buildx is a program of its own here
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps([name, *words]) + "\\n")
"""


@dataclass
class Release:
    """A clone in which the steps ran.

    Attributes:
        folder: The clone.
        recorded: What stand-ins were called with, in order.
        outputs: What the step of the images gives later steps.
        registry: Where its images are, as the workflow names it.
        bases: The base images that it was given, by the argument that names them.
    """

    folder: Path
    registry: str
    bases: dict[str, str]
    recorded: list[list[str]] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        """A file of the release."""
        return self.folder / "dist" / name

    def calls(self, *words: str) -> list[list[str]]:
        """The recorded calls that begin so."""
        return [call for call in self.recorded if call[: len(words)] == [*words]]

    def run(self, *command: str | Path, folder: Path | None = None) -> str:
        """What a command prints."""
        done = subprocess.run(
            command, cwd=folder or self.folder, env=_without_checkout(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def _without_checkout() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


def _variables(path: Path) -> dict[str, str]:
    """What scripts left for later steps."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry: the server side of OCI's distribution specification."""
    store = tmp_path_factory.mktemp("registry")
    command = [_program("crane"), "registry", "serve", "--address", "127.0.0.1:0", "--disk", str(store)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = "serving on port "
            port = next(line for line in server.stderr if said in line).partition(said)[2].strip()
            threading.Thread(target=server.stderr.read, daemon=True).start()
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildKit]:
    with buildkit(tmp_path_factory.mktemp("buildkit")) as running:
        yield running


@pytest.fixture(scope="module")
def release(helm: str, registry: str, builder: BuildKit, tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release")
    clone = folder / "clone"
    _clone_checkout(clone)
    made = Release(clone, f"{registry}/mailboat-dev", write_override(builder, registry, clone))
    changelog = made.folder / "CHANGELOG.md"
    text = changelog.read_text()
    assert "## [Unreleased]\n" in text
    changelog.write_text(text.replace("## [Unreleased]\n", f"## [Unreleased]\n\n## [{__version__}] - 2026-01-01\n", 1))
    programs = folder / "programs"
    programs.mkdir()
    for name in ("docker", "git", "helm", "gh"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    files = {name: folder / name.lower() for name in ("RECORD", "GITHUB_ENV", "GITHUB_OUTPUT")}
    for path in files.values():
        path.touch()
    environment = {
        **_without_checkout(),
        **builder.environment,
        **{name: str(path) for name, path in files.items()},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "REGISTRY": made.registry,
        "VERSION_TAG": f"v{__version__}",
        "GITHUB_SHA": made.run("git", "rev-parse", "HEAD").strip(),
        "GITHUB_ACTOR": "somebody",
        "TOKEN": "a-token",
        "GITHUB_REPOSITORY": "mailboat-dev/mailboat",
        "REAL_HELM": helm,
        "REAL_DOCKER": str(builder.client),
        "REAL_GIT": str(shutil.which("git")),
    }
    for number, script in enumerate(_scripts()):
        path = folder / f"step-{number}"
        path.write_text(script)
        done = subprocess.run(
            ["bash", "-e", str(path)], cwd=made.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        environment |= _variables(files["GITHUB_ENV"])
        if number == 0:  # the environment that the first step made: its program that uploads
            environment["REAL_UV"] = str(_replace(made.folder / ".venv/bin/uv"))
    made.recorded = [json.loads(line) for line in files["RECORD"].read_text().splitlines()]
    made.outputs = _variables(files["GITHUB_OUTPUT"])
    return made


def _clone_checkout(into: Path) -> None:
    """Clone with the files of the checkout, committed or not: by these the slice is recorded as passed."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(into)], check=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
        else:
            (into / name).unlink(missing_ok=True)


def _scripts() -> Iterator[str]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    return (step["run"] for step in workflow["jobs"]["release"]["steps"] if "run" in step)


def _replace(program: Path) -> Path:
    """Put the stand-in at the place of a program; where the program is now."""
    real = program.with_name(f"real-{program.name}")
    program.rename(real)
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return real


def test_release_has_all_files_and_uploads_them(release: Release) -> None:
    plugins = [f"kubectl-mailboat_v{__version__}_linux_{item}.tar.gz" for item in ("amd64", "arm64")]
    packages = [f"mailboat-{__version__}.tar.gz", f"mailboat-{__version__}-py3-none-any.whl"]
    chart = f"mailboat-{__version__}.tgz"
    expected = {*plugins, *packages, chart, "mailboat.yaml"}
    assert {path.name for path in (release.folder / "dist").iterdir()} == expected
    [published] = release.calls("gh", "release", "create")
    assert {word for word in published if word.startswith("dist/")} == {f"dist/{name}" for name in expected}
    notes = (release.folder / published[published.index("--notes-file") + 1]).read_text()
    assert notes.startswith("### ")
    [uploaded] = release.calls("uv", "publish")
    assert uploaded[-2:] == [f"dist/{name}" for name in packages]
    assert release.recorded[-1] == uploaded, "the package index takes no version twice, so it comes last"


def test_documentation_site_is_published_with_the_page_that_alerts_link_to(release: Release) -> None:
    pushed = ["git", "push", "--force", "https://github.com/mailboat-dev/mailboat.git", "gh-pages"]
    assert release.calls("git", "push") == [pushed]
    site = release.folder / "build/site"
    assert release.run("git", "log", "--format=%s", folder=site).split("\n")[0] == f"Documentation of v{__version__}"
    assert 'id="mailboatagentdown"' in release.run("git", "show", "HEAD:alerts.html", folder=site)


@dataclass(frozen=True)
class Published:
    """An image in the registry, as clients of it see it.

    Attributes:
        reference: Its name with the version.
        index: The document that its digest names.
    """

    reference: str
    index: dict[str, Any]

    @property
    def manifest(self) -> dict[str, Any]:
        """The entry of the image for the architecture of this machine."""
        [entry] = [
            item for item in self.index["manifests"] if item["platform"] == {"os": "linux", "architecture": "amd64"}
        ]
        return entry

    def crane(self, verb: str, digest: str) -> Any:
        """What crane prints of one of its parts."""
        command = [_program("crane"), verb, f"{self.reference.rpartition(':')[0]}@{digest}"]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    def statement(self, kind: str) -> dict[str, Any]:
        """The in-toto statement about this image whose predicate is of a kind."""
        [attestations] = [
            item
            for item in self.index["manifests"]
            if item.get("annotations", {}).get("vnd.docker.reference.digest") == self.manifest["digest"]
        ]
        assert attestations["annotations"]["vnd.docker.reference.type"] == "attestation-manifest"
        layers = self.crane("manifest", attestations["digest"])["layers"]
        assert {layer["mediaType"] for layer in layers} == {"application/vnd.in-toto+json"}
        [found] = [item for item in layers if kind in item["annotations"]["in-toto.io/predicate-type"]]
        statement: dict[str, Any] = self.crane("blob", found["digest"])
        assert f"sha256:{statement['subject'][0]['digest']['sha256']}" == self.manifest["digest"]
        return statement


def _published(release: Release, name: str) -> Published:
    reference = f"{release.registry}/{name}:{__version__}"
    return Published(reference, json.loads(release.run(_program("crane"), "manifest", reference)))


@pytest.mark.parametrize("name", LOCKS)
def test_image_is_in_the_registry_by_the_digest_that_is_signed(release: Release, name: str) -> None:
    image = _published(release, name)
    assert release.run(_program("crane"), "digest", image.reference).strip() == release.outputs[name]
    assert release.outputs.keys() == LOCKS.keys()
    labels = image.crane("config", image.manifest["digest"])["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.revision"] == release.run("git", "rev-parse", "HEAD").strip()


@pytest.mark.parametrize("name", LOCKS)
def test_sbom_of_an_image_lists_mailboat_and_all_packages_of_its_locks(release: Release, name: str) -> None:
    statement = _published(release, name).statement("spdx")
    packages = statement["predicate"]["packages"]
    found = {(canonicalize_name(package["name"]), package.get("versionInfo")) for package in packages}
    locks = "".join((ROOT / f"requirements/{lock}.txt").read_text() for lock in LOCKS[name])
    lines = [Requirement(line) for line in re.findall(r"^(\w.*==.*) \\$", locks, re.MULTILINE)]
    installed = [line for line in lines if line.marker is None or line.marker.evaluate()]
    locked = {(canonicalize_name(line.name), str(line.specifier).removeprefix("==")) for line in installed}
    assert len(locked) > 10
    assert {("mailboat", __version__), *locked} - found == set()


@pytest.mark.parametrize("name", LOCKS)
def test_provenance_of_an_image_names_base_images_and_arguments(release: Release, name: str) -> None:
    definition = _published(release, name).statement("slsa.dev/provenance")["predicate"]["buildDefinition"]
    materials = {f"sha256:{material['digest']['sha256']}" for material in definition["resolvedDependencies"]}
    assert {image.partition("@")[2] for image in release.bases.values()} <= materials
    arguments = definition["externalParameters"]["request"]["args"]
    revision = release.run("git", "rev-parse", "HEAD").strip()
    expected = {**release.bases, "VERSION": __version__, "REVISION": revision}
    assert {argument: arguments[f"build-arg:{argument}"] for argument in expected} == expected


def test_operator_image_is_the_agent_image_and_a_layer(release: Release) -> None:
    agent, operator = (
        _published(release, name).crane("manifest", _published(release, name).manifest["digest"])["layers"]
        for name in ("mailboat", "mailboat-operator")
    )
    assert operator[: len(agent)] == agent
    assert len(operator) > len(agent)


@pytest.mark.parametrize("name", LOCKS)
def test_published_image_is_pulled_and_runs(release: Release, builder: BuildKit, name: str, tmp_path: Path) -> None:
    script = f"FROM {release.registry}/{name}@{release.outputs[name]} AS image\nRUN mailboat --version > /tmp/version\n"
    (tmp_path / "Dockerfile").write_text(f"{script}FROM scratch\nCOPY --from=image /tmp/version /\n")
    builder.run("build", "--quiet", f"--output=type=local,dest={tmp_path}/files", tmp_path)
    assert (tmp_path / "files/version").read_text().split()[-1] == __version__


def test_chart_is_valid_and_names_the_published_images(release: Release, helm: str) -> None:
    chart = release.file(f"mailboat-{__version__}.tgz")
    assert release.calls("helm", "push") == [
        ["helm", "push", f"dist/{chart.name}", f"oci://{release.registry}/charts"],
    ]
    release.run(helm, "lint", "--strict", chart)
    rendered = release.run(helm, "template", "mailboat", chart, "--namespace", "system")
    assert {*re.findall(rf"{re.escape(release.registry)}/[\w./-]+:[\w.]+", rendered)} == {
        f"{release.registry}/{name}:{__version__}" for name in LOCKS
    }


def test_wheel_of_the_sdist_is_the_wheel_and_runs(release: Release, tmp_path: Path) -> None:
    with tarfile.open(release.file(f"mailboat-{__version__}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"mailboat-{__version__}"
    python = release.folder / ".venv/bin/python"
    release.run(python, "-m", "hatchling", "build", "-t", "wheel", folder=unpacked)
    name = f"mailboat-{__version__}-py3-none-any.whl"
    assert _contents(unpacked / "dist" / name) == _contents(release.file(name))
    place = tmp_path / "installed"
    uv = release.folder / ".venv/bin/real-uv"
    release.run(uv, "venv", "--quiet", "--python", python, place)
    release.run(uv, "pip", "install", "--quiet", "--python", place / "bin/python", release.file(name))
    assert release.run(place / "bin/mailboat", "--version", folder=tmp_path).split()[-1] == __version__


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_plugin_of_the_krew_manifest_has_its_digest_and_runs(release: Release, tmp_path: Path) -> None:
    manifest: Any = yaml.safe_load(release.file("mailboat.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{__version__}"
    for platform in manifest["spec"]["platforms"]:
        archive = release.file(platform["uri"].rpartition("/")[2])
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with tarfile.open(release.file(f"kubectl-mailboat_v{__version__}_linux_amd64.tar.gz")) as opened:
        opened.extractall(tmp_path, filter="data")
    # without the libraries of this environment: the archive has its own
    assert "usage: kubectl mailboat" in release.run(sys.executable, "-S", tmp_path / "kubectl-mailboat", "--help")


@cache
def _program(name: str) -> str:
    command = [sys.executable, str(ROOT / "tests/kind/builds.py"), name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_workflows_have_no_mistake_that_actionlint_finds() -> None:
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert "release.yml" in {path.name for path in workflows}
    command = [_program("actionlint"), "-no-color", *map(str, workflows)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_chart_is_pushed_to_a_registry_as_an_oci_artifact(release: Release, helm: str, tmp_path: Path) -> None:
    [[_, _, chart, charts]] = release.calls("helm", "push")
    release.run(helm, "push", chart, charts, "--plain-http")
    name = f"{charts}/mailboat"
    release.run(helm, "pull", name, "--version", __version__, "--plain-http", "--destination", tmp_path)
    manifest = json.loads(release.run(_program("crane"), "manifest", f"{name[6:]}:{__version__}"))
    command = [helm, "template", "mailboat", name, "--version", __version__, "--plain-http"]
    assert f"{release.registry}/mailboat-operator:{__version__}" in release.run(*command)
    assert (tmp_path / Path(chart).name).read_bytes() == (release.folder / chart).read_bytes()
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert [layer["mediaType"] for layer in manifest["layers"]] == [
        "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    ]


def test_krew_installs_the_plugin_of_the_manifest(release: Release, tmp_path: Path) -> None:
    manifest = release.file("mailboat.yaml")
    archive = release.file(f"kubectl-mailboat_v{__version__}_linux_amd64.tar.gz")
    command = [_program("krew"), "install", f"--manifest={manifest}", f"--archive={archive}"]
    environment = {**_without_checkout(), "KREW_ROOT": str(tmp_path), "KREW_NO_UPGRADE_CHECK": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Installed plugin: mailboat" in done.stderr
    assert "usage: kubectl mailboat" in release.run(tmp_path / "bin/kubectl-mailboat", "--help")
