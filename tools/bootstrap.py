"""Make `.venv` hold exactly what a task needs: `bootstrap.py runtime`, `bootstrap.py dev` or `bootstrap.py dev-all`.

The first step of every make target. It runs on the machine's own Python with the standard library alone, and installs
with uv, which it installs by hash into the cache (`requirements/installer.txt`). Packages are named with hashes in
`requirements/*.txt`. The package index is the one that pip is configured for.

Without a terminal it prints a line with the seconds of each step; in a terminal uv shows its own progress.

A stamp with the name of the lock, and the digest of the lock and of `pyproject.toml`, makes a repeated run instant. A
file lock serializes two runs in one checkout.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".installed"
OLDEST = (3, 11)
INCLUDES = {"runtime": ("runtime",), "dev": ("dev", "runtime"), "dev-all": ("dev-all", "dev", "runtime")}
"""Lock → the locks whose packages it contains."""


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    if len(arguments) != 1 or arguments[0] not in INCLUDES:
        return _refuse(f"usage: bootstrap.py {'|'.join(INCLUDES)}")
    if sys.version_info < OLDEST:
        return _refuse(f"Python {'.'.join(map(str, OLDEST))} or newer is required: run `make PYTHON=python3.11 …`")
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return install(arguments[0])


def install(name: str) -> int:
    """Bring `.venv` up to the lock of that name, unless its stamp says that it is."""
    fresh = not _is_usable(VENV)
    installed = "" if fresh or not STAMP.exists() else STAMP.read_text()
    known, _, _ = installed.partition(" ")
    if name in INCLUDES.get(known, ()):
        name = known  # Spark stays where it was asked for once: generated pages lack its errors without it
    if installed == _wanted(name):
        return 0
    started = time.monotonic()
    try:
        print(f"Installing requirements/{name}.txt into .venv", flush=True)
        with step("uv, the installer"):
            _uv()
        if fresh:
            with step(f".venv for Python {sys.version.split()[0]}"):
                shutil.rmtree(VENV, ignore_errors=True)
                run_uv(["venv", "--quiet", "--python", sys.executable, str(VENV)])
        STAMP.unlink(missing_ok=True)
        python = VENV / "bin" / "python"
        with step(f"the packages of requirements/{name}.txt"):
            sync(python, f"requirements/{name}.txt")
        with step("Mailboat, editable"):
            options = ["--quiet", "--no-deps", "--no-build-isolation"]
            run_uv(["pip", "install", "--python", str(python), *options, "--editable", "."])
        with step("old files of uv's cache removed"):
            # uv keeps each revision of an unpacked source distribution, and PySpark's takes 900 MB
            run_uv(["cache", "prune", "--quiet"])
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:3]))
        return _refuse(
            f"`{command} …` failed with exit code {error.returncode}; its message is above. "
            "If Python's venv module is missing: apt-get install python3-venv (Debian)"
        )
    STAMP.write_text(_wanted(name))
    print(f"Installed in {time.monotonic() - started:.0f} s", flush=True)
    return 0


@contextlib.contextmanager
def step(
    name: str, into: TextIO | None = None, monotonic_seconds: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Print the seconds of a step that was done, unless the output is a terminal."""
    output = sys.stdout if into is None else into
    started = monotonic_seconds()
    yield
    if not output.isatty():
        print(f"{monotonic_seconds() - started:6.1f} s  {name}", file=output, flush=True)


def sync(python: Path, lock: str) -> None:
    """Make the environment of that interpreter hold exactly the packages of a lock. Raises: CalledProcessError.

    From the cache alone if it has them all: uv asks the index again whether a source distribution has changed, and
    some indexes' answers make it build PySpark again, which takes 16 seconds. The hashes of the lock hold either way.
    """
    words = ["pip", "sync", "--python", str(python), "--require-hashes", lock]
    try:
        run_uv([*words, "--offline", "--quiet", "--quiet"])
    except subprocess.CalledProcessError:
        run_uv(words)


def run_uv(words: list[str]) -> None:
    """Run uv in the project's folder, with the index that pip is configured for. Raises: CalledProcessError."""
    _run([_uv(), *words])


def _uv() -> str:
    """Path of uv, in a virtual environment of the cache that is keyed by its lock. Raises: CalledProcessError."""
    lock = ROOT / "requirements" / "installer.txt"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboat"
    folder = cache / f"uv-{hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]}"
    if not (folder / "bin" / "uv").exists():
        cache.mkdir(parents=True, exist_ok=True)
        draft = tempfile.mkdtemp(dir=cache, prefix=".uv-")
        try:
            _run([sys.executable, "-m", "venv", draft])
            _run([f"{draft}/bin/pip", "install", "--quiet", "--require-hashes", "-r", str(lock)])
            # renamed when complete: an interrupted run leaves nothing under the final name
            with contextlib.suppress(OSError):  # another checkout was faster
                os.rename(draft, folder)  # noqa: PTH104
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return str(folder / "bin" / "uv")


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True, env={**_index_settings(), **os.environ})


def _index_settings() -> dict[str, str]:
    """What uv needs to use the index and the trust store that pip uses: uv does not read pip's configuration."""
    settings = {"UV_SYSTEM_CERTS": "true"}
    for key, variable in (("global.index-url", "UV_DEFAULT_INDEX"), ("global.extra-index-url", "UV_INDEX")):
        asked = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", key], capture_output=True, text=True, check=False
        )
        value = os.environ.get(f"PIP_{key.partition('.')[2].replace('-', '_').upper()}") or asked.stdout.strip()
        if value:
            settings[variable] = " ".join(value.split())
    return settings


def _is_usable(venv: Path) -> bool:
    python = venv / "bin" / "python"
    if not python.exists():
        return False
    asked = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False)
    return asked.returncode == 0 and asked.stdout.decode().strip() == str(sys.version_info[:2])


def _wanted(name: str) -> str:
    total = hashlib.sha256(name.encode())
    for path in (ROOT / "requirements" / f"{name}.txt", ROOT / "pyproject.toml"):
        total.update(path.read_bytes())
    return f"{name} {total.hexdigest()}"


def _refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
