"""Make the package with its compiled modules, once for each content of the sources, and print the folder of it.

For the benchmarks and for the tests that hold for compiled modules, too: with the folder in PYTHONPATH it is found
before the checkout. Built as any wheel is, by the hook `tools/compiled_modules.py`; `~/.cache/mailboat/compiled` keeps
the newest few.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = 4
"""Builds that are kept, the newest."""


def compiled_package() -> Path:
    """The folder, built unless it is there. Raises: CalledProcessError, after the words of pip and mypyc."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboat" / "compiled"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / _digest()
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _check_machine()
            print("Compiling the modules of the hot paths: minutes, once", file=sys.stderr, flush=True)
            _build(folder)
        os.utime(folder)
        for old in sorted((one for one in cache.iterdir() if one.is_dir()), key=_age)[KEPT:]:
            shutil.rmtree(old)
    return folder


def _check_machine() -> None:
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which("gcc") is None or not headers.exists():
        raise SystemExit(
            f"compiling needs gcc and Python's headers ({headers}): on Debian, apt-get install gcc python3-dev"
        )


def _digest() -> str:
    total = hashlib.sha256(sysconfig.get_config_var("EXT_SUFFIX").encode())
    files = [ROOT / "pyproject.toml", ROOT / "tools" / "compiled_modules.py", ROOT / "requirements" / "dev.txt"]
    for file in (*files, *sorted((ROOT / "agent_image" / "mailboat").rglob("*.py*"))):
        if file.suffix in {".toml", ".txt", ".py", ".pyi"}:
            total.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return total.hexdigest()[:24]


def _age(folder: Path) -> float:
    return -folder.stat().st_mtime


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as draft:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        environment = {**os.environ, "HATCH_BUILD_HOOKS_ENABLE": "true"}
        subprocess.run([*command, "--wheel-dir", draft, str(ROOT)], env=environment, stdout=sys.stderr, check=True)
        (wheel,) = Path(draft).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(draft) / "package")
        _check(Path(draft) / "package")
        (Path(draft) / "package").rename(folder)


def _check(package: Path) -> None:
    """Every module that should be compiled is: else Python would silently take the source. Raises: SystemExit."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    missing = [one for one in hook["custom"]["modules"] if not (package / one).with_suffix(suffix).exists()]
    if missing:
        raise SystemExit(f"the wheel has no extension for {', '.join(missing)}")


if __name__ == "__main__":
    print(compiled_package())
