"""Write the hash-locked requirement files from `pyproject.toml`; with `--check`, only say whether they fit it.

Run through `make lock`. Each lock's first lines hold a digest of the dependency tables that it was made from, so that
the check needs no network (`tests/repo/test_requirements.py`). The locks name no index and hold the hashes of every
wheel, so one file serves Linux on x86-64 and ARM64 with Python 3.11 to 3.13.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
FIRST = "dev-all"
"""The lock that decides the versions; the others take the same ones."""
GROUPS = {
    FIRST: ("build", "compile", "dev", "installer", "site"),
    "dev": ("build", "compile", "dev", "installer", "site"),
    "runtime": ("build",),
    "plugin": (),
    "compile": ("build", "compile"),
    "agent": (),
    "operator": (),
    "spark": (),
    "installer": ("installer",),
}
"""Lock → the dependency groups that it holds in addition to the project's own dependencies."""
EXTRAS = {
    FIRST: ("kafka", "operator", "s3", "spark", "tracing"),
    "dev": ("kafka", "operator", "s3", "tracing"),
    "runtime": (),
    "plugin": (),
    "compile": (),
    "agent": ("kafka", "s3", "tracing"),
    "operator": ("kafka", "operator"),
    "spark": ("kafka", "s3", "spark", "tracing"),
    "installer": (),
}
"""Lock → the extras of the project that it holds."""


def tables_digest(pyproject: Path) -> str:
    """Digest of everything in `pyproject.toml` that decides what is locked."""
    document = tomllib.loads(pyproject.read_text())
    project = document["project"]
    tables = [
        project["requires-python"],
        project["dependencies"],
        project["optional-dependencies"],
        document["dependency-groups"],
    ]
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def write(name: str, digest: str) -> None:
    """Resolve one lock, keeping the versions that it holds where they still fit. Raises: CalledProcessError."""
    path = FOLDER / f"{name}.txt"
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "--universal", "--quiet"]
    if name != "installer":  # the only one without the project's own dependencies
        command.append("pyproject.toml")
    command += ["--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate"]
    command += ["-o", str(path)]
    if name != FIRST:
        command += ["--constraint", f"requirements/{FIRST}.txt"]
    for group in GROUPS[name]:
        command += ["--group", f"pyproject.toml:{group}"]
    for extra in EXTRAS[name]:
        command += ["--extra", extra]
    if "--upgrade" in sys.argv:
        command.append("--upgrade")
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "UV_NO_PROGRESS": "1"})
    header = f"# Made by `make lock` from pyproject.toml; do not edit.\n# tables: {digest}\n"
    path.write_text(header + path.read_text())


def stale(digest: str) -> list[str]:
    """Names of the locks that were made from other tables."""
    return [name for name in GROUPS if f"# tables: {digest}\n" not in (FOLDER / f"{name}.txt").read_text()]


def main() -> int:
    """Entry point; returns the exit code."""
    digest = tables_digest(ROOT / "pyproject.toml")
    if "--check" in sys.argv:
        names = stale(digest)
        for name in names:
            print(f"requirements/{name}.txt does not fit pyproject.toml: run `make lock`")
        return 1 if names else 0
    for name in GROUPS:
        write(name, digest)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
