"""Build the archives of the kubectl plug-in, and the manifest by which krew installs it, into `dist/`.

Run through `make dist`, after the wheel. An archive holds the plug-in with all libraries for every supported Python:
those that are the same for all of them once, the compiled ones apart. krew checks an archive by the digest in the
manifest, which is computed here from the archive.
"""

from __future__ import annotations

import filecmp
import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from mailboat import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
REPOSITORY: Final = "https://github.com/mailboat-dev/mailboat"
PYTHONS: Final = ("3.11", "3.12", "3.13")
PLATFORMS: Final[Mapping[str, str]] = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Architecture as Kubernetes calls it → the platform of its wheels."""
LAUNCHER: Final = '''#!/usr/bin/env python3
"""kubectl-mailboat and, called by that name, kubectl_complete-mailboat, with the libraries beside this file."""

import sys
from pathlib import Path

here = Path(__file__).resolve().parent / "lib"
version = "%d.%d" % sys.version_info[:2]
if not (here / version).is_dir():
    known = ", ".join(sorted(entry.name for entry in here.iterdir() if entry.name != "common"))
    sys.exit(f"kubectl mailboat needs Python {known} as python3 in PATH; this one is {version}")
sys.path[:0] = [str(here / version), str(here / "common")]
if Path(sys.argv[0]).name.startswith("kubectl_complete"):
    from mailboat.cli.kubectl_completion import run
else:
    from mailboat.cli.kubectl import run
run()
'''


def archive_name(version: str, architecture: str) -> str:
    """The file name of an archive."""
    return f"kubectl-mailboat_v{version}_linux_{architecture}.tar.gz"


def krew_manifest(version: str, archives: Mapping[str, Path]) -> dict[str, Any]:
    """The manifest for krew; `archives` by architecture."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "mailboat"},
        "spec": {
            "version": f"v{version}",
            "homepage": REPOSITORY,
            "shortDescription": "Publish content and watch subscribers of Mailboat",
            "description": (
                "Runs commands of mailboat (status, publish, queues, errors, …) on a Publisher's agent, through a\n"
                "forwarded port. Reads the Publisher and its token with the rights of the caller.\n"
            ),
            "caveats": (
                f"Needs Python {PYTHONS[0]} to {PYTHONS[-1]} as python3 in PATH.\n"
                "Shell completion (kubectl 1.26 and newer):\n"
                "  ln -s kubectl-mailboat ${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-mailboat\n"
            ),
            "platforms": [_platform(version, name, file) for name, file in sorted(archives.items())],
        },
    }


def _platform(version: str, architecture: str, archive: Path) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
        "uri": f"{REPOSITORY}/releases/download/v{version}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-mailboat",
    }


def install(folder: Path, python: str, platform: str, wheel: Path) -> None:
    """Install the plug-in for a Python and a platform, by the hashes of its lock. Raises: CalledProcessError."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--link-mode",
        "copy",
    ]
    command += ["--target", str(folder), "--python-version", python, "--python-platform", platform]
    command += ["--only-binary", ":all:"]
    subprocess.run([*command, "--require-hashes", "-r", str(ROOT / "requirements/plugin.txt")], check=True)
    subprocess.run([*command, str(wheel)], check=True)
    # RECORD has digests of the others, which hold times and places of this installation
    names = ("RECORD", "direct_url.json", "uv_cache.json")
    made_here = [path for name in names for path in folder.glob(f"*.dist-info/{name}")]
    for unused in (folder / "bin", folder / ".lock", *made_here):
        shutil.rmtree(unused) if unused.is_dir() else unused.unlink(missing_ok=True)


def share(folders: Iterable[Path], common: Path) -> None:
    """Move what is the same in all folders into `common`: whole packages, as Python finds no package in two places."""
    first, *others = folders
    common.mkdir()
    for entry in sorted(first.iterdir()):
        if all(_is_same(entry, other / entry.name) for other in others):
            shutil.move(entry, common / entry.name)
            for other in others:
                shutil.rmtree(other / entry.name) if (other / entry.name).is_dir() else (other / entry.name).unlink()


def _is_same(one: Path, other: Path) -> bool:
    if not (one.is_dir() and other.is_dir()):
        return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)
    names = {entry.name for entry in one.iterdir()}
    has_same_names = names == {entry.name for entry in other.iterdir()}
    return has_same_names and all(_is_same(one / name, other / name) for name in names)


def pack(folder: Path, archive: Path) -> None:
    """Write an archive whose bytes follow from the folder's content: no times, no owners, sorted."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,  # with a name the header would hold it
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                member = tar.gettarinfo(path, str(path.relative_to(folder)))
                member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
                member.mode = 0o755 if path.name == "kubectl-mailboat" else 0o644
                with path.open("rb") as content:
                    tar.addfile(member, content)


def main() -> int:
    """Build everything; the exit code."""
    (wheel,) = DIST.glob(f"mailboat-{__version__}-*.whl")
    archives = {}
    for architecture, platform in PLATFORMS.items():
        folder = ROOT / "build" / "plugin" / architecture
        shutil.rmtree(folder, ignore_errors=True)
        for python in PYTHONS:
            install(folder / "lib" / python, python, platform, wheel)
        share([folder / "lib" / python for python in PYTHONS], folder / "lib" / "common")
        (folder / "kubectl-mailboat").write_text(LAUNCHER)
        shutil.copy(ROOT / "LICENSE", folder)
        archives[architecture] = DIST / archive_name(__version__, architecture)
        pack(folder, archives[architecture])
        print(f"dist/{archives[architecture].name} written")
    text = yaml.safe_dump(krew_manifest(__version__, archives), sort_keys=False)
    (DIST / "mailboat.yaml").write_text(text)
    print("dist/mailboat.yaml written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
