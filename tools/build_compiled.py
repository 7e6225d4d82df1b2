"""Make the package with its compiled modules in `build/compiled` and print that folder.

With the folder in PYTHONPATH, Python finds the compiled modules before the checkout: the tests and the benchmarks run
on what images contain. The extensions are compiled by the code of the wheel's build hook (`compiled_modules.py`) and
kept in `~/.cache/mailboat/compiled`, keyed by the listed modules, all that they import, and the tools. A change
elsewhere compiles nothing; the sources are linked into the folder at each call.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from compiled_modules import compile_modules

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "agent_image"
TARGET = ROOT / "build" / "compiled"
KEPT = 12
"""Builds that the cache keeps, those used last."""
_DRAFT = ".building-"


def compiled_package() -> Path:
    """The folder, with the extensions compiled unless they are cached. Raises: SystemExit, after mypyc's errors."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboat" / "compiled"
    cache.mkdir(parents=True, exist_ok=True)
    modules = listed_modules()
    extensions = cache / _digest(modules)
    if not _use(extensions):  # without the lock: what is cached never waits until another checkout is compiled
        with (cache / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _use(extensions):
                _check_machine()
                print(f"Compiling {len(modules)} modules (minutes, once for each content)", file=sys.stderr, flush=True)
                _compile(modules, extensions)
            for draft in cache.glob(f"{_DRAFT}*"):
                shutil.rmtree(draft)  # of a compilation that was killed: it held the lock
            for old in sorted((folder for folder in cache.iterdir() if folder.is_dir()), key=_age)[KEPT:]:
                shutil.rmtree(old)
    _link(extensions)
    return TARGET


def _use(extensions: Path) -> bool:
    """Mark them as used last, so that they are not removed now. False if there are none."""
    try:
        os.utime(extensions)
    except FileNotFoundError:
        return False
    return True


def listed_modules() -> list[str]:
    """The modules that the build hook compiles, as paths below `agent_image`."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    return list(targets["wheel"]["hooks"]["custom"]["modules"])


def imported_files(modules: list[str]) -> set[Path]:
    """The modules and everything of the package that they import, directly or not: what can change compiled code."""
    pending = [SOURCES / module for module in modules]
    found = set(pending)
    while pending:
        for file in _imports(pending.pop()) - found:
            found.add(file)
            pending.append(file)
    return found


def _imports(file: Path) -> set[Path]:
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    stems = [SOURCES.joinpath(*name.split(".")) for name in names if name.split(".")[0] == "mailboat"]
    forms = {
        form for stem in stems for form in (stem.with_suffix(".py"), stem.with_suffix(".pyi"), stem / "__init__.py")
    }
    return {file for file in forms if file.exists()}


def _digest(modules: list[str]) -> str:
    total = hashlib.sha256("\n".join([sys.version, sysconfig.get_platform(), *modules]).encode())
    tools = {ROOT / "tools" / "compiled_modules.py", ROOT / "requirements" / "compile.txt"}
    for file in sorted(imported_files(modules) | tools):
        total.update(f"\0{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return total.hexdigest()[:24]


def _check_machine() -> None:
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which("gcc") is None or not headers.exists():
        raise SystemExit(
            f"compiling needs gcc and Python's headers ({headers}): on Debian, apt-get install gcc python3-dev"
        )


def _compile(modules: list[str], extensions: Path) -> None:
    draft = Path(tempfile.mkdtemp(dir=extensions.parent, prefix=_DRAFT))
    try:
        made = {file.relative_to(draft / "lib") for file in compile_modules(SOURCES, modules, draft)}
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        # Python would silently take the source of a module without an extension
        missing = [module for module in modules if Path(module).with_suffix(suffix) not in made]
        if missing:
            raise SystemExit(f"mypyc made no extension for {', '.join(missing)}")
        (draft / "lib").rename(extensions)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _link(extensions: Path) -> None:
    """Bring the target folder up to date. Byte code stays: it is checked against its source by Python itself."""
    wanted = {file.relative_to(SOURCES): file for file in (SOURCES / "mailboat").rglob("*") if _is_source(file)}
    wanted |= {file.relative_to(extensions): file for file in extensions.rglob("*.so")}
    for file in TARGET.rglob("*") if TARGET.exists() else ():
        if file.is_file() and file.suffix != ".pyc" and file.relative_to(TARGET) not in wanted:
            file.unlink()
    for name, source in wanted.items():
        target = TARGET / name
        if target.exists() and target.samefile(source):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(source)
        except OSError:  # the cache or the checkout is on another file system
            shutil.copy2(source, target)


def _is_source(file: Path) -> bool:
    return file.is_file() and file.suffix != ".pyc"


def _age(folder: Path) -> float:
    return -folder.stat().st_mtime


if __name__ == "__main__":
    print(compiled_package())
