"""Make `.venv` hold exactly what a task needs: `bootstrap.py runtime` or `bootstrap.py dev`.

Runs on the machine's own Python with nothing but the standard library, as the first step of every make target. What is
installed is named with hashes in `requirements/*.txt`; where it comes from is the business of pip's own configuration.
A stamp with the digest of the lock and of `pyproject.toml` makes it instant when nothing changed, and a file lock makes
two tasks started at once wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)
LOCKS = {"runtime": ("runtime",), "dev": ("dev", "runtime")}
"""What is asked for → the stamps that it satisfies: the development lock holds everything that the other one does."""


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    if len(arguments) != 1 or arguments[0] not in LOCKS:
        return _refuse("usage: bootstrap.py runtime|dev")
    if sys.version_info < OLDEST:
        return _refuse(
            f"Python {'.'.join(map(str, OLDEST))} or newer is needed; name it with `make PYTHON=python3.11 …`"
        )
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return install(arguments[0])


def install(name: str) -> int:
    """Bring the virtual environment up to the lock of that name, unless its stamp says that it is."""
    if not _is_usable(VENV):
        shutil.rmtree(VENV, ignore_errors=True)
        print("Making .venv", flush=True)
        if subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False).returncode != 0:
            return _refuse("Python's venv module is not complete; on Debian: apt-get install python3-venv")
    if _stamp(name).exists() and _stamp(name).read_text() == _wanted(name):
        return 0
    print(f"Installing requirements/{name}.txt into .venv", flush=True)
    for arguments in (
        ["--require-hashes", "-r", f"requirements/{name}.txt"],
        ["--no-deps", "--no-build-isolation", "--editable", "."],
    ):
        done = subprocess.run([VENV / "bin" / "pip", "install", "--quiet", *arguments], cwd=ROOT, check=False)
        if done.returncode != 0:
            return _refuse("pip failed; it uses its own configuration (`pip config list`) to find packages")
    for satisfied in LOCKS[name]:
        _stamp(satisfied).write_text(_wanted(satisfied))
    return 0


def _is_usable(venv: Path) -> bool:
    python = venv / "bin" / "python"
    if not python.exists():
        return False
    asked = subprocess.run(
        [python, "-c", "import pip, sys; print(sys.version_info[:2])"], capture_output=True, check=False
    )
    return asked.returncode == 0 and asked.stdout.decode().strip() == str(sys.version_info[:2])


def _stamp(name: str) -> Path:
    return VENV / f".installed-{name}"


def _wanted(name: str) -> str:
    total = hashlib.sha256()
    for path in (ROOT / "requirements" / f"{name}.txt", ROOT / "pyproject.toml"):
        total.update(path.read_bytes())
    return total.hexdigest()


def _refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
